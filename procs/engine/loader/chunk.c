/* SPDX-License-Identifier: Apache-2.0 */
/* Computes the size of a read from the measured pace of the device. */
#include "procs/engine/loader/chunk.h"

#include "lib/base/bytes.h"
#include "lib/base/clock.h"

#define PREFETCH_NS        (2 * NS_PER_MS) /* device time of one prefetch chunk */
#define PREFETCH_MIN_BYTES (256 * KIB)     /* smaller reads are slow on every device */
#define DECAY              (1.0 / 64)      /* decay per read */

void chunk_pace_note(struct chunk_pace *p, uint64_t bytes, uint64_t busy_ns)
{
    p->bytes += (double)bytes - DECAY * p->bytes;
    p->busy_ns += (double)busy_ns - DECAY * p->busy_ns;
}

uint64_t chunk_pace_bytes(const struct chunk_pace *p, uint16_t priority, uint64_t max_bytes,
                          uint64_t throttle)
{
    if (priority != LOAD_PREFETCH)
        return max_bytes;
    double rate = p->busy_ns > 0 ? p->bytes / p->busy_ns : 0; /* bytes per ns */
    if (throttle > 0 && rate > (double)throttle / NS_PER_S)
        rate = (double)throttle / NS_PER_S;
    double bytes = rate * PREFETCH_NS;
    uint64_t some = bytes < (double)max_bytes ? align_down((uint64_t)bytes, PAGE_BYTES) : max_bytes;
    uint64_t min = max_bytes < PREFETCH_MIN_BYTES ? max_bytes : PREFETCH_MIN_BYTES;
    return some > min ? some : min;
}
