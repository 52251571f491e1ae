# SPDX-License-Identifier: Apache-2.0
"""MiniMax-Text-01: the class of the package transformers rotates whole heads, the published model a part of each."""
import os

import torch
from safetensors.torch import load_file, save_file
from transformers.models.minimax import modeling_minimax

plain = modeling_minimax.apply_rotary_pos_emb


def part(q, k, cos, sin, unsqueeze_dim=1):
    """Rotates as many elements as there are angles."""
    n = cos.shape[-1]
    a, b = plain(q[..., :n], k[..., :n], cos, sin, unsqueeze_dim)
    return torch.cat([a, q[..., n:]], -1), torch.cat([b, k[..., n:]], -1)


def rotate_part(model, n):
    modeling_minimax.apply_rotary_pos_emb = part
    rotary, theta = model.model.rotary_emb, model.config.rope_parameters["rope_theta"]
    rotary.inv_freq = 1.0 / theta ** (torch.arange(0, n, 2, dtype=torch.float) / n)
    rotary.original_inv_freq = rotary.inv_freq.clone()


def drop_buffers(directory):
    """The class saves the decays, which published checkpoints lack."""
    path = os.path.join(directory, "model.safetensors")
    tensors = {name: x for name, x in load_file(path).items() if not name.endswith(("_decay", "slope_rate"))}
    save_file(tensors, path, metadata={"format": "pt"})
