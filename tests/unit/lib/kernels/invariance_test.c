/* SPDX-License-Identifier: Apache-2.0 */
/* Row invariance: a row has the same bits alone and among many, for any split over threads. */
#include <pthread.h>

#include "tests/harness/sample.h"
#include "tests/unit/lib/kernels/kernel_test.h"

#include "lib/tensor/tensor_type.h"

enum { N = 67, Y_STRIDE = N + 2, ROWS_MAX = 512, THREADS_MAX = 3 };

static const uint32_t row_counts[] = {1, 2, 3, 4, 5, 6, 7, 8, 31, 512};

struct job {
    const struct kernel_ops *ops;
    const struct kernel_matrix *m;
    const uint8_t *x;
    size_t x_stride;
    float *y;
    uint32_t n_begin, n_end, row_begin, row_end;
};

static void *run_job(void *arg)
{
    struct job *j = arg;
    j->ops->matmul(j->m, j->n_begin, j->n_end, j->x + j->row_begin * j->x_stride, j->x_stride,
                   j->row_end - j->row_begin, j->y + (size_t)j->row_begin * Y_STRIDE, Y_STRIDE);
    return NULL;
}

/* Start of part `t` of `threads` parts of `count`, odd where possible. */
static uint32_t border(uint32_t count, uint32_t t, uint32_t threads)
{
    uint32_t at = count * t / threads;
    return t == 0 || t == threads ? at : (at | 1u) < count ? at | 1u : at;
}

static void run_threads(const struct job *all, uint32_t rows, uint32_t threads, bool by_rows)
{
    pthread_t id[THREADS_MAX];
    struct job job[THREADS_MAX];
    for (uint32_t t = 0; t < threads; t++) {
        job[t] = *all;
        job[t].n_begin = by_rows ? 0 : border(N, t, threads);
        job[t].n_end = by_rows ? N : border(N, t + 1, threads);
        job[t].row_begin = by_rows ? border(rows, t, threads) : 0;
        job[t].row_end = by_rows ? border(rows, t + 1, threads) : rows;
        ck_assert_int_eq(pthread_create(&id[t], NULL, run_job, &job[t]), 0);
    }
    for (uint32_t t = 0; t < threads; t++)
        pthread_join(id[t], NULL);
}

static void check_case(const struct kernel_ops *ops, enum tensor_type type, uint32_t k,
                       uint32_t rows_max)
{
    struct kernel_matrix m = test_matrix(type, k, N);
    float *x = test_alloc(sizeof *x * k * rows_max);
    float *alone = test_alloc(sizeof *alone * Y_STRIDE * rows_max);
    float *y = test_alloc(sizeof *y * Y_STRIDE * rows_max);
    test_fill(x, (size_t)k * rows_max);
    struct job all = {.ops = ops, .m = &m, .y = y};
    uint8_t *act = test_prepare(ops, type, x, k, rows_max, &all.x_stride);
    all.x = act;
    for (uint32_t r = 0; r < rows_max; r++)
        ops->matmul(&m, 0, N, act + r * all.x_stride, all.x_stride, 1, alone + (size_t)r * Y_STRIDE,
                    Y_STRIDE);
    for (size_t i = 0; i < ARRAY_LEN(row_counts) && row_counts[i] <= rows_max; i++) {
        for (uint32_t way = 0; way < 2 * THREADS_MAX; way++) {
            uint32_t rows = row_counts[i], threads = way / 2 + 1;
            if (way % 2 == 1 && (threads == 1 || rows < threads))
                continue;
            memset(y, 0xff, sizeof *y * Y_STRIDE * rows_max);
            run_threads(&all, rows, threads, way % 2 == 1);
            ck_assert_msg(memcmp(y, alone, sizeof *y * Y_STRIDE * rows) == 0,
                          "%s type %d k %u: %u rows on %u threads differ", ops->name, (int)type, k,
                          rows, threads);
        }
    }
    free(act);
    free(x);
    free(y);
    free(alone);
    test_matrix_free(&m);
}

START_TEST(matmul_rows_do_not_depend_on_company)
{
    static const uint32_t dense_k[] = {1, 13, 100, 128, 256, 257};
    static const uint32_t quant_k[] = {32, 96, 128, 256, 544, 768};
    static const uint32_t group_k[] = {64, 192, 128, 256, 576, 768};
    static const uint32_t super_k[] = {256, 512, 768, 1024, 2304, 256};
    const struct kernel_ops *ops = kernel_ops_of((enum kernel_isa)_i);
    unsigned met = 0;
    test_seed(21);
    for (size_t t = 0; t < TEST_TYPES; t++) {
        uint32_t block = test_block(test_types[t]);
        const uint32_t *k = block > 64    ? super_k
                            : block == 64 ? group_k
                            : block == 32 ? quant_k
                                          : dense_k;
        for (size_t i = 0; i < ARRAY_LEN(dense_k); i++)
            if (test_sample(EVERY_invariance_lengths, &met))
                check_case(ops, test_types[t], k[i],
                           k[i] >= 128 && k[i] <= 256 && _i != ISA_GENERIC ? 512 : 31);
        if (test_sample(EVERY_invariance_lengths, &met))
            check_case(ops, test_types[t], 2048, 31);
        check_case(ops, test_types[t], block == 1 ? 4099 : block > 64 ? 4352 : 4160, 8);
    }
}
END_TEST

START_TEST(long_rows_in_a_big_batch)
{
    const struct kernel_ops *ops = kernel_ops_of((enum kernel_isa)_i);
    test_seed(22);
    for (size_t t = 0; t < TEST_TYPES; t++)
        check_case(ops, test_types[t], 2048, _i == ISA_GENERIC ? 31 : ROWS_MAX);
}
END_TEST

/* Kernels compute fewer rows together where what they keep per row is longer. */
START_TEST(the_longest_rows)
{
    static const enum tensor_type types[] = {TENSOR_Q4_K, TENSOR_Q6_K, TENSOR_IQ2_XXS, TENSOR_Q4_0};
    const struct kernel_ops *ops = kernel_ops_of((enum kernel_isa)_i);
    test_seed(23);
    for (size_t t = 0; t < ARRAY_LEN(types) && _i != ISA_GENERIC; t++)
        check_case(ops, types[t], KERNEL_K_MAX, 8);
}
END_TEST

struct attention_job {
    const struct kernel_ops *ops;
    struct kernel_attention a;
};

static void *run_attention(void *arg)
{
    struct attention_job *j = arg;
    j->ops->attention(&j->a);
    return NULL;
}

/* Row r attends to r + 1 positions. `alone` has every row, each computed by one call; here the
 * heads are split, and data after the row's positions is NaN. */
static void check_attention(const struct kernel_ops *ops, uint32_t heads, uint32_t kv_heads,
                            uint32_t head_size, uint32_t rows)
{
    size_t width = (size_t)heads * head_size, kv = test_kv_elements(rows, kv_heads, head_size);
    float *q = test_alloc(sizeof *q * rows * width), *alone = test_alloc(sizeof *q * rows * width);
    float *out = test_alloc(sizeof *q * width);
    uint16_t *k = test_alloc(2 * kv), *v = test_alloc(2 * kv);
    memset(k, 0xff, 2 * kv); /* NaN */
    memset(v, 0xff, 2 * kv);
    test_fill(q, rows * width);
    struct kernel_attention a = {.k = k,
                                 .v = v,
                                 .q_stride = width,
                                 .out_stride = width,
                                 .rows = 1,
                                 .heads = heads,
                                 .kv_heads = kv_heads,
                                 .key_size = head_size,
                                 .value_size = head_size,
                                 .head_end = heads,
                                 .scale = 0.3f};
    for (uint32_t r = 0; r < rows; r++) { /* like decode: later keys do not exist yet */
        for (uint32_t i = 0; i < kv_heads * head_size; i++) {
            size_t at = test_kv_at(kv_heads, head_size, r, i / head_size) + i % head_size;
            k[at] = test_f16_round((double)test_uniform());
            v[at] = test_f16_round((double)test_uniform());
        }
        a.q = q + r * width;
        a.out = alone + r * width;
        a.positions = r + 1;
        ops->attention(&a);
    }
    for (uint32_t r = 0; r < rows; r++) { /* like prefill: all keys exist, heads are split */
        uint32_t threads = r % THREADS_MAX + 1;
        pthread_t id[THREADS_MAX];
        struct attention_job job[THREADS_MAX];
        memset(out, 0xff, sizeof *out * width);
        for (uint32_t t = 0; t < threads; t++) {
            job[t] = (struct attention_job){ops, a};
            job[t].a.q = q + r * width;
            job[t].a.out = out;
            job[t].a.positions = r + 1;
            job[t].a.head_begin = border(heads, t, threads);
            job[t].a.head_end = border(heads, t + 1, threads);
            ck_assert_int_eq(pthread_create(&id[t], NULL, run_attention, &job[t]), 0);
        }
        for (uint32_t t = 0; t < threads; t++)
            pthread_join(id[t], NULL);
        ck_assert_mem_eq(out, alone + r * width, sizeof *out * width);
    }
    float *blocks = test_alloc(sizeof *blocks * rows * width); /* in blocks of 1, 2, 3, ... rows */
    for (uint32_t r = 0; r < rows; r += a.rows) {
        a.rows = a.rows + 1 < rows - r ? a.rows + 1 : rows - r;
        a.q = q + r * width;
        a.out = blocks + r * width;
        a.positions = r + 1;
        ops->attention(&a);
    }
    ck_assert_mem_eq(blocks, alone, sizeof *blocks * rows * width);
    free(blocks);
    free(q);
    free(alone);
    free(out);
    free(k);
    free(v);
}

START_TEST(attention_rows_do_not_depend_on_company)
{
    const struct kernel_ops *ops = kernel_ops_of((enum kernel_isa)_i);
    test_seed(23);
    check_attention(ops, 3, 3, 64, 200);
    check_attention(ops, 8, 2, 128, 130);
    check_attention(ops, 5, 1, 20, 70);
    check_attention(ops, 4, 4, 256, 66);
}
END_TEST

/* Elementwise operations on a row must not depend on the split over threads either. */
START_TEST(elements_do_not_depend_on_position)
{
    enum { LENGTH = 101 };
    const struct kernel_ops *ops = kernel_ops_of((enum kernel_isa)_i);
    float gate[LENGTH], up[LENGTH], whole[LENGTH], one, sum[LENGTH];
    float gelu[LENGTH], capped[LENGTH];
    uint16_t half[LENGTH], half_one;
    test_seed(24);
    test_fill(gate, LENGTH);
    test_fill(up, LENGTH);
    memcpy(sum, up, sizeof sum);
    ops->silu_mul(gate, up, LENGTH, whole);
    ops->gelu_mul(gate, up, LENGTH, gelu);
    ops->soft_cap(30, gate, LENGTH, capped);
    ops->axpy(0.37f, gate, LENGTH, sum);
    ops->to_f16(gate, LENGTH, half);
    for (int i = 0; i < LENGTH; i++) {
        ops->silu_mul(gate + i, up + i, 1, &one);
        ck_assert_mem_eq(&one, whole + i, sizeof one);
        ops->gelu_mul(gate + i, up + i, 1, &one);
        ck_assert_mem_eq(&one, gelu + i, sizeof one);
        ops->soft_cap(30, gate + i, 1, &one);
        ck_assert_mem_eq(&one, capped + i, sizeof one);
        one = up[i];
        ops->axpy(0.37f, gate + i, 1, &one);
        ck_assert_mem_eq(&one, sum + i, sizeof one);
        ops->to_f16(gate + i, 1, &half_one);
        ck_assert_uint_eq(half_one, half[i]);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("kernels.invariance");
    TCase *tcase = tcase_create("rows");
    tcase_set_timeout(tcase, 200);
    test_add_isa(tcase, matmul_rows_do_not_depend_on_company);
    test_add_isa(tcase, long_rows_in_a_big_batch);
    test_add_isa(tcase, the_longest_rows);
    test_add_isa_attention(tcase, attention_rows_do_not_depend_on_company);
    test_add_isa(tcase, elements_do_not_depend_on_position);
    suite_add_tcase(suite, tcase);
    return test_run(suite);
}
