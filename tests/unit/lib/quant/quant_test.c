/* SPDX-License-Identifier: Apache-2.0 */
/* Quantisers: round trips, error bounds, the bytes of the formats, rejected input. */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "lib/quant/quant.h"
#include "lib/quant/quant_internal.h"
#include "lib/tensor/tensor_type.h"

enum { K = 256, N = 5 };

static const enum tensor_type types[] = {TENSOR_C8, TENSOR_C4, TENSOR_C2, TENSOR_G4, TENSOR_G2};

static uint32_t state = 1;

static float uniform(void)
{
    state ^= state << 13;
    state ^= state >> 17;
    state ^= state << 5;
    return (float)(state >> 8) / 8388608.0f - 1.0f;
}

/* Bell-shaped, like weights. */
static void fill(float *w, size_t count, float size)
{
    for (size_t i = 0; i < count; i++)
        w[i] = size * (uniform() + uniform() + uniform());
}

static struct kernel_matrix quantised(enum tensor_type type, const float *w,
                                      const struct quant_settings *s)
{
    struct kernel_matrix m = {.k = K, .n = N, .type = type};
    ck_assert(tensor_type_row_bytes((uint32_t)type, K, &m.row_bytes));
    uint8_t *p = malloc(m.row_bytes * N + 1);
    ck_assert_ptr_nonnull(p);
    p[m.row_bytes * N] = 0x5a;
    ck_assert_int_eq(quant_rows(type, w, K, N, p, s), 0);
    ck_assert_uint_eq(p[m.row_bytes * N], 0x5a);
    m.data = p;
    return m;
}

/* Root mean squared error relative to that of the weights. */
static double relative_error(enum tensor_type type, const float *w, const struct quant_settings *s)
{
    float back[K * N];
    struct kernel_matrix m = quantised(type, w, s);
    quant_dequantise(&m, 0, N, back);
    double error = 0, size = 0;
    for (int i = 0; i < K * N; i++) {
        error += pow((double)w[i] - (double)back[i], 2);
        size += pow((double)w[i], 2);
    }
    free((void *)(uintptr_t)m.data);
    return sqrt(error / size);
}

/* Bounds: the relative error of the best uniform grid for a normal distribution is 0.115 (4 bits)
 * and 0.345 (2 bits) (Max 1960); rows have longer tails, so the bounds are slightly higher. */
START_TEST(errors_are_those_of_the_bits)
{
    static const double max_error[] = {0.008, 0.125, 0.37, 0.1, 0.37};
    float w[K * N];
    fill(w, K * N, 0.02f);
    for (size_t t = 0; t < ARRAY_LEN(types); t++) {
        double error = relative_error(types[t], w, NULL);
        ck_assert_msg(error <= max_error[t] && error > max_error[t] / 8, "type %d: %g",
                      (int)types[t], error);
    }
}
END_TEST

/* Weights on a grid are exact after a round trip. */
START_TEST(grids_come_back)
{
    for (size_t t = 0; t < ARRAY_LEN(types); t++) {
        int bits = types[t] == TENSOR_C8                            ? 8
                   : types[t] == TENSOR_C4 || types[t] == TENSOR_G4 ? 4
                                                                    : 2;
        int low = bits == 8 ? -127 : -(1 << (bits - 1)), high = (1 << (bits - 1)) - 1;
        float w[K * N], back[K * N];
        for (int i = 0; i < K * N; i++) { /* both end codes in every group of 64 */
            int q = i % 64 == 3 ? low : i % 64 == 4 ? high : low + i * 7 % (high - low + 1);
            w[i] = ldexpf((float)q, -9);
        }
        struct kernel_matrix m = quantised(types[t], w, NULL);
        quant_dequantise(&m, 0, N, back);
        for (int i = 0; i < K * N; i++)
            ck_assert_float_eq(back[i], w[i]);
        free((void *)(uintptr_t)m.data);
    }
}
END_TEST

/* The layout described in the header, byte by byte: steps -2, -1, 0, 1 in turn. */
START_TEST(bytes_of_two_bits)
{
    float w[64];
    uint8_t row[4 + 16];
    for (int i = 0; i < 64; i++)
        w[i] = (float)(i / 16 - 2); /* element i: code i / 16 */
    struct quant_settings s = quant_defaults;
    s.levels = QUANT_LEVELS_ZERO;
    ck_assert_int_eq(quant_rows(TENSOR_C2, w, 64, 1, row, &s), 0);
    static const uint8_t head[4] = {0x00, 0x3c, 0x00, 0x40}; /* 1.0, 2.0 */
    ck_assert_mem_eq(row, head, sizeof head);
    for (int i = 4; i < 20; i++)
        ck_assert_uint_eq(row[i], 0xe4); /* 3 2 1 0 from the top */
}
END_TEST

START_TEST(zero_rows_and_equal_rows)
{
    float w[K * N] = {0}, back[K * N];
    for (size_t t = 0; t < ARRAY_LEN(types); t++) {
        for (int i = 0; i < K * N; i++)
            w[i] = i / K == 1 ? 0.5f : i / K == 2 ? -0.5f : 0.0f;
        struct kernel_matrix m = quantised(types[t], w, NULL);
        quant_dequantise(&m, 0, N, back);
        for (int i = 0; i < K * N; i++)
            ck_assert_float_eq_tol(back[i], w[i], 0.0005f);
        free((void *)(uintptr_t)m.data);
    }
}
END_TEST

/* Rows are independent: any split over threads gives the same bytes. */
START_TEST(rows_stand_alone)
{
    float w[K * N];
    fill(w, K * N, 0.03f);
    for (size_t t = 0; t < ARRAY_LEN(types); t++) {
        struct kernel_matrix m = quantised(types[t], w, NULL);
        uint8_t one[K + 16];
        for (size_t j = 0; j < N; j++) {
            ck_assert_int_eq(quant_rows(types[t], w + j * K, K, 1, one, NULL), 0);
            ck_assert_mem_eq(one, (const uint8_t *)m.data + j * m.row_bytes, m.row_bytes);
        }
        free((void *)(uintptr_t)m.data);
    }
}
END_TEST

/* The search is never worse than the plain grid. */
START_TEST(search_pays)
{
    float w[K * N];
    fill(w, K * N, 0.02f);
    w[17] = 0.2f; /* an outlier */
    struct quant_settings plain = quant_defaults;
    plain.channel_power = 0;
    ck_assert_double_lt(relative_error(TENSOR_C2, w, NULL), relative_error(TENSOR_C2, w, &plain));
    ck_assert_double_le(relative_error(TENSOR_C4, w, NULL), relative_error(TENSOR_C4, w, &plain));
    struct quant_settings one = quant_defaults;
    one.levels = QUANT_LEVELS_ZERO;
    ck_assert_double_le(relative_error(TENSOR_C2, w, NULL), relative_error(TENSOR_C2, w, &one));
    one.levels = QUANT_LEVELS_EVEN;
    ck_assert_double_le(relative_error(TENSOR_C2, w, NULL), relative_error(TENSOR_C2, w, &one));
}
END_TEST

START_TEST(not_every_weight_has_a_grid)
{
    static const float bad[] = {NAN, INFINITY, -INFINITY, 3e38f};
    float w[K] = {0.25f};
    uint8_t row[K + 16];
    for (size_t t = 0; t < ARRAY_LEN(types); t++) {
        for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
            w[K - 1] = bad[i];
            ck_assert_int_eq(quant_rows(types[t], w, K, 1, row, NULL), -1);
        }
    }
}
END_TEST

/* The bytes of a store must not depend on the CPU that made it. */
START_TEST(instruction_sets_agree)
{
    float w[QUANT_GROUP];
    const struct quant_lanes *here = quant_lanes_here(), *plain = &quant_lanes_generic;
    const double powers[] = {0.7, 1, 2, 3, 4};
    for (int round = 0; round < 200; round++) {
        fill(w, QUANT_GROUP, 0.1f);
        struct quant_grid grid = {0.02f + 0.01f * uniform(), 2 + uniform()};
        for (size_t i = 0; i < ARRAY_LEN(powers); i++)
            ck_assert(here->error(grid, 2, w, QUANT_GROUP, powers[i]) ==
                      plain->error(grid, 2, w, QUANT_GROUP, powers[i]));
        struct quant_hqq_step step = {2, 0.7f, 10, round % 2 == 1};
        struct quant_grid a = here->hqq_step(grid, &step, w, QUANT_GROUP);
        struct quant_grid b = plain->hqq_step(grid, &step, w, QUANT_GROUP);
        ck_assert_mem_eq(&a, &b, sizeof a);
    }
}
END_TEST

/* Powers by polynomials against pow(). */
START_TEST(powers_are_powers)
{
    for (int round = 0; round < 200; round++) {
        float w[8];
        double sum = 0;
        fill(w, ARRAY_LEN(w), expf(10 * uniform()));
        for (size_t i = 0; i < ARRAY_LEN(w); i++) /* code 0, zero 0: the error is the weight */
            sum += pow(fabs((double)w[i]), 0.7);
        struct quant_grid grid = {1e30f, 0};
        double error = quant_lanes_here()->error(grid, 2, w, ARRAY_LEN(w), 0.7);
        ck_assert_double_lt(fabs(error - sum), 1e-5 * sum);
    }
}
END_TEST

START_TEST(types_by_bits)
{
    ck_assert_int_eq(quant_type_for(8, QUANT_CHANNEL), TENSOR_C8);
    ck_assert_int_eq(quant_type_for(8, QUANT_HQQ), TENSOR_C8);
    ck_assert_int_eq(quant_type_for(4, QUANT_CHANNEL), TENSOR_C4);
    ck_assert_int_eq(quant_type_for(4, QUANT_HQQ), TENSOR_G4);
    ck_assert_int_eq(quant_type_for(2, QUANT_CHANNEL), TENSOR_C2);
    ck_assert_int_eq(quant_type_for(2, QUANT_HQQ), TENSOR_G2);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("quant");
    TCase *tcase = tcase_create("quant");
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, errors_are_those_of_the_bits);
    tcase_add_test(tcase, grids_come_back);
    tcase_add_test(tcase, bytes_of_two_bits);
    tcase_add_test(tcase, zero_rows_and_equal_rows);
    tcase_add_test(tcase, rows_stand_alone);
    tcase_add_test(tcase, search_pays);
    tcase_add_test(tcase, not_every_weight_has_a_grid);
    tcase_add_test(tcase, instruction_sets_agree);
    tcase_add_test(tcase, powers_are_powers);
    tcase_add_test(tcase, types_by_bits);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
