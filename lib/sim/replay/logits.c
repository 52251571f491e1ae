/* SPDX-License-Identifier: Apache-2.0 */
/* Router logits in a trace (TRACE_ROUTER): what an engine with another eviction or routing would
 * have recorded of them. Levels for the eviction `learned`, and all candidates of routing
 * resident-first, with any nats. */
#include <stdlib.h>

#include "lib/sim/replay/replay.h"

static bool needed(const struct run *r, enum eviction eviction)
{
    return run_has_kind(r->t, TRACE_ROUTER) && (r->candidates || eviction == EVICTION_LEARNED);
}

/* They are the same in all tokens, and come again with each sequence: what was lost of one may be
 * in a later one. */
static void take_biases(struct run_logits *l, const struct trace *t)
{
    for (uint64_t i = 0; i < t->count; i++) {
        const struct trace_record *x = &t->records[i];
        float value[TRACE_FLOATS];
        if (x->kind != TRACE_BIAS)
            continue;
        trace_values(x, value);
        memcpy(l->bias + (size_t)x->layer * t->header.experts + x->expert, value,
               x->rank * sizeof *value);
        if (x->expert == l->biases[x->layer])
            l->biases[x->layer] += x->rank;
        l->any_bias = true;
    }
}

bool run_logits_create(struct run *r, enum eviction eviction)
{
    const struct trace_header *h = &r->t->header;
    size_t experts = h->experts;
    if (!needed(r, eviction))
        return true;
    struct run_logits *l = r->logits = calloc(1, sizeof *l);
    if (!l)
        return false;
    l->row = calloc(SEQUENCES_MAX, sizeof *l->row);
    l->value = calloc(SEQUENCES_MAX * experts, sizeof *l->value);
    l->bias = calloc(h->layers * experts, sizeof *l->bias);
    l->biases = calloc(h->layers, sizeof *l->biases);
    l->margin = calloc(experts, sizeof *l->margin);
    l->levels = calloc(experts, sizeof *l->levels);
    l->scratch = calloc(RESIDENT_FIRST_SCRATCH(experts), sizeof *l->scratch);
    if (!l->row || !l->value || !l->bias || !l->biases || !l->margin || !l->levels || !l->scratch)
        return false;
    take_biases(l, r->t);
    l->gives_levels = eviction == EVICTION_LEARNED && !run_has_kind(r->t, TRACE_LOGITS);
    return true;
}

void run_logits_free(struct run *r)
{
    struct run_logits *l = r->logits;
    if (!l)
        return;
    free(l->row);
    free(l->value);
    free(l->bias);
    free(l->biases);
    free(l->margin);
    free(l->levels);
    free(l->scratch);
    free(l);
}

static struct model_router rule_of(const struct run *r, uint32_t layer)
{
    const struct trace_header *h = &r->t->header;
    const struct run_logits *l = r->logits;
    return (struct model_router){.experts = h->experts,
                                 .top_k = h->top_k,
                                 .gating = h->router.gating,
                                 .normalise = h->router.normalise != 0,
                                 .scale = h->router.scale,
                                 .groups = h->router.groups,
                                 .groups_used = h->router.groups_used,
                                 .bias = l->any_bias ? l->bias + (size_t)layer * h->experts : NULL};
}

static void give_levels(struct run *r, const struct model_router *rule, const float *logits,
                        const struct trace_record *x)
{
    struct run_logits *l = r->logits;
    const struct residency_step at = {x->sequence, x->position, x->layer};
    routing_margins(rule, logits, l->scratch, l->margin);
    residency_logit_levels(l->margin, r->experts, l->levels);
    sim_cache_logits(r->cache, &at, 0, l->levels, r->experts);
}

/* In place of those that were recorded. */
static void give_candidates(struct run *r, uint32_t place, const struct model_router *rule,
                            const float *logits, const struct trace_record *x)
{
    struct run_candidates *c = &r->candidates[place];
    struct run_logits *l = r->logits;
    const struct knobs *k = &r->cache->config.knobs;
    struct route exact[MODEL_TOP_K_MAX];
    float nats = k->routing == ROUTING_RESIDENT_FIRST ? (float)k->nats : 0;
    routing_exact(rule, logits, l->scratch, exact);
    c->count = resident_first_candidates(rule, logits, exact, nats, l->scratch, c->candidate);
    c->sequence = x->sequence;
    c->position = x->position;
    c->layer = x->layer;
    c->first = (uint64_t)(x - r->t->records);
    routing_shares(rule, logits, l->scratch);
    for (uint32_t i = 0; i < c->count; i++)
        c->weight[i] = l->scratch[c->candidate[i].expert];
}

void run_logits_take(struct run *r, uint32_t place, const struct trace_record *x)
{
    struct run_logits *l = r->logits;
    float value[TRACE_FLOATS];
    if (!l || (l->any_bias && l->biases[x->layer] < r->experts))
        return;
    struct run_row *row = &l->row[place];
    float *logits = l->value + (size_t)place * r->experts;
    if (x->expert == 0)
        *row =
            (struct run_row){.sequence = x->sequence, .position = x->position, .layer = x->layer};
    if (row->sequence != x->sequence || row->position != x->position || row->layer != x->layer ||
        row->count != x->expert)
        return; /* records before it are missing */
    trace_values(x, value);
    memcpy(logits + x->expert, value, x->rank * sizeof *value);
    row->count += x->rank;
    if (row->count < r->experts)
        return;
    const struct model_router rule = rule_of(r, x->layer);
    if (l->gives_levels)
        give_levels(r, &rule, logits, x);
    if (r->candidates)
        give_candidates(r, place, &rule, logits, x);
}
