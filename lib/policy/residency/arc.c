/* SPDX-License-Identifier: Apache-2.0 */
/* The eviction ARC (N. Megiddo, D. Modha: ARC: A Self-Tuning, Low Overhead Replacement Cache, FAST
 * 2003, fig. 4), in every group of the allocation. T1 and T2 are resident: accessed once, accessed
 * more than once; B1 and B2 are ghosts of entries evicted from them; p (group.target) is the target
 * size of T1.
 *
 * The paper's REPLACE has three steps here, because the caller may find the victim pinned: the
 * choice of a list (list_to_shrink), the eviction (evicted), the insertion (insert),
 * which adapts p and trims the ghosts. For entries of one size and a caller that never rejects a
 * victim, the sequence of states is the paper's; tests/unit/lib/policy/residency/arc_test.c checks
 * this. */
#include "lib/policy/residency/internal.h"

/* p after a request for an entry of that list. */
static double adapted(const struct residency *r, const struct residency_group *g, uint8_t list)
{
    double b1 = g->count[LIST_B1], b2 = g->count[LIST_B2], p = g->target;
    if (list == LIST_B1) {
        double max = residency_group_entries(r, g), up = b1 > 0 && b2 > b1 ? b2 / b1 : 1;
        return p + up < max ? p + up : max;
    }
    if (list == LIST_B2) {
        double down = b2 > 0 && b1 > b2 ? b1 / b2 : 1;
        return p > down ? p - down : 0;
    }
    return p;
}

/* The list of the group that REPLACE would take from. Stores p as the request changes it: the paper
 * adapts it before the victim becomes a ghost. */
static enum residency_list list_to_shrink(struct residency *r, struct residency_group *g,
                                          uint32_t incoming)
{
    uint8_t list = LIST_NONE;
    double p = g->target, t1 = g->count[LIST_T1];
    if (incoming != POLICY_NONE && &r->group[r->node[incoming].group] == g) {
        list = r->node[incoming].list;
        if (g->queried != incoming)
            g->queried_target = adapted(r, g, list);
        g->queried = incoming;
        p = g->queried_target;
    }
    bool from_t1 = t1 >= 1 && (t1 > p || (list == LIST_B2 && t1 == p));
    return from_t1 || g->count[LIST_T2] == 0 ? LIST_T1 : LIST_T2;
}

static void drop_oldest(struct residency *r, struct residency_group *g, enum residency_list list)
{
    residency_list_remove(r, g->oldest[list]);
}

static void trim_ghosts(struct residency *r, struct residency_group *g)
{
    uint32_t c = residency_group_entries(r, g);
    while (g->count[LIST_B1] > 0 && g->count[LIST_T1] + g->count[LIST_B1] > c)
        drop_oldest(r, g, LIST_B1);
    while (g->count[LIST_B2] > 0 &&
           g->count[LIST_T1] + g->count[LIST_T2] + g->count[LIST_B1] + g->count[LIST_B2] > 2 * c)
        drop_oldest(r, g, LIST_B2);
}

static void insert(struct residency *r, uint32_t slot, bool prefetched)
{
    struct residency_node *n = &r->node[slot];
    struct residency_group *g = &r->group[n->group];
    uint8_t ghost = n->list;
    if (!prefetched)
        g->target = g->queried == slot ? g->queried_target : adapted(r, g, ghost);
    g->queried = POLICY_NONE;
    if (ghost != LIST_NONE)
        residency_list_remove(r, slot);
    /* A prefetch is no request: its ghost list takes effect at the first access. */
    n->ghost = prefetched ? ghost : LIST_NONE;
    residency_list_append(r, slot, !prefetched && ghost != LIST_NONE ? LIST_T2 : LIST_T1);
    trim_ghosts(r, g);
}

static void accessed(struct residency *r, uint32_t slot)
{
    struct residency_node *n = &r->node[slot];
    struct residency_group *g = &r->group[n->group];
    bool first = n->prefetched && n->ghost == LIST_NONE;
    g->target = adapted(r, g, n->ghost);
    g->queried = POLICY_NONE;
    n->ghost = LIST_NONE;
    residency_list_remove(r, slot);
    residency_list_append(r, slot, first ? LIST_T1 : LIST_T2);
}

static void evicted(struct residency *r, uint32_t slot)
{
    enum residency_list from = (enum residency_list)r->node[slot].list;
    sl_assert(from == LIST_T1 || from == LIST_T2);
    residency_list_remove(r, slot);
    residency_list_append(r, slot, from == LIST_T1 ? LIST_B1 : LIST_B2);
}

static uint32_t victim(const struct residency_search *s, struct residency_group *g)
{
    enum residency_list list = list_to_shrink(s->r, g, s->incoming);
    uint32_t slot = residency_oldest(s, g, list);
    return slot != POLICY_NONE ? slot : residency_oldest(s, g, list == LIST_T1 ? LIST_T2 : LIST_T1);
}

EVICTION_RULE(EVICTION_ARC) = {
    .victim = victim, .insert = insert, .accessed = accessed, .evicted = evicted};
