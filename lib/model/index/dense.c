/* SPDX-License-Identifier: Apache-2.0 */
/* Precision of dense weights: which tensors `sluice pack --dense` may change, and what a model
 * has. */
#include <string.h>

#include "lib/model/arch/table.h"
#include "lib/model/index/model_index.h"

bool model_dense_quantisable(const struct model_index *m, uint32_t entry)
{
    const struct model_entry *e = &model_index_entries(m)[entry];
    const struct model_tensor *t = &model_index_tensors(m)[e->extent[0].tensor];
    return entry != model_table_entry(m) && t->dims == 2 && t->ne[1] > 1 &&
           t->ne[0] <= UINT32_MAX &&
           arch_role_any_type(arch_find(m->arch, strlen(m->arch)), (enum dense_role)e->role);
}

enum precision model_dense_precision(const struct model_index *m)
{
    enum precision lowest = PRECISION_NATIVE;
    for (uint32_t i = 0; i < m->dense_count; i++) {
        const struct model_entry *e = &model_index_entries(m)[i];
        uint32_t type = model_index_tensors(m)[e->extent[0].tensor].type;
        enum precision p = type == TENSOR_C8   ? PRECISION_INT8
                           : type == TENSOR_C4 ? PRECISION_INT4
                                               : PRECISION_NATIVE;
        lowest = p > lowest ? p : lowest;
    }
    return lowest;
}

static bool of_router(enum dense_role role)
{
    return role == DENSE_ROUTER || role == DENSE_ROUTER_BIAS || role == DENSE_ROUTER_LOGIT_BIAS ||
           role == DENSE_ROUTER_SCALE;
}

/* The layers [first, end) predict the experts of this one. */
static bool part_predicts(const struct model_hparams *h, uint32_t first, uint32_t end,
                          uint32_t layer)
{
    uint32_t last = hparams_experts_before(h, end);
    return last < h->layers && last >= first && layer == hparams_next_experts(h, end);
}

/* Whether one of the layers begins with n-grams. */
static bool part_has_ngrams(const struct model_index *m, uint32_t first, uint32_t end)
{
    while (first < end && !m->layer[first].ngrams)
        first++;
    return first < end;
}

bool model_part_reads(const struct model_index *m, uint32_t first, uint32_t end, uint32_t entry)
{
    const struct model_entry *e = &model_index_entries(m)[entry];
    enum dense_role role = (enum dense_role)e->role;
    uint32_t globals = m->hparams.layers;
    bool tied = model_entry_dense(m, globals, DENSE_OUTPUT) == ENTRY_NONE;
    if (e->layer < globals)
        return (e->layer >= first && e->layer < end) ||
               (of_router(role) && part_predicts(&m->hparams, first, end, e->layer));
    if (role == DENSE_ROPE_FREQS)
        return true;
    if (role == DENSE_TOKEN_EMBD)
        return first == 0 || (tied && end == globals);
    if (role == DENSE_NGRAM_TABLE)
        return part_has_ngrams(m, first, end);
    return end == globals;
}
