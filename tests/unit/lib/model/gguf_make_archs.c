/* SPDX-License-Identifier: Apache-2.0 */
/* Changes a small model of qwen3moe into one of another architecture. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/assert.h"
#include "lib/base/bytes.h"
#include "lib/model/gguf/gguf.h"
#include "lib/tensor/tensor_type.h"
#include "tests/unit/lib/model/gguf_make.h"

static void rename_key(struct make *m, const char *from, const char *to)
{
    struct make_key *k = make_key(m, from);
    sl_assert(k);
    snprintf(k->name, sizeof k->name, "%s", to);
}

static struct make_tensor *layer_tensor(struct make *m, unsigned layer, const char *name,
                                        uint32_t type, uint64_t ne0, uint64_t ne1)
{
    char full[64];
    snprintf(full, sizeof full, "blk.%u.%s", layer, name);
    if (make_tensor(m, full))
        make_drop_tensor(m, full);
    return ne0 > 0 ? make_add_tensor(m, full, type, ne0, ne1, 1) : NULL;
}

static void qwen2moe_layer(struct make *m, unsigned layer, unsigned h, uint32_t type)
{
    layer_tensor(m, layer, "attn_q_norm.weight", 0, 0, 0);
    layer_tensor(m, layer, "attn_k_norm.weight", 0, 0, 0);
    layer_tensor(m, layer, "attn_q.bias", TENSOR_F32, h, 1);
    layer_tensor(m, layer, "attn_k.bias", TENSOR_F32, h / 2, 1);
    layer_tensor(m, layer, "attn_v.bias", TENSOR_F32, h / 2, 1);
    layer_tensor(m, layer, "ffn_gate_inp_shexp.weight", TENSOR_F32, h, 1);
    layer_tensor(m, layer, "ffn_gate_shexp.weight", type, h, 2ull * h);
    layer_tensor(m, layer, "ffn_up_shexp.weight", type, h, 2ull * h);
    layer_tensor(m, layer, "ffn_down_shexp.weight", type, 2ull * h, h);
}

static void shared_expert(struct make *m, unsigned layer, unsigned h, uint32_t type)
{
    layer_tensor(m, layer, "ffn_gate_shexp.weight", type, h, h);
    layer_tensor(m, layer, "ffn_up_shexp.weight", type, h, h);
    layer_tensor(m, layer, "ffn_down_shexp.weight", type, h, h);
}

/* What a layer of glm4moe, dots1, ernie4_5-moe, minimax-m2 and deepseek2 has in addition. */
static void biased_router_layer(struct make *m, const char *arch, unsigned layer, unsigned h,
                                uint32_t type)
{
    bool glm = strcmp(arch, "glm4moe") == 0, minimax = strcmp(arch, "minimax-m2") == 0;
    if (strcmp(arch, "ernie4_5-moe") == 0) {
        layer_tensor(m, layer, "attn_q_norm.weight", 0, 0, 0);
        layer_tensor(m, layer, "attn_k_norm.weight", 0, 0, 0);
    }
    if (minimax)
        layer_tensor(m, layer, "attn_q_norm.weight", TENSOR_F32, h, 1);
    if (glm) {
        layer_tensor(m, layer, "ffn_norm.weight", 0, 0, 0);
        layer_tensor(m, layer, "post_attention_norm.weight", TENSOR_F32, h, 1);
        layer_tensor(m, layer, "attn_q.bias", TENSOR_F32, h, 1);
        layer_tensor(m, layer, "attn_k.bias", TENSOR_F32, h / 2, 1);
        layer_tensor(m, layer, "attn_v.bias", TENSOR_F32, h / 2, 1);
    }
    layer_tensor(m, layer, "exp_probs_b.bias", TENSOR_F32, 3, 1);
    if (minimax)
        return;
    shared_expert(m, layer, h, type);
}

static void dense_layer(struct make *m, unsigned layer, unsigned h, uint32_t type)
{
    static const char *const experts[] = {"ffn_gate_inp.weight",  "exp_probs_b.bias",
                                          "ffn_gate_exps.weight", "ffn_up_exps.weight",
                                          "ffn_down_exps.weight", "ffn_gate_shexp.weight",
                                          "ffn_up_shexp.weight",  "ffn_down_shexp.weight"};
    for (size_t i = 0; i < ARRAY_LEN(experts); i++)
        layer_tensor(m, layer, experts[i], 0, 0, 0);
    layer_tensor(m, layer, "ffn_gate.weight", type, h, 2ull * h);
    layer_tensor(m, layer, "ffn_up.weight", type, h, 2ull * h);
    layer_tensor(m, layer, "ffn_down.weight", type, 2ull * h, h);
}

static void biased_router_model(struct make *m, const char *arch, unsigned layers, unsigned h,
                                uint32_t type)
{
    char key[80];
    for (unsigned layer = 0; layer < layers; layer++)
        biased_router_layer(m, arch, layer, h, type);
    if (strcmp(arch, "minimax-m2") == 0)
        return;
    snprintf(key, sizeof key, "%s.feed_forward_length", arch);
    make_u32(m, key, 2 * h);
    snprintf(key, sizeof key, "%s.expert_shared_count", arch);
    make_u32(m, key, 1);
    snprintf(key, sizeof key, "%s.leading_dense_block_count", arch);
    make_u32(m, key, layers > 1);
    if (layers > 1)
        dense_layer(m, 0, h, type);
    snprintf(key, sizeof key, "%s.expert_weights_norm", arch);
    make_bool(m, key, 1);
}

void make_mla(struct make *m, const char *arch, unsigned layers, unsigned h, uint32_t type)
{
    static const char *const others[] = {"attn_q.weight",      "attn_k.weight",
                                         "attn_v.weight",      "attn_output.weight",
                                         "attn_q_norm.weight", "attn_k_norm.weight"};
    const struct {
        const char *key;
        unsigned value;
    } keys[] = {{"attention.q_lora_rank", h},        {"attention.kv_lora_rank", h},
                {"attention.key_length", h + 2},     {"attention.value_length", h},
                {"attention.key_length_mla", h + 2}, {"attention.value_length_mla", h},
                {"rope.dimension_count", 2}};
    char name[64];
    biased_router_model(m, arch, layers, h, type);
    for (unsigned layer = 0; layer < layers; layer++) {
        for (size_t i = 0; i < ARRAY_LEN(others); i++)
            layer_tensor(m, layer, others[i], 0, 0, 0);
        layer_tensor(m, layer, "attn_q_a.weight", type, h, h);
        layer_tensor(m, layer, "attn_q_a_norm.weight", TENSOR_F32, h, 1);
        layer_tensor(m, layer, "attn_q_b.weight", type, h, 2ull * (h + 2));
        layer_tensor(m, layer, "attn_kv_a_mqa.weight", type, h, h + 2ull);
        layer_tensor(m, layer, "attn_kv_a_norm.weight", TENSOR_F32, h, 1);
        snprintf(name, sizeof name, "blk.%u.attn_k_b.weight", layer);
        make_add_tensor(m, name, type, h, h, 2);
        snprintf(name, sizeof name, "blk.%u.attn_v_b.weight", layer);
        make_add_tensor(m, name, type, h, h, 2);
        layer_tensor(m, layer, "attn_output.weight", type, 2ull * h, h);
    }
    for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
        snprintf(name, sizeof name, "%s.%s", arch, keys[i].key);
        make_u32(m, name, keys[i].value);
    }
}

static void deepseek2(struct make *m, unsigned layers, unsigned h, uint32_t type)
{
    make_mla(m, "deepseek2", layers, h, type);
}

/* No leading layer without experts, gate and up in one tensor. */
static void mistral4(struct make *m, unsigned layers, unsigned h, uint32_t type)
{
    make_mla(m, "mistral4", layers, h, type);
    make_text(m, "mistral4.rope.scaling.type", "yarn");
    make_f32(m, "mistral4.rope.scaling.factor", 128);
    make_u32(m, "mistral4.rope.scaling.original_context_length", 16);
}

/* A dense network next to the experts, a norm after each part, scales of router and layer. */
static void gemma4_layer(struct make *m, unsigned layer, unsigned h, uint32_t type)
{
    static const char *const vectors[] = {"post_attention_norm.weight", "post_ffw_norm_1.weight",
                                          "pre_ffw_norm_2.weight",      "post_ffw_norm_2.weight",
                                          "post_ffw_norm.weight",       "ffn_gate_inp.scale"};
    for (size_t i = 0; i < ARRAY_LEN(vectors); i++)
        layer_tensor(m, layer, vectors[i], TENSOR_F32, h, 1);
    layer_tensor(m, layer, "ffn_down_exps.scale", TENSOR_F32, 3, 1);
    layer_tensor(m, layer, "layer_output_scale.weight", TENSOR_F32, 1, 1);
    layer_tensor(m, layer, "ffn_gate.weight", type, h, 2ull * h);
    layer_tensor(m, layer, "ffn_up.weight", type, h, 2ull * h);
    layer_tensor(m, layer, "ffn_down.weight", type, 2ull * h, h);
}

static void gemma4(struct make *m, unsigned layers, unsigned h, uint32_t type)
{
    for (unsigned layer = 0; layer < layers; layer++)
        gemma4_layer(m, layer, h, type);
    make_u32(m, "gemma4.feed_forward_length", 2 * h);
    make_f32(m, "gemma4.final_logit_softcapping", 30);
    make_u32(m, "gemma4.attention.sliding_window", 16);
    make_array_raw(m, "gemma4.attention.sliding_window_pattern", GGUF_BOOL, layers, 0);
    for (unsigned layer = 0; layer < layers; layer++)
        bytes_add(&make_key(m, "gemma4.attention.sliding_window_pattern")->value,
                  layer % 2 ? "\1" : "\0", 1);
    make_u32(m, "gemma4.attention.key_length_swa", h / 2);
    make_u32(m, "gemma4.attention.value_length_swa", h / 2);
    make_u32(m, "gemma4.rope.dimension_count_swa", h / 2);
    make_f32(m, "gemma4.rope.freq_base_swa", 1000);
    make_add_tensor(m, "rope_freqs.weight", TENSOR_F32, h / 4, 1, 1);
}

static void drop_head_norms(struct make *m, unsigned layer)
{
    layer_tensor(m, layer, "attn_q_norm.weight", 0, 0, 0);
    layer_tensor(m, layer, "attn_k_norm.weight", 0, 0, 0);
}

/* q, k and v in one matrix. */
static void join_qkv(struct make *m, unsigned layer, unsigned h, uint32_t type)
{
    layer_tensor(m, layer, "attn_q.weight", 0, 0, 0);
    layer_tensor(m, layer, "attn_k.weight", 0, 0, 0);
    layer_tensor(m, layer, "attn_v.weight", 0, 0, 0);
    layer_tensor(m, layer, "attn_qkv.weight", type, h, 2ull * h);
}

static void granitemoe(struct make *m, unsigned layers, unsigned h, uint32_t type)
{
    (void)h, (void)type;
    for (unsigned layer = 0; layer < layers; layer++)
        drop_head_norms(m, layer);
    rename_key(m, "granitemoe.expert_feed_forward_length", "granitemoe.feed_forward_length");
    make_f32(m, "granitemoe.embedding_scale", 12);
    make_f32(m, "granitemoe.residual_scale", 0.25f);
    make_f32(m, "granitemoe.attention.scale", 0.5f);
    make_f32(m, "granitemoe.logit_scale", 8);
}

/* The rest: gguf_make_recurrent.c. */
static void granitehybrid(struct make *m, unsigned layers, unsigned h, uint32_t type)
{
    (void)layers, (void)h, (void)type;
    rename_key(m, "granitehybrid.expert_feed_forward_length", "granitehybrid.feed_forward_length");
}

static void hunyuan_moe(struct make *m, unsigned layers, unsigned h, uint32_t type)
{
    for (unsigned layer = 0; layer < layers; layer++)
        shared_expert(m, layer, h, type);
    make_u32(m, "hunyuan-moe.expert_shared_count", 1);
    make_u32(m, "hunyuan-moe.expert_shared_feed_forward_length", h);
}

static void phimoe(struct make *m, unsigned layers, unsigned h, uint32_t type)
{
    static const char *const biases[] = {"attn_norm.bias", "ffn_norm.bias", "attn_output.bias",
                                         "attn_q.bias"};
    (void)type;
    for (unsigned layer = 0; layer < layers; layer++) {
        drop_head_norms(m, layer);
        for (size_t i = 0; i < ARRAY_LEN(biases); i++)
            layer_tensor(m, layer, biases[i], TENSOR_F32, h, 1);
        layer_tensor(m, layer, "attn_k.bias", TENSOR_F32, h / 2, 1);
        layer_tensor(m, layer, "attn_v.bias", TENSOR_F32, h / 2, 1);
    }
    make_add_tensor(m, "output_norm.bias", TENSOR_F32, h, 1, 1);
    make_add_tensor(m, "output.bias", TENSOR_F32, TINY_VOCAB, 1, 1);
    rename_key(m, "phimoe.expert_feed_forward_length", "phimoe.feed_forward_length");
    make_u32(m, "phimoe.attention.sliding_window", 128);
}

static void dbrx(struct make *m, unsigned layers, unsigned h, uint32_t type)
{
    for (unsigned layer = 0; layer < layers; layer++) {
        drop_head_norms(m, layer);
        join_qkv(m, layer, h, type);
        layer_tensor(m, layer, "ffn_norm.weight", 0, 0, 0);
        layer_tensor(m, layer, "attn_output_norm.weight", TENSOR_F32, h, 1);
    }
    rename_key(m, "dbrx.expert_feed_forward_length", "dbrx.feed_forward_length");
    rename_key(m, "dbrx.attention.layer_norm_rms_epsilon", "dbrx.attention.layer_norm_epsilon");
    make_f32(m, "dbrx.attention.clamp_kqv", 8);
}

static void bailingmoe2(struct make *m, unsigned layers, unsigned h, uint32_t type)
{
    biased_router_model(m, "bailingmoe2", layers, h, type);
    for (unsigned layer = 0; layer < layers; layer++)
        join_qkv(m, layer, h, type);
}

static void drop_all_head_norms(struct make *m, unsigned layers)
{
    for (unsigned layer = 0; layer < layers; layer++)
        drop_head_norms(m, layer);
}

/* A dense network of the width of the layer beside the experts. */
static void arctic(struct make *m, unsigned layers, unsigned h, uint32_t type)
{
    drop_all_head_norms(m, layers);
    for (unsigned layer = 0; layer < layers; layer++) {
        layer_tensor(m, layer, "ffn_norm_exps.weight", TENSOR_F32, h, 1);
        layer_tensor(m, layer, "ffn_gate.weight", type, h, h);
        layer_tensor(m, layer, "ffn_up.weight", type, h, h);
        layer_tensor(m, layer, "ffn_down.weight", type, h, h);
    }
    rename_key(m, "arctic.expert_feed_forward_length", "arctic.feed_forward_length");
}

/* A shared expert in every layer. */
static void bailingmoe(struct make *m, unsigned layers, unsigned h, uint32_t type)
{
    drop_all_head_norms(m, layers);
    for (unsigned layer = 0; layer < layers; layer++)
        shared_expert(m, layer, h, type);
    make_u32(m, "bailingmoe.expert_shared_count", 1);
    make_bool(m, "bailingmoe.expert_weights_norm", 1);
}

static void deepseek(struct make *m, unsigned layers, unsigned h, uint32_t type)
{
    biased_router_model(m, "deepseek", layers, h, type);
    drop_all_head_norms(m, layers);
    for (unsigned layer = 0; layer < layers; layer++)
        layer_tensor(m, layer, "exp_probs_b.bias", 0, 0, 0);
    make_drop_key(m, "deepseek.expert_weights_norm");
}

/* The last layer attends to all positions. */
static void window_pattern(struct make *m, const char *arch, unsigned layers)
{
    char key[80];
    snprintf(key, sizeof key, "%s.attention.sliding_window", arch);
    make_u32(m, key, 16);
    snprintf(key, sizeof key, "%s.attention.sliding_window_pattern", arch);
    make_array_raw(m, key, GGUF_BOOL, layers, 0);
    for (unsigned layer = 0; layer < layers; layer++)
        bytes_add(&make_key(m, key)->value, layer + 1 < layers ? "\1" : "\0", 1);
}

static void exaone_moe(struct make *m, unsigned layers, unsigned h, uint32_t type)
{
    biased_router_model(m, "exaone-moe", layers, h, type);
    window_pattern(m, "exaone-moe", layers);
}

/* Numbers of 32 bits, one per layer, instead of the number of the key. */
static void put_per_layer(struct make *m, const char *key, unsigned layers, const uint32_t *values)
{
    if (make_key(m, key))
        make_drop_key(m, key);
    make_array_raw(m, key, GGUF_U32, layers, 0);
    bytes_add(&make_key(m, key)->value, values, layers * sizeof *values);
}

/* Gates with a matrix of their own: one per head, else one per element of the 2 heads, of `size`
 * elements. windows: of each layer; those with one have 4 query heads (NULL: all have 2). */
static void gated_heads(struct make *m, const char *arch, unsigned layers, unsigned h,
                        uint32_t type, unsigned size, bool per_head, const bool *windows)
{
    uint32_t heads[8];
    char key[80];
    sl_assert(layers <= ARRAY_LEN(heads));
    for (unsigned layer = 0; layer < layers; layer++) {
        heads[layer] = windows && windows[layer] ? 4 : 2;
        uint64_t all = (uint64_t)heads[layer] * size;
        if (all != h) {
            layer_tensor(m, layer, "attn_q.weight", type, h, all);
            layer_tensor(m, layer, "attn_output.weight", type, all, h);
        }
        layer_tensor(m, layer, "attn_gate.weight", type, h, per_head ? heads[layer] : all);
    }
    snprintf(key, sizeof key, "%s.attention.head_count", arch);
    if (windows)
        put_per_layer(m, key, layers, heads);
}

static void step35(struct make *m, unsigned layers, unsigned h, uint32_t type)
{
    static const float limits[8] = {0, 0.5f};
    bool windows[8] = {false};
    for (unsigned layer = 0; layer < layers; layer++)
        windows[layer] = layer + 1 < layers;
    biased_router_model(m, "step35", layers, h, type);
    window_pattern(m, "step35", layers);
    gated_heads(m, "step35", layers, h, type, h, true, windows);
    for (unsigned layer = 0; layer < layers; layer++) { /* so that half a head is even, too */
        layer_tensor(m, layer, "attn_k.weight", type, h, h);
        layer_tensor(m, layer, "attn_v.weight", type, h, h);
        layer_tensor(m, layer, "attn_q_norm.weight", TENSOR_F32, h, 1);
        layer_tensor(m, layer, "attn_k_norm.weight", TENSOR_F32, h, 1);
    }
    make_u32(m, "step35.attention.key_length", h);
    make_u32(m, "step35.attention.value_length", h);
    make_drop_key(m, "step35.expert_shared_count");
    make_u32(m, "step35.expert_shared_feed_forward_length", h);
    make_array_raw(m, "step35.swiglu_clamp_exp", GGUF_F32, layers, 0);
    bytes_add(&make_key(m, "step35.swiglu_clamp_exp")->value, limits, layers * sizeof *limits);
    make_f32(m, "step35.swiglu_clamp_shexp", 0.25f);
    make_add_tensor(m, "rope_freqs.weight", TENSOR_F32, h / 2, 1, 1);
}

static void laguna(struct make *m, unsigned layers, unsigned h, uint32_t type)
{
    bool windows[8] = {false};
    for (unsigned layer = 0; layer < layers; layer++)
        windows[layer] = layer % 4 != 0;
    biased_router_model(m, "laguna", layers, h, type);
    make_u32(m, "laguna.attention.sliding_window", 16);
    gated_heads(m, "laguna", layers, h, type, h / 2, true, windows);
    make_drop_key(m, "laguna.expert_shared_count");
}

static void afmoe(struct make *m, unsigned layers, unsigned h, uint32_t type)
{
    biased_router_model(m, "afmoe", layers, h, type);
    make_u32(m, "afmoe.attention.sliding_window", 16);
    gated_heads(m, "afmoe", layers, h, type, h / 2, false, NULL);
    for (unsigned layer = 0; layer < layers; layer++) {
        layer_tensor(m, layer, "post_attention_norm.weight", TENSOR_F32, h, 1);
        layer_tensor(m, layer, "post_ffw_norm.weight", TENSOR_F32, h, 1);
    }
}

/* As files are: without the key of leading layers and of shared experts. */
static void hy_v3(struct make *m, unsigned layers, unsigned h, uint32_t type)
{
    char name[64];
    biased_router_model(m, "hy_v3", layers, h, type);
    for (unsigned layer = layers > 1; layer < layers; layer++) {
        layer_tensor(m, layer, "exp_probs_b.bias", 0, 0, 0);
        snprintf(name, sizeof name, "blk.%u.exp_probs_b", layer);
        make_add_tensor(m, name, TENSOR_F32, 3, 1, 1);
    }
    if (layers > 1)
        make_drop_key(m, "hy_v3.leading_dense_block_count");
    make_drop_key(m, "hy_v3.expert_shared_count");
    make_u32(m, "hy_v3.expert_shared_feed_forward_length", h);
}

static void mellum(struct make *m, unsigned layers, unsigned h, uint32_t type)
{
    (void)h, (void)type;
    window_pattern(m, "mellum", layers);
    make_text(m, "mellum.rope.scaling.type", "yarn");
    make_f32(m, "mellum.rope.scaling.factor", 16);
    make_u32(m, "mellum.rope.scaling.original_context_length", 16);
}

static void maple(struct make *m, unsigned layers, unsigned h, uint32_t type)
{
    (void)h, (void)type;
    window_pattern(m, "maple", layers);
    make_f32(m, "maple.swiglu_clamp_exp", 7);
}

static void granite_swa(struct make *m, unsigned layers, unsigned h, uint32_t type)
{
    drop_all_head_norms(m, layers);
    rename_key(m, "granite_swa.expert_feed_forward_length", "granite_swa.feed_forward_length");
    for (unsigned layer = 0; layer < layers; layer++) {
        layer_tensor(m, layer, "attn_sinks.weight", TENSOR_F32, 2, 1);
        layer_tensor(m, layer, "ffn_up_shexp.weight", type, h, 2ull * h);
        layer_tensor(m, layer, "ffn_down_shexp.weight", type, h, h);
    }
    make_u32(m, "granite_swa.expert_shared_feed_forward_length", h);
    window_pattern(m, "granite_swa", layers);
    make_array_raw(m, "granite_swa.attention.rope_pattern", GGUF_BOOL, layers, 0);
    for (unsigned layer = 0; layer < layers; layer++)
        bytes_add(&make_key(m, "granite_swa.attention.rope_pattern")->value,
                  layer % 2 ? "\1" : "\0", 1);
}

/* As files are: the kinds of layers as integers, and no number of layers without experts. */
static void mimo2(struct make *m, unsigned layers, unsigned h, uint32_t type)
{
    int32_t kinds[8] = {0};
    biased_router_model(m, "mimo2", layers, h, type);
    drop_all_head_norms(m, layers);
    for (unsigned layer = 0; layer < layers; layer++) {
        kinds[layer] = layer % 2;
        layer_tensor(m, layer, "ffn_gate_shexp.weight", 0, 0, 0);
        layer_tensor(m, layer, "ffn_up_shexp.weight", 0, 0, 0);
        layer_tensor(m, layer, "ffn_down_shexp.weight", 0, 0, 0);
    }
    make_drop_key(m, "mimo2.expert_shared_count");
    if (layers > 1)
        make_drop_key(m, "mimo2.leading_dense_block_count");
    make_u32(m, "mimo2.attention.sliding_window", 16);
    make_i32s(m, "mimo2.attention.sliding_window_pattern", kinds, layers);
    make_f32(m, "mimo2.attention.value_scale", 0.5f);
}

static void cohere2moe(struct make *m, unsigned layers, unsigned h, uint32_t type)
{
    biased_router_model(m, "cohere2moe", layers, h, type);
    drop_all_head_norms(m, layers);
    for (unsigned layer = 0; layer < layers; layer++) {
        layer_tensor(m, layer, "ffn_norm.weight", 0, 0, 0);
        layer_tensor(m, layer, "exp_probs_b.bias", 0, 0, 0);
    }
    make_f32(m, "cohere2moe.logit_scale", 0.25f);
    make_u32(m, "cohere2moe.attention.sliding_window", 16);
}

static void qwen3vlmoe(struct make *m, unsigned layers, unsigned h, uint32_t type)
{
    (void)layers, (void)h, (void)type;
    make_u32(m, "qwen3vlmoe.n_deepstack_layers", 3);
}

static void smallthinker(struct make *m, unsigned layers, unsigned h, uint32_t type)
{
    (void)h, (void)type;
    for (unsigned layer = 0; layer < layers; layer++)
        drop_head_norms(m, layer);
    make_u32(m, "smallthinker.expert_gating_func", 2);
    make_u32(m, "smallthinker.attention.sliding_window", 16);
}

static void gpt_oss(struct make *m, unsigned layers, unsigned h, uint32_t type)
{
    (void)type;
    for (unsigned layer = 0; layer < layers; layer++) {
        drop_head_norms(m, layer);
        layer_tensor(m, layer, "ffn_norm.weight", 0, 0, 0);
        layer_tensor(m, layer, "post_attention_norm.weight", TENSOR_F32, h, 1);
        layer_tensor(m, layer, "attn_q.bias", TENSOR_F32, h, 1);
        layer_tensor(m, layer, "attn_k.bias", TENSOR_F32, h / 2, 1);
        layer_tensor(m, layer, "attn_v.bias", TENSOR_F32, h / 2, 1);
        layer_tensor(m, layer, "attn_output.bias", TENSOR_F32, h, 1);
        layer_tensor(m, layer, "attn_sinks.weight", TENSOR_F32, 2, 1);
        layer_tensor(m, layer, "ffn_gate_inp.bias", TENSOR_F32, 3, 1);
        layer_tensor(m, layer, "ffn_gate_exps.bias", TENSOR_F32, h, 3);
        layer_tensor(m, layer, "ffn_up_exps.bias", TENSOR_F32, h, 3);
        layer_tensor(m, layer, "ffn_down_exps.bias", TENSOR_F32, h, 3);
    }
    make_u32(m, "gpt-oss.attention.sliding_window", 16);
    make_text(m, "gpt-oss.rope.scaling.type", "yarn");
    make_f32(m, "gpt-oss.rope.scaling.factor", 32);
    make_u32(m, "gpt-oss.rope.scaling.original_context_length", 16);
}

/* Changes a file of qwen3moe. */
static const struct {
    const char *arch;
    void (*change)(struct make *m, unsigned layers, unsigned h, uint32_t type);
} changes[] = {{"granitemoe", granitemoe},
               {"arctic", arctic},
               {"granitehybrid", granitehybrid},
               {"hunyuan-moe", hunyuan_moe},
               {"phimoe", phimoe},
               {"dbrx", dbrx},
               {"bailingmoe2", bailingmoe2},
               {"smallthinker", smallthinker},
               {"gpt-oss", gpt_oss},
               {"deepseek2", deepseek2},
               {"deepseek4", make_deepseek4},
               {"glm5-next", make_glm5_next},
               {"glm5next", make_glm5next},
               {"hy_v4", make_hy_v4},
               {"dots3note", make_dots3note},
               {"kimi-linear", make_kimi_linear},
               {"kimi-k3", make_kimi_k3},
               {"bailingmoe3", make_bailingmoe3},
               {"minimax-01", make_minimax_01},
               {"mistral4", mistral4},
               {"bailingmoe", bailingmoe},
               {"deepseek", deepseek},
               {"exaone-moe", exaone_moe},
               {"hy_v3", hy_v3},
               {"step35", step35},
               {"laguna", laguna},
               {"afmoe", afmoe},
               {"mellum", mellum},
               {"maple", maple},
               {"granite_swa", granite_swa},
               {"llama4", make_llama4},
               {"mimo2", mimo2},
               {"cohere2moe", cohere2moe},
               {"qwen3vlmoe", qwen3vlmoe},
               {"gemma4", gemma4}};

void make_arch(struct make *m, const char *arch, unsigned layers, bool mixed)
{
    unsigned h = mixed ? 32 : 4;
    make_tiny(m, layers, mixed);
    make_text(m, "general.architecture", arch);
    for (size_t i = 0; i < m->key_count; i++) {
        char *name = m->keys[i].name, rest[80];
        if (strncmp(name, "qwen3moe.", 9) != 0)
            continue;
        snprintf(rest, sizeof rest, "%s", name + 9);
        snprintf(name, sizeof m->keys[i].name, "%s.%.40s", arch, rest);
    }
    bool olmoe = strcmp(arch, "olmoe") == 0, llama = strcmp(arch, "llama") == 0;
    for (unsigned layer = 0; layer < layers; layer++) {
        if (olmoe)
            layer_tensor(m, layer, "attn_q_norm.weight", TENSOR_F32, h, 1);
        if (llama)
            layer_tensor(m, layer, "attn_q_norm.weight", 0, 0, 0);
        if (llama)
            layer_tensor(m, layer, "attn_k_norm.weight", 0, 0, 0);
        if (strcmp(arch, "qwen2moe") == 0)
            qwen2moe_layer(m, layer, h, mixed ? TENSOR_Q8_0 : TENSOR_F32);
    }
    if (strcmp(arch, "glm4moe") == 0 || strcmp(arch, "dots1") == 0 ||
        strcmp(arch, "ernie4_5-moe") == 0 || strncmp(arch, "minimax-m", 9) == 0)
        biased_router_model(m, arch, layers, h, mixed ? TENSOR_Q8_0 : TENSOR_F32);
    make_recurrent(m, arch, layers, h, mixed ? TENSOR_Q8_0 : TENSOR_F32);
    make_indexed(m, arch, layers, h, mixed ? TENSOR_Q8_0 : TENSOR_F32);
    if (olmoe)
        rename_key(m, "olmoe.expert_feed_forward_length", "olmoe.feed_forward_length");
    if (llama)
        rename_key(m, "llama.expert_feed_forward_length", "llama.feed_forward_length");
    if (llama)
        make_add_tensor(m, "rope_freqs.weight", TENSOR_F32, h / 4, 1, 1);
    for (size_t i = 0; i < ARRAY_LEN(changes); i++)
        if (strcmp(arch, changes[i].arch) == 0)
            changes[i].change(m, layers, h, mixed ? TENSOR_Q8_0 : TENSOR_F32);
    if (strcmp(arch, "qwen2moe") == 0)
        make_u32(m, "qwen2moe.expert_shared_feed_forward_length", 2 * h);
}
