/* SPDX-License-Identifier: Apache-2.0 */
/* Runs the thread that allocates pages of the arena ahead. */
#include "procs/engine/cache/prefault.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

#include "lib/base/assert.h"
#include "lib/base/bytes.h"
#include "lib/base/timeslice.h"

#define PREFAULT_MAGIC 0x46455250u
#define SLICE_BYTES    MIB /* about 2 ms of first touches */
/* Each call synchronises all CPUs once, so that several huge pages are allocated per call. */
#define HUGE_SLICE_BYTES (4 * HUGE_PAGE_BYTES)
#define STACK_BYTES      (64 * 1024)
#define NICENESS         10 /* below all computing threads */

enum phase { PHASE_IDLE, PHASE_ORDERED, PHASE_ENDED, PHASE_STOP };

struct prefault {
    uint32_t magic;
    const struct segment *arena;
    int eventfd;
    _Atomic bool abandon;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    enum phase phase; /* under lock */
    struct prefault_job job;
    pthread_t thread;
};

static int allocate_slice(struct prefault *p, struct prefault_job *job, uint64_t done,
                          uint64_t bytes)
{
    const struct arena_range *r = &job->range;
    if (!r->huge)
        return segment_allocate(p->arena->fd, r->offset + done, bytes);
    struct segment_huge huge;
    int rv = segment_allocate_huge(p->arena, r->offset + done, bytes,
                                   done + bytes == r->bytes ? r->spare_bytes : 0, &huge);
    segment_huge_add(&job->huge, &huge);
    return rv;
}

static int allocate(struct prefault *p, struct prefault_job *job)
{
    uint64_t max = job->range.huge ? HUGE_SLICE_BYTES : SLICE_BYTES;
    for (uint64_t done = 0; done < job->range.bytes;) {
        if (atomic_load_explicit(&p->abandon, memory_order_relaxed))
            return -ECANCELED;
        uint64_t left = job->range.bytes - done;
        uint64_t slice = left < max ? left : max;
        int rv = allocate_slice(p, job, done, slice);
        if (rv != 0)
            return rv;
        done += slice;
    }
    return 0;
}

static void *prefault_main(void *arg)
{
    struct prefault *p = arg;
    OBJ_CHECK(p, PREFAULT_MAGIC);
    (void)setpriority(PRIO_PROCESS, 0, NICENESS); /* on Linux, of this thread only */
    timeslice_set(0);
    pthread_mutex_lock(&p->lock);
    while (p->phase != PHASE_STOP) {
        if (p->phase != PHASE_ORDERED) {
            pthread_cond_wait(&p->changed, &p->lock);
            continue;
        }
        struct prefault_job job = p->job;
        pthread_mutex_unlock(&p->lock);
        job.status = allocate(p, &job);
        pthread_mutex_lock(&p->lock);
        p->job = job;
        if (p->phase == PHASE_ORDERED)
            p->phase = PHASE_ENDED;
        uint64_t one = 1;
        ssize_t wrote = write(p->eventfd, &one, sizeof one);
        (void)wrote;
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

struct prefault *prefault_start(const struct segment *arena, struct error *error)
{
    struct prefault *p = calloc(1, sizeof *p);
    if (!p) {
        error_set(error, ERR_NO_MEMORY, "out of memory (prefault thread)");
        return NULL;
    }
    p->magic = PREFAULT_MAGIC;
    p->arena = arena;
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->changed, NULL);
    p->eventfd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    pthread_attr_t attr;
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, STACK_BYTES);
    int rv = p->eventfd < 0 ? errno : pthread_create(&p->thread, &attr, prefault_main, p);
    pthread_attr_destroy(&attr);
    if (rv == 0)
        return p;
    error_set_errno(error, ERR_FAILED, rv, "cannot start the prefault thread");
    if (p->eventfd >= 0)
        close(p->eventfd);
    free(p);
    return NULL;
}

int prefault_fd(const struct prefault *p)
{
    OBJ_CHECK(p, PREFAULT_MAGIC);
    return p->eventfd;
}

bool prefault_busy(const struct prefault *p)
{
    OBJ_CHECK(p, PREFAULT_MAGIC);
    pthread_mutex_t *lock = (pthread_mutex_t *)&p->lock;
    pthread_mutex_lock(lock);
    bool busy = p->phase != PHASE_IDLE;
    pthread_mutex_unlock(lock);
    return busy;
}

void prefault_order(struct prefault *p, const struct prefault_job *job)
{
    OBJ_CHECK(p, PREFAULT_MAGIC);
    atomic_store_explicit(&p->abandon, false, memory_order_relaxed);
    pthread_mutex_lock(&p->lock);
    sl_assert(p->phase == PHASE_IDLE);
    p->job = *job;
    p->phase = PHASE_ORDERED;
    pthread_cond_signal(&p->changed);
    pthread_mutex_unlock(&p->lock);
}

void prefault_abandon(struct prefault *p)
{
    OBJ_CHECK(p, PREFAULT_MAGIC);
    /* Relaxed: a slice more or less makes no difference. */
    atomic_store_explicit(&p->abandon, true, memory_order_relaxed);
}

bool prefault_take(struct prefault *p, struct prefault_job *ended)
{
    OBJ_CHECK(p, PREFAULT_MAGIC);
    uint64_t events;
    ssize_t got = read(p->eventfd, &events, sizeof events);
    (void)got;
    pthread_mutex_lock(&p->lock);
    bool any = p->phase == PHASE_ENDED;
    if (any) {
        *ended = p->job;
        p->phase = PHASE_IDLE;
    }
    pthread_mutex_unlock(&p->lock);
    return any;
}

void prefault_stop(struct prefault *p)
{
    if (!p)
        return;
    prefault_abandon(p);
    pthread_mutex_lock(&p->lock);
    p->phase = PHASE_STOP;
    pthread_cond_signal(&p->changed);
    pthread_mutex_unlock(&p->lock);
    pthread_join(p->thread, NULL);
    close(p->eventfd);
    pthread_cond_destroy(&p->changed);
    pthread_mutex_destroy(&p->lock);
    p->magic = 0;
    free(p);
}
