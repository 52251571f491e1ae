/* SPDX-License-Identifier: Apache-2.0 */
/* Routing, prediction, prefill order, prefetch limit and precision against simple
 * implementations. */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/policy/access/precision.h"
#include "lib/policy/access/prefill.h"
#include "lib/policy/access/routing.h"
#include "lib/policy/prediction/prediction.h"
#include "lib/policy/prediction/prefetch.h"
#include "lib/policy/residency/residency.h"

#include "lib/tensor/precision.h"
#include "tests/unit/lib/policy/access/states.h"

#define EXPERTS 64

static uint64_t seed;

static float uniform(void) /* in (-8, 8) */
{
    seed = seed * 6364136223846793005ull + 1442695040888963407ull;
    return (float)((double)(seed >> 11) / (double)(1ull << 53) * 16 - 8);
}

/* The definition, in double and by repeated search. */
static void oracle(const float *logits, uint32_t experts, uint32_t k, bool norm, uint32_t *expert,
                   double *weight)
{
    double p[EXPERTS], sum = 0, top = 0;
    bool taken[EXPERTS] = {false};
    for (uint32_t i = 0; i < experts; i++)
        sum += p[i] = exp((double)logits[i]);
    for (uint32_t r = 0; r < k; r++) {
        uint32_t best = UINT32_MAX;
        for (uint32_t i = 0; i < experts; i++)
            if (!taken[i] && (best == UINT32_MAX || logits[i] > logits[best]))
                best = i;
        taken[best] = true;
        expert[r] = best;
        weight[r] = p[best] / sum;
        top += weight[r];
    }
    for (uint32_t r = 0; norm && r < k; r++)
        weight[r] /= top;
}

static struct model_router plain(uint32_t experts, uint32_t k, bool norm)
{
    return (struct model_router){
        .experts = experts, .top_k = k, .gating = ROUTER_SOFTMAX, .normalise = norm};
}

START_TEST(routing_agrees_with_double)
{
    float logits[EXPERTS], scratch[ROUTING_SCRATCH(EXPERTS)];
    struct route routes[EXPERTS];
    uint32_t expert[EXPERTS];
    double weight[EXPERTS];
    seed = 5;
    for (uint32_t round = 0; round < 2000; round++) {
        uint32_t experts = 1 + round % EXPERTS, k = 1 + round % (experts < 8 ? experts : 8);
        bool norm = round % 2 == 0;
        for (uint32_t i = 0; i < experts; i++)
            logits[i] = uniform();
        struct model_router router = plain(experts, k, norm);
        routing_exact(&router, logits, scratch, routes);
        oracle(logits, experts, k, norm, expert, weight);
        double sum = 0;
        for (uint32_t r = 0; r < k; r++) {
            ck_assert_uint_eq(routes[r].expert, expert[r]);
            ck_assert_double_eq_tol(routes[r].weight, weight[r], 1e-6);
            sum += routes[r].weight;
        }
        if (norm)
            ck_assert_double_eq_tol(sum, 1.0, 1e-6);
    }
}
END_TEST

START_TEST(routing_ties_go_to_the_lower_index)
{
    float logits[8] = {1, 3, 2, 3, 3, 2, 0, 3}, scratch[ROUTING_SCRATCH(8)];
    static const uint32_t expected[] = {1, 3, 4, 7, 2, 5};
    struct route routes[6];
    struct model_router router = plain(8, 6, true);
    routing_exact(&router, logits, scratch, routes);
    for (uint32_t r = 0; r < 6; r++)
        ck_assert_uint_eq(routes[r].expert, expected[r]);
}
END_TEST

/* Damaged or extreme rows must still give K different experts. */
START_TEST(routing_of_odd_rows)
{
    static const float rows[][4] = {{NAN, NAN, NAN, NAN},
                                    {NAN, 1, 2, 3},
                                    {1e38f, -1e38f, 0, 1e38f},
                                    {-INFINITY, 0, 0, -INFINITY},
                                    {0, 0, 0, 0}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        float scratch[ROUTING_SCRATCH(4)];
        struct route routes[4];
        static const uint32_t gatings[] = {ROUTER_SOFTMAX,       ROUTER_SIGMOID,
                                           ROUTER_SOFTMAX_AFTER, ROUTER_SPARSE_MIXER,
                                           ROUTER_SIGMOID_AFTER, ROUTER_SQRT_SOFTPLUS};
        for (size_t g = 0; g < sizeof gatings / sizeof *gatings; g++) {
            struct model_router router = plain(4, 4, true);
            unsigned seen = 0;
            router.gating = gatings[g];
            routing_exact(&router, rows[i], scratch, routes);
            for (uint32_t r = 0; r < 4; r++)
                seen |= 1u << routes[r].expert;
            ck_assert_uint_eq(seen, 15);
        }
    }
}
END_TEST

/* A set, or numbers that do not compare, may leave fewer than K experts in the best groups: then
 * all groups count. */
START_TEST(groups_with_too_few_experts)
{
    static const bool allowed[8] = {true, false, true, false, true, false, true, false};
    float logits[8] = {8, 7, 6, 5, 4, 3, 2, 1}, scratch[ROUTING_SCRATCH(8)];
    struct model_router router = {
        .experts = 8, .top_k = 4, .gating = ROUTER_SIGMOID, .groups = 4, .groups_used = 2};
    struct route routes[4];
    ck_assert_uint_eq(routing_masked(&router, logits, allowed, scratch, routes), 4);
    for (uint32_t r = 0; r < 4; r++)
        ck_assert_uint_eq(routes[r].expert, 2 * r);
    logits[2] = NAN;
    for (uint32_t used = 2; used <= 4; used++) {
        unsigned seen = 0;
        router.groups_used = used;
        routing_exact(&router, logits, scratch, routes);
        for (uint32_t r = 0; r < 4; r++)
            seen |= 1u << routes[r].expert;
        ck_assert_int_eq(__builtin_popcount(seen & 255), 4);
    }
}
END_TEST

/* But SparseMixer, whose weights depend on all logits. */
static const uint32_t rules[] = {ROUTER_SOFTMAX, ROUTER_SIGMOID, ROUTER_SOFTMAX_AFTER,
                                 ROUTER_SIGMOID_AFTER, ROUTER_SQRT_SOFTPLUS};

/* Every rule of lib/model/router.h by its definition, in double. */
static void oracle_rule(const struct model_router *r, const float *logits, uint32_t *expert,
                        double *weight)
{
    double p[EXPERTS], s[EXPERTS], group[EXPERTS], sum = 0;
    uint32_t size = r->groups > 1 ? r->experts / r->groups : r->experts;
    for (uint32_t i = 0; i < r->experts; i++)
        sum += exp((double)logits[i]);
    for (uint32_t i = 0; i < r->experts; i++) {
        double z = (double)logits[i];
        p[i] = r->gating == ROUTER_SOFTMAX ? exp(z) / sum : z;
        p[i] = r->gating == ROUTER_SIGMOID ? 1 / (1 + exp(-z)) : p[i];
        p[i] = r->gating == ROUTER_SQRT_SOFTPLUS ? sqrt(log1p(exp(z))) : p[i];
        s[i] = p[i] + (r->bias ? (double)r->bias[i] : 0);
    }
    for (uint32_t g = 0; g < r->experts / size; g++) {
        double a = -INFINITY, b = -INFINITY;
        for (uint32_t i = g * size; i < (g + 1) * size; i++) {
            b = s[i] > a ? a : fmax(b, s[i]);
            a = fmax(a, s[i]);
        }
        group[g] = r->gating == ROUTER_SOFTMAX ? a : a + b;
    }
    for (uint32_t g = 0; r->groups > 1 && g < r->groups; g++) {
        uint32_t better = 0;
        for (uint32_t o = 0; o < r->groups; o++)
            better += group[o] > group[g];
        for (uint32_t i = g * size; better >= r->groups_used && i < (g + 1) * size; i++)
            s[i] = -INFINITY;
    }
    sum = 0;
    for (uint32_t k = 0; k < r->top_k; k++) {
        expert[k] = 0;
        for (uint32_t i = 1; i < r->experts; i++)
            expert[k] = s[i] > s[expert[k]] ? i : expert[k];
        s[expert[k]] = -INFINITY;
        weight[k] = r->gating == ROUTER_SOFTMAX_AFTER ? exp(p[expert[k]]) : p[expert[k]];
        if (r->gating == ROUTER_SIGMOID_AFTER)
            weight[k] = 1 / (1 + exp(-p[expert[k]]));
        sum += weight[k];
    }
    for (uint32_t k = 0; k < r->top_k; k++) {
        weight[k] /= r->normalise || r->gating == ROUTER_SOFTMAX_AFTER ? sum : 1;
        weight[k] *= r->scale != 0 ? (double)r->scale : 1;
    }
}

START_TEST(every_router_rule_agrees_with_its_definition)
{
    float logits[EXPERTS], bias[EXPERTS], scratch[ROUTING_SCRATCH(EXPERTS)];
    bool all[EXPERTS];
    struct route routes[8], masked[8];
    uint32_t expert[8];
    double weight[8];
    seed = 11;
    for (uint32_t round = 0; round < 6000; round++) {
        struct model_router router = {.experts = EXPERTS,
                                      .top_k = 1 + round % 8,
                                      .gating = rules[round / 8 % 5],
                                      .normalise = round % 2 == 0,
                                      .scale = round % 5 == 0 ? 2.5f : 0,
                                      .groups = round % 7 < 4 ? 8 : 1,
                                      .groups_used = 1 + round % 4,
                                      .bias = round % 11 < 7 ? bias : NULL};
        for (uint32_t i = 0; i < EXPERTS; i++) {
            logits[i] = uniform();
            bias[i] = uniform() / 8; /* also below -1: negative scores */
            all[i] = true;
        }
        routing_exact(&router, logits, scratch, routes);
        oracle_rule(&router, logits, expert, weight);
        for (uint32_t k = 0; k < router.top_k; k++) {
            ck_assert_uint_eq(routes[k].expert, expert[k]);
            ck_assert_double_eq_tol(routes[k].weight, weight[k], 1e-6 * (1 + fabs(weight[k])));
        }
        ck_assert_uint_eq(routing_masked(&router, logits, all, scratch, masked), router.top_k);
        ck_assert_mem_eq(routes, masked, router.top_k * sizeof *routes);
    }
}
END_TEST

/* Every rule: the largest margins are those of the experts that the model chooses, and a margin is
 * what the logit may lose or must gain. Without a bias and groups they are the logits. */
static void check_margins(const struct model_router *router, const float *logits)
{
    float margin[EXPERTS], scratch[ROUTING_MARGIN_SCRATCH(EXPERTS)], after[EXPERTS];
    struct route routes[8];
    bool chosen[EXPERTS] = {false};
    routing_margins(router, logits, scratch, margin);
    if (!router->bias && router->groups < 2)
        ck_assert_mem_eq(margin, logits, sizeof margin);
    routing_exact(router, logits, scratch, routes);
    float least = INFINITY;
    for (uint32_t k = 0; k < router->top_k; k++) {
        chosen[routes[k].expert] = true;
        least = fminf(least, margin[routes[k].expert]);
    }
    for (uint32_t e = 0; e < EXPERTS; e++)
        ck_assert(chosen[e] || margin[e] <= least + 1e-4f);
    /* Sigmoid and root: p of an expert does not depend on the others' logits. */
    bool alone = router->gating == ROUTER_SIGMOID || router->gating == ROUTER_SQRT_SOFTPLUS;
    for (uint32_t e = 0; e < EXPERTS && alone && router->bias; e++) {
        if (router->groups > 1 || fabsf(margin[e]) < 0.01f || margin[e] <= ROUTING_MARGIN_MIN ||
            margin[e] >= ROUTING_MARGIN_MAX)
            continue;
        memcpy(after, logits, sizeof after);
        after[e] -= margin[e] * 0.9f; /* between the threshold and where it was */
        routing_exact(router, after, scratch, routes);
        bool stays = false;
        for (uint32_t k = 0; k < router->top_k; k++)
            stays = stays || routes[k].expert == e;
        ck_assert_msg(stays == chosen[e], "expert %u: %g", e, (double)margin[e]);
    }
}

/* What a table has chosen, in the order of the weights, which are those of the rule; a large logit
 * is its own softplus. */
START_TEST(chosen_by_a_table)
{
    static const float logits[] = {-3, 0.5f, 90, 2, 1e4f, -200};
    static const uint32_t table[] = {5, 1, 2, 0};
    float scratch[ROUTING_SCRATCH(6)];
    struct route routes[4], all[6];
    struct model_router router = {.experts = 6,
                                  .top_k = 4,
                                  .gating = ROUTER_SQRT_SOFTPLUS,
                                  .normalise = true,
                                  .scale = 1.5f,
                                  .bias = logits};
    double p[6], sum = 0;
    for (int i = 0; i < 6; i++)
        p[i] = sqrt(log1p(exp((double)logits[i])));
    p[2] = sqrt(90);
    for (int i = 0; i < 4; i++)
        sum += p[table[i]];
    routing_table(&router, logits, table, scratch, routes);
    for (uint32_t k = 0; k < 4; k++) {
        static const uint32_t order[] = {2, 1, 0, 5};
        ck_assert_uint_eq(routes[k].expert, order[k]);
        ck_assert_double_eq_tol(routes[k].weight, 1.5 * p[order[k]] / sum, 1e-6);
    }
    static const float small[] = {-40, -40, -38, -30, -20.5f, -20};
    router.bias = NULL;
    router.top_k = 2;
    routing_table(&router, small, (const uint32_t[]){0, 1}, scratch, routes);
    ck_assert(routes[0].weight == 0.75f && routes[1].weight == 0.75f);
    router.top_k = 6;
    router.normalise = false;
    routing_table(&router, small, (const uint32_t[]){0, 1, 2, 3, 4, 5}, scratch, all);
    for (uint32_t k = 0; k < 6; k++) {
        double want = 1.5 * sqrt(log1p(exp((double)small[all[k].expert])));
        ck_assert_double_eq_tol((double)all[k].weight / want, 1, 1e-6);
    }
    ck_assert_double_eq_tol(routing_root_logit(sqrt(log1p(exp(0.5)))), 0.5, 1e-9);
    ck_assert_double_eq_tol(routing_root_logit(1e-4), 2 * log(1e-4), 1e-6);
    ck_assert_double_eq_tol(routing_root_logit(20), 400, 1e-9);
    ck_assert(isfinite(routing_root_logit(-1)));
}
END_TEST

START_TEST(margins_agree_with_the_choice)
{
    float logits[EXPERTS], bias[EXPERTS];
    seed = 17;
    for (uint32_t round = 0; round < 3000; round++) {
        struct model_router router = {.experts = EXPERTS,
                                      .top_k = 1 + round % 8,
                                      .gating = rules[round / 8 % 5],
                                      .groups = round % 7 < 3 ? 8 : 1,
                                      .groups_used = 1 + round % 4,
                                      .bias = round % 11 < 7 ? bias : NULL};
        for (uint32_t i = 0; i < EXPERTS; i++) {
            logits[i] = uniform() / 2;
            bias[i] = uniform() / 20;
        }
        check_margins(&router, logits);
    }
}
END_TEST

/* SparseMixer by the model's code: a softmax over the logits near the largest; the same again
 * without that one. */
START_TEST(sparse_mixer_agrees_with_its_definition)
{
    float logits[EXPERTS], scratch[ROUTING_SCRATCH(EXPERTS)];
    struct model_router router = {.experts = EXPERTS, .top_k = 2, .gating = ROUTER_SPARSE_MIXER};
    seed = 12;
    uint32_t near = 0;
    for (uint32_t round = 0; round < 3000; round++) {
        struct route routes[2];
        bool taken[EXPERTS] = {false};
        for (uint32_t i = 0; i < EXPERTS; i++) /* also with a largest logit below 0 */
            logits[i] = uniform() * 4 - (round % 3 == 0 ? 9.0f : 0);
        routing_exact(&router, logits, scratch, routes);
        for (uint32_t k = 0; k < 2; k++) {
            uint32_t best = EXPERTS;
            double sum = 0;
            for (uint32_t i = 0; i < EXPERTS; i++)
                if (!taken[i] && (best == EXPERTS || logits[i] > logits[best]))
                    best = i;
            double top = (double)logits[best];
            for (uint32_t i = 0; i < EXPERTS; i++) {
                double z = (double)logits[i];
                bool kept = (top - z) / fmax(fabs(z), top) <= 0.02;
                sum += !taken[i] && kept ? exp(z - top) : 0;
                near += !taken[i] && kept && i != best;
            }
            taken[best] = true;
            ck_assert_uint_eq(routes[k].expert, best);
            ck_assert_double_eq_tol(routes[k].weight, 1 / sum, 1e-6);
        }
    }
    ck_assert_uint_gt(near, 1000);
}
END_TEST

static uint32_t predict(const float *logits, uint32_t experts, uint32_t want,
                        struct prediction *out)
{
    struct prediction_input in = {.experts = experts, .top_k = 1, .want = want, .logits = logits};
    return prediction_run(prediction_method_of(PREDICTION_NEXT_LAYER), &in, out);
}

START_TEST(prediction_names_the_largest)
{
    float logits[EXPERTS];
    struct prediction predictions[EXPERTS];
    uint32_t expert[EXPERTS];
    double weight[EXPERTS];
    seed = 6;
    for (uint32_t round = 0; round < 500; round++) {
        uint32_t experts = 1 + round % EXPERTS, want = round % (EXPERTS + 4);
        uint32_t expected = want < experts ? want : experts;
        for (uint32_t i = 0; i < experts; i++)
            logits[i] = floorf(uniform()); /* many ties */
        ck_assert_uint_eq(predict(logits, experts, want, predictions), expected);
        oracle(logits, experts, expected, false, expert, weight);
        for (uint32_t i = 0; i < expected; i++) {
            ck_assert_uint_eq(predictions[i].expert, expert[i]);
            ck_assert_double_eq_tol(predictions[i].probability, weight[i], 1e-6);
        }
    }
    static const float damaged[] = {NAN, 1, NAN, 2};
    ck_assert_uint_eq(predict(damaged, 4, 4, predictions), 4);
    ck_assert_uint_eq(predictions[0].expert, 3);
    for (uint32_t i = 0; i < 4; i++)
        ck_assert(isfinite(predictions[i].probability) && predictions[i].probability >= 0);
}
END_TEST

static int by_tokens(const void *a, const void *b)
{
    const struct prefill_item *x = a, *y = b;
    if (x->tokens != y->tokens)
        return x->tokens > y->tokens ? -1 : 1;
    return x->expert < y->expert ? -1 : x->expert > y->expert;
}

static int by_expert(const void *a, const void *b)
{
    const struct prefill_item *x = a, *y = b;
    return x->expert < y->expert ? -1 : x->expert > y->expert;
}

START_TEST(prefill_orders_agree_with_qsort)
{
    static const struct {
        enum prefill_order name;
        int (*order)(const void *, const void *);
    } table[] = {{PREFILL_ORDER_POPULARITY, by_tokens}, {PREFILL_ORDER_INDEX, by_expert}};
    struct prefill_item items[300], expected[300];
    seed = 7;
    for (uint32_t round = 0; round < 400; round++) {
        uint32_t count = round % 300;
        for (uint32_t i = 0; i < count; i++)
            items[i] =
                (struct prefill_item){(i * 7919u + round) % 301u, (uint32_t)(uniform() + 8) % 6};
        memcpy(expected, items, sizeof items);
        qsort(expected, count, sizeof *expected, table[round % 2].order);
        prefill_order_of(table[round % 2].name)(items, count);
        ck_assert_int_eq(memcmp(items, expected, count * sizeof *items), 0);
    }
}
END_TEST

START_TEST(prefetch_limit)
{
    const struct prefetch_state good = {.queue_depth = 4,
                                        .top_k = 8,
                                        .layer_now = 3,
                                        .layer_predicted = 4,
                                        .layers = 8,
                                        .probability = 0.4f,
                                        .victim_heat = 0.1f};
    struct prefetch_state s = good;
    struct prefetch_limit idle;
    prefetch_limit_init(&idle, PREFETCH_IDLE);
    ck_assert(prefetch_limit_allows(&idle, &s));
    s.demands_open = 1; /* queued after it */
    ck_assert(prefetch_limit_allows(&idle, &s));
    s = good;
    s.prefetches_open = 4;
    ck_assert(!prefetch_limit_allows(&idle, &s));
    s = good;
    s.needs_eviction = true;
    ck_assert(prefetch_limit_allows(&idle, &s));
    s.victim_heat = 0.4f;
    ck_assert(!prefetch_limit_allows(&idle, &s));
    s.victim_heat = 0;
    s.probability = 0.19f; /* too improbable, whatever the victim */
    ck_assert(!prefetch_limit_allows(&idle, &s));
    for (size_t i = 0; i < 3; i++) { /* time hidden by a layer, minimum probability */
        static const struct {
            double layer_ns;
            float too_low, enough;
        } of[] = {{2000, 0.19f, 0.21f}, {500, 0.39f, 0.41f}, {10, 0.79f, 0.81f}};
        prefetch_limit_layer(&idle, of[i].layer_ns, 1000);
        s.probability = of[i].too_low;
        ck_assert(!prefetch_limit_allows(&idle, &s));
        s.probability = of[i].enough;
        ck_assert(prefetch_limit_allows(&idle, &s));
    }
    s.probability = 0.19f;
    s.needs_eviction = false;
    ck_assert(prefetch_limit_allows(&idle, &s));
    s = good;
    s.layer_predicted = 3; /* the running layer */
    ck_assert(!prefetch_limit_allows(&idle, &s));
    s.layer_predicted = 2; /* already computed */
    ck_assert(!prefetch_limit_allows(&idle, &s));
    s.layer_now = 7;
    s.layer_predicted = 0; /* of the next token */
    ck_assert(prefetch_limit_allows(&idle, &s));
}
END_TEST

/* The policy itself. */
START_TEST(states_of_the_directory)
{
    const struct states_row *row = &states_rows[_i];
    struct precision_policy policy = states_policy(row);
    struct precision_input in = {.weight_before = row->weight_before,
                                 .popularity = row->popularity,
                                 .prefill = row->prefill};
    enum precision_state state[PRECISION__COUNT] = {
        [PRECISION_NATIVE] = row->high, [PRECISION_INT4] = row->low};
    struct precision_choice choice;
    enum precision precision;
    precision_choose(&policy, &in, &choice);
    precision_limit(&choice, STATES_MASK);
    ck_assert_int_eq(precision_serve(&choice, state, &precision), row->outcome);
    if (row->outcome != PRECISION_SKIPPED)
        ck_assert_int_eq(precision, row->precision);
}
END_TEST

START_TEST(lossless_precision)
{
    struct precision_policy p = {.rule = PRECISION_RULE_LOSSLESS};
    for (int r = 0; r < 4; r++) {
        struct precision_choice choice;
        precision_choose(&p, &(struct precision_input){.weight_before = (float)r / 3}, &choice);
        ck_assert_int_eq(choice.need, NEED_HIGH);
        ck_assert_int_eq(choice.request, PRECISION_NATIVE);
        ck_assert_uint_eq(choice.accept_count, 1);
        ck_assert_int_eq(choice.accept[0], PRECISION_NATIVE);
    }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("policy");
    TCase *c = tcase_create("policy");
    tcase_add_test(c, routing_agrees_with_double);
    tcase_add_test(c, every_router_rule_agrees_with_its_definition);
    tcase_add_test(c, chosen_by_a_table);
    tcase_add_test(c, margins_agree_with_the_choice);
    tcase_add_test(c, sparse_mixer_agrees_with_its_definition);
    tcase_add_test(c, routing_ties_go_to_the_lower_index);
    tcase_add_test(c, groups_with_too_few_experts);
    tcase_add_test(c, routing_of_odd_rows);
    tcase_add_test(c, prediction_names_the_largest);
    tcase_add_test(c, prefill_orders_agree_with_qsort);
    tcase_add_test(c, prefetch_limit);
    tcase_add_test(c, lossless_precision);
    tcase_add_loop_test(c, states_of_the_directory, 0, STATES_ROWS);
    suite_add_tcase(s, c);
    SRunner *runner = srunner_create(s);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
