/* SPDX-License-Identifier: Apache-2.0 */
/* Predictions by the rule of a router, against the router itself. */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/random.h"
#include "lib/policy/access/precision.h"
#include "lib/policy/access/routing.h"
#include "lib/policy/prediction/prediction.h"

#define EXPERTS 32
#define TOP_K   4
#define ROUNDS  400

struct drawn {
    struct model_router router;
    float bias[EXPERTS], logits[EXPERTS], scratch[PREDICTION_SCRATCH(EXPERTS)];
};

static void draw(struct random *r, uint32_t gating, bool biased, uint32_t groups, struct drawn *d)
{
    float spread = gating == ROUTER_SIGMOID ? 0.3f : 0.05f;
    for (uint32_t e = 0; e < EXPERTS; e++) {
        d->bias[e] = spread * random_normal(r);
        d->logits[e] = 2 * random_normal(r);
    }
    d->router = (struct model_router){.experts = EXPERTS,
                                      .top_k = TOP_K,
                                      .gating = gating,
                                      .normalise = true,
                                      .groups = groups,
                                      .groups_used = groups / 2,
                                      .bias = biased ? d->bias : NULL};
}

static uint32_t predict(struct drawn *d, enum prediction_kind kind, uint32_t want,
                        struct prediction *out)
{
    struct prediction_input in = {.experts = EXPERTS,
                                  .top_k = TOP_K,
                                  .want = want,
                                  .logits = d->logits,
                                  .router = &d->router,
                                  .scratch = d->scratch};
    return prediction_run(prediction_method_of(kind), &in, out);
}

/* The first K are the router's choice in its order, with its gate weights ranked before each; the
 * shares descend and have the sum 1. */
static void check_rule(uint32_t gating, bool biased, uint32_t groups)
{
    struct random r;
    struct drawn d;
    random_seed(&r, gating + 10 * groups, biased);
    for (int round = 0; round < ROUNDS; round++) {
        struct prediction all[EXPERTS], few[TOP_K], list[EXPERTS];
        struct route routes[TOP_K];
        float scratch[ROUTING_SCRATCH(EXPERTS)], before[TOP_K], sum = 0;
        draw(&r, gating, biased, groups, &d);
        routing_exact(&d.router, d.logits, scratch, routes);
        precision_weights_before(&routes->weight, ROUTE_STRIDE, TOP_K, before);
        ck_assert_uint_eq(predict(&d, PREDICTION_NEXT_LAYER, EXPERTS, all), EXPERTS);
        ck_assert_uint_eq(predict(&d, PREDICTION_NEXT_LAYER, TOP_K, few), TOP_K);
        for (uint32_t i = 0; i < EXPERTS; i++) {
            sum += all[i].probability;
            ck_assert(i == 0 || all[i].probability <= all[i - 1].probability);
            if (i >= TOP_K) {
                ck_assert_float_eq(all[i].weight_before, 1);
                continue;
            }
            ck_assert_uint_eq(all[i].expert, routes[i].expert);
            ck_assert_float_eq_tol(all[i].weight_before, before[i], 1e-5f);
            ck_assert_int_eq(memcmp(&few[i], &all[i], sizeof few[i]), 0);
        }
        ck_assert_msg(biased ? sum > 0.05f && sum < 1 + 1e-4f : fabsf(sum - 1) < 1e-4f,
                      "gating %u, bias %d, groups %u: the sum of shares is %f", gating, biased,
                      groups, (double)sum);
        uint32_t listed = predict(&d, PREDICTION_FATE, EXPERTS, list);
        ck_assert_uint_ge(listed, TOP_K);
        for (uint32_t i = 0; i < listed; i++)
            ck_assert_uint_eq(list[i].expert, all[i].expert);
    }
}

START_TEST(predictions_follow_the_router)
{
    static const uint32_t gatings[] = {ROUTER_SOFTMAX, ROUTER_SIGMOID, ROUTER_SOFTMAX_AFTER,
                                       ROUTER_SQRT_SOFTPLUS, ROUTER_SIGMOID_AFTER};
    for (int g = 0; g < 5; g++) {
        check_rule(gatings[g], false, 0);
        check_rule(gatings[g], true, 0);
        check_rule(gatings[g], false, 8);
        check_rule(gatings[g], true, 8);
    }
}
END_TEST

/* Only differences of biases matter; without one the share is the softmax of the logits. */
START_TEST(shares_have_a_meaning)
{
    struct random r;
    struct drawn d;
    struct prediction plain[EXPERTS], biased[EXPERTS];
    random_seed(&r, 7, 7);
    for (int round = 0; round < ROUNDS; round++) {
        draw(&r, ROUTER_SIGMOID, false, 0, &d);
        predict(&d, PREDICTION_NEXT_LAYER, EXPERTS, plain);
        double sum = 0;
        for (uint32_t e = 0; e < EXPERTS; e++)
            sum += exp((double)d.logits[e]);
        for (uint32_t i = 0; i < EXPERTS; i++)
            ck_assert_double_eq_tol((double)plain[i].probability,
                                    exp((double)d.logits[plain[i].expert]) / sum, 1e-5);
        for (uint32_t e = 0; e < EXPERTS; e++)
            d.bias[e] = 4;
        d.router.bias = d.bias;
        predict(&d, PREDICTION_NEXT_LAYER, EXPERTS, biased);
        for (uint32_t i = 0; i < TOP_K; i++)
            ck_assert_float_eq_tol(biased[i].probability, plain[i].probability, 1e-4f);
    }
}
END_TEST

/* Experts of groups that the row does not use come last, and have no share. */
START_TEST(groups_that_are_not_used_have_no_share)
{
    struct random r;
    struct drawn d;
    struct prediction all[EXPERTS];
    random_seed(&r, 3, 3);
    draw(&r, ROUTER_SIGMOID, true, 4, &d); /* 2 of 4 groups of 8 */
    predict(&d, PREDICTION_NEXT_LAYER, EXPERTS, all);
    for (uint32_t i = 0; i < EXPERTS; i++)
        ck_assert((all[i].probability > 0) == (i < 16));
}
END_TEST

/* A table leaves a logit to the experts that it names: they alone are predicted, each as certain to
 * be accessed, in the order of their p, also where others have a larger bias, or their p is 0. */
START_TEST(experts_of_a_table)
{
    static const uint32_t gatings[] = {ROUTER_SOFTMAX, ROUTER_SIGMOID, ROUTER_SQRT_SOFTPLUS};
    const struct prediction_method *next = prediction_method_of(PREDICTION_NEXT_LAYER);
    struct random r;
    struct drawn d;
    struct prediction list[EXPERTS];
    random_seed(&r, 11, 11);
    for (uint32_t i = 0; i < 12; i++) {
        draw(&r, gatings[i % 3], i & 1, i & 2 ? 8 : 0, &d);
        for (uint32_t e = 0; e < EXPERTS; e++) {
            d.logits[e] = e % 8 == 5 ? (i & 4 ? -900.0f : -1.0f) - (float)e : -INFINITY;
            d.bias[e] = e % 8 == 5 ? 0 : 1;
        }
        for (int kind = PREDICTION_NEXT_LAYER; kind <= PREDICTION_FATE; kind++) {
            ck_assert_uint_eq(predict(&d, (enum prediction_kind)kind, EXPERTS, list), TOP_K);
            for (uint32_t n = 0; n < TOP_K; n++) {
                ck_assert_uint_eq(list[n].expert, 8 * n + 5);
                ck_assert_float_eq(prediction_access_probability(next, list[n].probability, TOP_K),
                                   1);
            }
        }
        ck_assert_uint_eq(predict(&d, PREDICTION_NEXT_LAYER, 2, list), 2);
    }
}
END_TEST

/* Damaged logits: distinct experts, finite shares. */
START_TEST(not_a_number)
{
    struct random r;
    struct drawn d;
    struct prediction all[EXPERTS];
    random_seed(&r, 5, 5);
    for (int round = 0; round < ROUNDS; round++) {
        bool seen[EXPERTS] = {false};
        draw(&r, ROUTER_SIGMOID, true, round % 2 ? 8 : 0, &d);
        for (uint32_t e = 0; e < EXPERTS; e += 1 + (uint32_t)round % 5)
            d.logits[e] = NAN;
        uint32_t n = predict(&d, PREDICTION_NEXT_LAYER, EXPERTS, all);
        ck_assert_uint_eq(n, EXPERTS);
        for (uint32_t i = 0; i < n; i++) {
            ck_assert(isfinite(all[i].probability) && !seen[all[i].expert]);
            seen[all[i].expert] = true;
        }
    }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("predictions by the router");
    TCase *c = tcase_create("predictions by the router");
    tcase_add_test(c, predictions_follow_the_router);
    tcase_add_test(c, shares_have_a_meaning);
    tcase_add_test(c, groups_that_are_not_used_have_no_share);
    tcase_add_test(c, experts_of_a_table);
    tcase_add_test(c, not_a_number);
    suite_add_tcase(s, c);
    SRunner *runner = srunner_create(s);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? 1 : 0;
}
