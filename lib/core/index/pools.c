/* SPDX-License-Identifier: Apache-2.0 */
/* Keys of an indexer that stand for pools of several positions. With r positions of a pool, counted
 * from the start of the sequence, k of the pool b is of the positions r b .. r b + r - 1
 * - turned(RMSNorm(mean of W_k x), r b) (Qwen3.8-Flash-Next; transformers' Qwen4ExpTextQSAIndexer);
 * - with gates, the sum of p_j LayerNorm(W_k x_j), p = softmax over j of W_g x_j + a_j, for each
 *   channel (GLM-5.3-Flash; transformers' Glm5NextTextIndexer);
 * and a query at position p sees the keys of the pools that end at p or before. It attends to all
 * positions of the pools that are chosen, and to those after the last complete pool: without the
 * latter, to itself only if its pool is chosen.
 *
 * Keys are those of complete pools alone, so a sequence that is cut back to n positions has the
 * first n / r of them; what follows is written again. The rows of a pool that is not complete, and
 * their gates, are in the state of the sequence, in floats, with the states of recurrent layers: a
 * key has the same bits whether its positions come in one pass or in several. */
#include "lib/core/internal.h"

_Static_assert(MODEL_POOL_MAX <= DEVICE_UNIT_MAX, "a device has keys of such pools");

void core_bind_pools(struct core *c, uint32_t i)
{
    c->layer[i].index.state_at = model_state_floats(&c->hp, i);
    sl_assert(c->index.unit == 1 || model_pool_floats(&c->hp, i) ==
                                        device_pool_floats(&c->index, c->hp.index_gates != 0));
}

/* What makes a key of the rows of a pool. */
static void store(struct core *c, struct op_index_pool pool)
{
    pool.rows = c->pass.step.rows;
    pool.sequences = c->pass.sequence_count;
    pool.row = c->scratch.row;
    pool.sequence = c->pass.at;
    pool.shape = c->index;
    pool.eps = core_index_eps(c);
    pool.k = c->scratch.index_k;
    c->device->ops->index_pool(c->device, &pool);
}

static void store_sums(struct core *c)
{
    core_index_norm(c);
    store(c, (struct op_index_pool){.gates = c->scratch.index_gate,
                                    .gate_bias = core_layer_now(c)->index.gate_bias});
}

static void store_means(struct core *c)
{
    const struct core_layer *l = core_layer_now(c);
    const struct layer_attention *a = &l->attention;
    bool factors = a->rope_dims > 0 && c->rope_has_factors[a->rope_table];
    store(c,
          (struct op_index_pool){
              .weight = l->index.k_norm,
              .turn = {.kind = (enum rope_kind)c->hp.index_rope, .dims = a->rope_dims},
              .rope = a->rope_dims > 0 ? c->ropes[a->rope_table] : (struct kernel_rope){.dims = 0},
              .factors = factors ? c->rope_factors : (struct device_at){0}});
}

void core_store_pools(struct core *c)
{
    if (c->hp.index_gates)
        store_sums(c);
    else
        store_means(c);
}
