/* SPDX-License-Identifier: Apache-2.0 */
/* Space: what the quota and the cap on experts leave, and the victims when that is not enough. */
#include "lib/base/assert.h"
#include "procs/engine/cache/cache.h"

#define EVICT_TRIES_MAX 64 /* victims that were pinned after they were chosen */

uint64_t cache_quota(const struct cache *c)
{
    return atomic_load_explicit(&c->child.directory.head->quota_bytes, memory_order_acquire);
}

uint64_t cache_payload_max(const struct cache *c)
{
    return atomic_load_explicit(&c->child.directory.head->experts_payload_max,
                                memory_order_relaxed);
}

float cache_heat(const struct cache *c, uint32_t entry)
{
    const struct cache_note *n = &c->notes[entry];
    return prefetch_heat(n->heat, c->token - n->heat_token);
}

bool cache_fits(const struct cache *c, uint32_t entry)
{
    const struct model_entry *e = &c->entries[entry];
    uint64_t cap = cache_payload_max(c);
    return c->owned_bytes + e->slot_bytes <= cache_quota(c) &&
           (c->allocated_payload <= cap && e->payload_bytes <= cap - c->allocated_payload);
}

/* ---- victims -------------------------------------------------------------------------------- */

struct search {
    struct cache *c;
    bool spare_hinted;
    const struct prefetch_state *prefetch; /* that needs the space; NULL: a demand */
};

/* Entries in flight, or READY but not observed yet, are not evicted. */
static bool is_free(struct cache *c, uint32_t entry)
{
    uint64_t word = cache_entry_word(c, entry);
    return cache_noted(c, entry, NOTE_RESIDENT) && entry_state_of(word) == ENTRY_READY &&
           entry_pins_of(word) == 0;
}

static bool may_evict(void *arg, uint32_t slot)
{
    const struct search *s = arg;
    uint32_t entry = slot + s->c->child.model->dense_count;
    struct prefetch_victim victim = {.hinted = s->c->notes[entry].hints > 0 &&
                                               prefetch_protects(&s->c->limit),
                                     .prefetched = cache_noted(s->c, entry, NOTE_PREFETCHED),
                                     .layer = s->c->entries[entry].layer,
                                     .heat = s->prefetch ? cache_heat(s->c, entry) : 0};
    if (s->spare_hinted && victim.hinted)
        return false;
    if (s->prefetch && !prefetch_may_evict(&s->c->limit, s->prefetch, &victim))
        return false;
    return is_free(s->c, entry);
}

/* ENTRY_NONE when nothing can be evicted. */
static uint32_t find_victim(struct search *s, uint32_t incoming)
{
    bool shrink = incoming == ENTRY_NONE || !cache_is_expert(s->c, incoming);
    uint32_t slot = residency_victim(
        s->c->residency, shrink ? POLICY_NONE : cache_slot(s->c, incoming), may_evict, s);
    return slot == POLICY_NONE ? ENTRY_NONE : slot + s->c->child.model->dense_count;
}

bool cache_evict(struct cache *c, uint32_t entry)
{
    struct cache_note *n = &c->notes[entry];
    const struct model_entry *e = &c->entries[entry];
    sl_assert(n->flags & NOTE_RESIDENT);
    if (!entry_evict(&cache_directory_entry(c, entry)->word))
        return false;
    residency_remove(c->residency, cache_slot(c, entry), true);
    arena_alloc_give(c->alloc, cache_offset(c, entry), e->slot_bytes, true);
    c->owned_bytes -= e->slot_bytes;
    c->evicted_bytes += e->slot_bytes;
    n->evicted_at = c->evicted_bytes;
    c->allocated_payload -= e->payload_bytes;
    c->resident_payload -= e->payload_bytes;
    c->resident_entries--;
    if (n->flags & NOTE_PREFETCHED) {
        cache_count(c, CTR_CACHE_prefetches_unused, 1);
        prefetch_limit_outcome(&c->limit, false, c->prefill);
    }
    n->flags &= (uint16_t) ~(NOTE_RESIDENT | NOTE_PREFETCHED);
    cache_count(c, CTR_CACHE_evictions, 1);
    return true;
}

void cache_evict_expired(struct cache *c)
{
    struct search s = {.c = c};
    for (int i = 0; i < EVICT_TRIES_MAX; i++) {
        uint32_t slot = residency_expired(c->residency, may_evict, &s);
        if (slot == POLICY_NONE)
            return;
        (void)cache_evict(c, slot + c->child.model->dense_count);
    }
}

/* Predicted experts are evicted only when there is no other victim. */
bool cache_evict_one(struct cache *c, uint32_t incoming)
{
    struct search s = {.c = c, .spare_hinted = incoming != ENTRY_NONE};
    for (int i = 0; i < EVICT_TRIES_MAX; i++) {
        uint32_t victim = find_victim(&s, incoming);
        if (victim == ENTRY_NONE && !s.spare_hinted)
            return false;
        if (victim == ENTRY_NONE)
            s.spare_hinted = false;
        else if (cache_evict(c, victim)) {
            c->sets_broken = c->swap != NULL;
            return true;
        }
    }
    return false;
}

/* ---- cancelling prefetches ------------------------------------------------------------------ */

static uint64_t bytes_coming_back(struct cache *c)
{
    uint64_t bytes = 0;
    for (uint32_t e = c->loading.head; e != ENTRY_NONE; e = c->notes[e].next)
        if (entry_state_of(cache_entry_word(c, e)) == ENTRY_DOOMED)
            bytes += c->entries[e].slot_bytes;
    return bytes;
}

void cache_cancel_prefetches(struct cache *c, uint64_t bytes)
{
    if (c->prefetches_open == 0)
        return;
    uint64_t coming = bytes_coming_back(c);
    for (uint32_t e = c->loading.tail; coming < bytes && e != ENTRY_NONE;
         e = c->notes[e].previous) { /* the youngest has read the fewest bytes */
        if (c->notes[e].priority != LOAD_PREFETCH || entry_pins_of(cache_entry_word(c, e)) != 0)
            continue;
        if (cache_cancel(c, e))
            coming += c->entries[e].slot_bytes;
    }
}

/* ---- taking --------------------------------------------------------------------------------- */

/* Dense tensors have fixed offsets; only their bytes count. */
static bool take_dense(struct cache *c, uint32_t entry, uint64_t *offset)
{
    uint64_t bytes = c->entries[entry].slot_bytes, quota = cache_quota(c);
    while (c->owned_bytes + bytes > quota)
        if (!cache_evict_one(c, entry))
            return false;
    if (!arena_alloc_trim(c->alloc, quota - bytes, 0))
        return false; /* pages being prefaulted are returned soon */
    *offset = cache_offset(c, entry);
    arena_alloc_dense_take(c->alloc, *offset, bytes, quota);
    return true;
}

bool cache_space_take(struct cache *c, uint32_t entry, uint64_t *offset)
{
    if (!cache_is_expert(c, entry))
        return take_dense(c, entry, offset);
    while (!cache_fits(c, entry)) {
        if (cache_evict_one(c, entry))
            continue;
        cache_cancel_prefetches(c, c->entries[entry].slot_bytes);
        return false;
    }
    /* Can fail: pages being prefaulted count as taken until the helper thread ends. */
    return arena_alloc_take(c->alloc, cache_directory_entry(c, entry)->size_class, cache_quota(c),
                            offset);
}

bool cache_space_take_free(struct cache *c, uint32_t entry, uint64_t *offset)
{
    return cache_fits(c, entry) &&
           arena_alloc_take(c->alloc, cache_directory_entry(c, entry)->size_class, cache_quota(c),
                            offset);
}

/* ---- for prefetches -------------------------------------------------------------------------- */

static bool prefetch_fits(void *owner, uint32_t entry)
{
    return cache_fits(owner, entry);
}

static bool prefetch_victim(void *owner, uint32_t entry, const struct prefetch_state *state,
                            uint32_t *victim, float *heat)
{
    struct search s = {.c = owner, .prefetch = state};
    *victim = find_victim(&s, entry);
    *heat = *victim == ENTRY_NONE ? 0 : cache_heat(owner, *victim);
    return *victim != ENTRY_NONE;
}

static void prefetch_evict(void *owner, uint32_t victim)
{
    (void)cache_evict(owner, victim);
}

bool cache_space_take_prefetch(struct cache *c, uint32_t entry, struct prefetch_state *state,
                               uint64_t *offset)
{
    struct prefetch_space space = {
        .owner = c, .fits = prefetch_fits, .victim = prefetch_victim, .evict = prefetch_evict};
    return prefetch_make_space(&c->limit, state, &space, entry) &&
           cache_space_take_free(c, entry, offset);
}
