# SPDX-License-Identifier: Apache-2.0
"""Prints the tables of convert_arch.py."""
import measuring as m
import models

EXACT_TYPES = ("F32", "F16", "BF16")  # hold the same numbers
OTHER_TYPES = ("Q8_0", "Q4_K_M", "Q3_K_M", "IQ4_XS", "MXFP4_MOE")
EXACT = 1e-3  # bound of a mean difference to transformers


def name_of(row):
    return f"{row['architecture']}/{row['variant']}"


def cell(pair):
    return "" if pair is None else f"{pair[0]:.5f} ({pair[1]:.5f})"


def line(r):
    notes = [f"{k.replace('_', ' ')}: {r[k]}" for k in ("not_made", "rejected", "llama_rejected") if k in r]
    if name_of(r) in models.NOT_IN_FILE:
        notes.append(models.NOT_IN_FILE[name_of(r)])
    if r.get("decoded"):
        notes.append(f"to the same numbers in F32: {cell(r['decoded'])}")
    if r.get("ids") is False:
        notes.append("other token ids")
    return [name_of(r), r["type"], cell(r.get("transformers")), cell(r.get("llama")), cell(r.get("between")),
            "yes" if r["good"] else "NO", "; ".join(notes)]


def full(rows):
    return "\n".join(m.table(["model", "type", "sluice, transformers: mean (median)", "sluice, llama.cpp",
                              "llama.cpp, transformers", "good", ""], map(line, rows))) + "\n"


def largest(rows, key, at=0):
    found = [r[key][at] for r in rows if r.get(key)]
    return f"{max(found):.4f}" if found else ""


def types(rows):
    """Per architecture: the variants base and tied in all types."""
    lines = []
    for architecture in models.ARCHITECTURES:
        own = [r for r in rows if r["architecture"] == architecture and r["variant"] in ("base", "tied")]
        exact = [r for r in own if r["type"] in EXACT_TYPES]
        medians = []
        for kind in OTHER_TYPES:
            other = [r for r in own if r["type"] == kind]
            key = "decoded" if any(r.get("decoded") for r in other) else "llama"
            medians.append(largest(other, key, 1) + (" *" if key == "decoded" else ""))
        lines.append([architecture, largest(exact, "transformers"), largest(exact, "between"), *medians])
    return "\n".join(m.table(["architecture", "F32, F16, BF16: sluice, transformers", "llama.cpp, transformers",
                              *OTHER_TYPES], lines)) + "\n"


def groups(rows):
    """(kind, rows) of the variants of one architecture."""
    kinds = {"as transformers": [], "as llama.cpp; no key in the file": [], "rejected, as by llama.cpp": [],
             "rejected; llama.cpp differs": [], "rejected": [], "differs": []}
    for r in rows:
        if "not_made" in r:
            continue
        if "rejected" in r:
            kind = ("rejected, as by llama.cpp" if "llama_rejected" in r else
                    "rejected; llama.cpp differs" if r["good"] else "rejected")
        elif r["transformers"][0] <= EXACT:
            kind = "as transformers"
        elif not r["good"] or name_of(r) in models.NOT_IN_FILE:
            kind = "differs"
        else:
            kind = "as llama.cpp; no key in the file"
        kinds[kind].append(r)
    return [(kind, found) for kind, found in kinds.items() if found]


def variants(rows):
    """Per architecture and outcome: the variants in F16."""
    lines = []
    for architecture in models.ARCHITECTURES:
        own = [r for r in rows if r["architecture"] == architecture and r["type"] in ("F16", "")]
        for kind, found in groups(own):
            names = ", ".join(r["variant"] for r in found)
            lines.append([architecture, kind, largest(found, "transformers"), largest(found, "llama"),
                          largest(found, "between"), names])
    return "\n".join(m.table(["architecture", "outcome", "sluice, transformers", "sluice, llama.cpp", "llama.cpp, transformers",
                              "variants"], lines)) + "\n"
