/* SPDX-License-Identifier: Apache-2.0 */
/* The synthetic routing that the estimate of doctor replays. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "lib/sim/routing.h"

static uint32_t chosen_twice(const struct trace_record *r, uint32_t k)
{
    uint32_t twice = 0;
    for (uint32_t i = 0; i < k; i++)
        for (uint32_t j = i + 1; j < k; j++)
            twice += r[i].expert == r[j].expert;
    return twice;
}

/* A valid trace, the same each time; every layer chooses top_k different experts, a prompt top_k
 * per token. */
START_TEST(routing_is_a_trace)
{
    struct routing r = {.layers = 4,
                        .model_layers = 8,
                        .experts = 40,
                        .top_k = 6,
                        .expert_bytes = MIB,
                        .prompt = 100,
                        .chunk = 64,
                        .tokens = 20};
    struct trace t, again;
    struct error error;
    uint64_t measure, accesses = 0, prompt = 0, seen = 0, predicted = 0;
    ck_assert_int_eq(routing_trace(&r, &t, &measure, &error), 0);
    ck_assert_msg(trace_check(&t.header, t.records, t.count, &error) == 0, "%s", error.text);
    ck_assert_int_eq(t.records[measure].kind, TRACE_SEQUENCE_START);
    ck_assert_uint_eq(t.records[measure].sequence, 1);
    for (uint64_t i = 0; i < t.count; i++) {
        const struct trace_record *x = &t.records[i];
        prompt += x->kind == TRACE_EXPERT && x->prefill ? x->tokens : 0;
        accesses += x->kind == TRACE_EXPERT && !x->prefill;
        if (x->kind == TRACE_EXPERT && !x->prefill && x->rank == 0)
            ck_assert_uint_eq(chosen_twice(x, 6), 0);
        if (x->kind != TRACE_PREDICTED || x->prefill || x->from_layer + 1 != x->layer)
            continue;
        predicted++;
        for (uint64_t j = i; t.records[j].kind != TRACE_TOKEN_END; j++)
            seen += t.records[j].kind == TRACE_EXPERT && t.records[j].layer == x->layer &&
                    t.records[j].expert == x->expert;
    }
    ck_assert_uint_eq(accesses, 2 * 20 * 4 * 6);
    ck_assert_uint_eq(prompt, 2 * 100 * 4 * 6);
    ck_assert_uint_eq(predicted, 2 * 20 * 3 * 6);
    ck_assert_double_eq_tol((double)seen / (double)predicted, 0.77, 0.1);
    ck_assert_int_eq(routing_trace(&r, &again, &measure, &error), 0);
    ck_assert_uint_eq(again.count, t.count);
    ck_assert_mem_eq(again.records, t.records, t.count * sizeof *t.records);
    trace_free(&t);
    trace_free(&again);
}
END_TEST

/* Experts of a token in the last sequence, as a bit each; false: the token is not decoded. */
static bool experts_at(const struct trace *t, uint64_t measure, uint32_t position, uint32_t layer,
                       enum trace_kind kind, uint64_t *experts)
{
    *experts = 0;
    for (uint64_t i = measure; i < t->count; i++) {
        const struct trace_record *x = &t->records[i];
        if (x->kind == kind && !x->prefill && x->layer == layer && x->position == position &&
            (kind == TRACE_EXPERT || x->from_layer + 1u == layer))
            *experts |= 1ull << x->expert;
    }
    return *experts != 0;
}

/* Of a table: k experts of each token, which are as often those of the token before as random ones
 * are, while routers repeat more; no logits; predictions are right. Other layers are as without a
 * table. */
START_TEST(routing_of_a_table)
{
    struct routing r = {.layers = 3,
                        .model_layers = 3,
                        .experts = 64,
                        .top_k = 8,
                        .expert_bytes = MIB,
                        .chunk = 1,
                        .tokens = 200};
    struct trace plain, t;
    struct error error;
    uint64_t measure, logits[3] = {0}, again[3] = {0}, now, before, other;
    ck_assert_int_eq(routing_trace(&r, &plain, &measure, &error), 0);
    uint64_t plain_measure = measure;
    r.table_layers = 2;
    ck_assert_int_eq(routing_trace(&r, &t, &measure, &error), 0);
    ck_assert_msg(trace_check(&t.header, t.records, t.count, &error) == 0, "%s", error.text);
    ck_assert_uint_eq(t.header.table_layers, 2);
    for (uint64_t i = 0; i < t.count; i++)
        if (t.records[i].kind == TRACE_LOGITS)
            logits[t.records[i].layer]++;
    ck_assert(logits[0] == 0 && logits[1] == 0 && logits[2] > 0);
    for (uint32_t p = 1; p < 200; p++)
        for (uint32_t l = 0; l < 3; l++) {
            ck_assert(experts_at(&t, measure, p, l, TRACE_EXPERT, &now) &&
                      experts_at(&t, measure, p - 1, l, TRACE_EXPERT, &before));
            ck_assert_int_eq(__builtin_popcountll(now), 8);
            again[l] += (uint64_t)__builtin_popcountll(now & before);
            if (l == 1 && experts_at(&t, measure, p, l, TRACE_PREDICTED, &other))
                ck_assert_uint_eq(other, now);
            if (l == 2 && experts_at(&plain, plain_measure, p, l, TRACE_EXPERT, &other))
                ck_assert_uint_eq(other, now);
        }
    for (uint32_t l = 0; l < 2; l++) /* 8 of 8 * 8/64 each */
        ck_assert_double_eq_tol((double)again[l] / 199, 1, 0.25);
    ck_assert_double_gt((double)again[2] / 199, 2.5);
    trace_free(&plain);
    trace_free(&t);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("doctor routing");
    TCase *t = tcase_create("routing");
    tcase_set_timeout(t, 120);
    tcase_add_test(t, routing_is_a_trace);
    tcase_add_test(t, routing_of_a_table);
    suite_add_tcase(suite, t);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
