/* SPDX-License-Identifier: Apache-2.0 */
/* Names in checkpoints and in GGUF (hf_make_moved.c, struct rule). The first row that fits counts.
 * No include guard: define HF_MADE_OF(arch, name, kind, gguf...), then include it. */
HF_MADE_OF("qwen35moe", "model.layers.#.self_attn.k_norm.weight", MINUS_1,
           "blk.%u.attn_k_norm.weight")
HF_MADE_OF("qwen4exp", "model.layers.#.self_attn.k_norm.weight", MINUS_1,
           "blk.%u.attn_k_norm.weight")
HF_MADE_OF("qwen35moe", "model.layers.#.self_attn.q_norm.weight", MINUS_1,
           "blk.%u.attn_q_norm.weight")
HF_MADE_OF("qwen4exp", "model.layers.#.self_attn.q_norm.weight", MINUS_1,
           "blk.%u.attn_q_norm.weight")
HF_MADE_OF("qwen4exp", "model.layers.#.attn_hyper_connection.hc_norm.weight", MINUS_1,
           "blk.%u.hc_attn_norm.weight")
HF_MADE_OF("qwen4exp", "model.layers.#.attn_hyper_connection.input_mix_weight_down.weight", COPY,
           "blk.%u.hc_attn_down.weight")
HF_MADE_OF("qwen4exp", "model.layers.#.attn_hyper_connection.input_mix_weight_up.weight", COPY,
           "blk.%u.hc_attn_up.weight")
HF_MADE_OF("qwen4exp", "model.layers.#.attn_hyper_connection.block_inject_weight.weight", COPY,
           "blk.%u.hc_attn_inject.weight")
HF_MADE_OF("qwen4exp", "model.layers.#.mlp_hyper_connection.hc_norm.weight", MINUS_1,
           "blk.%u.hc_ffn_norm.weight")
HF_MADE_OF("qwen4exp", "model.layers.#.mlp_hyper_connection.input_mix_weight_down.weight", COPY,
           "blk.%u.hc_ffn_down.weight")
HF_MADE_OF("qwen4exp", "model.layers.#.mlp_hyper_connection.input_mix_weight_up.weight", COPY,
           "blk.%u.hc_ffn_up.weight")
HF_MADE_OF("qwen4exp", "model.layers.#.mlp_hyper_connection.block_inject_weight.weight", COPY,
           "blk.%u.hc_ffn_inject.weight")
HF_MADE_OF("qwen4exp", "model.hyper_connection_mixer.hc_norm.weight", MINUS_1,
           "output_hc_norm.weight")
HF_MADE_OF("qwen4exp", "model.hyper_connection_mixer.input_mix_weight_down.weight", COPY,
           "output_hc_down.weight")
HF_MADE_OF("qwen4exp", "model.hyper_connection_mixer.input_mix_weight_up.weight", COPY,
           "output_hc_up.weight")
HF_MADE_OF("qwen4exp", "model.layers.#.ple.key_proj.weight", COPY, "blk.%u.ple_key.weight")
HF_MADE_OF("qwen4exp", "model.layers.#.ple.value_proj.weight", COPY, "blk.%u.ple_value.weight")
HF_MADE_OF("qwen4exp", "model.layers.#.ple.conv1d.weight", COPY, "blk.%u.ple_conv1d.weight")
HF_MADE_OF("qwen4exp", "model.layers.#.ple.norm_key.weight", MINUS_1, "blk.%u.ple_norm_key.weight")
HF_MADE_OF("qwen4exp", "model.layers.#.ple.norm_query.weight", MINUS_1,
           "blk.%u.ple_norm_query.weight")
HF_MADE_OF("qwen4exp", "model.layers.#.ple.norm_conv.weight", MINUS_1,
           "blk.%u.ple_norm_conv.weight")
HF_MADE_OF("qwen4exp", "model.layers.#.ple.ple_embedding.layer_multipliers", NUMBERS,
           "ple.layer_multipliers")
HF_MADE_OF("qwen4exp", "model.layers.#.ple.ple_embedding.ngram_heads_offsets", NUMBERS,
           "ple.head_offsets")
HF_MADE_OF("qwen4exp", "model.layers.#.ple.ple_embedding.ngram_heads_vocab_sizes", NUMBERS,
           "ple.head_vocab_sizes")
HF_MADE_OF("qwen4exp", "model.layers.#.ple.ple_embedding.ngram_embedding.shard_#.weight", SHARD,
           "per_layer_token_embd.weight")
HF_MADE_OF("qwen4exp", "model.layers.#.self_attn.indexer.index_qk_proj.weight", HALVES,
           "blk.%u.indexer.q_proj.weight", "blk.%u.indexer.k_proj.weight")
HF_MADE_OF("qwen4exp", "model.layers.#.self_attn.indexer.q_layernorm.weight", MINUS_1,
           "blk.%u.indexer.q_norm.weight")
HF_MADE_OF("qwen4exp", "model.layers.#.self_attn.indexer.k_layernorm.weight", MINUS_1,
           "blk.%u.indexer.k_norm.weight")
HF_MADE_OF("dots3note", "model.layers.#.self_attn.q_a_layernorm.weight", OF_LATENT,
           "blk.%u.attn_q_a_norm.weight")
HF_MADE_OF("dots3note", "model.layers.#.self_attn.kv_a_layernorm.weight", OF_LATENT,
           "blk.%u.attn_kv_a_norm.weight")
HF_MADE_OF("qwen35moe", "model.norm.weight", MINUS_1, "output_norm.weight")
HF_MADE_OF("qwen35moe", "model.layers.#.input_layernorm.weight", MINUS_1, "blk.%u.attn_norm.weight")
HF_MADE_OF("qwen35moe", "model.layers.#.post_attention_layernorm.weight", MINUS_1,
           "blk.%u.post_attention_norm.weight")
HF_MADE_OF("qwen3next", "model.norm.weight", MINUS_1, "output_norm.weight")
HF_MADE_OF("qwen3next", "model.layers.#.input_layernorm.weight", MINUS_1, "blk.%u.attn_norm.weight")
HF_MADE_OF("qwen3next", "model.layers.#.post_attention_layernorm.weight", MINUS_1,
           "blk.%u.post_attention_norm.weight")
HF_MADE_OF("qwen3next", "model.layers.#.self_attn.q_norm.weight", MINUS_1,
           "blk.%u.attn_q_norm.weight")
HF_MADE_OF("qwen3next", "model.layers.#.self_attn.k_norm.weight", MINUS_1,
           "blk.%u.attn_k_norm.weight")
HF_MADE_OF("qwen3next", "model.layers.#.linear_attn.in_proj_qkvz.weight", QKVZ,
           "blk.%u.attn_qkv.weight", "blk.%u.attn_gate.weight")
HF_MADE_OF("qwen3next", "model.layers.#.linear_attn.in_proj_ba.weight", COPY,
           "blk.%u.ssm_ba.weight")
HF_MADE_OF("qwen3next", "model.layers.#.linear_attn.conv1d.weight", COPY,
           "blk.%u.ssm_conv1d.weight")
HF_MADE_OF("qwen3next", "model.layers.#.linear_attn.dt_bias", COPY, "blk.%u.ssm_dt.bias")
HF_MADE_OF("qwen3next", "model.layers.#.linear_attn.A_log", LOG, "blk.%u.ssm_a")
HF_MADE_OF("qwen3next", "model.layers.#.linear_attn.out_proj.weight", COPY, "blk.%u.ssm_out.weight")
HF_MADE_OF(NULL, "model.layers.#.linear_attn.norm.weight", COPY, "blk.%u.ssm_norm.weight")
HF_MADE_OF("gpt-oss", "model.layers.#.post_attention_layernorm.weight", COPY,
           "blk.%u.post_attention_norm.weight")
HF_MADE_OF("gpt-oss", "model.layers.#.mlp.router.weight", COPY, "blk.%u.ffn_gate_inp.weight")
HF_MADE_OF("gpt-oss", "model.layers.#.mlp.router.bias", COPY, "blk.%u.ffn_gate_inp.bias")
HF_MADE_OF("gpt-oss", "model.layers.#.mlp.experts.gate_up_proj", IN_TURN,
           "blk.%u.ffn_gate_exps.weight", "blk.%u.ffn_up_exps.weight")
HF_MADE_OF("gpt-oss", "model.layers.#.mlp.experts.down_proj", TURNED, "blk.%u.ffn_down_exps.weight")
HF_MADE_OF("gpt-oss", "model.layers.#.mlp.experts.gate_up_proj_bias", BIASES,
           "blk.%u.ffn_gate_exps.bias", "blk.%u.ffn_up_exps.bias")
HF_MADE_OF("gpt-oss", "model.layers.#.mlp.experts.down_proj_bias", COPY,
           "blk.%u.ffn_down_exps.bias")
HF_MADE_OF(NULL, "model.layers.#.self_attn.kv_b_proj.weight", KEYS_VALUES, "blk.%u.attn_k_b.weight",
           "blk.%u.attn_v_b.weight")
HF_MADE_OF(NULL, "model.layers.#.self_attn.q_a_proj.weight", COPY, "blk.%u.attn_q_a.weight")
HF_MADE_OF(NULL, "model.layers.#.self_attn.q_a_layernorm.weight", COPY,
           "blk.%u.attn_q_a_norm.weight")
HF_MADE_OF(NULL, "model.layers.#.self_attn.q_b_proj.weight", COPY, "blk.%u.attn_q_b.weight")
HF_MADE_OF(NULL, "model.layers.#.self_attn.kv_a_proj_with_mqa.weight", COPY,
           "blk.%u.attn_kv_a_mqa.weight")
HF_MADE_OF(NULL, "model.layers.#.self_attn.kv_a_layernorm.weight", COPY,
           "blk.%u.attn_kv_a_norm.weight")
HF_MADE_OF("gemma4", "model.layers.#.post_attention_layernorm.weight", COPY,
           "blk.%u.post_attention_norm.weight")
HF_MADE_OF("gemma4", "model.layers.#.pre_feedforward_layernorm.weight", COPY,
           "blk.%u.ffn_norm.weight")
HF_MADE_OF("gemma4", "model.layers.#.post_feedforward_layernorm.weight", COPY,
           "blk.%u.post_ffw_norm.weight")
HF_MADE_OF("gemma4", "model.layers.#.post_feedforward_layernorm_1.weight", COPY,
           "blk.%u.post_ffw_norm_1.weight")
HF_MADE_OF("gemma4", "model.layers.#.pre_feedforward_layernorm_2.weight", COPY,
           "blk.%u.pre_ffw_norm_2.weight")
HF_MADE_OF("gemma4", "model.layers.#.post_feedforward_layernorm_2.weight", COPY,
           "blk.%u.post_ffw_norm_2.weight")
HF_MADE_OF("gemma4", "model.layers.#.router.proj.weight", COPY, "blk.%u.ffn_gate_inp.weight")
HF_MADE_OF("gemma4", "model.layers.#.layer_scalar", COPY, "blk.%u.layer_output_scale.weight")
HF_MADE_OF("gemma4", "model.layers.#.router.scale", COPY, "blk.%u.ffn_gate_inp.scale")
HF_MADE_OF("gemma4", "model.layers.#.router.per_expert_scale", COPY, "blk.%u.ffn_down_exps.scale")
HF_MADE_OF("gemma4", "model.layers.#.experts.gate_up_proj", COPY, "blk.%u.ffn_gate_up_exps.weight")
HF_MADE_OF("gemma4", "model.layers.#.experts.down_proj", COPY, "blk.%u.ffn_down_exps.weight")
HF_MADE_OF("lfm2moe", "model.embedding_norm.weight", COPY, "token_embd_norm.weight")
HF_MADE_OF("lfm2moe", "model.layers.#.operator_norm.weight", COPY, "blk.%u.attn_norm.weight")
HF_MADE_OF("lfm2moe", "model.layers.#.ffn_norm.weight", COPY, "blk.%u.ffn_norm.weight")
HF_MADE_OF("lfm2moe", "model.layers.#.self_attn.q_layernorm.weight", COPY,
           "blk.%u.attn_q_norm.weight")
HF_MADE_OF("lfm2moe", "model.layers.#.self_attn.k_layernorm.weight", COPY,
           "blk.%u.attn_k_norm.weight")
HF_MADE_OF("lfm2moe", "model.layers.#.conv.in_proj.weight", COPY, "blk.%u.shortconv.in_proj.weight")
HF_MADE_OF("lfm2moe", "model.layers.#.conv.conv.weight", COPY, "blk.%u.shortconv.conv.weight")
HF_MADE_OF("lfm2moe", "model.layers.#.conv.out_proj.weight", COPY,
           "blk.%u.shortconv.out_proj.weight")
HF_MADE_OF("lfm2moe", "model.layers.#.feed_forward.w1.weight", COPY, "blk.%u.ffn_gate.weight")
HF_MADE_OF("lfm2moe", "model.layers.#.feed_forward.w3.weight", COPY, "blk.%u.ffn_up.weight")
HF_MADE_OF("lfm2moe", "model.layers.#.feed_forward.w2.weight", COPY, "blk.%u.ffn_down.weight")
HF_MADE_OF("lfm2moe", "model.layers.#.feed_forward.gate.weight", COPY, "blk.%u.ffn_gate_inp.weight")
HF_MADE_OF("lfm2moe", "model.layers.#.feed_forward.expert_bias", COPY, "blk.%u.exp_probs_b.bias")
HF_MADE_OF("lfm2moe", "model.layers.#.feed_forward.experts.#.w1.weight", COPY,
           "blk.%u.ffn_gate_exps.weight")
HF_MADE_OF("lfm2moe", "model.layers.#.feed_forward.experts.#.w3.weight", COPY,
           "blk.%u.ffn_up_exps.weight")
HF_MADE_OF("lfm2moe", "model.layers.#.feed_forward.experts.#.w2.weight", COPY,
           "blk.%u.ffn_down_exps.weight")
HF_MADE_OF("bailingmoe2", "model.layers.#.attention.query_key_value.weight", COPY,
           "blk.%u.attn_qkv.weight")
HF_MADE_OF("bailingmoe2", "model.layers.#.attention.query_layernorm.weight", COPY,
           "blk.%u.attn_q_norm.weight")
HF_MADE_OF("bailingmoe2", "model.layers.#.attention.key_layernorm.weight", COPY,
           "blk.%u.attn_k_norm.weight")
HF_MADE_OF("mistral4", "model.layers.#.mlp.experts.gate_up_proj", COPY,
           "blk.%u.ffn_gate_up_exps.weight")
HF_MADE_OF("mistral4", "model.layers.#.mlp.experts.down_proj", COPY, "blk.%u.ffn_down_exps.weight")
HF_MADE_OF("llama4", "model.layers.#.feed_forward.experts.gate_up_proj", TURNED_HALVES,
           "blk.%u.ffn_gate_exps.weight", "blk.%u.ffn_up_exps.weight")
HF_MADE_OF("llama4", "model.layers.#.feed_forward.experts.down_proj", TURNED,
           "blk.%u.ffn_down_exps.weight")
HF_MADE_OF("llama4", "model.layers.#.feed_forward.shared_expert.gate_proj.weight", COPY,
           "blk.%u.ffn_gate_shexp.weight")
HF_MADE_OF("llama4", "model.layers.#.feed_forward.shared_expert.up_proj.weight", COPY,
           "blk.%u.ffn_up_shexp.weight")
HF_MADE_OF("llama4", "model.layers.#.feed_forward.shared_expert.down_proj.weight", COPY,
           "blk.%u.ffn_down_shexp.weight")
HF_MADE_OF("qwen3vlmoe", "model.layers.#.mlp.experts.gate_up_proj", TURNED_HALVES,
           "blk.%u.ffn_gate_exps.weight", "blk.%u.ffn_up_exps.weight")
HF_MADE_OF("qwen3vlmoe", "model.layers.#.mlp.experts.down_proj", TURNED,
           "blk.%u.ffn_down_exps.weight")
HF_MADE_OF("exaone-moe", "model.layers.#.mlp.e_score_correction_bias", COPY,
           "blk.%u.exp_probs_b.bias")
HF_MADE_OF("hy_v3", "model.layers.#.mlp.expert_bias", COPY, "blk.%u.exp_probs_b")
HF_MADE_OF("minimax-m3", "model.norm.weight", MINUS_1, "output_norm.weight")
HF_MADE_OF("minimax-m3", "model.layers.#.input_layernorm.weight", MINUS_1,
           "blk.%u.attn_norm.weight")
HF_MADE_OF("minimax-m3", "model.layers.#.post_attention_layernorm.weight", MINUS_1,
           "blk.%u.ffn_norm.weight")
HF_MADE_OF("minimax-m3", "model.layers.#.self_attn.q_norm.weight", MINUS_1,
           "blk.%u.attn_q_norm.weight")
HF_MADE_OF("minimax-m3", "model.layers.#.self_attn.k_norm.weight", MINUS_1,
           "blk.%u.attn_k_norm.weight")
HF_MADE_OF("minimax-m3", "model.layers.#.self_attn.index_q_proj.weight", COPY,
           "blk.%u.indexer.q_proj.weight")
HF_MADE_OF("minimax-m3", "model.layers.#.self_attn.index_k_proj.weight", COPY,
           "blk.%u.indexer.k_proj.weight")
HF_MADE_OF("minimax-m3", "model.layers.#.self_attn.index_q_norm.weight", MINUS_1,
           "blk.%u.indexer.q_norm.weight")
HF_MADE_OF("minimax-m3", "model.layers.#.self_attn.index_k_norm.weight", MINUS_1,
           "blk.%u.indexer.k_norm.weight")
HF_MADE_OF("minimax-m3", "model.layers.#.block_sparse_moe.e_score_correction_bias", COPY,
           "blk.%u.exp_probs_b.bias")
HF_MADE_OF(NULL, "model.layers.#.self_attn.indexer.wq_b.weight", COPY,
           "blk.%u.indexer.attn_q_b.weight")
HF_MADE_OF(NULL, "model.layers.#.self_attn.indexer.wk.weight", COPY, "blk.%u.indexer.attn_k.weight")
HF_MADE_OF(NULL, "model.layers.#.self_attn.indexer.k_norm.weight", COPY,
           "blk.%u.indexer.k_norm.weight")
HF_MADE_OF(NULL, "model.layers.#.self_attn.indexer.k_norm.bias", COPY, "blk.%u.indexer.k_norm.bias")
HF_MADE_OF(NULL, "model.layers.#.self_attn.indexer.weights_proj.weight", COPY,
           "blk.%u.indexer.proj.weight")
HF_MADE_OF("step35", "model.norm.weight", MINUS_1, "output_norm.weight")
HF_MADE_OF("step35", "model.layers.#.input_layernorm.weight", MINUS_1, "blk.%u.attn_norm.weight")
HF_MADE_OF("step35", "model.layers.#.post_attention_layernorm.weight", MINUS_1,
           "blk.%u.ffn_norm.weight")
HF_MADE_OF("step35", "model.layers.#.self_attn.q_norm.weight", MINUS_1, "blk.%u.attn_q_norm.weight")
HF_MADE_OF("step35", "model.layers.#.self_attn.k_norm.weight", MINUS_1, "blk.%u.attn_k_norm.weight")
HF_MADE_OF("step35", "model.layers.#.self_attn.g_proj.weight", COPY, "blk.%u.attn_gate.weight")
HF_MADE_OF("step35", "model.layers.#.moe.gate.weight", COPY, "blk.%u.ffn_gate_inp.weight")
HF_MADE_OF("step35", "model.layers.#.moe.router_bias", COPY, "blk.%u.exp_probs_b.bias")
HF_MADE_OF("step35", "model.layers.#.share_expert.gate_proj.weight", COPY,
           "blk.%u.ffn_gate_shexp.weight")
HF_MADE_OF("step35", "model.layers.#.share_expert.up_proj.weight", COPY,
           "blk.%u.ffn_up_shexp.weight")
HF_MADE_OF("step35", "model.layers.#.share_expert.down_proj.weight", COPY,
           "blk.%u.ffn_down_shexp.weight")
HF_MADE_OF("step35", "model.layers.#.moe.gate_proj.weight", COPY, "blk.%u.ffn_gate_exps.weight")
HF_MADE_OF("step35", "model.layers.#.moe.up_proj.weight", COPY, "blk.%u.ffn_up_exps.weight")
HF_MADE_OF("step35", "model.layers.#.moe.down_proj.weight", COPY, "blk.%u.ffn_down_exps.weight")
HF_MADE_OF("step35", "model.layers.#.enorm.weight", MINUS_1, "blk.%u.nextn.enorm.weight")
HF_MADE_OF("step35", "model.layers.#.hnorm.weight", MINUS_1, "blk.%u.nextn.hnorm.weight")
HF_MADE_OF("step35", "model.layers.#.transformer.shared_head.norm.weight", MINUS_1,
           "blk.%u.nextn.shared_head_norm.weight")
HF_MADE_OF("laguna", "model.layers.#.self_attn.g_proj.weight", COPY, "blk.%u.attn_gate.weight")
HF_MADE_OF("laguna", "model.layers.#.mlp.experts.e_score_correction_bias", COPY,
           "blk.%u.exp_probs_b.bias")
HF_MADE_OF("afmoe", "model.layers.#.self_attn.gate_proj.weight", COPY, "blk.%u.attn_gate.weight")
HF_MADE_OF("afmoe", "model.layers.#.post_attention_layernorm.weight", COPY,
           "blk.%u.post_attention_norm.weight")
HF_MADE_OF("afmoe", "model.layers.#.pre_mlp_layernorm.weight", COPY, "blk.%u.ffn_norm.weight")
HF_MADE_OF("afmoe", "model.layers.#.post_mlp_layernorm.weight", COPY, "blk.%u.post_ffw_norm.weight")
HF_MADE_OF("afmoe", "model.layers.#.mlp.expert_bias", COPY, "blk.%u.exp_probs_b.bias")
HF_MADE_OF("deepseek", "model.layers.#.self_attn.q_proj.weight", Q_PAIRS, "blk.%u.attn_q.weight")
HF_MADE_OF("deepseek", "model.layers.#.self_attn.k_proj.weight", K_PAIRS, "blk.%u.attn_k.weight")
HF_MADE_OF("arctic", "model.layers.#.self_attn.q_proj.weight", Q_PAIRS, "blk.%u.attn_q.weight")
HF_MADE_OF("arctic", "model.layers.#.self_attn.k_proj.weight", K_PAIRS, "blk.%u.attn_k.weight")
HF_MADE_OF("arctic", "model.layers.#.post_attention_layernorm.weight", COPY,
           "blk.%u.ffn_norm_exps.weight")
HF_MADE_OF("arctic", "model.layers.#.residual_layernorm.weight", COPY, "blk.%u.ffn_norm.weight")
HF_MADE_OF("arctic", "model.layers.#.residual_mlp.w1.weight", COPY, "blk.%u.ffn_gate.weight")
HF_MADE_OF("arctic", "model.layers.#.residual_mlp.w3.weight", COPY, "blk.%u.ffn_up.weight")
HF_MADE_OF("arctic", "model.layers.#.residual_mlp.w2.weight", COPY, "blk.%u.ffn_down.weight")
HF_MADE_OF("minimax-01", "model.layers.#.self_attn.output_gate.weight", COPY,
           "blk.%u.attn_gate.weight")
HF_MADE_OF("minimax-01", "model.layers.#.self_attn.norm.weight", COPY, "blk.%u.attn_norm_2.weight")
HF_MADE_OF("granitemoe", "model.layers.#.self_attn.q_proj.weight", Q_PAIRS, "blk.%u.attn_q.weight")
HF_MADE_OF("granitemoe", "model.layers.#.self_attn.k_proj.weight", K_PAIRS, "blk.%u.attn_k.weight")
HF_MADE_OF("granite_swa", "model.layers.#.self_attn.q_proj.weight", Q_PAIRS, "blk.%u.attn_q.weight")
HF_MADE_OF("granite_swa", "model.layers.#.self_attn.k_proj.weight", K_PAIRS, "blk.%u.attn_k.weight")
HF_MADE_OF("granite_swa", "model.layers.#.block_sparse_moe.router.weight", COPY,
           "blk.%u.ffn_gate_inp.weight")
HF_MADE_OF("granite_swa", "model.layers.#.block_sparse_moe.experts.gate_up_proj", COPY,
           "blk.%u.ffn_gate_up_exps.weight")
HF_MADE_OF("granite_swa", "model.layers.#.block_sparse_moe.experts.down_proj", COPY,
           "blk.%u.ffn_down_exps.weight")
HF_MADE_OF("granite_swa", "model.layers.#.shared_mlp.input_linear.weight", COPY,
           "blk.%u.ffn_up_shexp.weight")
HF_MADE_OF("mimo2", "model.layers.#.self_attn.attention_sink_bias", COPY,
           "blk.%u.attn_sinks.weight")
HF_MADE_OF(NULL, "model.layers.#.block_sparse_moe.router.layer.weight", COPY,
           "blk.%u.ffn_gate_inp.weight")
HF_MADE_OF(NULL, "model.layers.#.block_sparse_moe.input_linear.weight", HALVES,
           "blk.%u.ffn_gate_exps.weight", "blk.%u.ffn_up_exps.weight")
HF_MADE_OF(NULL, "model.layers.#.block_sparse_moe.output_linear.weight", COPY,
           "blk.%u.ffn_down_exps.weight")
HF_MADE_OF(NULL, "model.layers.#.shared_mlp.input_linear.weight", HALVES,
           "blk.%u.ffn_gate_shexp.weight", "blk.%u.ffn_up_shexp.weight")
HF_MADE_OF(NULL, "model.layers.#.shared_mlp.output_linear.weight", COPY,
           "blk.%u.ffn_down_shexp.weight")
HF_MADE_OF("granitehybrid", "model.layers.#.mamba.dt_bias", COPY, "blk.%u.ssm_dt.bias")
HF_MADE_OF("granitehybrid", "model.layers.#.mamba.norm.weight", COPY, "blk.%u.ssm_norm.weight")
HF_MADE_OF("nemotron_h_moe", "backbone.embeddings.weight", COPY, "token_embd.weight")
HF_MADE_OF("nemotron_h_moe", "backbone.norm_f.weight", COPY, "output_norm.weight")
HF_MADE_OF("nemotron_h_moe", "backbone.layers.#.norm.weight", COPY, "blk.%u.attn_norm.weight")
HF_MADE_OF("nemotron_h_moe", "backbone.layers.#.mixer.q_proj.weight", COPY, "blk.%u.attn_q.weight")
HF_MADE_OF("nemotron_h_moe", "backbone.layers.#.mixer.k_proj.weight", COPY, "blk.%u.attn_k.weight")
HF_MADE_OF("nemotron_h_moe", "backbone.layers.#.mixer.v_proj.weight", COPY, "blk.%u.attn_v.weight")
HF_MADE_OF("nemotron_h_moe", "backbone.layers.#.mixer.o_proj.weight", COPY,
           "blk.%u.attn_output.weight")
HF_MADE_OF("nemotron_h_moe", "backbone.layers.#.mixer.in_proj.weight", COPY, "blk.%u.ssm_in.weight")
HF_MADE_OF("nemotron_h_moe", "backbone.layers.#.mixer.conv1d.weight", COPY,
           "blk.%u.ssm_conv1d.weight")
HF_MADE_OF("nemotron_h_moe", "backbone.layers.#.mixer.conv1d.bias", COPY, "blk.%u.ssm_conv1d.bias")
HF_MADE_OF("nemotron_h_moe", "backbone.layers.#.mixer.dt_bias", COPY, "blk.%u.ssm_dt.bias")
HF_MADE_OF("nemotron_h_moe", "backbone.layers.#.mixer.A_log", LOG, "blk.%u.ssm_a")
HF_MADE_OF("nemotron_h_moe", "backbone.layers.#.mixer.D", COPY, "blk.%u.ssm_d")
HF_MADE_OF("nemotron_h_moe", "backbone.layers.#.mixer.norm.weight", GROUPS,
           "blk.%u.ssm_norm.weight")
HF_MADE_OF("nemotron_h_moe", "backbone.layers.#.mixer.out_proj.weight", COPY,
           "blk.%u.ssm_out.weight")
HF_MADE_OF("nemotron_h_moe", "backbone.layers.#.mixer.gate.weight", COPY,
           "blk.%u.ffn_gate_inp.weight")
HF_MADE_OF("nemotron_h_moe", "backbone.layers.#.mixer.gate.e_score_correction_bias", COPY,
           "blk.%u.exp_probs_b.bias")
HF_MADE_OF("nemotron_h_moe", "backbone.layers.#.mixer.fc1_latent_proj.weight", COPY,
           "blk.%u.ffn_latent_down.weight")
HF_MADE_OF("nemotron_h_moe", "backbone.layers.#.mixer.fc2_latent_proj.weight", COPY,
           "blk.%u.ffn_latent_up.weight")
HF_MADE_OF("nemotron_h_moe", "backbone.layers.#.mixer.experts.#.up_proj.weight", COPY,
           "blk.%u.ffn_up_exps.weight")
HF_MADE_OF("nemotron_h_moe", "backbone.layers.#.mixer.experts.#.down_proj.weight", COPY,
           "blk.%u.ffn_down_exps.weight")
HF_MADE_OF("nemotron_h_moe", "backbone.layers.#.mixer.shared_experts.up_proj.weight", COPY,
           "blk.%u.ffn_up_shexp.weight")
HF_MADE_OF("nemotron_h_moe", "backbone.layers.#.mixer.shared_experts.down_proj.weight", COPY,
           "blk.%u.ffn_down_shexp.weight")
HF_MADE_OF("jamba", "model.final_layernorm.weight", COPY, "output_norm.weight")
HF_MADE_OF("jamba", "model.layers.#.input_layernorm.weight", COPY, "blk.%u.attn_norm.weight")
HF_MADE_OF("jamba", "model.layers.#.pre_ff_layernorm.weight", COPY, "blk.%u.ffn_norm.weight")
HF_MADE_OF("jamba", "model.layers.#.mamba.x_proj.weight", COPY, "blk.%u.ssm_x.weight")
HF_MADE_OF("jamba", "model.layers.#.mamba.dt_layernorm.weight", COPY, "blk.%u.ssm_dt_norm.weight")
HF_MADE_OF("jamba", "model.layers.#.mamba.b_layernorm.weight", COPY, "blk.%u.ssm_b_norm.weight")
HF_MADE_OF("jamba", "model.layers.#.mamba.c_layernorm.weight", COPY, "blk.%u.ssm_c_norm.weight")
HF_MADE_OF("jamba", "model.layers.#.mamba.dt_proj.weight", COPY, "blk.%u.ssm_dt.weight")
HF_MADE_OF("jamba", "model.layers.#.mamba.dt_proj.bias", COPY, "blk.%u.ssm_dt.bias")
HF_MADE_OF("jamba", "model.layers.#.feed_forward.experts.#.gate_proj.weight", COPY,
           "blk.%u.ffn_gate_exps.weight")
HF_MADE_OF("jamba", "model.layers.#.feed_forward.experts.#.up_proj.weight", COPY,
           "blk.%u.ffn_up_exps.weight")
HF_MADE_OF("jamba", "model.layers.#.feed_forward.experts.#.down_proj.weight", COPY,
           "blk.%u.ffn_down_exps.weight")
HF_MADE_OF("kimi-k3", "model.layers.#.self_attention_res_norm.weight", POWER,
           "blk.%u.attn_res_score.weight")
HF_MADE_OF("kimi-k3", "model.layers.#.self_attention_res_proj.weight", OVER_POWER,
           "blk.%u.attn_res_score.weight")
HF_MADE_OF("kimi-k3", "model.layers.#.mlp_res_norm.weight", POWER, "blk.%u.ffn_res_score.weight")
HF_MADE_OF("kimi-k3", "model.layers.#.mlp_res_proj.weight", OVER_POWER,
           "blk.%u.ffn_res_score.weight")
HF_MADE_OF("kimi-k3", "model.output_attn_res_norm.weight", POWER, "output_res_score.weight")
HF_MADE_OF("kimi-k3", "model.output_attn_res_proj.weight", OVER_POWER, "output_res_score.weight")
HF_MADE_OF("kimi-k3", "model.layers.#.self_attn.g_proj.weight", EITHER, "blk.%u.attn_gate.weight",
           "blk.%u.ssm_g.weight")
HF_MADE_OF("kimi-k3", "model.layers.#.block_sparse_moe.routed_expert_down_proj.weight", COPY,
           "blk.%u.ffn_routed_down.weight")
HF_MADE_OF("kimi-k3", "model.layers.#.block_sparse_moe.routed_expert_up_proj.weight", COPY,
           "blk.%u.ffn_routed_up.weight")
HF_MADE_OF("kimi-k3", "model.layers.#.block_sparse_moe.routed_expert_norm.weight", COPY,
           "blk.%u.ffn_routed_norm.weight")
HF_MADE_OF("glm5-next", "model.layers.#.self_attn.indexer.index_kpool_compress_ape", COPY,
           "blk.%u.indexer_compressor_ape.weight")
HF_MADE_OF("glm5-next", "model.layers.#.self_attn.indexer.index_kpool_compress_gate", COPY,
           "blk.%u.indexer_compressor_gate.weight")
HF_MADE_OF("glm5-next", "model.layers.#.hc_attn_fn", COPY, "blk.%u.hc_attn_fn.weight")
HF_MADE_OF("glm5-next", "model.layers.#.hc_attn_base", COPY, "blk.%u.hc_attn_base.weight")
HF_MADE_OF("glm5-next", "model.layers.#.hc_attn_scale", COPY, "blk.%u.hc_attn_scale.weight")
HF_MADE_OF("glm5-next", "model.layers.#.hc_ffn_fn", COPY, "blk.%u.hc_ffn_fn.weight")
HF_MADE_OF("glm5-next", "model.layers.#.hc_ffn_base", COPY, "blk.%u.hc_ffn_base.weight")
HF_MADE_OF("glm5-next", "model.layers.#.hc_ffn_scale", COPY, "blk.%u.hc_ffn_scale.weight")
HF_MADE_OF("deepseek4", "embed.weight", COPY, "token_embd.weight")
HF_MADE_OF("deepseek4", "norm.weight", COPY, "output_norm.weight")
HF_MADE_OF("deepseek4", "head.weight", COPY, "output.weight")
HF_MADE_OF("deepseek4", "hc_head_fn", COPY, "output_hc_fn.weight")
HF_MADE_OF("deepseek4", "hc_head_base", COPY, "output_hc_base.weight")
HF_MADE_OF("deepseek4", "hc_head_scale", COPY, "output_hc_scale.weight")
HF_MADE_OF("deepseek4", "layers.#.attn_norm.weight", COPY, "blk.%u.attn_norm.weight")
HF_MADE_OF("deepseek4", "layers.#.hc_attn_fn", COPY, "blk.%u.hc_attn_fn.weight")
HF_MADE_OF("deepseek4", "layers.#.hc_attn_base", COPY, "blk.%u.hc_attn_base.weight")
HF_MADE_OF("deepseek4", "layers.#.hc_attn_scale", COPY, "blk.%u.hc_attn_scale.weight")
HF_MADE_OF("deepseek4", "layers.#.ffn_norm.weight", COPY, "blk.%u.ffn_norm.weight")
HF_MADE_OF("deepseek4", "layers.#.hc_ffn_fn", COPY, "blk.%u.hc_ffn_fn.weight")
HF_MADE_OF("deepseek4", "layers.#.hc_ffn_base", COPY, "blk.%u.hc_ffn_base.weight")
HF_MADE_OF("deepseek4", "layers.#.hc_ffn_scale", COPY, "blk.%u.hc_ffn_scale.weight")
HF_MADE_OF("deepseek4", "layers.#.attn.attn_sink", COPY, "blk.%u.attn_sinks.weight")
HF_MADE_OF("deepseek4", "layers.#.attn.wq_a.weight", COPY, "blk.%u.attn_q_a.weight")
HF_MADE_OF("deepseek4", "layers.#.attn.q_norm.weight", COPY, "blk.%u.attn_q_a_norm.weight")
HF_MADE_OF("deepseek4", "layers.#.attn.wq_b.weight", COPY, "blk.%u.attn_q_b.weight")
HF_MADE_OF("deepseek4", "layers.#.attn.wkv.weight", COPY, "blk.%u.attn_kv.weight")
HF_MADE_OF("deepseek4", "layers.#.attn.kv_norm.weight", COPY, "blk.%u.attn_kv_a_norm.weight")
HF_MADE_OF("deepseek4", "layers.#.attn.wo_a.weight", COPY, "blk.%u.attn_output_a.weight")
HF_MADE_OF("deepseek4", "layers.#.attn.wo_b.weight", COPY, "blk.%u.attn_output_b.weight")
HF_MADE_OF("deepseek4", "layers.#.attn.indexer.wq_b.weight", COPY, "blk.%u.indexer.attn_q_b.weight")
HF_MADE_OF("deepseek4", "layers.#.attn.indexer.weights_proj.weight", COPY,
           "blk.%u.indexer.proj.weight")
HF_MADE_OF("deepseek4", "layers.#.attn.compressor.wkv.weight", COPY,
           "blk.%u.attn_compressor_kv.weight")
HF_MADE_OF("deepseek4", "layers.#.attn.compressor.wgate.weight", COPY,
           "blk.%u.attn_compressor_gate.weight")
HF_MADE_OF("deepseek4", "layers.#.attn.compressor.ape", COPY, "blk.%u.attn_compressor_ape.weight")
HF_MADE_OF("deepseek4", "layers.#.attn.compressor.norm.weight", COPY,
           "blk.%u.attn_compressor_norm.weight")
HF_MADE_OF("deepseek4", "layers.#.attn.indexer.compressor.wkv.weight", COPY,
           "blk.%u.indexer_compressor_kv.weight")
HF_MADE_OF("deepseek4", "layers.#.attn.indexer.compressor.wgate.weight", COPY,
           "blk.%u.indexer_compressor_gate.weight")
HF_MADE_OF("deepseek4", "layers.#.attn.indexer.compressor.ape", COPY,
           "blk.%u.indexer_compressor_ape.weight")
HF_MADE_OF("deepseek4", "layers.#.attn.indexer.compressor.norm.weight", COPY,
           "blk.%u.indexer_compressor_norm.weight")
HF_MADE_OF("deepseek4", "layers.#.ffn.gate.weight", COPY, "blk.%u.ffn_gate_inp.weight")
HF_MADE_OF("deepseek4", "layers.#.ffn.gate.tid2eid", COPY, "blk.%u.ffn_gate_tid2eid.weight")
HF_MADE_OF("deepseek4", "layers.#.ffn.gate.bias", COPY, "blk.%u.exp_probs_b.bias")
HF_MADE_OF("deepseek4", "layers.#.ffn.shared_experts.w1.weight", COPY,
           "blk.%u.ffn_gate_shexp.weight")
HF_MADE_OF("deepseek4", "layers.#.ffn.experts.#.w1.weight", COPY, "blk.%u.ffn_gate_exps.weight")
HF_MADE_OF("deepseek4", "layers.#.ffn.shared_experts.w3.weight", COPY, "blk.%u.ffn_up_shexp.weight")
HF_MADE_OF("deepseek4", "layers.#.ffn.experts.#.w3.weight", COPY, "blk.%u.ffn_up_exps.weight")
HF_MADE_OF("deepseek4", "layers.#.ffn.shared_experts.w2.weight", COPY,
           "blk.%u.ffn_down_shexp.weight")
HF_MADE_OF("deepseek4", "layers.#.ffn.experts.#.w2.weight", COPY, "blk.%u.ffn_down_exps.weight")
HF_MADE_OF("hy_v4", "model.layers.#.mlp.experts.gate_up_proj", HALVES,
           "blk.%u.ffn_gate_exps.weight", "blk.%u.ffn_up_exps.weight")
HF_MADE_OF("hy_v4", "model.layers.#.mlp.experts.down_proj", COPY, "blk.%u.ffn_down_exps.weight")
HF_MADE_OF("hy_v4", "model.layers.#.self_attn.linear_gate.weight", COPY, "blk.%u.attn_gate.weight")
HF_MADE_OF("hy_v4", "model.layers.#.self_attn.learnable_sink_param", COPY,
           "blk.%u.attn_sinks.weight")
HF_MADE_OF("hy_v4", "model.layers.#.hc_attn_layer.hc_pre.hc_fn", COPY, "blk.%u.hc_attn_fn.weight")
HF_MADE_OF("hy_v4", "model.layers.#.hc_attn_layer.hc_pre.hc_base", COPY,
           "blk.%u.hc_attn_base.weight")
HF_MADE_OF("hy_v4", "model.layers.#.hc_attn_layer.hc_pre.hc_scale", COPY,
           "blk.%u.hc_attn_scale.weight")
HF_MADE_OF("hy_v4", "model.layers.#.hc_mlp_layer.hc_pre.hc_fn", COPY, "blk.%u.hc_ffn_fn.weight")
HF_MADE_OF("hy_v4", "model.layers.#.hc_mlp_layer.hc_pre.hc_base", COPY, "blk.%u.hc_ffn_base.weight")
HF_MADE_OF("hy_v4", "model.layers.#.hc_mlp_layer.hc_pre.hc_scale", COPY,
           "blk.%u.hc_ffn_scale.weight")
HF_MADE_OF("hy_v4", "model.hc_head.hc_head_fn", COPY, "output_hc_fn.weight")
HF_MADE_OF("hy_v4", "model.hc_head.hc_head_base", COPY, "output_hc_base.weight")
HF_MADE_OF("hy_v4", "model.hc_head.hc_head_scale", COPY, "output_hc_scale.weight")
HF_MADE_OF("dots3note", "model.layers.#.self_attn.k_rope_only_layernorm.weight", COPY,
           "blk.%u.attn_k_norm.weight")
HF_MADE_OF("dots3note", "model.layers.#.self_attn.g_proj.weight", COPY, "blk.%u.attn_gate.weight")
HF_MADE_OF("bailingmoe3", "model.layers.#.attention.q_proj.weight", COPY, "blk.%u.attn_q.weight")
HF_MADE_OF("bailingmoe3", "model.layers.#.attention.k_proj.weight", COPY, "blk.%u.attn_k.weight")
HF_MADE_OF("bailingmoe3", "model.layers.#.attention.v_proj.weight", COPY, "blk.%u.attn_v.weight")
HF_MADE_OF("bailingmoe3", "model.layers.#.attention.q_a_proj.weight", COPY,
           "blk.%u.attn_q_a.weight")
HF_MADE_OF("bailingmoe3", "model.layers.#.attention.q_a_layernorm.weight", COPY,
           "blk.%u.attn_q_a_norm.weight")
HF_MADE_OF("bailingmoe3", "model.layers.#.attention.q_b_proj.weight", COPY,
           "blk.%u.attn_q_b.weight")
HF_MADE_OF("bailingmoe3", "model.layers.#.attention.kv_a_proj_with_mqa.weight", COPY,
           "blk.%u.attn_kv_a_mqa.weight")
HF_MADE_OF("bailingmoe3", "model.layers.#.attention.kv_a_layernorm.weight", COPY,
           "blk.%u.attn_kv_a_norm.weight")
HF_MADE_OF("bailingmoe3", "model.layers.#.attention.kv_b_proj.weight", KEYS_VALUES,
           "blk.%u.attn_k_b.weight", "blk.%u.attn_v_b.weight")
HF_MADE_OF("bailingmoe3", "model.layers.#.attention.q_conv1d.weight", COPY,
           "blk.%u.ssm_conv1d_q.weight")
HF_MADE_OF("bailingmoe3", "model.layers.#.attention.k_conv1d.weight", COPY,
           "blk.%u.ssm_conv1d_k.weight")
HF_MADE_OF("bailingmoe3", "model.layers.#.attention.v_conv1d.weight", COPY,
           "blk.%u.ssm_conv1d_v.weight")
HF_MADE_OF("bailingmoe3", "model.layers.#.attention.f_proj.weight", COPY, "blk.%u.ssm_f_a.weight")
HF_MADE_OF("bailingmoe3", "model.layers.#.attention.g_proj.weight", EITHER,
           "blk.%u.attn_gate.weight", "blk.%u.ssm_g_a.weight")
HF_MADE_OF("bailingmoe3", "model.layers.#.attention.b_proj.weight", COPY, "blk.%u.ssm_beta.weight")
HF_MADE_OF("bailingmoe3", "model.layers.#.attention.dt_bias", COPY, "blk.%u.ssm_dt.bias")
HF_MADE_OF("bailingmoe3", "model.layers.#.attention.A_log", LOG, "blk.%u.ssm_a")
HF_MADE_OF("bailingmoe3", "model.layers.#.attention.o_norm.weight", COPY, "blk.%u.ssm_norm.weight")
HF_MADE_OF("bailingmoe3", "model.layers.#.enorm.weight", COPY, "blk.%u.nextn.enorm.weight")
HF_MADE_OF("bailingmoe3", "model.layers.#.hnorm.weight", COPY, "blk.%u.nextn.hnorm.weight")
HF_MADE_OF("bailingmoe3", "model.layers.#.final_layernorm.weight", COPY,
           "blk.%u.layer_output_norm.weight")
HF_MADE_OF("phimoe", "model.norm.bias", COPY, "output_norm.bias")
HF_MADE_OF("phimoe", "lm_head.bias", COPY, "output.bias")
HF_MADE_OF("phimoe", "model.layers.#.input_layernorm.bias", COPY, "blk.%u.attn_norm.bias")
HF_MADE_OF("phimoe", "model.layers.#.post_attention_layernorm.bias", COPY, "blk.%u.ffn_norm.bias")
HF_MADE_OF(NULL, "model.layers.#.block_sparse_moe.gate.weight", COPY, "blk.%u.ffn_gate_inp.weight")
HF_MADE_OF(NULL, "model.layers.#.block_sparse_moe.experts.#.w1.weight", COPY,
           "blk.%u.ffn_gate_exps.weight")
HF_MADE_OF(NULL, "model.layers.#.block_sparse_moe.experts.#.w3.weight", COPY,
           "blk.%u.ffn_up_exps.weight")
HF_MADE_OF(NULL, "model.layers.#.block_sparse_moe.experts.#.w2.weight", COPY,
           "blk.%u.ffn_down_exps.weight")
HF_MADE_OF("hunyuan-moe", "model.layers.#.self_attn.query_layernorm.weight", COPY,
           "blk.%u.attn_q_norm.weight")
HF_MADE_OF("hunyuan-moe", "model.layers.#.self_attn.key_layernorm.weight", COPY,
           "blk.%u.attn_k_norm.weight")
HF_MADE_OF("hunyuan-moe", "model.layers.#.mlp.gate.wg.weight", COPY, "blk.%u.ffn_gate_inp.weight")
HF_MADE_OF("dbrx", "transformer.wte.weight", COPY, "token_embd.weight")
HF_MADE_OF("dbrx", "transformer.norm_f.weight", COPY, "output_norm.weight")
HF_MADE_OF("dbrx", "transformer.blocks.#.norm_attn_norm.norm_1.weight", COPY,
           "blk.%u.attn_norm.weight")
HF_MADE_OF("dbrx", "transformer.blocks.#.norm_attn_norm.norm_2.weight", COPY,
           "blk.%u.attn_output_norm.weight")
HF_MADE_OF("dbrx", "transformer.blocks.#.norm_attn_norm.attn.Wqkv.weight", COPY,
           "blk.%u.attn_qkv.weight")
HF_MADE_OF("dbrx", "transformer.blocks.#.norm_attn_norm.attn.out_proj.weight", COPY,
           "blk.%u.attn_output.weight")
HF_MADE_OF("dbrx", "transformer.blocks.#.ffn.router.layer.weight", COPY,
           "blk.%u.ffn_gate_inp.weight")
HF_MADE_OF("dbrx", "transformer.blocks.#.ffn.experts.mlp.w1", COPY, "blk.%u.ffn_gate_exps.weight")
HF_MADE_OF("dbrx", "transformer.blocks.#.ffn.experts.mlp.v1", COPY, "blk.%u.ffn_up_exps.weight")
HF_MADE_OF("dbrx", "transformer.blocks.#.ffn.experts.mlp.w2", TURNED, "blk.%u.ffn_down_exps.weight")
HF_MADE_OF("smallthinker", "model.layers.#.block_sparse_moe.primary_router.weight", COPY,
           "blk.%u.ffn_gate_inp.weight")
HF_MADE_OF("smallthinker", "model.layers.#.block_sparse_moe.experts.#.gate.weight", COPY,
           "blk.%u.ffn_gate_exps.weight")
HF_MADE_OF("smallthinker", "model.layers.#.block_sparse_moe.experts.#.up.weight", COPY,
           "blk.%u.ffn_up_exps.weight")
HF_MADE_OF("smallthinker", "model.layers.#.block_sparse_moe.experts.#.down.weight", COPY,
           "blk.%u.ffn_down_exps.weight")
HF_MADE_OF(NULL, "model.embed_tokens.weight", COPY, "token_embd.weight")
HF_MADE_OF(NULL, "model.norm.weight", COPY, "output_norm.weight")
HF_MADE_OF(NULL, "lm_head.weight", COPY, "output.weight")
HF_MADE_OF(NULL, "model.layers.#.input_layernorm.weight", COPY, "blk.%u.attn_norm.weight")
HF_MADE_OF(NULL, "model.layers.#.post_attention_layernorm.weight", COPY, "blk.%u.ffn_norm.weight")
HF_MADE_OF(NULL, "model.layers.#.mlp.gate.weight", COPY, "blk.%u.ffn_gate_inp.weight")
HF_MADE_OF(NULL, "model.layers.#.mlp.gate.e_score_correction_bias", COPY, "blk.%u.exp_probs_b.bias")
HF_MADE_OF(NULL, "model.layers.#.mlp.shared_expert_gate.weight", COPY,
           "blk.%u.ffn_gate_inp_shexp.weight")
HF_MADE_OF(NULL, "model.layers.#.self_attn.q_proj.weight", COPY, "blk.%u.attn_q.weight")
HF_MADE_OF(NULL, "model.layers.#.self_attn.q_proj.bias", COPY, "blk.%u.attn_q.bias")
HF_MADE_OF(NULL, "model.layers.#.self_attn.k_proj.weight", COPY, "blk.%u.attn_k.weight")
HF_MADE_OF(NULL, "model.layers.#.self_attn.k_proj.bias", COPY, "blk.%u.attn_k.bias")
HF_MADE_OF(NULL, "model.layers.#.self_attn.v_proj.weight", COPY, "blk.%u.attn_v.weight")
HF_MADE_OF(NULL, "model.layers.#.self_attn.v_proj.bias", COPY, "blk.%u.attn_v.bias")
HF_MADE_OF(NULL, "model.layers.#.self_attn.o_proj.weight", COPY, "blk.%u.attn_output.weight")
HF_MADE_OF(NULL, "model.layers.#.self_attn.o_proj.bias", COPY, "blk.%u.attn_output.bias")
HF_MADE_OF(NULL, "model.layers.#.self_attn.q_norm.weight", COPY, "blk.%u.attn_q_norm.weight")
HF_MADE_OF(NULL, "model.layers.#.self_attn.k_norm.weight", COPY, "blk.%u.attn_k_norm.weight")
HF_MADE_OF(NULL, "model.layers.#.mlp.gate_proj.weight", COPY, "blk.%u.ffn_gate.weight")
HF_MADE_OF(NULL, "model.layers.#.mlp.experts.#.gate_proj.weight", COPY,
           "blk.%u.ffn_gate_exps.weight")
HF_MADE_OF(NULL, "model.layers.#.mlp.shared_experts.gate_proj.weight", COPY,
           "blk.%u.ffn_gate_shexp.weight")
HF_MADE_OF(NULL, "model.layers.#.mlp.up_proj.weight", COPY, "blk.%u.ffn_up.weight")
HF_MADE_OF(NULL, "model.layers.#.mlp.experts.#.up_proj.weight", COPY, "blk.%u.ffn_up_exps.weight")
HF_MADE_OF(NULL, "model.layers.#.mlp.shared_experts.up_proj.weight", COPY,
           "blk.%u.ffn_up_shexp.weight")
HF_MADE_OF(NULL, "model.layers.#.mlp.down_proj.weight", COPY, "blk.%u.ffn_down.weight")
HF_MADE_OF(NULL, "model.layers.#.mlp.experts.#.down_proj.weight", COPY,
           "blk.%u.ffn_down_exps.weight")
HF_MADE_OF(NULL, "model.layers.#.mlp.shared_experts.down_proj.weight", COPY,
           "blk.%u.ffn_down_shexp.weight")
HF_MADE_OF(NULL, "model.layers.#.self_attn.q_conv1d.weight", COPY, "blk.%u.ssm_conv1d_q.weight")
HF_MADE_OF(NULL, "model.layers.#.self_attn.k_conv1d.weight", COPY, "blk.%u.ssm_conv1d_k.weight")
HF_MADE_OF(NULL, "model.layers.#.self_attn.v_conv1d.weight", COPY, "blk.%u.ssm_conv1d_v.weight")
HF_MADE_OF(NULL, "model.layers.#.self_attn.f_a_proj.weight", COPY, "blk.%u.ssm_f_a.weight")
HF_MADE_OF(NULL, "model.layers.#.self_attn.f_b_proj.weight", COPY, "blk.%u.ssm_f_b.weight")
HF_MADE_OF(NULL, "model.layers.#.self_attn.g_a_proj.weight", COPY, "blk.%u.ssm_g_a.weight")
HF_MADE_OF(NULL, "model.layers.#.self_attn.g_b_proj.weight", COPY, "blk.%u.ssm_g_b.weight")
HF_MADE_OF(NULL, "model.layers.#.self_attn.b_proj.weight", COPY, "blk.%u.ssm_beta.weight")
HF_MADE_OF(NULL, "model.layers.#.self_attn.dt_bias", COPY, "blk.%u.ssm_dt.bias")
HF_MADE_OF(NULL, "model.layers.#.self_attn.A_log", LOG, "blk.%u.ssm_a")
HF_MADE_OF(NULL, "model.layers.#.self_attn.o_norm.weight", COPY, "blk.%u.ssm_norm.weight")
HF_MADE_OF(NULL, "model.layers.#.block_sparse_moe.gate.e_score_correction_bias", COPY,
           "blk.%u.exp_probs_b.bias")
HF_MADE_OF(NULL, "model.layers.#.block_sparse_moe.shared_experts.gate_proj.weight", COPY,
           "blk.%u.ffn_gate_shexp.weight")
HF_MADE_OF(NULL, "model.layers.#.block_sparse_moe.shared_experts.up_proj.weight", COPY,
           "blk.%u.ffn_up_shexp.weight")
HF_MADE_OF(NULL, "model.layers.#.block_sparse_moe.shared_experts.down_proj.weight", COPY,
           "blk.%u.ffn_down_shexp.weight")
HF_MADE_OF(NULL, "model.layers.#.linear_attn.A_log", V_LOG, "blk.%u.ssm_a")
HF_MADE_OF(NULL, "model.layers.#.linear_attn.conv1d.weight", QKV, "blk.%u.ssm_conv1d.weight")
HF_MADE_OF(NULL, "model.layers.#.linear_attn.dt_bias", V_NUMBERS, "blk.%u.ssm_dt.bias")
HF_MADE_OF(NULL, "model.layers.#.linear_attn.in_proj_a.weight", V_NUMBERS,
           "blk.%u.ssm_alpha.weight")
HF_MADE_OF(NULL, "model.layers.#.linear_attn.in_proj_b.weight", V_NUMBERS, "blk.%u.ssm_beta.weight")
HF_MADE_OF(NULL, "model.layers.#.linear_attn.in_proj_qkv.weight", QKV, "blk.%u.attn_qkv.weight")
HF_MADE_OF(NULL, "model.layers.#.linear_attn.in_proj_z.weight", V_ROWS, "blk.%u.attn_gate.weight")
HF_MADE_OF(NULL, "model.layers.#.linear_attn.out_proj.weight", V_COLUMNS, "blk.%u.ssm_out.weight")
HF_MADE_OF(NULL, "model.layers.#.self_attn.sinks", COPY, "blk.%u.attn_sinks.weight")
HF_MADE_OF(NULL, "model.layers.#.self_attn.out_proj.weight", COPY, "blk.%u.attn_output.weight")
HF_MADE_OF(NULL, "model.word_embeddings.weight", COPY, "token_embd.weight")
HF_MADE_OF(NULL, "model.layers.#.attention.dense.weight", COPY, "blk.%u.attn_output.weight")
HF_MADE_OF(NULL, "model.layers.#.mlp.gate.expert_bias", COPY, "blk.%u.exp_probs_b.bias")
HF_MADE_OF(NULL, "model.layers.#.feed_forward.router.weight", COPY, "blk.%u.ffn_gate_inp.weight")
HF_MADE_OF(NULL, "model.layers.#.feed_forward.gate_proj.weight", COPY, "blk.%u.ffn_gate.weight")
HF_MADE_OF(NULL, "model.layers.#.feed_forward.up_proj.weight", COPY, "blk.%u.ffn_up.weight")
HF_MADE_OF(NULL, "model.layers.#.feed_forward.down_proj.weight", COPY, "blk.%u.ffn_down.weight")
HF_MADE_OF(NULL, "model.layers.#.mlp.router.gate.weight", COPY, "blk.%u.ffn_gate_inp.weight")
HF_MADE_OF(NULL, "model.layers.#.mlp.shared_mlp.gate_proj.weight", COPY,
           "blk.%u.ffn_gate_shexp.weight")
HF_MADE_OF(NULL, "model.layers.#.mlp.shared_mlp.up_proj.weight", COPY, "blk.%u.ffn_up_shexp.weight")
HF_MADE_OF(NULL, "model.layers.#.mlp.shared_mlp.down_proj.weight", COPY,
           "blk.%u.ffn_down_shexp.weight")
HF_MADE_OF(NULL, "model.layers.#.eh_proj.weight", COPY, "blk.%u.nextn.eh_proj.weight")
HF_MADE_OF(NULL, "model.layers.#.mlp.shared_expert.gate_proj.weight", COPY,
           "blk.%u.ffn_gate_shexp.weight")
HF_MADE_OF(NULL, "model.layers.#.mlp.shared_expert.up_proj.weight", COPY,
           "blk.%u.ffn_up_shexp.weight")
HF_MADE_OF(NULL, "model.layers.#.mlp.shared_expert.down_proj.weight", COPY,
           "blk.%u.ffn_down_shexp.weight")
HF_MADE_OF(NULL, "model.layers.#.self_attn.qkv_proj.weight", COPY, "blk.%u.attn_qkv.weight")
HF_MADE_OF(NULL, "model.layers.#.mamba.in_proj.weight", COPY, "blk.%u.ssm_in.weight")
HF_MADE_OF(NULL, "model.layers.#.mamba.conv1d.weight", COPY, "blk.%u.ssm_conv1d.weight")
HF_MADE_OF(NULL, "model.layers.#.mamba.conv1d.bias", COPY, "blk.%u.ssm_conv1d.bias")
HF_MADE_OF(NULL, "model.layers.#.mamba.A_log", LOG, "blk.%u.ssm_a")
HF_MADE_OF(NULL, "model.layers.#.mamba.D", COPY, "blk.%u.ssm_d")
HF_MADE_OF(NULL, "model.layers.#.mamba.out_proj.weight", COPY, "blk.%u.ssm_out.weight")
#undef HF_MADE_OF
