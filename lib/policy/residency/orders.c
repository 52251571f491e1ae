/* SPDX-License-Identifier: Apache-2.0 */
/* The evictions that need no more than a score of a slot or one list. */
#include <math.h>

#include "lib/policy/residency/internal.h"

/* ---- lists ---------------------------------------------------------------------------------- */

static uint32_t first_of_list(const struct residency_search *s, struct residency_group *g)
{
    return residency_oldest(s, g, LIST_T1);
}

static void stay(struct residency *r, uint32_t slot)
{
    (void)r;
    (void)slot;
}

EVICTION_RULE(EVICTION_LRU) = {.victim = first_of_list};
EVICTION_RULE(EVICTION_FIFO) = {.victim = first_of_list, .accessed = stay};

/* ---- random --------------------------------------------------------------------------------- */

/* splitmix64: every seed is valid, 0 too. */
static uint64_t random_next(struct residency *r)
{
    uint64_t z = r->random += 0x9e3779b97f4a7c15ull;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

/* Draws without replacement: rejected slots are swapped out of the range still drawn from. */
static uint32_t draw(const struct residency_search *s, struct residency_group *g)
{
    struct residency *r = s->r;
    uint32_t *resident = r->resident + g->first;
    for (uint32_t left = g->resident; left > 0; left--) {
        uint32_t index = (uint32_t)(((random_next(r) >> 32) * left) >> 32);
        uint32_t slot = resident[index];
        if (residency_candidate(s, slot))
            return slot;
        resident[index] = resident[left - 1];
        resident[left - 1] = slot;
        r->node[resident[index]].index = index;
        r->node[slot].index = left - 1;
    }
    return POLICY_NONE;
}

EVICTION_RULE(EVICTION_RANDOM) = {.victim = draw};

/* ---- scores --------------------------------------------------------------------------------- */

static double lfu(struct residency *r, uint32_t slot)
{
    return -(double)r->node[slot].accesses;
}

EVICTION_RULE(EVICTION_LFU) = {.score = lfu};

static double by_frequency(const struct residency *r, uint32_t slot, uint32_t d)
{
    const float *profile = r->config.frequency;
    double f =
        (double)(profile ? profile[residency_expert_of(r, slot)] : residency_frequency(r, slot));
    return d > 0 ? -f / d : -INFINITY;
}

static double edgemoe(struct residency *r, uint32_t slot)
{
    return by_frequency(r, slot, residency_distance(r, residency_layer_of(r, slot)));
}

static double edgemoe_printed(struct residency *r, uint32_t slot)
{
    uint32_t s = r->config.layers;
    return by_frequency(r, slot, (s - residency_layer_of(r, slot) + r->now.layer) % s);
}

EVICTION_RULE(EVICTION_EDGEMOE) = {.score = edgemoe, .far_first = true};
EVICTION_RULE(EVICTION_EDGEMOE_PRINTED) = {.score = edgemoe_printed};

/* HOBBIT eq. 3 times T S, a common factor that leaves whole numbers, so ties stay ties. Negated,
 * because the lowest priority is evicted. */
static double hobbit(struct residency *r, uint32_t slot)
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

EVICTION_RULE(EVICTION_HOBBIT) = {.score = hobbit};

/* The priority times 1024 k T S, a common factor that leaves whole numbers: every token accesses k
 * experts of a layer, so a layer's accesses in T tokens are k T. */
static double activation(struct residency *r, uint32_t slot)
{
    const struct residency_record *record = &r->record[residency_expert_of(r, slot)];
    double tokens = (double)(residency_tokens_now(r) - r->reset_at);
    double accesses = record->epoch == r->epoch ? (double)record->accesses : 0;
    return -(1024 * accesses + r->config.top_k * tokens) *
           (r->config.layers - residency_layer_of(r, slot));
}

EVICTION_RULE(EVICTION_ACTIVATION) = {.score = activation};

static double of_caller(struct residency *r, uint32_t slot)
{
    return r->config.score(r->config.score_arg, slot);
}

EVICTION_RULE(EVICTION_SCORE) = {.score = of_caller};
