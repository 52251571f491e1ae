#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every architecture as llama.cpp's own converter writes it, from small random checkpoints of the package transformers, with
one optional key of the configuration changed at a time, token by token (README.md of this directory).

    VENV/bin/python tests/peers/convert_arch.py --peer DIR -o WORK [NAME ...] [--types F16,Q4_K_M] [--report FILE]

VENV has torch, transformers 5, sentencepiece, regex, unicodedata2 and protobuf; DIR is what setup.sh made. NAME:
architecture/variant, with wildcards: phimoe, qwen3moe/yarn*. Variants: convert/models.py. Without --types, the
variants base and tied in all types, others in F16; --all: every variant in all types. --list prints the names.

Differences: of the negative log-likelihoods of the tokens of a text, sluice's to those of transformers (float32, keys and
values rounded to F16) and to llama.cpp's on the same file. F32, F16 and BF16 hold the same numbers here. Markdown on stdout
and in FILE. Exit status: 1 if a mean difference is above the bound, or a file is rejected that llama.cpp opens."""
import argparse
import fnmatch
import json
import os
import re
import statistics
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
for folder in ("../golden", "../bench", "convert", "."):
    sys.path.insert(0, os.path.join(HERE, folder))
import converter  # noqa: E402
import deepseek4  # noqa: E402
import measuring as m  # noqa: E402
import models  # noqa: E402
import report  # noqa: E402

TEXT = os.path.join(m.ROOT, "tests", "golden", "data", "heldout", "tales.txt")
CONVERTED = ("F32", "F16", "BF16", "Q8_0")
QUANTISED = {"Q4_K_M": 15, "Q3_K_M": 12, "IQ4_XS": 30, "MXFP4_MOE": 38}
ELSE, ROUGH = 1e-2, 5e-2  # bounds: of a mean difference to llama.cpp, which rounds more; of a median of other types
NOT_RUN = "not run"


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("names", nargs="*", metavar="NAME")
    p.add_argument("--peer", help="the directory that setup.sh made; without it no llama.cpp, and no quantised types")
    p.add_argument("-o", "--out", help="for checkpoints and files; the converter is fetched into it")
    p.add_argument("--types", help="of " + ", ".join([*CONVERTED, *QUANTISED]))
    p.add_argument("--all", action="store_true", help="all types for every variant")
    p.add_argument("--tokens", type=int, default=160)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--report", help="also write the table to this file")
    p.add_argument("--json", help="append the figures to this file, one object per line")
    p.add_argument("--read", action="append", default=[], help="figures of --json instead of a run; repeatable, later ones replace")
    p.add_argument("--short", action="store_true", help="the short tables of docs/lab/convert.md")
    p.add_argument("--keep", action="store_true", help="keep the files")
    p.add_argument("--list", action="store_true")
    a = p.parse_args()
    if not (a.list or a.read) and not a.out:
        p.error("--out is needed")
    return a


def selected(names):
    """(architecture, variant, case) of the names; all without any."""
    for architecture in models.ARCHITECTURES:
        for variant, case in models.cases(architecture, models.WIDE).items():
            name = f"{architecture}/{variant}"
            if not names or any(fnmatch.fnmatch(name, x) or x == architecture for x in names):
                yield architecture, variant, case


def types_of(a, variant):
    if a.types:
        return a.types.split(",")
    every = [*CONVERTED, *QUANTISED] if a.peer else [*CONVERTED]
    return every if a.all or variant in ("base", "tied") else ["F16"]


def sluice(path, ids):
    """Losses, or why sluice rejects the file."""
    done = subprocess.run([m.program("eval"), "-m", path, "--ids", ids, "--ctx-size", str(len(m.read_json(ids)["ids"])),
                           "--prefill-chunk", "64", "--per-token", "--output", "json", "--threads", "1"],
                          capture_output=True, text=True, check=False, timeout=600)
    if done.returncode != 0:
        why = subprocess.run([m.program("inspect"), path], capture_output=True, text=True, check=False).stderr.strip()
        return (why.splitlines()[-1] if why else done.stderr.strip()[-300:].replace("\n", " ")).split(".gguf: ")[-1]
    return json.loads(done.stdout)["nll_per_token"]


def same_ids(path, text, want):
    """sluice's tokens of the text are those of the package that made the vocabulary."""
    done = subprocess.run([m.program("tokenize"), "-m", path, "--text", text, "--ids"], capture_output=True, text=True,
                          check=False, timeout=600)
    return [int(x) for x in done.stdout.replace(",", " ").split()] == want


def llama(a, *argv):
    """What llama.py prints, or why llama.cpp rejects the file."""
    if not a.peer:
        return NOT_RUN
    done = subprocess.run([os.path.join(a.peer, "venv", "bin", "python"), os.path.join(HERE, "llama.py"), *map(str, argv)],
                          capture_output=True, text=True, check=False, timeout=600)
    if "ModuleNotFoundError" in done.stderr:
        sys.exit(f"{a.peer}: {done.stderr[-300:]}")
    if done.returncode != 0:
        wrong = [x for x in done.stderr.splitlines() if "error" in x.lower() or "assert" in x.lower()]
        why = wrong[0] if wrong else done.stderr.strip()[-200:] or f"ended with {done.returncode}"
        return re.sub(r"\S*/vendor/llama.cpp/", "", why).split("loading model: ")[-1]
    return json.loads(done.stdout)


def gap(x, y):
    """Mean and median difference; None if one was rejected."""
    if isinstance(x, str) or isinstance(y, str):
        return None
    each = [abs(p - q) for p, q in zip(x, y, strict=True)]
    return statistics.fmean(each), statistics.median(each)


def converted(a, directory, kind, case):
    """The file of that type, and why there is none."""
    path = os.path.join(directory, f"{kind}.gguf")
    if kind in CONVERTED:
        why = converter.convert(os.path.join(directory, "hf"), path, kind, case[2]["VOCAB"], case[2].get("FLAGS", []),
                                os.path.join(directory, kind + ".log"))
        if why is None and case[0] == "DeepseekV4Config":
            deepseek4.unpack(path)
        return path, why
    source, why = os.path.join(directory, "F16.gguf"), None
    if not os.path.exists(source):
        source, why = converted(a, directory, "F16", case)
    if why is None:
        done = llama(a, "quantise", source, path, QUANTISED[kind], 0, "", "")
        why = done if isinstance(done, str) else None
    return path, why


def compare(a, name, kind, case, want, ids):
    """The row of one type of (architecture, variant); want: losses of the ids in that file."""
    directory = os.path.dirname(ids)
    row = {"architecture": name[0], "variant": name[1], "type": kind}
    path, why = converted(a, directory, kind, case)
    if why is not None:
        return {**row, "not_made": why, "good": True}
    ours = sluice(path, ids)
    theirs = llama(a, "score", path, ids, a.tokens, 1)
    theirs = theirs if isinstance(theirs, str) else theirs["nll_per_token"]
    row.update(transformers=gap(ours, want), llama=gap(ours, theirs), between=gap(theirs, want))
    if case[2].get("EXACT") and not isinstance(theirs, str):  # the package's caches are in F32 there
        exact = llama(a, "score", path, ids, a.tokens, 1, "f32")
        row["between"] = gap(exact if isinstance(exact, str) else exact["nll_per_token"], want)
    if isinstance(theirs, str):
        row["llama_rejected"] = theirs
    elif kind not in report.EXACT_TYPES and row["llama"] and row["llama"][1] > ROUGH:
        decoded = path.replace(".gguf", "-decoded.gguf")
        llama(a, "dequantise", path, decoded)
        row["decoded"] = gap(ours, sluice(decoded, ids))
    if isinstance(ours, str):
        row["rejected"] = ours
    return {**row, "good": is_good(row)}


def is_good(row):
    """As transformers, or as llama.cpp where the file does not say what transformers computes; of other types as llama.cpp, or
    as the same numbers in F32. A file is rejected rightly where llama.cpp rejects it or computes something else."""
    if "rejected" in row:
        if row["between"] is None:
            return row.get("llama_rejected") != NOT_RUN
        return row["type"] in report.EXACT_TYPES and row["between"][0] > ELSE
    if report.name_of(row) in models.NOT_IN_FILE:
        return True
    if row["type"] in report.EXACT_TYPES:
        pairs = [row[x] for x in ("transformers", "llama") if row[x] is not None]
        return pairs[0][0] <= report.EXACT or pairs[-1][0] <= ELSE
    pairs = [(row[x][1], bound) for x, bound in (("llama", ROUGH), ("decoded", 2 * ROUGH)) if row.get(x) is not None]
    return not pairs or any(median <= bound for median, bound in pairs)


def run_case(a, architecture, variant, case, tools):
    """Rows of one variant in its types."""
    checkpoint, vocabularies, text_path, text = tools
    directory = os.path.join(a.out, f"{architecture}-{variant}")
    subprocess.run(["rm", "-rf", directory], check=True)
    rows = []
    try:
        losses = checkpoint.make(architecture, case, os.path.join(directory, "hf"), vocabularies, models.WIDE.hidden, a.seed)
        all_ids = vocabularies.ids(case[2]["VOCAB"], text)
        ids = all_ids[:a.tokens]
        want = losses(ids)
    except Exception as why:  # of the package: a configuration that it does not take
        return [{"architecture": architecture, "variant": variant, "type": "", "not_made": f"transformers: {why}"[:300],
                 "good": True}]
    path = os.path.join(directory, "ids.json")
    m.write_json(path, {"ids": ids})
    for kind in types_of(a, variant):
        row = compare(a, (architecture, variant), kind, case, want, path)
        if not rows and "not_made" not in row and "rejected" not in row:
            row["ids"] = same_ids(os.path.join(directory, kind + ".gguf"), text_path, all_ids)
            row["good"] &= row["ids"]
        rows.append({**row, "loss": statistics.fmean(want), "spread": statistics.pstdev(want)})
        m.say(json.dumps(rows[-1]))
    if not a.keep:
        subprocess.run(["rm", "-rf", directory], check=True)
    return rows


def prepare(a):
    """What makes checkpoints: modules that import torch, and texts."""
    a.out = os.path.abspath(a.out)
    os.makedirs(a.out, exist_ok=True)
    converter.use(converter.fetch(os.path.join(a.out, "llama.cpp")))
    import torch
    import transformers
    torch.set_num_threads(1)
    transformers.logging.set_verbosity(transformers.logging.CRITICAL)
    transformers.logging.disable_progress_bar()
    import checkpoint
    import vocabulary
    import conversion  # noqa: F401, shared with the children
    with open(TEXT, encoding="utf-8") as f:
        text = f.read()[2000:4000]
    text_path = os.path.join(a.out, "text.txt")
    with open(text_path, "w", encoding="utf-8") as f:
        f.write(text)
    vocabularies = vocabulary.Vocabularies(TEXT, a.out)
    return checkpoint, vocabularies, text_path, text


def run(a):
    tools, rows = prepare(a), []
    for architecture, variant, case in selected(a.names):
        new = run_case(a, architecture, variant, case, tools)
        rows += new
        if a.json:
            with open(a.json, "a", encoding="utf-8") as f:
                f.writelines(json.dumps(r) + "\n" for r in new)
    return rows


def read(paths, names):
    """Rows of earlier runs, in the order of the variants."""
    found = {}
    for path in paths:
        with open(path, encoding="utf-8") as f:
            for row in map(json.loads, f):
                found[report.name_of(row), row["type"]] = row
    order = [f"{x}/{y}" for x, y, _ in selected(names)]
    kinds = ["", *CONVERTED, *QUANTISED]
    return [found[n, k] for n in order for k in kinds if (n, k) in found]


def main():
    a = arguments()
    if a.list:
        print("\n".join(f"{x}/{y}" for x, y, _ in selected(a.names)))
        return 0
    rows = read(a.read, a.names) if a.read else run(a)
    text = report.types(rows) + "\n" + report.variants(rows) if a.short else report.full(rows)
    print(text, end="")
    if a.report:
        with open(a.report, "w", encoding="utf-8") as f:
            f.write(text)
    return 0 if all(r["good"] for r in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
