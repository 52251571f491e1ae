/* SPDX-License-Identifier: Apache-2.0 */
/* Scores of an indexer, by which the positions are chosen that attention is over (choose.h). */
#ifndef SLUICE_KERNELS_INDEX_H
#define SLUICE_KERNELS_INDEX_H

#include "lib/kernels/kernels.h"

enum index_form {
#define INDEX_FORM(id, relu, weighted, own) INDEX_##id,
#include "lib/kernels/index_forms.tbl.h"
    INDEX__COUNT
};

struct index_form_info {
    bool relu, weighted, own; /* index_forms.tbl.h */
};

struct index_form_info index_form_info(enum index_form form);

/* Arguments for `rows` rows of queries and the keys that they share. */
struct kernel_index {
    enum index_form form;
    const float *q;       /* [rows][heads][size] */
    const float *weights; /* [rows][heads]; not read by forms without */
    const void *keys;     /* [entries][size], without gaps */
    enum kv_type type;    /* KV_TYPE_F16 or KV_TYPE_F32 */
    uint32_t rows, heads, size;
    float *score;  /* of entry 0: a line for each row, or for each head of each row (own) */
    size_t stride; /* floats from line to line */
};

/* score[e] of all lines for the entries [begin, end): s = +0, then for each head in ascending order
 * s = fma(w, relu(q k), s), w being 1 without weights; or q k of the own head (ARITHMETIC.md). A
 * row has the same bits alone and among others, for every division into ranges. */
void kernel_index_scores(const struct kernel_ops *ops, const struct kernel_index *a, uint32_t begin,
                         uint32_t end);

#endif
