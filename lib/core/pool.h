/* The threads that compute: fork and join of one function over all of them, many thousand times a
 * second. The work is cut into parts - as many as threads where it is small, several times as many
 * where it is large - and parts are claimed: a thread that is late (it has to be woken, or its
 * processor is lent to a loader) does fewer of them, so nobody waits for one that was never
 * started. Between two runs workers spin for some microseconds and then sleep on a futex; a hit
 * path makes no other system call than those. */
#ifndef SLUICE_CORE_POOL_H
#define SLUICE_CORE_POOL_H

#include <stdint.h>

#include "lib/base/error.h"

#define POOL_THREADS_MAX 256

struct pool;

/* Part `part` of `parts`, run by exactly one thread. Parts divide the work by output or by row,
 * never by reduction. Scratch may belong to a part where there are no more parts than threads, or
 * to the thread (pool_me). */
typedef void pool_fn(void *arg, uint32_t part, uint32_t parts);

/* threads: all that compute, the caller of pool_run included (it is thread 0). nice: of the workers
 * made here; the caller's own is the caller's business. NULL with *error. */
struct pool *pool_create(uint32_t threads, int nice, struct error *error);
void pool_destroy(struct pool *pool);

/* Runs all parts of fn, one for each thread, and returns when every one has ended. One caller at a
 * time. */
void pool_run(struct pool *pool, pool_fn *fn, void *arg);

/* The same in `parts` parts; at least one. */
void pool_run_parts(struct pool *pool, uint32_t parts, pool_fn *fn, void *arg);

/* Parts worth making of so many multiplications: a multiple of the number of threads. */
uint32_t pool_parts(const struct pool *pool, uint64_t work);

/* Number of the thread that runs a part, [0, threads): the caller of pool_run is 0. */
uint32_t pool_me(void);

uint32_t pool_threads(const struct pool *pool);

/* Part i of `parts` of [0, n), cut at multiples of `unit`. */
static inline void pool_share(uint32_t n, uint32_t unit, uint32_t i, uint32_t parts,
                              uint32_t *begin, uint32_t *end)
{
    uint64_t units = (n + unit - 1) / unit;
    uint64_t b = units * i / parts * unit, e = units * (i + 1) / parts * unit;
    *begin = b < n ? (uint32_t)b : n;
    *end = e < n ? (uint32_t)e : n;
}

#endif
