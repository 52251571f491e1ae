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
    struct recall_layer *layer; /* [SEQUENCES_MAX][layers] */
    bool *named;                /* [SEQUENCES_MAX][layers][experts] */
};

struct recall *recall_create(uint32_t layers, uint32_t experts, struct error *error)
{
    struct recall *r = calloc(1, sizeof *r);
    if (r) {
        *r = (struct recall){.magic = RECALL_MAGIC, .layers = layers, .experts = experts};
        r->layer = calloc((size_t)SEQUENCES_MAX * layers, sizeof *r->layer);
        r->named = calloc((size_t)SEQUENCES_MAX * layers * experts, sizeof *r->named);
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

void recall_prediction(struct recall *r, uint32_t place, const struct prediction_place *target,
                       const uint32_t *experts, size_t count)
{
    OBJ_CHECK(r, RECALL_MAGIC);
    sl_assert(place < SEQUENCES_MAX && target->layer < r->layers);
    size_t at = (size_t)place * r->layers + target->layer;
    bool *named = r->named + at * r->experts;
    r->layer[at] = (struct recall_layer){true, target->sequence, target->position};
    memset(named, 0, r->experts * sizeof *named);
    for (size_t i = 0; i < count; i++) {
        sl_assert(experts[i] < r->experts);
        named[experts[i]] = true;
    }
}

enum recall_result recall_access(const struct recall *r, uint32_t place,
                                 const struct prediction_place *at, uint32_t expert)
{
    OBJ_CHECK(r, RECALL_MAGIC);
    if (at->layer >= r->layers || expert >= r->experts) /* the log is written by another process */
        return RECALL_NO_PREDICTION;
    sl_assert(place < SEQUENCES_MAX);
    size_t list = (size_t)place * r->layers + at->layer;
    const struct recall_layer *l = &r->layer[list];
    if (!l->valid || l->sequence != at->sequence || l->position != at->position)
        return RECALL_NO_PREDICTION;
    return r->named[list * r->experts + expert] ? RECALL_HIT : RECALL_MISS;
}
