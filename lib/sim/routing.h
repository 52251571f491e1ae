/* SPDX-License-Identifier: Apache-2.0 */
/* A trace of synthetic routing for a model's shape, which the simulator replays to count reads.
 * Which experts a text chooses is known only when it has run; this routing has the misses of LRU in
 * recordings of real models with as many experts (lib/synthetic/routing_law.h). Pure: a function of
 * its arguments. */
#ifndef SLUICE_SIM_ROUTING_H
#define SLUICE_SIM_ROUTING_H

#include <stdint.h>

#include "lib/base/error.h"
#include "lib/trace/trace.h"

struct routing {
    uint32_t layers, experts, top_k;
    uint32_t table_layers;  /* in so many first layers a table names the experts of a token */
    uint32_t model_layers;  /* that these represent: with more layers predictions are better */
    uint64_t expert_bytes;  /* mean */
    uint32_t prompt, chunk; /* tokens of each prompt, in passes of at most `chunk` */
    uint32_t tokens;        /* decoded after each prompt */
};

/* Two sequences, a prompt and decoded tokens each, with the predictions of the next layers'
 * routers. *measure: the first record of the second one. Release it with trace_free. -1 with
 * ERR_NO_MEMORY. */
int routing_trace(const struct routing *r, struct trace *out, uint64_t *measure,
                  struct error *error);

/* How many uses of experts have a slot of a GPU, before anything was used: by the recency of each
 * use in such a routing. hits[s], s from 0 to `experts`: the share of a layer's uses in decode that
 * find their expert with s slots for the layer, of which the least recently used one is replaced.
 * Never falls with s; 0 at 0, 1 at `experts`. layers: of the model. -1 with ERR_NO_MEMORY. */
int sim_hits(uint32_t layers, uint32_t experts, uint32_t top_k, double *hits, struct error *error);

#endif
