/* SPDX-License-Identifier: Apache-2.0 */
/* Predictions: stored per sequence and target layer, protected from eviction, prefetched while the
 * device is idle, and dropped as soon as their sequence has passed the layer, or has ended. */
#include <stdlib.h>
#include <string.h>

#include "lib/base/assert.h"
#include "procs/engine/cache/cache.h"

_Static_assert(SEQUENCES_MAX <= 64, "a bit of `predicted` for each");

/* ---- lists ----------------------------------------------------------------------------------- */

/* Pages of places that no sequence had stay untouched. */
bool cache_create_predictions(struct cache *c)
{
    const struct model_hparams *h = &c->child.model->hparams;
    size_t lists = (size_t)SEQUENCES_MAX * h->layers;
    c->predictions_max = h->experts < MSG_HINTS_MAX ? h->experts : MSG_HINTS_MAX;
    struct prediction_list *list = calloc(lists, sizeof *list);
    struct msg_prediction *predictions = calloc(lists * c->predictions_max, sizeof *predictions);
    if (!list || !predictions) {
        free(list);
        free(predictions);
        return false;
    }
    for (size_t i = 0; i < lists; i++)
        list[i].predictions = predictions + i * c->predictions_max;
    for (uint32_t i = 0; i < SEQUENCES_MAX; i++)
        c->sequence[i].list = list + (size_t)i * h->layers;
    return true;
}

void cache_destroy_predictions(struct cache *c)
{
    free(c->sequence[0].list->predictions);
    free(c->sequence[0].list);
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

static void clear(struct cache *c, struct cache_sequence *s, struct prediction_list *list)
{
    if (list->count == 0)
        return;
    list->count = list->at = 0;
    if (--s->lists == 0)
        c->predicted &= ~(1ull << (s - c->sequence));
}

static void forget(struct cache *c, struct cache_sequence *s, struct prediction_list *list)
{
    for (uint32_t i = 0; i < list->count; i++) {
        uint32_t entry = list->predictions[i].entry;
        c->notes[entry].hints--;
        count_fetched(c, entry);
        /* In flight for a layer that has passed: the read is no longer useful. */
        if (i < list->at && c->notes[entry].hints == 0 && cache_noted(c, entry, NOTE_LISTED) &&
            c->notes[entry].priority == LOAD_PREFETCH &&
            entry_pins_of(cache_entry_word(c, entry)) == 0)
            (void)cache_cancel(c, entry);
    }
    cache_count(c, CTR_CACHE_hints_expired, list->count - list->at);
    clear(c, s, list);
}

/* Prefetches in flight continue (prediction_keeps_loads). */
static void replace(struct cache *c, struct cache_sequence *s, struct prediction_list *list)
{
    for (uint32_t i = 0; i < list->count; i++) {
        uint32_t entry = list->predictions[i].entry;
        if (entry_state_of(cache_entry_word(c, entry)) == ENTRY_READY)
            count_fetched(c, entry);
        c->notes[entry].hints--;
        c->notes[entry].flags &= (uint16_t)~NOTE_FETCHED;
    }
    clear(c, s, list);
}

static void add_prediction(struct cache *c, struct cache_sequence *s, struct prediction_list *list,
                           const struct msg_prediction *g)
{
    s->lists += list->count == 0;
    c->predicted |= 1ull << (s - c->sequence);
    list->predictions[list->count++] = *g;
    c->notes[g->entry].hints++;
    if (entry_state_of(cache_entry_word(c, g->entry)) == ENTRY_READY)
        return;
    if (!cache_noted(c, g->entry, NOTE_LISTED | NOTE_WAITING))
        cache_count(c, CTR_CACHE_predicted_absent, 1);
    else if (cache_noted(c, g->entry, NOTE_PREFETCHED))
        c->notes[g->entry].flags |= NOTE_FETCHED;
}

/* ---- sequences ------------------------------------------------------------------------------- */

static void forget_all(struct cache *c, struct cache_sequence *s)
{
    for (uint32_t layer = 0; s->lists > 0 && layer < c->child.model->hparams.layers; layer++)
        if (s->list[layer].count > 0)
            forget(c, s, &s->list[layer]);
}

/* Of a sequence that runs; it starts when its START record was lost. */
static struct cache_sequence *sequence_of(struct cache *c, uint32_t sequence)
{
    bool displaced;
    uint32_t place = sequences_find(&c->sequences, sequence);
    if (place != SEQUENCE_NONE)
        return &c->sequence[place];
    struct cache_sequence *s = &c->sequence[sequences_start(&c->sequences, sequence, &displaced)];
    if (displaced)
        forget_all(c, s);
    s->now = (struct prediction_place){.sequence = sequence};
    s->stepped = false;
    return s;
}

/* Records were lost, perhaps that of an end: the next access of a sequence starts it again. */
void cache_forget_predictions(struct cache *c)
{
    for (uint32_t i = 0; i < SEQUENCES_MAX; i++) {
        forget_all(c, &c->sequence[i]);
        if (c->sequences.place[i].state == SEQUENCE_RUNS)
            (void)sequences_end(&c->sequences, c->sequences.place[i].number);
    }
}

void cache_sequence_starts(struct cache *c, uint32_t sequence)
{
    residency_sequence_starts(c->residency, sequence);
    (void)sequence_of(c, sequence);
}

void cache_sequence_ends(struct cache *c, uint32_t sequence)
{
    residency_sequence_ends(c->residency, sequence);
    uint32_t place = sequences_end(&c->sequences, sequence);
    if (place != SEQUENCE_NONE)
        forget_all(c, &c->sequence[place]);
}

void cache_advance(struct cache *c, const struct prediction_place *now)
{
    residency_step(c->residency, &(struct residency_step){.sequence = now->sequence,
                                                          .position = now->position,
                                                          .layer = now->layer});
    struct cache_sequence *s = sequence_of(c, now->sequence);
    if (s->stepped && now->position == s->now.position && now->layer == s->now.layer &&
        now->layer == c->layer)
        return;
    if (now->layer != c->layer)
        prefetch_limit_layer(&c->limit, c->layer_ns.value, cache_expert_ns(c));
    c->layer = now->layer;
    s->now = *now;
    s->stepped = true;
    cache_evict_expired(c);
    for (uint32_t layer = 0; s->lists > 0 && layer < c->child.model->hparams.layers; layer++) {
        struct prediction_list *list = &s->list[layer];
        if (list->count > 0 && prediction_passed(now, &list->target))
            forget(c, s, list);
    }
    c->prefetch_check = true;
}

static bool prediction_is_valid(const struct cache *c, const struct msg_hint *hint,
                                const struct msg_prediction *g)
{
    return g->entry < c->child.model->entry_count && cache_is_expert(c, g->entry) &&
           c->entries[g->entry].extents > 0 && c->entries[g->entry].layer == hint->layer;
}

void cache_take_hint(struct cache *c, const struct msg_hint *hint, bool certain)
{
    cache_count(c, CTR_CACHE_hints, 1);
    cache_count(c, CTR_CACHE_hint_entries, hint->count);
    if (hint->layer >= c->child.model->hparams.layers)
        return;
    /* Compute may have advanced without a message: hits send none. */
    cache_read_accesses(c, UINT64_MAX);
    /* Accesses precede the predictions from them. So a sequence without a place has ended, and
     * nothing would end one that a prediction starts. */
    uint32_t place = sequences_find(&c->sequences, hint->sequence);
    if (place == SEQUENCE_NONE) {
        cache_count(c, CTR_CACHE_hints_expired, hint->count);
        return;
    }
    struct cache_sequence *s = &c->sequence[place];
    struct prediction_list *list = &s->list[hint->layer];
    struct prediction_place target = {hint->sequence, hint->position, hint->layer};
    if (list->count > 0 && prediction_keeps_loads(&list->target, &target))
        replace(c, s, list);
    else if (list->count > 0)
        forget(c, s, list);
    if (certain && !s->stepped) /* nothing of it was accessed: compute is before its first layer */
        s->now.layer = c->child.model->hparams.layers - 1;
    if ((!certain || s->stepped) && prediction_passed(&s->now, &target)) {
        cache_count(c, CTR_CACHE_hints_expired, hint->count);
        return;
    }
    list->target = target;
    list->prefill = hint->prefill != 0;
    list->certain = certain;
    for (unsigned i = 0; i < hint->count && list->count < c->predictions_max; i++) {
        if (prediction_is_valid(c, hint, &hint->predictions[i]))
            add_prediction(c, s, list, &hint->predictions[i]);
    }
    c->prefetch_check = true;
}

/* ---- prefetches ------------------------------------------------------------------------------ */

/* The next sequence with lists, from place *at on; NULL: none. */
static struct cache_sequence *next_predicted(struct cache *c, uint32_t *at)
{
    uint64_t left = *at < SEQUENCES_MAX ? c->predicted >> *at : 0;
    if (left == 0)
        return NULL;
    *at += (uint32_t)__builtin_ctzll(left) + 1;
    return &c->sequence[*at - 1];
}

/* Bytes of prefetches for layers that compute has not reached. */
static uint64_t prefetched_bytes(struct cache *c)
{
    uint64_t bytes = 0;
    struct cache_sequence *s;
    for (uint32_t at = 0; (s = next_predicted(c, &at)) != NULL;)
        for (uint32_t layer = 0; layer < c->child.model->hparams.layers; layer++) {
            const struct prediction_list *list = &s->list[layer];
            for (uint32_t i = 0; i < list->at; i++)
                if (cache_noted(c, list->predictions[i].entry, NOTE_PREFETCHED))
                    bytes += c->entries[list->predictions[i].entry].payload_bytes;
        }
    return bytes;
}

/* False when the round ends: no prefetch is allowed, or one was issued. Demands are handled before
 * the next one. */
static bool prefetch_one(struct cache *c, const struct cache_sequence *s, uint32_t layer)
{
    struct prediction_list *list = &s->list[layer];
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
        .layer_now = s->now.layer,
        .layer_predicted = layer,
        .layers = h->layers,
        .expert_layers = hparams_layers_with_experts(h),
        .probability = g->probability,
        .prefill = list->prefill,
        .certain = list->certain,
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
    for (uint32_t ahead = 1; ahead < layers && c->predicted != 0; ahead++) { /* the nearest first */
        struct cache_sequence *s;
        for (uint32_t at = 0; (s = next_predicted(c, &at)) != NULL;) {
            uint32_t layer = (s->now.layer + ahead) % layers;
            while (s->list[layer].at < s->list[layer].count)
                if (!prefetch_one(c, s, layer))
                    return;
        }
    }
}

bool cache_predictions_wait(struct cache *c)
{
    struct cache_sequence *s;
    for (uint32_t at = 0; (s = next_predicted(c, &at)) != NULL;)
        for (uint32_t layer = 0; layer < c->child.model->hparams.layers; layer++)
            if (s->list[layer].at < s->list[layer].count)
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
            cache_take_hint(c, (const struct msg_hint *)(const void *)buf, false);
    }
}
