/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks with edge values - every byte 0 and 255; scales that are zero, of either sign, subnormal,
 * the largest, infinite and NaN - in decoders and products of every instruction set. The blocks and
 * their elements are those of golden_types (tests/golden/type_vectors.py). */
#include <ctype.h>
#include <math.h>
#include <stdio.h>

#include "lib/kernels/internal.h"
#include "tests/unit/lib/kernels/kernel_test.h"

enum {
    N = 67,
    ORDINARY = 24, /* blocks with random scales at the end of a file; of super-blocks fewer */
    ORDINARY_SUPER = 4,
};

static struct {
    const struct tensor_type_info *type;
    uint8_t *block;
    float *element;
    uint32_t count, edges; /* blocks; the first of them */
} vectors;

static bool open_vectors(enum tensor_type type)
{
    char path[4096];
    const struct tensor_type_info *info = tensor_type_info((uint32_t)type);
    if (!unpack_info((uint32_t)type)) /* of GGUF, quantised */
        return false;
    int n = snprintf(path, sizeof path, "%s/tests/golden/data/types/", SLUICE_SOURCE_DIR);
    for (size_t i = 0; info->name[i] != '\0'; i++)
        path[n++] = (char)tolower((unsigned char)info->name[i]);
    snprintf(path + n, sizeof path - (size_t)n, ".bin");
    FILE *f = fopen(path, "rb");
    ck_assert_msg(f != NULL, "cannot open %s", path);
    ck_assert_int_eq(fseek(f, 0, SEEK_END), 0);
    size_t bytes = (size_t)ftell(f), element_bytes = info->block_elems * sizeof(float);
    vectors.type = info;
    vectors.count = (uint32_t)(bytes / (info->block_bytes + element_bytes));
    uint32_t ordinary = info->block_elems == 256 ? ORDINARY_SUPER : ORDINARY;
    ck_assert_uint_gt(vectors.count, ordinary);
    vectors.edges = vectors.count - ordinary;
    vectors.block = test_alloc((size_t)vectors.count * info->block_bytes);
    vectors.element = test_alloc(vectors.count * element_bytes);
    ck_assert_int_eq(fseek(f, 0, SEEK_SET), 0);
    ck_assert_uint_eq(fread(vectors.block, info->block_bytes, vectors.count, f), vectors.count);
    ck_assert_uint_eq(fread(vectors.element, element_bytes, vectors.count, f), vectors.count);
    fclose(f);
    return true;
}

static void close_vectors(void)
{
    free(vectors.block);
    free(vectors.element);
}

static bool same(float a, float b)
{
    return (isnan(a) && isnan(b)) || memcmp(&a, &b, sizeof a) == 0;
}

START_TEST(decoders)
{
    const struct kernel_ops *ops = kernel_ops_of((enum kernel_isa)_i);
    for (size_t t = 0; t < TEST_TYPES; t++) {
        if (!open_vectors(test_types[t]))
            continue;
        uint32_t k = vectors.count * vectors.type->block_elems;
        struct kernel_matrix m = {.data = vectors.block, .k = k, .n = 1, .type = test_types[t]};
        ck_assert(tensor_type_row_bytes((uint32_t)m.type, k, &m.row_bytes));
        float *got = test_alloc(sizeof *got * k);
        ops->row_to_f32(&m, 0, got);
        for (uint32_t i = 0; i < k; i++)
            ck_assert_msg(same(got[i], vectors.element[i]), "%s %s: element %u is %a, not %a",
                          ops->name, vectors.type->name, i, (double)got[i],
                          (double)vectors.element[i]);
        free(got);
        close_vectors();
    }
}
END_TEST

/* Row j has edge block j at one place, ordinary blocks elsewhere; the last rows any blocks. So that
 * the next row and what is after the last one cannot hide an error, rows are at odd addresses. */
static struct kernel_matrix edge_matrix(uint32_t k)
{
    const size_t bytes = vectors.type->block_bytes;
    struct kernel_matrix m = test_matrix((enum tensor_type)vectors.type->ggml_id, k, N);
    uint32_t blocks = k / vectors.type->block_elems;
    for (uint32_t j = 0; j < N; j++) {
        uint32_t place = test_random() % blocks, ordinary = vectors.count - vectors.edges;
        bool any = j >= 2 * vectors.edges;
        for (uint32_t b = 0; b < blocks; b++) {
            uint32_t from = any          ? test_random() % vectors.count
                            : b == place ? j % vectors.edges
                                         : vectors.edges + test_random() % ordinary;
            memcpy((uint8_t *)(uintptr_t)m.data + j * m.row_bytes + b * bytes,
                   vectors.block + from * bytes, bytes);
        }
    }
    return m;
}

static void check_product(const struct kernel_ops *ops, uint32_t k, uint32_t rows)
{
    struct kernel_matrix m = edge_matrix(k);
    float *x = test_alloc(sizeof *x * k * rows);
    float *want = test_alloc(sizeof *want * N * rows), *got = test_alloc(sizeof *got * N * rows);
    test_fill(x, (size_t)k * rows);
    for (size_t i = 0; i < (size_t)k * rows; i++) /* blocks of zeros, too: 0 times infinity */
        x[i] *= i / 32 % 9 == 4 ? 0.0f : i / 64 % 3 == 0 ? 1e-4f : 30.0f;
    size_t stride;
    void *act = test_prepare(ops, m.type, x, k, rows, &stride);
    generic_ops.matmul(&m, 0, N, act, stride, rows, want, N);
    ops->matmul(&m, 0, N, act, stride, rows, got, N);
    for (size_t i = 0; i < (size_t)N * rows; i++)
        ck_assert_msg(same(got[i], want[i]),
                      "%s %s k %u rows %u: output %zu of row %zu is %a, not %a", ops->name,
                      vectors.type->name, k, rows, i % N, i / N, (double)got[i], (double)want[i]);
    free(act);
    free(x);
    free(want);
    free(got);
    test_matrix_free(&m);
}

/* The same numbers as the generic kernels, infinite where they are, and NaN where they are. */
START_TEST(products)
{
    static const uint32_t row_counts[] = {1, 2, 3, 17, 40};
    static const uint32_t elems[] = {256, 768, 4352};
    const struct kernel_ops *ops = kernel_ops_of((enum kernel_isa)_i);
    test_seed(61);
    for (size_t t = 0; t < TEST_TYPES; t++) {
        if (!open_vectors(test_types[t]))
            continue;
        for (size_t i = 0; i < ARRAY_LEN(elems); i++)
            for (size_t r = 0; r < ARRAY_LEN(row_counts); r++)
                check_product(ops, elems[i], row_counts[r]);
        close_vectors();
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("kernels.edges");
    TCase *tcase = tcase_create("edges");
    tcase_set_timeout(tcase, 120);
    test_add_isa(tcase, decoders);
    test_add_isa(tcase, products);
    suite_add_tcase(suite, tcase);
    return test_run(suite);
}
