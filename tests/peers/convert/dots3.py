# SPDX-License-Identifier: Apache-2.0
"""dots3-note as published: the text part at the top level of the configuration, with fields that the package renames. Its
layers with a window have sizes of MLA of their own."""
from indexed import FEW
from parts import deepseek_like, mla, plain


def dots3note(s):
    """The first and the last of three layers have an indexer. The factors sqrt(hidden / rank) are powers of two in SMALL."""
    turned = s.head // 2
    window = dict(swa_num_attention_heads=s.heads + 1, swa_num_key_value_heads=s.heads + 1, swa_q_lora_rank=4 * s.rank,
                  swa_kv_lora_rank=4 * s.rank, swa_head_dim=4 * turned, swa_qk_nope_head_dim=3 * turned,
                  swa_qk_rope_head_dim=turned, swa_v_head_dim=3 * turned, swa_rope_theta=500.0)
    kinds = ["full_attention", "sliding_attention", "full_attention"]
    base = {**plain(s), **deepseek_like(s), **mla(s), **window}
    base.pop("rope_parameters")
    base.update(num_hidden_layers=3, layer_types=kinds, q_lora_rank=4 * s.rank, head_dim=s.head, sliding_window=32,
                index_topk=2048, index_head_dim=s.head, index_n_heads=4, rope_theta=1e4,
                shared_experts_intermediate_size=s.inner, FLAGS=["--plain-config"],
                SAVE=dict(scoring_func="sigmoid", topk_method="noaux_tc", use_dsa=True, normalization="RMSNorm",
                          k_rope_only_layernorm=True, apply_mla_qkv_lora_rescale=True, attention_gate_type="headwise",
                          swa_attention_gate_type="headwise", first_k_dense_replace=1, rope_theta=1e4,
                          sliding_window_size=32, layer_types=kinds, moe_shared_expert_intermediate_size=s.inner,
                          rope_parameters=None, per_layer_config=None, mlp_layer_types=None, **window))
    return "Dots3NoteTextConfig", base, {
        "few": dict(index_topk=FEW, index_n_heads=32, EXACT=True), "no_norm_topk": dict(norm_topk_prob=False)}
