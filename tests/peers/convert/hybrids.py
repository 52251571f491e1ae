# SPDX-License-Identifier: Apache-2.0
"""Architectures with recurrent layers beside attention; models.py has the others."""
from parts import ORIGINAL, mla, plain, rope

# Scores of sources that differ, and networks that reach the limits of their activation.
GAIN_K3 = ((r"res_proj", 2.0), (r"(w1|w3|gate_proj|up_proj)\.weight", 2.0))


def granitehybrid(s):
    def kinds(*names):
        """The package has other names for kinds of layers than published checkpoints, which the converter reads."""
        published = {"linear_attention": "mamba", "full_attention": "attention"}
        return dict(layer_types=list(names), SAVE=dict(layer_types=[published[n] for n in names]))

    linear, full = "linear_attention", "full_attention"
    base = plain(s, num_local_experts=s.experts, num_experts_per_tok=3, intermediate_size=s.inner, embedding_multiplier=3.0,
                 residual_multiplier=0.6, attention_multiplier=0.15, logits_scaling=2.5, shared_intermediate_size=s.dense,
                 mamba_n_heads=2 * s.hidden // s.state, mamba_d_head=s.state, mamba_d_state=s.state, mamba_n_groups=1,
                 mamba_d_conv=4, mamba_expand=2, mamba_chunk_size=32, position_embedding_type="nope",
                 **kinds(*[linear, full, linear][:s.layers]))
    return "GraniteMoeHybridConfig", base, {
        "groups": dict(mamba_n_groups=2), "no_conv_bias": dict(mamba_conv_bias=False), "taps": dict(mamba_d_conv=3),
        "small_heads": dict(mamba_n_heads=4 * s.hidden // s.state, mamba_d_head=s.state // 2),
        "no_factors": dict(embedding_multiplier=1.0, residual_multiplier=1.0, logits_scaling=1.0),
        "attention_bias": dict(attention_bias=True), "proj_bias": dict(mamba_proj_bias=True),
        "spm": dict(VOCAB="spm")}


def nemotron_h_moe(s):
    linear, full = "linear_attention", "full_attention"
    # Mamba's heads together are wider than `expand` says, and a multiple of 64, as the converter wants it.
    base = dict(hidden_size=s.hidden, num_attention_heads=s.heads, num_key_value_heads=s.kv, head_dim=s.head,
                max_position_embeddings=s.context, layer_norm_epsilon=1e-5, tie_word_embeddings=False,
                ssm_state_size=s.state, mamba_num_heads=max(64 // s.state, 3 * s.hidden // (2 * s.state)),
                mamba_head_dim=s.state, n_groups=2, conv_kernel=4, expand=2, chunk_size=32, n_routed_experts=s.experts,
                num_experts_per_tok=2, n_shared_experts=1, moe_intermediate_size=s.inner,
                moe_shared_expert_intermediate_size=s.dense, routed_scaling_factor=2.5, norm_topk_prob=True,
                layers_block_type=[linear, "moe", full, linear, "moe"])
    latent = dict(moe_latent_size=s.hidden // 2)
    return "NemotronHConfig", base, {
        "latent": latent, "super": dict(**latent, MTP="nemotron", SAVE=dict(num_nextn_predict_layers=1)),
        "one_group": dict(n_groups=1), "no_conv_bias": dict(use_conv_bias=False), "taps": dict(conv_kernel=3),
        "no_norm_topk": dict(norm_topk_prob=False), "no_scale": dict(routed_scaling_factor=1.0),
        "no_attention": dict(layers_block_type=[linear, "moe", linear, "moe"]),
        "attention_bias": dict(attention_bias=True), "two_shared": dict(n_shared_experts=2),
        "dense_layer": dict(layers_block_type=[linear, "moe", full, "mlp", "moe"], intermediate_size=s.dense)}


def jamba(s):
    # Channels are in several blocks in SMALL, too. Kinds of layers are periods and the first of them.
    hidden = s.hidden if s.hidden % 256 == 0 else 3 * s.hidden // 2
    base = plain(s, hidden_size=hidden, num_hidden_layers=4, num_experts=s.experts,
                 num_experts_per_tok=2, intermediate_size=s.inner, attn_layer_period=4, attn_layer_offset=2,
                 expert_layer_period=2, expert_layer_offset=1, mamba_d_state=min(16, s.state), mamba_d_conv=4,
                 mamba_expand=2, mamba_dt_rank=s.rank, rms_norm_eps=1e-6, DROP=("rope_parameters",))
    return "JambaConfig", base, {
        "attention_experts": dict(attn_layer_offset=1), "first_attention": dict(attn_layer_offset=0),
        "all_experts": dict(expert_layer_period=1, expert_layer_offset=0), "taps": dict(mamba_d_conv=3),
        "state": dict(mamba_d_state=min(16, s.state) // 2), "no_conv_bias": dict(mamba_conv_bias=False),
        "proj_bias": dict(mamba_proj_bias=True), "expand": dict(mamba_expand=1)}


def kimi_linear(s):
    """As published, the kinds of layers are lists of numbers, and heads have a size of no meaning."""
    def kinds(*full, **more):
        full = [n for n in full if n <= s.layers]
        other = [n for n in range(1, s.layers + 1) if n not in full]
        part = {**dict(full_attn_layers=full, kda_layers=other, head_dim=s.state, num_heads=s.heads,
                       short_conv_kernel_size=4), **more}
        return dict(linear_attn_config=part, layer_types=None, SAVE=published(linear_attn_config=part))

    def published(**more):
        return dict(head_dim=s.head + 2, mla_use_nope=True, moe_router_activation_func="sigmoid", moe_layer_freq=1,
                    first_k_dense_replace=1, num_nextn_predict_layers=0, **more)

    base = plain(s, num_experts=s.experts, num_experts_per_token=3, moe_intermediate_size=s.inner,
                 intermediate_size=s.dense, num_shared_experts=1, routed_scaling_factor=2.446, num_expert_group=1,
                 topk_group=1, first_k_dense_replace=1, q_lora_rank=None, DROP=("rope_parameters",),
                 NAMES=((r"block_sparse_moe\.((gate|up|down)_proj)", r"mlp.\1"),), **{**mla(s), **kinds(2)})
    base["num_key_value_heads"] = s.heads
    saved = base["SAVE"]
    return "KimiLinearConfig", base, {
        "first_full": kinds(1), "taps": kinds(2, short_conv_kernel_size=3), "two_shared": dict(num_shared_experts=2),
        "all_experts": dict(first_k_dense_replace=0, SAVE={**saved, "first_k_dense_replace": 0}),
        "no_norm_topk": dict(moe_renormalize=False),
        "wide_state": kinds(2, head_dim=2 * s.state), "no_scale": dict(routed_scaling_factor=1.0),
        "epsilon": dict(rms_norm_eps=1e-3), "full": kinds(*range(1, s.layers + 1)),
        "groups": dict(num_expert_group=2, topk_group=1), "q_rank": dict(q_lora_rank=s.rank),
        "attention_bias": dict(attention_bias=True)}


def kimi_k3(s):
    """Settings of kimi3.py: layers with MLA by their numbers from 1 on, blocks of the residual of two layers."""
    base = dict(hidden_size=s.hidden, num_hidden_layers=5, heads=s.heads, state=s.state, taps=4, full=[3, 5], block=2,
                rank=s.rank, q_rank=s.rank, nope=s.nope, rope=s.head // 2, value=s.head, latent=s.hidden // 2, inner=s.inner,
                dense=s.dense, experts=s.experts, used=2, shared=2, dense_layers=1, scale=1.7, norm_topk=True,
                latent_norm=True, situ=(4.0, 25.0), bound=-5.0, eps=1e-5, context=s.context, GAIN=GAIN_K3)
    return "KimiK3", base, {
        "first_full": dict(full=[1, 4]), "blocks_of_three": dict(block=3), "one_block": dict(block=8),
        "no_norm": dict(latent_norm=False), "no_linear_limit": dict(situ=(4.0, 0.0)), "limits": dict(situ=(1.5, 2.0)),
        "no_norm_topk": dict(norm_topk=False, latent_norm=False), "taps": dict(taps=3), "epsilon": dict(eps=1e-3),
        "wide_state": dict(state=2 * s.state), "all_experts": dict(dense_layers=0), "bound": dict(bound=-1.0)}


def minimax_01(s):
    """The package's class has other names in its configuration than published checkpoints, which the converter reads, and
    rotates whole heads (minimax01.py)."""
    def published(alpha, rotated):
        factors = {f"layernorm_{part}_{name}": value for part in ("full_attention", "linear_attention", "mlp")
                   for name, value in (("alpha", alpha), ("beta", 1.0))}
        gone = ("layer_types", "rope_parameters", "full_attn_alpha_factor", "linear_attn_alpha_factor", "mlp_alpha_factor",
                "full_attn_beta_factor", "linear_attn_beta_factor", "mlp_beta_factor")
        return dict(architectures=["MiniMaxText01ForCausalLM"], model_type="minimax_text_01", rotary_dim=rotated,
                    rope_theta=1e4, attn_type_list=[0] * 7 + [1], postnorm=True, shared_intermediate_size=0,
                    **factors, **{name: None for name in gone})

    def case(alpha, rotated):
        return dict(full_attn_alpha_factor=alpha, linear_attn_alpha_factor=alpha, mlp_alpha_factor=alpha, ROTATED=rotated,
                    SAVE=published(alpha, rotated))

    # files lack the kinds of layers: every eighth one attends
    base = plain(s, num_hidden_layers=8, head_dim=s.head, num_local_experts=s.experts, num_experts_per_tok=2,
                 intermediate_size=s.inner, block_size=32, layer_types=["linear_attention"] * 7 + ["full_attention"],
                 **case(3.5565588200778455, s.head // 2))
    return "MiniMaxConfig", base, {
        "factor": case(1.25, s.head // 2), "rotary": case(3.5565588200778455, s.head),
        "three": dict(num_experts_per_tok=3), "all_heads": dict(num_key_value_heads=s.heads)}


def bailingmoe3(s):
    """As published; the package's names of some fields are others."""
    published = dict(architectures=["BailingMoeV3ForCausalLM"], head_dim=s.state,
                     num_experts_per_tok=2, n_group=2, topk_group=1, norm_topk_prob=True, score_function="sigmoid",
                     no_kda_lora=True, kda_safe_gate=True,
                     gated_attention_proj_granularity_type="head_wise", moe_shared_expert_intermediate_size=s.inner,
                     num_nextn_predict_layers=0, max_position_embeddings=s.context)
    base = plain(s, head_dim=s.state, num_experts=s.experts, num_experts_per_token=2, moe_intermediate_size=s.inner,
                 intermediate_size=s.dense, num_shared_experts=1, routed_scaling_factor=2.5, num_expert_group=2,
                 topk_group=1, first_k_dense_replace=1, q_lora_rank=s.rank, layer_group_size=s.layers, rms_norm_eps=1e-6,
                 num_nextn_predict_layers=0, rope_theta=6e6, rope_parameters=rope(theta=6e6), SAVE=published,
                 FLAGS=["--plain-config"], NAMES=((r"shared_head\.norm", "final_layernorm"),))
    base.update(mla(s))

    def saved(settings, **fields):
        return dict(settings, SAVE={**published, **fields})

    def limits(experts, shared):
        return dict(LIMITS=(experts, shared), SAVE={**published, "expert_swiglu_limit_list": experts,
                                                    "share_expert_swiglu_limit_list": shared})

    every, mtp = [0.5] * s.layers, dict(num_nextn_predict_layers=1)
    apart = limits([0.0, 0.35, 0.5][:s.layers], [0.0, 0.6, None][:s.layers])
    return "BailingHybridConfig", base, {
        "no_q_rank": dict(q_lora_rank=None), "taps": dict(short_conv_kernel_size=3),
        "mtp": saved(dict(MTP="layers"), **mtp), "limits": limits(every, [0.0] + every[1:]), "limits_apart": apart,
        "flash": dict(apart, q_lora_rank=None, MTP="layers", SAVE={**apart["SAVE"], **mtp}),
        "bound": dict(kda_lower_bound=-2.0), "wide_state": saved(dict(head_dim=2 * s.state), head_dim=2 * s.state),
        "groups_of_two": dict(num_hidden_layers=4, layer_group_size=2), "all_experts": dict(first_k_dense_replace=0),
        "no_groups": saved(dict(num_expert_group=1), n_group=1),
        "no_norm_topk": saved(dict(moe_renormalize=False), norm_topk_prob=False),
        "no_scale": dict(routed_scaling_factor=1.0),
        "two_shared": saved(dict(num_shared_experts=2), moe_shared_expert_intermediate_size=2 * s.inner),
        "free": saved(dict(kda_safe_gate=False), kda_safe_gate=False),
        "yarn": dict(rope_parameters=rope("yarn", theta=6e6, factor=8.0, original_max_position_embeddings=ORIGINAL)),
        "attention_bias": dict(attention_bias=True)}
