/* SPDX-License-Identifier: Apache-2.0 */
/* The accesses of a layer in a replay: of all sequences of a pass, in the order in which an engine
 * decides them, and the predictions of each sequence. */
#include <stdlib.h>
#include <string.h>

#include "lib/sim/replay/replay.h"

#include "lib/model/limits.h"

bool run_layer_create(struct run *r)
{
    struct run_layer *l = &r->layer;
    size_t all = (size_t)SEQUENCES_MAX * r->experts;
    l->access = calloc(all, sizeof *l->access);
    l->part = calloc(all, sizeof *l->part);
    l->expert = calloc(r->experts, sizeof *l->expert);
    l->item = calloc(r->experts, sizeof *l->item);
    l->given = calloc(SEQUENCES_MAX, sizeof *l->given);
    l->order = calloc(r->experts, sizeof *l->order);
    l->popularity = calloc(r->experts, sizeof *l->popularity);
    return l->access && l->part && l->expert && l->item && l->given && l->order && l->popularity;
}

void run_layer_free(struct run *r)
{
    struct run_layer *l = &r->layer;
    free(l->access);
    free(l->part);
    free(l->expert);
    free(l->item);
    free(l->given);
    free(l->order);
    free(l->popularity);
}

/* ---- records --------------------------------------------------------------------------------- */

/* Whether a record of an access belongs to the layer: another position of one of its sequences is
 * the next pass. *position: [sequences] of those before it. */
struct seen {
    uint32_t sequence[SEQUENCES_MAX], position[SEQUENCES_MAX], count;
};

static bool add_seen(struct seen *s, const struct trace_record *x)
{
    for (uint32_t i = 0; i < s->count; i++)
        if (s->sequence[i] == x->sequence)
            return s->position[i] == x->position;
    if (s->count == SEQUENCES_MAX)
        return false;
    s->sequence[s->count] = x->sequence;
    s->position[s->count++] = x->position;
    return true;
}

static bool ends_layer(const struct trace_record *x)
{
    return x->kind == TRACE_TOKEN_END || x->kind == TRACE_SEQUENCE_START ||
           x->kind == TRACE_SEQUENCE_END;
}

uint64_t run_layer_end(const struct run *r, uint64_t at, uint64_t end)
{
    const struct trace_record *records = r->t->records;
    struct seen seen = {.count = 0};
    uint64_t after = at;
    for (uint64_t i = at; i < end && !ends_layer(&records[i]); i++) {
        bool decides = records[i].kind == TRACE_EXPERT || records[i].kind == TRACE_LOGITS ||
                       records[i].kind == TRACE_CANDIDATE || records[i].kind == TRACE_ROUTER;
        if (decides && records[i].layer != records[at].layer)
            break;
        if (records[i].kind != TRACE_EXPERT)
            continue;
        if (!add_seen(&seen, &records[i]))
            break;
        after = i + 1;
    }
    return after;
}

void run_layer_add(struct run *r, const struct trace_record *first, struct run_sequence *s)
{
    struct run_layer *l = &r->layer;
    l->sequence[l->steps] = s;
    l->used[l->steps] = 0;
    l->step[l->steps++] = (struct sim_step){.sequence = first->sequence,
                                            .position = first->position,
                                            .layer = first->layer,
                                            .tokens = s->tokens,
                                            .prefill = first->prefill != 0};
}

static uint32_t step_of(const struct run_layer *l, const struct trace_record *x)
{
    for (uint32_t i = 0; i < l->steps; i++)
        if (l->step[i].sequence == x->sequence)
            return i;
    sl_panic("a record of sequence %u, which is in no step", x->sequence);
}

/* False: the sequence has used the expert in this layer before. */
static bool add_part(struct run_layer *l, const struct trace_record *x, uint32_t step)
{
    struct run_item *item = &l->item[x->expert];
    for (uint32_t p = item->tokens > 0 ? item->first : RUN_PART_NONE; p != RUN_PART_NONE;
         p = l->part[p].next)
        if (l->part[p].step == step)
            return false;
    uint32_t at = l->parts++;
    l->part[at] = (struct run_part){.record = x, .step = step, .next = RUN_PART_NONE};
    if (item->tokens == 0) {
        l->expert[l->experts++] = x->expert;
        item->first = at;
    } else {
        l->part[item->last].next = at;
    }
    item->last = at;
    item->tokens += x->tokens;
    return true;
}

/* By rank, as an engine logs a sequence that is alone; equal ranks stay in the order of records. */
static void add_access(struct run *r, uint32_t step, const struct trace_record *x)
{
    struct run_layer *l = &r->layer;
    const struct trace_record **access = l->access + (size_t)step * r->experts;
    uint32_t at = l->used[step]++;
    for (; l->steps > 1 && at > 0 && access[at - 1]->rank > x->rank; at--)
        access[at] = access[at - 1];
    access[at] = x;
}

static void take_access(struct run *r, uint32_t step, const struct trace_record *x)
{
    if (!add_part(&r->layer, x, step))
        return;
    add_access(r, step, x);
    if (r->activation)
        activation_access(r->activation, x->sequence, x->layer, x->expert, x->tokens);
}

/* The steps in the order of their candidates, which an engine logs in the order of its rows. */
static void order_rows(const struct run *r, uint32_t order[SEQUENCES_MAX])
{
    const struct run_layer *l = &r->layer;
    for (uint32_t i = 0; i < l->steps; i++) {
        uint64_t own = r->candidates[l->sequence[i] - r->sequence].first;
        uint32_t at = i;
        for (; at > 0 && r->candidates[l->sequence[order[at - 1]] - r->sequence].first > own; at--)
            order[at] = order[at - 1];
        order[at] = i;
    }
}

/* The accesses that were made for all steps: the best rank of all rows, then the next one, as the
 * core orders them. The order of the records is that of the experts that were recorded. */
static void collect_made(struct run *r, const struct trace_record **made)
{
    uint32_t order[SEQUENCES_MAX];
    order_rows(r, order);
    for (uint32_t rank = 0; rank < r->top_k; rank++)
        for (uint32_t i = 0; i < r->layer.steps; i++)
            take_access(r, order[i], &made[order[i]][rank]);
}

/* Which of the accesses that were made for a step stand in place of which records: of the same
 * expert, then the next ones by rank. */
struct places {
    const struct trace_record *made; /* [top_k]; NULL: the records */
    uint32_t next;
    bool same[MODEL_TOP_K_MAX]; /* a record has the same expert */
};

static uint32_t rank_of(const struct run *r, const struct places *p, uint32_t expert)
{
    uint32_t rank = 0;
    while (rank < r->top_k && p->made[rank].expert != expert)
        rank++;
    return rank;
}

static void note_same(const struct run *r, struct places *p, uint32_t expert)
{
    uint32_t rank = p->made ? rank_of(r, p, expert) : r->top_k;
    if (rank < r->top_k)
        p->same[rank] = true;
}

/* What stands in place of a record; NULL: nothing. */
static const struct trace_record *in_place_of(const struct run *r, struct places *p,
                                              const struct trace_record *x)
{
    if (!p->made)
        return x;
    uint32_t rank = rank_of(r, p, x->expert);
    if (rank < r->top_k)
        return &p->made[rank];
    while (p->next < r->top_k && p->same[p->next])
        p->next++;
    return p->next < r->top_k ? &p->made[p->next++] : NULL;
}

/* With rows of a chunk, for which nothing is made, the order of the records is kept. */
static void collect_recorded(struct run *r, uint64_t at, uint64_t end, struct places *places)
{
    const struct trace_record *records = r->t->records;
    for (uint64_t i = at; i < end; i++)
        if (records[i].kind == TRACE_EXPERT)
            note_same(r, &places[step_of(&r->layer, &records[i])], records[i].expert);
    for (uint64_t i = at; i < end; i++) {
        if (records[i].kind != TRACE_EXPERT)
            continue;
        uint32_t step = step_of(&r->layer, &records[i]);
        const struct trace_record *x = in_place_of(r, &places[step], &records[i]);
        if (x)
            take_access(r, step, x);
    }
}

static void collect(struct run *r, uint64_t at, uint64_t end)
{
    struct run_layer *l = &r->layer;
    struct places places[SEQUENCES_MAX];
    const struct trace_record *made[SEQUENCES_MAX];
    uint32_t all = 0;
    l->parts = l->experts = 0;
    for (uint32_t i = 0; i < l->steps; i++) {
        made[i] = run_reroute(r, i);
        all += made[i] != NULL;
        places[i] = (struct places){.made = made[i]};
    }
    if (all == l->steps)
        collect_made(r, made);
    else
        collect_recorded(r, at, end, places);
}

/* ---- accesses -------------------------------------------------------------------------------- */

/* Sets order[] to the layer's experts, the most popular first. */
static void rank_popularity(struct run_layer *l)
{
    for (uint32_t i = 0; i < l->experts; i++)
        l->order[i] = (struct prefill_item){l->expert[i], l->item[l->expert[i]].tokens};
    prefill_order_of(PREFILL_ORDER_POPULARITY)(l->order, l->experts);
    for (uint32_t i = 0; i < l->experts; i++)
        l->popularity[l->order[i].expert] = precision_popularity(i, l->experts);
}

/* The weights before each access of a sequence that decodes: those of the ranks before it. */
static void rank_weights(const struct run *r, uint32_t step, float before[MODEL_TOP_K_MAX])
{
    const struct trace_record **access = r->layer.access + (size_t)step * r->experts;
    float weight[MODEL_TOP_K_MAX];
    uint32_t used = r->layer.used[step], k = used < MODEL_TOP_K_MAX ? used : MODEL_TOP_K_MAX;
    for (uint32_t i = 0; i < k; i++)
        weight[i] = access[i]->weight;
    precision_weights_before(weight, 1, k, before);
}

static float part_weight_before(const struct run *r, const struct run_part *part)
{
    const struct trace_record **access = r->layer.access + (size_t)part->step * r->experts;
    float before[MODEL_TOP_K_MAX];
    uint32_t at = 0;
    if (part->record->prefill)
        return part->record->before;
    while (access[at] != part->record)
        at++;
    if (at >= MODEL_TOP_K_MAX)
        return 1;
    rank_weights(r, part->step, before);
    return before[at];
}

/* As in the core: the row that needs the expert most decides. */
static float weight_before(const struct run *r, const struct run_item *item)
{
    const struct run_part *part = r->layer.part;
    float least = part_weight_before(r, &part[item->first]);
    for (uint32_t p = part[item->first].next; p != RUN_PART_NONE; p = part[p].next) {
        float before = part_weight_before(r, &part[p]);
        least = before < least ? before : least;
    }
    return least;
}

static uint32_t give_parts(struct run *r, const struct run_item *item)
{
    struct run_layer *l = &r->layer;
    uint32_t n = 0;
    for (uint32_t p = item->first; p != RUN_PART_NONE; p = l->part[p].next) {
        const struct trace_record *x = l->part[p].record;
        l->given[n++] = (struct sim_part){.step = l->part[p].step, .tokens = x->tokens};
        if (r->next)
            r->next_access[x->layer * r->experts + x->expert] = r->next[x - r->t->records];
    }
    return n;
}

static void access_all(struct run *r)
{
    struct run_layer *l = &r->layer;
    rank_popularity(l);
    for (uint32_t i = 0; i < l->experts; i++) {
        const struct run_item *item = &l->item[l->expert[i]];
        struct sim_access_result result;
        struct sim_access access = {.expert = l->expert[i],
                                    .tokens = item->tokens,
                                    .weight_before = weight_before(r, item),
                                    .popularity = l->popularity[l->expert[i]],
                                    .part = l->given};
        access.parts = give_parts(r, item);
        sim_cache_access(r->cache, &access, &result);
    }
}

/* ---- experts of a table --------------------------------------------------------------------- */

/* Tokens of a step that use each expert of a later layer of the pass. Another position of its
 * sequence is the next pass, also where a trace has no ends of tokens. */
static void count_known(struct run *r, const struct sim_step *of, uint32_t layer, uint64_t at,
                        uint64_t end)
{
    memset(r->known, 0, r->experts * sizeof *r->known);
    for (; at < end; at++) {
        const struct trace_record *x = &r->t->records[at];
        if (x->kind == TRACE_TOKEN_END || (x->kind == TRACE_EXPERT && x->layer > layer))
            return;
        if (x->kind != TRACE_EXPERT || x->sequence != of->sequence)
            continue;
        if (x->position != of->position)
            return;
        if (x->layer == layer)
            r->known[x->expert] += x->tokens;
    }
}

void run_layer_known(struct run *r, uint64_t at, uint64_t end)
{
    const struct trace_header *h = &r->t->header;
    if (h->table_layers == 0)
        return;
    sim_cache_pass(r->cache, r->layer.step, r->layer.steps);
    for (uint32_t layer = 0; layer < h->table_layers; layer++)
        for (uint32_t i = 0; i < r->layer.steps; i++) {
            count_known(r, &r->layer.step[i], layer, at, end);
            uint32_t n = prediction_known(r->known, r->experts, r->predictions);
            sim_cache_known(r->cache, i, layer, r->predictions, n);
        }
}

/* ---- predictions ----------------------------------------------------------------------------- */

static const struct trace_record *first_access(const struct run *r, uint32_t step)
{
    return r->layer.access[(size_t)step * r->experts];
}

/* Length of the list that the method would use: those above the 75th percentile, or predict_k; for
 * a chunk all that were recorded. */
static uint32_t list_length(const struct run *r, uint32_t step)
{
    const struct prediction_method *p = sim_cache_prediction_method(r->cache);
    if (first_access(r, step)->prefill)
        return r->experts;
    if (!p->lists)
        return sim_cache_predict_k(r->cache);
    uint32_t above = r->experts - 1 - (uint32_t)(0.75 * (r->experts - 1));
    return above > r->top_k ? above : r->top_k;
}

struct span { /* records of a layer, and what follows it */
    uint64_t at, after, end;
};

/* Predictions of a kind of a sequence for a later layer: at most so many. */
static uint32_t take_recorded(struct run *r, enum trace_kind kind, const struct span *of,
                              uint32_t step, uint32_t target, uint32_t max)
{
    const struct sim_step *from = &r->layer.step[step];
    uint32_t n = 0;
    for (uint64_t i = of->at; i < of->end; i++) {
        const struct trace_record *x = &r->t->records[i];
        if (i >= of->after && (x->kind == TRACE_EXPERT || x->kind == TRACE_TOKEN_END))
            break;
        if (x->kind == kind && x->layer == target && x->sequence == from->sequence &&
            x->from_layer == from->layer && n < max && n < r->experts)
            r->predictions[n++] = (struct prediction){
                .expert = x->expert, .probability = x->weight, .weight_before = x->before};
    }
    if (!first_access(r, step)->prefill && !(n > 1 && r->predictions[1].weight_before > 0))
        prediction_weights_before(r->predictions, n, r->top_k);
    return n;
}

static uint32_t next_layer(const struct run *r, uint32_t layer)
{
    return sim_next_layer(&r->cache->config, layer);
}

/* Hints from recorded predictions for later layers. */
static void hint_recorded(struct run *r, const struct span *of, uint32_t step)
{
    uint32_t ahead = (uint32_t)r->cache->config.knobs.lookahead, max = list_length(r, step);
    uint32_t target = r->layer.step[step].layer;
    for (uint32_t i = 0; i < ahead && (target = next_layer(r, target)) < r->layers; i++) {
        uint32_t n = take_recorded(r, TRACE_PREDICTED, of, step, target, max);
        if (n == 0 || !sim_cache_hint(r->cache, step, target, r->predictions, n))
            return;
    }
}

/* In passes of one row. */
static void predict_for_gpu(struct run *r, const struct span *of)
{
    if (r->gpu_kind == 0 || r->layer.steps > 1 || r->layer.step[0].tokens != 1)
        return;
    uint32_t n =
        take_recorded(r, r->gpu_kind, of, 0, next_layer(r, r->layer.step[0].layer), r->top_k);
    sim_cache_gpu_predicted(r->cache, r->predictions, n);
}

static bool hint_layer(struct run *r, uint32_t step, uint32_t target)
{
    const struct run_sequence *s = r->layer.sequence[step];
    uint32_t layer = r->layer.step[step].layer;
    uint32_t two_before = s->chosen_count[1] > 0 && next_layer(r, s->chosen_layer[1]) == layer;
    struct prediction_input in = {.layer = target,
                                  .now = layer,
                                  .sequence = r->layer.step[step].sequence,
                                  .position = s->position,
                                  .activation = r->activation,
                                  .experts = r->experts,
                                  .top_k = r->top_k,
                                  .want = sim_cache_predict_k(r->cache),
                                  .chosen1 = s->chosen[0],
                                  .chosen1_count = s->chosen_count[0],
                                  .chosen2 = s->chosen[1],
                                  .chosen2_count = two_before ? s->chosen_count[1] : 0,
                                  .tables = &r->cache->config.plan.tables,
                                  .scratch = r->scratch};
    uint32_t n = prediction_run(sim_cache_prediction_method(r->cache), &in, r->predictions);
    return n > 0 && sim_cache_hint(r->cache, step, target, r->predictions, n);
}

static void hint_computed(struct run *r, uint32_t step)
{
    const struct prediction_method *p = sim_cache_prediction_method(r->cache);
    uint32_t target = r->layer.step[step].layer;
    uint32_t ahead = prediction_layers(p, r->cache->config.knobs.lookahead);
    if (first_access(r, step)->prefill && !prediction_for_chunks(p))
        return;
    for (uint32_t i = 0; i < ahead && (target = next_layer(r, target)) < r->layers; i++)
        if (!hint_layer(r, step, target))
            return;
}

static void remember_chosen(struct run *r, uint32_t step)
{
    const struct trace_record **access = r->layer.access + (size_t)step * r->experts;
    struct run_sequence *s = r->layer.sequence[step];
    uint16_t *older = s->chosen[1];
    s->chosen[1] = s->chosen[0];
    s->chosen_count[1] = s->chosen_count[0];
    s->chosen_layer[1] = s->chosen_layer[0];
    s->chosen[0] = older;
    s->chosen_count[0] = r->layer.used[step];
    s->chosen_layer[0] = r->layer.step[step].layer;
    for (uint32_t i = 0; i < s->chosen_count[0]; i++)
        older[i] = access[i]->expert;
}

static void predict(struct run *r, const struct span *of, uint32_t step)
{
    enum prediction_source source = sim_cache_prediction_method(r->cache)->source;
    remember_chosen(r, step);
    if (source == PREDICT_LOGITS)
        hint_recorded(r, of, step);
    else if (source != PREDICT_NOTHING)
        hint_computed(r, step);
}

/* ---- all of it ------------------------------------------------------------------------------- */

void run_layer_replay(struct run *r, uint64_t at, uint64_t after, uint64_t end)
{
    struct run_layer *l = &r->layer;
    const struct span of = {at, after, end};
    sim_cache_layer(r->cache, l->step, l->steps);
    collect(r, at, after);
    access_all(r);
    for (uint32_t i = 0; i < l->steps; i++)
        predict(r, &of, i);
    predict_for_gpu(r, &of);
    (void)sim_cache_compute(r->cache);
    for (uint32_t i = 0; i < l->experts; i++)
        l->item[l->expert[i]].tokens = 0;
    l->steps = 0;
}
