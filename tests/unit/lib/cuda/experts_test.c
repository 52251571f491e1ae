/* SPDX-License-Identifier: Apache-2.0 */
/* Products of several experts in one launch, the end of their products, and the sum of their
 * outputs: the bits of the same one by one. */
#include <stdio.h>

#include "lib/device/host/host.h"
#include "tests/unit/lib/cuda/cuda_test.h"

#define LIMIT  0.5f /* of gates and ups up to 1 */
#define SECOND 2.5f /* cap of up */

enum { N = 37, BEGIN = 1, Y_STRIDE = N + 2, X_ROWS = 11, JOBS = 3, PAIRS_MAX = 80 };

/* Rows of activations as the kernels read them, a multiple of 64 bytes apart. */
struct rows {
    uint8_t *memory;
    size_t stride;
};

static struct rows prepared(enum tensor_type type, const float *x, uint32_t k)
{
    struct rows to;
    uint8_t *act = test_prepare(cpu(), type, x, k, X_ROWS, &to.stride);
    size_t aligned = align_up(to.stride, 64);
    to.memory = test_alloc(aligned * X_ROWS);
    for (uint32_t r = 0; r < X_ROWS; r++)
        memcpy(to.memory + r * aligned, act + r * to.stride, to.stride);
    to.stride = aligned;
    free(act);
    return to;
}

/* A launch whose jobs have up to `most` rows; index: of rows in any order, or NULL. there: the
 * matrices on the device. */
static void check_jobs(const struct kernel_matrix matrix[JOBS],
                       const struct kernel_matrix there[JOBS], const struct rows *x,
                       const uint32_t *index, uint32_t most)
{
    static float expected[Y_STRIDE * PAIRS_MAX], y[Y_STRIDE * PAIRS_MAX];
    const uint32_t rows[JOBS] = {(most + 1) / 2, most, 1};
    struct gpu_job job[JOBS];
    uint32_t pairs = 0;
    memset(expected, 0xff, sizeof expected);
    memset(y, 0xff, sizeof y);
    for (uint32_t j = 0; j < JOBS; j++) {
        uint32_t first = index ? pairs : j;
        job[j] = (struct gpu_job){there[j].data, y + pairs * Y_STRIDE, first, rows[j]};
        for (uint32_t r = 0; r < rows[j]; r++)
            cpu()->matmul(&matrix[j], BEGIN, N,
                          x->memory + (index ? index[first + r] : first + r) * x->stride, x->stride,
                          1, expected + (pairs + r) * Y_STRIDE, Y_STRIDE);
        pairs += rows[j];
    }
    const struct gpu_products p = {
        .w = {NULL, there[0].row_bytes, there[0].k, there[0].n, there[0].type},
        .x = x->memory,
        .index = index,
        .jobs = job,
        .x_stride = x->stride,
        .y_stride = Y_STRIDE,
        .n_begin = BEGIN,
        .n_end = N,
        .rows = most,
        .count = JOBS};
    ck_assert_uint_le(pairs, PAIRS_MAX);
    fibres_seed(most);
    check_launch(gpu()->products(&p, NULL));
    check_bits(y, expected, ARRAY_LEN(y), "type %d, up to %u rows", (int)p.w.type, most);
}

START_TEST(jobs_have_the_bits)
{
    static float x[X_ROWS * 3 * 256];
    uint32_t index[PAIRS_MAX];
    test_seed(61);
    for (size_t t = 0; t < TEST_TYPES; t++) {
        enum tensor_type type = test_types[t];
        if (!gpu_has(type))
            continue;
        struct kernel_matrix matrix[JOBS], there[JOBS];
        uint32_t k = test_is_quant(type) ? 3 * test_activation_block(type) : 33;
        test_fill(x, (size_t)X_ROWS * k);
        for (uint32_t j = 0; j < JOBS; j++) {
            matrix[j] = gpu_matrix(type, k, N);
            there[j] = on_gpu(&matrix[j]);
        }
        for (uint32_t i = 0; i < PAIRS_MAX; i++)
            index[i] = test_random() % X_ROWS;
        struct rows rows = prepared(type, x, k);
        check_jobs(matrix, there, &rows, index, 1);
        check_jobs(matrix, there, &rows, NULL, GPU_FEW_ROWS);
        check_jobs(matrix, there, &rows, index, GPU_FEW_ROWS + 1);
        check_jobs(matrix, there, &rows, index, GPU_SOME_ROWS + 1);
        for (uint32_t j = 0; j < JOBS; j++) {
            free((void *)(uintptr_t)matrix[j].data);
            free((void *)(uintptr_t)there[j].data);
        }
        free(rows.memory);
    }
}
END_TEST

static void on_cpu(enum gpu_pointwise op, float *a, const float *b, uint32_t n)
{
    const struct ffn_limit before = {.value = LIMIT}, after = {.value = LIMIT, .result = true},
                           caps = {.cap_gate = LIMIT, .cap_up = SECOND};
    switch (op) {
    case GPU_SILU_MUL: cpu()->silu_mul(a, b, n, a); break;
    case GPU_SWIGLU_CLAMPED: cpu()->swiglu_clamped(a, b, n, a); break;
    case GPU_GELU_MUL: cpu()->gelu_mul(a, b, n, a); break;
    case GPU_LIMITED_SILU: host_activate(cpu(), ACTIVATION_SILU, before, a, b, n, a); break;
    case GPU_SILU_LIMITED: host_activate(cpu(), ACTIVATION_SILU, after, a, b, n, a); break;
    case GPU_SITU_MUL: host_activate(cpu(), ACTIVATION_SITU, caps, a, b, n, a); break;
    default: kernel_relu_mul(a, b, n, a);
    }
}

static void finish_on_cpu(const struct gpu_finish_job *job, enum gpu_pointwise op, uint32_t n)
{
    for (uint32_t i = 0; i < job->rows * n; i++) {
        job->a[i] = job->a_factor ? job->a[i] * *job->a_factor : job->a[i];
        if (job->b)
            job->b[i] = job->b_factor ? job->b[i] * *job->b_factor : job->b[i];
    }
    for (uint32_t r = 0; r < job->rows; r++) {
        float *a = job->a + (size_t)r * n, *b = job->b ? job->b + (size_t)r * n : NULL;
        if (job->a_bias)
            cpu()->axpy(1.0f, job->a_bias, n, a);
        if (b && job->b_bias)
            cpu()->axpy(1.0f, job->b_bias, n, b);
        if (b)
            on_cpu(op, a, b, n);
    }
}

START_TEST(ends_have_the_bits)
{
    enum { SIZE = 300, ROWS = 19 }; /* more than the threads, and the rows, of a block */
    static float a[JOBS][ROWS * SIZE], b[JOBS][ROWS * SIZE], expected[JOBS][ROWS * SIZE],
        other[JOBS][ROWS * SIZE], bias[2][SIZE];
    const float factor[2] = {1.25f, -0.375f};
    test_seed(62);
    for (int op = GPU_SILU_MUL; op <= GPU_SITU_MUL; op++) {
        test_fill(bias[0], SIZE);
        test_fill(bias[1], SIZE);
        struct gpu_finish_job job[JOBS] = {
            {a[0], b[0], &factor[0], &factor[1], bias[0], bias[1], 3},
            {a[1], b[1], NULL, NULL, NULL, NULL, ROWS},
            {a[2], NULL, &factor[1], NULL, bias[1], NULL, 9},
        };
        for (uint32_t j = 0; j < JOBS; j++) {
            test_fill(a[j], (size_t)ROWS * SIZE);
            test_fill(b[j], (size_t)ROWS * SIZE);
            memcpy(expected[j], a[j], sizeof a[j]);
            memcpy(other[j], b[j], sizeof b[j]);
            struct gpu_finish_job mine = job[j];
            mine.a = expected[j];
            mine.b = job[j].b ? other[j] : NULL;
            finish_on_cpu(&mine, (enum gpu_pointwise)op, SIZE);
        }
        const struct gpu_finish f = {job, (enum gpu_pointwise)op, LIMIT, JOBS, ROWS, SIZE, SECOND};
        check_launch(gpu()->finish(&f, NULL));
        for (uint32_t j = 0; j < JOBS; j++)
            check_bits(a[j], expected[j], ARRAY_LEN(a[j]), "operation %d, job %u", op, j);
    }
    const struct gpu_finish other_op = {.op = GPU_SIGMOID_MUL, .count = 1, .rows = 1, .n = 1};
    ck_assert_int_eq(gpu()->finish(&other_op, NULL), GPU_UNSUPPORTED);
}
END_TEST

/* In the order of the terms, which is that of the ranks. */
START_TEST(terms_have_the_bits)
{
    enum { SIZE = 270, ROWS = 3, TERMS = 4, OUTPUTS = 7 };
    float y[OUTPUTS * SIZE], into[ROWS * SIZE], expected[ROWS * SIZE];
    struct gpu_term term[ROWS * TERMS];
    test_seed(63);
    test_fill(y, ARRAY_LEN(y));
    test_fill(into, ARRAY_LEN(into));
    memcpy(expected, into, sizeof into);
    for (uint32_t i = 0; i < ROWS * TERMS; i++) {
        term[i] =
            (struct gpu_term){test_uniform(), i % 5 == 2 ? GPU_NO_ROW : test_random() % OUTPUTS};
        if (term[i].row != GPU_NO_ROW)
            cpu()->axpy(term[i].factor, y + term[i].row * SIZE, SIZE, expected + i / TERMS * SIZE);
    }
    const struct gpu_terms t = {term, y, into, ROWS, TERMS, SIZE};
    check_launch(gpu()->add_terms(&t, NULL));
    check_bits(into, expected, ARRAY_LEN(into), "terms");
}
END_TEST

GPU_TESTS_MAIN("cuda_experts", jobs_have_the_bits, ends_have_the_bits, terms_have_the_bits)
