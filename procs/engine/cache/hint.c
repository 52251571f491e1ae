/* SPDX-License-Identifier: Apache-2.0 */
/* Predictions: stored per target layer, protected from eviction, prefetched while the device is
 * idle, and dropped as soon as compute has passed their layer. */
#include <string.h>

#include "lib/base/assert.h"
#include "procs/engine/cache/cache.h"

static struct prediction_list *predictions_of(struct cache *c, uint32_t layer)
{
    sl_assert(layer < c->child.model->hparams.layers);
    return &c->predictions[layer];
}

/* A prefetch is timely when its entry is READY as compute reaches the layer, else late. */
static void count_fetched(struct cache *c, uint32_t entry)
{
    if (!cache_noted(c, entry, NOTE_FETCHED))
        return;
    bool there = entry_state_of(cache_entry_word(c, entry)) == ENTRY_READY;
    cache_count(c, there ? CTR_CACHE_prefetches_timely : CTR_CACHE_prefetches_late, 1);
    c->notes[entry].flags &= (uint16_t)~NOTE_FETCHED;
}

static void forget(struct cache *c, struct prediction_list *list)
{
    for (uint32_t i = 0; i < list->count; i++) {
        uint32_t entry = list->predictions[i].entry;
        c->notes[entry].flags &= (uint16_t)~NOTE_HINTED;
        count_fetched(c, entry);
        /* In flight for a layer that has passed: the read is no longer useful. */
        if (i < list->at && cache_noted(c, entry, NOTE_LISTED) &&
            c->notes[entry].priority == LOAD_PREFETCH &&
            entry_pins_of(cache_entry_word(c, entry)) == 0)
            (void)cache_cancel(c, entry);
    }
    cache_count(c, CTR_CACHE_hints_expired, list->count - list->at);
    list->count = list->at = 0;
}

/* Prefetches in flight continue (prediction_keeps_loads). */
static void replace(struct cache *c, struct prediction_list *list)
{
    for (uint32_t i = 0; i < list->count; i++) {
        uint32_t entry = list->predictions[i].entry;
        if (entry_state_of(cache_entry_word(c, entry)) == ENTRY_READY)
            count_fetched(c, entry);
        c->notes[entry].flags &= (uint16_t) ~(NOTE_HINTED | NOTE_FETCHED);
    }
    list->count = list->at = 0;
}

static void add_prediction(struct cache *c, struct prediction_list *list,
                           const struct msg_prediction *g)
{
    list->predictions[list->count++] = *g;
    if (prefetch_protects(&c->limit))
        c->notes[g->entry].flags |= NOTE_HINTED;
    if (entry_state_of(cache_entry_word(c, g->entry)) == ENTRY_READY)
        return;
    if (!cache_noted(c, g->entry, NOTE_LISTED | NOTE_WAITING))
        cache_count(c, CTR_CACHE_predicted_absent, 1);
    else if (cache_noted(c, g->entry, NOTE_PREFETCHED))
        c->notes[g->entry].flags |= NOTE_FETCHED;
}

static struct prediction_place place_of(const struct cache_now *now)
{
    return (struct prediction_place){now->sequence, now->position, now->layer};
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
        prefetch_limit_layer(&c->limit, c->layer_ns.value, cache_expert_ns(c));
    c->now = now;
    struct prediction_place here = place_of(&now);
    cache_evict_expired(c);
    for (uint32_t layer = 0; layer < c->child.model->hparams.layers; layer++) {
        struct prediction_list *list = predictions_of(c, layer);
        if (list->count > 0 && prediction_passed(&here, &list->target))
            forget(c, list);
    }
    c->prefetch_check = true;
}

static bool prediction_is_valid(const struct cache *c, const struct msg_hint *hint,
                                const struct msg_prediction *g)
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
    /* Compute may have advanced without a message: hits send none. */
    cache_read_accesses(c, UINT64_MAX);
    struct prediction_list *list = predictions_of(c, hint->layer);
    struct prediction_place here = place_of(&c->now);
    struct prediction_place target = {hint->sequence, hint->position, hint->layer};
    if (list->count > 0 && prediction_keeps_loads(&list->target, &target))
        replace(c, list);
    else if (list->count > 0)
        forget(c, list);
    /* A prediction for an unknown sequence means that the sequence has started. */
    if (here.sequence == hint->sequence && prediction_passed(&here, &target)) {
        cache_count(c, CTR_CACHE_hints_expired, hint->count);
        return;
    }
    list->target = target;
    list->prefill = hint->prefill != 0;
    for (unsigned i = 0; i < hint->count && list->count < c->predictions_max; i++) {
        if (prediction_is_valid(c, hint, &hint->predictions[i]))
            add_prediction(c, list, &hint->predictions[i]);
    }
    c->prefetch_check = true;
}

/* Bytes of prefetches for layers that compute has not reached. */
static uint64_t prefetched_bytes(const struct cache *c)
{
    uint64_t bytes = 0;
    for (uint32_t layer = 0; layer < c->child.model->hparams.layers; layer++) {
        const struct prediction_list *list = &c->predictions[layer];
        for (uint32_t i = 0; i < list->at; i++)
            if (cache_noted(c, list->predictions[i].entry, NOTE_PREFETCHED))
                bytes += c->entries[list->predictions[i].entry].payload_bytes;
    }
    return bytes;
}

/* False when the round ends: no prefetch is allowed, or one was issued. Demands are handled before
 * the next one. */
static bool prefetch_one(struct cache *c, struct prediction_list *list, uint32_t layer)
{
    const struct model_hparams *h = &c->child.model->hparams;
    const struct msg_prediction *g = &list->predictions[list->at];
    if (cache_noted(c, g->entry, NOTE_LISTED | NOTE_WAITING | NOTE_RESIDENT)) {
        list->at++;
        return true;
    }
    struct prefetch_state state = {
        .demands_open = c->demands_open,
        .prefetches_open = c->prefetches_open,
        .queue_depth = (uint32_t)c->child.params->queue_depth,
        .top_k = h->experts_used,
        .layer_now = c->now.layer,
        .layer_predicted = layer,
        .layers = h->layers,
        .probability = g->probability,
        .prefill = list->prefill,
        .prefetched_bytes = list->prefill ? prefetched_bytes(c) : 0,
        .capacity_bytes = c->capacity,
    };
    uint64_t offset;
    if (!prefetch_limit_allows(&c->limit, &state)) /* not even with free space */
        return false;
    if (cache_space_take_prefetch(c, g->entry, &state, &offset)) {
        prefetch_limit_sent(&c->limit, &state);
        c->notes[g->entry].flags |= NOTE_PREFETCHED | NOTE_FETCHED;
        cache_count(c, CTR_CACHE_prefetches, 1);
        cache_reserve(c, g->entry, offset, LOAD_PREFETCH, 0);
        c->prefetch_check = true;
    } else if (prefetch_waits_for_space(&c->limit, &state)) {
        return false;
    }
    list->at++; /* a prediction that cannot be loaded now is not tried again */
    return !c->prefetch_check;
}

void cache_prefetch(struct cache *c)
{
    if (!c->prefetch_check)
        return;
    c->prefetch_check = false;
    if (c->waiting.count > 0)
        return;
    uint32_t layers = c->child.model->hparams.layers;
    for (uint32_t ahead = 1; ahead < layers; ahead++) { /* the nearest layer first */
        uint32_t layer = (c->now.layer + ahead) % layers;
        struct prediction_list *list = predictions_of(c, layer);
        while (list->at < list->count)
            if (!prefetch_one(c, list, layer))
                return;
    }
}

bool cache_predictions_wait(const struct cache *c)
{
    for (uint32_t layer = 0; layer < c->child.model->hparams.layers; layer++)
        if (c->predictions[layer].at < c->predictions[layer].count)
            return true;
    return false;
}

void cache_receive_predictor(struct cache *c)
{
    _Alignas(8) char buf[MSG_BYTES_MAX];
    while (channel_receive(c->predictor, buf) > 0) {
        const struct msg_head *head = (const struct msg_head *)(const void *)buf;
        cache_count(c, CTR_CACHE_messages, 1);
        if (head->type == MSG_HINT)
            take_hint(c, (const struct msg_hint *)(const void *)buf);
    }
}
