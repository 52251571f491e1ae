/* SPDX-License-Identifier: Apache-2.0 */
/* Small models whose residual has several streams, which are mixed or weighed. */
#include <stdio.h>

#include "lib/base/bytes.h"
#include "lib/model/gguf/gguf.h"
#include "lib/tensor/tensor_type.h"
#include "tests/unit/lib/model/gguf_make_parts.h"

/* Two streams that are mixed: 2 + 2 weights and a matrix; or only weighed. */
static void mixed_part(struct make *m, unsigned layer, const char *part, unsigned h, uint32_t type,
                       bool mixed)
{
    const unsigned weights = mixed ? 8 : 4, scales = mixed ? 3 : 2;
    char names[3][64];
    snprintf(names[0], sizeof names[0], "hc_%s_fn.weight", part);
    snprintf(names[1], sizeof names[1], "hc_%s_base.weight", part);
    snprintf(names[2], sizeof names[2], "hc_%s_scale.weight", part);
    make_edit(m, layer,
              (const struct make_row[]){{names[0], type, 2 * h, weights},
                                        {names[1], TENSOR_F32, weights, 1},
                                        {names[2], TENSOR_F32, scales, 1},
                                        {0}});
}

static void mixed_streams(struct make *m, unsigned layer, unsigned h, uint32_t type, bool mixed)
{
    mixed_part(m, layer, "attn", h, type, mixed);
    mixed_part(m, layer, "ffn", h, type, mixed);
}

/* Nothing is rotated, and the decays of heads are a row. */
static void make_glm5(struct make *m, const char *arch, unsigned layers, unsigned h, uint32_t type)
{
    char key[80];
    make_mla(m, arch, layers, h, type);
    make_number(m, arch, "rope.dimension_count", 0);
    make_number(m, arch, "attention.key_length", h);
    make_number(m, arch, "attention.key_length_mla", h);
    for (unsigned layer = 0; layer < layers; layer++)
        make_edit(m, layer,
                  (const struct make_row[]){{"attn_q_b.weight", type, h, 2 * h},
                                            {"attn_kv_a_mqa.weight", type, h, h},
                                            {0}});
    make_kda(m, arch, layers, h, type, true);
    snprintf(key, sizeof key, "%s.hyper_connection.epsilon", arch);
    make_f32(m, key, 1e-6f);
    make_number(m, arch, "hyper_connection.count", 2);
    make_number(m, arch, "hyper_connection.sinkhorn_iterations", 20);
    for (unsigned layer = 0; layer < layers; layer++) {
        if (layer % 2 == 0)
            make_edit(m, layer, (const struct make_row[]){{"ssm_a", TENSOR_F32, 2, 1}, {0}});
        mixed_streams(m, layer, h, type, true);
    }
    make_gated_pools(m, arch, layers, h);
}

void make_glm5_next(struct make *m, unsigned layers, unsigned h, uint32_t type)
{
    make_glm5(m, "glm5-next", layers, h, type);
}

void make_glm5next(struct make *m, unsigned layers, unsigned h, uint32_t type)
{
    make_glm5(m, "glm5next", layers, h, type);
}

/* Every second layer has entries of few positions, whose keys an indexer has, the others some of
 * many; the first one has a table of experts. */
static void deepseek4_layer(struct make *m, unsigned layer, unsigned h, uint32_t type)
{
    bool few = layer % 2 == 0;
    unsigned parts = few ? 2 * h : h, unit = few ? 4 : 128;
    make_no_attention(m, layer);
    make_edit(
        m, layer,
        (const struct make_row[]){{"attn_sinks.weight", TENSOR_F32, 2, 1},
                                  {"attn_q_a.weight", type, h, h},
                                  {"attn_q_a_norm.weight", TENSOR_F32, h, 1},
                                  {"attn_q_b.weight", type, h, 2 * h},
                                  {"attn_kv.weight", type, h, h},
                                  {"attn_kv_a_norm.weight", TENSOR_F32, h, 1},
                                  {"attn_output_a.weight", type, h, 2 * h},
                                  {"attn_output_b.weight", type, 2 * h, h},
                                  {"attn_compressor_kv.weight", type, h, parts},
                                  {"attn_compressor_gate.weight", type, h, parts},
                                  {"attn_compressor_ape.weight", TENSOR_F32, parts, unit},
                                  {"attn_compressor_norm.weight", TENSOR_F32, h, 1},
                                  {"indexer.attn_q_b.weight", type, few ? h : 0, 2 * h},
                                  {"indexer.proj.weight", type, few ? h : 0, 2},
                                  {"indexer_compressor_kv.weight", type, few ? h : 0, 2 * h},
                                  {"indexer_compressor_gate.weight", type, few ? h : 0, 2 * h},
                                  {"indexer_compressor_ape.weight", TENSOR_F32, few ? 2 * h : 0, 4},
                                  {"indexer_compressor_norm.weight", TENSOR_F32, few ? h : 0, 1},
                                  {"exp_probs_b.bias", TENSOR_F32, layer > 0 ? 3 : 0, 1},
                                  {"ffn_gate_tid2eid.weight", TENSOR_F32, layer > 0 ? 0 : 2, 262},
                                  {"ffn_gate_shexp.weight", type, h, h},
                                  {"ffn_up_shexp.weight", type, h, h},
                                  {"ffn_down_shexp.weight", type, h, h},
                                  {0}});
    mixed_streams(m, layer, h, type, true);
}

void make_deepseek4(struct make *m, unsigned layers, unsigned h, uint32_t type)
{
    const struct {
        const char *key;
        uint32_t value;
    } numbers[] = {
        {"rope.dimension_count", 2},         {"attention.sliding_window", 16},
        {"attention.output_group_count", 2}, {"attention.indexer.head_count", 2},
        {"attention.indexer.top_k", 8},      {"expert_gating_func", 4},
        {"expert_shared_count", 1},          {"hash_layer_count", 1},
        {"hyper_connection.count", 2},       {"hyper_connection.sinkhorn_iterations", 20},
        {"attention.key_length", h},         {"attention.value_length", h},
        {"attention.q_lora_rank", h},        {"attention.output_lora_rank", h},
        {"attention.indexer.key_length", h}};
    int32_t ratios[8];
    for (size_t i = 0; i < ARRAY_LEN(numbers); i++)
        make_number(m, "deepseek4", numbers[i].key, numbers[i].value);
    make_f32(m, "deepseek4.attention.compress_rope_freq_base", 160000);
    make_f32(m, "deepseek4.hyper_connection.epsilon", 1e-6f);
    make_bool(m, "deepseek4.expert_weights_norm", true);
    for (unsigned layer = 0; layer < layers; layer++) {
        ratios[layer] = layer % 2 == 0 ? 4 : 128;
        deepseek4_layer(m, layer, h, type);
    }
    make_i32s(m, "deepseek4.attention.compress_ratios", ratios, layers);
    make_add_tensor(m, "output_hc_fn.weight", type, 2 * h, 2, 1);
    make_add_tensor(m, "output_hc_base.weight", TENSOR_F32, 2, 1, 1);
    make_add_tensor(m, "output_hc_scale.weight", TENSOR_F32, 1, 1, 1);
    make_tensor(m, "blk.0.ffn_gate_tid2eid.weight")->type = GGUF_TYPE_I32;
}

/* Every layer has an indexer. */
void make_hy_v4(struct make *m, unsigned layers, unsigned h, uint32_t type)
{
    make_mla(m, "hy_v4", layers, h, type);
    make_number(m, "hy_v4", "hyper_connection.count", 2);
    make_f32(m, "hy_v4.hyper_connection.epsilon", 1e-6f);
    make_f32(m, "hy_v4.hyper_connection.magnitude", 2);
    make_add_tensor(m, "output_hc_fn.weight", type, 2 * h, 2, 1);
    make_add_tensor(m, "output_hc_base.weight", TENSOR_F32, 2, 1, 1);
    make_add_tensor(m, "output_hc_scale.weight", TENSOR_F32, 1, 1, 1);
    for (unsigned layer = 0; layer < layers; layer++) {
        make_edit(m, layer,
                  (const struct make_row[]){{"attn_gate.weight", type, h, 2 * h},
                                            {"attn_sinks.weight", TENSOR_F32, 2, 1},
                                            {0}});
        mixed_streams(m, layer, h, type, false);
    }
    make_indexers(m, "hy_v4", layers, h);
}
