/* SPDX-License-Identifier: Apache-2.0 */
/* Choice of the victim. A search visits the groups, the one most above its share first, and within
 * a group follows the policy's order; entries accessed in the running step come last. */
#include <math.h>

#include "lib/policy/residency/internal.h"

static bool candidate(const struct residency_search *s, uint32_t slot)
{
    return (s->r->node[slot].in_step == s->r->step) == s->running;
}

/* ---- orders of the policies ----------------------------------------------------------------- */

static double edgemoe(const struct residency *r, uint32_t slot, uint32_t d)
{
    const float *profile = r->config.frequency;
    double f =
        (double)(profile ? profile[residency_expert_of(r, slot)] : residency_frequency(r, slot));
    return d > 0 ? -f / d : -INFINITY;
}

/* HOBBIT eq. 3 times T S, a common factor that leaves whole numbers, so ties stay ties. Negated,
 * because the lowest priority is evicted. */
static double hobbit(const struct residency *r, uint32_t slot)
{
    const struct residency_config *c = &r->config;
    const struct residency_record *record = &r->record[residency_expert_of(r, slot)];
    uint32_t layer = residency_layer_of(r, slot), s = c->layers;
    double tokens = (double)(residency_tokens_now(r) - r->reset_at), records = 0;
    if (record->epoch == r->epoch)
        records = (double)c->w_lru * (double)record->last +
                  (double)c->w_lfu * (double)record->accesses +
                  (double)c->w_lhu * (double)record->high;
    uint32_t away = c->fld_next ? residency_distance(r, layer) - 1 : (layer + s - r->now.layer) % s;
    return -(s * records + (double)c->w_fld * (s - away) * tokens);
}

/* The priority times 1024 k T S, a common factor that leaves whole numbers: every token accesses k
 * experts of a layer, so a layer's accesses in T tokens are k T. */
static double activation(const struct residency *r, uint32_t slot)
{
    const struct residency_record *record = &r->record[residency_expert_of(r, slot)];
    double tokens = (double)(residency_tokens_now(r) - r->reset_at);
    double accesses = record->epoch == r->epoch ? (double)record->accesses : 0;
    return -(1024 * accesses + r->config.top_k * tokens) *
           (r->config.layers - residency_layer_of(r, slot));
}

double residency_score(struct residency *r, uint32_t slot)
{
    uint32_t layer = residency_layer_of(r, slot), s = r->config.layers;
    switch (r->rule) {
    case EVICTION_LFU: return -(double)r->node[slot].accesses;
    case EVICTION_EDGEMOE: return edgemoe(r, slot, residency_distance(r, layer));
    case EVICTION_EDGEMOE_PRINTED: return edgemoe(r, slot, (s - layer + r->now.layer) % s);
    case EVICTION_HOBBIT: return hobbit(r, slot);
    case EVICTION_ACTIVATION: return activation(r, slot);
    case EVICTION_LEARNED:
    case EVICTION_DECAYED:
        return -residency_access_probability(r, slot) / residency_distance(r, layer);
    case EVICTION_SCORE: return r->config.score(r->config.score_arg, slot);
    default: return 0; /* the tie rule alone: least recently used */
    }
}

/* A total order: score, then edgemoe's distance, then age. So may() is called only for better
 * candidates. */
static bool evicted_before(const struct residency *r, uint32_t a, double score_a, uint32_t b,
                           double score_b)
{
    if (score_a != score_b)
        return score_a > score_b;
    if (r->rule == EVICTION_EDGEMOE) {
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
        if (!candidate(s, slot))
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

static uint32_t by_list(const struct residency_search *s, const struct residency_group *g,
                        enum residency_list list)
{
    for (uint32_t slot = g->oldest[list]; slot != POLICY_NONE; slot = s->r->node[slot].newer)
        if (candidate(s, slot) && s->may(s->arg, slot))
            return slot;
    return POLICY_NONE;
}

static uint32_t by_arc(const struct residency_search *s, struct residency_group *g)
{
    enum residency_list list = arc_list_to_shrink(s->r, g, s->incoming);
    uint32_t slot = by_list(s, g, list);
    return slot != POLICY_NONE ? slot : by_list(s, g, list == LIST_T1 ? LIST_T2 : LIST_T1);
}

/* splitmix64: every seed is valid, 0 too. */
static uint64_t random_next(struct residency *r)
{
    uint64_t z = r->random += 0x9e3779b97f4a7c15ull;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

/* Draws without replacement: rejected slots are swapped out of the range still drawn from. */
static uint32_t by_random(const struct residency_search *s, const struct residency_group *g)
{
    struct residency *r = s->r;
    uint32_t *resident = r->resident + g->first;
    for (uint32_t left = g->resident; left > 0; left--) {
        uint32_t index = (uint32_t)(((random_next(r) >> 32) * left) >> 32);
        uint32_t slot = resident[index];
        if (candidate(s, slot) && s->may(s->arg, slot))
            return slot;
        resident[index] = resident[left - 1];
        resident[left - 1] = slot;
        r->node[resident[index]].index = index;
        r->node[slot].index = left - 1;
    }
    return POLICY_NONE;
}

static uint32_t in_group(const struct residency_search *s, struct residency_group *g)
{
    switch (s->r->rule) {
    case EVICTION_LRU:
    case EVICTION_FIFO: return by_list(s, g, LIST_T1);
    case EVICTION_ARC: return by_arc(s, g);
    case EVICTION_RANDOM: return by_random(s, g);
    default: return by_score(s, g);
    }
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
            if (n->superseded && candidate(s, slot) &&
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
