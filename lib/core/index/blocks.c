/* SPDX-License-Identifier: Apache-2.0 */
/* An indexer that chooses blocks of positions, for each key head of attention by itself
 * (MiniMax-M3, as the package transformers computes it). Of x, which the mixer reads:
 *   k = RMSNorm(W_k x), one of a position;  q = RMSNorm(W_q x), of each key head
 *   score of a block = the largest q . k_s of its positions s that the row sees
 * The first elements of k and q are rotated. Blocks are cut at multiples of their size, the last
 * ones are always chosen, and the query heads of a key head attend to what is seen of the chosen
 * blocks. */
#include "lib/core/internal.h"

void core_bind_blocks(struct core *c, uint32_t i)
{
    struct core_layer *l = &c->layer[i];
    const struct model_hparams *h = &c->hp;
    c->index.form = INDEX_HEADS;
    c->choice = (struct device_choice){
        .k = h->index_top_k, .block = h->index_block, .local = h->index_local};
    l->index.q = core_matrix(c, i, DENSE_INDEX_Q);
    l->index.k = core_matrix(c, i, DENSE_INDEX_K);
    l->in_forms |= form_bit(&l->index.q) | form_bit(&l->index.k);
}

/* y = W x, of the rows [first, first + rows). */
static void project(struct core *c, const struct device_matrix *w, uint32_t first, uint32_t rows,
                    struct device_at y)
{
    struct device_product product = {.w = *w, .y = y, .y_stride = w->n};
    const struct op_products products = {.rows = rows,
                                         .x = device_rows_from(&c->scratch.in, first),
                                         .count = 1,
                                         .product = &product};
    c->device->ops->products(c->device, &products);
}

void core_block_keys(struct core *c)
{
    const struct core_index_weights *w = &core_layer_now(c)->index;
    uint32_t rows = c->pass.step.rows;
    project(c, &w->k, 0, rows, c->scratch.index_k);
    core_index_heads(c, 0, rows, 1, w->k_norm, c->scratch.index_k);
}

void core_block_queries(struct core *c, uint32_t first, uint32_t rows)
{
    const struct core_index_weights *w = &core_layer_now(c)->index;
    project(c, &w->q, first, rows, c->scratch.index_q);
    core_index_heads(c, first, rows, c->index.heads, w->q_norm, c->scratch.index_q);
}
