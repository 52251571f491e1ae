#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the reference data of golden_arch that llama.cpp's own converter made: tiny random checkpoints of the package
transformers, in F16, with the losses of the tokens of a text as that package computes them. The models are those of
../peers/convert/models.py in the size SMALL, one variant of every architecture and those that were read wrongly once.

    VENV/bin/python tests/golden/converter_vectors.py tests/golden/data/converted WORK [NAME ...]

VENV as for ../peers/convert_arch.py; the converter is fetched into WORK. With NAME, such as phimoe/base, only these are
made again. A seed is chosen such that no choice of experts is near a tie: sluice's losses differ by at most 2e-3."""
import json
import os
import shutil
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
for folder in ("../peers/convert", "../peers", "../bench"):
    sys.path.insert(0, os.path.join(HERE, folder))
import converter  # noqa: E402
import deepseek4  # noqa: E402
import models  # noqa: E402

TOKENS = 100
MORE = {"deepseek4/base": 300}  # of a text that completes entries of many positions
# Of a text that is longer than what the indexer chooses in the published model: tokens, losses from this one on.
LONG = {"qwen4exp/base": (2600, 2000), "glm5-next/base": (2600, 2000)}
# Checkpoints whose configuration and names unit_hf compares with the converted file.
HF = ("qwen3vlmoe/base", "mellum/window_theta", "exaone-moe/base", "hy_v3/base", "laguna/base", "laguna/element",
      "step35/mtp", "afmoe/base", "mistral4/base", "deepseek/base", "granitehybrid/base", "granite_swa/base",
      "nemotron_h_moe/base", "nemotron_h_moe/super", "jamba/base", "mimo2/base", "mimo2/joined", "cohere2moe/base",
      "maple/base", "kimi-linear/base", "kimi-k3/base", "qwen4exp/base",
      "glm5-next/base", "deepseek4/base", "hy_v4/base", "dots3note/base", "bailingmoe3/base",
      "bailingmoe3/flash", "minimax-m3/base",
      "deepseek32/base", "glm-dsa/base", "llama4/base", "llama4/maverick", "llama4/chunk", "arctic/base",
      "minimax-01/base")


def write_names(checkpoint, path):
    """config.json, and the names and shapes of the tensors of the text model."""
    from safetensors import safe_open
    with open(os.path.join(checkpoint, "config.json"), encoding="utf-8") as f:
        config = json.load(f)
    config = config.get("text_config", config)
    for field in ("transformers_version", "architectures", "dtype"):
        config.pop(field, None)
    with safe_open(os.path.join(checkpoint, "model.safetensors"), "pt") as f:
        shapes = {name.replace("model.language_model.", "model."): f.get_slice(name).get_shape() for name in f.keys()
                  if "visual" not in name and not name.startswith("mtp.")}
    shapes = {name.removeprefix("language_model."): shape for name, shape in shapes.items()}  # Kimi K3
    if config["model_type"] == "deepseek_v4":
        shapes = deepseek4.unpacked(shapes)
    with open(path, "w", encoding="ascii") as f:
        json.dump({"config": config, "tensors": shapes}, f, sort_keys=True, separators=(",", ":"))
        f.write("\n")


def make(name, out, work, tools):
    checkpoint, vocabularies, text = tools
    architecture, variant = name.split("/")
    case = models.cases(architecture, models.SMALL)[variant]
    directory = os.path.join(work, "small", name.replace("/", "-"))
    shutil.rmtree(directory, ignore_errors=True)
    hf = os.path.join(directory, "hf")
    losses = checkpoint.make(architecture, case, hf, vocabularies, models.SMALL.hidden, models.GOLDEN[name])
    path = os.path.join(out, name.replace("/", "-") + ".gguf")
    why = converter.convert(hf, path, "F16", case[2]["VOCAB"], case[2].get("FLAGS", []) + ["--model-name", name],
                            os.path.join(directory, "log"))
    if why:
        sys.exit(f"{name}: {why}")
    if name in HF:
        write_names(hf, os.path.join(out, "..", "hf", name.replace("/", "-") + ".json"))
    ids = vocabularies.ids(case[2]["VOCAB"], text)
    if name in LONG:
        write_long(os.path.join(out, "long.json"), name, ids, losses)
    if architecture == "deepseek4":
        deepseek4.unpack(path)
    ids = ids[:MORE.get(name, TOKENS)]
    item = {"name": name.replace("/", "-"), "ids": ids, "nll": [round(x, 5) for x in losses(ids)]}
    if name == "minimax-m3/few":  # with its caches in F16
        item["nll_f16"] = [round(x, 5) for x in losses(ids, rounded=True)]
    return item


def write_long(path, name, ids, losses):
    tokens, first = LONG[name]
    nll = [round(x, 5) for x in losses(ids[:tokens])][first:]
    write_items(path, [{"name": name.replace("/", "-"), "ids": ids[:tokens], "first": first, "nll": nll}])


def write_items(path, items):
    """Those of other names stay."""
    index = {}
    if os.path.exists(path):
        with open(path, encoding="ascii") as f:
            index = {x["name"]: x for x in json.load(f)}
    index.update({x["name"]: x for x in items})
    with open(path, "w", encoding="ascii") as f:
        f.write("[\n" + ",\n".join(json.dumps(index[x], separators=(",", ":")) for x in sorted(index)) + "\n]\n")


def main(out, work, *names):
    os.makedirs(out, exist_ok=True)
    os.makedirs(work, exist_ok=True)
    converter.use(converter.fetch(os.path.join(work, "llama.cpp")))
    import torch
    import transformers
    torch.set_num_threads(1)
    transformers.logging.set_verbosity(transformers.logging.CRITICAL)
    transformers.logging.disable_progress_bar()
    import checkpoint
    import conversion  # noqa: F401, shared with the children
    import vocabulary
    path = os.path.join(HERE, "data", "heldout", "tales.txt")
    with open(path, encoding="utf-8") as f:
        text = f.read()[2000:12000]
    tools = checkpoint, vocabulary.Vocabularies(path, work), text
    listed = os.path.join(out, "converted.json")
    if not names and os.path.exists(listed):
        os.remove(listed)
    write_items(listed, [make(name, out, work, tools) for name in names or models.GOLDEN])


if __name__ == "__main__":
    main(*sys.argv[1:])
