/* SPDX-License-Identifier: Apache-2.0 */
/* Metrics made from counters of the stats snapshot. The rows of one metric are consecutive.
 * METRIC(name, type, help)                 starts a metric; "sluice_" is put before its name
 * VALUE(counter, service, labels, scale)   a sum over the service's processes
 * EACH(counter, label, service, scale)     one value per process of the service, labelled by number
 * AT(path, labels, scale)                  a number of the snapshot
 * No include guard. */
METRIC(generation_tokens_total, counter, "New tokens computed.")
VALUE(tokens_decode, compute, "", 1)
METRIC(prompt_tokens_total, counter, "Prompt tokens computed.")
VALUE(tokens_prefill, compute, "", 1)
METRIC(prompt_tokens_reused_total, counter,
       "Prompt tokens not computed: their keys and values were kept from an earlier sequence.")
VALUE(tokens_reused, compute, "", 1)
METRIC(kv_kept_bytes, gauge, "Keys and values kept for prompts that begin with the same tokens.")
VALUE(kv_kept_bytes, compute, "", 1)
METRIC(decode_seconds_total, counter, "Time in decode.")
VALUE(decode_ns, compute, "", 1e-9)
METRIC(prefill_seconds_total, counter, "Time in prefill.")
VALUE(prefill_ns, compute, "", 1e-9)
METRIC(stall_seconds_total, counter, "Time waiting for experts.")
VALUE(stall_ns, compute, "", 1e-9)
METRIC(requests_running, gauge, "Sequences being computed.")
VALUE(sequences_running, compute, "", 1)
METRIC(requests_waiting, gauge, "Sequences waiting.")
VALUE(sequences_queued, compute, "", 1)
METRIC(sequences_resumed_total, counter, "Sequences resumed after a restart of compute.")
VALUE(sequences_resumed, compute, "", 1)
METRIC(expert_requests_total, counter, "Expert accesses by state of the expert at the first check.")
VALUE(hits, compute, "result=\"hit\"", 1)
VALUE(hits_inflight, compute, "result=\"in_flight\"", 1)
VALUE(misses, compute, "result=\"miss\"", 1)
VALUE(skipped, compute, "result=\"skipped\"", 1)
METRIC(expert_low_precision_accesses_total, counter, "Expert accesses served at a lower precision.")
VALUE(low_precision_accesses, compute, "", 1)
METRIC(expert_bytes_read_total, counter, "Bytes read from a storage device.")
EACH(bytes_read, device, loader, 1)
METRIC(device_busy_seconds_total, counter, "Time with at least one read in flight.")
EACH(busy_ns, device, loader, 1e-9)
METRIC(expert_load_errors_total, counter,
       "Failed reads, wrong checksums, experts damaged in memory.")
VALUE(reads_failed, loader, "kind=\"read\"", 1)
VALUE(checksums_failed, loader, "kind=\"checksum\"", 1)
VALUE(experts_damaged, cache, "kind=\"memory\"", 1)
METRIC(expert_evictions_total, counter, "Experts evicted.")
VALUE(evictions, cache, "", 1)
METRIC(experts_resident, gauge, "Experts resident in the arena.")
VALUE(resident_entries, cache, "", 1)
METRIC(prefetch_total, counter,
       "Prefetched experts, by whether they were accessed before eviction.")
VALUE(prefetches_used, cache, "result=\"used\"", 1)
VALUE(prefetches_unused, cache, "result=\"unused\"", 1)
METRIC(prefetch_late_total, counter,
       "Prefetched experts that were still loading when compute needed them.")
VALUE(prefetches_late, cache, "", 1)
METRIC(memory_budget_bytes, gauge, "Memory budget.")
AT("memory.budget_bytes", "", 1)
METRIC(memory_used_bytes, gauge, "Memory used by all engine processes, by the ledger.")
AT("memory.used_bytes", "", 1)
METRIC(memory_part_bytes, gauge,
       "Memory of one part; the parts do not add up to memory_used_bytes.")
AT("memory.segments.arena", "part=\"arena\"", 1)
AT("memory.segments.kv", "part=\"kv\"", 1)
AT("memory.plan.private_bytes", "part=\"private\"", 1)
AT("memory.plan.text_bytes", "part=\"text\"", 1)
AT("memory.plan.kernel_bytes", "part=\"kernel\"", 1)
AT("memory.plan.page_table_bytes", "part=\"page_tables\"", 1)
METRIC(oom_kills_total, counter, "Processes killed by the kernel for lack of memory.")
VALUE(oom_kills, supervisor, "", 1)
METRIC(http_requests_total, counter, "HTTP requests received.")
VALUE(requests, gateway, "", 1)
METRIC(http_requests_rejected_total, counter, "HTTP requests rejected or failed.")
VALUE(requests_bad, gateway, "class=\"4xx\"", 1)
VALUE(requests_failed, gateway, "class=\"5xx\"", 1)
VALUE(requests_malformed, gateway, "class=\"malformed\"", 1)
METRIC(http_connections, gauge, "HTTP connections open.")
VALUE(connections, gateway, "", 1)
METRIC(http_buffered_bytes, gauge, "Bytes of request bodies and responses buffered.")
VALUE(buffered_bytes, gateway, "", 1)
#undef METRIC
#undef VALUE
#undef EACH
#undef AT
