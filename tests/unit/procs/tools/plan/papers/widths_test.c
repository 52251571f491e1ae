/* SPDX-License-Identifier: Apache-2.0 */
/* EdgeMoE's search over precisions, on losses that are sums of known terms: dense weights add a
 * fixed loss, every expert one that depends on its precision. */
#include <check.h>
#include <math.h>
#include <string.h>

#include "procs/tools/plan/papers/widths.h"

#define CELLS 100u

struct synthetic {
    double dense_loss[PRECISION__COUNT], expert_loss[PRECISION__COUNT]; /* of all experts */
    uint64_t dense_bytes[PRECISION__COUNT];
    uint64_t bytes[PRECISION__COUNT]; /* of an expert */
    uint64_t first_native;            /* of the first ten experts; 0: as the others */
    uint32_t measured, failing;       /* measurements; the one that fails (0: none) */
};

static int measure(void *arg, const char *what, enum precision dense, const uint8_t *precision,
                   struct offline_interval *loss, struct error *error)
{
    struct synthetic *s = arg;
    if (++s->measured == s->failing)
        return error_set(error, ERR_IO, "failed: %s", what);
    loss->value = s->dense_loss[dense];
    for (uint32_t i = 0; i < CELLS; i++)
        loss->value += s->expert_loss[precision[i]] / CELLS;
    loss->low = loss->high = loss->value;
    return 0;
}

/* The last expert first. */
static void order(void *arg, enum precision high, enum precision low, uint64_t *out)
{
    (void)arg;
    ck_assert(low > high);
    for (uint32_t i = 0; i < CELLS; i++)
        out[i] = CELLS - 1 - i;
}

static uint64_t dense_bytes(void *arg, enum precision dense)
{
    return ((const struct synthetic *)arg)->dense_bytes[dense];
}

static uint64_t cell_bytes(void *arg, uint64_t cell, enum precision precision)
{
    const struct synthetic *s = arg;
    if (precision == PRECISION_NATIVE && cell < 10 && s->first_native > 0)
        return s->first_native;
    return s->bytes[precision];
}

/* Experts: 0.1 % at int8, 1 % at int4, 11 % at int2. */
static struct synthetic usual(void)
{
    return (struct synthetic){.dense_loss = {0, 0.001, 0.004, 0},
                              .expert_loss = {0, 0.001, 0.01, 0.11},
                              .dense_bytes = {800, 400, 200, 0},
                              .bytes = {80, 40, 20, 10}};
}

static uint8_t chosen[CELLS];

static int search(struct synthetic *s, double max_loss, uint32_t dense, struct widths *best,
                  struct error *error)
{
    const struct width_search w = {.arg = s,
                                   .cells = CELLS,
                                   .max_loss = max_loss,
                                   .dense = dense,
                                   .measure = measure,
                                   .order = order,
                                   .dense_bytes = dense_bytes,
                                   .cell_bytes = cell_bytes};
    *best = (struct widths){.precision = chosen};
    return widths_search(&w, best, error);
}

struct expected {
    double max_loss;
    uint64_t dense_bytes[3];
    enum precision dense, high, low;
    uint64_t low_count;
};

/* Of 100 experts n at int2, the others at int4: 1 % + n * 0.1 %, and the dense loss. */
static const struct expected cases[] = {
    /* 2 %: native 10 experts lower, int8 9, int4 6; dense bytes decide for int4 */
    {0.02001, {800, 400, 200}, PRECISION_INT4, PRECISION_INT4, PRECISION_INT2, 6},
    /* int4 saves 10 bytes of dense weights, and costs 4 experts of 10 bytes: native */
    {0.02001, {800, 799, 790}, PRECISION_NATIVE, PRECISION_INT4, PRECISION_INT2, 10},
    /* int8 costs one expert of 10 bytes and saves 11 */
    {0.02001, {800, 789, 788}, PRECISION_INT8, PRECISION_INT4, PRECISION_INT2, 9},
    /* int4 alone exceeds 0.3 %; with int8 0.2 % remain for experts: int8, and 11 of 100 at int4 */
    {0.00301, {800, 400, 1}, PRECISION_INT8, PRECISION_INT8, PRECISION_INT4, 11},
    /* everything keeps to P: the lowest */
    {0.5, {800, 400, 200}, PRECISION_INT4, PRECISION_INT2, PRECISION_INT2, 0},
};

START_TEST(chooses_the_fewest_bytes)
{
    const struct expected *want = &cases[_i];
    struct synthetic s = usual();
    struct widths best;
    struct error error;
    memcpy(s.dense_bytes, want->dense_bytes, sizeof want->dense_bytes);
    int status = search(&s, want->max_loss, PRECISION_DENSE, &best, &error);
    ck_assert_msg(status == 0, "%s", error.text);
    ck_assert_int_eq(best.dense, want->dense);
    ck_assert_int_eq(best.high, want->high);
    ck_assert_int_eq(best.low, want->low);
    ck_assert_uint_eq(best.low_count, want->low_count);
    for (uint32_t i = 0; i < CELLS; i++)
        ck_assert_int_eq(chosen[i], i >= CELLS - best.low_count ? best.low : best.high);
    ck_assert_uint_eq(best.dense_bytes, want->dense_bytes[best.dense]);
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < CELLS; i++)
        bytes += s.bytes[chosen[i]];
    ck_assert_uint_eq(best.expert_bytes, bytes);
    ck_assert(best.loss.value <= want->max_loss);
    double uniform = s.dense_loss[best.dense] + s.expert_loss[PRECISION_INT8];
    ck_assert_double_eq_tol(best.uniform[PRECISION_INT8].value, uniform, 1e-12);
}
END_TEST

/* A given dense precision is kept, or the error names it. */
START_TEST(given_dense_precision)
{
    struct synthetic s = usual();
    struct widths best;
    struct error error;
    ck_assert_int_eq(search(&s, 0.02001, 1u << PRECISION_NATIVE, &best, &error), 0);
    ck_assert_int_eq(best.dense, PRECISION_NATIVE);
    ck_assert_uint_eq(best.low_count, 10);
    ck_assert_int_eq(search(&s, 0.003, 1u << PRECISION_INT4, &best, &error), -1);
    ck_assert_int_eq(error.code, ERR_NO_PLAN);
    ck_assert_msg(strstr(error.text, "dense weights at int4 alone lose 0.40 %") != NULL, "%s",
                  error.text);
}
END_TEST

/* If not even int8 keeps to P, experts stay native, or some of them are at int8. */
START_TEST(tight_bound)
{
    struct synthetic s = usual();
    struct widths best;
    struct error error;
    ck_assert_int_eq(search(&s, 0.000501, PRECISION_DENSE, &best, &error), 0);
    ck_assert_int_eq(best.dense, PRECISION_NATIVE);
    ck_assert_int_eq(best.high, PRECISION_NATIVE);
    ck_assert_int_eq(best.low, PRECISION_INT8);
    ck_assert_uint_eq(best.low_count, 50);
}
END_TEST

/* Experts like those of Q4_0: int8 and int4 would lose quality and save nothing. */
START_TEST(precisions_that_are_not_smaller)
{
    struct synthetic s = usual();
    struct widths best;
    struct error error;
    memcpy(s.bytes, (uint64_t[]){18, 34, 18, 10}, sizeof s.bytes);
    ck_assert_int_eq(search(&s, 0.02201, 1u << PRECISION_NATIVE, &best, &error), 0);
    ck_assert_uint_eq(best.uniform_mask, 1u << PRECISION_INT2);
    ck_assert_int_eq(best.high, PRECISION_NATIVE);
    ck_assert_int_eq(best.low, PRECISION_INT2);
    ck_assert_uint_eq(best.low_count, 20);
    for (uint32_t i = 0; i < CELLS; i++)
        ck_assert_int_eq(chosen[i], i < 80 ? PRECISION_NATIVE : PRECISION_INT2);
}
END_TEST

/* Sizes that differ between layers: experts that are small already keep their type. */
START_TEST(experts_that_are_small_already)
{
    struct synthetic s = usual();
    struct widths best;
    struct error error;
    s.first_native = 15;
    ck_assert_int_eq(search(&s, 0.02001, 1u << PRECISION_NATIVE, &best, &error), 0);
    ck_assert_int_eq(best.high, PRECISION_INT4);
    for (uint32_t i = 0; i < CELLS; i++)
        ck_assert_int_eq(chosen[i], i < 10                       ? PRECISION_NATIVE
                                    : i < CELLS - best.low_count ? PRECISION_INT4
                                                                 : PRECISION_INT2);
}
END_TEST

/* Whatever losses are measured, below 0 the model is left as it is. */
START_TEST(no_loss_at_all)
{
    struct synthetic s = usual();
    struct widths best;
    struct error error;
    s.expert_loss[PRECISION_INT8] = s.dense_loss[PRECISION_INT8] = -0.001;
    ck_assert_int_eq(search(&s, (double)-INFINITY, PRECISION_DENSE, &best, &error), 0);
    ck_assert_int_eq(best.dense, PRECISION_NATIVE);
    for (uint32_t i = 0; i < CELLS; i++)
        ck_assert_int_eq(chosen[i], PRECISION_NATIVE);
    ck_assert_double_eq(best.loss.value, 0);
    ck_assert_int_eq(search(&s, (double)-INFINITY, 1u << PRECISION_INT8, &best, &error), -1);
    ck_assert_int_eq(error.code, ERR_NO_PLAN);
}
END_TEST

START_TEST(failed_measurement)
{
    struct widths best;
    struct error error;
    struct synthetic s = usual();
    ck_assert_int_eq(search(&s, 0.02, PRECISION_DENSE, &best, &error), 0);
    for (uint32_t count = s.measured, i = 1; i <= count; i++) {
        s = usual();
        s.failing = i;
        ck_assert_int_eq(search(&s, 0.02, PRECISION_DENSE, &best, &error), -1);
        ck_assert_int_eq(error.code, ERR_IO);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("widths");
    TCase *c = tcase_create("widths");
    tcase_add_loop_test(c, chooses_the_fewest_bytes, 0, (int)(sizeof cases / sizeof cases[0]));
    tcase_add_test(c, given_dense_precision);
    tcase_add_test(c, tight_bound);
    tcase_add_test(c, precisions_that_are_not_smaller);
    tcase_add_test(c, experts_that_are_small_already);
    tcase_add_test(c, no_loss_at_all);
    tcase_add_test(c, failed_measurement);
    suite_add_tcase(suite, c);
    SRunner *r = srunner_create(suite);
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? 1 : 0;
}
