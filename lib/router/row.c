/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the tensors of a layer's router and computes the logits of one row. */
#include "lib/router/row.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/assert.h"
#include "lib/model/arch/arch.h"
#include "lib/model/limits.h"

#define ROUTER_MAGIC 0x524f5554u

struct router_row {
    uint32_t magic;
    const struct model_index *model;
    const struct kernel_ops *ops;
    router_dense *dense;
    void *self;
    float *scale;       /* [hidden] of the router, as floats */
    float *logit_bias;  /* [experts] likewise */
    float *choice_bias; /* [experts] likewise */
    float *input;       /* [hidden] of the matrix ... */
    void *made;         /* ... in another form, if the matrix needs it */
};

void router_add_bias(const struct kernel_ops *ops, const float *bias, uint32_t begin, uint32_t end,
                     float *logits)
{
    if (bias)
        ops->axpy(1.0f, bias + begin, end - begin, logits + begin);
}

void router_logits(const struct kernel_ops *ops, const struct kernel_matrix *matrix,
                   const float *bias, uint32_t begin, uint32_t end, const void *x, float *logits)
{
    ops->matmul(matrix, begin, end, x, kernel_activation_bytes(matrix->type, matrix->k), 1, logits,
                matrix->n);
    router_add_bias(ops, bias, begin, end, logits);
}

struct router_row *router_row_create(const struct model_index *model, const struct kernel_ops *ops,
                                     router_dense *dense, void *self)
{
    uint32_t hidden = model->hparams.hidden, experts = model->hparams.experts;
    size_t largest = kernel_activation_bytes_largest(hidden);
    struct router_row *r = calloc(1, sizeof *r);
    if (!r)
        return NULL;
    *r = (struct router_row){.magic = ROUTER_MAGIC,
                             .model = model,
                             .ops = ops,
                             .dense = dense,
                             .self = self,
                             .scale = calloc(hidden, sizeof *r->scale),
                             .logit_bias = calloc(experts, sizeof *r->logit_bias),
                             .choice_bias = calloc(experts, sizeof *r->choice_bias),
                             .input = aligned_alloc(64, largest),
                             .made = aligned_alloc(64, largest)};
    if (r->scale && r->logit_bias && r->choice_bias && r->input && r->made)
        return r;
    router_row_destroy(r);
    return NULL;
}

void router_row_destroy(struct router_row *r)
{
    if (!r)
        return;
    OBJ_CHECK(r, ROUTER_MAGIC);
    free(r->scale);
    free(r->logit_bias);
    free(r->choice_bias);
    free(r->input);
    free(r->made);
    r->magic = 0;
    free(r);
}

/* False: the layer has no such tensor, or it is not in memory. */
static bool tensor_of(const struct router_row *r, uint32_t layer, enum dense_role role,
                      struct kernel_matrix *w)
{
    const struct model_index *m = r->model;
    uint32_t entry = model_entry_dense(m, layer, role);
    if (entry == ENTRY_NONE)
        return false;
    const struct model_tensor *t =
        &model_index_tensors(m)[model_index_entries(m)[entry].extent[0].tensor];
    *w = (struct kernel_matrix){.data = r->dense(r->self, entry),
                                .row_bytes = t->row_bytes,
                                .k = (uint32_t)t->ne[0],
                                .n = (uint32_t)t->ne[1],
                                .type = (enum tensor_type)t->type};
    return w->data;
}

/* The vector of that role as floats, in `out`, to which *vector points then; NULL: the layer has
 * none. False: it is not in memory. */
static bool vector_of(const struct router_row *r, uint32_t layer, enum dense_role role, float *out,
                      const float **vector)
{
    struct kernel_matrix w;
    *vector = NULL;
    if (model_entry_dense(r->model, layer, role) == ENTRY_NONE)
        return true;
    if (!tensor_of(r, layer, role, &w))
        return false;
    r->ops->row_to_f32(&w, 0, out);
    *vector = out;
    return true;
}

/* -infinity for experts that the table does not have for the token. Numbers beyond the experts,
 * which a core rejects, are left out. */
static void keep_chosen(const struct router_row *r, const struct kernel_matrix *table,
                        uint32_t token, float *logits)
{
    const uint32_t experts = r->model->hparams.experts, k = table->k;
    uint32_t chosen[MODEL_TOP_K_MAX];
    float kept[MODEL_TOP_K_MAX];
    sl_assert(k <= MODEL_TOP_K_MAX);
    memcpy(chosen, (const uint8_t *)table->data + token * table->row_bytes, k * sizeof *chosen);
    for (uint32_t i = 0; i < k; i++)
        kept[i] = chosen[i] < experts ? logits[chosen[i]] : 0;
    for (uint32_t e = 0; e < experts; e++)
        logits[e] = -INFINITY;
    for (uint32_t i = 0; i < k; i++)
        if (chosen[i] < experts)
            logits[chosen[i]] = kept[i];
}

bool router_row_logits(struct router_row *r, uint32_t layer, const float *x, uint32_t token,
                       float *logits, struct model_router *rule)
{
    OBJ_CHECK(r, ROUTER_MAGIC);
    struct kernel_matrix w, table = {.n = 0};
    const float *scale, *logit_bias, *choice_bias;
    bool by_table = model_entry_dense(r->model, layer, DENSE_EXPERT_TABLE) != ENTRY_NONE;
    if (!tensor_of(r, layer, DENSE_ROUTER, &w) ||
        !vector_of(r, layer, DENSE_ROUTER_SCALE, r->scale, &scale) ||
        !vector_of(r, layer, DENSE_ROUTER_LOGIT_BIAS, r->logit_bias, &logit_bias) ||
        !vector_of(r, layer, DENSE_ROUTER_BIAS, r->choice_bias, &choice_bias) ||
        (by_table && !tensor_of(r, layer, DENSE_EXPERT_TABLE, &table)))
        return false;
    bool floats = kernel_form_of(w.type) == FORM_F32;
    model_router_input(x, scale, w.k, r->input);
    if (!floats)
        r->ops->activation(w.type, r->input, w.k, r->made);
    router_logits(r->ops, &w, logit_bias, 0, w.n, floats ? r->input : r->made, logits);
    if (token < table.n)
        keep_chosen(r, &table, token, logits);
    *rule = model_router_of(&r->model->hparams, choice_bias);
    return true;
}
