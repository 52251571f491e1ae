/* SPDX-License-Identifier: Apache-2.0 */
/* The dense tensors that the engine uses, by their roles. */
#ifndef SLUICE_MODEL_ARCH_ROLES_H
#define SLUICE_MODEL_ARCH_ROLES_H

/* Roles of dense tensors: one row per tensor that the engine uses.
 * G(role, name) of the model  L(role, part, name with %u) of a layer
 * The scales of matrices are dense, also those of experts, one number per matrix: a slot stays the
 * file's bytes, and all precisions of an expert share its scale. */
#define DENSE_ROLES(G, L)                                                                          \
    G(TOKEN_EMBD, "token_embd.weight")                                                             \
    G(OUTPUT_NORM, "output_norm.weight")                                                           \
    G(OUTPUT, "output.weight")                                                                     \
    L(ATTN_NORM, MIXING, "blk.%u.attn_norm.weight")                                                \
    L(ATTN_Q, ATTENTION, "blk.%u.attn_q.weight")                                                   \
    L(ATTN_K, ATTENTION, "blk.%u.attn_k.weight")                                                   \
    L(ATTN_V, ATTENTION, "blk.%u.attn_v.weight")                                                   \
    L(ATTN_Q_NORM, ATTENTION, "blk.%u.attn_q_norm.weight")                                         \
    L(ATTN_K_NORM, ATTENTION, "blk.%u.attn_k_norm.weight")                                         \
    L(ATTN_GATE, ATTENTION, "blk.%u.attn_gate.weight")                                             \
    L(ATTN_GATE_SCALE, ATTENTION, "blk.%u.attn_gate.scale")                                        \
    L(ATTN_OUT, ATTENTION, "blk.%u.attn_output.weight")                                            \
    L(FFN_NORM, NETWORK, "blk.%u.ffn_norm.weight")                                                 \
    L(ROUTER, EXPERTS, "blk.%u.ffn_gate_inp.weight")                                               \
    L(ROUTER_BIAS, EXPERTS, "blk.%u.exp_probs_b.bias")                                             \
    L(ATTN_Q_BIAS, ATTENTION, "blk.%u.attn_q.bias")                                                \
    L(ATTN_K_BIAS, ATTENTION, "blk.%u.attn_k.bias")                                                \
    L(ATTN_V_BIAS, ATTENTION, "blk.%u.attn_v.bias")                                                \
    L(ATTN_QKV, ATTENTION, "blk.%u.attn_qkv.weight")                                               \
    L(ATTN_QKV_SCALE, ATTENTION, "blk.%u.attn_qkv.scale")                                          \
    L(ATTN_NORM_BIAS, MIXING, "blk.%u.attn_norm.bias")                                             \
    L(FFN_NORM_BIAS, NETWORK, "blk.%u.ffn_norm.bias")                                              \
    G(OUTPUT_NORM_BIAS, "output_norm.bias")                                                        \
    G(OUTPUT_BIAS, "output.bias")                                                                  \
    L(FFN_GATE, DENSE, "blk.%u.ffn_gate.weight")                                                   \
    L(FFN_UP, DENSE, "blk.%u.ffn_up.weight")                                                       \
    L(FFN_DOWN, DENSE, "blk.%u.ffn_down.weight")                                                   \
    L(LATENT_DOWN, EXPERTS, "blk.%u.ffn_latent_down.weight")                                       \
    L(LATENT_UP, EXPERTS, "blk.%u.ffn_latent_up.weight")                                           \
    L(LATENT_DOWN_SCALE, EXPERTS, "blk.%u.ffn_latent_down.scale")                                  \
    L(LATENT_UP_SCALE, EXPERTS, "blk.%u.ffn_latent_up.scale")                                      \
    L(SHARED_ROUTER, EXPERTS, "blk.%u.ffn_gate_inp_shexp.weight")                                  \
    L(SHARED_GATE, EXPERTS, "blk.%u.ffn_gate_shexp.weight")                                        \
    L(SHARED_UP, EXPERTS, "blk.%u.ffn_up_shexp.weight")                                            \
    L(SHARED_DOWN, EXPERTS, "blk.%u.ffn_down_shexp.weight")                                        \
    L(DELTA_QKV, RECURRENCE, "blk.%u.attn_qkv.weight")                                             \
    L(DELTA_GATE, RECURRENCE, "blk.%u.attn_gate.weight")                                           \
    L(DELTA_BETA, RECURRENCE, "blk.%u.ssm_beta.weight")                                            \
    L(DELTA_ALPHA, DELTANET, "blk.%u.ssm_alpha.weight")                                            \
    L(DELTA_BETA_ALPHA, DELTANET, "blk.%u.ssm_ba.weight")                                          \
    L(DELTA_CONV, RECURRENCE, "blk.%u.ssm_conv1d.weight")                                          \
    L(DELTA_DT, RECURRENCE, "blk.%u.ssm_dt.bias")                                                  \
    L(DELTA_A, RECURRENCE, "blk.%u.ssm_a")                                                         \
    L(DELTA_NORM, RECURRENCE, "blk.%u.ssm_norm.weight")                                            \
    L(DELTA_OUT, RECURRENCE, "blk.%u.ssm_out.weight")                                              \
    L(SHORTCONV_IN, SHORTCONV, "blk.%u.shortconv.in_proj.weight")                                  \
    L(SHORTCONV_CONV, SHORTCONV, "blk.%u.shortconv.conv.weight")                                   \
    L(SHORTCONV_OUT, SHORTCONV, "blk.%u.shortconv.out_proj.weight")                                \
    G(ROPE_FREQS, "rope_freqs.weight")                                                             \
    G(OUTPUT_SCALE, "output.scale")                                                                \
    L(ATTN_Q_SCALE, ATTENTION, "blk.%u.attn_q.scale")                                              \
    L(ATTN_K_SCALE, ATTENTION, "blk.%u.attn_k.scale")                                              \
    L(ATTN_V_SCALE, ATTENTION, "blk.%u.attn_v.scale")                                              \
    L(ATTN_OUT_SCALE, ATTENTION, "blk.%u.attn_output.scale")                                       \
    L(DELTA_QKV_SCALE, RECURRENCE, "blk.%u.attn_qkv.scale")                                        \
    L(DELTA_GATE_SCALE, RECURRENCE, "blk.%u.attn_gate.scale")                                      \
    L(DELTA_BETA_SCALE, DELTANET, "blk.%u.ssm_beta.scale")                                         \
    L(DELTA_ALPHA_SCALE, DELTANET, "blk.%u.ssm_alpha.scale")                                       \
    L(DELTA_OUT_SCALE, RECURRENCE, "blk.%u.ssm_out.scale")                                         \
    L(FFN_GATE_SCALE, DENSE, "blk.%u.ffn_gate.scale")                                              \
    L(FFN_UP_SCALE, DENSE, "blk.%u.ffn_up.scale")                                                  \
    L(FFN_DOWN_SCALE, DENSE, "blk.%u.ffn_down.scale")                                              \
    L(SHARED_GATE_SCALE, EXPERTS, "blk.%u.ffn_gate_shexp.scale")                                   \
    L(SHARED_UP_SCALE, EXPERTS, "blk.%u.ffn_up_shexp.scale")                                       \
    L(SHARED_DOWN_SCALE, EXPERTS, "blk.%u.ffn_down_shexp.scale")                                   \
    L(EXPERT_GATE_SCALES, EXPERTS, "blk.%u.ffn_gate_exps.scale")                                   \
    L(EXPERT_UP_SCALES, EXPERTS, "blk.%u.ffn_up_exps.scale")                                       \
    L(EXPERT_DOWN_SCALES, EXPERTS, "blk.%u.ffn_down_exps.scale")                                   \
    L(ATTN_OUT_BIAS, ATTENTION, "blk.%u.attn_output.bias")                                         \
    L(ATTN_SINKS, ATTENTION, "blk.%u.attn_sinks.weight")                                           \
    L(ROUTER_LOGIT_BIAS, EXPERTS, "blk.%u.ffn_gate_inp.bias")                                      \
    L(EXPERT_GATE_BIAS, EXPERTS, "blk.%u.ffn_gate_exps.bias")                                      \
    L(EXPERT_UP_BIAS, EXPERTS, "blk.%u.ffn_up_exps.bias")                                          \
    L(EXPERT_DOWN_BIAS, EXPERTS, "blk.%u.ffn_down_exps.bias")                                      \
    L(ATTN_POST_NORM, ATTENTION, "blk.%u.post_attention_norm.weight")                              \
    L(ATTN_Q_A, ATTENTION, "blk.%u.attn_q_a.weight")                                               \
    L(ATTN_Q_A_NORM, ATTENTION, "blk.%u.attn_q_a_norm.weight")                                     \
    L(ATTN_Q_B, ATTENTION, "blk.%u.attn_q_b.weight")                                               \
    L(ATTN_KV_A, ATTENTION, "blk.%u.attn_kv_a_mqa.weight")                                         \
    L(ATTN_KV_A_NORM, ATTENTION, "blk.%u.attn_kv_a_norm.weight")                                   \
    L(ATTN_K_B, ATTENTION, "blk.%u.attn_k_b.weight")                                               \
    L(ATTN_V_B, ATTENTION, "blk.%u.attn_v_b.weight")                                               \
    L(DENSE_POST_NORM, DENSE, "blk.%u.post_ffw_norm_1.weight")                                     \
    L(EXPERTS_NORM, EXPERTS, "blk.%u.pre_ffw_norm_2.weight")                                       \
    L(EXPERTS_POST_NORM, EXPERTS, "blk.%u.post_ffw_norm_2.weight")                                 \
    L(FFN_POST_NORM, NETWORK, "blk.%u.post_ffw_norm.weight")                                       \
    L(ROUTER_SCALE, EXPERTS, "blk.%u.ffn_gate_inp.scale")                                          \
    L(LAYER_SCALE, EVERY, "blk.%u.layer_output_scale.weight")                                      \
    L(MAMBA_IN, RECURRENCE, "blk.%u.ssm_in.weight")                                                \
    L(MAMBA_IN_SCALE, RECURRENCE, "blk.%u.ssm_in.scale")                                           \
    L(MAMBA_SELECT, MAMBA1, "blk.%u.ssm_x.weight")                                                 \
    L(MAMBA_STEP, MAMBA1, "blk.%u.ssm_dt.weight")                                                  \
    L(MAMBA_STEP_NORM, MAMBA1, "blk.%u.ssm_dt_norm.weight")                                        \
    L(MAMBA_K_NORM, MAMBA1, "blk.%u.ssm_b_norm.weight")                                            \
    L(MAMBA_Q_NORM, MAMBA1, "blk.%u.ssm_c_norm.weight")                                            \
    L(MAMBA_A, MAMBA1, "blk.%u.ssm_a")                                                             \
    L(KDA_Q, KDA, "blk.%u.attn_q.weight")                                                          \
    L(KDA_K, KDA, "blk.%u.attn_k.weight")                                                          \
    L(KDA_V, KDA, "blk.%u.attn_v.weight")                                                          \
    L(KDA_Q_CONV, KDA, "blk.%u.ssm_conv1d_q.weight")                                               \
    L(KDA_K_CONV, KDA, "blk.%u.ssm_conv1d_k.weight")                                               \
    L(KDA_V_CONV, KDA, "blk.%u.ssm_conv1d_v.weight")                                               \
    L(KDA_DECAY, KDA, "blk.%u.ssm_f_a.weight")                                                     \
    L(KDA_DECAY_B, KDA, "blk.%u.ssm_f_b.weight")                                                   \
    L(KDA_GATE, KDA, "blk.%u.ssm_g_a.weight")                                                      \
    L(KDA_GATE_B, KDA, "blk.%u.ssm_g_b.weight")                                                    \
    L(LATENT_NORM, EXPERTS, "blk.%u.ffn_routed_norm.weight")                                       \
    G(OUTPUT_BANK_SCORE, "output_res_score.weight")                                                \
    L(MIXER_BANK_SCORE, MIXING, "blk.%u.attn_res_score.weight")                                    \
    L(FFN_BANK_SCORE, NETWORK, "blk.%u.ffn_res_score.weight")                                      \
    G(OUTPUT_STREAM_NORM, "output_hc_norm.weight")                                                 \
    G(OUTPUT_STREAM_DOWN, "output_hc_down.weight")                                                 \
    G(OUTPUT_STREAM_UP, "output_hc_up.weight")                                                     \
    L(MIXER_STREAM_NORM, MIXING, "blk.%u.hc_attn_norm.weight")                                     \
    L(MIXER_STREAM_DOWN, MIXING, "blk.%u.hc_attn_down.weight")                                     \
    L(MIXER_STREAM_UP, MIXING, "blk.%u.hc_attn_up.weight")                                         \
    L(MIXER_STREAM_INJECT, MIXING, "blk.%u.hc_attn_inject.weight")                                 \
    L(FFN_STREAM_NORM, NETWORK, "blk.%u.hc_ffn_norm.weight")                                       \
    L(FFN_STREAM_DOWN, NETWORK, "blk.%u.hc_ffn_down.weight")                                       \
    L(FFN_STREAM_UP, NETWORK, "blk.%u.hc_ffn_up.weight")                                           \
    L(FFN_STREAM_INJECT, NETWORK, "blk.%u.hc_ffn_inject.weight")                                   \
    G(OUTPUT_MIX, "output_hc_fn.weight")                                                           \
    G(OUTPUT_MIX_BASE, "output_hc_base.weight")                                                    \
    G(OUTPUT_MIX_SCALE, "output_hc_scale.weight")                                                  \
    L(MIXER_MIX, MIXING, "blk.%u.hc_attn_fn.weight")                                               \
    L(MIXER_MIX_BASE, MIXING, "blk.%u.hc_attn_base.weight")                                        \
    L(MIXER_MIX_SCALE, MIXING, "blk.%u.hc_attn_scale.weight")                                      \
    L(FFN_MIX, NETWORK, "blk.%u.hc_ffn_fn.weight")                                                 \
    L(FFN_MIX_BASE, NETWORK, "blk.%u.hc_ffn_base.weight")                                          \
    L(FFN_MIX_SCALE, NETWORK, "blk.%u.hc_ffn_scale.weight")                                        \
    G(NGRAM_TABLE, "per_layer_token_embd.weight")                                                  \
    L(NGRAM_KEY, NGRAMS, "blk.%u.ple_key.weight")                                                  \
    L(NGRAM_VALUE, NGRAMS, "blk.%u.ple_value.weight")                                              \
    L(NGRAM_KEY_NORM, NGRAMS, "blk.%u.ple_norm_key.weight")                                        \
    L(NGRAM_QUERY_NORM, NGRAMS, "blk.%u.ple_norm_query.weight")                                    \
    L(NGRAM_CONV_NORM, NGRAMS, "blk.%u.ple_norm_conv.weight")                                      \
    L(NGRAM_CONV, NGRAMS, "blk.%u.ple_conv1d.weight")                                              \
    L(INDEX_Q, INDEXER, "blk.%u.indexer.attn_q_b.weight")                                          \
    L(INDEX_K, INDEXER, "blk.%u.indexer.attn_k.weight")                                            \
    L(INDEX_Q_NORM, INDEXER, "blk.%u.indexer.q_norm.weight")                                       \
    L(INDEX_K_NORM, INDEXER, "blk.%u.indexer.k_norm.weight")                                       \
    L(INDEX_K_NORM_BIAS, INDEXER, "blk.%u.indexer.k_norm.bias")                                    \
    L(INDEX_WEIGHTS, INDEXER, "blk.%u.indexer.proj.weight")                                        \
    L(INDEX_GATE, INDEXER, "blk.%u.indexer_compressor_gate.weight")                                \
    L(INDEX_GATE_BIAS, INDEXER, "blk.%u.indexer_compressor_ape.weight")                            \
    L(CONV_BIAS, RECURRENCE, "blk.%u.ssm_conv1d.bias")                                             \
    L(RECURRENT_D, RECURRENCE, "blk.%u.ssm_d")                                                     \
    L(ATTN_OUT_A, ENTRIES, "blk.%u.attn_output_a.weight")                                          \
    L(ENTRY_VALUES, ENTRIES, "blk.%u.attn_compressor_kv.weight")                                   \
    L(ENTRY_GATES, ENTRIES, "blk.%u.attn_compressor_gate.weight")                                  \
    L(ENTRY_BIAS, ENTRIES, "blk.%u.attn_compressor_ape.weight")                                    \
    L(ENTRY_NORM, ENTRIES, "blk.%u.attn_compressor_norm.weight")                                   \
    L(INDEX_VALUES, INDEXER, "blk.%u.indexer_compressor_kv.weight")                                \
    L(INDEX_GATES, INDEXER, "blk.%u.indexer_compressor_gate.weight")                               \
    L(INDEX_BIAS, INDEXER, "blk.%u.indexer_compressor_ape.weight")                                 \
    L(INDEX_NORM, INDEXER, "blk.%u.indexer_compressor_norm.weight")                                \
    L(EXPERT_TABLE, EXPERTS, "blk.%u.ffn_gate_tid2eid.weight")                                     \
    L(MLA_K_NORM, ATTENTION, "blk.%u.attn_k_norm.weight")

#endif
