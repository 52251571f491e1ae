/* SPDX-License-Identifier: Apache-2.0 */
/* Every instruction set returns the bits of the portable generic kernels, which are the executable
 * form of lib/kernels/ARITHMETIC.md: random inputs, all types, lengths around lanes, partial sums,
 * tiles and segments. */
#include <stdio.h>

#include "lib/kernels/internal.h"
#include "tests/unit/lib/kernels/kernel_test.h"

#include "lib/tensor/tensor_type.h"

#define REFERENCE (&generic_ops)

/* The sets that are compared with it. */
static const struct kernel_ops *sets[ISA__COUNT];
static size_t set_count;

static void compare_product(const struct kernel_ops *ops, const struct kernel_matrix *m,
                            const float *x, uint32_t rows, const void *act, const float *want)
{
    size_t stride, count = (size_t)m->n * rows;
    void *own = test_prepare(ops, m->type, x, m->k, rows, &stride);
    float *got = test_alloc(sizeof *got * count);
    ck_assert_msg(memcmp(act, own, stride * rows) == 0, "%s type %d k %u: activations differ",
                  ops->name, (int)m->type, m->k);
    ops->matmul(m, 0, m->n, own, stride, rows, got, m->n);
    for (size_t i = 0; i < count; i++)
        ck_assert_msg(memcmp(got + i, want + i, sizeof *got) == 0,
                      "%s type %d k %u n %u rows %u: output %zu of row %zu is %a, not %a",
                      ops->name, (int)m->type, m->k, m->n, rows, i % m->n, i / m->n, (double)got[i],
                      (double)want[i]);
    free(own);
    free(got);
}

static void check_product(enum tensor_type type, uint32_t k, uint32_t n, uint32_t rows)
{
    struct kernel_matrix m = test_matrix(type, k, n);
    float *x = test_alloc(sizeof *x * k * rows);
    float *want = test_alloc(sizeof *want * n * rows);
    test_fill(x, (size_t)k * rows);
    for (size_t i = 0; i < (size_t)k * rows;
         i++) /* sizes that differ, zeros, whole blocks of them */
        x[i] *= test_random() % 7 == 0 || i / 32 % 9 == 4 ? 0.0f : i / 64 % 3 == 0 ? 1e-4f : 30.0f;
    size_t stride;
    void *act = test_prepare(REFERENCE, type, x, k, rows, &stride);
    REFERENCE->matmul(&m, 0, n, act, stride, rows, want, n);
    for (size_t s = 0; s < set_count; s++)
        compare_product(sets[s], &m, x, rows, act, want);
    free(act);
    free(x);
    free(want);
    test_matrix_free(&m);
}

START_TEST(products)
{
    enum { MANY = 70 };
    static const uint32_t floats_k[] = {1,  7,  8,  9,   15,  16,  17,  23,   24,
                                        25, 31, 33, 100, 511, 512, 513, 1040, 2048};
    static const uint32_t blocks[] = {1, 2, 3, 4, 7, 8, 9, 12, 15, 16, 17, 24, 31, 32, 33, 64, 130};
    static const uint32_t row_counts[] = {1, 2, 3, 4, 7, 13, MANY}; /* MANY: more than a pass has */
    set_count = test_other_sets(sets, false);
    test_seed(41);
    for (size_t t = 0; t < TEST_TYPES; t++) {
        uint32_t block = test_block(test_types[t]);
        size_t count = block == 1 ? ARRAY_LEN(floats_k) : ARRAY_LEN(blocks);
        for (size_t i = 0; i < count; i++) {
            uint32_t k = block == 1 ? floats_k[i] : blocks[i] * block;
            if (k > 8320)
                continue;
            for (size_t r = 0; r < ARRAY_LEN(row_counts); r++)
                if (row_counts[r] < MANY || i % 4 == 0)
                    check_product(test_types[t], k, r % 2 == 0 ? 37 : 32, row_counts[r]);
        }
    }
}
END_TEST

/* So long that as many rows just fit into memory in the order of words, and one more does not. */
START_TEST(few_long_rows)
{
    static const struct {
        uint32_t k, rows;
    } cases[] = {{8192, 8}, {8448, 8}, {16384, 4}, {16384, 5}, {KERNEL_K_MAX, 2}};
    set_count = test_other_sets(sets, false);
    test_seed(47);
    for (size_t t = 0; t < TEST_TYPES; t++)
        for (size_t i = 0; i < ARRAY_LEN(cases) && test_block(test_types[t]) > 1; i++)
            check_product(test_types[t], cases[i].k, 3, cases[i].rows);
}
END_TEST

/* FNV-1a: a change of the arithmetic of a type is a decision (golden_hash.c). */
static uint64_t hash_of(const void *data, size_t bytes)
{
    const uint8_t *p = data;
    uint64_t hash = 0xcbf29ce484222325u;
    for (size_t i = 0; i < bytes; i++)
        hash = (hash ^ p[i]) * 0x100000001b3u;
    return hash;
}

static const struct {
    enum tensor_type type;
    uint64_t hash;
} stored[] = {
#define HASH(type, hash) {TENSOR_##type, hash},
#include "tests/unit/lib/kernels/hashes.tbl.h"
};

START_TEST(products_have_the_stored_hashes)
{
    enum { N = 19, ROWS = 3, K = 5 * 256 };
    const struct kernel_ops *ops = kernel_ops_of((enum kernel_isa)_i);
    static float x[K * ROWS], y[N * ROWS];
    bool same = true;
    for (size_t t = 0; t < TEST_TYPES; t++) {
        test_seed(44);
        struct kernel_matrix m = test_matrix(test_types[t], K, N);
        test_fill(x, K * ROWS);
        size_t stride;
        void *act = test_prepare(ops, m.type, x, K, ROWS, &stride);
        ops->matmul(&m, 0, N, act, stride, ROWS, y, N);
        uint64_t hash = hash_of(y, sizeof y), want = 0;
        for (size_t i = 0; i < ARRAY_LEN(stored); i++)
            want = stored[i].type == m.type ? stored[i].hash : want;
        if (hash != want) /* all at once, to be stored after a decision */
            printf("HASH(%s, 0x%016llx)\n", tensor_type_info((uint32_t)m.type)->name,
                   (unsigned long long)hash);
        same = same && hash == want;
        free(act);
        test_matrix_free(&m);
    }
    fflush(stdout);
    ck_assert_msg(same, "%s: hashes differ from hashes.tbl.h", ops->name);
}
END_TEST

/* `rows` rows, the last of which attends to all positions. */
static void check_attention(uint32_t heads, uint32_t size, uint32_t positions, uint32_t rows,
                            float spread)
{
    enum { KV_HEADS = 2 };
    size_t kv = test_kv_elements(positions, KV_HEADS, size), width = (size_t)heads * size;
    float *q = test_alloc(sizeof *q * width * rows), *want = test_alloc(sizeof *q * width * rows);
    float *got = test_alloc(sizeof *q * width * rows);
    uint16_t *k = test_alloc(2 * kv), *v = test_alloc(2 * kv);
    test_fill(q, width * rows);
    for (size_t i = 0; i < kv; i++) {
        k[i] = test_f16_round((double)(test_uniform() * spread));
        v[i] = test_f16_round((double)test_uniform());
    }
    struct kernel_attention a = {.q = q,
                                 .k = k,
                                 .v = v,
                                 .out = want,
                                 .q_stride = width,
                                 .out_stride = width,
                                 .rows = rows,
                                 .heads = heads,
                                 .kv_heads = KV_HEADS,
                                 .key_size = size,
                                 .value_size = size,
                                 .head_end = heads,
                                 .positions = positions - rows + 1,
                                 .scale = 0.7f};
    REFERENCE->attention(&a);
    a.out = got;
    for (size_t s = 0; s < set_count; s++) {
        memset(got, 0xff, sizeof *got * width * rows);
        sets[s]->attention(&a);
        for (size_t i = 0; i < width * rows; i++)
            ck_assert_msg(memcmp(got + i, want + i, sizeof *got) == 0,
                          "%s: head size %u, %u positions: element %zu is %a, not %a",
                          sets[s]->name, size, positions, i, (double)got[i], (double)want[i]);
    }
    free(q);
    free(want);
    free(got);
    free(k);
    free(v);
}

START_TEST(attention)
{
    static const uint32_t sizes[] = {2, 4, 8, 10, 16, 20, 24, 32, 40, 64, 72, 80, 96, 128, 256};
    static const uint32_t positions[] = {1,  2,   7,   8,   9,   15,  16,   17,   63,  64,
                                         65, 127, 130, 511, 512, 513, 1023, 1025, 1600};
    set_count = test_other_sets(sets, true);
    test_seed(42);
    for (size_t s = 0; s < ARRAY_LEN(sizes); s++)
        for (size_t p = 0; p < ARRAY_LEN(positions); p++)
            check_attention(4, sizes[s], positions[p], 1, p % 3 == 2 ? 60.0f : 1.0f);
}
END_TEST

/* Groups of several sizes and rows of a prompt, around tiles and segments. */
START_TEST(attention_of_many_rows)
{
    static const struct {
        uint32_t heads, size, positions, rows;
    } cases[] = {{2, 10, 70, 70},   {2, 64, 130, 33},  {2, 128, 127, 3}, {4, 72, 513, 2},
                 {4, 256, 65, 5},   {6, 40, 130, 7},   {6, 128, 560, 1}, {10, 64, 1030, 2},
                 {16, 20, 530, 31}, {16, 128, 513, 2}, {80, 16, 66, 3},  {2, 24, 1100, 70}};
    set_count = test_other_sets(sets, true);
    test_seed(45);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        check_attention(cases[i].heads, cases[i].size, cases[i].positions, cases[i].rows,
                        i % 3 == 2 ? 60.0f : 1.0f);
}
END_TEST

START_TEST(row_operations)
{
    enum { LENGTH = 1200 };
    static float x[LENGTH], w[LENGTH], want[LENGTH], got[LENGTH];
    const struct kernel_ops *ops = kernel_ops_of((enum kernel_isa)_i);
    test_seed(43);
    for (uint32_t n = 1; n <= LENGTH; n += n < 70 ? 1 : 113) {
        for (uint32_t i = 0; i < n; i++) {
            x[i] = test_uniform() * (test_random() % 5 == 0 ? 200.0f : 3.0f);
            w[i] = test_uniform();
        }
        REFERENCE->rms_norm(x, w, n, 1e-6f, want);
        ops->rms_norm(x, w, n, 1e-6f, got);
        ck_assert_mem_eq(got, want, n * sizeof *x);
        REFERENCE->silu_mul(x, w, n, want);
        ops->silu_mul(x, w, n, got);
        ck_assert_mem_eq(got, want, n * sizeof *x);
        REFERENCE->swiglu_clamped(x, w, n, want);
        ops->swiglu_clamped(x, w, n, got);
        ck_assert_mem_eq(got, want, n * sizeof *x);
        REFERENCE->gelu_mul(x, w, n, want);
        ops->gelu_mul(x, w, n, got);
        ck_assert_mem_eq(got, want, n * sizeof *x);
        REFERENCE->soft_cap(30, x, n, want);
        ops->soft_cap(30, x, n, got);
        ck_assert_mem_eq(got, want, n * sizeof *x);
        memcpy(want, w, sizeof w);
        memcpy(got, w, sizeof w);
        REFERENCE->axpy(0.37f, x, n, want);
        ops->axpy(0.37f, x, n, got);
        ck_assert_mem_eq(got, want, n * sizeof *x);
        if (n % 2 != 0)
            continue;
        memcpy(want, x, sizeof x);
        memcpy(got, x, sizeof x);
        REFERENCE->rope(want, n, w);
        ops->rope(got, n, w);
        ck_assert_mem_eq(got, want, n * sizeof *x);
    }
}
END_TEST

static void check_same(const char *what, const float *x, const float *got, const float *want,
                       uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        ck_assert_msg((got[i] != got[i] && want[i] != want[i]) ||
                          memcmp(got + i, want + i, sizeof *got) == 0,
                      "%s(%a) is %a, not %a", what, (double)x[i], (double)got[i], (double)want[i]);
}

/* exp over its whole range, by way of silu: silu(x) / x is 1 / (1 + exp(-x)). */
START_TEST(activations_of_every_size)
{
    enum { COUNT = 1 << 16 };
    static float x[COUNT], ones[COUNT], want[COUNT], got[COUNT];
    const struct kernel_ops *ops = kernel_ops_of((enum kernel_isa)_i);
    for (uint32_t i = 0; i < COUNT; i++) {
        x[i] = float_of(i << 16 | 0x1234u); /* every exponent and sign */
        ones[i] = 1;
        if (x[i] != x[i])
            x[i] = 0.0f;
    }
    REFERENCE->silu_mul(x, ones, COUNT, want);
    ops->silu_mul(x, ones, COUNT, got);
    check_same("silu", x, got, want, COUNT);
    REFERENCE->gelu_mul(x, ones, COUNT, want);
    ops->gelu_mul(x, ones, COUNT, got);
    check_same("gelu", x, got, want, COUNT);
    REFERENCE->soft_cap(30, x, COUNT, want);
    ops->soft_cap(30, x, COUNT, got);
    check_same("soft cap", x, got, want, COUNT);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("kernels.bits");
    TCase *tcase = tcase_create("bits");
    tcase_set_timeout(tcase, 200);
    tcase_add_test(tcase, products);
    tcase_add_test(tcase, few_long_rows);
    test_add_isa(tcase, products_have_the_stored_hashes);
    tcase_add_test(tcase, attention);
    tcase_add_test(tcase, attention_of_many_rows);
    test_add_isa(tcase, row_operations);
    test_add_isa(tcase, activations_of_every_size);
    suite_add_tcase(suite, tcase);
    return test_run(suite);
}
