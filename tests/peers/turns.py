#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Conversations of ten turns with calls of tools, of each family with the template of a real model (README.md).

    turns.py --models FAMILY_MODELS --libexec LIBEXEC --templates DIR -o WORK [--only PATTERN] [--all]

In each turn the model calls a tool, and the client sends the result with everything before it. The call is parsed, the
text of a prompt begins with that of the prompt before, up to where the answer begins, and the engine computes only the
rest of it. With --all every row of FORMS, else four; SKIP without the templates. Exit status: 0 as expected, 1 not."""
import argparse
import fnmatch
import functools
import json
import os
import subprocess
import sys
import urllib.request

from session import Engine, Wrong, family_models, holds, same, with_engine
from turn_apis import APIS

TURNS = 10
CONTEXT = 32768  # a token per byte
ASKING = 64  # tokens of a prompt that ask for the answer, at most
# family, template, tokens that end a prompt (the latter: after a result), pieces of the answer that are left out because
# the template has them, or does not keep them, reasoning
FORMS = [("coder", "Qwen3-Coder", "\n", 4, ""),
         ("coder", "Qwen3.5-4B", "\n", 1, "I need to look."),
         ("coder", "NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", "\n", 1, "I need to look."),
         ("coder", "StepFun3.5-Flash", "\n", 1, "I need to look."),
         ("glm", "GLM-4.6", ">", 0, "I look."),
         ("glm", "GLM-4.7-Flash", ("<think>",), 1, "I look."),
         ("glm", "poolside-Laguna-XS.2", ("</think>",), 3, ""),
         ("glm", "poolside-Laguna-XS-2.1", ("</think>",), 3, ""),
         ("glm", "poolside-Laguna-S-2.1", ("<think>",), 1, "I look."),
         ("hy3", "tencent-Hy3", ("</think:opensource>",), 3, ""),
         ("cohere", "Cohere2MoE", ("<|START_THINKING|>",), 1, "I look."),
         ("mistral", "mistralai-Ministral-3-14B-Reasoning-2512", "]", 0, "I look."),
         ("minimax", "MiniMax-M2", "\n", 1, "I look."),
         ("minimax_m3", "MiniMax-M3", "\n", 0, "I look."),
         ("minimax_m1", "MiniMax-M1", "\n", 3, ""),
         ("hermes", "Qwen-Qwen3-0.6B", "\n", 0, ""),
         ("hermes", "Qwen-Qwen2.5-7B-Instruct", "\n", 0, ""),
         ("hermes", "ibm-granite-granite-4.0", ">", 0, ""),
         ("hermes", "ibm-granite-granite-4.1", ">", 0, ""),
         ("deepseek_v3", "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B", ("</think>", ">"), 3, ""),
         ("deepseek_v31", "deepseek-ai-DeepSeek-V3.1", ("</think>", ">"), 0, ""),
         ("deepseek_v32", "deepseek-ai-DeepSeek-V3.2", ("</think>",), 3, ""),
         ("deepseek_v4", "deepseek-ai-DeepSeek-V4", ("</think>",), 3, ""),
         ("kimi", "moonshotai-Kimi-K2", ">", 3, ""),
         ("gemma", "google-gemma-4-31B-it", ("<channel|>", ">"), 4, ""),
         ("harmony", "openai-gpt-oss-120b", ("assistant",), 0, "I look.")]
# What a template writes at the end of a conversation, and leaves out once there is more.
DROPPED = {"deepseek-ai-DeepSeek-R1-Distill-Qwen-32B": "<｜tool▁outputs▁end｜>"}
SHORT = "Qwen3.5-4B", "moonshotai-Kimi-K2", "openai-gpt-oss-120b", "Cohere2MoE"


def post(engine, path, body):
    request = urllib.request.Request(engine.url + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=300) as reply:
            return json.load(reply)
    except urllib.error.HTTPError as error:
        raise Wrong(f"{path}: {error.code} {error.read().decode()[:300]}") from error


def conversation(family, doc, reasoning, content, dropped, engine):
    """The same in each API; the first one also compares the texts of the prompts."""
    counts = []
    for number, api in enumerate(APIS):
        talk = api(f"Look, please: {number}", doc["tools"])
        seen, before, text_before, ids = [], None, "", set()
        for turn in range(TURNS):
            what = f"{api.name}, turn {turn}"
            if number == 0:
                ask = {"messages": talk.messages, "tools": doc["tools"], "add_generation_prompt": False}
                holds(f"{what}: the prompt does not begin like the one before",
                      post(engine, "/apply-template", dict(ask, add_generation_prompt=True))["prompt"].startswith(
                          text_before))
                text_before = post(engine, "/apply-template", ask)["prompt"].removesuffix(dropped)
            *parts, prompt_tokens, kept = talk.read(post(engine, talk.path, talk.body()))
            parts[1] = parts[1].strip()
            same(what, parts, [reasoning, content, [("look", doc["arguments"])]])
            # What of the prompt before is there no more: how it asked for the answer.
            holds(f"{what}: {kept} tokens were kept; the prompt before has {before}",
                  before is None or kept is None or kept >= before - ASKING)
            holds(f"{what}: the id {talk.ids()} occurs again", family["id"] or not ids & set(talk.ids()))
            before = prompt_tokens
            seen.append(prompt_tokens)
            ids |= set(talk.ids())
            talk.result(f"Result {turn} of the call.")
        counts.append(seen)
    for api, seen in zip(APIS, counts):
        if family["id"] and api.name == "ollama":
            continue  # the template writes the ids of calls, which Ollama's API does not have
        same(f"{api.name}: tokens of the prompts", seen, counts[0])


def write_model(a, family, name, form):
    _, template, start, skip, _ = form
    with open(os.path.join(a.templates, template + ".jinja"), newline="", encoding="utf-8") as f:
        text = f.read()
    pieces = []
    for piece in family["pieces"][skip:]:  # a piece of one byte is a byte of prompts, too
        if pieces and len(piece) == 1:
            pieces[-1] += piece
        else:
            pieces.append(piece)
    path = os.path.join(a.out, name)
    with open(path + ".json", "w") as f:
        json.dump({"family": family["name"], "template": text, "starts": list(start), "pieces": pieces,
                   "context": CONTEXT}, f)
    subprocess.run([a.models, path + ".gguf", path + ".json"], check=True)
    return path + ".gguf"


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--models", required=True)
    p.add_argument("--libexec", required=True)
    p.add_argument("--templates", required=True)
    p.add_argument("-o", "--out", required=True)
    p.add_argument("--only", default="*", help="a pattern of template names")
    p.add_argument("--all", action="store_true")
    a = p.parse_args()
    if not os.path.isdir(a.templates):
        print("SKIP turns: the templates of real models are not here; peers_packages fetches them")
        return 0
    doc = family_models(a.models, a.out)
    good = []
    for form in FORMS:
        if (form[1] in SHORT or a.all) and fnmatch.fnmatch(form[1], a.only):
            family = next(f for f in doc["families"] if f["name"] == form[0])
            content = "Sure." if any("Sure." in piece for piece in family["pieces"][form[3]:]) else ""
            path = write_model(a, family, form[1], form)
            good.append(with_engine("turns", lambda path=path: Engine(path, a.libexec, a.out),
                                    {form[1]: functools.partial(
                                        conversation, family, doc, form[4], content, DROPPED.get(form[1], ""))}))
    return 0 if all(good) and good else 1


if __name__ == "__main__":
    sys.exit(main())
