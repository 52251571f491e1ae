/* SPDX-License-Identifier: Apache-2.0 */
/* Routing resident-first in a replay: the candidates that the trace has, and the choice among them
 * by what is resident in the simulated cache. */
#include <stdlib.h>

#include "lib/sim/replay/replay.h"

#include "lib/model/limits.h"
#include "lib/policy/access/precision.h"

/* The exact choice of the last row of a sequence that had candidates. */
struct exact {
    uint32_t sequence, position, layer, count;
    uint16_t expert[MODEL_TOP_K_MAX];
};

static void note_exact(struct exact *e, const struct trace_record *x)
{
    if (x->rank == 0)
        *e = (struct exact){.sequence = x->sequence, .position = x->position, .layer = x->layer};
    if (e->count == x->rank && e->count < MODEL_TOP_K_MAX)
        e->expert[e->count++] = x->expert;
}

static bool differs(const struct exact *e, const struct trace_record *x, uint32_t top_k)
{
    if (x->prefill || x->tokens > 1 || e->sequence != x->sequence || e->position != x->position ||
        e->layer != x->layer || e->count < top_k)
        return false;
    for (uint32_t i = 0; i < top_k; i++)
        if (e->expert[i] == x->expert)
            return false;
    return true;
}

/* Whether some recorded access took the place of an expert of the exact choice. */
static bool was_rerouted(const struct trace *t)
{
    struct exact exact[SEQUENCES_MAX] = {0};
    struct sequences running = {0};
    bool displaced;
    for (uint64_t i = 0; i < t->count; i++) {
        const struct trace_record *x = &t->records[i];
        if (x->kind == TRACE_SEQUENCE_END)
            (void)sequences_end(&running, x->sequence);
        if (x->kind != TRACE_CANDIDATE && x->kind != TRACE_EXPERT)
            continue;
        uint32_t place = sequences_find(&running, x->sequence);
        if (place == SEQUENCE_NONE && x->kind == TRACE_CANDIDATE)
            place = sequences_start(&running, x->sequence, &displaced);
        if (x->kind == TRACE_CANDIDATE)
            note_exact(&exact[place], x);
        else if (place != SEQUENCE_NONE && differs(&exact[place], x, t->header.top_k))
            return true;
    }
    return false;
}

/* Fewer candidates were recorded than an engine with so many nats chooses among. */
static int check_nats(const struct trace *t, const struct knobs *k, struct error *error)
{
    for (uint64_t i = 0; i < t->count; i++) {
        const struct trace_record *x = &t->records[i];
        if (x->kind != TRACE_SEQUENCE_START || x->rank == 0 || (float)k->nats <= x->weight ||
            k->nats <= (double)RESIDENT_FIRST_TRACED_NATS)
            continue;
        return error_set(error, ERR_BAD_INPUT,
                         "the trace was recorded with nats=%.4g, and has no candidates for "
                         "nats=%.4g: record it with these, or with --trace-logits on",
                         (double)x->weight, k->nats);
    }
    return 0;
}

int run_reroute_check(const struct trace *t, const struct knobs *k, bool belady, bool *needed,
                      struct error *error)
{
    bool reroutes = k->routing == ROUTING_RESIDENT_FIRST;
    *needed = reroutes || (run_has_kind(t, TRACE_CANDIDATE) && was_rerouted(t));
    if (!*needed)
        return 0;
    if (belady && reroutes)
        return error_set(error, ERR_BAD_INPUT,
                         "belady knows every access before, and with routing=resident-first they "
                         "depend on what is resident: use routing=exact");
    if (belady)
        return error_set(error, ERR_BAD_INPUT,
                         "belady needs the accesses of exact routing, and the trace has others: "
                         "record it with routing=exact, or with nats=0");
    if (run_has_kind(t, TRACE_ROUTER))
        return 0;
    if (run_has_kind(t, TRACE_CANDIDATE))
        return reroutes ? check_nats(t, k, error) : 0;
    return error_set(error, ERR_BAD_INPUT,
                     "the trace has no candidates, which routing=resident-first chooses among: "
                     "record it with --trace-logits on, or with that routing (nats=0 records exact "
                     "routing)");
}

bool run_reroute_create(struct run *r)
{
    r->candidates = calloc(SEQUENCES_MAX, sizeof *r->candidates);
    r->resident = calloc(r->experts, sizeof *r->resident);
    r->made = calloc((size_t)SEQUENCES_MAX * MODEL_TOP_K_MAX, sizeof *r->made);
    if (!r->candidates || !r->resident || !r->made)
        return false;
    for (uint32_t i = 0; i < SEQUENCES_MAX; i++) {
        struct run_candidates *c = &r->candidates[i];
        c->candidate = calloc(r->experts, sizeof *c->candidate);
        c->weight = calloc(r->experts, sizeof *c->weight);
        if (!c->candidate || !c->weight)
            return false;
    }
    return true;
}

void run_reroute_free(struct run *r)
{
    for (uint32_t i = 0; r->candidates && i < SEQUENCES_MAX; i++) {
        free(r->candidates[i].candidate);
        free(r->candidates[i].weight);
    }
    free(r->candidates);
    free(r->resident);
    free(r->made);
}

void run_reroute_take(struct run *r, uint32_t place, const struct trace_record *x)
{
    if (!r->candidates || r->logits) /* which give all of them */
        return;
    struct run_candidates *c = &r->candidates[place];
    if (x->rank == 0 || c->sequence != x->sequence || c->position != x->position ||
        c->layer != x->layer) {
        c->count = 0;
        c->first = (uint64_t)(x - r->t->records);
        c->sequence = x->sequence;
        c->position = x->position;
        c->layer = x->layer;
    }
    if (c->count == r->experts)
        return;
    c->candidate[c->count] = (struct routing_candidate){x->expert, x->before};
    c->weight[c->count++] = x->weight;
}

static void ask_all(struct run *r, const struct run_candidates *c)
{
    float before[MODEL_TOP_K_MAX];
    precision_weights_before(c->weight, 1, r->top_k, before);
    for (uint32_t i = 0; i < c->count; i++)
        r->resident[i] = sim_cache_serves(r->cache, c->candidate[i].expert,
                                          before[i < r->top_k ? i : r->top_k - 1]);
}

static float weight_of(const struct run_candidates *c, uint32_t expert)
{
    for (uint32_t i = 0; i < c->count; i++)
        if (c->candidate[i].expert == expert)
            return c->weight[i];
    return 0;
}

const struct trace_record *run_reroute(struct run *r, uint32_t step)
{
    const struct sim_step *s = &r->layer.step[step];
    uint32_t expert[MODEL_TOP_K_MAX];
    if (!r->candidates || s->prefill || s->tokens > 1)
        return NULL;
    const struct run_candidates *c = &r->candidates[r->layer.sequence[step] - r->sequence];
    if (c->sequence != s->sequence || c->position != s->position || c->layer != s->layer ||
        c->count < r->top_k)
        return NULL;
    struct resident_first rule = knobs_resident_first(&r->cache->config.knobs);
    if (r->cache->config.knobs.routing == ROUTING_EXACT)
        rule.nats = 0;
    if (rule.nats > 0)
        ask_all(r, c);
    sim_cache_rerouted(r->cache, resident_first_choose(&rule, c->candidate, c->count, r->top_k,
                                                       r->resident, expert));
    struct trace_record *made = r->made + (size_t)step * MODEL_TOP_K_MAX;
    for (uint32_t i = 0; i < r->top_k; i++)
        made[i] = (struct trace_record){.sequence = s->sequence,
                                        .position = s->position,
                                        .tokens = 1,
                                        .weight = weight_of(c, expert[i]),
                                        .layer = (uint16_t)s->layer,
                                        .expert = (uint16_t)expert[i],
                                        .kind = TRACE_EXPERT,
                                        .rank = (uint8_t)i};
    return made;
}
