#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One run of llama.cpp (package llama-cpp-python) on given tokens; prints a JSON object.

    llama_variant.py MODEL IDS_FILE PROMPT TOKENS THREADS mapped|lazy|repacked [DEPTH flash|plain]

IDS_FILE has whitespace-separated token ids: those of the measured round (a context of DEPTH tokens, a prompt of PROMPT
tokens and one more, then a prompt of one and TOKENS + 1 new ones, in the order of `sluice bench`), then those of a
warm-up round, which has no context. Both tests start from the context. flash: with flash attention (default: without).
mapped: weights are read from the mapped file. lazy: so are they, but of tables that the architecture marks (n-grams)
only the rows of a token, with reads of their own. repacked: llama.cpp's default where it has kernels for it; matrices
are copied to private memory in another order, which is faster, but all must fit into memory (in a smaller cgroup
the process is killed). Decoding evaluates one token at a time and samples nothing. "cpu" rates are per second of CPU time. Faults and bytes read are those
of this process while decoding."""
import json
import resource
import sys
import time

from llama_cpp import Llama
from llama_cpp import llama_cpp as low

LAZY_OFF, LAZY_ON = 0, 2  # enum llama_lazy_mode


def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_majflt


def bytes_read():
    with open("/proc/self/io", encoding="ascii") as f:
        return next(int(line.split()[1]) for line in f if line.startswith("read_bytes"))


def set_loading(mode):
    """The package has no arguments for this, so the default parameters are changed. Its own default is lazy only for tables
    above 4 GiB; older versions do not know it."""
    defaults = low.llama_model_default_params

    def changed():
        params = defaults()
        params.use_extra_bufts = mode == "repacked"
        if hasattr(params, "lazy_mode"):
            params.lazy_mode = LAZY_ON if mode == "lazy" else LAZY_OFF
        return params

    low.llama_model_default_params = changed


def evaluate(llama, ids):
    """In batches: the package copies the logits of every token of a call."""
    for at in range(0, len(ids), llama.n_batch):
        llama.eval(ids[at:at + llama.n_batch])


def round_of(llama, ids, prompt, tokens, depth=0):
    """Prefill, then decode, each from a context of `depth` tokens, as sluice bench does."""
    result, context, ids = {}, ids[:depth], ids[depth:]
    if prompt:
        llama.reset()
        evaluate(llama, context)
        began, cpu = time.monotonic(), time.process_time()
        llama.eval(ids[:prompt])
        result["prefill_tps"] = prompt / (time.monotonic() - began)
        result["prefill_cpu_tps"] = prompt / (time.process_time() - cpu)
        ids = ids[prompt + 1:]
    if tokens:
        llama.reset()
        evaluate(llama, context)
        llama.eval(ids[:1])
        before = faults(), bytes_read()
        began, cpu = time.monotonic(), time.process_time()
        for token in ids[1:tokens + 1]:
            llama.eval([token])
        result["decode_tps"] = tokens / (time.monotonic() - began)
        result["decode_cpu_tps"] = tokens / (time.process_time() - cpu)
        result["majflt_per_token"] = (faults() - before[0]) / tokens
        result["bytes_read_per_token"] = (bytes_read() - before[1]) / tokens
    return result


def main():
    model, ids_path = sys.argv[1:3]
    prompt, tokens, threads = map(int, sys.argv[3:6])
    set_loading(sys.argv[6])
    depth, flash = (int(sys.argv[7]), sys.argv[8] == "flash") if len(sys.argv) > 8 else (0, False)
    with open(ids_path, encoding="ascii") as f:
        ids = [int(word) for word in f.read().split()]
    need = (prompt + 1 if prompt else 0) + (tokens + 2 if tokens else 0)
    llama = Llama(model, n_ctx=depth + max(prompt, tokens) + 16, n_threads=threads, n_threads_batch=threads,
                  flash_attn=flash, use_mmap=True, use_mlock=False, verbose=False)
    round_of(llama, ids[depth + need:depth + 2 * need], prompt, tokens)
    result = round_of(llama, ids[:depth + need], prompt, tokens, depth)
    result["max_rss_bytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps(result))


main()
