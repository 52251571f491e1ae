/* SPDX-License-Identifier: Apache-2.0 */
/* Cache-aware routing against its definition: the K largest of a score with a bias for resident
 * experts, by repeated search. */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "lib/policy/access/resident_first.h"

#define EXPERTS 32
#define TOP_K   8

static const uint32_t rules[] = {ROUTER_SOFTMAX, ROUTER_SIGMOID, ROUTER_SOFTMAX_AFTER,
                                 ROUTER_SIGMOID_AFTER, ROUTER_SPARSE_MIXER};

static uint64_t seed;

static float uniform(void) /* in (-1, 1) */
{
    seed = seed * 6364136223846793005ull + 1442695040888963407ull;
    return (float)((double)(seed >> 11) / (double)(1ull << 53) * 2 - 1);
}

struct row {
    struct model_router router;
    float logits[EXPERTS], bias[EXPERTS];
    bool resident[EXPERTS];
    struct resident_first rule;
    struct route exact[TOP_K], routes[TOP_K];
    uint32_t asked;
};

static bool asks(void *arg, uint32_t expert, float weight_before)
{
    struct row *row = arg;
    ck_assert(expert < EXPERTS && weight_before >= 0 && weight_before <= 1);
    row->asked++;
    return row->resident[expert];
}

static void make_row(struct row *row, uint32_t round)
{
    *row = (struct row){
        .router = {.experts = EXPERTS,
                   .top_k = 2 + round % (TOP_K - 1),
                   .gating = rules[round / 3 % ARRAY_LEN(rules)],
                   .normalise = round % 2 == 0,
                   .scale = round % 5 == 0 ? 2.5f : 0},
        .rule = {.nats = 0.1f * (float)(round % 23), .exact_ranks = 1 + round / 7 % 4}};
    for (uint32_t e = 0; e < EXPERTS; e++) {
        row->logits[e] = 2 * uniform();
        row->bias[e] = uniform() / 20;
        row->resident[e] = uniform() > 0.4f;
    }
}

static uint32_t route_row(struct row *row)
{
    struct resident_first_work work;
    float scratch[ROUTING_SCRATCH(EXPERTS)];
    ck_assert(resident_first_work_create(&work, EXPERTS));
    routing_exact(&row->router, row->logits, scratch, row->exact);
    memcpy(row->routes, row->exact, sizeof row->routes);
    uint32_t replaced =
        resident_first_row(&row->rule, &row->router, row->logits, asks, row, &work, row->routes);
    resident_first_work_free(&work);
    return replaced;
}

static bool has(const struct route *routes, uint32_t count, uint32_t expert)
{
    for (uint32_t i = 0; i < count; i++)
        if (routes[i].expert == expert)
            return true;
    return false;
}

/* The first ranks, then the largest of logit + nats for resident ones; equal ones: the exact choice
 * first, as a replacement needs no gain. */
static void oracle(const struct row *row, bool *chosen)
{
    memset(chosen, 0, EXPERTS * sizeof *chosen);
    uint32_t k = row->router.top_k;
    for (uint32_t n = 0; n < k; n++) {
        uint32_t best = EXPERTS;
        float top = 0;
        for (uint32_t e = 0; e < EXPERTS; e++) {
            float score = row->logits[e] + (row->resident[e] ? row->rule.nats : 0);
            if (!chosen[e] && (best == EXPERTS || score > top)) {
                best = e;
                top = score;
            }
        }
        if (n < row->rule.exact_ranks)
            best = row->exact[n].expert;
        chosen[best] = true;
    }
}

/* Rules whose margins are logits. */
START_TEST(chooses_the_largest_with_the_bias)
{
    uint32_t replaced = 0;
    seed = 5;
    for (uint32_t round = 0; round < 4000; round++) {
        struct row row;
        bool chosen[EXPERTS];
        uint32_t differ = 0;
        make_row(&row, round);
        uint32_t n = route_row(&row);
        oracle(&row, chosen);
        for (uint32_t i = 0; i < row.router.top_k; i++) {
            ck_assert_msg(chosen[row.routes[i].expert], "round %u: rank %u", round, i);
            differ += !has(row.exact, row.router.top_k, row.routes[i].expert);
        }
        for (uint32_t i = 0; i < row.rule.exact_ranks && i < row.router.top_k; i++)
            ck_assert_uint_eq(row.routes[i].expert, row.exact[i].expert);
        ck_assert_uint_eq(n, differ);
        replaced += n;
    }
    ck_assert_uint_gt(replaced, 2000);
}
END_TEST

/* Without a replacement the routes keep their bits, and nothing else is asked for when no expert is
 * missing. The weights of the exact choice are those of routing_exact. */
START_TEST(nothing_missing_changes_nothing)
{
    seed = 6;
    for (uint32_t round = 0; round < 1000; round++) {
        struct row row;
        struct route again[TOP_K];
        float scratch[EXPERTS];
        make_row(&row, round);
        for (uint32_t e = 0; e < EXPERTS; e++)
            row.resident[e] = round % 2 == 0;
        row.rule.nats = 100;
        ck_assert_uint_eq(route_row(&row), 0);
        ck_assert_mem_eq(row.routes, row.exact, sizeof row.routes);
        ck_assert(round % 2 == 1 || row.asked == row.router.top_k);
        memcpy(again, row.exact, sizeof again);
        for (uint32_t i = 0; i < row.router.top_k; i++)
            again[i].weight = NAN;
        routing_weights(&row.router, row.logits, row.router.top_k, scratch, again);
        ck_assert_mem_eq(again, row.exact, row.router.top_k * sizeof *again);
    }
}
END_TEST

/* A softmax over all experts, not normalised over the chosen ones: an expert that stays keeps its
 * weight, and one that comes in has its own. */
START_TEST(weights_are_those_of_the_router)
{
    seed = 7;
    for (uint32_t round = 0; round < 1000; round++) {
        struct row row;
        double sum = 0;
        make_row(&row, round);
        row.router.gating = ROUTER_SOFTMAX;
        row.router.normalise = false;
        row.router.scale = 0;
        (void)route_row(&row);
        for (uint32_t e = 0; e < EXPERTS; e++)
            sum += exp((double)row.logits[e]);
        for (uint32_t i = 0; i < row.router.top_k; i++)
            ck_assert_double_eq_tol(row.routes[i].weight,
                                    exp((double)row.logits[row.routes[i].expert]) / sum, 1e-6);
    }
}
END_TEST

/* What the weights are proportional to. */
START_TEST(shares_are_proportional_to_weights)
{
    seed = 8;
    for (uint32_t round = 0; round < 1000; round++) {
        struct row row;
        float share[EXPERTS];
        make_row(&row, round);
        if (row.router.gating == ROUTER_SPARSE_MIXER)
            continue;
        (void)route_row(&row);
        routing_shares(&row.router, row.logits, share);
        for (uint32_t i = 1; i < row.router.top_k; i++)
            ck_assert_double_eq_tol(
                (double)row.routes[i].weight / (double)row.routes[0].weight,
                (double)share[row.routes[i].expert] / (double)share[row.routes[0].expert], 1e-5);
    }
}
END_TEST

/* A missing expert that was replaced does not make the weight of its replacement smaller: 1.7 has
 * no neighbour below, as if 2.0 were masked. */
START_TEST(sparse_mixer_masks_what_is_missing)
{
    struct row row = {.router = {.experts = 4, .top_k = 2, .gating = ROUTER_SPARSE_MIXER},
                      .logits = {3.0f, 2.0f, 1.7f, -3.0f},
                      .resident = {true, false, true, true},
                      .rule = {.nats = 0.4f, .exact_ranks = 1}};
    struct route masked[TOP_K];
    const bool allowed[] = {true, false, true, true};
    float scratch[ROUTING_SCRATCH(EXPERTS)];
    ck_assert_uint_eq(route_row(&row), 1);
    ck_assert_uint_eq(row.routes[1].expert, 2);
    ck_assert(row.routes[1].weight == 1.0f);
    ck_assert_uint_eq(routing_masked(&row.router, row.logits, allowed, scratch, masked), 2);
    ck_assert(masked[1].weight == row.routes[1].weight);
}
END_TEST

/* Not even for an expert that is equally good; with it, more than 0 nats suffice. */
START_TEST(no_nats_are_exact_routing)
{
    struct row row = {.router = {.experts = 4, .top_k = 2, .gating = ROUTER_SOFTMAX},
                      .logits = {3.0f, 2.0f, 2.0f, -3.0f},
                      .resident = {true, false, true, true},
                      .rule = {.nats = 0, .exact_ranks = 1}};
    const struct routing_candidate c[] = {{0, 3.0f}, {1, 2.0f}, {2, 2.0f}};
    uint32_t expert[2];
    ck_assert_uint_eq(route_row(&row), 0);
    ck_assert_uint_eq(row.asked, 0);
    ck_assert_uint_eq(resident_first_choose(&row.rule, c, 3, 2, row.resident, expert), 0);
    row.rule.nats = 1e-6f;
    ck_assert_uint_eq(route_row(&row), 1);
}
END_TEST

/* With groups, no expert outside those that the row uses is chosen, however many nats. With a bias,
 * a replacement is within nats of the margin. */
START_TEST(groups_and_biases_hold)
{
    uint32_t replaced = 0;
    seed = 9;
    for (uint32_t round = 0; round < 2000; round++) {
        struct row row;
        float p[EXPERTS], score[EXPERTS], scratch[ROUTING_MARGIN_SCRATCH(EXPERTS)], margin[EXPERTS],
            worst = INFINITY;
        make_row(&row, round);
        row.router.gating = round % 2 ? ROUTER_SIGMOID : ROUTER_SOFTMAX;
        row.router.bias = row.bias;
        row.router.groups = round % 3 ? 4 : 1;
        row.router.groups_used = 2;
        replaced += route_row(&row);
        routing_scores(&row.router, row.logits, scratch, p, score);
        routing_margins(&row.router, row.logits, scratch, margin);
        for (uint32_t i = 0; i < row.router.top_k; i++)
            worst = fminf(worst, margin[row.exact[i].expert]);
        for (uint32_t i = 0; i < row.router.top_k; i++) {
            uint32_t e = row.routes[i].expert;
            ck_assert(score[e] > -INFINITY);
            ck_assert(margin[e] + row.rule.nats >= worst);
        }
    }
    ck_assert_uint_gt(replaced, 500);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("resident_first");
    TCase *c = tcase_create("rows");
    suite_add_tcase(s, c);
    tcase_add_test(c, chooses_the_largest_with_the_bias);
    tcase_add_test(c, nothing_missing_changes_nothing);
    tcase_add_test(c, weights_are_those_of_the_router);
    tcase_add_test(c, shares_are_proportional_to_weights);
    tcase_add_test(c, sparse_mixer_masks_what_is_missing);
    tcase_add_test(c, no_nats_are_exact_routing);
    tcase_add_test(c, groups_and_biases_hold);
    SRunner *runner = srunner_create(s);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed > 0;
}
