#include "procs/engine/loader/chunk.h"

#include "lib/base/bytes.h"
#include "lib/base/clock.h"

#define GUESS_NS    (2 * NS_PER_MS) /* at the drive; two are (PREFETCH_CHUNKS_MAX) */
#define GUESS_LEAST (256 * KIB)     /* less is slow on any drive */
#define FORGET      (1.0 / 64)      /* with every read */

void chunk_pace_note(struct chunk_pace *p, uint64_t bytes, uint64_t busy_ns)
{
    p->bytes += (double)bytes - FORGET * p->bytes;
    p->busy_ns += (double)busy_ns - FORGET * p->busy_ns;
}

uint64_t chunk_pace_bytes(const struct chunk_pace *p, uint16_t priority, uint64_t most_bytes,
                          uint64_t throttle)
{
    if (priority != LOAD_PREFETCH)
        return most_bytes;
    double rate = p->busy_ns > 0 ? p->bytes / p->busy_ns : 0; /* bytes per ns */
    if (throttle > 0 && rate > (double)throttle / NS_PER_S)
        rate = (double)throttle / NS_PER_S;
    double bytes = rate * GUESS_NS;
    uint64_t some =
        bytes < (double)most_bytes ? align_down((uint64_t)bytes, PAGE_BYTES) : most_bytes;
    uint64_t least = most_bytes < GUESS_LEAST ? most_bytes : GUESS_LEAST;
    return some > least ? some : least;
}
