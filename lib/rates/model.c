/* SPDX-License-Identifier: Apache-2.0 */
/* The bytes of a model that a token of decode reads, by layer. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/rates/rates.h"
#include "lib/tensor/tensor_type.h"

static const struct model_tensor *tensor_of(const struct model_index *m,
                                            const struct model_entry *e)
{
    return &model_index_tensors(m)[e->extent[0].tensor];
}

/* Of an embedding that is not the output matrix, and of the table of n-grams, only rows are
 * read. */
static bool reads_rows(const struct model_index *m, const struct model_entry *e)
{
    return e->role == DENSE_NGRAM_TABLE ||
           (e->role == DENSE_TOKEN_EMBD &&
            model_entry_dense(m, m->hparams.layers, DENSE_OUTPUT) != ENTRY_NONE);
}

static void add_dense(const struct model_index *m, struct rates_model *r)
{
    for (uint32_t i = 0; i < m->dense_count; i++) {
        const struct model_entry *e = &model_index_entries(m)[i];
        if (e->extents == 0 || reads_rows(m, e))
            continue;
        const struct model_tensor *t = tensor_of(m, e);
        struct cost_bytes *to =
            e->layer < m->hparams.layers ? &r->layer[e->layer].dense : &r->cost.output;
        to->of[cost_class((enum tensor_type)t->type)] += t->bytes;
    }
}

static void add_expert(const struct model_index *m, uint32_t layer, struct cost_bytes *to)
{
    uint32_t entry = model_entry_expert(m, layer, 0); /* all of a layer are alike */
    if (entry == ENTRY_NONE)
        return;
    const struct model_entry *e = &model_index_entries(m)[entry];
    for (int k = 0; k < EXPERT__COUNT; k++)
        to->of[cost_class((enum tensor_type)e->matrix[k].type)] +=
            e->matrix[k].row_bytes * e->matrix[k].n;
}

/* Of a ring all of its positions are copied; without one, what a token reads. */
static uint64_t kv_of(const struct model_index *m, uint32_t layer, enum kv_type type,
                      uint32_t context, uint32_t ring)
{
    const struct model_hparams *h = &m->hparams;
    uint64_t state = model_layer_floats(h, layer) * sizeof(float);
    if (h->layer_kind[layer] == LAYER_RECURRENT)
        return state;
    uint32_t half = context / 2;
    uint64_t bytes = state;
    if (m->layer[layer].attention.window > 0 && ring > 0) {
        uint32_t copied = ring < half ? ring : half;
        return bytes + model_kv_bytes(h, layer, KV_SIDE_KEYS, type, copied) +
               model_kv_bytes(h, layer, KV_SIDE_VALUES, type, copied) +
               model_read_bytes(h, layer, KV_SIDE_INDEX, type, half);
    }
    for (uint32_t side = 0; side < KV_SIDE__COUNT; side++)
        bytes += model_read_bytes(h, layer, side, type, half);
    return bytes;
}

void rates_key(const struct model_index *m, const char *isa, char key[RATES_TYPE_BYTES])
{
    uint32_t entry = ENTRY_NONE;
    for (uint32_t l = 0; l < m->hparams.layers && entry == ENTRY_NONE; l++)
        entry = model_entry_expert(m, l, 0);
    if (entry == ENTRY_NONE) {
        snprintf(key, RATES_TYPE_BYTES, "no experts, %s", isa);
        return;
    }
    const struct model_matrix *w = model_index_entries(m)[entry].matrix;
    snprintf(key, RATES_TYPE_BYTES, "%s %ux%u, %u layers of %u, %s",
             tensor_type_info((uint32_t)w->type)->name, w->n, w->k, m->hparams.layers,
             m->hparams.experts, isa);
}

int rates_model(const struct model_index *m, enum kv_type type, uint32_t context, uint32_t ring,
                const double *hits, struct rates_model *out, struct error *error)
{
    const struct model_hparams *h = &m->hparams;
    *out = (struct rates_model){.layer = calloc(h->layers, sizeof *out->layer),
                                .hits = calloc((size_t)h->experts + 1, sizeof *out->hits)};
    if (!out->layer || !out->hits) {
        rates_model_free(out);
        return error_set(error, ERR_NO_MEMORY, "out of memory (rates)");
    }
    memcpy(out->hits, hits, ((size_t)h->experts + 1) * sizeof *hits);
    out->cost = (struct cost_model){.layers = h->layers,
                                    .experts = h->experts,
                                    .top_k = h->experts_used,
                                    .layer = out->layer,
                                    .hits = out->hits,
                                    .policy = GPU_POLICY__COUNT};
    add_dense(m, out);
    for (uint32_t l = 0; l < h->layers; l++) {
        add_expert(m, l, &out->layer[l].expert);
        out->layer[l].kv = kv_of(m, l, type, context, ring);
    }
    return 0;
}

void rates_model_free(struct rates_model *r)
{
    free(r->layer);
    free(r->hits);
    *r = (struct rates_model){.layer = NULL};
}
