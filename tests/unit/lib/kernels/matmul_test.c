/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix products, prepared activations and unpacked rows against sums in double. */
#include "tests/unit/lib/kernels/kernel_test.h"

#include "lib/tensor/tensor_type.h"

static const uint32_t dense_k[] = {1, 3, 7, 8, 15, 16, 17, 31, 33, 100, 128, 256, 513, 2048};
/* Of quantised types, in blocks. */
static const uint32_t block_counts[] = {1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 24, 64, 129};

/* Row i of a type, with at most 8192 elements or so; 0: no more. */
static uint32_t test_k(enum tensor_type type, size_t i)
{
    uint32_t block = test_block(type);
    if (!test_is_quant(type))
        return i < ARRAY_LEN(dense_k) ? dense_k[i] : 0;
    if (block < 32)
        block = 32;
    return i < ARRAY_LEN(block_counts) && block_counts[i] * block <= 8256 ? block_counts[i] * block
                                                                          : 0;
}

/* Every block has values q * 2^e with |q| <= 127 and one |q| = 127: int8 is exact for them. */
static void fill_exact(enum tensor_type type, float *x, size_t n)
{
    size_t block = test_activation_block(type);
    for (size_t i = 0; i < n; i++)
        x[i] = i % block == 5 ? -127 : (float)((int)(test_random() % 255) - 127);
    for (size_t i = 0; i < n; i++)
        x[i] = ldexpf(x[i], (int)(i / block % 3) - 6);
}

/* Of an output: the product of a row of activations with a row of weights, and the sum of the
 * sizes of its terms. */
struct sum {
    double sum, size;
};

/* Of all rows and outputs: [rows][n]. Each row of weights is decoded once. */
static struct sum *sums_of(const struct kernel_matrix *m, const float *x, uint32_t rows)
{
    struct sum *sums = test_alloc(sizeof *sums * rows * m->n);
    double *w = test_alloc(sizeof *w * m->k);
    for (uint32_t j = 0; j < m->n; j++) {
        for (uint32_t i = 0; i < m->k; i++)
            w[i] = test_weight(m, j, i);
        for (uint32_t r = 0; r < rows; r++) {
            struct sum s = {0, 0};
            for (uint32_t i = 0; i < m->k; i++) {
                double term = w[i] * (double)x[(size_t)r * m->k + i];
                s.sum += term;
                s.size += fabs(term);
            }
            sums[(size_t)r * m->n + j] = s;
        }
    }
    free(w);
    return sums;
}

static void check_product(const struct kernel_matrix *m, const struct sum *sums, uint32_t rows,
                          const float *y, uint32_t y_stride, uint32_t begin, uint32_t end)
{
    for (uint32_t r = 0; r < rows; r++) {
        for (uint32_t j = begin; j < end; j++) {
            struct sum want = sums[(size_t)r * m->n + j];
            double error = fabs((double)y[(size_t)r * y_stride + j] - want.sum);
            ck_assert_msg(error <= 2e-6 * want.size + 1e-30,
                          "type %d k %u row %u out %u: %g, not %g", (int)m->type, m->k, r, j,
                          (double)y[(size_t)r * y_stride + j], want.sum);
        }
    }
}

static void check_matmul(const struct kernel_ops *ops, enum tensor_type type, uint32_t k)
{
    enum { N = 37, ROWS = 9, BEGIN = 1, Y_STRIDE = N + 3 };
    struct kernel_matrix m = test_matrix(type, k, N);
    float *x = test_alloc(sizeof *x * k * ROWS), *y = test_alloc(sizeof *y * Y_STRIDE * ROWS);
    static const uint32_t row_counts[] = {1, 2, ROWS};
    fill_exact(type, x, (size_t)k * ROWS);
    struct sum *sums = sums_of(&m, x, ROWS);
    size_t stride;
    void *act = test_prepare(ops, type, x, k, ROWS, &stride);
    for (size_t i = 0; i < ARRAY_LEN(row_counts); i++) {
        uint32_t rows = row_counts[i];
        memset(y, 0xff, sizeof *y * Y_STRIDE * ROWS);
        ops->matmul(&m, BEGIN, N, act, stride, rows, y, Y_STRIDE);
        check_product(&m, sums, rows, y, Y_STRIDE, BEGIN, N);
        for (size_t at = 0; at < (size_t)Y_STRIDE * ROWS; at++) /* nothing else is written */
            ck_assert_int_eq(isnan(y[at]) != 0,
                             at % Y_STRIDE < BEGIN || at % Y_STRIDE >= N || at / Y_STRIDE >= rows);
    }
    free(sums);
    free(act);
    free(x);
    free(y);
    test_matrix_free(&m);
}

START_TEST(matmul_matches_double)
{
    const struct kernel_ops *ops = kernel_ops_of((enum kernel_isa)_i);
    test_seed(7);
    for (size_t t = 0; t < TEST_TYPES; t++)
        for (size_t i = 0; test_k(test_types[t], i) != 0; i++)
            check_matmul(ops, test_types[t], test_k(test_types[t], i));
}
END_TEST

/* Random activations: the error is at most that of eight bits per block. */
START_TEST(quantised_activation_is_near)
{
    enum { K = 1024, N = 33 };
    const struct kernel_ops *ops = kernel_ops_of((enum kernel_isa)_i);
    test_seed(9);
    float x[K], y[2 * N];
    for (size_t t = 0; t < TEST_TYPES; t++) {
        if (!test_is_quant(test_types[t]))
            continue;
        struct kernel_matrix m = test_matrix(test_types[t], K, N);
        test_fill(x, K);
        size_t stride;
        void *act = test_prepare(ops, m.type, x, K, 1, &stride);
        ops->matmul(&m, 0, N, act, stride, 1, y, N);
        for (uint32_t j = 0; j < N; j++) {
            double sum = 0, bound = 0;
            for (uint32_t i = 0; i < K; i++) {
                sum += test_weight(&m, j, i) * (double)x[i];
                bound += fabs(test_weight(&m, j, i)) * 0.5 / 127; /* |x| <= 1 */
            }
            ck_assert_double_le(fabs((double)y[j] - sum), bound * 1.001);
        }
        free(act);
        test_matrix_free(&m);
    }
}
END_TEST

/* All instruction sets return the same bytes, also for zero, tiny and huge blocks. */
START_TEST(activations_agree)
{
    enum { K = 256 * 3 };
    const struct kernel_ops *ops = kernel_ops_of((enum kernel_isa)_i);
    float x[K];
    test_seed(11);
    test_fill(x, K);
    for (int i = 0; i < K; i++) {
        x[i] *= i / 32 == 3 ? 0.0f : i / 32 == 4 ? 1e-37f : i / 32 == 5 ? 1e37f : 1.0f;
        if (i / 32 == 6)
            x[i] = (float)(i % 32) + 0.5f; /* ties */
    }
    for (size_t t = 0; t < TEST_TYPES; t++) {
        size_t stride;
        void *own = test_prepare(ops, test_types[t], x, K, 1, &stride);
        void *other = test_prepare(kernel_ops_of(ISA_GENERIC), test_types[t], x, K, 1, &stride);
        ck_assert_mem_eq(own, other, stride);
        free(own);
        free(other);
    }
}
END_TEST

START_TEST(row_to_f32_is_exact)
{
    const struct kernel_ops *ops = kernel_ops_of((enum kernel_isa)_i);
    test_seed(13);
    for (size_t t = 0; t < TEST_TYPES; t++) {
        for (size_t i = 0; test_k(test_types[t], i) != 0; i++) {
            struct kernel_matrix m = test_matrix(test_types[t], test_k(test_types[t], i), 3);
            float *y = test_alloc(sizeof *y * (m.k + 1));
            ops->row_to_f32(&m, 1, y);
            for (uint32_t e = 0; e < m.k; e++)
                ck_assert_float_eq(y[e], (float)test_weight(&m, 1, e));
            ck_assert(isnan(y[m.k]));
            free(y);
            test_matrix_free(&m);
        }
    }
}
END_TEST

/* Weights may end at the end of a mapping. */
START_TEST(nothing_is_read_after_the_weights)
{
    enum { N = 5, ROWS = 17 }; /* all of them, and 3 and 1: other products */
    const struct kernel_ops *ops = kernel_ops_of((enum kernel_isa)_i);
    test_seed(17);
    for (size_t t = 0; t < TEST_TYPES; t++) {
        for (size_t i = 0; test_k(test_types[t], i) != 0; i++) {
            struct kernel_matrix m = {.k = test_k(test_types[t], i), .n = N, .type = test_types[t]};
            ck_assert(tensor_type_row_bytes((uint32_t)m.type, m.k, &m.row_bytes));
            uint8_t *w = test_guarded(m.row_bytes * N);
            for (uint32_t j = 0; j < N; j++)
                test_weights(m.type, w + j * m.row_bytes, m.row_bytes);
            m.data = w;
            float *x = test_alloc(sizeof *x * m.k * ROWS), y[N * ROWS];
            fill_exact(m.type, x, (size_t)m.k * ROWS);
            size_t stride;
            void *act = test_prepare(ops, m.type, x, m.k, ROWS, &stride);
            uint8_t *end = test_guarded(stride * ROWS);
            memcpy(end, act, stride * ROWS);
            ops->matmul(&m, 0, N, end + (ROWS - 1) * stride, stride, 1, y, N);
            ops->matmul(&m, 0, N, end + (ROWS - 3) * stride, stride, 3, y, N);
            ops->matmul(&m, 0, N, end, stride, ROWS, y, N);
            struct sum *sums = sums_of(&m, x, ROWS);
            check_product(&m, sums, ROWS, y, N, 0, N);
            free(sums);
            ops->row_to_f32(&m, N - 1, x);
            test_guarded_free(end, stride * ROWS);
            test_guarded_free(w, m.row_bytes * N);
            free(act);
            free(x);
        }
    }
}
END_TEST

struct codes { /* of a super-block: bytes that all become `value`, for elements of one magnitude */
    enum tensor_type type;
    uint32_t block_bytes, begin, end;
    uint8_t value;
};

/* The largest magnitudes of codes; the dot products of sub-blocks are around the limits of 16 bits,
 * of both signs, and some rows of a tile exceed them. */
START_TEST(dots_around_16_bits_are_exact)
{
    enum { K = 512, N = 37, FIRST = 25, ROWS = 103, SUM = 32 }; /* to 127 */
    static const struct codes codes[] = {{TENSOR_Q4_K, 144, 16, 144, 0xff},
                                         {TENSOR_Q5_K, 176, 16, 176, 0xff},
                                         {TENSOR_Q6_K, 210, 0, 192, 0x00},
                                         {TENSOR_Q6_K, 210, 0, 192, 0xff}};
    const struct kernel_ops *ops = kernel_ops_of((enum kernel_isa)_i);
    static float x[K * ROWS], y[N * ROWS], wanted[N * ROWS];
    test_seed(19);
    for (uint32_t r = 0; r < ROWS; r++)
        for (uint32_t i = 0; i < K;
             i++) { /* the scale is 1: one magnitude per super-block is 127 */
            float c = (float)(FIRST + r) * ((r + i / SUM / 2) % 2 ? -1.0f : 1.0f);
            x[r * K + i] = i % 256 == 255 ? 127 : i % 64 < SUM ? c : r % 3 == 0 ? 0 : -c;
        }
    for (size_t t = 0; t < ARRAY_LEN(codes); t++) {
        struct kernel_matrix m = test_matrix(codes[t].type, K, N);
        for (uint32_t j = 0; j < N - 5; j++) /* the last ones stay random */
            for (uint32_t b = 0; b < K / 256; b++)
                memset((uint8_t *)(uintptr_t)m.data + j * m.row_bytes + b * codes[t].block_bytes +
                           codes[t].begin,
                       codes[t].value, codes[t].end - codes[t].begin);
        size_t stride;
        void *act = test_prepare(ops, m.type, x, K, ROWS, &stride);
        ops->matmul(&m, 0, N, act, stride, ROWS, y, N);
        struct sum *sums = sums_of(&m, x, ROWS);
        check_product(&m, sums, ROWS, y, N, 0, N);
        free(sums);
        kernel_ops_of(ISA_GENERIC)->matmul(&m, 0, N, act, stride, ROWS, wanted, N);
        ck_assert_mem_eq(y, wanted, sizeof y);
        free(act);
        test_matrix_free(&m);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("kernels.matmul");
    TCase *tcase = tcase_create("products");
    tcase_set_timeout(tcase, 120);
    test_add_isa(tcase, matmul_matches_double);
    test_add_isa(tcase, quantised_activation_is_near);
    test_add_isa(tcase, activations_agree);
    test_add_isa(tcase, row_to_f32_is_exact);
    test_add_isa(tcase, nothing_is_read_after_the_weights);
    test_add_isa(tcase, dots_around_16_bits_are_exact);
    suite_add_tcase(suite, tcase);
    return test_run(suite);
}
