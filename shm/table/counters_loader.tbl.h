/* Counters of a loader. COUNTER(name, kind, unit, doc): kind COUNTER or GAUGE. Append only: order
 * is layout. */
COUNTER(loads_taken, COUNTER, loads, "LOADs accepted.")
COUNTER(loads_rejected, COUNTER, loads,
        "LOADs refused: stale word, generation, epoch or incarnation.")
COUNTER(loads_promoted, COUNTER, loads, "LOADs for a job already held: priority raised.")
COUNTER(parts_done, COUNTER, parts, "Parts completely read.")
COUNTER(parts_failed, COUNTER, parts, "Parts that failed or were doomed.")
COUNTER(reads_submitted, COUNTER, reads, "Chunk reads handed to the device.")
COUNTER(reads_failed, COUNTER, reads, "Chunk reads that ended with an error or short.")
COUNTER(reads_retried, COUNTER, reads, "Chunk reads tried again after an error.")
COUNTER(bytes_submitted, COUNTER, bytes, "Bytes of reads handed to the device.")
COUNTER(bytes_read, COUNTER, bytes, "Bytes that arrived.")
COUNTER(bytes_published, COUNTER, bytes, "Bytes of parts that ended done.")
COUNTER(bytes_demand, COUNTER, bytes, "Bytes read for demands.")
COUNTER(bytes_prefetch, COUNTER, bytes, "Bytes read for prefetches.")
COUNTER(inflight, GAUGE, reads, "Reads now at the device.")
COUNTER(inflight_bytes, GAUGE, bytes, "Bytes of reads now at the device.")
COUNTER(jobs, GAUGE, parts, "Parts held.")
COUNTER(demand_waited_chunks_max, GAUGE, chunks,
        "Most prefetch chunks a demand found in front of it at the device.")
COUNTER(read_ns, COUNTER, ns, "Time from submission to completion, summed over reads.")
COUNTER(flushes, COUNTER, flushes, "FLUSHes answered.")
COUNTER(messages, COUNTER, messages, "Messages received.")
COUNTER(messages_invalid, COUNTER, messages, "Messages refused by the validator.")
COUNTER(messages_dropped, COUNTER, messages, "Messages that could not be sent.")
COUNTER(throttle_ns, COUNTER, ns,
        "Time with a read that came back and that the throttle withholds.")
COUNTER(backend, GAUGE, number, "1 io_uring, 2 pread.")
COUNTER(checksums_verified, COUNTER, parts, "Parts whose checksum was right.")
COUNTER(checksums_failed, COUNTER, parts, "Parts that arrived with a wrong checksum.")
COUNTER(checksum_rereads, COUNTER, parts, "Parts read once more after a wrong checksum.")
COUNTER(checksum_bytes, COUNTER, bytes, "Bytes that were summed.")
COUNTER(checksum_ns, COUNTER, ns, "Time spent on checksums.")
COUNTER(busy_ns, COUNTER, ns, "Time with a read at the device, or withheld by the throttle.")
COUNTER(loads_ns, COUNTER, ns,
        "Time from LOAD to last byte, summed over parts that were published.")
#define LOAD_BOUND(name, ns)                                                                       \
    COUNTER(loads_##name, COUNTER, parts, "Parts that took at most that long.")
#include "shm/table/load_bounds.tbl.h"
COUNTER(parts_failed_over, COUNTER, parts, "Parts begun anew at another copy of the file.")
COUNTER(quarantines, COUNTER, copies, "Copies this process put in quarantine.")
COUNTER(quarantined, GAUGE, copies, "Copies in quarantine.")
#undef COUNTER
