/* SPDX-License-Identifier: Apache-2.0 */
/* Parts of the budget in the order of the bar. PART(letter, name, sum of keys below memory.plan).
 * The arena is drawn before them; the rest of the bar is unallocated. */
PART('K', "kv", LEDGER(kv_bytes) + LEDGER(kv_lent_bytes))
PART('P', "private", LEDGER(private_bytes))
PART('T', "text", LEDGER(text_bytes))
PART('S', "segments", LEDGER(segments_bytes))
PART('O', "kernel", LEDGER(kernel_bytes) + LEDGER(page_table_bytes) + LEDGER(tmpfs_node_bytes))
PART('F', "in flight", LEDGER(in_flight_bytes))
PART('M', "margin", LEDGER(margin_bytes))
#undef PART
