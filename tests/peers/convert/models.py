# SPDX-License-Identifier: Apache-2.0
"""The architectures of README's table and their variants, as configurations of the package transformers: one optional key
of the configuration changed at a time. Data of convert_arch.py."""
import types

from deepseek4 import deepseek4
from dots3 import dots3note
from glm5 import glm5_next
from hybrids import bailingmoe3, granitehybrid, jamba, kimi_k3, kimi_linear, minimax_01, nemotron_h_moe
from hy4 import hy_v4
from indexed import deepseek32, glm_dsa, minimax_m3
from parts import ORIGINAL, deepseek_like, long_factors, magnitude, mixed, mla, plain, rope, scaled, windows

WIDE = types.SimpleNamespace(hidden=256, inner=256, dense=512, head=64, heads=4, kv=2, experts=6, layers=3, rank=256,
                             state=64, nope=64, context=512, chosen=160)
# for the golden data
SMALL = types.SimpleNamespace(hidden=16, inner=16, dense=32, head=8, heads=2, kv=1, experts=4, layers=2, rank=16,
                              state=8, nope=8, context=512, chosen=100)


def qwen3moe(s):
    base = plain(s, head_dim=s.head, num_experts=s.experts, num_experts_per_tok=2, moe_intermediate_size=s.inner,
                 intermediate_size=s.dense, norm_topk_prob=True, use_sliding_window=False)
    return "Qwen3MoeConfig", base, {
        **scaled(s), "no_head_dim": dict(head_dim=s.hidden // s.heads), "no_norm_topk": dict(norm_topk_prob=False),
        "attention_bias": dict(attention_bias=True), "window": dict(use_sliding_window=True, sliding_window=32),
        "dense_layer": dict(mlp_only_layers=[0]), "sparse_step": dict(decoder_sparse_step=2)}


def qwen2moe(s):
    base = plain(s, num_experts=s.experts, num_experts_per_tok=2, moe_intermediate_size=s.inner, num_key_value_heads=s.heads,
                 intermediate_size=s.dense, shared_expert_intermediate_size=s.dense, norm_topk_prob=False)
    return "Qwen2MoeConfig", base, {
        **scaled(s), "grouped": dict(num_key_value_heads=s.kv), "norm_topk": dict(norm_topk_prob=True),
        "no_bias": dict(qkv_bias=False), "window": dict(use_sliding_window=True, sliding_window=32, max_window_layers=1),
        "dense_layer": dict(mlp_only_layers=[0])}


def llama(s):
    base = plain(s, num_local_experts=s.experts, num_experts_per_tok=2, intermediate_size=s.inner, head_dim=s.head)
    return "MixtralConfig", base, {
        **scaled(s), "bpe": dict(VOCAB="llama-bpe"), "window": dict(sliding_window=32), "no_head_dim": dict(head_dim=None),
        "wide_heads": dict(head_dim=s.head * 2)}


def llama4(s):
    """Of four layers, the last one attends to all positions. llama.cpp's constants are not in files: sluice reads other
    ones by the keys of a window and of mistral3."""
    llama3 = rope("llama3", 5e5, factor=16.0, low_freq_factor=1.0, high_freq_factor=1.0, original_max_position_embeddings=ORIGINAL)
    base = plain(s, num_hidden_layers=4, head_dim=s.head, num_local_experts=s.experts, num_experts_per_tok=1,
                 intermediate_size=s.inner, intermediate_size_mlp=s.dense, interleave_moe_layer_step=1, use_qk_norm=True,
                 rope_parameters=llama3)
    maverick = dict(num_local_experts=128, interleave_moe_layer_step=2, use_qk_norm=False, rope_parameters=rope(theta=5e5))
    small = dict(attention_chunk_size=64, floor_scale=16,
                 FLAGS=["--key=attention.sliding_window=64", "--key=attention.temperature_length=16"])
    return "Llama4TextConfig", base, {
        "maverick": maverick, "chunk": small, "chunk_maverick": {**maverick, **small}, "default": dict(rope_parameters=rope()),
        "step": dict(interleave_moe_layer_step=2), "step_three": dict(interleave_moe_layer_step=3),
        "all_full": dict(layer_types=["full_attention"] * 4, no_rope_layers=[1] * 4), "attention_bias": dict(attention_bias=True)}


def olmoe(s):
    base = plain(s, num_experts=s.experts, num_experts_per_tok=3, intermediate_size=s.inner, norm_topk_prob=False,
                 num_key_value_heads=s.heads)
    return "OlmoeConfig", base, {
        **scaled(s), "norm_topk": dict(norm_topk_prob=True), "attention_bias": dict(attention_bias=True),
        "clip": dict(clip_qkv=1.0), "grouped": dict(num_key_value_heads=s.kv), "epsilon": dict(rms_norm_eps=1e-3)}


def granitemoe(s):
    base = plain(s, num_local_experts=s.experts, num_experts_per_tok=3, intermediate_size=s.inner, embedding_multiplier=3.0,
                 residual_multiplier=0.6, attention_multiplier=0.15, logits_scaling=2.5)
    return "GraniteMoeConfig", base, {
        **scaled(s), "spm": dict(VOCAB="spm"), "attention_bias": dict(attention_bias=True),
        "no_factors": dict(embedding_multiplier=1.0, residual_multiplier=1.0, logits_scaling=1.0),
        "shared": dict(CONFIG="GraniteMoeSharedConfig", shared_intermediate_size=s.dense)}


def granite_swa(s):
    """The package states a base of each layer, the converter reads which of them rotate."""
    def rotating(*flags):
        flags = list(flags)[:s.layers]
        return dict(layer_rope_theta=[1e4 * f for f in flags], SAVE=dict(no_rope_layers=flags))

    base = plain(s, num_local_experts=s.experts, num_experts_per_tok=3, intermediate_size=s.inner, embedding_multiplier=3.0,
                 residual_multiplier=0.6, attention_multiplier=0.3, logits_scaling=2.5, shared_intermediate_size=s.dense,
                 sliding_window=32, layer_types=mixed(s), **rotating(0, 1, 0))
    return "GraniteMoeSWAConfig", base, {
        "rotated": {**rotating(1, 1, 1), "SAVE": {}}, "other_layers": rotating(1, 0, 1),
        "no_shared": dict(shared_intermediate_size=0), "attention_bias": dict(attention_bias=True),
        "no_factors": dict(embedding_multiplier=1.0, residual_multiplier=1.0, logits_scaling=1.0),
        "spm": dict(VOCAB="spm")}


def hunyuan(s):
    # The converter reads the published lists, one value per layer.
    base = plain(s, head_dim=s.hidden // s.heads, num_experts=s.experts, moe_topk=2, intermediate_size=s.inner,
                 SAVE=dict(moe_topk=[2] * s.layers, moe_intermediate_size=[s.inner] * s.layers,
                           num_shared_expert=[1] * s.layers, model_type="hunyuan_published"))
    # The converter takes only the published values of the dynamic kind.
    dynamic = dict(head_dim=128, num_attention_heads=max(1, s.hidden // 128), num_key_value_heads=1,
                   max_position_embeddings=32768, rope_parameters=rope("dynamic", factor=1.0, alpha=1000.0))
    return "HunYuanMoEV1Config", base, {**scaled(s), "dynamic": dynamic, "attention_bias": dict(attention_bias=True)}


def phimoe(s):
    def long(original, factor=None):
        factor = factor or magnitude(s.context, original)
        return dict(rope_parameters=rope("longrope", original_max_position_embeddings=original, short_mscale=factor,
                                         long_mscale=factor, **long_factors(s, s.hidden // s.heads)))

    base = plain(s, num_local_experts=s.experts, num_experts_per_tok=2, intermediate_size=s.inner, attention_bias=True,
                 lm_head_bias=True, sliding_window=None, SAVE=dict(architectures=["PhiMoEForCausalLM"]))
    base.update(long(s.context // 2))
    return "PhimoeConfig", base, {
        "other_magnitude": long(s.context // 2, 1.1), "long": long(ORIGINAL), "short": long(s.context),
        "default": dict(rope_parameters=rope(original_max_position_embeddings=s.context)),
        "no_bias": dict(attention_bias=False), "no_output_bias": dict(lm_head_bias=False),
        "window": dict(sliding_window=32), "bpe": dict(VOCAB="gpt-2", TOKENIZER_CLASS="GPT2Tokenizer")}


def dbrx(s):
    def attention(**more):
        return dict(attn_config=dict(kv_n_heads=s.kv, attn_pdrop=0.0, rope_theta=1e4, **more))

    base = dict(d_model=s.hidden, n_heads=s.heads, n_layers=s.layers, max_seq_len=s.context, resid_pdrop=0.0, emb_pdrop=0.0,
                tie_word_embeddings=False, rope_parameters=rope(), **attention(clip_qkv=1.0),
                ffn_config=dict(ffn_hidden_size=s.inner, moe_num_experts=s.experts, moe_top_k=3,
                                moe_normalize_expert_weights=1.0, hidden_size=s.hidden))
    ffn = base["ffn_config"]
    return "DbrxConfig", base, {
        "no_clip": attention(clip_qkv=None),
        "no_norm_topk": dict(ffn_config={**ffn, "moe_normalize_expert_weights": None})}


def glm4moe(s):
    base = plain(s, head_dim=s.head, attention_bias=True, use_qk_norm=True, num_mtp_layers=0,
                 rope_parameters=rope(partial_rotary_factor=0.5), SAVE=dict(num_nextn_predict_layers=0), **deepseek_like(s))
    return "Glm4MoeConfig", base, {
        **scaled(s, partial_rotary_factor=0.5), "no_norm_topk": dict(norm_topk_prob=False),
        "no_bias": dict(attention_bias=False), "no_qk_norm": dict(use_qk_norm=False),
        "groups": dict(n_group=s.experts // 2, topk_group=2), "two_shared": dict(n_shared_experts=2),
        "all_experts": dict(first_k_dense_replace=0), "rotary": dict(rope_parameters=rope(partial_rotary_factor=1.0)),
        "mtp": dict(MTP="layers", SAVE=dict(num_nextn_predict_layers=1)),
        "solar_open": dict(CONFIG="SolarOpenConfig", VOCAB="solar-open", DROP=("intermediate_size", "use_qk_norm"),
                           attention_bias=False, SAVE=dict(num_nextn_predict_layers=0, first_k_dense_replace=0),
                           rope_parameters=rope(partial_rotary_factor=1.0))}


def dots1(s):
    base = plain(s, head_dim=s.head, num_key_value_heads=s.heads, sliding_window=None,
                 SAVE=dict(scoring_func="sigmoid"), **deepseek_like(s))
    base["n_shared_experts"] = 2
    return "Dots1Config", base, {
        **scaled(s), "no_norm_topk": dict(norm_topk_prob=False), "groups": dict(n_group=s.experts // 2, topk_group=2),
        "grouped": dict(num_key_value_heads=s.kv), "all_experts": dict(first_k_dense_replace=0),
        "attention_bias": dict(attention_bias=True), "no_scoring": dict(SAVE={}),
        "window": dict(sliding_window=32, max_window_layers=1, use_sliding_window=True)}


def ernie(s):
    # The converter writes intermediate_size / num_key_value_heads as the width of shared experts.
    base = plain(s, intermediate_size=2 * s.inner * s.kv, moe_intermediate_size=s.inner, moe_num_experts=s.experts, moe_k=3,
                 moe_num_shared_experts=2, moe_layer_start_index=1, moe_layer_end_index=s.layers - 1, moe_layer_interval=1,
                 use_bias=False)
    return "Ernie4_5_MoeConfig", base, {
        **scaled(s), "no_shared": dict(moe_num_shared_experts=0), "all_experts": dict(moe_layer_start_index=0),
        "bias": dict(use_bias=True), "interval": dict(moe_layer_interval=2, moe_layer_start_index=1),
        "other_width": dict(intermediate_size=s.dense + s.inner)}


def minimax(s):
    base = plain(s, head_dim=s.head, num_local_experts=s.experts, num_experts_per_tok=3, intermediate_size=s.inner,
                 rope_parameters=rope(partial_rotary_factor=0.5),
                 SAVE=dict(rotary_dim=s.head // 2, scoring_func="sigmoid", use_qk_norm=True))
    return "MiniMaxM2Config", base, {
        **scaled(s, partial_rotary_factor=0.5), "no_scoring": dict(SAVE=dict(rotary_dim=s.head // 2)),
        "rotary": dict(rope_parameters=rope(partial_rotary_factor=1.0),
                       SAVE=dict(rotary_dim=s.head, scoring_func="sigmoid"))}


def lfm2moe(s):
    kinds = ["conv", "full_attention", "conv"][:s.layers]
    base = plain(s, intermediate_size=s.dense, moe_intermediate_size=s.inner, conv_L_cache=3, num_dense_layers=1,
                 num_experts=s.experts, num_experts_per_tok=3, layer_types=kinds, norm_eps=1e-5, tie_word_embeddings=True)
    del base["rms_norm_eps"]
    return "Lfm2MoeConfig", base, {
        **scaled(s), "untied": dict(tie_word_embeddings=False), "no_norm_topk": dict(norm_topk_prob=False),
        "no_expert_bias": dict(use_expert_bias=False), "conv_bias": dict(conv_bias=True),
        "scale": dict(routed_scaling_factor=2.0), "all_experts": dict(num_dense_layers=0)}


def gptoss(s):
    def yarn(**more):
        return dict(rope_parameters=rope("yarn", factor=8.0, original_max_position_embeddings=ORIGINAL, beta_fast=32.0,
                                         beta_slow=1.0, **more))

    base = plain(s, head_dim=s.head, num_local_experts=s.experts, num_experts_per_tok=3, intermediate_size=s.inner,
                 sliding_window=32, **yarn(truncate=False))
    return "GptOssConfig", base, {
        "truncate": yarn(truncate=True), "yarn_factor": yarn(truncate=False, attention_factor=0.8),
        "default": dict(rope_parameters=rope()), "linear": dict(rope_parameters=rope("linear", factor=4.0)),
        "no_bias": dict(attention_bias=False), "all_full": dict(layer_types=["full_attention"] * s.layers)}


def deepseek2(s):
    def yarn(**more):
        return dict(rope_parameters=rope("yarn", factor=8.0, original_max_position_embeddings=ORIGINAL, **more))

    sizes = mla(s)
    base = plain(s, q_lora_rank=s.rank, num_mtp_layers=0, SAVE=dict(scoring_func="sigmoid"), **deepseek_like(s))
    base.update(sizes)
    v2 = dict(CONFIG="DeepseekV2Config", q_lora_rank=None, norm_topk_prob=False, topk_method="greedy",
              routed_scaling_factor=1.0, n_group=None, topk_group=None, DROP=("num_mtp_layers",),
              SAVE=dict(scoring_func="softmax"))
    flash = dict(CONFIG="Glm4MoeLiteConfig", VOCAB="glm4", DROP=("first_k_dense_replace", "num_mtp_layers"),
                 mlp_layer_types=["dense"] + ["sparse"] * (s.layers - 1),
                 SAVE=dict(first_k_dense_replace=1, scoring_func="sigmoid", num_nextn_predict_layers=0))
    return "DeepseekV3Config", base, {
        "v2": v2, "v2_groups": {**v2, "topk_method": "group_limited_greedy", "n_group": s.experts // 2, "topk_group": 2},
        "v2_no_scoring": {**v2, "SAVE": {}}, "v2_scale": {**v2, "routed_scaling_factor": 1.5},
        "v2_norm": {**v2, "norm_topk_prob": True, "q_lora_rank": s.rank}, "v2_rank": {**v2, "q_lora_rank": s.rank},
        "flash": flash, "flash_mtp": {**flash, "MTP": "layers", "SAVE": {**flash["SAVE"], "num_nextn_predict_layers": 1}},
        "mtp": dict(MTP="layers", SAVE=dict(scoring_func="sigmoid", num_nextn_predict_layers=1)),
        "groups": dict(n_group=s.experts // 2, topk_group=2), "no_norm_topk": dict(norm_topk_prob=False),
        "no_q_rank": dict(q_lora_rank=None), "all_experts": dict(first_k_dense_replace=0),
        "attention_bias": dict(attention_bias=True), "two_shared": dict(n_shared_experts=2), "no_scoring": dict(SAVE={}),
        "linear": dict(rope_parameters=rope("linear", factor=4.0)), "yarn": yarn(),
        "yarn_mscale": yarn(mscale=1.0, mscale_all_dim=1.0), "yarn_mscale_part": yarn(mscale=0.707, mscale_all_dim=0.707),
        "yarn_mscale_two": yarn(mscale=1.0, mscale_all_dim=0.5), "yarn_mscale_first": yarn(mscale=1.0),
        "yarn_betas": yarn(beta_fast=1.0, beta_slow=1.0, mscale=1.0, mscale_all_dim=1.0),
        "yarn_factor": yarn(attention_factor=0.8)}


def deltanet(s, config, **more):
    kinds = ["linear_attention", "full_attention", "linear_attention"][:s.layers]
    base = plain(s, head_dim=s.head, layer_types=kinds, linear_num_key_heads=2, linear_num_value_heads=4,
                 linear_key_head_dim=s.state, linear_value_head_dim=s.state, linear_conv_kernel_dim=4, num_experts=s.experts,
                 num_experts_per_tok=3, moe_intermediate_size=s.inner, shared_expert_intermediate_size=s.inner,
                 rope_parameters=rope(partial_rotary_factor=0.25), FLAGS=["--no-nextn"], **more)
    return config, base, {
        **scaled(s, partial_rotary_factor=0.25), "attention_bias": dict(attention_bias=True),
        "mtp": dict(MTP="mtp", FLAGS=[], SAVE=dict(mtp_num_hidden_layers=1)),
        "full": dict(layer_types=["full_attention"] * s.layers),
        "recurrent": dict(layer_types=["linear_attention"] * s.layers), "one_per_head": dict(linear_num_value_heads=2),
        "rotary": dict(rope_parameters=rope(partial_rotary_factor=0.5))}


def qwen35moe(s):
    config, base, variants = deltanet(s, "Qwen3_5MoeTextConfig", SAVE=dict(architectures=["Qwen3_5MoeForCausalLM"]))
    sections = [s.head // 24 + 1, s.head // 24, s.head // 8 - 2 * (s.head // 24) - 1]
    base["rope_parameters"].update(mrope_section=sections, mrope_interleaved=True)
    for change in variants.values():
        if "rope_parameters" in change:
            half = int(s.head * change["rope_parameters"]["partial_rotary_factor"]) // 2
            third = half // 3
            change["rope_parameters"].update(mrope_section=[half - 2 * third, third, third], mrope_interleaved=True)
    variants["no_sections"] = dict(rope_parameters=rope(partial_rotary_factor=0.25))
    variants["mtp"]["SAVE"]["architectures"] = base["SAVE"]["architectures"]
    return config, base, variants


def qwen4exp(s):
    """The last layer has attention; the package names its kind otherwise than the converter does. The indexer chooses all
    positions of the texts, or, in `few`, four pools and the rest, by keys that are not rounded."""
    kinds = ["linear_attention"] * 2 + ["full_attention"]
    few = kinds + ["full_attention"]
    chosen = dict(indexer_budget=16, num_hidden_layers=4, layer_types=few, EXACT=True,
                  SAVE=dict(architectures=["Qwen4ExpForCausalLM"], layer_types=few))
    config, base, variants = deltanet(s, "Qwen4ExpTextConfig")
    half = s.head // 4
    third = half // 3
    base.update(num_hidden_layers=3, layer_types=kinds, linear_num_value_heads=6, output_gate_type="sigmoid", hc_count=4,
                hc_lowrank=s.rank, ple_layer_ids=[2], ple_embed_dim=s.hidden, ple_conv_kernel_size=4, ngram_size=3,
                heads_per_ngram=2, ngram_vocab_size_base=150, make_ngram_vocab_size_divisible_by=8, split_ngram_parts=4,
                indexer_n_heads=4, indexer_kv_heads=1, indexer_head_dim=2 * s.head, indexer_budget=2048,
                indexer_compress_ratio=4, FLAGS=["--plain-config"],
                rope_parameters=rope(partial_rotary_factor=0.5, mrope_section=[half - 2 * third, third, third],
                                     mrope_interleaved=True),
                SAVE=dict(architectures=["Qwen4ExpForCausalLM"], layer_types=kinds))
    return config, base, {
        "no_table": dict(ple_layer_ids=[]), "two_streams": dict(hc_count=2, hc_lowrank=s.rank * 2),
        "bigrams": dict(ngram_size=2, heads_per_ngram=4), "taps": dict(ple_conv_kernel_size=2),
        "first_layer": dict(ple_layer_ids=[1]), "one_per_head": variants["one_per_head"],
        "few": chosen, "few_heads": dict(chosen, indexer_n_heads=32),
        "few_last": dict(indexer_budget=16, indexer_n_heads=32, EXACT=True)}


def qwen3next(s):
    config, base, variants = deltanet(s, "Qwen3NextConfig", intermediate_size=s.dense, decoder_sparse_step=1,
                                      norm_topk_prob=True)
    return config, base, {**variants, "no_norm_topk": dict(norm_topk_prob=False), "dense_layer": dict(mlp_only_layers=[0])}


def gemma4(s):
    base = plain(s, num_attention_heads=s.heads, head_dim=s.head, global_head_dim=2 * s.head, num_key_value_heads=s.kv,
                 num_global_key_value_heads=1, attention_k_eq_v=True, intermediate_size=s.dense, enable_moe_block=True,
                 moe_intermediate_size=s.inner, num_experts=s.experts, top_k_experts=3, sliding_window=32,
                 hidden_size_per_layer_input=0, final_logit_softcapping=30.0, tie_word_embeddings=True,
                 layer_types=(["sliding_attention", "full_attention"] * s.layers)[:s.layers],
                 rope_parameters=dict(sliding_attention=rope(), full_attention=rope(
                     "proportional", 1e5, partial_rotary_factor=0.25)), SAVE=dict(architectures=["Gemma4ForCausalLM"]))
    base["layer_types"][-1] = "full_attention"  # the package demands it
    return "Gemma4TextConfig", base, {
        "values": dict(attention_k_eq_v=False), "no_cap": dict(final_logit_softcapping=None),
        "attention_bias": dict(attention_bias=True), "shared_kv": dict(num_kv_shared_layers=1),
        "rotary": dict(rope_parameters=dict(sliding_attention=rope(), full_attention=rope(
            "proportional", 1e5, partial_rotary_factor=0.5)))}


def bailingmoe2(s):
    base = dict(layers=s.layers, heads=s.heads, kv_heads=s.kv, head=s.head, experts=s.experts, used=3, inner=s.inner,
                groups=1, groups_used=1, dense=1, dense_inner=s.dense, shared=s.inner, rope=s.head // 2, theta=1e4, scale=2.5)
    return None, base, {"groups": dict(groups=s.experts // 2, groups_used=2), "all_experts": dict(dense=0),
                        "rotary": dict(rope=s.head), "mtp": dict(MTP="layers", SAVE=dict(num_nextn_predict_layers=1)),
                        "sarvam": dict(rope=s.head, VOCAB="sarvam-moe", SAVE=dict(architectures=["SarvamMoEForCausalLM"]))}


def softmax_shared(s, **more):
    return dict(layers=s.layers, heads=s.heads, kv_heads=s.kv, head=s.head, experts=s.experts, used=3, inner=s.inner,
                dense_inner=s.dense, shared=2 * s.inner, rope=s.head, theta=1e4, **more)


def bailingmoe(s):
    return None, softmax_shared(s, dense=0, norm=True, norm_head=False), {
        "no_norm_topk": dict(norm=False), "norm_head": dict(norm_head=True), "one_shared": dict(shared=s.inner)}


def deepseek(s):
    return None, softmax_shared(s, dense=1, norm=False), {
        "all_experts": dict(dense=0), "one_shared": dict(shared=s.inner), "spm": dict(VOCAB="spm"),
        "norm_topk": dict(norm=True)}


def smallthinker(s):
    base = dict(layers=s.layers, heads=s.heads, kv_heads=s.kv, head=s.head, experts=s.experts, used=3, inner=s.inner,
                window=32, theta=1e4, softmax=False)
    return None, base, {"no_window": dict(window=0), "softmax": dict(softmax=True)}


def arctic(s):
    # published configurations have no head_dim
    return None, dict(layers=s.layers, heads=s.heads, kv_heads=s.kv, head=s.head, experts=s.experts, used=2, inner=s.inner,
                      rope=s.head, theta=1e4, norm=True, SAVE=dict(head_dim=None)), {
        "spm": dict(VOCAB="spm"), "grouped": dict(kv_heads=1), "three": dict(used=3), "all_heads": dict(kv_heads=s.heads)}


def maple(s):
    return None, dict(layers=s.layers, heads=s.heads, kv_heads=s.kv, head=s.head, experts=s.experts, used=3, inner=s.inner,
                      window=32, rope=s.head // 2, theta=1e4, norm=True), {"rotary": dict(rope=s.head)}


def qwen3vlmoe(s):
    """The text part; only the class with a tower of vision has logits."""
    half = s.head // 2
    axes = dict(mrope_section=[half - 2 * (half // 3), half // 3, half // 3], mrope_interleaved=True)
    base = plain(s, head_dim=s.head, num_experts=s.experts, num_experts_per_tok=2, moe_intermediate_size=s.inner,
                 intermediate_size=s.dense, rope_parameters=rope(**axes), TURNED=True)
    return "Qwen3VLMoeTextConfig", base, {
        "wide_heads": dict(head_dim=s.head * 2, rope_parameters=rope(mrope_section=[2 * x for x in axes["mrope_section"]],
                                                                      mrope_interleaved=True)),
        "yarn": dict(rope_parameters=rope("yarn", factor=8.0, original_max_position_embeddings=ORIGINAL, **axes)),
        "attention_bias": dict(attention_bias=True)}


def mimo2(s):
    """The package's class has other names in config.json than published checkpoints, which the converter reads; its layers
    with a window have twice the key heads."""
    def published(value_scale=0.707, rotated=0.5):
        return dict(architectures=["MiMoV2FlashForCausalLM"], topk_method="noaux_tc", scoring_func="sigmoid",
                    hybrid_layer_pattern=[int(x == "sliding_attention") for x in mixed(s)], swa_head_dim=s.head,
                    swa_v_head_dim=s.head // 2, swa_num_attention_heads=s.heads, swa_num_key_value_heads=2 * s.kv,
                    layernorm_epsilon=1e-5, rope_theta=5e4, swa_rope_theta=1e4, partial_rotary_factor=rotated,
                    moe_layer_freq=[0] + [1] * (s.layers - 1), attention_value_scale=value_scale, rope_parameters=None)

    def rotations(part):
        return dict(rope_parameters=dict(full_attention=rope(theta=5e4, partial_rotary_factor=part),
                                         sliding_attention=rope(partial_rotary_factor=part)))

    base = plain(s, head_dim=s.head, v_head_dim=s.head // 2, n_routed_experts=s.experts, num_experts_per_tok=3,
                 moe_intermediate_size=s.inner, intermediate_size=s.dense, sliding_window=32, attention_value_scale=0.707,
                 layer_types=mixed(s), mlp_layer_types=["dense"] + ["sparse"] * (s.layers - 1), SAVE=published(),
                 FLAGS=["--no-mtp", "--plain-config"], **rotations(0.5))
    return "MiMoV2FlashConfig", base, {
        "joined": dict(JOINED=True), "no_value_scale": dict(attention_value_scale=None, SAVE=published(None)),
        "rotary": dict(SAVE=published(rotated=1.0), **rotations(1.0))}


def cohere2moe(s):
    """Both kinds of layers that attend to all positions: the first one rotates, the third one does not."""
    base = plain(s, head_dim=s.head, num_experts=s.experts, num_experts_per_tok=3, intermediate_size=s.inner,
                 prefix_dense_intermediate_size=s.dense, num_shared_experts=1, expert_selection_fn="sigmoid",
                 norm_topk_prob=True, logit_scale=0.4, sliding_window=32, num_hidden_layers=3, tie_word_embeddings=True,
                 layer_types=["full_attention", "sliding_attention", "full_attention"],
                 mlp_layer_types=["dense", "sparse", "sparse"])
    return "Cohere2MoeConfig", base, {
        "layer_norm": dict(rms_norm_eps=None, layer_norm_eps=1e-5), "no_shared": dict(num_shared_experts=0),
        "two_shared": dict(num_shared_experts=2), "no_norm_topk": dict(norm_topk_prob=False),
        "softmax": dict(expert_selection_fn="softmax"), "all_experts": dict(mlp_layer_types=["sparse"] * 3),
        "untied": dict(tie_word_embeddings=False)}


def mellum(s):
    def kinds(full, window_theta=1e4):
        return dict(rope_parameters=dict(full_attention=full, sliding_attention=rope(theta=window_theta)))

    def yarn(**more):
        return kinds(rope("yarn", factor=16.0, original_max_position_embeddings=ORIGINAL, **more))

    base = plain(s, head_dim=s.head, num_experts=s.experts, num_experts_per_tok=2, moe_intermediate_size=s.inner,
                 intermediate_size=s.dense, norm_topk_prob=True, sliding_window=32, layer_types=windows(s), **yarn())
    return "MellumConfig", base, {
        "default": kinds(rope()), "linear": kinds(rope("linear", factor=4.0)), "window_theta": {
            "rope_parameters": dict(full_attention=base["rope_parameters"]["full_attention"],
                                    sliding_attention=rope(theta=500.0))},
        "yarn_factor": yarn(attention_factor=0.8), "yarn_betas": yarn(beta_fast=8.0, beta_slow=2.0),
        "first_full": dict(layer_types=windows(s)[::-1]), "all_full": dict(layer_types=["full_attention"] * s.layers),
        "no_norm_topk": dict(norm_topk_prob=False)}


def exaone_moe(s):
    base = plain(s, head_dim=s.head, num_experts=s.experts, num_experts_per_tok=3, moe_intermediate_size=s.inner,
                 intermediate_size=s.dense, num_shared_experts=1, routed_scaling_factor=1.5, norm_topk_prob=True,
                 first_k_dense_replace=1, mlp_layer_types=["dense"] + ["sparse"] * (s.layers - 1), sliding_window=32,
                 layer_types=windows(s), SAVE=dict(num_nextn_predict_layers=0, scoring_func="sigmoid"))
    return "ExaoneMoeConfig", base, {
        **scaled(s), "mtp": dict(MTP="dense", SAVE=dict(num_nextn_predict_layers=1, scoring_func="sigmoid")),
        "no_nextn": dict(SAVE=dict(scoring_func="sigmoid")), "no_scoring": dict(SAVE={}), "two_shared": dict(num_shared_experts=2), "no_norm_topk": dict(norm_topk_prob=False),
        "first_full": dict(layer_types=windows(s)[::-1]), "groups": dict(n_group=s.experts // 2, topk_group=2),
        "all_experts": dict(first_k_dense_replace=0, mlp_layer_types=["sparse"] * s.layers)}


def step35(s):
    """The text part, saved as published checkpoints are (step.py)."""
    def kinds(full):
        return dict(rope_parameters=dict(full_attention=dict(full, partial_rotary_factor=0.5),
                                         sliding_attention=rope(theta=500.0, partial_rotary_factor=1.0)))

    llama3 = rope("llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=ORIGINAL)
    none = [0.0] * (s.layers - 1)
    base = plain(s, head_dim=s.head, n_routed_experts=s.experts, num_experts_per_tok=3, moe_intermediate_size=s.inner,
                 intermediate_size=s.dense, share_expert_dim=s.inner, moe_router_scaling_factor=1.5, sliding_window=32,
                 num_sliding_attention_heads=s.heads * 3 // 2, layer_types=windows(s)[::-1],
                 mlp_layer_types=["dense"] + ["sparse"] * (s.layers - 1), swiglu_limits=none + [0.4],
                 swiglu_limits_shared=[0.5] + none[1:] + [0.3], FLAGS=["--plain-config"], **kinds(llama3))
    return "Step3p7TextConfig", base, {
        "default": kinds(rope()), "no_limits": dict(swiglu_limits=None, swiglu_limits_shared=None),
        "equal_heads": dict(num_sliding_attention_heads=s.heads), "mtp": dict(MTP=1), "mtp_three": dict(MTP=3),
        "all_experts": dict(mlp_layer_types=["sparse"] * s.layers)}


def laguna(s):
    def kinds(full, **window):
        return dict(rope_parameters=dict(full_attention=dict(full, partial_rotary_factor=0.5), sliding_attention=dict(
            rope(theta=500.0), partial_rotary_factor=1.0, **window)))

    def yarn(**more):
        return kinds(rope("yarn", factor=32.0, original_max_position_embeddings=ORIGINAL, beta_slow=1.0, **more))

    full, window = s.heads, s.heads * 3 // 2
    base = plain(s, head_dim=s.head, num_experts=s.experts, num_experts_per_tok=3, moe_intermediate_size=s.inner,
                 intermediate_size=s.dense, shared_expert_intermediate_size=s.dense, sliding_window=32, gating=True,
                 layer_types=windows(s)[::-1], num_attention_heads_per_layer=[full] + [window] * (s.layers - 1),
                 mlp_layer_types=["dense"] + ["sparse"] * (s.layers - 1), moe_routed_scaling_factor=1.5,
                 **yarn(beta_fast=64.0, attention_factor=1.0))
    element = dict(gating="per-element", num_attention_heads_per_layer=[full] * s.layers, SAVE=dict(sliding_window=0),
                   layer_types=["full_attention"] * s.layers, **kinds(rope()))
    return "LagunaConfig", base, {
        "element": element, "element_window": dict(gating="per-element"), "default": kinds(rope()),
        "yarn_factor": yarn(beta_fast=64.0, attention_factor=1.3466), "yarn_default": yarn(beta_fast=32.0),
        "equal_heads": dict(num_attention_heads_per_layer=[full] * s.layers),
        "all_experts": dict(mlp_layer_types=["sparse"] * s.layers)}


def afmoe(s):
    # of four layers, the last one attends to all positions
    kinds = [("sliding_attention", "full_attention")[i % 4 == 3] for i in range(4)]
    base = plain(s, num_hidden_layers=4, head_dim=s.head, num_experts=s.experts, num_experts_per_tok=3,
                 moe_intermediate_size=s.inner, intermediate_size=s.dense, num_shared_experts=1, num_dense_layers=1,
                 route_scale=1.5, sliding_window=32, layer_types=kinds, mup_enabled=True,
                 SAVE=dict(score_func="sigmoid", route_norm=True, n_group=1, topk_group=1))
    return "AfmoeConfig", base, {
        **scaled(s), "two_shared": dict(num_shared_experts=2), "all_experts": dict(num_dense_layers=0),
        "two_dense": dict(num_dense_layers=2), "no_mup": dict(mup_enabled=False),
        "attention_bias": dict(attention_bias=True)}


def hy_v3(s):
    base = plain(s, head_dim=s.head, num_experts=s.experts, num_experts_per_tok=3, moe_intermediate_size=s.inner,
                 intermediate_size=s.dense, num_shared_experts=1, router_scaling_factor=1.5,
                 mlp_layer_types=["dense"] + ["sparse"] * (s.layers - 1), SAVE=dict(route_norm=True))
    return "HYV3Config", base, {
        **scaled(s), "mtp": dict(MTP="layers", SAVE=dict(num_nextn_predict_layers=1)), "no_route_norm": dict(SAVE={}),
        "two_shared": dict(num_shared_experts=2), "all_experts": dict(mlp_layer_types=["sparse"] * s.layers),
        "attention_bias": dict(attention_bias=True)}


def mistral4(s):
    def yarn(**more):
        return dict(rope_parameters=rope("yarn", factor=8.0, original_max_position_embeddings=ORIGINAL, mscale=1.0,
                                         mscale_all_dim=1.0, llama_4_scaling_beta=0.1, **more))

    base = plain(s, q_lora_rank=s.rank, rope_interleave=True, SAVE=dict(architectures=["Mistral3ForConditionalGeneration"]),
                 **{**deepseek_like(s), "routed_scaling_factor": 1.0}, **yarn())
    base.update(mla(s))
    return "Mistral4Config", base, {
        "yarn_betas": yarn(beta_fast=8.0, beta_slow=2.0), "all_experts": dict(first_k_dense_replace=0),
        "no_norm_topk": dict(norm_topk_prob=False), "two_shared": dict(n_shared_experts=2),
        "scale": dict(routed_scaling_factor=1.5), "no_q_rank": dict(q_lora_rank=None)}


# architecture in GGUF: its variants, the vocabulary (name of a pre-tokenizer, spm, gemma4); TIED: has a variant "tied"
ARCHITECTURES = {
    "qwen35moe": (qwen35moe, "qwen35"), "qwen3next": (qwen3next, "qwen2"), "qwen4exp": (qwen4exp, "qwen35"),
    "qwen3moe": (qwen3moe, "qwen2"),
    "qwen2moe": (qwen2moe, "qwen2"), "gemma4": (gemma4, "gemma4"), "gpt-oss": (gptoss, "gpt-4o"),
    "deepseek2": (deepseek2, "deepseek-v3"), "glm4moe": (glm4moe, "glm4"), "minimax-m2": (minimax, "minimax-m2"),
    "minimax-m3": (minimax_m3, "minimax-m2"), "deepseek32": (deepseek32, "deepseek-v3"), "glm-dsa": (glm_dsa, "glm4"),
    "deepseek4": (deepseek4, "deepseek-v3"), "glm5-next": (glm5_next, "glm4"),
    "hy_v4": (hy_v4, "deepseek-v3"), "dots3note": (dots3note, "qwen2"),
    "lfm2moe": (lfm2moe, "lfm2"), "olmoe": (olmoe, "olmo"), "llama": (llama, "spm"), "llama4": (llama4, "llama4"),
    "dots1": (dots1, "qwen2"),
    "ernie4_5-moe": (ernie, "spm"), "hunyuan-moe": (hunyuan, "hunyuan"), "granitemoe": (granitemoe, "refact"),
    "granitehybrid": (granitehybrid, "dbrx"), "granite_swa": (granite_swa, "dbrx"), "mimo2": (mimo2, "qwen2"),
    "cohere2moe": (cohere2moe, "cohere2moe"), "nemotron_h_moe": (nemotron_h_moe, "pixtral"), "jamba": (jamba, "spm"),
    "bailingmoe3": (bailingmoe3, "bailingmoe2"), "kimi-linear": (kimi_linear, "qwen2"),
    "kimi-k3": (kimi_k3, "qwen2"),
    "dbrx": (dbrx, "dbrx"), "phimoe": (phimoe, "spm"), "bailingmoe2": (bailingmoe2, "bailingmoe2"),
    "smallthinker": (smallthinker, "qwen2"), "qwen3vlmoe": (qwen3vlmoe, "qwen2"), "mellum": (mellum, "mellum2"),
    "maple": (maple, "qwen2"), "arctic": (arctic, "qwen2"), "minimax-01": (minimax_01, "minimax-m2"),
    "exaone-moe": (exaone_moe, "exaone-moe"), "hy_v3": (hy_v3, "hunyuan"), "mistral4": (mistral4, "tekken"),
    "step35": (step35, "deepseek-v3"), "laguna": (laguna, "laguna"), "afmoe": (afmoe, "afmoe"),
    "bailingmoe": (bailingmoe, "bailingmoe"), "deepseek": (deepseek, "deepseek-llm")}
ALWAYS_TIED = ("step35", "gemma4", "lfm2moe", "bailingmoe2", "smallthinker", "bailingmoe", "deepseek", "cohere2moe",
               "maple", "minimax-m3", "arctic", "kimi-k3", "deepseek4")
SPECIAL = ("CONFIG", "VOCAB", "TOKENIZER_CLASS", "SAVE", "DROP", "MTP", "FLAGS", "TURNED", "JOINED", "NAMES", "LIMITS",
           "GAIN", "ROTATED", "EXACT")


def cases(architecture, sizes):
    """variant -> (name of the configuration's class, its settings, special entries)."""
    make, vocabulary = ARCHITECTURES[architecture]
    config, base, variants = make(sizes)
    changes = {"base": {}, **variants}
    if architecture not in ALWAYS_TIED:
        changes["tied"] = dict(tie_word_embeddings=True)
    out = {}
    for name, change in changes.items():
        settings = {**base, **change}
        special = {k: settings.pop(k) for k in SPECIAL if k in settings}
        for key in special.get("DROP", ()):
            settings.pop(key, None)
        special.setdefault("VOCAB", vocabulary)
        out[name] = (special.get("CONFIG", config), settings, special)
    return out


# What neither engine can know, as the converter writes no key for it; where llama.cpp computes what sluice computes, a
# variant needs no row here.
NOT_IN_FILE = {
    "gpt-oss/truncate": "no key states whether YaRN's range is rounded: sluice never does, llama.cpp always",
    "gpt-oss/all_full": "no key states which layers have the window",
    "phimoe/other_magnitude": "the magnitude of the configuration is not written, but one computed from the contexts"}

# of the golden data -> seed of the weights: a file of each architecture, of what was once read wrongly, and of what base
# does not show
GOLDEN = {**{f"{architecture}/base": 1 for architecture in ARCHITECTURES},
          **{name: 1 for name in ("gpt-oss/yarn_factor", "gpt-oss/linear", "qwen2moe/no_bias", "mellum/window_theta",
                                  "exaone-moe/mtp", "hy_v3/mtp", "granitehybrid/groups", "nemotron_h_moe/super",
                                  "jamba/attention_experts", "step35/mtp",
                                  "laguna/element", "qwen4exp/no_table", "mimo2/joined", "llama4/maverick", "llama4/chunk",
                                  "cohere2moe/layer_norm", "kimi-k3/limits", "bailingmoe3/limits", "bailingmoe3/flash",
                                  "deepseek32/few", "glm-dsa/few", "minimax-m3/few", "glm5-next/few",
                                  "hy_v4/few", "dots3note/few")},
          "glm4moe/solar_open": 2,
          "mistral4/base": 3, "qwen4exp/few": 3}
