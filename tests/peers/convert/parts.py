# SPDX-License-Identifier: Apache-2.0
"""Parts of configurations that several architectures have; models.py has these."""
import math

ORIGINAL = 64  # original context of scaled rotations; the text is longer


def rope(kind="default", theta=1e4, **more):
    return dict(rope_type=kind, rope_theta=theta, **more)


def long_factors(s, size):
    short = [1.0 + 0.05 * i for i in range(size // 2)]
    return dict(short_factor=short, long_factor=[2.0 + 0.25 * i for i in range(size // 2)])


def scaled(s, **more):
    """Kinds of rotation that any configuration may have; more: what the rotation has besides."""
    part = dict(original_max_position_embeddings=ORIGINAL, **more)
    size = int(s.head * more.get("partial_rotary_factor", 1))
    return {
        "linear": dict(rope_parameters=rope("linear", factor=4.0, **more)),
        "dynamic": dict(rope_parameters=rope("dynamic", factor=4.0, **more)),
        "llama3": dict(rope_parameters=rope("llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, **part)),
        "yarn": dict(rope_parameters=rope("yarn", factor=8.0, **part)),
        "yarn_factor": dict(rope_parameters=rope("yarn", factor=8.0, attention_factor=0.8, **part)),
        "yarn_betas": dict(rope_parameters=rope("yarn", factor=8.0, beta_fast=8.0, beta_slow=2.0, **part)),
        "longrope": dict(rope_parameters=rope("longrope", factor=8.0, **long_factors(s, size), **part)),
    }


def plain(s, **more):
    common = dict(hidden_size=s.hidden, num_hidden_layers=s.layers, num_attention_heads=s.heads, num_key_value_heads=s.kv,
                  max_position_embeddings=s.context, rms_norm_eps=1e-5, rope_parameters=rope(), tie_word_embeddings=False)
    return {**common, **more}


def magnitude(context, original):
    """The factor that the converter writes for phimoe."""
    return math.sqrt(1 + math.log(context / original) / math.log(original))


def mla(s):
    return dict(kv_lora_rank=s.rank, qk_nope_head_dim=s.nope, qk_rope_head_dim=s.head // 2, v_head_dim=s.head,
                num_key_value_heads=s.heads)


def windows(s):
    """In SMALL, too, a layer of both kinds; the last one attends to all positions."""
    return ["sliding_attention"] * (s.layers - 1) + ["full_attention"]


def mixed(s):
    """Layers of both kinds, the first one attends to all positions."""
    return (["full_attention", "sliding_attention"] * s.layers)[:s.layers]


def deepseek_like(s, **more):
    return dict(n_routed_experts=s.experts, num_experts_per_tok=3, moe_intermediate_size=s.inner, intermediate_size=s.dense,
                first_k_dense_replace=1, n_shared_experts=1, n_group=1, topk_group=1, norm_topk_prob=True,
                routed_scaling_factor=1.5, **more)
