#include "procs/loader/loader_throttle.h"

#include "lib/base/bytes.h"
#include "lib/base/clock.h"

#define LATE_MS           250 /* of lateness that is made up for */
#define IDLE_MS           20  /* of idleness that may be used afterwards */
#define CHUNKS_PER_SECOND 64

static void refill(struct throttle *t, uint64_t now_ns, unsigned most_ms)
{
    double rate = (double)t->rate;
    uint64_t passed_ns = now_ns - t->stamp_ns;
    t->tokens += rate * (double)passed_ns / (double)NS_PER_S;
    t->stamp_ns = now_ns;
    /* Who was not even looked at for so long did not run at all: nothing to make up for. */
    if (passed_ns > LATE_MS * NS_PER_MS)
        most_ms = 0;
    double most = rate * most_ms / 1000;
    if (t->tokens > most)
        t->tokens = most;
}

void throttle_idle(struct throttle *t, uint64_t now_ns)
{
    refill(t, now_ns, IDLE_MS);
}

void throttle_set(struct throttle *t, uint64_t rate, uint64_t now_ns)
{
    if (t->rate == rate)
        return;
    if (t->rate != 0)
        refill(t, now_ns, LATE_MS);
    if (t->rate == 0 || rate == 0)
        t->tokens = 0;
    t->rate = rate;
    t->stamp_ns = now_ns;
    if (t->tokens < -(double)rate)
        t->tokens = -(double)rate;
}

uint64_t throttle_wait_ns(struct throttle *t, uint64_t now_ns)
{
    if (t->rate == 0)
        return 0;
    refill(t, now_ns, LATE_MS);
    if (t->tokens >= 0)
        return 0;
    return (uint64_t)(-t->tokens / (double)t->rate * (double)NS_PER_S) + 1;
}

void throttle_take(struct throttle *t, uint64_t bytes)
{
    if (t->rate != 0)
        t->tokens -= (double)bytes;
}

uint64_t throttle_chunk(const struct throttle *t, uint64_t chunk_bytes)
{
    uint64_t chunk = align_down(t->rate / CHUNKS_PER_SECOND, PAGE_BYTES);
    if (t->rate == 0 || chunk > chunk_bytes)
        return chunk_bytes;
    return chunk < PAGE_BYTES ? PAGE_BYTES : chunk;
}
