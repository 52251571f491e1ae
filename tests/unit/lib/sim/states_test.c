/* SPDX-License-Identifier: Apache-2.0 */
/* The simulator's answers to the table of directory states and inputs. */
#include <check.h>

#include "lib/sim/sim.h"
#include "tests/unit/lib/policy/access/states.h"

#define EXPERT_BYTES 1000000
#define SETTINGS     "prediction=next-layer,prefetch=all,high=native,low=int4,boundary=1"

static enum sim_outcome access_one(struct sim_cache *c, uint32_t position,
                                   const struct sim_access *access, bool prefill,
                                   enum precision *precision)
{
    struct sim_access_result result;
    sim_cache_layer(c, &(struct sim_step){1, position, 1, prefill ? 4 : 1, prefill}, 1);
    sim_cache_access(c, access, &result);
    (void)sim_cache_compute(c);
    sim_cache_token(c);
    *precision = result.precision;
    return result.outcome;
}

/* Starts the read of expert 0: layer 0 predicts it, and the device needs longer than the layer. */
static void load_ahead(struct sim_cache *c, uint32_t position, const struct states_row *row)
{
    struct prediction p = {
        .expert = 0, .probability = 1, .weight_before = row->low == PRECISION_LOADING ? 0.7f : 0};
    sim_cache_layer(c, &(struct sim_step){1, position, 0, row->prefill ? 4 : 1, row->prefill}, 1);
    (void)sim_cache_hint(c, 0, 1, &p, 1);
    (void)sim_cache_compute(c);
}

/* A cache in which expert 0 of layer 1 is in these states; it gets there by accesses: prefill's
 * most popular experts and hobbit's first rank at high precision, the least popular and t1 < s <=
 * t2 at low. */
static struct sim_cache *cache_in(const struct states_row *row, const char *more)
{
    static const char *const presets[] = {[PRECISION_RULE_LOSSLESS] = "lod",
                                          [PRECISION_RULE_UNIFORM_INT4] = "iq4",
                                          [PRECISION_RULE_HOBBIT] = "hobbit",
                                          [PRECISION_RULE_FATE] = "fate",
                                          [PRECISION_RULE_DROP] = "lod"};
    struct error error;
    struct sim_config k = {
        .layers = 2,
        .experts = 8,
        .top_k = 2,
        .capacity = 32ull * EXPERT_BYTES,
        .precision_mask = STATES_MASK,
        .precision_bytes = {[PRECISION_NATIVE] = EXPERT_BYTES, [PRECISION_INT4] = EXPERT_BYTES / 4},
        .storage = {.bytes_per_s = 1e8, .latency_ns = 1e5, .depth = 16},
        .compute = {.layer_ns = 4e5, .expert_ns = 1e5, .predict_ns = 1e4, .batch = 0.25}};
    int rv = knobs_resolve(presets[row->rule], NULL,
                           row->slow ? SETTINGS ",slow_device=on" : SETTINGS, &k.knobs, &error);
    if (rv == 0 && row->rule == PRECISION_RULE_DROP)
        rv = knobs_apply(&k.knobs, "precision=drop", &error);
    if (rv == 0)
        rv = knobs_apply(&k.knobs, more, &error);
    ck_assert_msg(rv == 0, "%s", error.text);
    enum precision precision;
    struct sim_cache *c = sim_cache_create(&k, &error);
    ck_assert_msg(c != NULL, "%s", error.text);
    if (row->low == PRECISION_READY)
        access_one(c, 0,
                   &(struct sim_access){.tokens = 1, .weight_before = 0.7f, .popularity = 0.9f},
                   true, &precision);
    if (row->high == PRECISION_READY)
        access_one(c, 4, &(struct sim_access){.tokens = 1}, true, &precision);
    if (row->high == PRECISION_LOADING || row->low == PRECISION_LOADING)
        load_ahead(c, 8, row);
    return c;
}

/* Whether accesses and one prediction can make the row's states: one precision loads, and rules
 * with one precision load no other. */
static bool reachable(const struct states_row *row)
{
    bool two = row->rule == PRECISION_RULE_HOBBIT || row->rule == PRECISION_RULE_FATE;
    bool native = row->rule == PRECISION_RULE_LOSSLESS || row->rule == PRECISION_RULE_DROP;
    enum precision_state other = native ? row->low : row->high;
    if (row->high == PRECISION_LOADING && row->low == PRECISION_LOADING)
        return false;
    return two || other != PRECISION_READY;
}

START_TEST(states_of_the_directory)
{
    static const enum sim_outcome outcomes[] = {[PRECISION_HIT] = SIM_HIT,
                                                [PRECISION_INFLIGHT] = SIM_INFLIGHT,
                                                [PRECISION_MISS] = SIM_MISS,
                                                [PRECISION_SKIPPED] = SIM_SKIPPED};
    uint32_t answered = 0;
    for (uint32_t i = 0; i < (uint32_t)STATES_ROWS; i++) {
        const struct states_row *row = &states_rows[i];
        enum precision precision;
        if (!reachable(row))
            continue;
        struct sim_cache *c = cache_in(row, "");
        struct sim_access access = {
            .tokens = 1, .weight_before = row->weight_before, .popularity = row->popularity};
        ck_assert_msg(access_one(c, 8, &access, row->prefill, &precision) == outcomes[row->outcome],
                      "row %u", i);
        if (row->outcome != PRECISION_SKIPPED)
            ck_assert_msg(precision == row->precision, "row %u", i);
        sim_cache_destroy(c);
        answered++;
    }
    ck_assert_uint_ge(answered, 26);
}
END_TEST

/* On a slow device a prediction whose read has not started is no reason for high precision. */
START_TEST(prediction_without_a_read)
{
    const struct states_row *row = &states_rows[STATES_ROWS - 5];
    struct sim_cache *c = cache_in(row, "prefetch=none");
    enum precision precision;
    ck_assert(row->slow && row->high == PRECISION_ABSENT && row->low == PRECISION_ABSENT);
    load_ahead(c, 8, row);
    ck_assert_int_eq(access_one(c, 8, &(struct sim_access){.tokens = 1}, false, &precision),
                     SIM_MISS);
    ck_assert_int_eq(precision, PRECISION_INT4);
    sim_cache_destroy(c);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("sim states");
    TCase *c = tcase_create("states");
    tcase_add_test(c, states_of_the_directory);
    tcase_add_test(c, prediction_without_a_read);
    suite_add_tcase(s, c);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_NORMAL);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed == 0 ? 0 : 1;
}
