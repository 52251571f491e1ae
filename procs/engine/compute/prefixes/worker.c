/* SPDX-License-Identifier: Apache-2.0 */
/* The loop of the thread that reads and writes files of prefixes: reads first, because a sequence
 * waits for them. */
#include "procs/engine/compute/prefixes/worker.h"

#include <errno.h>
#include <stdlib.h>
#include <time.h>
#include <xxhash.h>

#include "lib/base/assert.h"
#include "lib/base/bytes.h"
#include "lib/base/clock.h"
#include "procs/engine/compute/slots/slots.h"

#define WRITE_NS_PER_PIECE (2 * NS_PER_MS) /* half a GB/s at most */

void prefixes_lock(struct prefixes *p)
{
    int rc = pthread_mutex_lock(&p->mutex);
    sl_assert(rc == 0);
}

void prefixes_unlock(struct prefixes *p)
{
    int rc = pthread_mutex_unlock(&p->mutex);
    sl_assert(rc == 0);
}

double prefixes_rate(struct prefixes *p)
{
    prefixes_lock(p);
    double rate = p->read_bytes_per_ns;
    prefixes_unlock(p);
    return rate;
}

void prefixes_moved(struct prefixes *p)
{
    p->moved_ns = clock_now_ns();
    p->stalled = false;
}

/* The oldest that is wanted; false: none is. Takes it. */
static bool take_load(struct prefixes *p, struct load *wanted)
{
    struct load *oldest = NULL;
    for (uint32_t i = 0; i < KV_SLOTS_MAX; i++)
        if (p->load[i].state == LOAD_WANTED && (!oldest || p->load[i].serial < oldest->serial))
            oldest = &p->load[i];
    if (!oldest)
        return false;
    oldest->state = LOAD_READS;
    *wanted = *oldest;
    return true;
}

static bool has_store(const struct prefixes *p)
{
    enum store_state state = p->store.state;
    return state == STORE_OPENS || state == STORE_PIECE || state == STORE_ENDS ||
           (state == STORE_WAITS && p->store.aborted);
}

/* One step of the file that is written, without the lock. */
static enum store_state step(struct prefixes *p, enum store_state state, bool aborted)
{
    struct store *s = &p->store;
    s->why = aborted                ? ECANCELED
             : state == STORE_OPENS ? write_open(p)
             : state == STORE_PIECE ? write_piece(p)
                                    : write_end(p);
    if (s->why != 0) {
        write_abort(p);
        return STORE_FAILED;
    }
    return state == STORE_ENDS ? STORE_DONE : STORE_WAITS;
}

static void store_step(struct prefixes *p)
{
    enum store_state state = p->store.state;
    bool aborted = p->store.aborted;
    prefixes_unlock(p);
    state = step(p, state, aborted);
    child_inject(p->slots->child, INJECT_COMPUTE_PREFIX_WRITTEN);
    prefixes_lock(p);
    p->store.state = state;
}

static void clear_step(struct prefixes *p)
{
    prefixes_unlock(p);
    index_clear_begin(&p->index);
    child_inject(p->slots->child, INJECT_COMPUTE_CLEARS);
    index_clear(&p->index);
    child_inject(p->slots->child, INJECT_COMPUTE_CLEARS);
    prefixes_lock(p);
    p->clears = false;
}

/* The pace of pieces: waits until then, or for something more urgent. */
static void wait_until(struct prefixes *p, uint64_t ns)
{
    struct timespec until = {.tv_sec = (time_t)(ns / NS_PER_S), .tv_nsec = (long)(ns % NS_PER_S)};
    pthread_cond_timedwait(&p->changed, &p->mutex, &until);
}

static void *worker_main(void *arg)
{
    struct prefixes *p = arg;
    struct load *wanted = &p->taken;
    prefixes_lock(p);
    while (!p->stop) {
        uint64_t now = clock_now_ns();
        bool paced = p->store.state == STORE_PIECE && now < p->store.next_ns && !p->store.aborted;
        if (take_load(p, wanted)) {
            prefixes_unlock(p);
            read_load(p, wanted);
            prefixes_lock(p);
        } else if (p->clears && p->store.state == STORE_NONE) {
            clear_step(p);
        } else if (has_store(p) && !paced) {
            p->store.next_ns = now + WRITE_NS_PER_PIECE;
            store_step(p);
        } else {
            paced ? wait_until(p, p->store.next_ns)
                  : (void)pthread_cond_wait(&p->changed, &p->mutex);
            continue;
        }
        prefixes_moved(p);
        prefixes_unlock(p);
        p->wake(p->arg);
        prefixes_lock(p);
    }
    prefixes_unlock(p);
    return NULL;
}

int worker_start(struct prefixes *p, struct error *error)
{
    pthread_condattr_t monotonic;
    pthread_mutex_init(&p->mutex, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&p->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    p->buffer = aligned_alloc(PAGE_BYTES, PIECE_BYTES);
    p->store.piece = aligned_alloc(PAGE_BYTES, PIECE_BYTES);
    p->store.hash = XXH3_createState();
    p->store.fd = -1;
    if (!p->buffer || !p->store.piece || !p->store.hash)
        return error_set(error, ERR_NO_MEMORY, "out of memory (prefixes)");
    int rc = pthread_create(&p->thread, NULL, worker_main, p);
    p->started = rc == 0;
    return rc == 0 ? 0
                   : error_set_errno(error, ERR_NO_MEMORY, rc,
                                     "cannot start the thread of "
                                     "--prefix-dir");
}

void worker_stop(struct prefixes *p)
{
    prefixes_lock(p);
    p->stop = true;
    pthread_cond_broadcast(&p->changed);
    prefixes_unlock(p);
    if (p->started)
        pthread_join(p->thread, NULL);
    write_abort(p);
    free(p->buffer);
    free(p->store.piece);
    free(p->store.tables);
    XXH3_freeState(p->store.hash);
    pthread_cond_destroy(&p->changed);
    pthread_mutex_destroy(&p->mutex);
}
