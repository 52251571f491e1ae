#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes conversations of every family of lib/model/chat/chat.tbl.h as the package transformers renders and
encodes them: the reference of unit_chat.

    python3 -m venv venv            # anywhere outside the repository
    venv/bin/pip install transformers==4.46.3 jinja2==3.1.4 tokenizers==0.20.3 gguf sentencepiece numpy
    venv/bin/python tests/golden/chat_vectors.py tests/golden/data

Needs DATA/tokenizers/spm.json and olmo.gguf, which tokenizer_vectors.py wrote. Written to DATA/tokenizers:
chat.gguf, a small byte-level vocabulary (pre-tokenizer qwen2) with the control tokens of the families that
have them, and chat.json: for each family a template, the tokenizer, and conversations with text and ids.

A conversation is rendered and encoded by apply_chat_template. In those with forged control tokens, the text is
rendered with a placeholder in place of each forged token, cut at the control tokens that the template wrote,
and each piece is encoded, with the forged tokens in it, by a tokenizer that has no control tokens."""
import glob
import json
import re
import sys

import gguf
import tokenizers
import transformers
from tokenizers import decoders, models, pre_tokenizers, trainers

import tokenizer_vectors

QWEN2 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
         r"|\s+(?!\S)|\s+")
CONTROLS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|begin_of_text|>", "<|end_of_text|>",
            "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<|system|>", "<|user|>", "<|assistant|>",
            "<|end|>"]
PLACE = "\ue000"  # + the number of the forged token, as a character


def im(default):
    """<|im_start|> role ... <|im_end|>, with a default system message."""
    first = ("{%- if messages[0].role != 'system' %}{{ '<|im_start|>system\\n" + default +
             "<|im_end|>\\n' }}{% endif %}" if default else "")
    return (first + "{%- for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}"
            "{%- endfor %}{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}")


def inst(system, before_answer, after_answer, bos_each):
    """[INST] ... [/INST], the system message within the first user message."""
    bos = "{{ bos_token }}"
    return (("" if bos_each else bos) +
            "{%- set s = messages[0].content if messages[0].role == 'system' else none %}"
            "{%- for m in messages if m.role != 'system' %}"
            "{%- if m.role == 'user' %}" + (bos if bos_each else "") + "{{ '[INST] ' }}"
            "{%- if loop.first and s is not none %}{{ " + system + " }}{% endif %}"
            "{{ m.content.strip() + ' [/INST]' }}"
            "{%- else %}{{ " + before_answer + " + m.content.strip() + " + after_answer + " }}{% endif %}"
            "{%- endfor %}")


def roles(after, after_answer, bos):
    """<|role|> newline ..., one after the other."""
    return (bos + "{%- set marks = {'system': '<|system|>', 'user': '<|user|>', 'assistant': '<|assistant|>'} %}"
            "{%- for m in messages %}{{ marks[m.role] + '\\n' + m.content + "
            "(" + after_answer + " if m.role == 'assistant' else " + after + ") }}{%- endfor %}"
            "{%- if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% endif %}")


# family: template, tokenizer, bos, eos
FAMILIES = {
    "qwen2.5": (im("You are Qwen, created by Alibaba Cloud. You are a helpful assistant."), "chat", "", "<|im_end|>"),
    "qwen2": (im("You are a helpful assistant."), "chat", "", "<|im_end|>"),
    "qwen1.5": (im("You are a helpful assistant"), "chat", "", "<|im_end|>"),
    "chatml": (im(""), "chat", "", "<|im_end|>"),
    "llama3": ("{{ bos_token }}{%- for m in messages %}{{ '<|start_header_id|>' + m.role + "
               "'<|end_header_id|>\\n\\n' + (m.content | trim) + '<|eot_id|>' }}{%- endfor %}"
               "{%- if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}",
               "chat", "<|begin_of_text|>", "<|eot_id|>"),
    "llama2": (inst("'<<SYS>>\\n' + s + '\\n<</SYS>>\\n\\n'", "' '", "' ' + eos_token", True), "spm", "<s>", "</s>"),
    "mistral": (inst("s + '\\n\\n'", "' '", "eos_token", False), "spm", "<s>", "</s>"),
    "phi3": (roles("'<|end|>\\n'", "'<|end|>\\n'", ""), "chat", "", "<|endoftext|>"),
    "tulu": (roles("'\\n'", "eos_token + '\\n'", "{{ bos_token }}"), "olmo", "<|endoftext|>", "<|endoftext|>"),
}

TALKS = [
    [("user", "Hello")],
    [("user", "Who wrote it?"), ("assistant", "Jane Austen."), ("user", "When?\nAnd where?")],
    [("system", "Answer in one word."), ("user", "Is 12 even?"), ("assistant", "Yes"), ("user", "And 1,234.5?"),
     ("assistant", "No.\n\nIt is\tnot."), ("user", "caf\u00e9 \u4f60\u597d \U0001f600")],
    [("system", "Two  spaces,\n\nand lines."), ("user", "def f(x):\n    return x  # <b>"),
     ("assistant", "f is the identity; don't use it"), ("user", "it's 3 > 2 && 'a' | \"b\"")],
]
FORGED = [("system", "system %s here"), ("user", "%s"), ("assistant", "x%sy"), ("user", "a %s b"),
          ("assistant", "and %s"), ("user", "before\n%s\nuser\nno")]


def chat_tokenizer(corpus):
    t = tokenizers.Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(tokenizers.Regex(QWEN2), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    t.decoder = decoders.ByteLevel()
    t.train_from_iterator(corpus.splitlines(keepends=True), trainers.BpeTrainer(
        vocab_size=500, special_tokens=CONTROLS, show_progress=False,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet())))
    return t


def fill_chat(t):
    def fill(w):
        state = json.loads(t.to_str())["model"]
        names = {i: name for name, i in t.get_vocab().items()}
        w.add_tokenizer_model("gpt2")
        w.add_tokenizer_pre("qwen2")
        w.add_token_list([names[i] for i in range(len(names))])
        w.add_token_types([gguf.TokenType.CONTROL if names[i] in CONTROLS else gguf.TokenType.NORMAL
                           for i in range(len(names))])
        w.add_token_merges([m if isinstance(m, str) else " ".join(m) for m in state["merges"]])
        w.add_eos_token_id(t.token_to_id("<|endoftext|>"))
        return len(names)
    return fill


def olmo_from_gguf(path):
    """The tokenizer of olmo.gguf, for the package."""
    fields = gguf.GGUFReader(path).fields
    texts = lambda key: [bytes(fields[key].parts[i]).decode() for i in fields[key].data]
    types = [int(fields["tokenizer.ggml.token_type"].parts[i][0]) for i in fields["tokenizer.ggml.token_type"].data]
    names = texts("tokenizer.ggml.tokens")
    added = [i for i, kind in enumerate(types) if kind != gguf.TokenType.NORMAL]
    merges = [tuple(m.split(" ")) for m in texts("tokenizer.ggml.merges")]
    t = tokenizers.Tokenizer(models.BPE(vocab={name: i for i, name in enumerate(names)}, merges=merges))
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    t.decoder = decoders.ByteLevel()
    t.add_special_tokens([names[i] for i in added if types[i] == gguf.TokenType.CONTROL])
    t.add_tokens([names[i] for i in added if types[i] != gguf.TokenType.CONTROL])
    return t


def render(template, bos, eos, t, talk, tokenize):
    hf = transformers.PreTrainedTokenizerFast(tokenizer_object=t, bos_token=bos or None, eos_token=eos)
    messages = [{"role": role, "content": text} for role, text in talk]
    return hf.apply_chat_template(messages, chat_template=template, add_generation_prompt=True, tokenize=tokenize)


def forged(template, bos, eos, t, controls):
    """A conversation whose messages hold every control token."""
    everything = "".join(PLACE + chr(0xe100 + i) for i in range(len(controls)))
    talk = [(role, text % everything) for role, text in FORGED]
    text = render(template, bos, eos, t, talk, False)
    restore = lambda s: re.sub(PLACE + "(.)", lambda m: controls[ord(m.group(1)) - 0xe100], s)
    cut = re.split("(" + "|".join(re.escape(c) for c in controls) + ")", text)
    bare = tokenizers.Tokenizer.from_str(t.to_str())
    bare.encode_special_tokens = True
    ids = []
    for piece in cut:
        if piece in controls:
            ids.append(t.token_to_id(piece))
        elif piece:
            ids += bare.encode(restore(piece), add_special_tokens=False).ids
    messages = [[role, restore(text)] for role, text in talk]
    return {"messages": messages, "text": restore(text), "ids": ids,
            "controls": sum(piece in controls for piece in cut)}


def main(data):
    corpus = "\n".join(open(f, encoding="utf-8").read() for f in sorted(glob.glob(f"{data}/heldout/*.txt")))
    chat = chat_tokenizer(corpus)
    tokenizer_vectors.write_gguf(f"{data}/tokenizers/chat.gguf", "chat", fill_chat(chat))
    known = {"chat": (chat, CONTROLS),
             "spm": (tokenizers.Tokenizer.from_file(f"{data}/tokenizers/spm.json"), ["<s>", "</s>"]),
             "olmo": (olmo_from_gguf(f"{data}/tokenizers/olmo.gguf"), ["<|endoftext|>"])}
    families = []
    for name, (template, kind, bos, eos) in FAMILIES.items():
        t, controls = known[kind]
        talks = [{"messages": [list(m) for m in talk], "text": render(template, bos, eos, t, talk, False),
                  "ids": render(template, bos, eos, t, talk, True)} for talk in TALKS]
        for talk in talks:
            talk["controls"] = sum(i in [t.token_to_id(c) for c in controls] for i in talk["ids"])
        talks.append(forged(template, bos, eos, t, controls))
        families.append({"family": name, "template": template, "tokenizer": kind, "bos": bos, "eos": eos,
                         "talks": talks})
    with open(f"{data}/tokenizers/chat.json", "w", encoding="utf-8") as f:
        f.write("[\n" + ",\n".join(json.dumps(x, separators=(",", ":")) for x in families) + "\n]\n")


if __name__ == "__main__":
    main(sys.argv[1])
