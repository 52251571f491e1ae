/* SPDX-License-Identifier: Apache-2.0 */
/* Replay of whole traces. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/sim/internal.h"

#include "lib/model/limits.h"
#include "lib/policy/prediction/activation.h"
#include "lib/policy/sequences.h"
#include "lib/tensor/precision.h"

struct run_sequence { /* one that runs */
    bool in_pass;     /* it takes part in the running pass, ... */
    bool done;        /* ... and its part is complete */
    uint32_t position, tokens;
    uint16_t *chosen[2]; /* [experts]: of the layers one and two before */
    uint32_t chosen_count[2], chosen_layer[2];
};

struct run {
    const struct trace *t;
    struct sim_cache *cache;
    uint32_t layers, experts, top_k;
    struct sequences sequences;
    struct run_sequence sequence[SEQUENCES_MAX]; /* by place */
    uint32_t in_pass;                   /* sequences in the running pass that are not done */
    const struct trace_record **access; /* [experts]: of the running layer */
    uint32_t accesses;
    struct prefill_item *order; /* [experts]: the layer's accesses by popularity */
    float *popularity;          /* [experts] */
    uint32_t *seen; /* [experts]: stamp of the last layer that accessed it, to drop repeats */
    uint32_t stamp;
    uint16_t *chosen;               /* [SEQUENCES_MAX][2][experts] */
    struct activation *activation;  /* of prediction=activation, else NULL */
    struct prediction *predictions; /* [experts] */
    float *scratch;                 /* [experts] */
    double *next, *next_access;     /* belady: next access of each record; of each expert now */
    enum trace_kind gpu_kind;       /* of the predictions for a GPU; 0: none needed */
};

/* ---- inputs of an access -------------------------------------------------------------------- */

/* Sets order[] to the layer's accesses, the most popular first. */
static void rank_popularity(struct run *r)
{
    for (uint32_t i = 0; i < r->accesses; i++)
        r->order[i] = (struct prefill_item){r->access[i]->expert, r->access[i]->tokens};
    prefill_order_of(PREFILL_ORDER_POPULARITY)(r->order, r->accesses);
    for (uint32_t i = 0; i < r->accesses; i++)
        r->popularity[r->order[i].expert] = precision_popularity(i, r->accesses);
}

/* Decode: the layer's accesses are in order of rank. */
static void rank_weights(const struct run *r, float before[MODEL_TOP_K_MAX])
{
    float weight[MODEL_TOP_K_MAX];
    uint32_t k = r->accesses < MODEL_TOP_K_MAX ? r->accesses : MODEL_TOP_K_MAX;
    for (uint32_t i = 0; i < k; i++)
        weight[i] = r->access[i]->weight;
    precision_weights_before(weight, 1, k, before);
}

static float weight_before(const struct run *r, uint32_t at, const float before[MODEL_TOP_K_MAX])
{
    if (r->access[at]->prefill)
        return r->access[at]->before;
    return at < MODEL_TOP_K_MAX ? before[at] : 1;
}

static void access_all(struct run *r)
{
    float before[MODEL_TOP_K_MAX];
    rank_popularity(r);
    rank_weights(r, before);
    for (uint32_t i = 0; i < r->accesses; i++) {
        const struct trace_record *record = r->access[i];
        struct sim_access_result result;
        struct sim_access access = {.expert = record->expert,
                                    .tokens = record->tokens,
                                    .weight_before = weight_before(r, i, before),
                                    .popularity = r->popularity[record->expert]};
        if (r->next)
            r->next_access[record->layer * r->experts + record->expert] =
                r->next[record - r->t->records];
        sim_cache_access(r->cache, &access, &result);
    }
}

static bool same_position(const struct trace_record *a, const struct trace_record *b)
{
    return a->layer == b->layer && a->sequence == b->sequence && a->position == b->position;
}

static void take_logits(const struct run *r, const struct trace_record *x)
{
    struct residency_step at = {x->sequence, x->position, x->layer};
    uint8_t levels[TRACE_VALUES];
    memcpy(levels, x->values, TRACE_VALUES_HALF);
    memcpy(levels + TRACE_VALUES_HALF, x->more_values, TRACE_VALUES_HALF);
    sim_cache_logits(r->cache, &at, x->expert, levels, x->rank);
}

/* ---- predictions ---------------------------------------------------------------------------- */

/* Length of the list that the method would use: those above the 75th percentile, or predict_k; for
 * a chunk all that were recorded. */
static uint32_t list_length(const struct run *r)
{
    const struct prediction_method *p = sim_cache_prediction_method(r->cache);
    if (r->access[0]->prefill)
        return r->experts;
    if (!p->lists)
        return sim_cache_predict_k(r->cache);
    uint32_t above = r->experts - 1 - (uint32_t)(0.75 * (r->experts - 1));
    return above > r->top_k ? above : r->top_k;
}

/* Predictions of a kind for a later layer, from record `at` on: at most so many. */
static uint32_t take_recorded(struct run *r, enum trace_kind kind, uint64_t at, uint64_t end,
                              uint32_t layer, uint32_t target, uint32_t max)
{
    const struct trace_record *records = r->t->records;
    uint32_t n = 0;
    for (uint64_t i = at;
         i < end && records[i].kind != TRACE_EXPERT && records[i].kind != TRACE_TOKEN_END; i++)
        if (records[i].kind == kind && records[i].layer == target &&
            records[i].sequence == r->access[0]->sequence && records[i].from_layer == layer &&
            n < max && n < r->experts)
            r->predictions[n++] = (struct prediction){.expert = records[i].expert,
                                                      .probability = records[i].weight,
                                                      .weight_before = records[i].before};
    if (!r->access[0]->prefill && !(n > 1 && r->predictions[1].weight_before > 0))
        prediction_weights_before(r->predictions, n, r->top_k);
    return n;
}

/* Hints from recorded predictions for later layers. */
static void hint_recorded(struct run *r, uint64_t at, uint64_t end, uint32_t layer)
{
    uint32_t ahead = (uint32_t)r->cache->config.knobs.lookahead, max = list_length(r);
    for (uint32_t target = layer + 1; target <= layer + ahead && target < r->layers; target++) {
        uint32_t n = take_recorded(r, TRACE_PREDICTED, at, end, layer, target, max);
        if (n == 0 || !sim_cache_hint(r->cache, target, r->predictions, n))
            return;
    }
}

static void predict_for_gpu(struct run *r, const struct run_sequence *s, uint64_t at, uint64_t end,
                            uint32_t layer)
{
    if (r->gpu_kind == 0 || s->tokens != 1)
        return;
    uint32_t n = take_recorded(r, r->gpu_kind, at, end, layer, layer + 1, r->top_k);
    sim_cache_gpu_predicted(r->cache, r->predictions, n);
}

static bool has_kind(const struct trace *t, enum trace_kind kind)
{
    for (uint64_t i = 0; i < t->count; i++)
        if (t->records[i].kind == kind)
            return true;
    return false;
}

/* What the GPU of the recorded engine predicted; else what the predictor did, with the same
 * routers. */
static int choose_gpu_kind(struct run *r, const struct sim_gpu *gpu, struct error *error)
{
    if (gpu->places == 0 || gpu->policy != GPU_PREFETCH)
        return 0;
    r->gpu_kind = has_kind(r->t, TRACE_GPU_PREDICTED) ? TRACE_GPU_PREDICTED : TRACE_PREDICTED;
    if (has_kind(r->t, r->gpu_kind))
        return 0;
    return error_set(error, ERR_BAD_INPUT,
                     "the trace has no predictions, which the policy %s of a GPU needs: record it "
                     "with --gpu-policy prefetch, or with --deterministic on",
                     gpu_policy_name(GPU_PREFETCH));
}

static bool hint_layer(struct run *r, const struct run_sequence *s, uint32_t layer, uint32_t target)
{
    uint32_t two_before = s->chosen_count[1] > 0 && s->chosen_layer[1] + 1 == layer;
    struct prediction_input in = {.layer = target,
                                  .now = layer,
                                  .sequence = r->access[0]->sequence,
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
    return n > 0 && sim_cache_hint(r->cache, target, r->predictions, n);
}

static void hint_computed(struct run *r, const struct run_sequence *s, uint32_t layer)
{
    const struct prediction_method *p = sim_cache_prediction_method(r->cache);
    uint32_t last = layer + prediction_layers(p, r->cache->config.knobs.lookahead);
    if (r->access[0]->prefill && !prediction_for_chunks(p))
        return;
    for (uint32_t target = layer + 1; target <= last && target < r->layers; target++)
        if (!hint_layer(r, s, layer, target))
            return;
}

static void remember_chosen(struct run *r, struct run_sequence *s, uint32_t layer)
{
    uint16_t *older = s->chosen[1];
    s->chosen[1] = s->chosen[0];
    s->chosen_count[1] = s->chosen_count[0];
    s->chosen_layer[1] = s->chosen_layer[0];
    s->chosen[0] = older;
    s->chosen_count[0] = r->accesses;
    s->chosen_layer[0] = layer;
    for (uint32_t i = 0; i < r->accesses; i++)
        older[i] = r->access[i]->expert;
}

/* ---- passes --------------------------------------------------------------------------------- */

/* Of all its sequences. */
static void end_pass(struct run *r)
{
    sim_cache_token(r->cache);
    for (uint32_t i = 0; i < SEQUENCES_MAX; i++) {
        struct run_sequence *s = &r->sequence[i];
        s->in_pass = s->done = false;
        s->chosen_count[0] = s->chosen_count[1] = 0;
    }
    r->in_pass = 0;
}

/* The pass ends with the part of its last sequence. */
static void end_part(struct run *r, uint32_t place)
{
    if (place == SEQUENCE_NONE || !r->sequence[place].in_pass || r->sequence[place].done)
        return;
    r->sequence[place].done = true;
    if (--r->in_pass == 0)
        end_pass(r);
}

/* Tokens of the sequence in the pass that starts at record `at`, from its TOKEN_END. */
static uint32_t pass_tokens(const struct run *r, uint64_t at, uint64_t end)
{
    const struct trace_record *records = r->t->records;
    uint32_t max = records[at].tokens;
    for (uint64_t i = at; i < end; i++) {
        if (records[i].sequence != records[at].sequence)
            continue;
        if (records[i].kind == TRACE_SEQUENCE_END)
            return max;
        if (records[i].kind == TRACE_TOKEN_END)
            return records[i].tokens > max ? records[i].tokens : max;
        if (records[i].kind == TRACE_EXPERT && records[i].tokens > max)
            max = records[i].tokens;
    }
    return max;
}

/* The records of accesses from `at` on that are of one layer. An engine logs them expert by expert,
 * with a record for each sequence of the pass. Returns the record after them. */
static uint64_t block_end(const struct run *r, uint64_t at, uint64_t end)
{
    const struct trace_record *records = r->t->records;
    uint64_t after = at;
    for (uint64_t i = at; i < end; i++) {
        if (records[i].kind == TRACE_CHOICE)
            continue;
        if (records[i].kind != TRACE_EXPERT || records[i].layer != records[at].layer)
            break;
        after = i + 1;
    }
    return after;
}

/* Whether a record of the block before `at` is of the same sequence and position. */
static bool in_block_before(const struct run *r, uint64_t block, uint64_t at)
{
    const struct trace_record *records = r->t->records;
    for (uint64_t i = at; i > block; i--)
        if (records[i - 1].kind == TRACE_EXPERT && same_position(&records[i - 1], &records[at]))
            return true;
    return false;
}

/* Collects a sequence's accesses of one layer, from its first record of the block on, without
 * repeats. */
static void collect(struct run *r, uint64_t at, uint64_t end)
{
    const struct trace_record *records = r->t->records, *first = &records[at];
    r->accesses = 0;
    r->stamp++;
    for (; at < end; at++) {
        const struct trace_record *x = &records[at];
        if (x->kind != TRACE_EXPERT || !same_position(x, first) || r->seen[x->expert] == r->stamp)
            continue;
        r->seen[x->expert] = r->stamp;
        r->access[r->accesses++] = x;
        if (r->activation)
            activation_access(r->activation, x->sequence, x->layer, x->expert, x->tokens);
    }
}

static uint32_t place_of(struct run *r, uint32_t sequence)
{
    bool displaced;
    uint32_t place = sequences_find(&r->sequences, sequence);
    if (place != SEQUENCE_NONE)
        return place;
    place = sequences_start(&r->sequences, sequence, &displaced);
    if (displaced)
        end_part(r, place);
    return place;
}

/* The sequence of a layer's first access, which joins the running pass or begins one. */
static struct run_sequence *part_of(struct run *r, uint64_t at, uint64_t end)
{
    const struct trace_record *first = &r->t->records[at];
    struct run_sequence *s = &r->sequence[place_of(r, first->sequence)];
    if (s->in_pass && (s->done || s->position != first->position))
        end_pass(r);
    if (!s->in_pass) {
        r->in_pass++;
        s->in_pass = true;
        s->position = first->position;
        s->tokens = pass_tokens(r, at, end);
    }
    return s;
}

/* The accesses of a sequence in a layer: those from record `at` to `after`. */
static void one_layer(struct run *r, uint64_t at, uint64_t after, uint64_t end)
{
    const struct trace_record *first = &r->t->records[at];
    struct run_sequence *s = part_of(r, at, end);
    collect(r, at, after);
    struct sim_step step = {.sequence = first->sequence,
                            .position = s->position,
                            .layer = first->layer,
                            .tokens = s->tokens,
                            .prefill = first->prefill != 0};
    sim_cache_layer(r->cache, &step);
    access_all(r);
    remember_chosen(r, s, first->layer);
    if (sim_cache_prediction_method(r->cache)->source == PREDICT_LOGITS)
        hint_recorded(r, after, end, first->layer);
    else if (sim_cache_prediction_method(r->cache)->source != PREDICT_NOTHING)
        hint_computed(r, s, first->layer);
    predict_for_gpu(r, s, after, end, first->layer);
    (void)sim_cache_compute(r->cache);
}

/* The accesses of all sequences in a layer, one sequence after the other. */
static uint64_t one_block(struct run *r, uint64_t block, uint64_t end)
{
    uint64_t after = block_end(r, block, end);
    for (uint64_t at = block; at < after; at++)
        if (r->t->records[at].kind == TRACE_EXPERT && !in_block_before(r, block, at))
            one_layer(r, at, after, end);
    return after;
}

static void sequence_starts(struct run *r, uint32_t sequence)
{
    (void)place_of(r, sequence);
    sim_cache_sequence_starts(r->cache, sequence);
}

static void sequence_ends(struct run *r, uint32_t sequence)
{
    end_part(r, sequences_end(&r->sequences, sequence));
    sim_cache_sequence_ends(r->cache, sequence);
    if (r->activation)
        activation_sequence_ends(r->activation, sequence);
}

static void take(struct run *r, const struct trace_record *record)
{
    switch (record->kind) {
    case TRACE_SEQUENCE_START: sequence_starts(r, record->sequence); break;
    case TRACE_SEQUENCE_END: sequence_ends(r, record->sequence); break;
    case TRACE_TOKEN_END: end_part(r, sequences_find(&r->sequences, record->sequence)); break;
    case TRACE_LOGITS: take_logits(r, record); break;
    default: break;
    }
}

static void replay(struct run *r, uint64_t first, uint64_t measure)
{
    uint64_t end = r->t->count;
    bool measuring = measure <= first;
    for (uint64_t at = first; at < end;) {
        const struct trace_record *record = &r->t->records[at];
        if (!measuring && at >= measure && r->in_pass == 0) {
            sim_cache_reset_stats(r->cache);
            measuring = true;
        }
        if (record->kind == TRACE_EXPERT) {
            at = one_block(r, at, end);
            continue;
        }
        take(r, record);
        at++;
    }
    end_pass(r);
}

/* ---- belady --------------------------------------------------------------------------------- */

static double used_again(void *arg, uint32_t slot)
{
    const struct run *r = arg;
    return r->next_access[slot % (r->layers * r->experts)];
}

static bool find_next_accesses(struct run *r)
{
    size_t all = (size_t)r->layers * r->experts;
    r->next = malloc((r->t->count + 1) * sizeof *r->next);
    r->next_access = malloc(all * sizeof *r->next_access);
    if (!r->next || !r->next_access)
        return false;
    for (size_t i = 0; i < all; i++)
        r->next_access[i] = INFINITY;
    for (uint64_t i = r->t->count; i > 0; i--) {
        const struct trace_record *x = &r->t->records[i - 1];
        if (x->kind != TRACE_EXPERT)
            continue;
        double *access = &r->next_access[x->layer * r->experts + x->expert];
        r->next[i - 1] = *access;
        *access = (double)(i - 1);
    }
    return true;
}

/* ---- all of it ------------------------------------------------------------------------------ */

static bool run_init(struct run *r, const struct trace *t, bool activations, bool belady)
{
    const struct trace_header *h = &t->header;
    *r = (struct run){.t = t, .layers = h->layers, .experts = h->experts, .top_k = h->top_k};
    r->activation = activations ? activation_create(h->layers, h->experts) : NULL;
    r->access = calloc(h->experts, sizeof *r->access);
    r->order = calloc(h->experts, sizeof *r->order);
    r->popularity = calloc(h->experts, sizeof *r->popularity);
    r->seen = calloc(h->experts, sizeof *r->seen);
    r->chosen = calloc((size_t)SEQUENCES_MAX * 2 * h->experts, sizeof *r->chosen);
    for (uint32_t i = 0; r->chosen && i < SEQUENCES_MAX; i++)
        for (uint32_t k = 0; k < 2; k++)
            r->sequence[i].chosen[k] = r->chosen + (2 * (size_t)i + k) * h->experts;
    r->predictions = calloc(h->experts, sizeof *r->predictions);
    r->scratch = calloc(PREDICTION_SCRATCH(h->experts), sizeof *r->scratch);
    return (r->activation || !activations) && r->access && r->order && r->popularity && r->seen &&
           r->chosen && r->predictions && r->scratch && (!belady || find_next_accesses(r));
}

static void run_free(struct run *r)
{
    activation_destroy(r->activation);
    free(r->access);
    free(r->order);
    free(r->popularity);
    free(r->seen);
    free(r->chosen);
    free(r->predictions);
    free(r->scratch);
    free(r->next);
    free(r->next_access);
}

/* Its tokens. */
static uint32_t largest_pass(const struct trace *t)
{
    uint32_t most = 0;
    for (uint64_t i = 0; i < t->count; i++)
        if (t->records[i].kind == TRACE_TOKEN_END && t->records[i].tokens > most)
            most = t->records[i].tokens;
    return most;
}

int sim_run(const struct trace *t, uint64_t first, uint64_t measure,
            const struct sim_config *config, bool belady, struct sim_result *out,
            struct error *error)
{
    struct run r;
    struct sim_config k = *config;
    sl_assert(first <= t->count);
    k.layers = t->header.layers;
    k.dense_layers = t->header.dense_layers;
    k.experts = t->header.experts;
    k.top_k = t->header.top_k;
    k.precision_mask = t->header.precision_mask;
    memcpy(k.precision_bytes, t->header.precision_bytes, sizeof k.precision_bytes);
    if (!run_init(&r, t, k.knobs.prediction == PREDICTION_ACTIVATION, belady)) {
        run_free(&r);
        return error_set(error, ERR_NO_MEMORY, "out of memory (replay of the trace)");
    }
    if (choose_gpu_kind(&r, &k.gpu, error) != 0) {
        run_free(&r);
        return -1;
    }
    k.gpu.rows = largest_pass(t);
    if (belady) {
        k.score = used_again;
        k.score_arg = &r;
    }
    r.cache = sim_cache_create(&k, error);
    if (r.cache) {
        replay(&r, first, measure);
        for (int p = 0; p < SIM_PHASES; p++)
            out->phase[p] = *sim_cache_stats(r.cache, (enum sim_phase)p);
        out->ns = 0;
        for (int p = 0; p < SIM_PHASES; p++)
            out->ns += out->phase[p].stall_ns + out->phase[p].compute_ns;
    }
    int rv = r.cache ? 0 : -1;
    sim_cache_destroy(r.cache);
    run_free(&r);
    return rv;
}

double sim_token_ns(const struct sim_stats *f, bool spare_cpu)
{
    double loads = spare_cpu ? 0 : (double)(f->misses + f->prefetches) * SIM_LOAD_NS;
    sl_assert(f->tokens > 0);
    return (f->compute_ns + f->stall_ns + loads) / (double)f->tokens;
}

uint64_t sim_split(const struct trace *t, double share)
{
    uint64_t passes = 0, seen = 0;
    for (uint64_t i = 0; i < t->count; i++)
        passes += t->records[i].kind == TRACE_TOKEN_END;
    uint64_t wanted = (uint64_t)((double)passes * share);
    for (uint64_t i = 0; i < t->count && wanted > 0; i++) {
        seen += t->records[i].kind == TRACE_TOKEN_END;
        if (seen >= wanted)
            return i + 1;
    }
    return 0;
}

uint32_t sim_gpu_places(const struct trace_header *h, uint64_t bytes)
{
    uint64_t largest = 1, all = 0;
    for (uint32_t t = 0; t < PRECISION__COUNT; t++) {
        if ((h->precision_mask >> t & 1) == 0)
            continue;
        all += (uint64_t)(h->layers - h->dense_layers) * h->experts;
        largest = h->precision_bytes[t] > largest ? h->precision_bytes[t] : largest;
    }
    return (uint32_t)(bytes / largest < all ? bytes / largest : all);
}

uint64_t sim_all_bytes(const struct trace_header *h)
{
    for (uint32_t t = 0; t < PRECISION__COUNT; t++)
        if (h->precision_mask >> t & 1)
            return h->precision_bytes[t] * (h->layers - h->dense_layers) * h->experts;
    return 0;
}
