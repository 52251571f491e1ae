/* SPDX-License-Identifier: Apache-2.0 */
/* Norms, rotation and operations on single elements: the bits of the CPU. */
#include <stdio.h>

#include "lib/device/host/host.h"
#include "lib/device/pointers.h"
#include "lib/exact/elementary.h"
#include "tests/unit/lib/cuda/cuda_test.h"

enum { ROWS = 3, N_MAX = 8200 };
#define SECOND 2.5f /* cap of b */
static const uint32_t sizes[] = {1, 15, 16, 100, 257, 4096, N_MAX};
static float x[ROWS * N_MAX], other[ROWS * N_MAX], expected[ROWS * N_MAX], y[ROWS * N_MAX];

START_TEST(norms_have_the_bits)
{
    test_seed(31);
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        uint32_t n = sizes[i];
        test_fill(x, (size_t)n * ROWS);
        test_fill(other, n);
        for (uint32_t r = 0; r < ROWS; r++)
            cpu()->rms_norm(x + r * n, other, n, 1e-6f, expected + r * n);
        fibres_seed((uint32_t)i);
        check_launch(gpu()->rms_norm(x, n, other, n, 1e-6f, ROWS, y, n, NULL));
        check_bits(y, expected, (size_t)n * ROWS, "rms_norm %u", n);
        for (uint32_t r = 0; r < ROWS; r++)
            kernel_center(x + r * n, n, expected + r * n);
        check_launch(gpu()->center(x, n, n, ROWS, x, n, NULL)); /* in place */
        check_bits(x, expected, (size_t)n * ROWS, "center %u", n);
    }
}
END_TEST

/* A part of the streams is read; rows are longer than what is in shared memory at a time. */
START_TEST(banks_have_the_bits)
{
    enum { STREAMS = 3, SOURCES = 2, N = 4096 + 300 };
    static float bank[ROWS * STREAMS * N], ones[N], weights[2][ROWS * STREAMS];
    struct error error;
    struct device *host = host_device(cpu(), 1, 0, &error);
    ck_assert(host);
    test_seed(36);
    for (size_t n = 1; n <= N; n += N - 1) {
        test_fill(bank, (size_t)ROWS * STREAMS * n);
        test_fill(other, n);
        for (size_t i = 0; i < n; i++)
            ones[i] = 1;
        const struct op_bank_read read = {.rows = ROWS,
                                          .streams = STREAMS,
                                          .sources = SOURCES,
                                          .n = (uint32_t)n,
                                          .eps = 1e-6f,
                                          .x = device_address(bank),
                                          .ones = device_address(ones),
                                          .score = device_address(other),
                                          .weights = device_address(weights[0]),
                                          .y = device_address(expected)};
        const struct gpu_bank b = {.x = bank,
                                   .score = other,
                                   .weights = weights[1],
                                   .y = y,
                                   .rows = ROWS,
                                   .streams = STREAMS,
                                   .sources = SOURCES,
                                   .n = (uint32_t)n,
                                   .eps = 1e-6f};
        host->ops->bank_read(host, &read);
        fibres_seed((uint32_t)n);
        check_launch(gpu()->bank(&b, NULL));
        check_bits(y, expected, n * ROWS, "bank of %zu", n);
    }
    host->ops->destroy(host);
}
END_TEST

START_TEST(rotation_has_the_bits)
{
    enum { HEADS = 3, SIZE = 80 };
    static const uint32_t dims[] = {2, 6, 64, SIZE};
    float table[ROWS * SIZE];
    test_seed(32);
    for (size_t i = 0; i < ARRAY_LEN(dims) * 2; i++) {
        uint32_t n = dims[i / 2];
        struct kernel_rope rope = {.dims = n, .theta = 10000};
        for (uint32_t r = 0; r < ROWS; r++)
            kernel_rope_table(&rope, 7 + r, table + r * n);
        test_fill(x, (size_t)ROWS * HEADS * SIZE);
        memcpy(expected, x, (size_t)ROWS * HEADS * SIZE * sizeof *x);
        for (uint32_t h = 0; h < ROWS * HEADS; h++)
            (i % 2 ? kernel_rope_pairs : cpu()->rope)(expected + h * SIZE, n,
                                                      table + h / HEADS * n);
        struct gpu_rope g = {.x = x,
                             .cos_sin = table,
                             .x_stride = (size_t)HEADS * SIZE,
                             .head_stride = SIZE,
                             .table_stride = n,
                             .n = n,
                             .heads = HEADS,
                             .rows = ROWS,
                             .pairs = i % 2 != 0};
        check_launch(gpu()->rope(&g, NULL));
        check_bits(x, expected, (size_t)ROWS * HEADS * SIZE, "rope %u", n);
    }
}
END_TEST

/* The CPU's operation on one row. */
static void on_cpu(enum gpu_pointwise op, const float *a, const float *b, uint32_t n, float value,
                   float *out)
{
    const struct ffn_limit before = {.value = value}, after = {.value = value, .result = true},
                           caps = {.cap_gate = value, .cap_up = SECOND};
    memcpy(out, op == GPU_AXPY ? b : a, n * sizeof *out);
    switch (op) {
    case GPU_SILU_MUL: cpu()->silu_mul(a, b, n, out); break;
    case GPU_SWIGLU_CLAMPED: cpu()->swiglu_clamped(a, b, n, out); break;
    case GPU_GELU_MUL: cpu()->gelu_mul(a, b, n, out); break;
    case GPU_RELU_MUL: kernel_relu_mul(a, b, n, out); break;
    case GPU_SIGMOID_MUL: cpu()->sigmoid_mul(a, b, n, out); break;
    case GPU_LIMITED_SILU: host_activate(cpu(), ACTIVATION_SILU, before, a, b, n, out); break;
    case GPU_SILU_LIMITED: host_activate(cpu(), ACTIVATION_SILU, after, a, b, n, out); break;
    case GPU_SITU_MUL: host_activate(cpu(), ACTIVATION_SITU, caps, a, b, n, out); break;
    case GPU_SOFTPLUS_MUL:
        for (uint32_t i = 0; i < n; i++)
            out[i] = (float)exact_softplus((double)a[i]) * b[i];
        break;
    case GPU_MUL: cpu()->mul(a, b, n, out); break;
    case GPU_SILU: cpu()->silu(out, n); break;
    case GPU_SOFT_CAP: cpu()->soft_cap(value, a, n, out); break;
    case GPU_CLAMP: kernel_clamp(out, n, value); break;
    case GPU_AXPY: cpu()->axpy(value, a, n, out); break;
    case GPU_COPY: break;
    case GPU_SCALE:
    case GPU_DIVIDE:
        for (uint32_t i = 0; i < n; i++)
            out[i] = op == GPU_SCALE ? a[i] * value : a[i] / value;
        break;
    case GPU_LOGISTIC:
        for (uint32_t i = 0; i < n; i++)
            out[i] = (float)(1.0 / (1.0 + exact_exp(-(double)a[i])));
        break;
    case GPU_POINTWISE__COUNT: break;
    }
}

START_TEST(pointwise_has_the_bits)
{
    enum { N = 300, STRIDE = N + 5 };
    test_seed(33);
    for (int op = 0; op < GPU_POINTWISE__COUNT; op++) {
        fill_edges(x, (size_t)STRIDE * ROWS);
        fill_edges(other, (size_t)STRIDE * ROWS);
        memset(y, 0, sizeof y);
        memset(expected, 0, sizeof expected);
        for (uint32_t r = 0; r < ROWS; r++) /* b: the same row for all */
            on_cpu((enum gpu_pointwise)op, x + r * STRIDE, other, N, 30.0f, expected + r * STRIDE);
        struct gpu_rows g = {.a = x,
                             .b = other,
                             .y = y,
                             .a_stride = STRIDE,
                             .y_stride = STRIDE,
                             .n = N,
                             .rows = ROWS,
                             .value = 30.0f,
                             .second = SECOND};
        check_launch(gpu()->pointwise((enum gpu_pointwise)op, &g, NULL));
        check_bits(y, expected, (size_t)STRIDE * ROWS, "operation %d", op);
    }
}
END_TEST

/* A factor per row, one element for all, and elements that are apart. */
START_TEST(pointwise_shapes)
{
    enum { N = 70, STEP = 3 };
    float factor[ROWS];
    test_seed(34);
    test_fill(x, (size_t)N * STEP * ROWS);
    test_fill(other, (size_t)N * ROWS);
    test_fill(factor, ROWS);
    for (uint32_t i = 0; i < N * ROWS; i++)
        expected[i] = fmaf(factor[i / N] * 0.7f, x[(size_t)i * STEP], other[i]);
    struct gpu_rows g = {.a = x,
                         .b = other,
                         .y = y,
                         .factor = factor,
                         .a_stride = (size_t)N * STEP,
                         .b_stride = N,
                         .y_stride = N,
                         .a_step = STEP,
                         .n = N,
                         .rows = ROWS,
                         .value = 0.7f};
    check_launch(gpu()->pointwise(GPU_AXPY, &g, NULL));
    check_bits(y, expected, (size_t)N * ROWS, "factors");
    for (uint32_t i = 0; i < N * ROWS; i++)
        expected[i] = x[i] * other[1];
    g = (struct gpu_rows){.a = x,
                          .b = other + 1,
                          .y = y,
                          .a_stride = N,
                          .y_stride = N,
                          .n = N,
                          .rows = ROWS,
                          .b_is_one = true};
    check_launch(gpu()->pointwise(GPU_MUL, &g, NULL));
    check_bits(y, expected, (size_t)N * ROWS, "one element");
    for (uint32_t i = 0; i < N * ROWS; i++)
        expected[i] = x[i / N] * other[i];
    g = (struct gpu_rows){.a = x,
                          .b = other,
                          .y = y,
                          .a_stride = 1,
                          .b_stride = N,
                          .y_stride = N,
                          .n = N,
                          .rows = ROWS,
                          .a_is_one = true};
    check_launch(gpu()->pointwise(GPU_MUL, &g, NULL));
    check_bits(y, expected, (size_t)N * ROWS, "one element of each row");
}
END_TEST

START_TEST(arguments_out_of_range)
{
    const uint32_t many = GPU_COUNT_MAX + 1, rows = GPU_ROWS_MAX + 1;
    struct gpu_rope rope = {.n = 2, .heads = 1, .rows = rows};
    struct gpu_rows point = {.n = 2, .rows = rows};
    ck_assert_int_eq(gpu()->rms_norm(x, 1, x, UINT32_MAX, 0, 1, y, 1, NULL), GPU_UNSUPPORTED);
    ck_assert_int_eq(gpu()->rms_norm(x, 1, x, 1, 0, many, y, 1, NULL), GPU_UNSUPPORTED);
    ck_assert_int_eq(gpu()->center(x, 1, many, 1, y, 1, NULL), GPU_UNSUPPORTED);
    ck_assert_int_eq(gpu()->center(x, 1, 1, 0, y, 1, NULL), 0);
    ck_assert_int_eq(gpu()->rope(&rope, NULL), GPU_UNSUPPORTED);
    ck_assert_int_eq(gpu()->pointwise(GPU_SILU, &point, NULL), GPU_UNSUPPORTED);
    ck_assert_int_eq(
        gpu()->bank(&(struct gpu_bank){.n = 1, .rows = 1, .streams = 2, .sources = 3}, NULL),
        GPU_UNSUPPORTED);
    point = (struct gpu_rows){.n = many, .rows = 1};
    ck_assert_int_eq(gpu()->pointwise(GPU_SILU, &point, NULL), GPU_UNSUPPORTED);
    point.n = 1;
    ck_assert_int_eq(gpu()->pointwise(GPU_POINTWISE__COUNT, &point, NULL), GPU_UNSUPPORTED);
    point.rows = 0;
    ck_assert_int_eq(gpu()->pointwise(GPU_SILU, &point, NULL), 0);
}
END_TEST

GPU_TESTS_MAIN("cuda_rows", norms_have_the_bits, banks_have_the_bits, rotation_has_the_bits,
               pointwise_has_the_bits, pointwise_shapes, arguments_out_of_range)
