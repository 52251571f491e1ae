/* SPDX-License-Identifier: Apache-2.0 */
/* Replay of whole traces. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/sim/internal.h"

#include "lib/model/limits.h"
#include "lib/policy/prediction/activation.h"
#include "lib/tensor/precision.h"

struct run {
    const struct trace *t;
    struct sim_cache *cache;
    uint32_t layers, experts, top_k;
    bool in_pass;
    uint32_t sequence, position, tokens; /* of the pass */
    const struct trace_record **access;  /* [experts]: of the running layer */
    uint32_t accesses;
    struct prefill_item *order; /* [experts]: the layer's accesses by popularity */
    float *popularity;          /* [experts] */
    uint32_t *seen; /* [experts]: stamp of the last layer that accessed it, to drop repeats */
    uint32_t stamp;
    uint16_t *chosen[2]; /* [experts]: of the layers one and two before */
    uint32_t chosen_count[2], chosen_layer[2];
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

/* Passes the logits that precede the first access of the layer, at record `at`. */
static void logits_before(struct run *r, uint64_t at)
{
    const struct trace_record *records = r->t->records, *access = &records[at];
    uint64_t from = at;
    while (from > 0 && records[from - 1].kind == TRACE_LOGITS &&
           same_position(&records[from - 1], access))
        from--;
    for (; from < at; from++) {
        uint8_t levels[TRACE_VALUES];
        memcpy(levels, records[from].values, TRACE_VALUES_HALF);
        memcpy(levels + TRACE_VALUES_HALF, records[from].more_values, TRACE_VALUES_HALF);
        sim_cache_logits(r->cache, records[from].expert, levels, records[from].rank);
    }
}

/* ---- predictions ---------------------------------------------------------------------------- */

/* Length of the list that the method would use: those above the 75th percentile, or predict_k; for a
 * chunk all that were recorded. */
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
            records[i].from_layer == layer && n < max && n < r->experts)
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

static void predict_for_gpu(struct run *r, uint64_t at, uint64_t end, uint32_t layer)
{
    if (r->gpu_kind == 0 || r->tokens != 1)
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

/* What the GPU of the recorded engine predicted; else what the predictor did, with the same routers. */
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

static bool hint_layer(struct run *r, uint32_t layer, uint32_t target)
{
    uint32_t two_before = r->chosen_count[1] > 0 && r->chosen_layer[1] + 1 == layer;
    struct prediction_input in = {.layer = target,
                                  .now = layer,
                                  .position = r->position,
                                  .activation = r->activation,
                                  .experts = r->experts,
                                  .top_k = r->top_k,
                                  .want = sim_cache_predict_k(r->cache),
                                  .chosen1 = r->chosen[0],
                                  .chosen1_count = r->chosen_count[0],
                                  .chosen2 = r->chosen[1],
                                  .chosen2_count = two_before ? r->chosen_count[1] : 0,
                                  .tables = &r->cache->config.plan.tables,
                                  .scratch = r->scratch};
    uint32_t n = prediction_run(sim_cache_prediction_method(r->cache), &in, r->predictions);
    return n > 0 && sim_cache_hint(r->cache, target, r->predictions, n);
}

static void hint_computed(struct run *r, uint32_t layer)
{
    const struct prediction_method *p = sim_cache_prediction_method(r->cache);
    uint32_t last = layer + prediction_layers(p, r->cache->config.knobs.lookahead);
    if (r->access[0]->prefill && !prediction_for_chunks(p))
        return;
    for (uint32_t target = layer + 1; target <= last && target < r->layers; target++)
        if (!hint_layer(r, layer, target))
            return;
}

static void remember_chosen(struct run *r, uint32_t layer)
{
    uint16_t *older = r->chosen[1];
    r->chosen[1] = r->chosen[0];
    r->chosen_count[1] = r->chosen_count[0];
    r->chosen_layer[1] = r->chosen_layer[0];
    r->chosen[0] = older;
    r->chosen_count[0] = r->accesses;
    r->chosen_layer[0] = layer;
    for (uint32_t i = 0; i < r->accesses; i++)
        older[i] = r->access[i]->expert;
}

/* ---- records -------------------------------------------------------------------------------- */

static void end_pass(struct run *r)
{
    if (r->in_pass)
        sim_cache_token(r->cache);
    r->in_pass = false;
    r->chosen_count[0] = r->chosen_count[1] = 0;
}

/* Tokens of the pass that starts at record `at`, from its TOKEN_END. */
static uint32_t pass_tokens(const struct run *r, uint64_t at, uint64_t end)
{
    const struct trace_record *records = r->t->records;
    uint32_t max = records[at].tokens;
    for (uint64_t i = at; i < end && records[i].kind != TRACE_SEQUENCE_END; i++) {
        if (records[i].kind == TRACE_TOKEN_END)
            return records[i].tokens > max ? records[i].tokens : max;
        if (records[i].kind == TRACE_EXPERT && records[i].tokens > max)
            max = records[i].tokens;
    }
    return max;
}

/* Collects the accesses of one layer without repeats. Returns the record after them. */
static uint64_t collect(struct run *r, uint64_t at, uint64_t end)
{
    const struct trace_record *records = r->t->records, *first = &records[at];
    r->accesses = 0;
    r->stamp++;
    for (; at < end; at++) {
        const struct trace_record *x = &records[at];
        if (x->kind == TRACE_CHOICE)
            continue;
        if (x->kind != TRACE_EXPERT || !same_position(x, first))
            break;
        if (r->seen[x->expert] == r->stamp)
            continue;
        r->seen[x->expert] = r->stamp;
        r->access[r->accesses++] = x;
        if (r->activation)
            activation_access(r->activation, x->sequence, x->layer, x->expert, x->tokens);
    }
    return at;
}

static uint64_t one_layer(struct run *r, uint64_t at, uint64_t end)
{
    const struct trace_record *first = &r->t->records[at];
    if (r->in_pass && (r->sequence != first->sequence || r->position != first->position))
        end_pass(r);
    if (!r->in_pass) {
        r->in_pass = true;
        r->sequence = first->sequence;
        r->position = first->position;
        r->tokens = pass_tokens(r, at, end);
    }
    uint64_t after = collect(r, at, end);
    struct sim_step step = {.sequence = r->sequence,
                            .position = r->position,
                            .layer = first->layer,
                            .tokens = r->tokens,
                            .prefill = first->prefill != 0};
    sim_cache_layer(r->cache, &step);
    logits_before(r, at);
    access_all(r);
    remember_chosen(r, first->layer);
    if (sim_cache_prediction_method(r->cache)->source == PREDICT_LOGITS)
        hint_recorded(r, after, end, first->layer);
    else if (sim_cache_prediction_method(r->cache)->source != PREDICT_NOTHING)
        hint_computed(r, first->layer);
    predict_for_gpu(r, after, end, first->layer);
    (void)sim_cache_compute(r->cache);
    return after;
}

static void replay(struct run *r, uint64_t first, uint64_t measure)
{
    uint64_t end = r->t->count;
    bool measuring = measure <= first;
    for (uint64_t at = first; at < end;) {
        const struct trace_record *record = &r->t->records[at];
        if (!measuring && at >= measure && !r->in_pass) {
            sim_cache_reset_stats(r->cache);
            measuring = true;
        }
        if (record->kind == TRACE_EXPERT) {
            at = one_layer(r, at, end);
            continue;
        }
        if (record->kind != TRACE_PREDICTED && record->kind != TRACE_GPU_PREDICTED &&
            record->kind != TRACE_CHOICE && record->kind != TRACE_LOGITS)
            end_pass(r);
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
    r->chosen[0] = calloc(h->experts, sizeof *r->chosen[0]);
    r->chosen[1] = calloc(h->experts, sizeof *r->chosen[1]);
    r->predictions = calloc(h->experts, sizeof *r->predictions);
    r->scratch = calloc(PREDICTION_SCRATCH(h->experts), sizeof *r->scratch);
    return (r->activation || !activations) && r->access && r->order && r->popularity && r->seen &&
           r->chosen[0] && r->chosen[1] && r->predictions && r->scratch &&
           (!belady || find_next_accesses(r));
}

static void run_free(struct run *r)
{
    activation_destroy(r->activation);
    free(r->access);
    free(r->order);
    free(r->popularity);
    free(r->seen);
    free(r->chosen[0]);
    free(r->chosen[1]);
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
