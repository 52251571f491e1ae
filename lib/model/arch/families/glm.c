/* SPDX-License-Identifier: Apache-2.0 */
/* The architectures of GLM, as rows (rows.h). */
#include "lib/model/arch/families/common.h"

/* GLM-4.5, 4.6, 4.7: the first half of each head is rotated; biases on q, k and v, and norms of
 * each q and k head, in some models; a block for drafting after the last layer. */
static const struct arch_row glm4moe[] = {
    GROUP(arch_common),
    GROUP(arch_leading_dense),
    GROUP(arch_sigmoid),
    DENSE(ROUTER_BIAS, FLOAT, REQUIRED, EXPERTS, ONE),
    GROUP(arch_ungated_shared),
    UINT(expert_inner, "expert_feed_forward_length", 1, 65536, REQUIRED),
    UINT(skipped_layers, "nextn_predict_layers", 0, MODEL_LAYERS_MAX - 1, DERIVED),
    CONST(qk_norm, QK_NORM_HEAD),
    NAME(FFN_NORM, "blk.%u.post_attention_norm.weight"),
    DENSE(ATTN_Q_BIAS, FLOAT, OPTIONAL, Q, ONE),
    DENSE(ATTN_K_BIAS, FLOAT, OPTIONAL, KV, ONE),
    DENSE(ATTN_V_BIAS, FLOAT, OPTIONAL, VALUES, ONE),
    DENSE(ATTN_Q_NORM, FLOAT, OPTIONAL, HEAD, ONE),
    DENSE(ATTN_K_NORM, FLOAT, OPTIONAL, HEAD, ONE),
    END,
};
const struct arch arch_glm4moe = {"glm4moe", glm4moe};

/* An indexer over pools, whose keys are sums by gates. One fork has another name of their size. */
static const struct arch_row gated_pools[] = {
    UINT(index_block, "attention.indexer.kpool", 0, MODEL_CONTEXT_MAX, DERIVED),
    ELSE(index_block, "attention.indexer.block_size"),
    UINT(index_top_k, "attention.indexer.top_k", 0, MODEL_CONTEXT_MAX, DERIVED),
    CHOICE_WHOLE("attention.indexer.top_k"),
    ONLY_WHY("attention.indexer.kpool_select_tail", 1,
             "without it the first positions attend to nothing"),
    INDEXED("attention.indexer.types", 0),
    CONST(index_gates, 1),
    FLOAT_ELSE(index_eps, "attention.layer_norm_epsilon", 0, 0.1, 1e-6),
    GROUP(arch_mla_indexer),
    DENSE(INDEX_GATE, ANY, REQUIRED, HIDDEN, INDEX_KEY),
    DENSE(INDEX_GATE_BIAS, KEPT, REQUIRED, INDEX_KEY, INDEX_UNIT),
    UNUSED("blk.%u.indexer_compressor_gate.weight"),
    UNUSED("blk.%u.indexer_compressor_ape.weight"),
    END,
};

/* GLM-5.3-Flash: Kimi delta attention beside MLA without rotations, four streams that are mixed,
 * and limits in all networks. In MLA, an indexer chooses pools of positions. */
static const struct arch_row glm5_next[] = {
    FLOAT(rms_eps, "attention.layer_norm_rms_epsilon", 1e-12, 0.1),
    GROUP(arch_counts),
    CONST(rope_dims, 0),
    ONLY("rope.dimension_count", 0),
    GROUP(arch_ends),
    GROUP(arch_kda_layers),
    GROUP(arch_kda_gates),
    FLOAT_ELSE(decay_bound, "kda.gate_lower_bound", -100, 0, 0),
    CONST(low_rank, 1),
    UNROTATED(ALL),
    GROUP(arch_sigmoid),
    LIMITS(expert_limits, "swiglu_clamp_exp"),
    LIMITS(dense_limits, "swiglu_clamp_shexp"),
    UINT(skipped_layers, "nextn_predict_layers", 0, MODEL_LAYERS_MAX - 1, DERIVED),
    GROUP(arch_mixed_streams),
    GROUP(gated_pools),
    END,
};
const struct arch arch_glm5_next = {"glm5-next", glm5_next};
/* The name in files of August and September 2026. */
const struct arch arch_glm5next = {"glm5next", glm5_next};
