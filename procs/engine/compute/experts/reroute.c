/* SPDX-License-Identifier: Apache-2.0 */
/* Cache-aware routing (lib/policy/access/resident_first.h): in decode, resident experts in the
 * places of missing ones. What is resident is read from the directory without a pin. An expert that
 * is evicted before its pin is a miss like any other: it is requested, and waited for. */
#include "procs/engine/compute/experts/experts.h"

#include "lib/policy/access/precision.h"

struct asking {
    const struct experts *e;
    const struct expert_step *step;
};

static bool serves(void *arg, uint32_t expert, float weight_before)
{
    const struct asking *a = arg;
    if (a->e->deterministic)
        return deterministic_serves(a->e->deterministic, a->step, expert, weight_before);
    return experts_serves(a->e, a->step, expert, weight_before);
}

bool experts_reroutes(void *self)
{
    const struct experts *e = self;
    return e->knobs.routing == ROUTING_RESIDENT_FIRST;
}

static void log_candidate(struct experts *e, const struct expert_step *step,
                          const struct expert_row *row, uint32_t rank)
{
    const struct routing_candidate *c = &e->reroute.candidate[rank];
    struct access_record record = {.sequence = row->sequence,
                                   .position = row->position,
                                   .tokens = 1,
                                   .weight = e->margins[c->expert],
                                   .layer = (uint16_t)step->layer,
                                   .expert = (uint16_t)c->expert,
                                   .kind = TRACE_CANDIDATE,
                                   .rank = (uint8_t)(rank < UINT8_MAX ? rank : UINT8_MAX),
                                   .before = c->margin};
    access_log_append(&e->child->access_log, &record);
}

/* Not all of them: with many nats they would be all experts, and the recorder would fall behind.
 * After the first ones there are only those that may be chosen now, which are resident, and as
 * many as may be chosen. */
static void log_row(struct experts *e, const struct expert_step *step, const struct expert_row *row,
                    const float *logits, const struct model_router *rule,
                    const struct route *routes)
{
    float nats = (float)e->knobs.nats;
    nats = nats > RESIDENT_FIRST_TRACED_NATS ? nats : RESIDENT_FIRST_TRACED_NATS;
    uint32_t count = resident_first_candidates(rule, logits, routes, nats, e->reroute.scratch,
                                               e->reroute.candidate);
    uint32_t most = resident_first_recorded(rule->experts, rule->top_k), more = rule->top_k;
    struct asking asking = {e, step};
    float before[MODEL_TOP_K_MAX];
    precision_weights_before(&routes->weight, ROUTE_STRIDE, rule->top_k, before);
    routing_shares(rule, logits, e->margins);
    for (uint32_t i = 0; i < count && more > 0; i++) {
        if (i >= most && !serves(&asking, e->reroute.candidate[i].expert, before[rule->top_k - 1]))
            continue;
        more -= i >= most;
        log_candidate(e, step, row, i);
    }
}

void experts_log_candidates(struct experts *e, const struct expert_step *step, const float *logits,
                            const struct model_router *rule, const struct route *routes)
{
    for (uint32_t r = 0; r < step->rows && e->child->params->trace[0]; r++)
        if (!step->row[r].prefill)
            log_row(e, step, &step->row[r], logits + (size_t)r * rule->experts, rule,
                    routes + (size_t)r * rule->top_k);
}

void experts_reroute(void *self, const struct expert_step *step, const float *logits,
                     const struct model_router *rule, struct route *routes)
{
    struct experts *e = self;
    struct asking asking = {e, step};
    const struct resident_first how = knobs_resident_first(&e->knobs);
    uint32_t replaced = 0;
    experts_log_candidates(e, step, logits, rule, routes);
    for (uint32_t r = 0; r < step->rows; r++)
        if (!step->row[r].prefill)
            replaced += resident_first_row(&how, rule, logits + (size_t)r * rule->experts, serves,
                                           &asking, &e->reroute, routes + (size_t)r * rule->top_k);
    if (replaced > 0)
        counter_add(e->child->process, CTR_COMPUTE_rerouted_accesses, replaced);
}
