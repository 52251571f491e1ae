/* SPDX-License-Identifier: Apache-2.0 */
/* Counts of a simulator run: fields of struct sim_stats, in the order of CSV and JSON.
 * COUNT(name, meaning) is a uint64_t, REAL(name, meaning) a double. No include guard; undefined
 * macros expand to nothing and both are undefined at the end. */
#ifndef COUNT
#define COUNT(name, meaning)
#endif
#ifndef REAL
#define REAL(name, meaning)
#endif
COUNT(passes, "passes through all layers")
COUNT(tokens, "tokens of these passes")
COUNT(experts, "experts of these passes, of all layers: each one once per pass")
COUNT(accesses, "expert accesses: hits, in-flight hits, misses and skipped")
COUNT(hits, "resident at the access")
COUNT(hits_inflight, "already loading at the access")
COUNT(misses, "loaded on demand")
COUNT(skipped, "skipped by the precision policy")
COUNT(rerouted, "accesses of resident experts in place of missing ones (resident-first)")
COUNT(low_precision_accesses, "accesses served at, or requesting, a precision below high")
COUNT(demands, "experts read on demand: one may be a miss of several sequences")
COUNT(demand_bytes, "bytes read on demand")
COUNT(prefetch_bytes, "bytes read by prefetches")
COUNT(prefetches, "prefetches issued")
COUNT(prefetches_used, "prefetches accessed later")
COUNT(prefetches_unused, "prefetches evicted without an access")
COUNT(unused_bytes, "bytes of unused prefetches")
COUNT(predicted_accesses, "accesses in layers with predictions")
COUNT(predicted_hits, "predicted accesses among these")
COUNT(predictions, "predictions made")
COUNT(prefetch_hits, "hits on prefetched experts")
COUNT(covered, "accesses that were resident or predicted (Fate, section 4.4)")
REAL(penalty, "misses and in-flight hits, weighted by size: 1 at the highest precision present")
REAL(stall_ns, "time without any computable expert")
REAL(compute_ns, "compute time of layers and experts")
COUNT(gpu_hits, "uses of experts that had a slot of the GPU")
COUNT(gpu_uploads, "uses that waited for a copy to the GPU")
COUNT(gpu_evictions, "experts that lost their slot of the GPU")
COUNT(gpu_on_cpu, "uses that the CPU computed, without a slot (cooperative)")
COUNT(gpu_background, "of these, experts that were copied for later uses")
COUNT(gpu_prefetches, "experts copied to the GPU for predictions (prefetch)")
COUNT(gpu_prefetches_timely, "of these, used when the copy had ended")
COUNT(gpu_prefetches_late, "of these, used before")
COUNT(gpu_prefetches_unused, "of these, replaced before a use")
COUNT(gpu_upload_bytes, "bytes copied to the GPU")
COUNT(cpu_layer_uses, "uses of experts in layers that no GPU has, if others are on one")
COUNT(table_rows, "rows of a table on storage that tokens read")
COUNT(table_pages, "pages of the table that these rows are in")
COUNT(table_reads, "pages of the table that were read: the others were in memory")
COUNT(table_bytes, "bytes of these reads")
REAL(gpu_upload_ns, "time of these copies")
REAL(gpu_stall_ns, "part of stall_ns: only copies to the GPU ran")
#undef COUNT
#undef REAL
