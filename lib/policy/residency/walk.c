/* SPDX-License-Identifier: Apache-2.0 */
/* All resident slots in the order in which residency_victim (victim.c) would choose them. */
#include "lib/policy/residency/internal.h"

/* The phases of residency_victim. */
enum { SUPERSEDED, OTHERS, RUNNING };

static struct residency_rank rank_of(struct residency *r, uint32_t slot)
{
    const struct residency_node *n = &r->node[slot];
    struct residency_rank k = {.slot = slot, .last = n->last, .phase = OTHERS};
    if (n->in_step == r->step)
        k.phase = RUNNING;
    else if (n->superseded)
        k.phase = SUPERSEDED;
    if (k.phase == SUPERSEDED) /* by age alone */
        return k;
    k.score = residency_score(r, slot);
    if (r->rule->far_first)
        k.distance = residency_distance(r, residency_layer_of(r, slot));
    return k;
}

static bool before(const struct residency_rank *a, const struct residency_rank *b)
{
    if (a->phase != b->phase)
        return a->phase < b->phase;
    if (a->score != b->score)
        return a->score > b->score;
    if (a->distance != b->distance)
        return a->distance > b->distance;
    return a->last < b->last;
}

/* A heap: each is before its two children. */
static void sift(struct residency_rank *heap, uint32_t count, uint32_t at)
{
    const struct residency_rank moved = heap[at];
    for (uint32_t child; (child = 2 * at + 1) < count; at = child) {
        child += child + 1 < count && before(&heap[child + 1], &heap[child]);
        if (!before(&heap[child], &moved))
            break;
        heap[at] = heap[child];
    }
    heap[at] = moved;
}

/* Those that are superseded, or all. */
static uint32_t collect(struct residency *r, bool superseded)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < r->group[0].resident; i++) {
        const struct residency_rank k = rank_of(r, r->resident[i]);
        if (!superseded || k.phase == SUPERSEDED)
            r->rank[count++] = k;
    }
    for (uint32_t i = count / 2; i-- > 0;)
        sift(r->rank, count, i);
    return count;
}

static bool visit_ranks(struct residency *r, uint32_t count, const struct residency_search *s)
{
    for (; count > 0; count--) {
        if (s->may(s->arg, r->rank[0].slot))
            return true;
        r->rank[0] = r->rank[count - 1];
        sift(r->rank, count - 1, 0);
    }
    return false;
}

void residency_walk(struct residency *r, uint32_t incoming, bool (*visit)(void *arg, uint32_t slot),
                    void *arg)
{
    struct residency_search s = {.r = r, .incoming = incoming, .may = visit, .arg = arg};
    OBJ_CHECK(r, RESIDENCY_MAGIC);
    sl_assert(r->rank && r->groups_count == 1);
    if (!r->rule->victim) {
        visit_ranks(r, collect(r, false), &s);
        return;
    }
    if (r->superseded_count > 0 && visit_ranks(r, collect(r, true), &s))
        return;
    if (residency_in_all_groups(&s) != POLICY_NONE)
        return;
    s.running = true;
    residency_in_all_groups(&s);
}
