/* SPDX-License-Identifier: Apache-2.0 */
/* Parts of the budget in the order of the bar. PART(letter, name, sum of keys below memory.plan).
 * The arena is drawn before them; the rest of the bar is unallocated. */
PART('K', "kv", PLAN(kv_bytes))
PART('P', "private", PLAN(private_bytes))
PART('T', "text", PLAN(text_bytes))
PART('S', "segments", PLAN(segments_bytes))
PART('O', "kernel", PLAN(kernel_bytes) + PLAN(page_table_bytes) + PLAN(tmpfs_node_bytes))
PART('F', "in flight", PLAN(in_flight_bytes))
PART('M', "margin", PLAN(margin_bytes))
#undef PART
