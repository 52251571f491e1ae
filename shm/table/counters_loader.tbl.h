/* SPDX-License-Identifier: Apache-2.0 */
/* Counters of a loader. COUNTER(name, kind, unit, doc); kind: COUNTER or GAUGE. Append only: the
 * order is the layout. */
COUNTER(loads_taken, COUNTER, loads, "LOADs accepted.")
COUNTER(loads_rejected, COUNTER, loads,
        "LOADs rejected: stale entry word, generation, epoch or incarnation.")
COUNTER(loads_promoted, COUNTER, loads, "LOADs for a shard already queued: priority raised.")
COUNTER(parts_done, COUNTER, parts, "Shards completely read.")
COUNTER(parts_failed, COUNTER, parts, "Shards that failed or whose entry was doomed.")
COUNTER(reads_submitted, COUNTER, reads, "Chunk reads submitted to the device.")
COUNTER(reads_failed, COUNTER, reads, "Chunk reads that ended with an error or short.")
COUNTER(reads_retried, COUNTER, reads, "Chunk reads retried after an error.")
COUNTER(bytes_submitted, COUNTER, bytes, "Bytes of reads submitted to the device.")
COUNTER(bytes_read, COUNTER, bytes, "Bytes of completed reads.")
COUNTER(bytes_published, COUNTER, bytes, "Bytes of shards read completely.")
COUNTER(bytes_demand, COUNTER, bytes, "Bytes read for demands.")
COUNTER(bytes_prefetch, COUNTER, bytes, "Bytes read for prefetches.")
COUNTER(inflight, GAUGE, reads, "Reads in flight.")
COUNTER(inflight_bytes, GAUGE, bytes, "Bytes of reads in flight.")
COUNTER(jobs, GAUGE, parts, "Shards queued or in flight.")
COUNTER(demand_waited_chunks_max, GAUGE, chunks,
        "Maximum prefetch chunks in flight ahead of a demand.")
COUNTER(read_ns, COUNTER, ns, "Time from submission to completion, summed over reads.")
COUNTER(flushes, COUNTER, flushes, "FLUSHes answered.")
COUNTER(messages, COUNTER, messages, "Messages received.")
COUNTER(messages_invalid, COUNTER, messages, "Messages rejected by the validator.")
COUNTER(messages_dropped, COUNTER, messages, "Messages that could not be sent.")
COUNTER(throttle_ns, COUNTER, ns, "Time in which the throttle delayed a completed read.")
COUNTER(backend, GAUGE, number, "1 io_uring, 2 pread.")
COUNTER(checksums_verified, COUNTER, parts, "Shards with a correct checksum.")
COUNTER(checksums_failed, COUNTER, parts, "Shards with a wrong checksum.")
COUNTER(checksum_rereads, COUNTER, parts, "Shards read again after a wrong checksum.")
COUNTER(checksum_bytes, COUNTER, bytes, "Bytes checksummed.")
COUNTER(checksum_ns, COUNTER, ns, "Time spent on checksums.")
COUNTER(busy_ns, COUNTER, ns, "Time with a read in flight or delayed by the throttle.")
COUNTER(loads_ns, COUNTER, ns, "Time from LOAD to last byte, summed over completed shards.")
#define LOAD_BOUND(name, ns)                                                                       \
    COUNTER(loads_##name, COUNTER, parts, "Shards that took at most this long.")
#include "shm/table/load_bounds.tbl.h"
COUNTER(parts_failed_over, COUNTER, parts, "Shards restarted on another copy of the file.")
COUNTER(quarantines, COUNTER, copies, "Copies of the file this process quarantined.")
COUNTER(quarantined, GAUGE, copies, "Copies of the file in quarantine.")
COUNTER(log_lines_dropped, COUNTER, lines, "Log lines dropped because stderr was not read.")
COUNTER(
    reads_without_memory, COUNTER, reads,
    "Chunk reads that failed because /dev/shm was full or memory was short; they are tried again.")
COUNTER(cache_slots, GAUGE, parts, "Shards that the file of the cache has room for.")
COUNTER(cache_used, GAUGE, parts, "Shards in the file of the cache.")
COUNTER(cache_checked, GAUGE, parts, "Heads of slots read since the start.")
COUNTER(cache_hits, COUNTER, parts, "Shards read from the cache instead of a server.")
COUNTER(cache_bytes_read, COUNTER, bytes, "Bytes of completed reads of the cache.")
COUNTER(cache_bytes_written, COUNTER, bytes, "Bytes of shards and heads written to the cache.")
COUNTER(cache_damaged, COUNTER, parts, "Shards of the cache that were wrong or not readable.")
COUNTER(cache_evicted, COUNTER, parts, "Shards of the cache replaced by others.")
COUNTER(cache_dropped, COUNTER, parts,
        "Shards not written: too many waited, or they had left memory.")
#undef COUNTER
