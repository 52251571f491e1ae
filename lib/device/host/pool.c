/* SPDX-License-Identifier: Apache-2.0 */
/* Fork and join: a short spin, then a futex. */
#include "lib/device/host/pool.h"

#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "lib/base/assert.h"

#define POOL_MAGIC 0x504f4f4cu
/* Spins before sleeping: about 20 microseconds, longer than any gap within a token and far shorter
 * than a wait for storage. */
#define POOL_SPINS 800
/* Multiplications per part: some tens of microseconds, against less than one for the claim. More
 * parts per thread hardly improve the balance. */
#define PART_WORK            (1u << 19)
#define PARTS_PER_THREAD     4
#define PARTS_PER_THREAD_MAX 4096

static _Thread_local uint32_t my_number; /* number of this thread in its pool; 0: the caller */

struct worker {
    struct pool *pool;
    uint32_t number;
    pthread_t thread;
};

struct pool {
    uint32_t magic;
    uint32_t threads;
    uint64_t part_work_max;
    int nice;
    _Atomic bool stop;
    struct worker *worker; /* threads - 1 */
    pool_fn *fn;           /* of the turn in `claim`; valid for threads that claimed a part of it */
    void *arg;
    uint32_t parts; /* of the turn in `claim` */
    /* claim: turn(32) | unclaimed parts(32). The store that starts a turn releases fn, arg and
     * parts; a claim decrements it by compare-and-swap, which fails when the turn has changed.
     * left: parts that have not ended; the turn is over at 0.
     * news: futex word of sleeping workers. */
    _Alignas(64) _Atomic uint64_t claim;
    _Alignas(64) _Atomic uint32_t left;
    _Atomic uint32_t caller_sleeps;
    _Alignas(64) _Atomic uint32_t news;
    _Atomic uint32_t waiters;
};

static inline void pause_briefly(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static void futex_sleep(_Atomic uint32_t *word, uint32_t seen)
{
    syscall(SYS_futex, (uint32_t *)word, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
}

static void futex_wake_all(_Atomic uint32_t *word)
{
    syscall(SYS_futex, (uint32_t *)word, FUTEX_WAKE_PRIVATE, INT32_MAX, NULL, NULL, 0);
}

static bool parts_left(uint64_t claim)
{
    return (uint32_t)claim > 0;
}

/* Claims a part of the current turn. False: none is left. */
static bool claim_part(struct pool *p, uint32_t *part)
{
    uint64_t claim = atomic_load_explicit(&p->claim, memory_order_acquire);
    while (parts_left(claim))
        if (atomic_compare_exchange_weak_explicit(&p->claim, &claim, claim - 1,
                                                  memory_order_acq_rel, memory_order_acquire)) {
            *part = (uint32_t)claim - 1;
            return true;
        }
    return false;
}

/* Runs parts until none is left. */
static void work(struct pool *p)
{
    uint32_t part;
    while (claim_part(p, &part)) {
        p->fn(p->arg, part, p->parts);
        if (atomic_fetch_sub(&p->left, 1) == 1 && atomic_load(&p->caller_sleeps))
            futex_wake_all(&p->left);
    }
}

/* Waits until there are parts to claim, or the pool stops. A worker increments `waiters` before its
 * last check, and start_turn publishes before it reads `waiters` (both sequentially consistent), so
 * no wake-up is lost. */
static void wait_for_turn(struct pool *p)
{
    for (int i = 0; i < POOL_SPINS; i++) {
        if (parts_left(atomic_load_explicit(&p->claim, memory_order_relaxed)))
            return;
        pause_briefly();
    }
    uint32_t seen = atomic_load(&p->news);
    atomic_fetch_add(&p->waiters, 1);
    if (!parts_left(atomic_load(&p->claim)) && !atomic_load(&p->stop))
        futex_sleep(&p->news, seen);
    atomic_fetch_sub(&p->waiters, 1);
}

static void *worker_main(void *arg)
{
    const struct worker *me = arg;
    struct pool *p = me->pool;
    OBJ_CHECK(p, POOL_MAGIC);
    my_number = me->number;
    if (p->nice > 0)
        setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), p->nice);
    while (!atomic_load_explicit(&p->stop, memory_order_relaxed)) {
        work(p);
        wait_for_turn(p);
    }
    return NULL;
}

static void wake_workers(struct pool *p)
{
    if (atomic_load(&p->waiters) == 0)
        return;
    atomic_fetch_add(&p->news, 1);
    futex_wake_all(&p->news);
}

static void start_turn(struct pool *p, uint32_t parts, pool_fn *fn, void *arg)
{
    uint64_t turn = (atomic_load_explicit(&p->claim, memory_order_relaxed) >> 32) + 1;
    p->fn = fn;
    p->arg = arg;
    p->parts = parts;
    atomic_store_explicit(&p->left, parts, memory_order_relaxed);
    atomic_store(&p->claim, turn << 32 | parts);
    wake_workers(p);
}

static void join_turn(struct pool *p)
{
    for (int i = 0; i < POOL_SPINS; i++) {
        if (atomic_load_explicit(&p->left, memory_order_acquire) == 0)
            return;
        pause_briefly();
    }
    atomic_store(&p->caller_sleeps, 1);
    uint32_t left;
    while ((left = atomic_load(&p->left)) != 0)
        futex_sleep(&p->left, left);
    atomic_store(&p->caller_sleeps, 0);
}

void pool_run_parts(struct pool *p, uint32_t parts, pool_fn *fn, void *arg)
{
    sl_assert(parts >= 1);
    if (p->threads == 1) {
        for (uint32_t i = 0; i < parts; i++)
            fn(arg, i, parts);
        return;
    }
    start_turn(p, parts, fn, arg);
    work(p);
    join_turn(p);
}

void pool_run(struct pool *p, pool_fn *fn, void *arg)
{
    pool_run_parts(p, p->threads, fn, arg);
}

uint32_t pool_parts(const struct pool *p, uint64_t work)
{
    uint64_t each = work / PART_WORK / p->threads, bounded = work / p->part_work_max / p->threads;
    if (each < 1 || p->threads == 1)
        return p->threads;
    each = each < PARTS_PER_THREAD ? each : PARTS_PER_THREAD;
    bounded = bounded < PARTS_PER_THREAD_MAX ? bounded : PARTS_PER_THREAD_MAX;
    return p->threads * (uint32_t)(each > bounded ? each : bounded);
}

uint32_t pool_me(void)
{
    return my_number;
}

uint32_t pool_threads(const struct pool *p)
{
    return p->threads;
}

static void stop_workers(struct pool *p, uint32_t started)
{
    atomic_store(&p->stop, true);
    wake_workers(p);
    for (uint32_t i = 0; i < started; i++)
        pthread_join(p->worker[i].thread, NULL);
}

struct pool *pool_create(uint32_t threads, int nice, uint64_t part_work_max, struct error *error)
{
    sl_assert(threads >= 1 && threads <= POOL_THREADS_MAX);
    struct pool *p = aligned_alloc(64, sizeof *p);
    struct worker *workers = calloc(threads, sizeof *workers);
    if (!p || !workers) {
        free(p);
        free(workers);
        error_set(error, ERR_NO_MEMORY, "out of memory (pool of %u threads)", threads);
        return NULL;
    }
    /* turn 0 has no parts */
    *p = (struct pool){.magic = POOL_MAGIC,
                       .threads = threads,
                       .part_work_max = part_work_max,
                       .nice = nice,
                       .worker = workers};
    for (uint32_t i = 0; i + 1 < threads; i++) {
        p->worker[i] = (struct worker){.pool = p, .number = i + 1};
        int rc = pthread_create(&p->worker[i].thread, NULL, worker_main, &p->worker[i]);
        if (rc != 0) {
            error_set_errno(error, ERR_NO_MEMORY, rc, "cannot start thread %u of %u", i + 2,
                            threads);
            stop_workers(p, i);
            free(workers);
            free(p);
            return NULL;
        }
    }
    return p;
}

void pool_destroy(struct pool *p)
{
    if (!p)
        return;
    OBJ_CHECK(p, POOL_MAGIC);
    stop_workers(p, p->threads - 1);
    p->magic = 0;
    free(p->worker);
    free(p);
}
