/* SPDX-License-Identifier: Apache-2.0 */
/* Rules that engine, deterministic mode and simulator share: lists for chunks, precisions of
 * predictions, what serves an access, and what becomes of older lists. */
#include <check.h>

#include "lib/base/bytes.h"
#include "lib/policy/access/precision.h"
#include "lib/policy/prediction/prediction.h"

#define A PRECISION_ABSENT
#define L PRECISION_LOADING
#define R PRECISION_READY

/* ---- lists of a chunk ---- */

static uint32_t chunk_list(enum prediction_kind kind, bool whole, struct prediction *out)
{
    static const float tokens[8] = {0, 5, 2, 0, 5, 1, 0, 9},
                       before[8] = {9, 0.1f, 0.2f, 9, 0, 0.95f, 9, 0.3f};
    struct prediction_chunk in = {tokens, before, 8, whole};
    return prediction_chunk_run(prediction_method_of(kind), &in, out);
}

START_TEST(lists_for_chunks)
{
    static const uint32_t order[] = {7, 1, 4, 2, 5, 0, 3, 6};
    static const enum prediction_kind none[] = {PREDICTION_NONE, PREDICTION_PATH1, PREDICTION_PATH2,
                                                PREDICTION_FREQUENCY};
    struct prediction list[8];
    for (uint32_t whole = 0; whole < 2; whole++) {
        ck_assert_uint_eq(chunk_list(whole ? PREDICTION_NEXT_LAYER : PREDICTION_FATE, whole, list),
                          whole ? 8 : 5);
        for (uint32_t i = 0; i < (whole ? 8 : 5); i++)
            ck_assert_uint_eq(list[i].expert, order[i]);
        ck_assert_float_eq(list[4].weight_before, 0.95f);
    }
    ck_assert_float_eq(list[5].probability, 0); /* no token is predicted to access it */
    ck_assert_float_eq(list[5].weight_before, 1);
    static const float few[8] = {0, 3, 0, 0, 4}, zero[8] = {0};
    struct prediction_chunk in = {few, zero, 8, true}; /* 7 accesses do not touch 8 experts */
    ck_assert_uint_eq(prediction_chunk_run(prediction_method_of(PREDICTION_NEXT_LAYER), &in, list),
                      2);
    ck_assert_uint_eq(chunk_list(PREDICTION_LAYER, false, list), 8);
    for (uint32_t i = 0; i < 8; i++)
        ck_assert_uint_eq(list[i].expert, i);
    for (uint32_t i = 0; i < ARRAY_LEN(none); i++)
        ck_assert_uint_eq(chunk_list(none[i], true, list), 0);
}
END_TEST

/* The precision of a predicted expert: by predicted popularity in Fate's prefill, by predicted
 * weights in HOBBIT; in decode HOBBIT leaves out what an access would skip. */
START_TEST(precisions_of_predictions)
{
    const uint32_t both = 1u << PRECISION_NATIVE | 1u << PRECISION_INT4;
    struct precision_policy fate = {
        PRECISION_RULE_FATE, PRECISION_NATIVE, PRECISION_INT4, 0, 0, 0.25f, false};
    struct precision_policy hobbit = {
        PRECISION_RULE_HOBBIT, PRECISION_NATIVE, PRECISION_INT4, 0.6f, 0.9f, 0, false};
    struct prediction list[8];
    enum precision precision;
    uint32_t low = 0;
    for (uint32_t i = 0; i < 16; i++)
        for (uint32_t prefill = 0; prefill < 2; prefill++) {
            struct precision_predicted in = {.at = i, .count = 16, .prefill = prefill};
            ck_assert(precision_predict(&fate, &in, both, &precision));
            ck_assert_int_eq(precision == PRECISION_INT4, prefill && i >= 12);
            low += precision == PRECISION_INT4;
        }
    ck_assert_uint_eq(low, 4); /* floor(p n) */
    uint32_t n = chunk_list(PREDICTION_NEXT_LAYER, true, list);
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t prefill = 0; prefill < 2; prefill++) {
            struct precision_predicted in = {
                .at = i, .count = n, .weight_before = list[i].weight_before, .prefill = prefill};
            bool skipped = !prefill && list[i].weight_before > 0.9f;
            ck_assert(precision_predict(&hobbit, &in, both, &precision) == !skipped);
            if (!skipped)
                ck_assert_int_eq(precision,
                                 list[i].weight_before > 0.6f ? PRECISION_INT4 : PRECISION_NATIVE);
        }
    struct precision_predicted in = {.at = 15, .count = 16, .prefill = true};
    ck_assert(precision_predict(&fate, &in, 1u << PRECISION_NATIVE, &precision));
    ck_assert_int_eq(precision, PRECISION_NATIVE); /* not stored at low */
}
END_TEST

/* Lists: reached layers, and what becomes of loads. */
START_TEST(lists_pass_and_are_replaced)
{
    struct prediction_place now = {7, 40, 3}, list = {7, 40, 4};
    ck_assert(!prediction_passed(&now, &list));
    list.layer = 3;
    ck_assert(prediction_passed(&now, &list));
    list = (struct prediction_place){7, 39, 5};
    ck_assert(prediction_passed(&now, &list));
    list = (struct prediction_place){7, 41, 0};
    ck_assert(!prediction_passed(&now, &list));
    list = (struct prediction_place){6, 39, 2};
    ck_assert(!prediction_passed(&now, &list)); /* another sequence is elsewhere */
    struct prediction_place newer = {7, 40, 5}, older = {7, 40, 5};
    ck_assert(prediction_keeps_loads(&older, &newer));
    older.position = 39;
    ck_assert(!prediction_keeps_loads(&older, &newer));
    older = (struct prediction_place){6, 40, 5};
    ck_assert(!prediction_keeps_loads(&older, &newer));
}
END_TEST

/* Directory states against a choice: the one rule of engine, deterministic mode and simulator. */
START_TEST(states_decide_what_serves)
{
    static const struct precision_choice
        either = {NEED_LOW, PRECISION_INT4, 2, {PRECISION_NATIVE, PRECISION_INT4}},
        high = {NEED_HIGH, PRECISION_NATIVE, 1, {PRECISION_NATIVE}},
        skip = {NEED_SKIP, PRECISION_INT4, 2, {PRECISION_NATIVE, PRECISION_INT4}};
    static const struct {
        const struct precision_choice *choice;
        enum precision_state native, int4;
        enum precision_outcome outcome;
        enum precision precision;
    } t[] = {{&either, A, A, PRECISION_MISS, PRECISION_INT4},
             {&either, L, A, PRECISION_INFLIGHT, PRECISION_NATIVE}, /* no second load */
             {&either, L, L, PRECISION_INFLIGHT, PRECISION_NATIVE},
             {&either, A, L, PRECISION_INFLIGHT, PRECISION_INT4},
             {&either, L, R, PRECISION_HIT, PRECISION_INT4},
             {&either, R, L, PRECISION_HIT, PRECISION_NATIVE},
             {&either, R, R, PRECISION_HIT, PRECISION_NATIVE},
             {&high, A, R, PRECISION_MISS, PRECISION_NATIVE},
             {&high, L, R, PRECISION_INFLIGHT, PRECISION_NATIVE},
             {&high, R, A, PRECISION_HIT, PRECISION_NATIVE},
             {&skip, A, A, PRECISION_SKIPPED, PRECISION_NATIVE},
             {&skip, L, L, PRECISION_SKIPPED, PRECISION_NATIVE},
             {&skip, A, R, PRECISION_HIT, PRECISION_INT4},
             {&skip, R, R, PRECISION_HIT, PRECISION_NATIVE}};
    for (uint32_t i = 0; i < ARRAY_LEN(t); i++) {
        enum precision_state state[PRECISION__COUNT] = {
            [PRECISION_NATIVE] = t[i].native, [PRECISION_INT4] = t[i].int4};
        enum precision precision;
        ck_assert_msg(precision_serve(t[i].choice, state, &precision) == t[i].outcome, "row %u", i);
        ck_assert_int_eq(precision, t[i].precision);
    }
    struct precision_choice limited = either;
    precision_limit(&limited, 1u << PRECISION_NATIVE);
    ck_assert_uint_eq(limited.accept_count, 1);
    ck_assert_int_eq(limited.request, PRECISION_NATIVE);
    limited = high;
    precision_limit(&limited, 1u << PRECISION_INT8 | 1u << PRECISION_INT2);
    ck_assert_int_eq(limited.request, PRECISION_INT8); /* the best there is */
    ck_assert_int_eq(limited.accept[0], PRECISION_INT8);
}
END_TEST

static struct precision_choice choose(struct precision_policy p, struct precision_input in)
{
    struct precision_choice c;
    precision_choose(&p, &in, &c);
    return c;
}

/* As hobbit with each expert's own precisions. */
START_TEST(mixed_two_precision)
{
    static const float sums[] = {0, 0.3f, 0.6f, 0.7f, 0.9f, 0.95f};
    struct precision_policy mixed = {.rule = PRECISION_RULE_MIXED_TWO, .t1 = 0.6f, .t2 = 0.9f};
    for (enum precision high = PRECISION_NATIVE; high < PRECISION__COUNT; high++)
        for (enum precision low = high; low < PRECISION__COUNT; low++)
            for (size_t i = 0; i < ARRAY_LEN(sums); i++) {
                struct precision_policy two = {
                    PRECISION_RULE_HOBBIT, high, low, 0.6f, 0.9f, 0, false};
                struct precision_choice a =
                    choose(mixed, (struct precision_input){.weight_before = sums[i],
                                                           .planned = {high, low}});
                struct precision_choice b =
                    choose(two, (struct precision_input){.weight_before = sums[i]});
                ck_assert_int_eq(a.need, b.need);
                ck_assert_int_eq(a.request, b.request);
                ck_assert_uint_eq(a.accept_count, b.accept_count);
                ck_assert_mem_eq(a.accept, b.accept, a.accept_count * sizeof a.accept[0]);
            }
    ck_assert_uint_eq(precision_policy_mask(&mixed, 0xd), 0xd);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("shared rules");
    TCase *c = tcase_create("shared rules");
    tcase_add_test(c, lists_for_chunks);
    tcase_add_test(c, mixed_two_precision);
    tcase_add_test(c, precisions_of_predictions);
    tcase_add_test(c, lists_pass_and_are_replaced);
    tcase_add_test(c, states_decide_what_serves);
    suite_add_tcase(s, c);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_NORMAL);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed == 0 ? 0 : 1;
}
