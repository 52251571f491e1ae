/* SPDX-License-Identifier: Apache-2.0 */
/* Thread pool: fork and join of one function over all compute threads, many thousand times per
 * second. The work is divided into parts - one per thread for small work, several per thread for
 * large work - that threads claim: a late thread (it must be woken, or a loader uses its core)
 * claims fewer, so no part waits for a thread that has not started. Between runs the workers spin
 * for some microseconds, then sleep on a futex; the hit path makes no other system call. */
#ifndef SLUICE_DEVICE_HOST_POOL_H
#define SLUICE_DEVICE_HOST_POOL_H

#include <stdint.h>

#include "lib/base/error.h"

#define POOL_THREADS_MAX 256

struct pool;

/* Computes part `part` of `parts`; exactly one thread runs each part. Parts divide the work by
 * output or by row, never a reduction. Scratch may be per part when parts <= threads, else per
 * thread (pool_me). */
typedef void pool_fn(void *arg, uint32_t part, uint32_t parts);

/* threads: compute threads, including the caller of pool_run (thread 0). nice: of the workers
 * created here; the caller's own is unchanged. part_work_max: multiplications of a part, which the
 * caller may have to wait for (pool_parts). NULL with *error. */
struct pool *pool_create(uint32_t threads, int nice, uint64_t part_work_max, struct error *error);
void pool_destroy(struct pool *pool);

/* Runs fn in one part per thread; returns when all parts have ended. One caller at a time. */
void pool_run(struct pool *pool, pool_fn *fn, void *arg);

/* pool_run with `parts` >= 1 parts. */
void pool_run_parts(struct pool *pool, uint32_t parts, pool_fn *fn, void *arg);

/* Suggested number of parts for `work` multiplications: a multiple of the number of threads. */
uint32_t pool_parts(const struct pool *pool, uint64_t work);

/* Number of the current thread, [0, threads): the caller of pool_run is 0. */
uint32_t pool_me(void);

uint32_t pool_threads(const struct pool *pool);

/* Range of part i of `parts` of [0, n), aligned to `unit`. */
static inline void pool_share(uint32_t n, uint32_t unit, uint32_t i, uint32_t parts,
                              uint32_t *begin, uint32_t *end)
{
    uint64_t units = (n + unit - 1) / unit;
    uint64_t b = units * i / parts * unit, e = units * (i + 1) / parts * unit;
    *begin = b < n ? (uint32_t)b : n;
    *end = e < n ? (uint32_t)e : n;
}

#endif
