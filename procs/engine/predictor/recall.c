/* SPDX-License-Identifier: Apache-2.0 */
/* Compares the newest prediction of a layer with its accesses, and counts the hits. */
#include "procs/engine/predictor/recall.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/assert.h"

#define RECALL_MAGIC 0x52454341u

struct recall_layer {
    bool valid;
    uint32_t sequence, position;
};

struct recall {
    uint32_t magic;
    uint32_t layers, experts;
    struct recall_layer *layer; /* [layers] */
    bool *named;                /* [layers][experts] */
};

struct recall *recall_create(uint32_t layers, uint32_t experts, struct error *error)
{
    struct recall *r = calloc(1, sizeof *r);
    if (r) {
        *r = (struct recall){.magic = RECALL_MAGIC, .layers = layers, .experts = experts};
        r->layer = calloc(layers, sizeof *r->layer);
        r->named = calloc((size_t)layers * experts, sizeof *r->named);
    }
    if (!r || !r->layer || !r->named) {
        error_set(error, ERR_NO_MEMORY, "out of memory (predictions of %u layers)", layers);
        recall_destroy(r);
        return NULL;
    }
    return r;
}

void recall_destroy(struct recall *r)
{
    if (!r)
        return;
    OBJ_CHECK(r, RECALL_MAGIC);
    free(r->layer);
    free(r->named);
    r->magic = 0;
    free(r);
}

void recall_prediction(struct recall *r, uint32_t sequence, uint32_t position, uint32_t layer,
                       const uint32_t *experts, size_t count)
{
    OBJ_CHECK(r, RECALL_MAGIC);
    sl_assert(layer < r->layers);
    bool *named = r->named + (size_t)layer * r->experts;
    r->layer[layer] = (struct recall_layer){true, sequence, position};
    memset(named, 0, r->experts * sizeof *named);
    for (size_t i = 0; i < count; i++) {
        sl_assert(experts[i] < r->experts);
        named[experts[i]] = true;
    }
}

enum recall_result recall_access(const struct recall *r, uint32_t sequence, uint32_t position,
                                 uint32_t layer, uint32_t expert)
{
    OBJ_CHECK(r, RECALL_MAGIC);
    if (layer >= r->layers || expert >= r->experts) /* the log is written by another process */
        return RECALL_NO_PREDICTION;
    const struct recall_layer *l = &r->layer[layer];
    if (!l->valid || l->sequence != sequence || l->position != position)
        return RECALL_NO_PREDICTION;
    return r->named[(size_t)layer * r->experts + expert] ? RECALL_HIT : RECALL_MISS;
}
