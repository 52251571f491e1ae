/* SPDX-License-Identifier: Apache-2.0 */
/* Computes when each read of the emulated device completes. */
#include "procs/engine/loader/throttle.h"

#include "lib/base/bytes.h"
#include "lib/base/clock.h"

#define CHUNKS_PER_SECOND 64

static void serve(struct throttle *t, uint64_t now_ns)
{
    double bytes = (double)t->rate * (double)(now_ns - t->stamp_ns) / (double)NS_PER_S;
    t->stamp_ns = now_ns;
    t->served += bytes;
    if (t->rate == 0 || t->served > t->taken)
        t->served = t->taken; /* an idle device accumulates no credit */
}

void throttle_set(struct throttle *t, uint64_t rate, uint64_t now_ns)
{
    if (t->rate == rate)
        return;
    serve(t, now_ns);
    t->rate = rate;
    if (rate != 0 && t->taken - t->served > (double)rate)
        t->served = t->taken - (double)rate;
}

double throttle_take(struct throttle *t, uint64_t bytes, uint64_t now_ns)
{
    serve(t, now_ns);
    t->taken += (double)bytes;
    return t->taken;
}

uint64_t throttle_left_ns(struct throttle *t, double position, uint64_t now_ns)
{
    serve(t, now_ns);
    if (t->served >= position)
        return 0;
    return (uint64_t)((position - t->served) / (double)t->rate * (double)NS_PER_S) + 1;
}

uint64_t throttle_chunk(const struct throttle *t, uint64_t chunk_bytes)
{
    uint64_t chunk = align_down(t->rate / CHUNKS_PER_SECOND, PAGE_BYTES);
    if (t->rate == 0 || chunk > chunk_bytes)
        return chunk_bytes;
    return chunk < PAGE_BYTES ? PAGE_BYTES : chunk;
}
