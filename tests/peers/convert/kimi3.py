# SPDX-License-Identifier: Apache-2.0
"""Kimi K3, which the package transformers does not have: the steps of the published code, with the names of its checkpoints.
Delta attention runs token by token; the attention of layers with MLA is not absorbed."""
import json
import math
import os
import types

import torch
from safetensors.torch import save_file
from torch.nn import functional


def shapes(s, vocab):
    """Names and shapes, without `language_model.`."""
    hidden, heads, state, taps = s["hidden_size"], s["heads"], s["state"], s["taps"]
    out = {"model.embed_tokens.weight": (vocab, hidden), "lm_head.weight": (vocab, hidden), "model.norm.weight": (hidden,),
           "model.output_attn_res_norm.weight": (hidden,), "model.output_attn_res_proj.weight": (1, hidden)}
    for i in range(s["num_hidden_layers"]):
        layer = f"model.layers.{i}."
        for name in ("input_layernorm", "post_attention_layernorm", "self_attention_res_norm", "mlp_res_norm"):
            out[layer + name + ".weight"] = (hidden,)
        for name in ("self_attention_res_proj", "mlp_res_proj"):
            out[layer + name + ".weight"] = (1, hidden)
        mixer, inner = {}, heads * state
        if i + 1 in s["full"]:
            mixer = {"q_a_proj": (s["q_rank"], hidden), "q_a_layernorm": (s["q_rank"],),
                     "q_b_proj": (heads * (s["nope"] + s["rope"]), s["q_rank"]),
                     "kv_a_proj_with_mqa": (s["rank"] + s["rope"], hidden), "kv_a_layernorm": (s["rank"],),
                     "kv_b_proj": (heads * (s["nope"] + s["value"]), s["rank"]), "g_proj": (heads * s["value"], hidden),
                     "o_proj": (hidden, heads * s["value"])}
        else:
            for x in "qkv":
                mixer[x + "_proj"], mixer[x + "_conv1d"] = (inner, hidden), (inner, 1, taps)
            mixer.update({"f_a_proj": (state, hidden), "f_b_proj": (inner, state), "b_proj": (heads, hidden),
                          "g_proj": (inner, hidden), "o_norm": (state,), "o_proj": (hidden, inner)})
            out.update({layer + "self_attn.A_log": (heads,), layer + "self_attn.dt_bias": (inner,)})
        out.update({f"{layer}self_attn.{name}.weight": shape for name, shape in mixer.items()})
        networks = {layer + "mlp": (s["dense"], hidden)}
        if i >= s["dense_layers"]:
            moe, width = layer + "block_sparse_moe.", s["latent"]
            networks = {moe + "shared_experts": (s["inner"] * s["shared"], hidden)}
            out.update({moe + "gate.weight": (s["experts"], hidden), moe + "gate.e_score_correction_bias": (s["experts"],),
                        moe + "routed_expert_down_proj.weight": (width, hidden),
                        moe + "routed_expert_up_proj.weight": (hidden, width)})
            if s["latent_norm"]:
                out[moe + "routed_expert_norm.weight"] = (width,)
            for e in range(s["experts"]):
                for name, shape in (("w1", (s["inner"], width)), ("w2", (width, s["inner"])), ("w3", (s["inner"], width))):
                    out[f"{moe}experts.{e}.{name}.weight"] = shape
        for name, (inner, width) in networks.items():
            out.update({name + ".gate_proj.weight": (inner, width), name + ".up_proj.weight": (inner, width),
                        name + ".down_proj.weight": (width, inner)})
    return out


class Model:
    """In float32; what checkpoint.py needs of a model of the package."""

    def __init__(self, s, vocab):
        self.s, self.config = s, types.SimpleNamespace(model_type="kimi_k3", tie_word_embeddings=False)
        self.w = {name: torch.zeros(shape) for name, shape in shapes(s, vocab).items()}

    def named_parameters(self):
        return list(self.w.items())

    def named_buffers(self):
        return []

    def modules(self):
        return [self]

    def expand_kv(self, latents, keys):
        """vectors.round_cache replaces it."""
        return latents, keys

    def linear(self, x, name):
        return functional.linear(x, self.w[name + ".weight"])

    def norm(self, x, name, eps):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * self.w[name + ".weight"]

    def network(self, x, names):
        gate, up = (self.linear(x, n) for n in names[:2])
        limit, more = self.s["situ"]
        gate = limit * torch.tanh(gate / limit) * torch.sigmoid(gate)
        return self.linear(gate * (more * torch.tanh(up / more) if more > 0 else up), names[2])

    def mix(self, sources, name):
        """The weighted sum of the sources; raw ones are summed."""
        x = torch.stack(sources, 1)
        score = self.norm(x, name + "_norm", self.s["eps"]) @ self.w[name + "_proj.weight"][0]
        return (torch.softmax(score, -1)[:, :, None] * x).sum(1)

    def attention(self, x, name):
        s, n = self.s, len(x)
        query = self.linear(self.norm(self.linear(x, name + "q_a_proj"), name + "q_a_layernorm", 1e-6), name + "q_b_proj")
        latents, keys = self.linear(x, name + "kv_a_proj_with_mqa").split([s["rank"], s["rope"]], -1)
        latents, keys = self.expand_kv(self.norm(latents, name + "kv_a_layernorm", 1e-6), keys)
        kv = self.linear(latents, name + "kv_b_proj").view(n, s["heads"], -1)
        keys = torch.cat([kv[..., :s["nope"]], keys[:, None].expand(-1, s["heads"], -1)], -1)
        score = torch.einsum("thd,shd->hts", query.view(n, s["heads"], -1), keys) / math.sqrt(s["nope"] + s["rope"])
        score = score.masked_fill(~torch.ones(n, n, dtype=torch.bool).tril(), -math.inf)
        y = torch.einsum("hts,shd->thd", torch.softmax(score, -1), kv[..., s["nope"]:]).reshape(n, -1)
        return self.linear(y * torch.sigmoid(self.linear(x, name + "g_proj")), name + "o_proj")

    def convolution(self, x, name):
        taps = self.s["taps"]
        y = functional.pad(self.linear(x, name + "_proj").T, (taps - 1, 0))[None]
        y = functional.conv1d(y, self.w[name + "_conv1d.weight"], groups=y.shape[1])[0].T
        return functional.silu(y).view(len(x), self.s["heads"], self.s["state"])

    def delta(self, x, name):
        s, n = self.s, len(x)
        q, k, v = (self.convolution(x, name + part) for part in "qkv")
        q, k = (y * torch.rsqrt(y.pow(2).sum(-1, keepdim=True) + 1e-6) for y in (q, k))
        z = self.linear(self.linear(x, name + "f_a_proj"), name + "f_b_proj") + self.w[name + "dt_bias"]
        rate = torch.exp(self.w[name + "A_log"])[None, :, None]
        decay = torch.exp(s["bound"] * torch.sigmoid(rate * z.view(n, s["heads"], -1)))
        beta = torch.sigmoid(self.linear(x, name + "b_proj"))
        state, out = torch.zeros(s["heads"], s["state"], s["state"]), []
        for t in range(n):
            state = state * decay[t][:, :, None]
            u = beta[t][:, None] * (v[t] - torch.einsum("hk,hkv->hv", k[t], state))
            state = state + k[t][:, :, None] * u[:, None]
            out.append(torch.einsum("hk,hkv->hv", q[t] / math.sqrt(s["state"]), state))
        gate = torch.sigmoid(self.linear(x, name + "g_proj")).view(n, s["heads"], -1)
        y = self.norm(torch.stack(out), name + "o_norm", s["eps"]) * gate
        return self.linear(y.reshape(n, -1), name + "o_proj")

    def experts(self, x, name):
        s = self.s
        score = torch.sigmoid(self.linear(x, name + "gate"))
        chosen = torch.topk(score + self.w[name + "gate.e_score_correction_bias"], s["used"])[1]
        weights = score.gather(1, chosen)
        if s["norm_topk"]:
            weights = weights / weights.sum(1, keepdim=True)
        z = self.linear(x, name + "routed_expert_down_proj")
        y = torch.zeros_like(z)
        for t, j in ((t, j) for t in range(len(x)) for j in range(s["used"])):
            expert = f"{name}experts.{chosen[t, j]}."
            y[t] += s["scale"] * weights[t, j] * self.network(z[t], [expert + w for w in ("w1", "w3", "w2")])
        if s["latent_norm"]:
            y = self.norm(y, name + "routed_expert_norm", s["eps"])
        shared = [f"{name}shared_experts.{part}_proj" for part in ("gate", "up", "down")]
        return self.linear(y, name + "routed_expert_up_proj") + self.network(x, shared)

    def __call__(self, ids):
        s, bank = self.s, []
        h = self.w["model.embed_tokens.weight"][ids[0]]
        for i in range(s["num_hidden_layers"]):
            layer = f"model.layers.{i}."
            x = self.norm(self.mix(bank + [h], layer + "self_attention_res"), layer + "input_layernorm", s["eps"])
            if i % s["block"] == 0:
                bank, h = bank + [h], torch.zeros_like(h)
            mixer = self.attention if i + 1 in s["full"] else self.delta
            h = h + mixer(x, layer + "self_attn.")
            x = self.norm(self.mix(bank + [h], layer + "mlp_res"), layer + "post_attention_layernorm", s["eps"])
            if i < s["dense_layers"]:
                h = h + self.network(x, [f"{layer}mlp.{part}_proj" for part in ("gate", "up", "down")])
            else:
                h = h + self.experts(x, layer + "block_sparse_moe.")
        h = self.norm(self.mix(bank + [h], "model.output_attn_res"), "model.norm", s["eps"])
        return types.SimpleNamespace(logits=self.linear(h, "lm_head")[None])


def config_of(s, vocab, end):
    layers = s["num_hidden_layers"]
    linear = dict(full_attn_layers=s["full"], kda_layers=[i for i in range(1, layers + 1) if i not in s["full"]],
                  head_dim=s["state"], num_heads=s["heads"], short_conv_kernel_size=s["taps"],
                  gate_lower_bound=s["bound"], use_full_rank_gate=True)
    text = dict(
        architectures=["KimiLinearForCausalLM"], model_type="kimi_linear", vocab_size=vocab, hidden_size=s["hidden_size"],
        intermediate_size=s["dense"], num_hidden_layers=layers, num_attention_heads=s["heads"],
        num_key_value_heads=s["heads"], rms_norm_eps=s["eps"], hidden_act="situ", activation_situ_beta=s["situ"][0],
        activation_situ_linear_beta=s["situ"][1], attn_res_block_size=s["block"], first_k_dense_replace=s["dense_layers"],
        moe_layer_freq=1, num_experts=s["experts"], num_experts_per_token=s["used"], num_shared_experts=s["shared"],
        moe_intermediate_size=s["inner"], routed_expert_hidden_size=s["latent"], latent_moe_use_norm=s["latent_norm"],
        moe_renormalize=s["norm_topk"], moe_router_activation_func="sigmoid", num_expert_group=1, topk_group=1,
        topk_method="noaux_tc", use_grouped_topk=True, routed_scaling_factor=s["scale"], q_lora_rank=s["q_rank"],
        kv_lora_rank=s["rank"], qk_nope_head_dim=s["nope"], qk_rope_head_dim=s["rope"], v_head_dim=s["value"],
        mla_use_nope=True, mla_use_output_gate=True, max_position_embeddings=s["context"], eos_token_id=end,
        tie_word_embeddings=False, linear_attn_config=linear)
    return dict(architectures=["KimiK3ForConditionalGeneration"], model_type="kimi_k3", text_config=text, eos_token_id=end)


def save(model, directory, vocab, end):
    save_file({"language_model." + name: x.contiguous() for name, x in model.w.items()},
              os.path.join(directory, "model.safetensors"), metadata={"format": "pt"})
    with open(os.path.join(directory, "chat_template.jinja"), "w", encoding="utf-8") as f:
        f.write("{{ messages }}")  # without one the converter adds its own
    with open(os.path.join(directory, "config.json"), "w", encoding="utf-8") as f:
        json.dump(config_of(model.s, vocab, end), f, indent=1)
