#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One run of llama.cpp (package llama-cpp-python) on given tokens; prints a JSON object.

    llama_variant.py MODEL IDS_FILE PROMPT TOKENS THREADS mapped|repacked

IDS_FILE has whitespace-separated token ids: those of the measured round (a prompt of PROMPT tokens and one more,
then a prompt of one and TOKENS + 1 new ones, in the order of `sluice bench`), then those of a warm-up round.
mapped: weights are read from the mapped file. repacked: llama.cpp's default where it has kernels for it; matrices
are copied to private memory in another order, which is faster, but all must fit into memory (in a smaller cgroup
the process is killed). Decoding evaluates one token at a time and samples nothing. Faults and bytes read are those
of this process while decoding."""
import json
import resource
import sys
import time

from llama_cpp import Llama
from llama_cpp import llama_cpp as low


def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_majflt


def bytes_read():
    with open("/proc/self/io", encoding="ascii") as f:
        return next(int(line.split()[1]) for line in f if line.startswith("read_bytes"))


def set_repacking(wanted):
    """The package has no argument for this, so the default parameters are changed."""
    defaults = low.llama_model_default_params

    def changed():
        params = defaults()
        params.use_extra_bufts = wanted
        return params

    low.llama_model_default_params = changed


def round_of(llama, ids, prompt, tokens):
    """Prefill, then decode from an empty context, as sluice bench does."""
    result = {}
    if prompt:
        llama.reset()
        began = time.monotonic()
        llama.eval(ids[:prompt])
        result["prefill_tps"] = prompt / (time.monotonic() - began)
        ids = ids[prompt + 1:]
    if tokens:
        llama.reset()
        llama.eval(ids[:1])
        before = faults(), bytes_read()
        began = time.monotonic()
        for token in ids[1:tokens + 1]:
            llama.eval([token])
        result["decode_tps"] = tokens / (time.monotonic() - began)
        result["majflt_per_token"] = (faults() - before[0]) / tokens
        result["bytes_read_per_token"] = (bytes_read() - before[1]) / tokens
    return result


def main():
    model, ids_path = sys.argv[1:3]
    prompt, tokens, threads = map(int, sys.argv[3:6])
    set_repacking(sys.argv[6] == "repacked")
    with open(ids_path, encoding="ascii") as f:
        ids = [int(word) for word in f.read().split()]
    need = (prompt + 1 if prompt else 0) + (tokens + 2 if tokens else 0)
    llama = Llama(model, n_ctx=max(prompt, tokens) + 16, n_threads=threads, n_threads_batch=threads,
                  use_mmap=True, use_mlock=False, verbose=False)
    round_of(llama, ids[need:2 * need], prompt, tokens)
    result = round_of(llama, ids[:need], prompt, tokens)
    result["max_rss_bytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps(result))


main()
