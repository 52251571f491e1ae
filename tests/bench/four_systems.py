#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures what each of the four systems gains on the same file, at the same budget and loss:

    tests/bench/four_systems.py -m MODEL -o DIR --text FILE [--text FILE] [--max-loss 1] [--shares 50,25]
                                [--read-bandwidth 1GB/s] [-n 64 -r 4] [--tokens 65536]

Makes a profile, a store with all precisions, and a plan of all systems for each share of the experts; what exists in DIR is
used again. Then decodes with each system and with `auto`, in slices that alternate with those of the lossless engine and of one
with all experts resident. The bound on held-out text is the plan's; a system whose bound is above --max-loss, or which has
no plan for it, is in the table with its reason, and swapmoe with its speed. Markdown on stdout, progress on stderr."""
import argparse
import os
import sys
import time

import measuring as m

SYSTEMS = ("edgemoe", "hobbit", "fate", "swapmoe")
SLICE_TOKENS = 4


def arguments():
    p = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    p.add_argument("-m", "--model", required=True)
    p.add_argument("-o", "--output", required=True)
    p.add_argument("--text", action="append", required=True, help="of one domain; repeatable")
    p.add_argument("--max-loss", type=float, default=1, help="percent")
    p.add_argument("--shares", default="50,25", help="percent of the experts")
    p.add_argument("--precisions", default="native,int4,int2", help="of the store")
    p.add_argument("--read-bandwidth", help="of the loaders (default: the device's)")
    p.add_argument("--tokens", type=int, default=65536, help="of text for plan and profile")
    p.add_argument("--importance-tokens", type=int, default=2048, help="of a measurement of the profile")
    p.add_argument("-n", type=int, default=64, help="tokens decoded")
    p.add_argument("-r", "--repetitions", type=int, default=4)
    return p.parse_args()


def made(path, argv):
    """Runs a program that writes `path`, unless an earlier run did."""
    if not os.path.exists(path):
        m.say("making", os.path.basename(path))
        m.run([str(x) for x in argv], timeout=4 * 3600)
    return path


def plan(a, profile, share):
    """Path and report."""
    path = os.path.join(a.output, f"plan-{a.max_loss:g}-{share}")
    report = path + ".json"
    if not os.path.exists(report):
        m.say("making", os.path.basename(path))
        texts = [x for t in a.text for x in ("--text", t)]
        doc = m.run_json([m.program("plan"), "-m", a.model, "--profile", profile, *texts, "--max-loss", f"{a.max_loss:g}%",
                          "--resident-experts", f"{share}%", "--tokens", str(a.tokens), "--dense", "native", "-o", path,
                          "--output", "json"], timeout=4 * 3600)
        m.write_json(report, doc)
    return path, m.read_json(report)


def bound(report, system):
    """Upper end of the loss; None: not planned."""
    loss = report.get("fate_prefill" if system == "fate" else system, {}).get("loss_high")
    return None if loss is None else 100 * loss


def bench(a, store, path, share, systems):
    # swapmoe has no plan for a loss: without --max-loss, which would reject it
    settings = {"lossless": "preset=default", "auto": f"preset=auto;plan={path};max_loss={a.max_loss:g}"}
    settings.update({s: f"preset={s};plan={path}" for s in systems})
    settings = {label: f"resident_experts={share};{value}" for label, value in settings.items()}
    settings["resident"] = "resident_experts=100;preset=resident"
    argv = ["bench", "-m", store, "-p", 0, "-n", a.n, "-r", a.repetitions, "-o", "json", "--interleave", SLICE_TOKENS,
            "--text", a.text[0]]
    argv += ["--throttle", a.read_bandwidth.removesuffix("/s")] if a.read_bandwidth else []
    for label, value in settings.items():
        argv += ["--variant", f"label={label};{value}"]
    return m.sluice(*argv)


def rows_of(a, share, report, doc):
    base, auto, resident = (m.variant_test(doc, x) for x in ("lossless", "auto", "resident"))
    ran = sorted({s["preset"] for s in auto["samples"]})
    rows = []
    for system in ("lossless", *SYSTEMS, "auto"):
        loss = bound(report, system) if system in SYSTEMS else 0
        text = "" if system == "auto" else "no plan" if loss is None else f"{loss:.2f} %"
        if system not in [v["label"] for v in doc["variants"]]:
            rows.append((f"{share} %", system, text, "", "", "", "", ""))
            continue
        test = m.variant_test(doc, system)
        chosen = "ran " + ", ".join(ran) if system == "auto" else "yes" if system in ran else ""
        if loss is not None and loss > a.max_loss:
            text += ", above"
        ratio = "" if system == "lossless" else m.ratio_text(m.interleaved_ratio(test["samples"], base["samples"]))
        of_resident = m.interleaved_ratio(test["samples"], resident["samples"])[0]
        rows.append((f"{share} %", system, text, f"{test['tps_median']:.1f}", ratio, f"{100 * of_resident:.0f} %",
                     f"{test['bytes_read_per_token'] / 2**20:.2f}", chosen))
    return rows


def main():
    a = arguments()
    os.makedirs(a.output, exist_ok=True)
    texts = [x for t in a.text for x in ("--text", t)]
    profile = made(os.path.join(a.output, "profile"),
                   [m.program("profile"), "-m", a.model, *texts, "--tokens", a.tokens, "--importance-tokens",
                    a.importance_tokens, "-o", os.path.join(a.output, "profile")])
    store = os.path.join(a.output, "store")
    made(os.path.join(store, "manifest.json"),
         [m.program("pack"), "-m", a.model, "-o", store, "--precisions", a.precisions, "--quiet"])
    rows = []
    for share in a.shares.split(","):
        path, report = plan(a, profile, share)
        planned = [s for s in SYSTEMS if bound(report, s) is not None]
        m.say("decoding with", share, "% of the experts")
        rows += rows_of(a, share, report, bench(a, store, path, share, planned))
    print(f"{os.path.basename(a.model)}; loss at most {a.max_loss:g} %; {a.read_bandwidth or 'unthrottled'}; {os.cpu_count()} "
          f"CPUs; {time.strftime('%Y-%m-%d')}\n")
    print("\n".join(m.table(["experts resident", "system", "bound of the loss", "tokens/s", "ratio to lossless", "share of resident",
                             "MiB read per token", "auto's choice"], rows)))


sys.exit(main())
