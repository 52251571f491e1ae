#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Decode of each paper's system, of each lever alone, and of `auto`, over the lossless engine: by allowed loss, resident share of
the experts and read bandwidth. A cell is measured in slices that alternate among all its rows, and kept in DIR: the same command
continues, and prints the table of all cells that there are.

    lever_speed.py -m MODEL -o DIR --plans DIR_OF_LEVERS --calib TEXT [--losses 1,2] [--shares 25,12.5,50]
                   [--bandwidths 200MB,1GB,none] [-n 64 -r 3]

DIR_OF_LEVERS has P.plan for each P, as levers.py makes them. The store with all precisions, and the predictions for `auto`, are
made here. Rows that the plan has no loss for, or a larger one, are left out, and named."""
import argparse
import os
import sys
import time

import measuring as m

# preset -> scalar of the plan that has the bound of its loss; None: lossless
ROWS = {"lod": None, "default": None, "auto-lossless": None,
        "edgemoe": "edgemoe_loss_high", "hobbit": "hobbit_loss_high", "fate": "fate_loss_high", "swapmoe": "swap_loss_high",
        "auto-mixed-noprefetch": "edgemoe_loss_high", "auto-two-precision-noprefetch": "hobbit_loss_high",
        "auto-resident-first-noprefetch": "reroute_loss_high", "drop": "drop_loss_high", "mixed-two": "mixed_loss_high",
        "mixed-two-resident-first": "joint_loss_high", "auto": None}
BASE = "default"
NEEDED = (BASE, "lod", "auto", "auto-lossless")


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    p.add_argument("-m", "--model", required=True)
    p.add_argument("-o", "--out", required=True)
    p.add_argument("--plans", required=True)
    p.add_argument("--calib", required=True, help="text that the plans were made on")
    p.add_argument("--text", help="that is decoded (default: that of --calib)")
    p.add_argument("--losses", default="1", help="P in %%")
    p.add_argument("--shares", default="25,12.5,50", help="resident, in %%")
    p.add_argument("--bandwidths", default="200MB,1GB,none", help="of the loaders; none: the device's")
    p.add_argument("-n", type=int, default=64, help="tokens of a repetition")
    p.add_argument("-r", "--repetitions", type=int, default=3)
    p.add_argument("--slice", type=int, default=4, help="tokens")
    p.add_argument("--rows", default=",".join(ROWS), help="besides " + ", ".join(NEEDED))
    p.add_argument("--table", action="store_true", help="only print what there is")
    return p.parse_args()


def made(path, argv):
    """Runs a program that writes `path`, unless an earlier run did."""
    if not os.path.exists(path):
        m.say("making", os.path.basename(path))
        m.run([str(x) for x in argv], timeout=4 * 3600)
    return path


def plan_of(a, loss):
    """The plan with predictions for `auto`, and its numbers."""
    planned = os.path.join(a.plans, f"{loss}.plan")
    if not os.path.exists(planned):
        sys.exit(f"{planned} does not exist: levers.py makes it")
    path = made(os.path.join(a.out, f"{loss}.plan"),
                [m.program("plan"), "-m", a.model, "--profile", planned, "--preset", "auto", "--text", a.calib, "-o",
                 os.path.join(a.out, f"{loss}.plan")])
    return path, m.read_json(path)["scalars"]


def rows_of(a, scalars, loss):
    """Rows that are measured, and those that are not with their reason."""
    chosen, left = [], {}
    for row, name in ROWS.items():
        if row not in a.rows.split(",") and row not in NEEDED:
            left[row] = ""
            continue
        bound = 0 if name is None else scalars.get(name)
        if bound is None:
            left[row] = "no plan"
        elif 100 * bound > float(loss):
            left[row] = f"bound {100 * bound:.2f} %"
        else:
            chosen.append(row)
    return chosen, left


def settings(row, path, loss):
    if row == "auto-lossless":
        return f"preset=auto;plan={path}"
    if row == "auto":
        return f"preset=auto;plan={path};max_loss={loss}"
    return f"preset={row};plan={path}"


def measure(a, store, loss, share, bandwidth):
    path, scalars = plan_of(a, loss)
    rows, left = rows_of(a, scalars, loss)
    argv = ["bench", "-m", store, "-p", 0, "-n", a.n, "-r", a.repetitions, "-o", "json", "--interleave", a.slice, "--text",
            a.text or a.calib, "--throttle", "0" if bandwidth == "none" else bandwidth]
    for row in rows:
        argv += ["--variant", f"label={row};resident_experts={share};" + settings(row, path, loss)]
    doc = m.sluice(*argv)
    base = m.variant_test(doc, BASE)["samples"]
    cell = {"loss": loss, "share": share, "bandwidth": bandwidth,
            "date": time.strftime("%Y-%m-%d"), "rows": {}, "left": left}
    for row in rows:
        test = m.variant_test(doc, row)
        cell["rows"][row] = {"tps": test["tps_median"], "ratio": m.interleaved_ratio(test["samples"], base),
                             "bytes": test["bytes_read_per_token"], "ran": sorted({s["preset"] for s in test["samples"]}),
                             "samples": test["samples"]}
    best = max((r for r in rows if r not in ("auto", "auto-lossless")), key=lambda r: cell["rows"][r]["ratio"][0])
    cell["best"] = best
    cell["auto_best"] = m.interleaved_ratio(cell["rows"]["auto"]["samples"], cell["rows"][best]["samples"])
    cell["lossless_lru"] = m.interleaved_ratio(cell["rows"]["auto-lossless"]["samples"], cell["rows"]["lod"]["samples"])
    cell["default_lru"] = m.interleaved_ratio(base, cell["rows"]["lod"]["samples"])
    for row in cell["rows"].values():
        del row["samples"]
    return cell


def name_of(cell):
    return f"{cell['loss']} %, {cell['share']} %, " + ("device" if cell["bandwidth"] == "none" else cell["bandwidth"] + "/s")


def show(cells):
    rows = [[name_of(c)] + [f"{c['rows'][r]['ratio'][0]:.2f}" if r in c["rows"] else c["left"][r] for r in ROWS if r != BASE]
            for c in cells]
    print("\n".join(m.table(["P, resident, bandwidth"] + [f"`{r}`" for r in ROWS if r != BASE], rows)), "\n")
    rows = [(name_of(c), f"{c['rows'][BASE]['tps']:.0f}", f"{c['rows']['auto']['tps']:.0f}", m.ratio_text(c["rows"]["auto"]["ratio"]),
             ", ".join(c["rows"]["auto"]["ran"]), c["best"], m.ratio_text(c["auto_best"]), m.ratio_text(c["lossless_lru"]),
             m.ratio_text(c["default_lru"])) for c in cells]
    print("\n".join(m.table(["P, resident, bandwidth", "`default` tokens/s", "`auto` tokens/s", "`auto`/`default`", "`auto` ran",
                             "best other row", "`auto`/that", "lossless `auto`/`lod`", "`default`/`lod`"], rows)))


def main():
    a = arguments()
    os.makedirs(a.out, exist_ok=True)
    store = os.path.join(a.out, "store")
    if not a.table:
        made(os.path.join(store, "manifest.json"),
             [m.program("pack"), "-m", a.model, "-o", store, "--precisions", "native,int8,int4,int2", "--quiet"])
    cells = []
    for loss in a.losses.split(","):
        for share in a.shares.split(","):
            for bandwidth in a.bandwidths.split(","):
                path = os.path.join(a.out, f"{loss}-{share}-{bandwidth}.json")
                if not os.path.exists(path) and not a.table:
                    m.say("measuring", os.path.basename(path))
                    m.write_json(path, measure(a, store, loss, share, bandwidth))
                if os.path.exists(path):
                    cells.append(m.read_json(path))
    show(cells)


if __name__ == "__main__":
    main()
