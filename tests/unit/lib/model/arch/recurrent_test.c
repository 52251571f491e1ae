/* SPDX-License-Identifier: Apache-2.0 */
/* Architectures with recurrent layers: each key out of range and each tensor missing or misshapen
 * is rejected with the reason; layers of several kinds. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "lib/model/arch/table.h"
#include "lib/model/gguf/gguf.h"
#include "lib/model/index/model_index.h"
#include "lib/tensor/tensor_type.h"
#include "tests/unit/lib/model/gguf_make.h"

#define B "blk.0."

#define EDITS(X)                                                                                   \
    X(qwen35moe, taps, "ssm.conv_kernel' is 9: not between 2 and 8",                               \
      make_u32(m, "qwen35moe.ssm.conv_kernel", 9))                                                 \
    X(qwen35moe, taps_missing, "ssm.conv_kernel' is missing",                                      \
      make_drop_key(m, "qwen35moe.ssm.conv_kernel"))                                               \
    X(qwen35moe, head_large, "ssm.state_size' is 512: not between 2 and 256",                      \
      make_u32(m, "qwen35moe.ssm.state_size", 512))                                                \
    X(qwen35moe, no_k_heads, "ssm.group_count' is 0: not between",                                 \
      make_u32(m, "qwen35moe.ssm.group_count", 0))                                                 \
    X(qwen35moe, uneven_heads, "a multiple of ssm.group_count 3",                                  \
      make_u32(m, "qwen35moe.ssm.group_count", 3))                                                 \
    X(qwen35moe, inner, "ssm.inner_size is 8: not ssm.time_step_rank * ssm.state_size",            \
      make_u32(m, "qwen35moe.ssm.inner_size", 8))                                                  \
    X(qwen35moe, no_step, "full_attention_interval' is 0: not between 1",                          \
      make_u32(m, "qwen35moe.full_attention_interval", 0))                                         \
    X(qwen35moe, kinds_short, "recurrent_layers' has 0 elements for 1 layers",                     \
      make_array_raw(m, "qwen35moe.attention.recurrent_layers", GGUF_BOOL, 0, 0))                  \
    X(qwen35moe, kinds_type, "recurrent_layers' is",                                               \
      make_i32s(m, "qwen35moe.attention.recurrent_layers", (const int32_t[]){1}, 1))               \
    X(qwen35moe, qkv_missing, "tensor blk.0.attn_qkv.weight is missing",                           \
      make_drop_tensor(m, B "attn_qkv.weight"))                                                    \
    X(qwen35moe, gate_missing, "tensor blk.0.attn_gate.weight is missing",                         \
      make_drop_tensor(m, B "attn_gate.weight"))                                                   \
    X(qwen35moe, beta_missing, "tensor blk.0.ssm_beta.weight is missing",                          \
      make_drop_tensor(m, B "ssm_beta.weight"))                                                    \
    X(qwen35moe, alpha_missing, "tensor blk.0.ssm_alpha.weight is missing",                        \
      make_drop_tensor(m, B "ssm_alpha.weight"))                                                   \
    X(qwen35moe, conv_missing, "tensor blk.0.ssm_conv1d.weight is missing",                        \
      make_drop_tensor(m, B "ssm_conv1d.weight"))                                                  \
    X(qwen35moe, dt_missing, "tensor blk.0.ssm_dt.bias is missing",                                \
      make_drop_tensor(m, B "ssm_dt.bias"))                                                        \
    X(qwen35moe, a_missing, "tensor blk.0.ssm_a is missing", make_drop_tensor(m, B "ssm_a"))       \
    X(qwen35moe, norm_missing, "tensor blk.0.ssm_norm.weight is missing",                          \
      make_drop_tensor(m, B "ssm_norm.weight"))                                                    \
    X(qwen35moe, out_missing, "tensor blk.0.ssm_out.weight is missing",                            \
      make_drop_tensor(m, B "ssm_out.weight"))                                                     \
    X(qwen35moe, a_shape, "ssm_a is 4 x 1 x 1 x 1; 2 x 1", make_resize(m, B "ssm_a", 4, 1))        \
    X(qwen35moe, conv_shape, "ssm_conv1d.weight is 4 x 8 x 1 x 1; 3 x 8",                          \
      make_resize(m, B "ssm_conv1d.weight", 4, 8))                                                 \
    X(qwen35moe, qkv_shape, "attn_qkv.weight is 4 x 4 x 1 x 1; 4 x 8",                             \
      make_resize(m, B "attn_qkv.weight", 4, 4))                                                   \
    X(qwen35moe, attention, "attn_k.weight: layer 0 of this model has no such part",               \
      make_add_tensor(m, B "attn_k.weight", 0, 4, 2, 1))                                           \
    X(qwen35moe, joined, "ssm_ba.weight is not part of architecture qwen35moe",                    \
      make_add_tensor(m, B "ssm_ba.weight", 0, 4, 4, 1))                                           \
    X(qwen3next, old, "blk.0.ssm_in.weight: a matrix of q, k, v and z",                            \
      make_add_tensor(m, B "ssm_in.weight", 0, 4, 12, 1))                                          \
    X(qwen3next, joined_missing, "tensor blk.0.ssm_ba.weight is missing",                          \
      make_drop_tensor(m, B "ssm_ba.weight"))                                                      \
    X(qwen4exp, streams_missing, "hyper_connection.count' is missing",                             \
      make_drop_key(m, "qwen4exp.hyper_connection.count"))                                         \
    X(qwen4exp, one_stream, "hyper_connection.count' is 1: not between 2 and 16",                  \
      make_u32(m, "qwen4exp.hyper_connection.count", 1))                                           \
    X(qwen4exp, rank, "output_hc_down.weight is 8 x 4 x 1 x 1; 8 x 5",                             \
      make_u32(m, "qwen4exp.hyper_connection.low_rank", 5))                                        \
    X(qwen4exp, ngram_layer, "ple.layers' has layer 9 of 1",                                       \
      make_i32s(m, "qwen4exp.ple.layers", (const int32_t[]){9}, 1))                                \
    X(qwen4exp, ngram_layers, "ple.layers' has 2 layers; only one is supported",                   \
      make_i32s(m, "qwen4exp.ple.layers", (const int32_t[]){0, 0}, 2))                             \
    X(qwen4exp, no_ngrams, "per_layer_token_embd.weight is 4 x 24 x 1 x 1; 0 x 0",                 \
      make_drop_key(m, "qwen4exp.ple.layers"))                                                     \
    X(qwen4exp, ngram_size, "ple.ngram_size' is 9: not between 0 and 8",                           \
      make_u32(m, "qwen4exp.ple.ngram_size", 9))                                                   \
    X(qwen4exp, ngram_heads, "1 to 64 rows per token are possible",                                \
      make_u32(m, "qwen4exp.ple.heads_per_ngram", 33))                                             \
    X(qwen4exp, multipliers, "ple.layer_multipliers' is missing, or has not 3 elements",           \
      make_i32s(m, "qwen4exp.ple.layer_multipliers", (const int32_t[]){1, 2}, 2))                  \
    X(qwen4exp, part_empty, "of the table of n-grams, which has 24",                               \
      make_i32s(m, "qwen4exp.ple.head_vocab_sizes", (const int32_t[]){0, 13}, 2))                  \
    X(qwen4exp, part_beyond, "rows 11 to 25 of the table of n-grams, which has 24",                \
      make_i32s(m, "qwen4exp.ple.head_vocab_sizes", (const int32_t[]){11, 14}, 2))                 \
    X(qwen4exp, table_missing, "tensor per_layer_token_embd.weight is missing",                    \
      make_drop_tensor(m, "per_layer_token_embd.weight"))                                          \
    X(granitehybrid, no_attention, "head_count_kv' is 0 for every layer: the converter did not",   \
      make_i32s(m, "granitehybrid.attention.head_count_kv", (const int32_t[]){0}, 1))              \
    X(granitehybrid, rotated, "rope.scaling.finetuned' is 1; only 0 is supported",                 \
      make_bool(m, "granitehybrid.rope.scaling.finetuned", true))                                  \
    X(granitehybrid, rotation_unknown, "rope.scaling.finetuned' is missing",                       \
      make_drop_key(m, "granitehybrid.rope.scaling.finetuned"))                                    \
    X(jamba, state_large, "ssm.state_size' is 512: not between 1 and 256",                         \
      make_u32(m, "jamba.ssm.state_size", 512))                                                    \
    X(jamba, no_rank, "ssm.time_step_rank' is 0: not between 1",                                   \
      make_u32(m, "jamba.ssm.time_step_rank", 0))                                                  \
    X(jamba, normalised, "expert_weights_norm' is 1; only 0 is supported",                         \
      make_bool(m, "jamba.expert_weights_norm", true))                                             \
    X(jamba, width_missing, "feed_forward_length' is missing",                                     \
      make_drop_key(m, "jamba.feed_forward_length"))                                               \
    X(jamba, select_missing, "tensor blk.0.ssm_x.weight is missing",                               \
      make_drop_tensor(m, B "ssm_x.weight"))                                                       \
    X(jamba, select_shape, "ssm_x.weight is 8 x 6 x 1 x 1; 8 x 8",                                 \
      make_resize(m, B "ssm_x.weight", 8, 6))                                                      \
    X(jamba, step_missing, "tensor blk.0.ssm_dt.weight is missing",                                \
      make_drop_tensor(m, B "ssm_dt.weight"))                                                      \
    X(jamba, k_norm_missing, "tensor blk.0.ssm_b_norm.weight is missing",                          \
      make_drop_tensor(m, B "ssm_b_norm.weight"))                                                  \
    X(jamba, rates_shape, "ssm_a is 1 x 8 x 1 x 1; 2 x 8", make_resize(m, B "ssm_a", 1, 8))        \
    X(jamba, groups, "ssm_norm.weight is not part of architecture jamba",                          \
      make_add_tensor(m, B "ssm_norm.weight", 0, 8, 1, 1))                                         \
    X(jamba, no_experts, "no layer has experts", (make_drop_tensor(m, B "ffn_gate_inp.weight")))   \
    X(kimi_linear, head_large, "kda.head_dim' is 512: not between 2 and 256",                      \
      make_u32(m, "kimi-linear.kda.head_dim", 512))                                                \
    X(kimi_linear, bound_positive, "gate_lower_bound is 1: not between -100 and 0",                \
      make_f32(m, "kimi-linear.kda.gate_lower_bound", 1))                                          \
    X(kimi_linear, conv_missing, "tensor blk.0.ssm_conv1d_k.weight is missing",                    \
      make_drop_tensor(m, B "ssm_conv1d_k.weight"))                                                \
    X(kimi_linear, conv_shape, "ssm_conv1d_v.weight is 3 x 4 x 1 x 1; 3 x 1 x 8",                  \
      make_resize(m, B "ssm_conv1d_v.weight", 3, 4))                                               \
    X(kimi_linear, q_shape, "attn_q.weight is 4 x 4 x 1 x 1; 4 x 8",                               \
      make_resize(m, B "attn_q.weight", 4, 4))                                                     \
    X(kimi_linear, factor_missing, "tensor blk.0.ssm_f_b.weight is missing",                       \
      make_drop_tensor(m, B "ssm_f_b.weight"))                                                     \
    X(kimi_linear, latents, "attn_kv_a_mqa.weight: layer 0 of this model has no such part",        \
      make_add_tensor(m, B "attn_kv_a_mqa.weight", 0, 4, 6, 1))                                    \
    X(bailingmoe3, free, "kda.safe_gate' is 0; only 1 is supported",                               \
      make_bool(m, "bailingmoe3.kda.safe_gate", false))                                            \
    X(bailingmoe3, factors, "ssm_f_a.weight is 4 x 4 x 1 x 1; 4 x 8",                              \
      make_resize(m, B "ssm_f_a.weight", 4, 4))                                                    \
    X(kimi_linear, joined,                                                                         \
      "attn_qkv.weight: q, k and v in one matrix (an option of the converter)",                    \
      make_add_tensor(m, B "attn_qkv.weight", 0, 4, 24, 1))                                        \
    X(kimi_k3, block_missing, "attn_res.block_size' is missing",                                   \
      make_drop_key(m, "kimi-k3.attn_res.block_size"))                                             \
    X(kimi_k3, block_zero, "attn_res.block_size' is 0: not between 1 and",                         \
      make_u32(m, "kimi-k3.attn_res.block_size", 0))                                               \
    X(kimi_k3, score_missing, "tensor output_res_score.weight is missing",                         \
      make_drop_tensor(m, "output_res_score.weight"))                                              \
    X(kimi_k3, score_shape, "blk.0.ffn_res_score.weight is 5 x 1 x 1 x 1; 4 x 1",                  \
      make_resize(m, B "ffn_res_score.weight", 5, 1))                                              \
    X(kimi_k3, cap_missing, "activation.situ_beta' is missing",                                    \
      make_drop_key(m, "kimi-k3.activation.situ_beta"))                                            \
    X(kimi_k3, cap_zero, "situ_beta is 0: not between 0.001 and",                                  \
      make_f32(m, "kimi-k3.activation.situ_beta", 0))                                              \
    X(kimi_k3, latent, "latents of experts with 8 elements are wider than layers of 4",            \
      make_u32(m, "kimi-k3.expert_latent_length", 8))                                              \
    X(kimi_k3, latent_norm, "ffn_routed_norm.weight is 5 x 1 x 1 x 1; 4 x 1",                      \
      make_resize(m, B "ffn_routed_norm.weight", 5, 1))                                            \
    X(kimi_k3, factored_gate, "ssm_g_a.weight is not part of architecture kimi-k3",                \
      make_add_tensor(m, B "ssm_g_a.weight", 0, 4, 4, 1))                                          \
    X(glm5_next, rotated, "rope.dimension_count' is 2; only 0 is supported",                       \
      make_u32(m, "glm5-next.rope.dimension_count", 2))                                            \
    X(glm5_next, no_tail, "only 1 is supported: without it the first positions attend to nothing", \
      make_bool(m, "glm5-next.attention.indexer.kpool_select_tail", false))                        \
    X(glm5_next, streams_missing, "hyper_connection.count' is missing",                            \
      make_drop_key(m, "glm5-next.hyper_connection.count"))                                        \
    X(glm5_next, streams_many, "hyper_connection.count' is 17: not between 2 and 16",              \
      make_u32(m, "glm5-next.hyper_connection.count", 17))                                         \
    X(glm5_next, no_steps, "sinkhorn_iterations' is 0: not between 1 and 1000",                    \
      make_u32(m, "glm5-next.hyper_connection.sinkhorn_iterations", 0))                            \
    X(glm5_next, epsilon_missing, "hyper_connection.epsilon' is missing",                          \
      make_drop_key(m, "glm5-next.hyper_connection.epsilon"))                                      \
    X(glm5_next, mix_shape, "hc_attn_fn.weight is 8 x 8 x 1 x 1; 12 x 15",                         \
      make_u32(m, "glm5-next.hyper_connection.count", 3))                                          \
    X(glm5_next, scale_shape, "hc_ffn_scale.weight is 2 x 1 x 1 x 1; 3 x 1",                       \
      make_resize(m, B "hc_ffn_scale.weight", 2, 1))                                               \
    X(glm5_next, base_missing, "tensor blk.0.hc_ffn_base.weight is missing",                       \
      make_drop_tensor(m, B "hc_ffn_base.weight"))                                                 \
    X(glm5_next, head, "output_hc_fn.weight",                                                      \
      make_add_tensor(m, "output_hc_fn.weight", 0, 8, 2, 1))                                       \
    X(glm5_next, decays, "ssm_a is 3 x 1 x 1 x 1; 1 x 2", make_resize(m, B "ssm_a", 3, 1))         \
    X(minimax_01, heads, "lightning attention of 3 heads: not",                                    \
      make_u32(m, "minimax-01.attention.head_count", 3))                                           \
    X(minimax_01, sizes, "lightning attention has one size",                                       \
      make_u32(m, "minimax-01.attention.value_length", 4))                                         \
    X(minimax_01, no_scale, "residual_scale' is missing",                                          \
      make_drop_key(m, "minimax-01.residual_scale"))                                               \
    X(minimax_01, scale, "residual_scale is 0: not between 0.001 and 1000",                        \
      make_f32(m, "minimax-01.residual_scale", 0))                                                 \
    X(minimax_01, qkv_shape, "attn_qkv.weight is 4 x 8 x 1 x 1; 4 x 12",                           \
      make_resize(m, B "attn_qkv.weight", 4, 8))                                                   \
    X(minimax_01, norm_missing, "tensor blk.0.attn_norm_2.weight is missing",                      \
      make_drop_tensor(m, B "attn_norm_2.weight"))                                                 \
    X(minimax_01, attention, "attn_k.weight: layer 0 of this model has no such part",              \
      make_add_tensor(m, B "attn_k.weight", 0, 4, 2, 1))                                           \
    X(lfm2moe, taps, "shortconv.l_cache' is 1: not between 2 and 8",                               \
      make_u32(m, "lfm2moe.shortconv.l_cache", 1))                                                 \
    X(lfm2moe, heads_negative, "head_count_kv",                                                    \
      make_i32s(m, "lfm2moe.attention.head_count_kv", (const int32_t[]){-1}, 1))                   \
    X(lfm2moe, heads_short, "head_count_kv' has 0 elements for 1 layers",                          \
      make_i32s(m, "lfm2moe.attention.head_count_kv", NULL, 0))                                    \
    X(lfm2moe, heads_many, "0 or one number up to 1024",                                           \
      make_i32s(m, "lfm2moe.attention.head_count_kv", (const int32_t[]){4096}, 1))                 \
    X(lfm2moe, in_missing, "tensor blk.0.shortconv.in_proj.weight is missing",                     \
      make_drop_tensor(m, B "shortconv.in_proj.weight"))                                           \
    X(lfm2moe, conv_missing, "tensor blk.0.shortconv.conv.weight is missing",                      \
      make_drop_tensor(m, B "shortconv.conv.weight"))                                              \
    X(lfm2moe, out_missing, "tensor blk.0.shortconv.out_proj.weight is missing",                   \
      make_drop_tensor(m, B "shortconv.out_proj.weight"))

#include "tests/unit/lib/model/arch/edits.h"

/* The array of kinds takes precedence over the interval, by which no layer is recurrent (1), or
 * both are (3). */
START_TEST(kinds_by_an_array)
{
    struct make m;
    struct error error = {0};
    make_arch(&m, "qwen35moe", 2, false);
    make_array_raw(&m, "qwen35moe.attention.recurrent_layers", GGUF_BOOL, 2, 0);
    bytes_add(&make_key(&m, "qwen35moe.attention.recurrent_layers")->value, "\1\0", 2);
    make_u32(&m, "qwen35moe.full_attention_interval", 1 + 2 * (uint32_t)_i);
    struct model_index *index = make_index(&m, &error);
    ck_assert_msg(index, "%s", error.text);
    ck_assert_int_eq(index->layer[0].mixer, MIXER_DELTANET);
    ck_assert_int_eq(index->layer[1].mixer, MIXER_ATTENTION);
    ck_assert_uint_eq(model_state_bytes(&index->hparams), (2 * 8 + 2 * 2 * 2) * sizeof(float));
    ck_assert_uint_eq(model_kv_bytes(&index->hparams, 0, KV_SIDE_KEYS, KV_TYPE_F16, 64), 0);
    free(index);
}
END_TEST

/* A model may have layers of several recurrent kinds: each has its own sizes, and states are in the
 * order of layers. */
START_TEST(two_kinds)
{
    static const uint8_t mixers[] = {MIXER_DELTANET, MIXER_SHORTCONV, MIXER_ATTENTION,
                                     MIXER_DELTANET};
    struct model_hparams h = {.layers = 4,
                              .hidden = 24,
                              .conv_taps = 3,
                              .delta_size = 2,
                              .delta_k_heads = 1,
                              .delta_v_heads = 2,
                              .delta_inner = 4};
    for (uint32_t layer = 0; layer < h.layers; layer++) {
        bool recurrent = mixers[layer] != MIXER_ATTENTION;
        h.layer_mixer[layer] = mixers[layer];
        h.layer_kind[layer] = recurrent ? LAYER_RECURRENT : LAYER_FULL;
    }
    struct layer_recurrent delta = model_recurrent_of(&h, 0), conv = model_recurrent_of(&h, 1);
    struct layer_recurrent none = model_recurrent_of(&h, 2), max = model_recurrent_max(&h);
    ck_assert_uint_eq(delta.channels, (2 * 1 + 2) * 2);
    ck_assert_uint_eq(delta.floats, 2 * 8 + 2 * 2 * 2);
    ck_assert_uint_eq(delta.projected, 8 + 4 + 2 * 2);
    ck_assert_uint_eq(delta.mixed, 4);
    ck_assert_uint_eq(conv.channels, 24);
    ck_assert_uint_eq(conv.floats, 2 * 24);
    ck_assert_uint_eq(conv.projected, 3 * 24);
    ck_assert_uint_eq(conv.heads, 0);
    ck_assert_uint_eq(none.floats + none.taps + none.channels, 0);
    ck_assert_uint_eq(max.channels, 24);
    ck_assert_uint_eq(max.heads, 2);
    ck_assert_uint_eq(model_state_floats(&h, 1), delta.floats);
    ck_assert_uint_eq(model_state_floats(&h, 3), delta.floats + conv.floats);
    ck_assert_uint_eq(model_state_bytes(&h), (2 * delta.floats + conv.floats) * sizeof(float));
}
END_TEST

/* Mamba-2: the parts of a row follow each other without gaps, z first. */
START_TEST(row_of_mamba2)
{
    struct model_hparams h = {.layers = 1,
                              .conv_taps = 4,
                              .delta_size = 16,
                              .delta_k_heads = 2,
                              .delta_v_heads = 6,
                              .delta_inner = 48};
    h.layer_mixer[0] = MIXER_MAMBA2;
    struct layer_recurrent r = model_recurrent_of(&h, 0);
    ck_assert_uint_eq(r.value_size, 8);
    ck_assert_uint_eq(r.gate_at, 0);
    ck_assert_uint_eq(r.conv_at, 48);
    ck_assert(r.v_at == 0 && r.k_at == 48 && r.q_at == 48 + 32);
    ck_assert_uint_eq(r.channels, 48 + 2 * 32);
    ck_assert_uint_eq(r.rates_at, 48 + r.channels);
    ck_assert_uint_eq(r.projected, r.rates_at + 6);
    ck_assert_uint_eq(r.floats, 3 * r.channels + 6 * 16 * 8);
}
END_TEST

/* Mamba-1: x and z, what is selected, and the steps; heads are blocks of channels. */
START_TEST(row_of_mamba1)
{
    static const uint32_t inners[][2] = {{8192, 64}, {96, 32}, {7, 1}};
    for (size_t i = 0; i < ARRAY_LEN(inners); i++) {
        uint32_t inner = inners[i][0], block = inners[i][1];
        struct model_hparams h = {
            .layers = 1, .conv_taps = 4, .delta_size = 16, .step_rank = 5, .delta_inner = inner};
        h.layer_mixer[0] = MIXER_MAMBA1;
        struct layer_recurrent r = model_recurrent_of(&h, 0);
        ck_assert(r.value_size == block && r.heads == inner / block && r.groups == 1);
        ck_assert(r.conv_at == 0 && r.v_at == 0 && r.gate_at == inner);
        ck_assert(r.select_at == 2 * inner && r.step_rank == 5);
        ck_assert(r.k_at == r.select_at + 5 && r.q_at == r.k_at + 16 && r.rates_at == r.q_at + 16);
        ck_assert(r.projected == r.rates_at + inner && r.channels == inner && r.mixed == inner);
        ck_assert_uint_eq(r.floats, 3 * inner + inner * 16);
    }
}
END_TEST

/* A layer is Mamba-1 or attention, and has experts or one network, in every combination. */
START_TEST(parts_of_jamba)
{
    static const struct {
        enum layer_kind kind;
        uint32_t dense, flags; /* leading layers without experts */
        enum layer_mixer mixer;
        enum layer_ffn ffn;
    } rows[] = {{LAYER_RECURRENT, 0, 0, MIXER_MAMBA1, FFN_EXPERTS},
                {LAYER_RECURRENT, 0, LAYER_UNROUTED, MIXER_MAMBA1, FFN_DENSE},
                {LAYER_RECURRENT, 1, 0, MIXER_MAMBA1, FFN_DENSE},
                {LAYER_FULL, 0, 0, MIXER_ATTENTION, FFN_EXPERTS},
                {LAYER_FULL, 0, LAYER_UNROUTED, MIXER_ATTENTION, FFN_DENSE},
                {LAYER_FULL, 1, 0, MIXER_ATTENTION, FFN_DENSE}};
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct model_hparams h = {.layers = 1, .dense_layers = rows[i].dense};
        h.layer_kind[0] = (uint8_t)rows[i].kind;
        h.layer_flags[0] = (uint8_t)rows[i].flags;
        arch_set_parts(&arch_jamba, &h);
        ck_assert_uint_eq(h.layer_mixer[0], rows[i].mixer);
        ck_assert_uint_eq(h.layer_ffn[0], rows[i].ffn);
    }
}
END_TEST

/* ---- layers of one part ---- */

/* Kimi delta attention: the parts of a row follow each other without gaps. */
START_TEST(row_of_kda)
{
    struct model_hparams h = {
        .layers = 1, .conv_taps = 4, .delta_size = 16, .heads = 3, .decay_bound = -5};
    h.layer_mixer[0] = MIXER_KDA;
    struct layer_recurrent r = model_recurrent_of(&h, 0);
    ck_assert(r.conv_at == 0 && r.q_at == 0 && r.k_at == 48 && r.v_at == 96);
    ck_assert(r.gate_at == 144 && r.channels_at == 192 && r.rates_at == 240);
    ck_assert_uint_eq(r.channels, 144);
    ck_assert_uint_eq(r.projected, 240 + 3);
    ck_assert_uint_eq(r.floats, 3 * 144 + 3 * 16 * 16);
    ck_assert(r.rule.channels && r.rule.delta && r.rule.sigmoid && r.rule.bound == -5);
}
END_TEST

/* Lightning attention: q, k and v of a head are next to each other, no convolution, no inputs of
 * the past in the state; every eighth layer attends where the file does not say which. */
START_TEST(row_of_lightning)
{
    struct model_hparams h = {.layers = 1, .heads = 4, .head_size = 8};
    h.layer_mixer[0] = MIXER_LIGHTNING;
    struct layer_recurrent r = model_recurrent_of(&h, 0);
    ck_assert(r.conv_at == 0 && r.q_at == 0 && r.k_at == 8 && r.v_at == 16);
    ck_assert(r.key_step == 24 && r.value_step == 24);
    ck_assert(r.taps == 1 && r.norms == 1 && r.gate_at == 96);
    ck_assert_uint_eq(r.projected, 4 * 32);
    ck_assert_uint_eq(r.floats, 4 * 8 * 8);
    ck_assert(r.rule.fixed && r.rule.sigmoid && !r.rule.delta && !r.rule.unit);
    struct make m;
    struct error error = {0};
    make_arch(&m, "minimax-01", 2, false);
    struct model_index *index = make_index(&m, &error);
    ck_assert_msg(index, "%s", error.text);
    ck_assert(index->hparams.recurrent_eps == 1e-6f && index->hparams.normed_scale == 3.5f);
    free(index);
    make_arch(&m, "minimax-01", 2, false);
    make_drop_key(&m, "minimax-01.full_attention_interval");
    ck_assert_ptr_null(make_index(&m, &error));
    ck_assert_msg(strstr(error.text, "attn_q.weight: layer 1 of this model has no such part"), "%s",
                  error.text);
}
END_TEST

/* The same name is a tensor of another shape in each kind of layer; a convolution may have a
 * dimension of 1 between its taps and its channels. */
START_TEST(names_by_kind)
{
    struct make m;
    struct error error = {0};
    make_arch(&m, "kimi-linear", 2, false);
    make_drop_tensor(&m, "blk.0.ssm_conv1d_q.weight");
    make_add_tensor(&m, "blk.0.ssm_conv1d_q.weight", TENSOR_F32, 3, 1, 8);
    struct model_index *index = make_index(&m, &error);
    ck_assert_msg(index, "%s", error.text);
    ck_assert_uint_ne(model_entry_dense(index, 0, DENSE_KDA_Q), ENTRY_NONE);
    ck_assert_uint_eq(model_entry_dense(index, 0, DENSE_ATTN_Q), ENTRY_NONE);
    ck_assert_uint_eq(model_entry_dense(index, 1, DENSE_KDA_Q), ENTRY_NONE);
    ck_assert_uint_ne(model_entry_dense(index, 1, DENSE_ATTN_Q), ENTRY_NONE);
    ck_assert_uint_ne(model_entry_dense(index, 0, DENSE_DELTA_OUT), ENTRY_NONE);
    ck_assert_uint_ne(model_entry_dense(index, 1, DENSE_ATTN_OUT), ENTRY_NONE);
    ck_assert_uint_eq(index->hparams.value_size, index->hparams.kv_rank);
    ck_assert_uint_eq(index->layer[1].attention.rope_dims, 0);
    free(index);
}
END_TEST

/* Ling's decays are always bounded; the bound may be as low as the row says. */
START_TEST(bounds_of_decays)
{
    static const float bounds[] = {0, -5, -100};
    for (size_t i = 0; i < ARRAY_LEN(bounds); i++) {
        struct make m;
        struct error error = {0};
        make_arch(&m, "bailingmoe3", 2, false);
        make_drop_key(&m, "bailingmoe3.kda.gate_lower_bound");
        if (bounds[i] < 0)
            make_f32(&m, "bailingmoe3.kda.gate_lower_bound", bounds[i]);
        struct model_index *index = make_index(&m, &error);
        ck_assert_msg(index, "%s", error.text);
        ck_assert(index->hparams.decay_bound == (bounds[i] < 0 ? bounds[i] : -5));
        free(index);
    }
}
END_TEST

/* Every question about layers with experts is answered by the table of layers. */
START_TEST(experts_in_any_layers)
{
    static const uint8_t ffn[] = {FFN_DENSE,   FFN_EXPERTS,           FFN_DENSE, FFN_DENSE,
                                  FFN_EXPERTS, FFN_DENSE_AND_EXPERTS, FFN_DENSE};
    static const uint32_t next[] = {1, 1, 4, 4, 4, 5, 7}, before[] = {7, 7, 1, 1, 1, 4, 5};
    struct model_hparams h = {.layers = ARRAY_LEN(ffn)};
    memcpy(h.layer_ffn, ffn, sizeof ffn);
    const struct expert_layers set = hparams_layers_with_experts(&h);
    for (uint32_t l = 0; l < h.layers; l++) {
        ck_assert_uint_eq(hparams_next_experts(&h, l), next[l]);
        ck_assert_uint_eq(expert_layers_next(&set, l, h.layers), next[l]);
        ck_assert_uint_eq(hparams_experts_before(&h, l), before[l]);
        ck_assert(expert_layers_has(&set, l) == (next[l] == l));
    }
    ck_assert_uint_eq(hparams_expert_layers(&h), 3);
    ck_assert_uint_eq(expert_layers_count(&set, 2, h.layers), 2);
    ck_assert_uint_eq(hparams_experts_before(&h, h.layers), 5);
    ck_assert_uint_eq(hparams_expert_layer_at(&h, 0), 1);
    ck_assert_uint_eq(hparams_expert_layer_at(&h, 2), 5);
}
END_TEST

/* A blob whose layers have other parts than the rows of its architecture give them. */
START_TEST(forged_parts)
{
    struct make m;
    struct error error = {0};
    make_arch(&m, "lfm2moe", 2, false);
    struct model_index *index = make_index(&m, &error);
    ck_assert_msg(index, "%s", error.text);
    uint8_t *const parts[] = {&index->hparams.layer_mixer[1], &index->hparams.layer_ffn[1],
                              &index->hparams.layer_mixer[2], &index->hparams.layer_ffn[2]};
    ck_assert_int_eq(model_index_check(index, index->bytes, &error), 0);
    for (size_t i = 0; i < ARRAY_LEN(parts); i++) {
        *parts[i] ^= 1;
        ck_assert_int_eq(model_index_check(index, index->bytes, &error), -1);
        ck_assert_msg(strstr(error.text, "is of impossible parts"), "%s", error.text);
        *parts[i] ^= 1;
    }
    free(index);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("arch.recurrent");
    TCase *t = tcase_create("recurrent");
    tcase_add_loop_test(t, bad_models_are_rejected, 0, ARRAY_LEN(edits));
    tcase_add_loop_test(t, kinds_by_an_array, 0, 2);
    tcase_add_test(t, two_kinds);
    tcase_add_test(t, row_of_mamba2);
    tcase_add_test(t, row_of_mamba1);
    tcase_add_test(t, parts_of_jamba);
    tcase_add_test(t, row_of_kda);
    tcase_add_test(t, row_of_lightning);
    tcase_add_test(t, names_by_kind);
    tcase_add_test(t, bounds_of_decays);
    tcase_add_test(t, experts_in_any_layers);
    tcase_add_test(t, forged_parts);
    suite_add_tcase(s, t);
    SRunner *runner = srunner_create(s);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
