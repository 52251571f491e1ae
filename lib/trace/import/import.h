/* SPDX-License-Identifier: Apache-2.0 */
/* Routing that other engines recorded, as traces. A trace of this engine is taken as it is. Four
 * other formats, told apart by their first bytes:
 *
 *   BigMoeOnEdge   text: "# route_trace v1", "# key=value ..." lines, a line with the names of the
 *                  columns, then rows turn,phase,step,layer,slot,expert,weight,...; phase 0 is the
 *                  prompt, slot the rank
 *   warp           a JSON object per line and token: {"tok": n, "layers": [[ids], ...]}
 *   TierInfer      a JSON object per line, pass and layer: {"decode": pass, "layer": l, "experts":
 *                  [[ids], ...]}; pass 0 is the prompt; a layer with fewer rows has the last ones
 *   stratamoe      one JSON object: {"layers", "expertsPerLayer", "topK", "selections": [token]
 *                  [layer][rank]}
 *
 * Where a recording has no gate weights, every expert of a token has 1/k, and nothing that depends
 * on weights (precisions of HOBBIT and Fate) means anything. warp sorts the ids, so its ranks mean
 * nothing, either. These recordings have neither predictions nor logits. */
#ifndef SLUICE_TRACE_IMPORT_IMPORT_H
#define SLUICE_TRACE_IMPORT_IMPORT_H

#include <stddef.h>
#include <stdint.h>

#include "lib/base/error.h"
#include "lib/trace/trace.h"

#define TRACE_IMPORT_BYTES_MAX ((uint64_t)1 << 30)

enum trace_import_prompt {
    TRACE_IMPORT_CHUNK,  /* each prompt is one chunk of a pass, as an engine computes it */
    TRACE_IMPORT_TOKENS, /* each of its tokens is decoded: more data for policies */
    TRACE_IMPORT_DROP
};

/* What a recording may not say. */
struct trace_import {
    uint32_t experts;      /* of a layer; 0: as recorded */
    uint64_t expert_bytes; /* mean; 0: as recorded, or 1 MiB */
    uint32_t dense;        /* layers without experts that precede those of warp and stratamoe */
    enum trace_import_prompt prompt;
};

/* One sequence with all prompts and tokens of the recording. Release it with trace_free. -1 with
 * ERR_BAD_INPUT that names the first wrong line or token, or ERR_NO_MEMORY. */
int trace_import(const char *text, size_t bytes, const struct trace_import *how, struct trace *out,
                 struct error *error);
/* The same of a file; -1 with ERR_IO, too. */
int trace_import_file(const char *path, const struct trace_import *how, struct trace *out,
                      struct error *error);

#endif
