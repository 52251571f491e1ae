/* SPDX-License-Identifier: Apache-2.0 */
/* Predictions, limits and precision against their definitions. */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "lib/policy/access/precision.h"
#include "lib/policy/access/prefill.h"
#include "lib/policy/access/routing.h"
#include "lib/policy/prediction/prediction.h"
#include "lib/policy/prediction/prefetch.h"
#include "lib/policy/residency/residency.h"
#include "lib/tensor/precision.h"

#define EXPERTS 32u

static uint64_t seed;

static uint32_t below(uint32_t n)
{
    seed = seed * 6364136223846793005ull + 1442695040888963407ull;
    return (uint32_t)((seed >> 33) % n);
}

/* ---- predictions ---- */

static int descending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? 1 : x > y ? -1 : 0;
}

/* The 75th percentile by definition: rank 0.75 (n - 1) of the ascending values, interpolated. */
static double percentile75(const double *weights, uint32_t n)
{
    double sorted[EXPERTS];
    memcpy(sorted, weights, n * sizeof *sorted);
    qsort(sorted, n, sizeof *sorted, descending);
    double at = 0.75 * (n - 1);
    uint32_t low = (uint32_t)floor(at), high = (uint32_t)ceil(at);
    double a = sorted[n - 1 - low], b = sorted[n - 1 - high];
    return a + (at - low) * (b - a);
}

START_TEST(fate_names_what_is_above_the_percentile)
{
    const struct prediction_method *p = prediction_method_of(PREDICTION_FATE);
    ck_assert(p->lists && p->source == PREDICT_LOGITS);
    seed = 3;
    for (uint32_t round = 0; round < 2000; round++) {
        uint32_t n = 2 + below(EXPERTS - 1), k = 1 + below(n < 4 ? n : 4);
        float logits[EXPERTS];
        double weight[EXPERTS], sum = 0;
        struct prediction predictions[EXPERTS];
        for (uint32_t i = 0; i < n; i++) {
            logits[i] = (float)below(100000) / 20000;
            sum += weight[i] = exp((double)logits[i]);
        }
        for (uint32_t i = 0; i < n; i++)
            weight[i] /= sum;
        double line = percentile75(weight, n);
        uint32_t above = 0;
        for (uint32_t i = 0; i < n; i++)
            above += weight[i] > line * (1 + 1e-6);
        uint32_t want = above > k ? above : k;
        struct prediction_input in = {.experts = n, .top_k = k, .want = n, .logits = logits};
        uint32_t got = prediction_run(p, &in, predictions);
        ck_assert_uint_eq(got, want);
        for (uint32_t i = 0; i < got; i++) {
            ck_assert_double_eq_tol(predictions[i].probability, weight[predictions[i].expert],
                                    1e-5);
            if (i > 0)
                ck_assert_float_ge(predictions[i - 1].probability, predictions[i].probability);
            if (i < above)
                ck_assert(weight[predictions[i].expert] > line);
        }
        in.want = 1;
        ck_assert_uint_eq(prediction_run(p, &in, predictions), 1);
        in.logits = NULL;
        ck_assert_uint_eq(prediction_run(p, &in, predictions), 0);
    }
}
END_TEST

struct tables {
    uint16_t prev1[3][8][8];
    uint32_t first[3 * 64 + 1];
    struct path_cell cells[3 * 512];
    uint32_t pair[3][8][8][8];
    float frequency[3][8];
};

static void random_tables(struct tables *t, uint32_t sparse)
{
    uint32_t n = 0;
    for (uint32_t l = 0; l < 3; l++)
        for (uint32_t a = 0; a < 8; a++) {
            t->frequency[l][a] = (float)below(100) / 100;
            for (uint32_t b = 0; b < 8; b++) {
                t->prev1[l][a][b] = (uint16_t)(below(4) ? below(50) : 0);
                t->first[(l * 8 + a) * 8 + b] = n;
                for (uint32_t c = 0; c < 8; c++) {
                    t->pair[l][a][b][c] = l > 1 && below(sparse) == 0 ? 1 + below(9) : 0;
                    if (t->pair[l][a][b][c])
                        t->cells[n++] =
                            (struct path_cell){(uint16_t)c, (uint16_t)t->pair[l][a][b][c]};
                }
            }
        }
    t->first[3 * 64] = n;
}

/* The definition: sums over the chosen experts; without data, the next coarser statistics. */
static void score_of(const struct tables *t, enum prediction_kind kind, uint32_t layer,
                     const uint16_t *one, const uint16_t *two, double score[8])
{
    double paths = 0, pairs = 0, path[8] = {0}, pair[8] = {0};
    for (uint32_t c = 0; c < 8; c++)
        for (uint32_t i = 0; i < 2; i++) {
            paths += layer > 0 ? t->prev1[layer][one[i]][c] : 0;
            path[c] += layer > 0 ? t->prev1[layer][one[i]][c] : 0;
            for (uint32_t j = 0; j < 2; j++) {
                pairs += t->pair[layer][two[j]][one[i]][c];
                pair[c] += t->pair[layer][two[j]][one[i]][c];
            }
        }
    for (uint32_t c = 0; c < 8; c++) {
        if (kind == PREDICTION_FREQUENCY)
            score[c] = (double)t->frequency[layer][c];
        else if (kind == PREDICTION_PATH1)
            score[c] = path[c];
        else
            score[c] = pairs > 0 ? pair[c] : paths > 0 ? path[c] : (double)t->frequency[layer][c];
    }
}

START_TEST(counted_predictions)
{
    static const enum prediction_kind kinds[] = {PREDICTION_PATH1, PREDICTION_PATH2,
                                                 PREDICTION_FREQUENCY};
    static struct tables t;
    const struct prediction_method *p = prediction_method_of(kinds[_i]);
    seed = 7;
    for (uint32_t round = 0; round < 3000; round++) {
        struct prediction predictions[8];
        float scratch[8];
        uint16_t one[2] = {(uint16_t)below(8), (uint16_t)below(8)};
        uint16_t two[2] = {(uint16_t)below(8), (uint16_t)below(8)};
        double score[8], sum = 0;
        random_tables(&t, round % 2 ? 3 : 400);
        if (round % 5 == 0)
            memset(t.prev1, 0, sizeof t.prev1);
        struct path_tables tables = {3, 8, &t.prev1[0][0][0], t.first, t.cells, &t.frequency[0][0]};
        struct prediction_input in = {.layer = round % 3,
                                      .experts = 8,
                                      .top_k = 2,
                                      .want = 1 + below(8),
                                      .chosen1 = one,
                                      .chosen1_count = 2,
                                      .chosen2 = two,
                                      .chosen2_count = 2,
                                      .tables = &tables,
                                      .scratch = scratch};
        score_of(&t, kinds[_i], in.layer, one, two, score);
        uint32_t n = prediction_run(p, &in, predictions), positive = 0;
        for (uint32_t c = 0; c < 8; c++) {
            sum += score[c];
            positive += score[c] > 0;
        }
        ck_assert_uint_eq(n, positive < in.want ? positive : in.want);
        bool taken[8] = {false};
        for (uint32_t i = 0; i < n; i++) { /* each is the best that is left, lower index first */
            uint32_t best = 8;
            for (uint32_t c = 0; c < 8; c++)
                if (!taken[c] && (best == 8 || score[c] > score[best]))
                    best = c;
            ck_assert_uint_eq(predictions[i].expert, best);
            ck_assert_double_eq_tol(predictions[i].probability, fmin(1, 2 * score[best] / sum),
                                    1e-5);
            taken[best] = true;
        }
        in.tables = NULL;
        ck_assert_uint_eq(prediction_run(p, &in, predictions), 0);
    }
}
END_TEST

START_TEST(names_and_layers)
{
    struct prediction predictions[8];
    struct prediction_input in = {.experts = 8, .top_k = 2, .want = 8};
    ck_assert_uint_eq(prediction_run(prediction_method_of(PREDICTION_LAYER), &in, predictions), 8);
    for (uint32_t i = 0; i < 8; i++)
        ck_assert_uint_eq(predictions[i].expert, i);
    ck_assert_uint_eq(prediction_run(prediction_method_of(PREDICTION_NONE), &in, predictions), 0);
}
END_TEST

/* Paths over two layers name every expert that they know (EdgeMoE §III-C1), not only top-k. */
START_TEST(list_lengths)
{
    static const struct {
        enum prediction_kind kind;
        uint32_t length;
    } t[] = {{PREDICTION_PATH2, 32},     {PREDICTION_FATE, 32},     {PREDICTION_LAYER, 32},
             {PREDICTION_NEXT_LAYER, 1}, {PREDICTION_FREQUENCY, 1}, {PREDICTION_PATH1, 1}};
    for (uint32_t i = 0; i < ARRAY_LEN(t); i++) {
        const struct prediction_method *p = prediction_method_of(t[i].kind);
        ck_assert_uint_eq(prediction_want(p, 0, 1, 32), t[i].length);
        ck_assert_uint_eq(prediction_want(p, 3, 1, 32), 3); /* predict_k */
        ck_assert_uint_eq(prediction_want(p, 40, 1, 32), 32);
    }
}
END_TEST

/* The access probability is top_k times the share of the router's softmax, at most 1. */
START_TEST(access_probabilities)
{
    static const struct {
        enum prediction_kind prediction;
        float probability, expected;
    } t[] = {{PREDICTION_NEXT_LAYER, 0.05f, 0.4f},
             {PREDICTION_NEXT_LAYER, 0.2f, 1},
             {PREDICTION_FATE, 0.01f, 0.08f},
             {PREDICTION_PATH1, 0.05f, 0.05f},
             {PREDICTION_FREQUENCY, 0.5f, 0.5f},
             {PREDICTION_LAYER, 1, 1},
             {PREDICTION_PATH2, 300, 1}}; /* tokens of a chunk */
    for (uint32_t i = 0; i < ARRAY_LEN(t); i++)
        ck_assert_float_eq_tol(prediction_access_probability(prediction_method_of(t[i].prediction),
                                                             t[i].probability, 8),
                               t[i].expected, 1e-6f);
}
END_TEST

/* ---- limits ---- */

static struct prefetch_state calm(void)
{
    return (struct prefetch_state){.queue_depth = 16,
                                   .top_k = 4,
                                   .layer_now = 2,
                                   .layer_predicted = 3,
                                   .layers = 8,
                                   .probability = 0.5f,
                                   .needs_eviction = true,
                                   .victim_heat = 0.1f};
}

START_TEST(limits_differ_as_they_should)
{
    /* cases that each limit accepts: calm, a hot victim, a prefetch open, two layers ahead, a
     * demand open, a full queue */
    static const struct {
        enum prefetch_rule rule;
        const char *accepts;
    } table[] = {{PREFETCH_NONE, "------"},         {PREFETCH_IDLE, "y-yyy-"},
                 {PREFETCH_DEMAND_FIRST, "yyyy--"}, {PREFETCH_ALL, "yyyyy-"},
                 {PREFETCH_UNTIL_ROUTER, "yy----"}, {PREFETCH_AUTO, "y-yyy-"},
                 {PREFETCH_CREDIT, "------"}};
    for (uint32_t i = 0; i < ARRAY_LEN(table); i++) {
        struct prefetch_limit l;
        prefetch_limit_init(&l, table[i].rule);
        for (uint32_t n = 0; n < 6; n++) {
            struct prefetch_state s = calm();
            s.victim_heat = n == 1 ? 0.9f : s.victim_heat;
            s.prefetches_open = n == 2 ? 1 : n == 5 ? 16 : 0;
            s.layer_predicted = n == 3 ? 4 : 3;
            s.demands_open = n == 4;
            ck_assert_msg(prefetch_limit_allows(&l, &s) == (table[i].accepts[n] == 'y'), "%d, %u",
                          table[i].rule, n);
        }
    }
}
END_TEST

/* What is one layer ahead is the next layer that has experts. */
START_TEST(limits_count_layers_with_experts)
{
    struct prefetch_limit until, idle;
    struct prefetch_state s = calm();
    prefetch_limit_init(&until, PREFETCH_UNTIL_ROUTER);
    prefetch_limit_init(&idle, PREFETCH_IDLE);
    s.layers = 12; /* every second one has experts */
    for (uint32_t layer = 1; layer < s.layers; layer += 2)
        expert_layers_leave_out(&s.expert_layers, layer);
    for (uint32_t ahead = 1; ahead <= 5; ahead++) {
        s.layer_now = 8;
        s.layer_predicted = (s.layer_now + 2 * ahead) % s.layers;
        ck_assert_msg(prefetch_limit_allows(&until, &s) == (ahead == 1), "%u ahead", ahead);
        ck_assert_msg(prefetch_limit_allows(&idle, &s) == (ahead <= 4), "%u ahead", ahead);
    }
}
END_TEST

/* As many whole loads as one layer's compute hides, whatever earlier layers left; in prefill the
 * credit neither limits nor is spent. */
START_TEST(credit_is_per_layer)
{
    static const double n[] = {0.25, 0.7, 1, 2.5, 6};
    struct prefetch_limit l;
    struct prefetch_state s = calm(), chunk = calm();
    prefetch_limit_init(&l, PREFETCH_CREDIT);
    chunk.prefill = true;
    ck_assert(prefetch_limit_allows(&l, &chunk)); /* nothing was measured yet */
    for (uint32_t layer = 0; layer < 100; layer++) {
        uint32_t sent = 0;
        prefetch_limit_layer(&l, n[_i] * 1e6, 1e6);
        prefetch_limit_sent(&l, &chunk);
        while (layer % 2 && prefetch_limit_allows(&l, &s)) {
            prefetch_limit_sent(&l, &s);
            sent++;
        }
        ck_assert_uint_eq(sent, layer % 2 ? (uint32_t)n[_i] : 0);
        ck_assert(prefetch_limit_allows(&l, &chunk));
    }
    prefetch_limit_init(&l, PREFETCH_CREDIT);
    prefetch_limit_layer(&l, 1e6, 0); /* not measured yet */
    ck_assert(!prefetch_limit_allows(&l, &s));
}
END_TEST

/* A chunk: demands pending, the number in flight, the space of the running layer. */
START_TEST(chunks_are_queued_after_demands)
{
    static const struct {
        enum prefetch_rule rule;
        bool queued;
        uint32_t open;
    } t[] = {{PREFETCH_DEMAND_FIRST, true, 16}, {PREFETCH_CREDIT, true, 16},
             {PREFETCH_UNTIL_ROUTER, false, 8}, {PREFETCH_IDLE, true, 8},
             {PREFETCH_ALL, true, 16},          {PREFETCH_NONE, false, 8}};
    for (uint32_t i = 0; i < ARRAY_LEN(t); i++) {
        struct prefetch_limit l;
        struct prefetch_state s = calm();
        prefetch_limit_init(&l, t[i].rule);
        ck_assert(prefetch_protects(&l) == (i != 2));
        ck_assert_uint_eq(prefetch_open_max(&l, &s), i == 4 ? 16 : 8);
        s.prefill = true;
        s.demands_open = 3;
        s.capacity_bytes = 100, s.prefetched_bytes = 50;
        ck_assert_uint_eq(prefetch_open_max(&l, &s), t[i].open);
        ck_assert_msg(prefetch_limit_allows(&l, &s) == t[i].queued, "%d", t[i].rule);
        ck_assert(prefetch_waits_for_space(&l, &s) == (i < 2));
        s.prefetched_bytes = 51; /* the running layer needs the other half */
        ck_assert(!prefetch_limit_allows(&l, &s));
    }
}
END_TEST

/* Unused and predicted entries are spared under every limit, hot ones under two; for a chunk also
 * those of layers ahead. */
START_TEST(victims_of_a_prefetch)
{
    static const enum prefetch_rule rules[] = {PREFETCH_IDLE, PREFETCH_AUTO, PREFETCH_DEMAND_FIRST,
                                               PREFETCH_CREDIT, PREFETCH_ALL};
    for (uint32_t i = 0; i < ARRAY_LEN(rules); i++) {
        struct prefetch_limit l;
        struct prefetch_state s = calm(); /* compute is in layer 2 of 8 */
        prefetch_limit_init(&l, rules[i]);
        ck_assert(!prefetch_may_evict(&l, &s, &(struct prefetch_victim){.hinted = true}));
        ck_assert(!prefetch_may_evict(&l, &s, &(struct prefetch_victim){.prefetched = true}));
        ck_assert(prefetch_may_evict(&l, &s, &(struct prefetch_victim){.heat = 0.4f}));
        ck_assert(prefetch_may_evict(&l, &s, &(struct prefetch_victim){.heat = 0.6f}) == (i > 1));
        for (uint32_t layer = 0; layer < 8; layer++) {
            struct prefetch_victim victim = {.layer = layer};
            s.prefill = false;
            ck_assert(prefetch_may_evict(&l, &s, &victim));
            s.prefill = true;
            ck_assert(prefetch_may_evict(&l, &s, &victim) == (layer < 3 || layer == 7));
        }
    }
}
END_TEST

START_TEST(auto_keeps_profitable_prefetch)
{
    static const double gain[] = {0.8, 0.99, 1.3}; /* time with prefetch, relative */
    struct prefetch_limit l;
    struct prefetch_state s = calm();
    uint32_t on = 0, tokens = 20000;
    struct prefetch_state chunk = calm();
    chunk.prefill = true;
    prefetch_limit_init(&l, PREFETCH_AUTO);
    for (uint32_t i = 0; i < tokens; i++) {
        bool now = prefetch_limit_allows(&l, &s);
        on += now && i >= tokens / 2;
        ck_assert(prefetch_limit_allows(&l, &chunk)); /* in prefill always */
        prefetch_limit_token(&l, 1e6 * (now ? gain[_i] : 1));
    }
    ck_assert(_i == 0 ? on > tokens / 2 - tokens / 20 : on < tokens / 20);
}
END_TEST

/* While the cache becomes full each token is faster than the one before: the slower side is the one
 * that was tried first. */
START_TEST(auto_survives_a_cold_cache)
{
    struct prefetch_limit l;
    struct prefetch_state s = calm();
    uint32_t on = 0, tokens = 320;
    prefetch_limit_init(&l, PREFETCH_AUTO);
    for (uint32_t i = 0; i < tokens; i++) {
        bool now = prefetch_limit_allows(&l, &s);
        on += now;
        prefetch_limit_token(&l, 1e6 * (now ? 0.83 : 1) * (1 + 6 * exp2(-(double)i / 40)));
    }
    ck_assert_uint_gt(on, tokens / 2);
}
END_TEST

/* Reads that are not used pause the rules that evict by probability, and no other one. */
START_TEST(unused_reads_pause_it)
{
    static const enum prefetch_rule rules[] = {PREFETCH_IDLE, PREFETCH_AUTO, PREFETCH_DEMAND_FIRST,
                                               PREFETCH_ALL};
    struct prefetch_limit l;
    struct prefetch_state s = calm();
    prefetch_limit_init(&l, rules[_i]);
    for (uint32_t i = 0; i < JUDGE_OUTCOMES; i++)
        prefetch_limit_outcome(&l, false, true); /* in a chunk they do not count */
    ck_assert(prefetch_limit_allows(&l, &s));
    for (uint32_t i = 0; i < JUDGE_OUTCOMES; i++)
        prefetch_limit_outcome(&l, false, false);
    ck_assert(prefetch_limit_allows(&l, &s) == (_i >= 2));
}
END_TEST

/* ---- precision ---- */

static struct precision_choice choose(struct precision_policy p, struct precision_input in)
{
    struct precision_choice c;
    precision_choose(&p, &in, &c);
    return c;
}

START_TEST(hobbit_precision)
{
    struct precision_policy p = {
        PRECISION_RULE_HOBBIT, PRECISION_NATIVE, PRECISION_INT4, 0.6f, 0.9f, 0, false};
    static const float weights[] = {0.5f, 0.25f, 0.2f, 0.05f};
    static const enum precision_need needs[] = {NEED_HIGH, NEED_HIGH, NEED_LOW, NEED_SKIP};
    float before[4];
    precision_weights_before(weights, 1, 4, before);
    for (uint32_t r = 0; r < 4; r++) {
        struct precision_choice c = choose(p, (struct precision_input){.weight_before = before[r]});
        ck_assert_int_eq(c.need, needs[r]);
        ck_assert_uint_eq(c.accept_count, r < 2 ? 1 : 2);
        ck_assert_int_eq(c.accept[0], PRECISION_NATIVE);
        if (r >= 2)
            ck_assert_int_eq(c.accept[1], PRECISION_INT4);
        if (c.need != NEED_SKIP)
            ck_assert_int_eq(c.request, r < 2 ? PRECISION_NATIVE : PRECISION_INT4);
    }
    p.t1 = p.t2 = 0; /* rank 0 stays high with any thresholds */
    ck_assert_int_eq(choose(p, (struct precision_input){0}).need, NEED_HIGH);
    ck_assert_int_eq(choose(p, (struct precision_input){.weight_before = 0.01f}).need, NEED_SKIP);
    ck_assert_float_eq(before[0], 0);
    static const float odd[] = {2, 9, 1, 9, 1, 9}, none[3] = {0}; /* not normalised; stride 2 */
    precision_weights_before(odd, 2, 3, before);
    ck_assert_float_eq_tol(before[2], 0.75f, 1e-6f);
    precision_weights_before(none, 1, 3, before);
    ck_assert_float_eq(before[2], 0);
    ck_assert_uint_eq(precision_policy_mask(&p, 0xf),
                      1u << PRECISION_NATIVE | 1u << PRECISION_INT4);
}
END_TEST

START_TEST(fate_precision)
{
    struct precision_policy p = {
        PRECISION_RULE_FATE, PRECISION_INT4, PRECISION_INT2, 0, 0, 0.25f, false};
    uint32_t low = 0;
    for (uint32_t i = 0; i < 16; i++) {
        struct precision_choice c =
            choose(p, (struct precision_input){.prefill = true, .popularity = (float)i / 16});
        low += c.request == PRECISION_INT2;
        ck_assert_int_eq(c.request == PRECISION_INT2, i >= 12);
        ck_assert_int_eq(c.accept[0], PRECISION_INT4);
    }
    ck_assert_uint_eq(low, 4);
    struct precision_input in = {.popularity = 0.99f};
    ck_assert_int_eq(choose(p, in).request, PRECISION_INT4);
    p.slow_device = true;
    ck_assert_int_eq(choose(p, in).request, PRECISION_INT2);
    in.predicted = true;
    ck_assert_int_eq(choose(p, in).request, PRECISION_INT4);
}
END_TEST

START_TEST(fixed_precisions)
{
    struct precision_policy p = {.rule = PRECISION_RULE_EDGEMOE};
    for (enum precision t = PRECISION_NATIVE; t < PRECISION__COUNT; t++) {
        struct precision_choice c = choose(p, (struct precision_input){.planned = {t, t}});
        ck_assert_int_eq(c.request, t);
        ck_assert_uint_eq(c.accept_count, 1);
        ck_assert_int_eq(c.accept[0], t);
        ck_assert_int_eq(c.need, NEED_HIGH);
    }
    p.rule = PRECISION_RULE_UNIFORM_INT4;
    ck_assert_int_eq(choose(p, (struct precision_input){0}).request, PRECISION_INT4);
    ck_assert_uint_eq(precision_policy_mask(&p, 0xf), 1u << PRECISION_INT4);
}
END_TEST

/* ---- masked routing ---- */

START_TEST(masked_routing)
{
    float logits[EXPERTS], scratch[ROUTING_SCRATCH(EXPERTS)];
    bool allowed[EXPERTS];
    struct model_router router = {.experts = EXPERTS, .gating = ROUTER_SOFTMAX};
    struct route exact[8], masked[8];
    seed = 5;
    for (uint32_t round = 0; round < 2000; round++) {
        uint32_t set = 0, k = 1 + below(8);
        double sum = 0, chosen = 0;
        for (uint32_t e = 0; e < EXPERTS; e++) {
            logits[e] = (float)below(1000000) / 50000 - 10;
            set += allowed[e] = round % 4 == 0 || below(3) == 0;
            sum += allowed[e] ? exp((double)logits[e]) : 0;
        }
        router.top_k = k;
        router.normalise = round % 2;
        uint32_t n = routing_masked(&router, logits, allowed, scratch, masked);
        ck_assert_uint_eq(n, set < k ? set : k);
        if (set == EXPERTS) { /* bit-identical */
            routing_exact(&router, logits, scratch, exact);
            ck_assert_mem_eq(exact, masked, k * sizeof *exact);
        }
        bool taken[EXPERTS] = {false};
        for (uint32_t r = 0; r < n; r++) {
            uint32_t best = EXPERTS;
            for (uint32_t e = 0; e < EXPERTS; e++)
                if (allowed[e] && !taken[e] && (best == EXPERTS || logits[e] > logits[best]))
                    best = e;
            ck_assert_uint_eq(masked[r].expert, best);
            taken[best] = true;
            chosen += exp((double)logits[best]) / sum;
        }
        for (uint32_t r = 0; r < n; r++) {
            double weight = exp((double)logits[masked[r].expert]) / sum / (round % 2 ? chosen : 1);
            ck_assert_double_eq_tol(masked[r].weight, weight, 1e-5);
        }
    }
    /* Probabilities that underflow to 0 are still preferred to experts outside the set. */
    for (uint32_t e = 0; e < EXPERTS; e++) {
        logits[e] = e == 5 ? 0 : -200;
        allowed[e] = e >= 5;
    }
    router.top_k = 4;
    ck_assert_uint_eq(routing_masked(&router, logits, allowed, scratch, masked), 4);
    for (uint32_t r = 0; r < 4; r++)
        ck_assert_uint_ge(masked[r].expert, 5);
    memset(allowed, 0, sizeof allowed);
    ck_assert_uint_eq(routing_masked(&router, logits, allowed, scratch, masked), 0);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("predictions");
    TCase *c = tcase_create("predictions");
    tcase_add_test(c, fate_names_what_is_above_the_percentile);
    tcase_add_loop_test(c, counted_predictions, 0, 3);
    tcase_add_test(c, names_and_layers);
    tcase_add_test(c, list_lengths);
    tcase_add_test(c, access_probabilities);
    tcase_add_test(c, limits_differ_as_they_should);
    tcase_add_test(c, limits_count_layers_with_experts);
    tcase_add_loop_test(c, credit_is_per_layer, 0, 5);
    tcase_add_test(c, chunks_are_queued_after_demands);
    tcase_add_test(c, victims_of_a_prefetch);
    tcase_add_loop_test(c, auto_keeps_profitable_prefetch, 0, 3);
    tcase_add_test(c, auto_survives_a_cold_cache);
    tcase_add_loop_test(c, unused_reads_pause_it, 0, 4);
    tcase_add_test(c, hobbit_precision);
    tcase_add_test(c, fate_precision);
    tcase_add_test(c, fixed_precisions);
    tcase_add_test(c, masked_routing);
    suite_add_tcase(s, c);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_NORMAL);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed == 0 ? 0 : 1;
}
