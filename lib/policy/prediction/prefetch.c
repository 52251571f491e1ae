/* SPDX-License-Identifier: Apache-2.0 */
/* Holds the limits of prefetch, and applies the chosen one to a predicted expert. */
#include "lib/policy/prediction/prefetch.h"

#include "lib/base/assert.h"

/* Predictions further ahead are too old to save reads. */
#define LAYERS_AHEAD_MAX 4
#define EVICT_TRIES_MAX  64 /* victims that were pinned after they were chosen */
/* A wrong prefetch costs a later miss on its victim; a correct one saves only the part of the read
 * that compute hides. Slower storage devices need a higher probability. Both values are measured
 * (docs/lab/prefetch.md). */
#define WORTH_A_VICTIM 0.2
#define WORTH_MAX      0.8

/* How many layers with experts there are after the running one up to the predicted one, of this
 * token or the next. */
static uint32_t layers_ahead(const struct prefetch_state *s)
{
    uint32_t count = 0, layer = s->layer_now;
    for (uint32_t i = 0; i < s->layers && layer != s->layer_predicted; i++) {
        layer = layer + 1 < s->layers ? layer + 1 : 0;
        count += expert_layers_has(&s->expert_layers, layer);
        if (count > LAYERS_AHEAD_MAX)
            break;
    }
    return count;
}

/* Rules that queue the predictions for a chunk after its demands. */
static bool queues_chunks(const struct prefetch_limit *l)
{
    return l->rule == PREFETCH_DEMAND_FIRST || l->rule == PREFETCH_CREDIT;
}

uint32_t prefetch_open_max(const struct prefetch_limit *l, const struct prefetch_state *s)
{
    uint32_t max = 2 * s->top_k;
    if (l->rule == PREFETCH_ALL || (s->prefill && queues_chunks(l)))
        return s->queue_depth;
    return max < s->queue_depth ? max : s->queue_depth;
}

/* In prefill the experts of the running layer need half of the capacity, while the other half is
 * loaded: prefetches beyond it would be evicted by demands before their layer. */
static bool half_is_free(const struct prefetch_state *s)
{
    return !s->prefill || s->prefetched_bytes <= s->capacity_bytes / 2;
}

static bool queue_has_space(const struct prefetch_limit *l, const struct prefetch_state *s)
{
    return s->prefetches_open < prefetch_open_max(l, s) && layers_ahead(s) > 0 &&
           layers_ahead(s) <= LAYERS_AHEAD_MAX && half_is_free(s);
}

static bool yields_to_demands(const struct prefetch_limit *l, const struct prefetch_state *s)
{
    bool queued = s->prefill && queues_chunks(l);
    return (s->demands_open == 0 || queued) && queue_has_space(l, s);
}

/* An eviction costs a certain read to save a possible one, so it needs a probability above the
 * victim's heat. Pending demands are no reason to wait: loaders read prefetches in the time that
 * demands leave, and between the demands of two layers there is no time for messages. */
static bool idle_allows(const struct prefetch_limit *l, const struct prefetch_state *s)
{
    if (!l->judge.on && !s->prefill && !s->certain) /* those of a chunk are nearly always right */
        return false;
    if (s->needs_eviction && !(s->probability >= l->worth && s->probability > s->victim_heat))
        return false;
    return queue_has_space(l, s);
}

void prefetch_limit_init(struct prefetch_limit *l, enum prefetch_rule rule)
{
    *l = (struct prefetch_limit){.rule = rule, .worth = (float)WORTH_A_VICTIM};
    prefetch_judge_init(&l->judge, rule == PREFETCH_AUTO);
}

bool prefetch_limit_allows(const struct prefetch_limit *l, const struct prefetch_state *s)
{
    switch (l->rule) {
    case PREFETCH_NONE: return false;
    case PREFETCH_IDLE: return idle_allows(l, s);
    case PREFETCH_DEMAND_FIRST: return yields_to_demands(l, s);
    case PREFETCH_UNTIL_ROUTER:
        return yields_to_demands(l, s) && s->prefetches_open == 0 && layers_ahead(s) == 1;
    case PREFETCH_CREDIT: return yields_to_demands(l, s) && (s->prefill || l->credit > 0);
    case PREFETCH_ALL: return queue_has_space(l, s);
    case PREFETCH_AUTO: return idle_allows(l, s);
    }
    sl_panic("prefetch rule %d", (int)l->rule);
}

void prefetch_limit_sent(struct prefetch_limit *l, const struct prefetch_state *s)
{
    if (!s->prefill && l->credit > 0)
        l->credit--;
}

void prefetch_limit_layer(struct prefetch_limit *l, double layer_ns, double expert_ns)
{
    if (!(layer_ns > 0) || !(expert_ns > 0))
        return;
    double worth = layer_ns < expert_ns ? WORTH_A_VICTIM * expert_ns / layer_ns : WORTH_A_VICTIM;
    l->worth = (float)(worth < WORTH_MAX ? worth : WORTH_MAX);
    double n = layer_ns / expert_ns;
    l->credit = n < PREFETCH_CREDIT_MAX ? (uint32_t)n : PREFETCH_CREDIT_MAX;
}

bool prefetch_protects(const struct prefetch_limit *l)
{
    return l->rule != PREFETCH_UNTIL_ROUTER;
}

/* ---- space ---------------------------------------------------------------------------------- */

static bool limits_by_heat(const struct prefetch_limit *l)
{
    return l->rule == PREFETCH_IDLE || l->rule == PREFETCH_AUTO;
}

/* Half a round of layers ahead or more counts as passed. */
static bool has_passed(const struct prefetch_state *s, uint32_t layer)
{
    uint32_t ahead = (layer + s->layers - s->layer_now) % s->layers;
    return ahead == 0 || ahead > s->layers / 2;
}

bool prefetch_may_evict(const struct prefetch_limit *l, const struct prefetch_state *s,
                        const struct prefetch_victim *victim)
{
    if (victim->hinted || victim->prefetched || (s->prefill && !has_passed(s, victim->layer)))
        return false;
    return !limits_by_heat(l) || victim->heat < s->probability;
}

bool prefetch_make_space(const struct prefetch_limit *l, struct prefetch_state *s,
                         const struct prefetch_space *space, uint32_t entry)
{
    for (int i = 0; i < EVICT_TRIES_MAX; i++) {
        uint32_t victim = 0;
        s->victim_heat = 0;
        s->needs_eviction = !space->fits(space->owner, entry);
        if (s->needs_eviction && !space->victim(space->owner, entry, s, &victim, &s->victim_heat))
            return false;
        if (!prefetch_limit_allows(l, s))
            return false;
        if (!s->needs_eviction)
            return true;
        space->evict(space->owner, victim);
    }
    return false;
}

bool prefetch_waits_for_space(const struct prefetch_limit *l, const struct prefetch_state *s)
{
    return s->prefill && queues_chunks(l);
}

/* ---- whether it is worth it ------------------------------------------------------------------ */

void prefetch_limit_token(struct prefetch_limit *l, double token_ns)
{
    if (limits_by_heat(l))
        prefetch_judge_token(&l->judge, token_ns);
}

void prefetch_limit_outcome(struct prefetch_limit *l, bool used, bool prefill)
{
    if (limits_by_heat(l) && !prefill)
        prefetch_judge_outcome(&l->judge, used);
}
