/* SPDX-License-Identifier: Apache-2.0 */
/* Scores of an indexer: the keys are a matrix, whose product with the queries of all heads has a
 * kernel for each instruction set; the sum over the heads is axpy. */
#include "lib/kernels/index.h"

#include "lib/kernels/internal.h"

#define QUERIES 64 /* of a product */
#define KEYS    64

typedef uint32_t words __attribute__((vector_size(32), aligned(4), may_alias));
typedef float floats __attribute__((vector_size(32), aligned(4), may_alias));

struct index_form_info index_form_info(enum index_form form)
{
    static const struct index_form_info infos[] = {
#define INDEX_FORM(id, relu, weighted, own) {relu, weighted, own},
#include "lib/kernels/index_forms.tbl.h"
    };
    sl_assert((unsigned)form < INDEX__COUNT);
    return infos[form];
}

/* x = 0 where it is below 0; NaN stays NaN. n: a multiple of 8. */
static void relu(float *x, uint32_t n)
{
    for (uint32_t i = 0; i < n; i += sizeof(floats) / sizeof *x) {
        floats v = *(const floats *)(x + i);
        *(words *)(x + i) = (words)v & ~(words)(v < 0.0f);
    }
}

/* The products of the queries [first, first + count) with n keys, KEYS floats apart. */
static void products(const struct kernel_ops *ops, const struct kernel_index *a, uint32_t key,
                     uint32_t n, uint32_t first, uint32_t count, float y[QUERIES * KEYS])
{
    const bool half = a->type == KV_TYPE_F16;
    struct kernel_matrix keys = {.row_bytes = (uint64_t)a->size * (half ? 2 : sizeof(float)),
                                 .k = a->size,
                                 .n = n,
                                 .type = half ? TENSOR_F16 : TENSOR_F32};
    keys.data = (const uint8_t *)a->keys + key * keys.row_bytes;
    ops->matmul(&keys, 0, n, a->q + (size_t)first * a->size, a->size * sizeof(float), count, y,
                KEYS);
}

/* The scores of n keys, of the queries [first, first + count). */
static void add_queries(const struct kernel_ops *ops, const struct kernel_index *a, uint32_t key,
                        uint32_t n, uint32_t first, uint32_t count)
{
    const struct index_form_info form = index_form_info(a->form);
    _Alignas(64) float y[QUERIES * KEYS];
    memset(y, 0, sizeof *y * KEYS * (size_t)count); /* also those after n */
    products(ops, a, key, n, first, count, y);
    if (form.relu)
        relu(y, count * KEYS);
    for (uint32_t i = first; i < first + count; i++) {
        float *score = a->score + (form.own ? i : i / a->heads) * a->stride + key;
        const float *product = y + (size_t)(i - first) * KEYS;
        if (form.own)
            memcpy(score, product, n * sizeof *score);
        else if (i % a->heads == 0)
            memset(score, 0, n * sizeof *score);
        if (!form.own)
            ops->axpy(form.weighted ? a->weights[i] : 1.0f, product, n, score);
    }
}

void kernel_index_scores(const struct kernel_ops *ops, const struct kernel_index *a, uint32_t begin,
                         uint32_t end)
{
    const uint32_t queries = a->rows * a->heads;
    sl_assert(a->type == KV_TYPE_F16 || a->type == KV_TYPE_F32);
    for (uint32_t key = begin; key < end; key += KEYS)
        for (uint32_t i = 0; i < queries; i += QUERIES)
            add_queries(ops, a, key, end - key < KEYS ? end - key : KEYS, i,
                        queries - i < QUERIES ? queries - i : QUERIES);
}
