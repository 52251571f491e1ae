/* SPDX-License-Identifier: Apache-2.0 */
/* Choice of the victim. A search visits the groups, the one most above its share first, and within
 * a group follows the rule's order; entries accessed in the running step come last. */
#include "lib/policy/residency/internal.h"

/* ---- within a group ------------------------------------------------------------------------- */

/* The caller is asked later, and only for those that are better than what was found before. */
static bool in_phase(const struct residency_search *s, uint32_t slot)
{
    return (s->r->node[slot].in_step == s->r->step) == s->running;
}

bool residency_candidate(const struct residency_search *s, uint32_t slot)
{
    return in_phase(s, slot) && s->may(s->arg, slot);
}

double residency_score(struct residency *r, uint32_t slot)
{
    return r->rule->score ? r->rule->score(r, slot) : 0;
}

/* A total order: score, then distance if the rule has it, then age. */
static bool evicted_before(const struct residency *r, uint32_t a, double score_a, uint32_t b,
                           double score_b)
{
    if (score_a != score_b)
        return score_a > score_b;
    if (r->rule->far_first) {
        uint32_t da = residency_distance(r, residency_layer_of(r, a));
        uint32_t db = residency_distance(r, residency_layer_of(r, b));
        if (da != db)
            return da > db;
    }
    return r->node[a].last < r->node[b].last;
}

static uint32_t by_score(const struct residency_search *s, const struct residency_group *g)
{
    struct residency *r = s->r;
    uint32_t best = POLICY_NONE;
    double best_score = 0;
    for (uint32_t i = 0; i < g->resident; i++) {
        uint32_t slot = r->resident[g->first + i];
        if (!in_phase(s, slot))
            continue;
        double score = residency_score(r, slot);
        if (best != POLICY_NONE && !evicted_before(r, slot, score, best, best_score))
            continue;
        if (!s->may(s->arg, slot))
            continue;
        best = slot;
        best_score = score;
    }
    return best;
}

uint32_t residency_oldest(const struct residency_search *s, const struct residency_group *g,
                          enum residency_list list)
{
    uint32_t slot = g->oldest[list];
    while (slot != POLICY_NONE && !residency_candidate(s, slot))
        slot = s->r->node[slot].newer;
    return slot;
}

static uint32_t in_group(const struct residency_search *s, struct residency_group *g)
{
    return s->r->rule->victim ? s->r->rule->victim(s, g) : by_score(s, g);
}

/* ---- groups --------------------------------------------------------------------------------- */

/* Bytes above the share with the incoming slot counted. */
static int64_t excess(const struct residency_search *s, uint32_t group)
{
    const struct residency_group *g = &s->r->group[group];
    uint64_t bytes = g->bytes;
    if (s->incoming != POLICY_NONE && s->r->node[s->incoming].group == group)
        bytes += residency_slot_bytes(s->r, s->incoming);
    return (int64_t)bytes - (int64_t)g->share;
}

/* The unvisited group that is most above its share; POLICY_NONE when all were visited. */
static uint32_t next_group(const struct residency_search *s)
{
    struct residency *r = s->r;
    uint32_t best = POLICY_NONE;
    uint32_t own = s->incoming == POLICY_NONE ? POLICY_NONE : r->node[s->incoming].group;
    int64_t max = 0;
    for (uint32_t g = 0; g < r->groups_count; g++) {
        if (r->group[g].visited == r->visit || r->group[g].resident == 0)
            continue;
        int64_t x = excess(s, g);
        if (best == POLICY_NONE || x > max || (x == max && g == own)) {
            best = g;
            max = x;
        }
    }
    if (best != POLICY_NONE)
        r->group[best].visited = r->visit;
    return best;
}

uint32_t residency_in_all_groups(const struct residency_search *s)
{
    s->r->visit++;
    for (uint32_t g; (g = next_group(s)) != POLICY_NONE;) {
        uint32_t slot = in_group(s, &s->r->group[g]);
        if (slot != POLICY_NONE)
            return slot;
    }
    return POLICY_NONE;
}

/* The least recently used slot whose expert is also resident at a higher precision. */
static uint32_t oldest_superseded(const struct residency_search *s)
{
    struct residency *r = s->r;
    uint32_t best = POLICY_NONE;
    for (uint32_t g = 0; g < r->groups_count; g++)
        for (uint32_t i = 0; i < r->group[g].resident; i++) {
            uint32_t slot = r->resident[r->group[g].first + i];
            const struct residency_node *n = &r->node[slot];
            if (n->superseded && in_phase(s, slot) &&
                (best == POLICY_NONE || n->last < r->node[best].last) && s->may(s->arg, slot))
                best = slot;
        }
    return best;
}

uint32_t residency_victim(struct residency *r, uint32_t incoming,
                          bool (*may)(void *arg, uint32_t slot), void *arg)
{
    struct residency_search s = {.r = r, .incoming = incoming, .may = may, .arg = arg};
    OBJ_CHECK(r, RESIDENCY_MAGIC);
    sl_assert(incoming == POLICY_NONE || incoming < r->slots);
    uint32_t slot = r->superseded_count > 0 ? oldest_superseded(&s) : POLICY_NONE;
    if (slot != POLICY_NONE)
        return slot;
    if ((slot = residency_in_all_groups(&s)) != POLICY_NONE)
        return slot;
    s.running = true;
    return residency_in_all_groups(&s);
}

/* Half a round of layers ahead or more counts as passed. */
static bool layer_has_passed(const struct residency *r, uint32_t slot)
{
    uint32_t s = r->config.layers;
    return (residency_layer_of(r, slot) + s - r->now.layer) % s > s / 2;
}

uint32_t residency_expired(struct residency *r, bool (*may)(void *arg, uint32_t slot), void *arg)
{
    OBJ_CHECK(r, RESIDENCY_MAGIC);
    if (r->allocation != ALLOCATE_TRANSIENT)
        return POLICY_NONE;
    const struct residency_group *g = &r->group[0];
    for (uint32_t i = 0; i < g->resident; i++) {
        uint32_t slot = r->resident[g->first + i];
        if (residency_layer_of(r, slot) == r->now.layer)
            continue;
        if ((!r->node[slot].prefetched || layer_has_passed(r, slot)) && may(arg, slot))
            return slot;
    }
    return POLICY_NONE;
}
