#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A conversation through the gateway with the tokenizer and chat template of a real gemma4 model (README.md).

    DIR/venv/bin/python tests/peers/chat_model.py VOCABULARY -o WORK

VOCABULARY: ggml-vocab-gemma-4.gguf of llama-cpp-python's source distribution (BUILD/peers/vocabularies, made by
packages.sh). Its keys and a random model of tests/golden/data/arch become one file; the engine must count as many
prompt tokens as llama.cpp makes of the text that jinja2 renders. Exit status: 0 equal, 1 not."""
import argparse
import json
import os
import signal
import subprocess
import sys
import urllib.request

import gguf
import llama_cpp
import numpy as np
from jinja2.sandbox import ImmutableSandboxedEnvironment

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
WEIGHTS = os.path.join(ROOT, "tests", "golden", "data", "arch", "gemma4_b_f32.gguf")
CASES = [  # messages, variables of the template
    ([{"role": "user", "content": "Hello, what is 2 + 2?"}], {}),
    ([{"role": "system", "content": "Be brief.\n\nTwo lines."}, {"role": "user", "content": "Grüße  aus   Köln 😀"},
      {"role": "assistant", "content": "Hi."}, {"role": "user", "content": "And?"}], {}),
    ([{"role": "user", "content": "think"}], {"enable_thinking": True}),
]


def copy_keys(w, reader, wanted):
    for key, field in reader.fields.items():
        if not wanted(key):
            continue
        value = 4096 if key.endswith(".context_length") else field.contents()
        sub_type = field.types[1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
        w.add_key_value(key, value, field.types[0], sub_type=sub_type)


def make_model(vocabulary, path):
    w = gguf.GGUFWriter(path, "gemma4")
    words, weights = gguf.GGUFReader(vocabulary), gguf.GGUFReader(WEIGHTS)
    copy_keys(w, words, lambda key: key.startswith("tokenizer."))
    copy_keys(w, weights, lambda key: key.startswith("gemma4."))
    rows = len(words.fields["tokenizer.ggml.tokens"].data)
    for t in weights.tensors:
        a = np.array(t.data)
        if t.name == "token_embd.weight":
            a = (0.3 * np.random.default_rng(1).standard_normal((rows, a.shape[1]))).astype(np.float16)
        w.add_tensor(t.name, a)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def expected(path):
    """Tokens of each case's prompt."""
    model = llama_cpp.Llama(path, n_ctx=64, vocab_only=True, verbose=False)
    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"])
    template = env.from_string(model.metadata["tokenizer.chat_template"])
    for messages, variables in CASES:
        text = template.render(messages=messages, add_generation_prompt=True, bos_token="<bos>", eos_token="<eos>",
                               **variables)
        yield len(model.tokenize(text.encode(), add_bos=False, special=True))


def ask(port, messages, variables):
    body = {"messages": messages, "max_tokens": 8, "temperature": 0, "chat_template_kwargs": variables}
    request = urllib.request.Request(f"http://127.0.0.1:{port}/v1/chat/completions", json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)["usage"]["prompt_tokens"]


def ready(process):
    """The engine prints a line when it is ready; at its end there is none."""
    return any(b"ready: model" in line for line in process.stderr)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("vocabulary")
    p.add_argument("-o", "--out", required=True)
    p.add_argument("--libexec", default=os.path.join(ROOT, "build", "libexec"))
    p.add_argument("--port", type=int, default=18471)
    a = p.parse_args()
    os.makedirs(a.out, mode=0o700, exist_ok=True)
    path = os.path.join(a.out, "gemma4.gguf")
    make_model(a.vocabulary, path)
    env = dict(os.environ, SLUICE_ROOT=ROOT, SLUICE_LIBEXEC=a.libexec, XDG_RUNTIME_DIR=os.path.abspath(a.out))
    engine = subprocess.Popen([os.path.join(a.libexec, "sluice-run"), "-m", path, "--http", str(a.port), "--threads=1",
                               "--resident-experts=50"], env=env, stdout=subprocess.DEVNULL,
                              stderr=subprocess.PIPE)
    status = 0
    try:
        if not ready(engine):
            raise SystemExit("the engine does not start")
        for (messages, variables), want in zip(CASES, expected(path)):
            got = ask(a.port, messages, variables)
            print(f"{got} prompt tokens, llama.cpp {want}")
            status |= got != want
    finally:
        engine.send_signal(signal.SIGTERM)
        engine.communicate(timeout=30)
    return status


if __name__ == "__main__":
    sys.exit(main())
