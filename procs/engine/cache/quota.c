/* SPDX-License-Identifier: Apache-2.0 */
/* Applies the quota of the supervisor. A lower one is applied in slices between messages: evict,
 * punch, acknowledge. Unused quota is prefaulted: all of it while nothing is computed, else a small
 * part ahead of loads. */
#include <errno.h>
#include <string.h>

#include "lib/base/assert.h"
#include "lib/base/clock.h"
#include "lib/base/log.h"
#include "lib/model/index/capacity.h"
#include "procs/engine/cache/cache.h"

#define EVICTIONS_A_SLICE 64
#define PUNCH_A_SLICE     (8 * MIB) /* about 3 ms */
#define PREFAULT_ORDER    MIB
/* Pages ready for loads while compute runs. Prefaulting the whole quota at that time costs at least
 * a quarter of the tokens/s, and is useless when everything is resident (docs/lab/io.md). */
#define PREFAULT_AHEAD  (64 * MIB)
#define PREFAULT_RETRY  (10 * NS_PER_S)
#define COMPUTE_CALM_NS (200 * NS_PER_MS) /* without an access: nothing is computed */

static atomic_flag prefault_logged = ATOMIC_FLAG_INIT;

static bool experts_over_cap(const struct cache *c)
{
    return c->allocated_payload > cache_payload_max(c);
}

/* True when an entry was evicted. */
static bool shrink_owned(struct cache *c, uint64_t quota)
{
    int evicted = 0;
    while (evicted < EVICTIONS_A_SLICE && (c->owned_bytes > quota || experts_over_cap(c))) {
        if (!cache_evict_one(c, ENTRY_NONE))
            break;
        evicted++;
    }
    if (c->owned_bytes > quota && evicted == 0)
        cache_cancel_prefetches(c, c->owned_bytes - quota);
    return evicted > 0;
}

static void acknowledge(struct cache *c, uint32_t epoch)
{
    struct directory_head *head = c->child.directory.head;
    atomic_store_explicit(&head->quota_applied, epoch, memory_order_release);
    if (!c->quota_pending || c->quota_control.epoch > epoch)
        return;
    child_ack(&c->child, &c->quota_control);
    c->quota_pending = false;
}

bool cache_apply_quota(struct cache *c)
{
    struct directory_head *head = c->child.directory.head;
    /* The epoch first: the bytes read after it belong to that epoch or a newer one. */
    uint32_t epoch = atomic_load_explicit(&head->quota_epoch, memory_order_acquire);
    uint64_t quota = cache_quota(c);
    struct arena_alloc_stats before, after;
    arena_alloc_stats_get(c->alloc, &before);
    if (before.backed_bytes > quota && c->prefault)
        prefault_abandon(c->prefault);
    bool evicted = shrink_owned(c, quota);
    bool fits = arena_alloc_trim(c->alloc, quota, PUNCH_A_SLICE) && c->owned_bytes <= quota;
    arena_alloc_stats_get(c->alloc, &after);
    if (fits && (c->quota_pending ||
                 atomic_load_explicit(&head->quota_applied, memory_order_relaxed) != epoch)) {
        atomic_store_explicit(&head->backed_bytes, after.backed_bytes, memory_order_release);
        acknowledge(c, epoch);
    }
    if (before.backed_bytes != after.backed_bytes)
        c->prefault_full = false;
    return !fits && (evicted || after.backed_bytes < before.backed_bytes);
}

/* ---- prefault ------------------------------------------------------------------------------- */

/* Pages beyond the cap on experts are never used. */
static uint64_t prefault_limit(const struct cache *c)
{
    return capacity_quota_used(c->child.model, cache_quota(c), cache_payload_max(c));
}

static void prefault_ended(struct cache *c, const struct prefault_job *job)
{
    bool ok = job->status == 0;
    arena_alloc_prefaulted(c->alloc, &job->range, ok);
    arena_alloc_count_huge(c->alloc, &job->huge);
    if (ok)
        cache_count(c, CTR_CACHE_prefaulted_bytes, job->range.bytes);
    if (ok || job->status == -ECANCELED)
        return;
    c->prefault_after_ns = clock_now_ns() + PREFAULT_RETRY;
    if (log_once(&prefault_logged))
        log_warn("cannot prefault arena pages: %s; until there is space, they are allocated when "
                 "they are read into (further failures are not logged)",
                 strerror(-job->status));
}

static bool prefault_wanted(const struct cache *c)
{
    struct arena_alloc_stats stats;
    if (c->prefault_full || clock_now_ns() < c->prefault_after_ns)
        return false;
    arena_alloc_stats_get(c->alloc, &stats);
    return !c->computing || stats.free_backed_bytes < PREFAULT_AHEAD;
}

bool cache_prefault_waits(const struct cache *c)
{
    return c->prefault && prefault_wanted(c);
}

/* Every access is logged, hits too. */
static void note_computing(struct cache *c)
{
    uint64_t accesses = access_log_written(&c->child.access_log), now_ns = clock_now_ns();
    if (accesses != c->accesses_noted)
        c->accesses_noted_ns = now_ns;
    c->computing = c->accesses_noted_ns != 0 && now_ns - c->accesses_noted_ns < COMPUTE_CALM_NS;
    c->accesses_noted = accesses;
}

void cache_prefault(struct cache *c)
{
    struct prefault_job job;
    if (!c->prefault)
        return;
    if (prefault_take(c->prefault, &job))
        prefault_ended(c, &job);
    note_computing(c);
    if (!prefault_wanted(c) || prefault_busy(c->prefault))
        return;
    if (c->demands_open > 0 || c->waiting.count > 0 || c->loading.count > 0)
        return;
    job = (struct prefault_job){
        .epoch = atomic_load_explicit(&c->child.directory.head->quota_epoch, memory_order_acquire)};
    uint64_t limit = prefault_limit(c);
    if (arena_alloc_prefault_next(c->alloc, limit, PREFAULT_ORDER, &job.range))
        prefault_order(c->prefault, &job);
    else
        c->prefault_full = true; /* until the quota changes */
}
