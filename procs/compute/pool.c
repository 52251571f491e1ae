/* Fork and join with a short spin and then a futex. */
#include "procs/compute/pool.h"

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
/* Pauses before sleeping: about 20 microseconds, longer than any gap within a token and far shorter
 * than a wait for storage. */
#define POOL_SPINS 800

struct pool_worker {
    struct pool *pool;
    pthread_t thread;
    uint32_t number;
};

struct pool {
    uint32_t magic;
    uint32_t threads;
    int nice;
    bool stop;
    pool_fn *fn;
    void *arg;
    struct pool_worker *worker; /* threads - 1 */
    /* turn: +1 starts a run; left: parts of the workers still running. Each has its line. */
    _Alignas(64) _Atomic uint32_t turn;
    _Alignas(64) _Atomic uint32_t sleepers;
    _Alignas(64) _Atomic uint32_t left;
    _Alignas(64) _Atomic uint32_t caller_sleeps;
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

/* A sleeper announces itself before it looks for the last time, and the waker changes the word
 * before it looks for sleepers (both sequentially consistent): one of them sees the other. */
static uint32_t next_turn(struct pool *p, uint32_t seen)
{
    for (int i = 0; i < POOL_SPINS; i++) {
        uint32_t now = atomic_load_explicit(&p->turn, memory_order_acquire);
        if (now != seen)
            return now;
        pause_briefly();
    }
    atomic_fetch_add(&p->sleepers, 1);
    uint32_t now;
    while ((now = atomic_load(&p->turn)) == seen)
        futex_sleep(&p->turn, seen);
    atomic_fetch_sub(&p->sleepers, 1);
    return now;
}

static void *worker_main(void *arg)
{
    struct pool_worker *w = arg;
    struct pool *p = w->pool;
    OBJ_CHECK(p, POOL_MAGIC);
    if (p->nice > 0)
        setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), p->nice);
    for (uint32_t seen = 0;;) {
        seen = next_turn(p, seen);
        if (p->stop)
            return NULL;
        p->fn(p->arg, w->number, p->threads);
        if (atomic_fetch_sub(&p->left, 1) == 1 && atomic_load(&p->caller_sleeps))
            futex_wake_all(&p->left);
    }
}

static void start_turn(struct pool *p)
{
    atomic_fetch_add(&p->turn, 1);
    if (atomic_load(&p->sleepers) > 0)
        futex_wake_all(&p->turn);
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

void pool_run(struct pool *p, pool_fn *fn, void *arg)
{
    if (p->threads > 1) {
        p->fn = fn;
        p->arg = arg;
        atomic_store_explicit(&p->left, p->threads - 1, memory_order_relaxed);
        start_turn(p);
    }
    fn(arg, 0, p->threads);
    if (p->threads > 1)
        join_turn(p);
}

uint32_t pool_threads(const struct pool *p)
{
    return p->threads;
}

static void stop_workers(struct pool *p, uint32_t started)
{
    p->stop = true;
    start_turn(p);
    for (uint32_t i = 0; i < started; i++)
        pthread_join(p->worker[i].thread, NULL);
}

struct pool *pool_create(uint32_t threads, int nice, struct error *error)
{
    sl_assert(threads >= 1 && threads <= POOL_THREADS_MAX);
    struct pool *p = aligned_alloc(64, sizeof *p);
    struct pool_worker *workers = calloc(threads, sizeof *workers);
    if (!p || !workers) {
        free(p);
        free(workers);
        error_set(error, ERR_NO_MEMORY, "no memory for %u threads", threads);
        return NULL;
    }
    *p = (struct pool){.magic = POOL_MAGIC, .threads = threads, .nice = nice, .worker = workers};
    for (uint32_t i = 0; i + 1 < threads; i++) {
        struct pool_worker *w = &p->worker[i];
        *w = (struct pool_worker){.pool = p, .number = i + 1};
        int rc = pthread_create(&w->thread, NULL, worker_main, w);
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
