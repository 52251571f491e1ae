/* SPDX-License-Identifier: Apache-2.0 */
/* Hit rates of LRU on synthetic routing, by the number of resident experts. */
#include <stdlib.h>
#include <string.h>

#include "lib/base/assert.h"
#include "lib/sim/routing.h"

#define LAYERS 2u /* that represent all */
#define TOKENS 128u

/* The experts of a layer, the most recently used one first. */
struct recency {
    uint32_t count;
    uint32_t *expert; /* [experts] */
};

/* How many other experts were used since; UINT32_MAX: never used. It becomes the first one. */
static uint32_t use(struct recency *r, uint32_t expert)
{
    uint32_t at = 0;
    while (at < r->count && r->expert[at] != expert)
        at++;
    uint32_t others = at < r->count ? at : UINT32_MAX;
    r->count += at == r->count;
    memmove(r->expert + 1, r->expert, at * sizeof *r->expert);
    r->expert[0] = expert;
    return others;
}

/* uses[n]: uses after n others, among the records that count; those of experts that were never used
 * are the last ones. */
static void count_uses(const struct trace *t, uint64_t measure, struct recency *recency,
                       double *uses)
{
    uint32_t last = t->header.experts - 1;
    for (uint64_t i = 0; i < t->count; i++) {
        const struct trace_record *r = &t->records[i];
        if (r->kind != TRACE_EXPERT || r->prefill)
            continue;
        uint32_t others = use(&recency[r->layer], r->expert);
        if (i >= measure)
            uses[others < last ? others : last]++;
    }
}

static int count_trace(const struct trace *t, uint64_t measure, double *uses, struct error *error)
{
    struct recency recency[LAYERS] = {{0}};
    uint32_t layers = t->header.layers;
    uint32_t *order = calloc((size_t)layers * t->header.experts, sizeof *order);
    sl_assert(layers <= LAYERS);
    if (!order)
        return error_set(error, ERR_NO_MEMORY, "out of memory (uses of experts)");
    for (uint32_t l = 0; l < layers; l++)
        recency[l].expert = order + (size_t)l * t->header.experts;
    count_uses(t, measure, recency, uses);
    free(order);
    return 0;
}

int sim_hits(uint32_t layers, uint32_t experts, uint32_t top_k, double *hits, struct error *error)
{
    struct routing routing = {.layers = layers < LAYERS ? layers : LAYERS,
                              .model_layers = layers,
                              .experts = experts,
                              .top_k = top_k,
                              .expert_bytes = 1,
                              .chunk = 1,
                              .tokens = TOKENS};
    struct trace trace;
    uint64_t measure;
    if (routing_trace(&routing, &trace, &measure, error) != 0)
        return -1;
    memset(hits, 0, ((size_t)experts + 1) * sizeof *hits);
    int status = count_trace(&trace, measure, hits + 1, error);
    trace_free(&trace);
    double all = (double)routing.layers * TOKENS * top_k;
    for (uint32_t s = 1; s <= experts; s++)
        hits[s] = hits[s - 1] + hits[s] / all;
    hits[experts] = 1; /* without the rounding of the sum */
    return status;
}
