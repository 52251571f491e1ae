/* Room: what the quota and the cap on experts leave, and who must go when it is not enough. */
#include <math.h>

#include "lib/base/assert.h"
#include "procs/cache/cache.h"

#define SAME_CLASS_LOOKS 16    /* candidates looked at for one whose slot can be reused as it is */
#define EVICT_TRIES_MAX  64    /* victims pinned between the look and the eviction */
#define HEAT_HALF_LIFE   16.0f /* tokens */

uint64_t cache_quota(const struct cache *c)
{
    return atomic_load_explicit(&c->child.directory.head->quota_bytes, memory_order_acquire);
}

float cache_heat(const struct cache *c, uint32_t entry)
{
    const struct cache_note *n = &c->notes[entry];
    return n->heat * exp2f(-(float)(c->token - n->heat_token) / HEAT_HALF_LIFE);
}

static bool fits(const struct cache *c, uint32_t entry)
{
    const struct model_entry *e = &c->entries[entry];
    uint64_t cap =
        atomic_load_explicit(&c->child.directory.head->experts_payload_max, memory_order_relaxed);
    return c->owned_bytes + e->slot_bytes <= cache_quota(c) &&
           (c->held_payload <= cap && e->payload_bytes <= cap - c->held_payload);
}

/* ---- victims -------------------------------------------------------------------------------- */

struct search {
    struct cache *c;
    bool spare_hinted;
    bool for_guess;
    float probability;   /* of the guess */
    uint16_t size_class; /* wanted while looks_left is not 0 */
    uint32_t looks_left;
};

static bool may_leave(void *arg, uint32_t expert)
{
    const struct search *s = arg;
    uint32_t entry = expert + s->c->child.model->dense_count;
    if (s->spare_hinted && cache_noted(s->c, entry, NOTE_HINTED))
        return false;
    if (s->for_guess &&
        (cache_noted(s->c, entry, NOTE_PREFETCHED) || cache_heat(s->c, entry) >= s->probability))
        return false;
    uint64_t word = cache_word(s->c, entry);
    return entry_state_of(word) == ENTRY_READY && entry_pins_of(word) == 0;
}

/* Of the first that may leave only one of the wanted size. */
static bool may_leave_same_class(void *arg, uint32_t expert)
{
    struct search *s = arg;
    if (s->looks_left == 0 || !may_leave(arg, expert))
        return false;
    s->looks_left--;
    uint32_t entry = expert + s->c->child.model->dense_count;
    return cache_directory_entry(s->c, entry)->size_class == s->size_class;
}

/* ENTRY_NONE when nothing may leave. Another size's slot has to be punched and a new one touched
 * for the first time, which costs more than the read: nearly the coldest of the right size is
 * better. */
static uint32_t find_victim(struct search *s)
{
    struct eviction *eviction = s->c->eviction;
    uint32_t expert = POLICY_NONE;
    bool prefer =
        s->c->asks_in_order && s->size_class != ANY_SIZE_CLASS && s->c->layout.classes > 1;
    s->looks_left = prefer ? SAME_CLASS_LOOKS : 0;
    if (s->looks_left > 0)
        expert = eviction_victim(eviction, may_leave_same_class, s);
    if (expert == POLICY_NONE)
        expert = eviction_victim(eviction, may_leave, s);
    return expert == POLICY_NONE ? ENTRY_NONE : expert + s->c->child.model->dense_count;
}

/* READY -> ABSENT. False when it was pinned in the meantime. */
static bool evict(struct cache *c, uint32_t entry)
{
    struct cache_note *n = &c->notes[entry];
    const struct model_entry *e = &c->entries[entry];
    sl_assert(n->flags & NOTE_RESIDENT);
    if (!entry_evict(&cache_directory_entry(c, entry)->word))
        return false;
    eviction_remove(c->eviction, entry - c->child.model->dense_count);
    arena_alloc_give(c->alloc, cache_offset(c, entry), e->slot_bytes, true);
    c->owned_bytes -= e->slot_bytes;
    c->held_payload -= e->payload_bytes;
    c->resident_payload -= e->payload_bytes;
    c->resident_entries--;
    if (n->flags & NOTE_PREFETCHED)
        cache_count(c, CTR_CACHE_prefetches_wasted, 1);
    n->flags &= (uint16_t) ~(NOTE_RESIDENT | NOTE_PREFETCHED);
    cache_count(c, CTR_CACHE_evictions, 1);
    return true;
}

/* Guessed experts are spared while anything else can go, but they yield to need. */
bool cache_evict_one(struct cache *c, uint16_t size_class)
{
    bool shrink = size_class == ANY_SIZE_CLASS;
    struct search s = {.c = c, .spare_hinted = !shrink, .size_class = size_class};
    for (int i = 0; i < EVICT_TRIES_MAX; i++) {
        uint32_t victim = find_victim(&s);
        if (victim == ENTRY_NONE && !s.spare_hinted)
            return false;
        if (victim == ENTRY_NONE)
            s.spare_hinted = false;
        else if (evict(c, victim))
            return true;
    }
    return false;
}

/* ---- prefetches give way -------------------------------------------------------------------- */

static uint64_t bytes_coming_back(struct cache *c)
{
    uint64_t bytes = 0;
    for (uint32_t e = c->loading.head; e != ENTRY_NONE; e = c->notes[e].next)
        if (entry_state_of(cache_word(c, e)) == ENTRY_DOOMED)
            bytes += c->entries[e].slot_bytes;
    return bytes;
}

void cache_cancel_prefetches(struct cache *c, uint64_t bytes)
{
    if (c->prefetches_open == 0)
        return;
    uint64_t coming = bytes_coming_back(c);
    for (uint32_t e = c->loading.tail; coming < bytes && e != ENTRY_NONE;
         e = c->notes[e].previous) { /* the youngest has read least */
        if (c->notes[e].priority != LOAD_PREFETCH || entry_pins_of(cache_word(c, e)) != 0)
            continue;
        if (cache_cancel(c, e))
            coming += c->entries[e].slot_bytes;
    }
}

/* ---- taking --------------------------------------------------------------------------------- */

/* Dense tensors have places of their own; they only count. */
static bool take_dense(struct cache *c, uint32_t entry, uint64_t *offset)
{
    uint64_t bytes = c->entries[entry].slot_bytes, quota = cache_quota(c);
    while (c->owned_bytes + bytes > quota)
        if (!cache_evict_one(c, cache_directory_entry(c, entry)->size_class))
            return false;
    if (!arena_alloc_trim(c->alloc, quota - bytes, 0))
        return false; /* what is being prefaulted comes back in a moment */
    arena_alloc_dense_take(c->alloc, bytes);
    *offset = cache_offset(c, entry);
    return true;
}

bool cache_room_take(struct cache *c, uint32_t entry, uint64_t *offset)
{
    if (!cache_is_expert(c, entry))
        return take_dense(c, entry, offset);
    while (!fits(c, entry)) {
        if (cache_evict_one(c, cache_directory_entry(c, entry)->size_class))
            continue;
        cache_cancel_prefetches(c, c->entries[entry].slot_bytes);
        return false;
    }
    /* False here: pages being prefaulted count as taken until the helper is done with them. */
    return arena_alloc_take(c->alloc, cache_directory_entry(c, entry)->size_class, cache_quota(c),
                            offset);
}

bool cache_room_take_prefetch(struct cache *c, uint32_t entry, struct prefetch_state *state,
                              uint64_t *offset)
{
    struct search s = {.c = c,
                       .spare_hinted = true,
                       .for_guess = true,
                       .probability = state->probability,
                       .size_class = cache_directory_entry(c, entry)->size_class};
    for (int i = 0; i < EVICT_TRIES_MAX; i++) {
        state->needs_eviction = !fits(c, entry);
        uint32_t victim = state->needs_eviction ? find_victim(&s) : ENTRY_NONE;
        if (state->needs_eviction && victim == ENTRY_NONE)
            return false;
        state->victim_heat = victim == ENTRY_NONE ? 0 : cache_heat(c, victim);
        if (!prefetch_allowed(state))
            return false;
        if (!state->needs_eviction)
            return arena_alloc_take(c->alloc, cache_directory_entry(c, entry)->size_class,
                                    cache_quota(c), offset);
        (void)evict(c, victim); /* pinned meanwhile: the next round finds another */
    }
    return false;
}
