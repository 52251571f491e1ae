/* SPDX-License-Identifier: Apache-2.0 */
/* Activations, products and embedding rows: the bits of the generic kernels. */
#include <stdio.h>

#include "tests/unit/lib/cuda/cuda_test.h"

enum { N = 37, BEGIN = 1, Y_STRIDE = N + 2, ROWS_MAX = 67 };

/* Sizes in units of a sum: fewer and more than the 8 partial sums, and not multiples of them. */
static const uint32_t unit_counts[] = {1, 3, 8, 9, 18};
static const uint32_t dense_k[] = {1, 7, 15, 16, 17, 33, 130};

static uint32_t test_k(enum tensor_type type, size_t i)
{
    if (!test_is_quant(type))
        return i < ARRAY_LEN(dense_k) ? dense_k[i] : 0;
    return i < ARRAY_LEN(unit_counts) ? unit_counts[i] * test_activation_block(type) : 0;
}

static void check_product(const struct kernel_matrix *m, const float *x, uint32_t rows,
                          uint32_t seed)
{
    size_t stride, floats = (size_t)Y_STRIDE * ROWS_MAX;
    void *act = test_prepare(cpu(), m->type, x, m->k, rows, &stride);
    float *expected = test_alloc(floats * sizeof *expected), *y = test_alloc(floats * sizeof *y);
    memset(expected, 0xff, floats * sizeof *expected);
    memset(y, 0xff, floats * sizeof *y);
    cpu()->matmul(m, BEGIN, N, act, stride, rows, expected, Y_STRIDE);
    fibres_seed(seed);
    size_t aligned = align_up(stride, 64);
    uint8_t *copy = test_alloc(aligned * rows);
    for (uint32_t r = 0; r < rows; r++)
        memcpy(copy + r * aligned, (uint8_t *)act + r * stride, stride);
    fibre_target = seed % 2 == 0 ? 80 : 75;
    struct kernel_matrix there = on_gpu(m);
    check_launch(gpu()->matmul(&there, BEGIN, N, copy, aligned, rows, y, Y_STRIDE, NULL));
    free((void *)(uintptr_t)there.data);
    fibre_target = 80;
    check_bits(y, expected, floats, "type %d k %u rows %u", (int)m->type, m->k, rows);
    free(copy);
    free(act);
    free(expected);
    free(y);
}

START_TEST(products_have_the_bits)
{
    /* the last two: tiles of 32 rows and of 64 */
    static const uint32_t row_counts[] = {1, 3, 5, GPU_FEW_ROWS + 13, ROWS_MAX};
    static float x[ROWS_MAX * 18 * 256];
    uint32_t types = 0;
    test_seed(21);
    for (size_t t = 0; t < TEST_TYPES; t++) {
        if (!gpu_has(test_types[t]))
            continue;
        types++;
        for (size_t i = 0; test_k(test_types[t], i) != 0; i++) {
            struct kernel_matrix m = gpu_matrix(test_types[t], test_k(test_types[t], i), N);
            test_fill(x, (size_t)m.k * ROWS_MAX);
            /* the slow ones: either shape with few units and many, for 7.5 and for 8.0 */
            uint32_t tile = i == 2 ? 0 : row_counts[i == 0 || i == 3 ? 3 : 4];
            for (size_t r = 0; r < 3; r++)
                check_product(&m, x, row_counts[r], (uint32_t)(i + r));
            if (tile > 0)
                check_product(&m, x, tile, i < 2 ? 1 : 2);
            free((void *)(uintptr_t)m.data);
        }
    }
    ck_assert_uint_eq(types, 16); /* those of lib/cuda/README.md */
}
END_TEST

/* Codes and scales of any bits: infinite, NaN, subnormal. */
START_TEST(products_of_any_bytes)
{
    enum { ROWS = 9 };
    static float x[ROWS * 9 * 256];
    test_seed(22);
    for (size_t t = 0; t < TEST_TYPES; t++) {
        if (!gpu_has(test_types[t]))
            continue;
        struct kernel_matrix m = gpu_matrix(test_types[t], test_k(test_types[t], 3), N);
        uint8_t *bytes = (uint8_t *)(uintptr_t)m.data;
        for (size_t i = 0; i < m.row_bytes * N; i++)
            bytes[i] = (uint8_t)(test_random() >> 9);
        fill_edges(x, (size_t)m.k * ROWS);
        check_product(&m, x, 2, 1);
        check_product(&m, x, ROWS, 2);
        free(bytes);
    }
}
END_TEST

/* What the host would make of routes. */
START_TEST(routes_become_jobs)
{
    enum { RANKS = 40, EXPERTS = 64, INNER = 5, OUTPUTS = 7 };
    static const void *table[EXPERTS * GPU_MATRICES];
    static float gate[RANKS * INNER], up[RANKS * INNER], y[RANKS * OUTPUTS], scale[EXPERTS],
        bias[EXPERTS * OUTPUTS];
    struct {
        uint32_t number;
        float weight;
    } routes[RANKS];
    struct gpu_job jobs[GPU_MATRICES * RANKS];
    struct gpu_finish_job finish[2 * RANKS];
    struct gpu_term terms[RANKS];
    for (uint32_t r = 0; r < RANKS; r++) {
        routes[r].number = (r * 7 + 3) % EXPERTS;
        routes[r].weight = (float)(r + 1) / 3;
    }
    for (size_t i = 0; i < ARRAY_LEN(table); i++)
        table[i] = (const char *)table + i;
    const struct gpu_routed g = {.table = table,
                                 .number = &routes->number,
                                 .weight = &routes->weight,
                                 .scale = {scale, NULL, scale},
                                 .bias = {NULL, bias, bias},
                                 .gate = gate,
                                 .up = up,
                                 .y = y,
                                 .factor = 0.7f,
                                 .step = 2,
                                 .ranks = RANKS,
                                 .inner = INNER,
                                 .outputs = OUTPUTS,
                                 .jobs = jobs,
                                 .finish = finish,
                                 .terms = terms};
    check_launch(gpu()->jobs_of_routes(&g, NULL));
    for (uint32_t r = 0; r < RANKS; r++) {
        uint32_t e = routes[r].number;
        float *const out[GPU_MATRICES] = {gate + r * INNER, up + r * INNER, y + r * OUTPUTS};
        for (uint32_t m = 0; m < GPU_MATRICES; m++) {
            const struct gpu_job *j = &jobs[m * RANKS + r];
            ck_assert(j->w == table[e * GPU_MATRICES + m] && j->y == out[m] && j->rows == 1);
            ck_assert_uint_eq(j->first, m == 2 ? r : 0);
        }
        const struct gpu_finish_job *f = &finish[r], *d = &finish[RANKS + r];
        ck_assert(f->a == out[0] && f->b == out[1] && f->rows == 1 && d->a == out[2] && !d->b);
        ck_assert(f->a_factor == scale + e && !f->b_factor && d->a_factor == scale + e);
        ck_assert(!f->a_bias && f->b_bias == bias + e * INNER && d->a_bias == bias + e * OUTPUTS);
        ck_assert(terms[r].factor == routes[r].weight * 0.7f && terms[r].row == r);
    }
}
END_TEST

START_TEST(activations_have_the_bytes)
{
    enum { ROWS = 2 };
    static const uint32_t units[] = {1, 2, 15, 16, 17};
    static float x[ROWS * (17 * 256 + 3)];
    test_seed(23);
    for (int form = 0; form < FORM__COUNT; form++) {
        enum tensor_type type = kernel_form_type((enum kernel_form)form);
        for (size_t i = 0; i < ARRAY_LEN(units); i++) {
            uint32_t k = units[i] * test_activation_block(type), x_stride = k + 3;
            size_t bytes = kernel_activation_bytes(type, k), stride = align_up(bytes, 64) + 64;
            uint8_t *expected = test_alloc(stride * ROWS), *out = test_alloc(stride * ROWS);
            memset(expected, 0x5a, stride * ROWS);
            memset(out, 0x5a, stride * ROWS);
            fill_edges(x, (size_t)x_stride * ROWS);
            memset(x, 0, (i == 2 ? 32 : 0) * sizeof *x);
            for (uint32_t r = 0; r < ROWS; r++)
                cpu()->activation(type, x + r * x_stride, k, expected + r * stride);
            fibres_seed((uint32_t)i);
            check_launch(gpu()->activation(type, x, x_stride, k, ROWS, out, stride, NULL));
            for (size_t b = 0; b < stride * ROWS; b++)
                ck_assert_msg(out[b] == expected[b], "form %d k %u byte %zu", form, k, b);
            free(expected);
            free(out);
        }
    }
}
END_TEST

START_TEST(embedding_rows_have_the_bits)
{
    enum { K = 512, TOKENS = 3 };
    static const uint32_t token[TOKENS] = {5, 0, 5};
    float expected[TOKENS * K], y[TOKENS * K];
    test_seed(24);
    for (size_t t = 0; t < TEST_TYPES; t++) {
        if (!gpu_has(test_types[t]))
            continue;
        struct kernel_matrix m = gpu_matrix(test_types[t], K, 6), there = on_gpu(&m);
        for (uint32_t i = 0; i < TOKENS; i++)
            cpu()->row_to_f32(&m, token[i], expected + (size_t)i * K);
        check_launch(gpu()->rows_to_f32(&there, token, TOKENS, y, K, NULL));
        check_bits(y, expected, (size_t)TOKENS * K, "type %d", (int)m.type);
        free((void *)(uintptr_t)m.data);
        free((void *)(uintptr_t)there.data);
    }
}
END_TEST

/* Nothing is launched with what the kernels do not read. */
START_TEST(unsupported_arguments_are_refused)
{
    struct kernel_matrix file = gpu_matrix(TENSOR_Q4_0, 64, 4), m = on_gpu(&file);
    uint8_t *act = test_alloc(256);
    float y[4];
    m.type = TENSOR_IQ1_S;
    ck_assert_int_eq(gpu()->matmul(&m, 0, 4, act, 128, 1, y, 4, NULL), GPU_UNSUPPORTED);
    m.type = TENSOR_Q4_0;
    ck_assert_int_eq(gpu()->matmul(&m, 0, 5, act, 128, 1, y, 4, NULL), GPU_UNSUPPORTED);
    ck_assert_int_eq(gpu()->matmul(&m, 0, 4, act, 96, 2, y, 4, NULL), GPU_UNSUPPORTED);
    ck_assert_int_eq(gpu()->matmul(&m, 0, 4, act, 128, GPU_ROWS_MAX + 1, y, 4, NULL),
                     GPU_UNSUPPORTED);
    ck_assert_int_eq(gpu()->matmul(&m, 0, 4, act, 128, 0, y, 4, NULL), 0);
    ck_assert_int_eq(gpu()->activation(TENSOR_Q4_0, y, 4, 33, 1, act, 128, NULL), GPU_UNSUPPORTED);
    ck_assert_int_eq(gpu()->activation(TENSOR_Q4_0, y, 4, 32, 1, act + 4, 128, NULL),
                     GPU_UNSUPPORTED);
    ck_assert_int_eq(gpu()->activation(TENSOR_Q4_0, y, 4, 2 * KERNEL_K_MAX, 1, act, 128, NULL),
                     GPU_UNSUPPORTED);
    ck_assert_int_eq(gpu()->rows_to_f32(&m, NULL, GPU_ROWS_MAX + 1, y, 4, NULL), GPU_UNSUPPORTED);
    m.k = 48;
    ck_assert_int_eq(gpu()->matmul(&m, 0, 4, act, 128, 1, y, 4, NULL), GPU_UNSUPPORTED);
    ck_assert_int_eq(gpu()->rows_to_f32(&m, NULL, 1, y, 4, NULL), GPU_UNSUPPORTED);
    m.k = 64;
    m.row_bytes++;
    ck_assert_int_eq(gpu()->matmul(&m, 0, 4, act, 128, 1, y, 4, NULL), GPU_UNSUPPORTED);
    m.row_bytes = gpu()->row_bytes(TENSOR_Q4_0, 64) - 16; /* less than a row */
    ck_assert_int_eq(gpu()->matmul(&m, 0, 4, act, 128, 1, y, 4, NULL), GPU_UNSUPPORTED);
    free(act);
    free((void *)(uintptr_t)m.data);
    free((void *)(uintptr_t)file.data);
}
END_TEST

GPU_TESTS_MAIN("cuda_products", products_have_the_bits, products_of_any_bytes, routes_become_jobs,
               activations_have_the_bytes, embedding_rows_have_the_bits,
               unsupported_arguments_are_refused)
