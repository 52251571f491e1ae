#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests whether the loss bound of plans holds on texts that they were not made on (docs/lab/bound.md).

    loss_bound.py texts DIR [prose]  cuts texts of this machine and of tests/golden/data/heldout: DIR/DOMAIN-NAME.txt;
                                     prose: 32 of heldout alone
    loss_bound.py judge LIBEXEC MODEL PROFILE DIR OUT [PRESET:P[:DENSE]...]    plans for P percent, evaluates all texts
    loss_bound.py price LIBEXEC MODEL PLAN DIR OUT PRESET:P:SHARE...    the same with a plan that exists, token by token
                                     with a simulated cache of SHARE percent: also KL divergence, the same best tokens, and
                                     a cloze task of 512 items of all texts; an interrupted run continues

The calibration text is that of `sluice tune`. The texts need Debian 12 with its manual pages in other languages.
"""
import glob
import gzip
import json
import os
import re
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BYTES = 24000  # of a text; 8 windows of 512 tokens are used
PRESETS = ("edgemoe", "hobbit", "fate")
SOURCES = {
    "code": ["/usr/lib/python3.11/argparse.py", "/usr/lib/python3.11/tarfile.py", "/usr/include/elf.h",
             "/usr/share/perl/5.36/CPAN.pm"],
    "law": ["/usr/share/common-licenses/" + n for n in ("GPL-3", "LGPL-2.1", "MPL-1.1", "GFDL-1.3")],
    "manual": ["/usr/share/man/man1/" + n for n in ("bash.1.gz", "tar.1.gz", "find.1.gz", "git.1.gz")],
    "language": ["/usr/share/man/%s/man1/%s.1.gz" % n for n in
                 (("de", "ls"), ("fr", "bash"), ("ru", "man"), ("ja", "man"), ("es", "man"), ("pl", "bash"),
                  ("de", "find"), ("fr", "find"), ("de", "man"), ("fr", "man"))],
}


def read(path):
    data = gzip.open(path).read() if path.endswith(".gz") else open(path, "rb").read()
    text = data.decode("utf-8", "replace")
    if path.endswith(".gz"):  # troff: without its requests and escapes
        text = "\n".join(l for l in text.split("\n") if l[1:3] != '\\"' and not re.match(r"[.'][^ ]*$", l))
        text = re.sub(r"^\.[A-Za-z]+ ?|\\f.|\\[&-]", "", text, flags=re.M)
    return text


def prose(out):
    """Eight texts of each file, apart from each other."""
    os.makedirs(out, exist_ok=True)
    for path in sorted(glob.glob(ROOT + "/tests/golden/data/heldout/*.txt")):
        text = read(path)
        for i in range(8):
            write(out, os.path.basename(path)[:-4], str(i + 1), text[i * len(text) // 8:(i + 1) * len(text) // 8])


def texts(out):
    os.makedirs(out, exist_ok=True)
    for path in sorted(glob.glob(ROOT + "/tests/golden/data/heldout/*.txt")):
        text, name = read(path), os.path.basename(path)[:-4]
        for i in range(4):  # apart from each other
            write(out, name, str(i + 1), text[i * len(text) // 4:])
    for domain, paths in SOURCES.items():
        found = [p for p in paths if os.path.exists(p) and len(read(p)) >= BYTES // 3]
        for path in found[:4]:
            lang = path.split("/")[4] + "-" if domain == "language" else ""
            write(out, domain, lang + os.path.basename(path).split(".")[0], read(path))


def write(out, domain, name, text):
    with open("%s/%s-%s.txt" % (out, domain, name), "w") as f:
        f.write(text[:BYTES])


def run(*argv):
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 4):
        sys.exit("%s: %s" % (" ".join(argv), done.stderr[-500:]))
    return done.stdout if done.returncode == 0 else None


def judge(libexec, model, profile, directory, out, *cases):
    calibration = [ROOT + "/launch/demo/calib.txt"] + sorted(glob.glob(ROOT + "/launch/calibration/*.txt"))
    options = [a for t in calibration for a in ("--text", t)]
    os.makedirs(out, exist_ok=True)
    for case in cases or ["%s:%s" % (s, p) for p in ("0.5", "1", "2", "5") for s in PRESETS]:
        preset, percent, dense = (case + ":auto").split(":")[:3]
        name = "-".join((preset, percent, dense))  # other dense weights are another plan
        plan, result = os.path.join(out, name), os.path.join(out, name + ".json")
        if os.path.exists(result):
            continue
        made = run(libexec + "/sluice-plan", "-m", model, "--profile", profile, *options, "--max-loss",
                   percent + "%", "--resident-experts", "50%", "--preset", preset, "--dense", dense, "-o", plan, "--output", "json")
        losses = {}
        for text in sorted(glob.glob(directory + "/*.txt")) if made else []:
            one = run(libexec + "/sluice-eval", "-m", model, "--offline", "--preset", preset, "--plan", plan,
                      "--text", text, "--max-windows", "8", "--output", "json")
            losses[os.path.basename(text)[:-4]] = 100 * json.loads(one)["loss"]
        with open(result, "w") as f:
            json.dump({"plan": made and json.loads(made), "losses": losses}, f, indent=1)
        show(name, float(percent), made, losses)


def price(libexec, model, plan, directory, out, *cases):
    os.makedirs(out, exist_ok=True)
    texts = [a for t in sorted(glob.glob(directory + "/*.txt")) for a in ("--text", t)]
    for case in cases:
        preset, percent, share = case.split(":")
        path = os.path.join(out, "-".join((preset, percent, share)) + ".json")
        if not os.path.exists(path):
            how = ["-m", model, "--preset", preset, "--plan", plan, "--read-bandwidth", "500MB/s", "--resident-experts",
                   share + "%", "--kld", "--output", "json"] + texts
            one = json.loads(run(libexec + "/sluice-eval", *how, "--max-windows", "8"))
            items = json.loads(run(libexec + "/sluice-eval", *how, "--cloze", "512"))
            one.update({k: v for k, v in items.items() if k.startswith("cloze_")})
            with open(path, "w") as f:
                json.dump(one, f)
        with open(path) as f:
            result = json.load(f)
        show(case, float(percent), True, {os.path.basename(t["text"])[:-4]: 100 * t["loss"] for t in result["texts"]})
        show_more(result)


def show_more(r):
    """What perplexity hides, over all texts."""
    print("    KL divergence %.4f, same best token %.1f %%; cloze, %d items: right %.1f %%, lossless %.1f %% (difference %.1f .. "
          "%.1f), same answer %.1f %%; %.2f MiB per token" % (
              r["kld_mean"], 100 * r["top1_same"], r["cloze_items"], 100 * r["cloze_right"], 100 * r["cloze_right_lossless"],
              100 * r["cloze_low"], 100 * r["cloze_high"], 100 * r["cloze_same"], r["bytes_per_token"] / 2**20), flush=True)


def show(name, percent, made, losses):
    if not made:
        print("%s: no plan" % name, flush=True)
        return
    within = sum(l <= percent for l in losses.values())
    worst = max(losses, key=losses.get)
    domains = {}
    for text, loss in losses.items():
        domains.setdefault(text.split("-")[0], []).append(loss)
    print("%s: %d of %d texts of %d domains within, worst %s %.2f %%; means: %s" % (
        name, within, len(losses), len(domains), worst, losses[worst],
        ", ".join("%s %.2f" % (d, sum(l) / len(l)) for d, l in sorted(domains.items()))), flush=True)


if __name__ == "__main__":
    if len(sys.argv) == 3 and sys.argv[1] == "texts":
        texts(sys.argv[2])
    elif len(sys.argv) >= 7 and sys.argv[1] == "judge":
        judge(*sys.argv[2:])
    elif len(sys.argv) == 4 and sys.argv[1:4:2] == ["texts", "prose"]:
        prose(sys.argv[2])
    elif len(sys.argv) >= 8 and sys.argv[1] == "price":
        price(*sys.argv[2:])
    else:
        sys.exit(__doc__)
