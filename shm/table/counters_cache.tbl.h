/* SPDX-License-Identifier: Apache-2.0 */
/* Counters of the cache manager. COUNTER(name, kind, unit, doc); kind: COUNTER or GAUGE. Append
 * only. */
COUNTER(demands, COUNTER, messages, "DEMANDs handled.")
COUNTER(demand_entries, COUNTER, entries, "Entries demanded.")
COUNTER(demands_retried, COUNTER, messages, "Repeated DEMANDs.")
COUNTER(hints, COUNTER, messages, "HINTs handled.")
COUNTER(hint_entries, COUNTER, entries, "Entries hinted.")
COUNTER(hints_expired, COUNTER, entries, "Predictions dropped because their layer had passed.")
COUNTER(prefetches, COUNTER, entries, "Entries reserved for a HINT.")
COUNTER(prefetches_used, COUNTER, entries, "Prefetched entries accessed before eviction.")
COUNTER(prefetches_unused, COUNTER, entries,
        "Prefetched entries evicted or cancelled without an access.")
COUNTER(demand_loads, COUNTER, entries, "Entries reserved for a DEMAND.")
COUNTER(loads_sent, COUNTER, loads, "LOADs sent: shards of entries.")
COUNTER(loads_resent, COUNTER, loads, "LOADs sent again.")
COUNTER(evictions, COUNTER, entries, "READY entries evicted.")
COUNTER(cancels, COUNTER, entries, "LOADING entries doomed for a demand or a shrink.")
COUNTER(resets, COUNTER, entries, "DOOMED entries returned to ABSENT.")
COUNTER(load_failures, COUNTER, entries, "Entries that ended DOOMED because of a read error.")
COUNTER(punched_bytes, COUNTER, bytes, "Arena bytes released by hole-punching.")
COUNTER(prefaulted_bytes, COUNTER, bytes, "Bytes of the arena prefaulted.")
COUNTER(backed_bytes, GAUGE, bytes, "Arena bytes charged to the quota.")
COUNTER(owned_bytes, GAUGE, bytes, "Slot bytes of entries that are not ABSENT.")
COUNTER(resident_entries, GAUGE, entries, "READY expert entries.")
COUNTER(resident_payload_bytes, GAUGE, bytes, "Payload bytes of READY expert entries.")
COUNTER(free_backed_bytes, GAUGE, bytes, "Backed bytes without an entry, kept for reuse.")
COUNTER(quota_bytes, GAUGE, bytes, "Quota in effect.")
COUNTER(waiting_entries, GAUGE, entries, "Demanded entries waiting for free capacity.")
COUNTER(accesses_read, COUNTER, records, "Access-log records read.")
COUNTER(accesses_dropped, COUNTER, records,
        "Access-log records dropped when the reader resynchronised.")
COUNTER(messages, COUNTER, messages, "Messages received.")
COUNTER(messages_invalid, COUNTER, messages, "Messages rejected by the validator.")
COUNTER(messages_dropped, COUNTER, messages, "Messages that could not be sent.")
COUNTER(loaders_cleaned, COUNTER, loaders, "Exited loaders whose ranges were punched and reset.")
COUNTER(rebuilds, COUNTER, rebuilds, "Rebuilds from the directory after a restart.")
COUNTER(load_messages, COUNTER, messages, "Messages that carried LOADs.")
COUNTER(expert_swaps, COUNTER, pairs, "Masked routing: experts replaced by more important ones.")
COUNTER(predicted_absent, COUNTER, entries,
        "Predicted entries that were ABSENT when the HINT arrived.")
COUNTER(prefetches_timely, COUNTER, entries,
        "Of predicted_absent: READY when compute reached their layer.")
COUNTER(prefetches_late, COUNTER, entries, "Of predicted_absent: loading, but not READY by then.")
COUNTER(huge_bytes, COUNTER, bytes, "Bytes of slots placed in huge pages.")
COUNTER(huge_ns, COUNTER, ns, "Time spent allocating huge pages, during a load or ahead of it.")
COUNTER(huge_failed, COUNTER, slots, "Slots for which the kernel provided no huge pages.")
COUNTER(log_lines_dropped, COUNTER, lines, "Log lines dropped because stderr was not read.")
COUNTER(experts_rechecked, COUNTER, experts,
        "Experts in memory that were compared with their checksums after a crash.")
COUNTER(experts_damaged, COUNTER, experts,
        "Of experts_rechecked: damaged in memory, and dropped to be read again.")
COUNTER(misses_near, COUNTER, entries,
        "Demanded entries that were evicted not long before: a 64th of the quota more would have "
        "kept them.")
COUNTER(page_demands, COUNTER, messages, "PAGES handled: pages of a table on storage.")
COUNTER(page_loads, COUNTER, pages, "Pages of the table that were reserved to be read.")
COUNTER(page_evictions, COUNTER, pages, "Pages of the table that gave their slot to another one.")
COUNTER(expert_loads_sent, COUNTER, loads, "Of loads_sent: shards of experts.")
#undef COUNTER
