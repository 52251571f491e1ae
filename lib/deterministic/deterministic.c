/* SPDX-License-Identifier: Apache-2.0 */
/* Passes the core's callbacks to the simulated cache, and its outcomes to the owner of the
 * weights. */
#include "lib/deterministic/deterministic.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/assert.h"
#include "lib/base/bytes.h"
#include "lib/model/limits.h"
#include "lib/policy/prediction/activation.h"
#include "lib/policy/presets/planned.h"
#include "lib/router/row.h"
#include "lib/tensor/precision.h"
#include "lib/tensor/tensor_type.h"

#define DETERMINISTIC_MAGIC 0x4c4f434bu

struct deterministic {
    uint32_t magic;
    struct deterministic_config config;
    const struct model_hparams *h;
    struct sim_cache *cache;
    prefill_order_fn prefill_order;
    bool computing; /* a layer was routed and is not computed yet */
    bool entered;   /* the simulated cache is in the layer to be routed */
    struct resident_first_work work;
    struct sim_access_result *results; /* [experts] */
    struct sim_access *accesses;       /* [experts], by expert */
    struct prefill_item *order;        /* [experts] */
    struct prediction *predictions;    /* [experts] */
    float *logits;                     /* [experts] */
    struct router_row *router;         /* computes them */
    float *scratch;                    /* PREDICTION_SCRATCH */
    struct activation *activation;     /* of prediction=activation, else NULL */
    const float *inputs;               /* [rows][hidden]: the gate inputs ... */
    uint32_t input_layer;              /* ... of this layer; UINT32_MAX: none */
    uint8_t *levels;  /* [DECODE_ROWS_MAX][experts]: of the layer to be routed ... */
    uint32_t leveled; /* ... so many rows */
    /* Of each row that decodes, in their order: the experts of this layer and of the one before. */
    uint16_t chosen[DECODE_ROWS_MAX][2][MODEL_TOP_K_MAX];
    uint32_t chosen_layer, chosen_pass;
    uint32_t known_pass; /* the last one of which experts were known */
};

struct deterministic *deterministic_create(const struct deterministic_config *config,
                                           struct error *error)
{
    const struct model_hparams *h = &config->model->hparams;
    struct sim_cache *cache = sim_cache_create(&config->sim, error);
    if (!cache)
        return NULL;
    struct deterministic *l = calloc(1, sizeof *l);
    if (l) {
        *l = (struct deterministic){.magic = DETERMINISTIC_MAGIC,
                                    .config = *config,
                                    .h = h,
                                    .cache = cache,
                                    .prefill_order =
                                        prefill_order_of(config->sim.knobs.prefill_order),
                                    .input_layer = UINT32_MAX,
                                    .chosen_layer = UINT32_MAX};
        l->results = calloc(h->experts, sizeof *l->results);
        l->accesses = calloc(h->experts, sizeof *l->accesses);
        l->order = calloc(h->experts, sizeof *l->order);
        l->predictions = calloc(h->experts, sizeof *l->predictions);
        l->logits = calloc(h->experts, sizeof *l->logits);
        l->router = router_row_create(config->model, config->ops, config->dense, config->self);
        l->scratch = calloc(PREDICTION_SCRATCH(h->experts), sizeof *l->scratch);
        l->levels = calloc(h->experts, DECODE_ROWS_MAX);
    }
    bool worked = l && resident_first_work_create(&l->work, h->experts);
    bool activations = config->sim.knobs.prediction == PREDICTION_ACTIVATION;
    if (l && activations)
        l->activation = activation_create(h->layers, h->experts);
    if (!l || !worked || (activations && !l->activation) || !l->results || !l->accesses ||
        !l->order || !l->predictions || !l->logits || !l->router || !l->scratch || !l->levels) {
        error_set(error, ERR_NO_MEMORY, "out of memory (deterministic mode)");
        if (l)
            deterministic_destroy(l);
        else
            sim_cache_destroy(cache);
        return NULL;
    }
    return l;
}

void deterministic_destroy(struct deterministic *l)
{
    if (!l)
        return;
    OBJ_CHECK(l, DETERMINISTIC_MAGIC);
    sim_cache_destroy(l->cache);
    activation_destroy(l->activation);
    free(l->results);
    free(l->accesses);
    free(l->order);
    free(l->predictions);
    free(l->logits);
    router_row_destroy(l->router);
    free(l->scratch);
    free(l->levels);
    resident_first_work_free(&l->work);
    l->magic = 0;
    free(l);
}

/* ---- accesses -------------------------------------------------------------------------------- */

static void collect(struct deterministic *l, const struct expert_step *step,
                    const struct route *routes)
{
    uint32_t k = l->h->experts_used;
    memset(l->accesses, 0, l->h->experts * sizeof *l->accesses);
    for (uint32_t r = 0; r < step->rows; r++) {
        const struct route *row = routes + (size_t)r * k;
        float before[MODEL_TOP_K_MAX];
        precision_weights_before(&row->weight, ROUTE_STRIDE, k, before);
        for (uint32_t i = 0; i < k; i++) {
            struct sim_access *access = &l->accesses[row[i].expert];
            if (access->tokens == 0 || before[i] < access->weight_before)
                access->weight_before = before[i];
            access->expert = row[i].expert;
            access->tokens++;
        }
    }
}

static uint32_t rank_popularity(struct deterministic *l)
{
    uint32_t n = 0;
    for (uint32_t e = 0; e < l->h->experts; e++)
        if (l->accesses[e].tokens > 0)
            l->order[n++] = (struct prefill_item){.expert = e, .tokens = l->accesses[e].tokens};
    prefill_order_of(PREFILL_ORDER_POPULARITY)(l->order, n);
    for (uint32_t i = 0; i < n; i++)
        l->accesses[l->order[i].expert].popularity = precision_popularity(i, n);
    return n;
}

static void access_expert(struct deterministic *l, uint32_t expert)
{
    sim_cache_access(l->cache, &l->accesses[expert], &l->results[expert]);
}

/* In the order of the core: resident experts first, by number, the rest by policy. */
static void access_chunk(struct deterministic *l, uint32_t layer)
{
    uint32_t missing = 0;
    rank_popularity(l);
    for (uint32_t e = 0; e < l->h->experts; e++)
        if (l->accesses[e].tokens > 0 && !sim_cache_resident(l->cache, layer, e))
            l->order[missing++] =
                (struct prefill_item){.expert = e, .tokens = l->accesses[e].tokens};
    l->prefill_order(l->order, missing);
    for (uint32_t e = 0; e < l->h->experts; e++)
        if (l->accesses[e].tokens > 0 && sim_cache_resident(l->cache, layer, e))
            access_expert(l, e);
    for (uint32_t i = 0; i < missing; i++)
        access_expert(l, l->order[i].expert);
}

/* By rank, and among the same rank in the order of the rows: each expert once. */
static void access_by_rank(struct deterministic *l, uint32_t rows, const struct route *routes)
{
    bool accessed[MODEL_EXPERTS_MAX] = {false};
    for (uint32_t rank = 0; rank < l->h->experts_used; rank++)
        for (uint32_t r = 0; r < rows; r++) {
            uint32_t expert = routes[(size_t)r * l->h->experts_used + rank].expert;
            if (!accessed[expert])
                access_expert(l, expert);
            accessed[expert] = true;
        }
}

/* ---- predictions ----------------------------------------------------------------------------- */

static bool hint(struct deterministic *l, struct deterministic_prediction made, uint32_t n)
{
    for (made.rank = 0; l->config.predicted && made.rank < n; made.rank++)
        l->config.predicted(l->config.self, &made, &l->predictions[made.rank]);
    return sim_cache_hint(l->cache, 0, made.layer, l->predictions, n);
}

/* Row `row` decodes; it is number `number` of those that do. follows: chosen[number][1] is of the
 * directly preceding layer. */
static void predict_row(struct deterministic *l, const struct expert_step *step, uint32_t row,
                        uint32_t number, bool follows)
{
    const struct prediction_method *p = sim_cache_prediction_method(l->cache);
    struct deterministic_prediction made = {
        .row = &step->row[row], .rows = 1, .from_layer = step->layer};
    uint32_t ahead = prediction_layers(p, l->config.sim.knobs.lookahead);
    struct model_router rule;
    uint32_t target = step->layer;
    for (uint32_t i = 0; i < ahead && p->source != PREDICT_NOTHING; i++) {
        target = hparams_next_experts(l->h, target + 1);
        if (target == l->h->layers)
            return;
        if (p->source == PREDICT_LOGITS && l->input_layer != step->layer)
            return;
        bool known = p->source != PREDICT_LOGITS ||
                     router_row_logits(l->router, target, l->inputs + (size_t)row * l->h->hidden,
                                       step->row[row].token, l->logits, &rule);
        sl_assert(known);
        struct prediction_input in = {.layer = target,
                                      .now = step->layer,
                                      .sequence = step->row[row].sequence,
                                      .position = step->row[row].position,
                                      .activation = l->activation,
                                      .experts = l->h->experts,
                                      .top_k = l->h->experts_used,
                                      .want = sim_cache_predict_k(l->cache),
                                      .logits = l->logits,
                                      .router = p->source == PREDICT_LOGITS ? &rule : NULL,
                                      .chosen1 = l->chosen[number][0],
                                      .chosen1_count = l->h->experts_used,
                                      .chosen2 = follows ? l->chosen[number][1] : NULL,
                                      .chosen2_count = follows ? l->h->experts_used : 0,
                                      .tables = &l->config.sim.plan.tables,
                                      .scratch = l->scratch};
        uint32_t n = prediction_run(p, &in, l->predictions);
        made.layer = target;
        if (n == 0 || !hint(l, made, n))
            return;
    }
}

static void note_chosen(struct deterministic *l, uint32_t number, const struct route *routes)
{
    memcpy(l->chosen[number][1], l->chosen[number][0], sizeof l->chosen[number][1]);
    for (uint32_t i = 0; i < l->h->experts_used; i++)
        l->chosen[number][0][i] = (uint16_t)routes[i].expert;
}

/* Of every row that decodes. */
static void predict_rows(struct deterministic *l, const struct expert_step *step,
                         const struct route *routes)
{
    uint32_t before = hparams_experts_before(l->h, step->layer);
    bool follows =
        before < l->h->layers && l->chosen_layer == before && l->chosen_pass == step->pass;
    for (uint32_t r = 0, number = 0; r < step->rows; r++) {
        if (step->row[r].prefill)
            continue;
        note_chosen(l, number, routes + (size_t)r * l->h->experts_used);
        predict_row(l, step, r, number++, follows);
    }
    l->chosen_layer = step->layer;
    l->chosen_pass = step->pass;
}

/* ---- callbacks of the core ------------------------------------------------------------------- */

/* Loads continue while a layer is computed: it ends when the next starts. */
static void finish_layer(struct deterministic *l)
{
    if (l->computing)
        (void)sim_cache_compute(l->cache);
    l->computing = false;
}

static struct sim_step sim_step_of(const struct expert_step *step)
{
    return (struct sim_step){.sequence = step->row->sequence,
                             .position = step->row->position,
                             .layer = step->layer,
                             .tokens = step->rows,
                             .prefill = step->prefill};
}

void deterministic_known(struct deterministic *l, const struct expert_step *step, uint32_t layer,
                         const uint32_t *tokens)
{
    OBJ_CHECK(l, DETERMINISTIC_MAGIC);
    const struct sim_step now = sim_step_of(step);
    finish_layer(l);
    if (l->known_pass != step->pass)
        sim_cache_pass(l->cache, &now, 1);
    l->known_pass = step->pass;
    uint32_t n = prediction_known(tokens, l->h->experts, l->predictions);
    sim_cache_known(l->cache, 0, layer, l->predictions, n);
}

void deterministic_layer_starts(struct deterministic *l, const struct expert_step *step)
{
    OBJ_CHECK(l, DETERMINISTIC_MAGIC);
    (void)step;
    finish_layer(l);
}

void deterministic_gate_input(struct deterministic *l, const struct expert_step *step,
                              const float *x, uint32_t n)
{
    sl_assert(n == l->h->hidden);
    l->inputs = x;
    l->input_layer = step->layer;
}

void deterministic_logits(struct deterministic *l, const uint8_t *levels)
{
    sl_assert(l->leveled < DECODE_ROWS_MAX);
    memcpy(l->levels + (size_t)l->leveled++ * l->h->experts, levels, l->h->experts);
}

/* Accesses of each row, for the method that matches sequences. */
static void note_activations(struct deterministic *l, const struct expert_step *step,
                             const struct route *routes)
{
    uint32_t k = l->h->experts_used;
    for (uint32_t r = 0; r < step->rows; r++)
        for (uint32_t rank = 0; rank < k; rank++)
            activation_access(l->activation, step->row[r].sequence, step->layer,
                              routes[(size_t)r * k + rank].expert, 1);
}

/* The rows that decode, in order, have levels. */
static void give_levels(struct deterministic *l, const struct expert_step *step)
{
    uint32_t given = 0;
    for (uint32_t r = 0; r < step->rows && given < l->leveled; r++) {
        const struct expert_row *row = &step->row[r];
        struct residency_step place = {row->sequence, row->position, step->layer};
        if (!row->prefill)
            sim_cache_logits(l->cache, &place, 0, l->levels + (size_t)given++ * l->h->experts,
                             l->h->experts);
    }
    l->leveled = 0;
}

/* Time has passed until here: what was read meanwhile is resident. Once for each layer. */
static void enter_layer(struct deterministic *l, const struct expert_step *step)
{
    const struct sim_step now = sim_step_of(step);
    if (!l->entered) {
        give_levels(l, step);
        sim_cache_layer(l->cache, &now, 1);
    }
    l->entered = true;
}

static bool serves(void *arg, uint32_t expert, float weight_before)
{
    const struct deterministic *l = arg;
    return sim_cache_serves(l->cache, expert, weight_before);
}

bool deterministic_serves(struct deterministic *l, const struct expert_step *step, uint32_t expert,
                          float weight_before)
{
    OBJ_CHECK(l, DETERMINISTIC_MAGIC);
    enter_layer(l, step);
    return sim_cache_serves(l->cache, expert, weight_before);
}

uint32_t deterministic_reroute(struct deterministic *l, const struct expert_step *step,
                               const float *logits, const struct model_router *rule,
                               struct route *routes)
{
    OBJ_CHECK(l, DETERMINISTIC_MAGIC);
    const struct resident_first how = knobs_resident_first(&l->config.sim.knobs);
    uint32_t replaced = 0;
    enter_layer(l, step);
    for (uint32_t r = 0; r < step->rows; r++)
        if (!step->row[r].prefill)
            replaced += resident_first_row(&how, rule, logits + (size_t)r * l->h->experts, serves,
                                           l, &l->work, routes + (size_t)r * l->h->experts_used);
    sim_cache_rerouted(l->cache, replaced);
    return replaced;
}

void deterministic_routed(struct deterministic *l, const struct expert_step *step,
                          const struct route *routes)
{
    OBJ_CHECK(l, DETERMINISTIC_MAGIC);
    enter_layer(l, step);
    l->entered = false;
    collect(l, step, routes);
    if (l->activation)
        note_activations(l, step, routes);
    if (step->prefill)
        access_chunk(l, step->layer);
    else
        access_by_rank(l, step->rows, routes);
    l->computing = true;
    if (step->decode)
        predict_rows(l, step, routes);
}

void deterministic_next_counts(struct deterministic *l, const struct expert_step *step,
                               const float *counts, uint32_t experts)
{
    struct prediction_chunk in = {.tokens = counts,
                                  .weight_before = counts + experts,
                                  .experts = experts,
                                  .whole = l->config.sim.knobs.prefill_prediction ==
                                           PREFILL_PREDICTION_LAYER};
    uint32_t n = prediction_chunk_run(sim_cache_prediction_method(l->cache), &in, l->predictions);
    const struct deterministic_prediction made = {.row = step->row,
                                                  .rows = step->rows,
                                                  .from_layer = step->layer,
                                                  .layer =
                                                      hparams_next_experts(l->h, step->layer + 1)};
    if (n > 0)
        (void)hint(l, made, n);
}

void deterministic_sequence_starts(struct deterministic *l, uint32_t sequence)
{
    OBJ_CHECK(l, DETERMINISTIC_MAGIC);
    sim_cache_sequence_starts(l->cache, sequence);
}

void deterministic_sequence_ends(struct deterministic *l, uint32_t sequence)
{
    OBJ_CHECK(l, DETERMINISTIC_MAGIC);
    finish_layer(l);
    sim_cache_sequence_ends(l->cache, sequence);
    if (l->activation)
        activation_sequence_ends(l->activation, sequence);
}

void deterministic_token_end(struct deterministic *l)
{
    OBJ_CHECK(l, DETERMINISTIC_MAGIC);
    finish_layer(l);
    sim_cache_token(l->cache);
}

const struct sim_access_result *deterministic_result(const struct deterministic *l, uint32_t expert)
{
    OBJ_CHECK(l, DETERMINISTIC_MAGIC);
    sl_assert(expert < l->h->experts && l->accesses[expert].tokens > 0);
    return &l->results[expert];
}

bool deterministic_resident(const struct deterministic *l, uint32_t layer, uint32_t expert)
{
    return sim_cache_resident(l->cache, layer, expert);
}

struct sim_cache *deterministic_cache(struct deterministic *l)
{
    return l->cache;
}

/* ---- parameters of the simulation ------------------------------------------------------------ */

static double known(const struct plan *plan, enum plan_scalar scalar, double otherwise)
{
    return plan && plan_knows(plan, scalar) && plan->scalar[scalar] > 0 ? plan->scalar[scalar]
                                                                        : otherwise;
}

void deterministic_model(const struct model_index *m, const struct knobs *knobs,
                         const struct plan *plan, uint64_t capacity, struct sim_config *c)
{
    const struct model_hparams *h = &m->hparams;
    *c = (struct sim_config){.knobs = *knobs,
                             .layers = h->layers,
                             .expert_layers = hparams_layers_with_experts(h),
                             .experts = h->experts,
                             .top_k = h->experts_used,
                             .precision_mask = m->precision_mask,
                             .capacity = capacity};
    for (int t = 0; t < PRECISION__COUNT; t++)
        c->precision_bytes[t] =
            m->precision_entries[t] ? m->precision_bytes[t] / m->precision_entries[t] : 0;
    double expert_ns = (double)c->precision_bytes[__builtin_ctz(m->precision_mask)] * 1e9 /
                       SIM_DEFAULT_WEIGHTS_PER_S;
    double layer_ns = expert_ns * h->experts_used;
    c->storage.bytes_per_s = known(plan, PLAN_drive_bytes_per_s, SIM_DEFAULT_BYTES_PER_S);
    c->storage.latency_ns = SIM_DEFAULT_LATENCY_NS;
    c->storage.depth = SIM_DEFAULT_DEPTH;
    c->compute.layer_ns = known(plan, PLAN_layer_attention_ns, layer_ns / 2) +
                          known(plan, PLAN_layer_router_ns, layer_ns / 2);
    c->compute.expert_ns = known(plan, PLAN_layer_experts_ns, layer_ns) / h->experts_used;
    c->compute.predict_ns = SIM_DEFAULT_PREDICT_NS;
    c->compute.batch = SIM_DEFAULT_BATCH;
    if (!plan)
        return;
    c->plan.tables = (struct path_tables){
        .layers = h->layers,
        .experts = h->experts,
        .prev1 = plan_prev1(plan),
        .pair_first = plan_pair_first(plan),
        .pair_cells = (const struct path_cell *)(const void *)plan_pair_cells(plan),
        .frequency = plan_frequency(plan)};
    c->plan.precision = planned_widths(plan, knobs);
}
