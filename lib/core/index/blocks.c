/* SPDX-License-Identifier: Apache-2.0 */
/* Keys of an indexer that chooses blocks of positions, for each key head of attention by itself
 * (MiniMax-M3, as the package transformers computes it). Of x, which the mixer reads:
 *   k = RMSNorm(W_k x), one of a position;  q = RMSNorm(W_q x), of each key head
 *   score of a block = the largest q . k_s of its positions s that the row sees
 * The first elements of k and q are rotated. Blocks are cut at multiples of their size, the last
 * ones are always chosen, and the query heads of a key head attend to what is seen of the chosen
 * blocks. */
#include "lib/core/internal.h"

void core_block_keys(struct core *c)
{
    core_index_heads(c, 0, c->pass.step.rows, 1, core_layer_now(c)->index.k_norm,
                     c->scratch.index_k);
}
