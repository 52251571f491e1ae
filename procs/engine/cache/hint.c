/* Guesses: kept per target layer, spared from eviction and loaded while the drive has nothing
 * better to do, forgotten as soon as compute has passed their layer. */
#include <string.h>

#include "lib/base/assert.h"
#include "procs/engine/cache/cache.h"

static struct guess_list *guesses_of(struct cache *c, uint32_t layer)
{
    sl_assert(layer < c->child.model->hparams.layers);
    return &c->guesses[layer];
}

/* What was fetched for a guess either is there when compute comes to its layer, or is late. */
static void count_fetched(struct cache *c, uint32_t entry)
{
    if (!cache_noted(c, entry, NOTE_FETCHED))
        return;
    bool there = entry_state_of(cache_word(c, entry)) == ENTRY_READY;
    cache_count(c, there ? CTR_CACHE_hints_in_time : CTR_CACHE_hints_late, 1);
    c->notes[entry].flags &= (uint16_t)~NOTE_FETCHED;
}

static void forget(struct cache *c, struct guess_list *list)
{
    for (uint32_t i = 0; i < list->count; i++) {
        uint32_t entry = list->guesses[i].entry;
        c->notes[entry].flags &= (uint16_t)~NOTE_HINTED;
        count_fetched(c, entry);
        /* Still on its way for a layer that has passed: the drive has better things to do. */
        if (i < list->at && cache_noted(c, entry, NOTE_LISTED) &&
            c->notes[entry].priority == LOAD_PREFETCH && entry_pins_of(cache_word(c, entry)) == 0)
            (void)cache_cancel(c, entry);
    }
    cache_count(c, CTR_CACHE_hints_expired, list->count - list->at);
    list->count = list->at = 0;
}

/* Newer guesses for the same layer and token take the place of older ones, made further away. What
 * is on its way stays so: the newer list mostly names it, too. */
static void replace(struct cache *c, struct guess_list *list)
{
    for (uint32_t i = 0; i < list->count; i++) {
        uint32_t entry = list->guesses[i].entry;
        if (entry_state_of(cache_word(c, entry)) == ENTRY_READY)
            count_fetched(c, entry);
        c->notes[entry].flags &= (uint16_t) ~(NOTE_HINTED | NOTE_FETCHED);
    }
    list->count = list->at = 0;
}

static void add_guess(struct cache *c, struct guess_list *list, const struct msg_guess *g)
{
    list->guesses[list->count++] = *g;
    c->notes[g->entry].flags |= NOTE_HINTED;
    if (entry_state_of(cache_word(c, g->entry)) == ENTRY_READY)
        return;
    if (!cache_noted(c, g->entry, NOTE_LISTED | NOTE_WAITING))
        cache_count(c, CTR_CACHE_hints_missing, 1);
    else if (cache_noted(c, g->entry, NOTE_PREFETCHED))
        c->notes[g->entry].flags |= NOTE_FETCHED;
}

static bool passed(const struct cache_now *now, uint32_t sequence, uint32_t position,
                   uint32_t layer)
{
    if (now->sequence != sequence)
        return true;
    /* In order of computing: a position before ours, or a layer not after ours in it. */
    return position < now->position || (position == now->position && layer <= now->layer);
}

void cache_advance(struct cache *c, struct cache_now now)
{
    residency_step(c->residency, &(struct residency_step){.sequence = now.sequence,
                                                          .position = now.position,
                                                          .layer = now.layer});
    if (now.sequence == c->now.sequence && now.position == c->now.position &&
        now.layer == c->now.layer)
        return;
    if (now.layer != c->now.layer)
        prefetch_limit_layer(&c->limit, c->layer_ns.value, cache_expert_ns(c),
                             c->child.model->hparams.experts_used);
    c->now = now;
    cache_evict_expired(c);
    for (uint32_t layer = 0; layer < c->child.model->hparams.layers; layer++) {
        struct guess_list *list = guesses_of(c, layer);
        if (list->count > 0 && passed(&now, list->sequence, list->position, layer))
            forget(c, list);
    }
    c->prefetch_look = true;
}

static bool guess_is_sane(const struct cache *c, const struct msg_hint *hint,
                          const struct msg_guess *g)
{
    return g->entry < c->child.model->entry_count && cache_is_expert(c, g->entry) &&
           c->entries[g->entry].extents > 0 && c->entries[g->entry].layer == hint->layer;
}

static void take_hint(struct cache *c, const struct msg_hint *hint)
{
    cache_count(c, CTR_CACHE_hints, 1);
    cache_count(c, CTR_CACHE_hint_entries, hint->count);
    if (hint->layer >= c->child.model->hparams.layers)
        return;
    /* Compute may have moved on without a message: hits are silent. */
    cache_read_uses(c, UINT64_MAX);
    struct guess_list *list = guesses_of(c, hint->layer);
    if (list->count > 0 && list->sequence == hint->sequence && list->position == hint->position)
        replace(c, list);
    else if (list->count > 0)
        forget(c, list);
    /* A guess about a sequence not heard of yet is news of its start. */
    if (c->now.sequence == hint->sequence &&
        passed(&c->now, hint->sequence, hint->position, hint->layer)) {
        cache_count(c, CTR_CACHE_hints_expired, hint->count);
        return;
    }
    list->sequence = hint->sequence;
    list->position = hint->position;
    list->prefill = hint->prefill != 0;
    for (unsigned i = 0; i < hint->count && list->count < c->guesses_max; i++) {
        if (guess_is_sane(c, hint, &hint->guesses[i]))
            add_guess(c, list, &hint->guesses[i]);
    }
    c->prefetch_look = true;
}

/* False when no further guess may be loaded in this round: none is allowed, or one was. A demand
 * that came meanwhile is looked at before the next. */
static bool prefetch_one(struct cache *c, struct guess_list *list, uint32_t layer)
{
    const struct model_hparams *h = &c->child.model->hparams;
    const struct msg_guess *g = &list->guesses[list->at];
    if (cache_noted(c, g->entry, NOTE_LISTED | NOTE_WAITING | NOTE_RESIDENT)) {
        list->at++;
        return true;
    }
    uint32_t depth = (uint32_t)c->child.params->depth;
    uint32_t most = c->limit.rule == PREFETCH_ALL ? depth : 2 * h->experts_used;
    struct prefetch_state state = {
        .demands_open = c->demands_open,
        .prefetches_open = c->prefetches_open,
        .prefetches_max = most < depth ? most : depth,
        .layer_now = c->now.layer,
        .layer_guess = layer,
        .layers = h->layers,
        .probability = g->probability,
    };
    uint64_t offset;
    if (!prefetch_limit_allows(&c->limit, &state)) /* not even with room for it */
        return false;
    if (cache_room_take_prefetch(c, g->entry, &state, &offset)) {
        prefetch_limit_sent(&c->limit);
        c->notes[g->entry].flags |= NOTE_PREFETCHED | NOTE_FETCHED;
        cache_count(c, CTR_CACHE_prefetches, 1);
        cache_reserve(c, g->entry, offset, LOAD_PREFETCH, 0);
        c->prefetch_look = true;
    }
    list->at++; /* what may not be loaded now is not asked about again */
    return !c->prefetch_look;
}

void cache_prefetch(struct cache *c)
{
    if (!c->prefetch_look)
        return;
    c->prefetch_look = false;
    if (c->waiting.count > 0)
        return;
    uint32_t layers = c->child.model->hparams.layers;
    for (uint32_t ahead = 1; ahead < layers; ahead++) { /* the nearest layer first */
        uint32_t layer = (c->now.layer + ahead) % layers;
        struct guess_list *list = guesses_of(c, layer);
        while (list->at < list->count)
            if (!prefetch_one(c, list, layer))
                return;
    }
}

bool cache_guesses_wait(const struct cache *c)
{
    for (uint32_t layer = 0; layer < c->child.model->hparams.layers; layer++)
        if (c->guesses[layer].at < c->guesses[layer].count)
            return true;
    return false;
}

void cache_receive_predictor(struct cache *c)
{
    _Alignas(8) char buf[MSG_BYTES_MAX];
    while (edge_receive(c->predictor, buf) > 0) {
        const struct msg_head *head = (const struct msg_head *)(const void *)buf;
        cache_count(c, CTR_CACHE_messages, 1);
        child_progress(&c->child);
        if (head->type == MSG_HINT)
            take_hint(c, (const struct msg_hint *)(const void *)buf);
    }
}
