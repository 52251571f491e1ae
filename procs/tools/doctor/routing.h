/* SPDX-License-Identifier: Apache-2.0 */
/* A trace of synthetic routing for a model's shape, which the simulator replays to count reads. Which experts a
 * text chooses is known only when it has run; this routing has the hit rates that were published for OLMoE on
 * text, as the files of `sluice synth` have (docs/synth.md). Pure: a function of its arguments. */
#ifndef SLUICE_TOOLS_DOCTOR_ROUTING_H
#define SLUICE_TOOLS_DOCTOR_ROUTING_H

#include <stdint.h>

#include "lib/base/error.h"
#include "lib/trace/trace.h"

struct routing {
    uint32_t layers, experts, top_k;
    uint32_t model_layers;  /* that these represent: with more layers predictions are better */
    uint64_t expert_bytes;  /* mean */
    uint32_t prompt, chunk; /* tokens of each prompt, in passes of at most `chunk` */
    uint32_t tokens;        /* decoded after each prompt */
};

/* Two sequences, a prompt and decoded tokens each, with the predictions of the next layers' routers. *measure:
 * the first record of the second one. Release it with trace_free. -1 with ERR_NO_MEMORY. */
int routing_trace(const struct routing *r, struct trace *out, uint64_t *measure,
                  struct error *error);

#endif
