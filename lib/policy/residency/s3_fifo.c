/* SPDX-License-Identifier: Apache-2.0 */
/* The eviction S3-FIFO (J. Yang et al.: FIFO Queues are All You Need for Cache Eviction, SOSP 2023,
 * algorithm 1), in every group of the allocation. T1 is the small queue S, T2 the main queue M, B1
 * the ghost queue G; node.accesses is freq, at most 3.
 *
 * The paper's hand moves while it searches. A search must not (contract, rule 7), because the
 * caller may find its victim pinned. So `victim` only computes the order in which the hand would
 * arrive, and `evicted`, when the victim is known, moves the hand up to it. In M the hand takes 1
 * from freq in each round, so that it evicts the least freq first and, of equal ones, the oldest:
 * with the least freq f it passes whatever is older f + 1 times, whatever is younger f times. What
 * `may` rejected stays where it is, with freq 0.
 *
 * For entries of one size and a caller that never rejects a victim, the sequence of states is the
 * paper's, with one eviction for one insertion (in the paper an entry that moves to a full M evicts
 * one there in addition); tests/unit/lib/policy/residency/s3_fifo_test.c checks this. */
#include "lib/policy/residency/internal.h"

#define FREQ_MAX  3u
#define FREQ_ONCE 1u /* with more, an entry of S goes to M instead of to G */

static uint32_t small_entries(const struct residency *r, const struct residency_group *g)
{
    uint32_t tenth = residency_group_entries(r, g) / 10;
    return tenth > 0 ? tenth : 1;
}

static bool takes_from_small(const struct residency *r, const struct residency_group *g)
{
    return g->count[LIST_T1] >= small_entries(r, g);
}

/* The oldest victim in a list with freq in least..most. */
static uint32_t oldest_with(const struct residency_search *s, const struct residency_group *g,
                            enum residency_list list, uint32_t least, uint32_t most)
{
    uint32_t slot = g->oldest[list];
    for (; slot != POLICY_NONE; slot = s->r->node[slot].newer) {
        uint32_t freq = s->r->node[slot].accesses;
        if (freq >= least && freq <= most && residency_candidate(s, slot))
            break;
    }
    return slot;
}

static uint32_t victim(const struct residency_search *s, struct residency_group *g)
{
    bool from_small = takes_from_small(s->r, g);
    uint32_t slot = from_small ? oldest_with(s, g, LIST_T1, 0, FREQ_ONCE) : (uint32_t)POLICY_NONE;
    for (uint32_t freq = 0; slot == POLICY_NONE && freq <= FREQ_MAX; freq++) {
        slot = oldest_with(s, g, LIST_T2, freq, freq);
        if (slot == POLICY_NONE && from_small && freq == 0) /* they would be the youngest of M */
            slot = oldest_with(s, g, LIST_T1, FREQ_ONCE + 1, FREQ_MAX);
    }
    if (slot == POLICY_NONE && !from_small)
        slot = residency_oldest(s, g, LIST_T1);
    return slot;
}

/* ---- the hand ------------------------------------------------------------------------------- */

static void to_main(struct residency *r, uint32_t slot, uint32_t freq)
{
    residency_list_remove(r, slot);
    residency_list_append(r, slot, LIST_T2);
    r->node[slot].accesses = freq;
}

/* The entries of S before `end` that were accessed more than once go to M. */
static void pass_small(struct residency *r, const struct residency_group *g, uint32_t end)
{
    for (uint32_t slot = g->oldest[LIST_T1], newer; slot != end; slot = newer) {
        newer = r->node[slot].newer;
        if (r->node[slot].accesses > FREQ_ONCE)
            to_main(r, slot, 0);
    }
}

static void pass_main(struct residency *r, const struct residency_group *g, uint32_t victim_slot)
{
    uint32_t rounds = r->node[victim_slot].accesses, newer;
    for (uint32_t slot = r->node[victim_slot].newer; slot != POLICY_NONE;
         slot = r->node[slot].newer) {
        struct residency_node *n = &r->node[slot];
        n->accesses -= n->accesses < rounds ? n->accesses : rounds;
    }
    for (uint32_t slot = g->oldest[LIST_T2]; slot != victim_slot; slot = newer) {
        newer = r->node[slot].newer;
        if (r->node[slot].accesses > rounds)
            to_main(r, slot, r->node[slot].accesses - rounds - 1);
        else
            r->node[slot].accesses = 0;
    }
}

static void trim_ghosts(struct residency *r, struct residency_group *g)
{
    uint32_t most = residency_group_entries(r, g) - small_entries(r, g);
    while (g->count[LIST_B1] > most)
        residency_list_remove(r, g->oldest[LIST_B1]);
}

static void evicted(struct residency *r, uint32_t slot)
{
    const struct residency_node *n = &r->node[slot];
    struct residency_group *g = &r->group[n->group];
    bool by_hand = !n->superseded;
    if (by_hand && takes_from_small(r, g))
        pass_small(r, g, n->list == LIST_T1 && n->accesses <= FREQ_ONCE ? slot : POLICY_NONE);
    if (by_hand && n->list == LIST_T2)
        pass_main(r, g, slot);
    bool once = n->list == LIST_T1;
    residency_list_remove(r, slot);
    if (once)
        residency_list_append(r, slot, LIST_B1);
    trim_ghosts(r, g);
}

/* ---- requests ------------------------------------------------------------------------------- */

/* A prefetch is no request: its ghost takes effect at the first access. */
static void insert(struct residency *r, uint32_t slot, bool prefetched)
{
    struct residency_node *n = &r->node[slot];
    uint8_t ghost = n->list;
    if (ghost != LIST_NONE)
        residency_list_remove(r, slot);
    n->ghost = prefetched ? ghost : LIST_NONE;
    residency_list_append(r, slot, !prefetched && ghost != LIST_NONE ? LIST_T2 : LIST_T1);
}

static void accessed(struct residency *r, uint32_t slot)
{
    struct residency_node *n = &r->node[slot];
    if (n->prefetched && n->ghost != LIST_NONE)
        to_main(r, slot, 0);
    if (n->prefetched)
        n->accesses = 0;
    n->ghost = LIST_NONE;
    n->accesses = n->accesses < FREQ_MAX ? n->accesses : FREQ_MAX;
}

EVICTION_RULE(EVICTION_S3FIFO) = {
    .victim = victim, .insert = insert, .accessed = accessed, .evicted = evicted};
