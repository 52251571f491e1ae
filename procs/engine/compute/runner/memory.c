/* SPDX-License-Identifier: Apache-2.0 */
/* Shares the memory of keys and values among the sequences that run. */
#include "procs/engine/compute/runner/memory.h"

#include "lib/base/log.h"
#include "procs/engine/compute/runner/runner.h"
#include "procs/engine/compute/slots/alike.h"
#include "procs/engine/compute/slots/kept.h"

static bool has_slot(const struct sequence *s)
{
    return s->slot != KEPT_NONE;
}

/* Its slot can hold its log. */
static bool has_memory(const struct runner *r, const struct sequence *s)
{
    return has_slot(s) && sequence_get(&s->request->log_tokens) <=
                              sequence_get(&r->child->kv.head->slot[s->slot].allocated);
}

/* Or the memory that the others leave suffices. */
static bool fits(const struct runner *r, const struct sequence *s)
{
    if (has_memory(r, s))
        return true;
    uint32_t tokens = sequence_growth(s);
    return has_slot(s) ? kept_fits(&r->slots, s->slot, tokens)
                       : kept_admits(&r->slots, s->request, s->log, tokens, 0);
}

/* Of those with a slot, the last in turn, if after s. */
static struct sequence *latest_after(const struct runner *r, const struct sequence *s)
{
    struct sequence *found = NULL;
    uint64_t last = sequence_turn(s->request);
    for (uint32_t i = 0; i < r->sequences; i++) {
        struct sequence *other = &r->sequence[i];
        if (!other->request || !has_slot(other) || sequence_turn(other->request) <= last)
            continue;
        found = other;
        last = sequence_turn(other->request);
    }
    return found;
}

static bool is_oldest(const struct runner *r, const struct sequence *s)
{
    for (uint32_t i = 0; i < r->sequences; i++)
        if (r->sequence[i].request &&
            sequence_turn(r->sequence[i].request) < sequence_turn(s->request))
            return false;
    return true;
}

/* Without a slot it stays so until another one has ended: else the older ones, which grow, would
 * take it again at once. */
static bool waits(const struct runner *r, const struct sequence *s)
{
    return !has_slot(s) && s->paused == r->ended && !is_oldest(r, s);
}

/* ---- rows of another one ---- */

struct lead {
    struct sequence *leader; /* NULL: none */
    uint32_t rows;           /* that it gives */
};

/* One at which compute may crash, or that ends, computes nothing for others. */
static bool may_lead(const struct sequence *s)
{
    return s->request && has_slot(s) && !sequence_get(&s->request->cancel) &&
           !sequence_is_suspect(s);
}

static struct lead find_leader(const struct runner *r, const struct kv_request *q,
                               const _Atomic uint32_t *log)
{
    struct schedule_leader leaders[RUNNER_SEQUENCES_MAX];
    struct sequence *of[RUNNER_SEQUENCES_MAX];
    uint32_t count = 0;
    for (uint32_t i = 0; i < r->sequences && kept_may(&r->slots, q); i++) {
        struct sequence *s = &r->sequence[i];
        uint32_t gives = may_lead(s) ? alike_gives(&r->slots, s->slot, q, log) : 0;
        if (gives == 0)
            continue;
        of[count] = s;
        leaders[count++] = (struct schedule_leader){.turn = sequence_turn(s->request),
                                                    .rows = sequence_get(&s->request->kv_valid),
                                                    .gives = gives,
                                                    .side = sequence_is_side(s->request)};
    }
    if (count == 0)
        return (struct lead){.leader = NULL};
    const struct schedule_follower f = {.turn = sequence_turn(q),
                                        .rows = alike_rows(&r->slots, q, log),
                                        .side = sequence_is_side(q)};
    uint32_t found = schedule_leader(leaders, count, &f, &r->pace);
    return found == SCHEDULE_NONE ? (struct lead){.leader = NULL}
                                  : (struct lead){of[found], leaders[found].gives};
}

/* Whether the leader still computes the rows. */
static bool leads(const struct sequence *s)
{
    const struct sequence *l = s->leader;
    return l && may_lead(l) && atomic_load(&l->request->id) == s->leader_id &&
           sequence_get(&l->request->kv_valid) < s->awaits;
}

static void follow(struct runner *r, struct sequence *s, struct lead lead)
{
    s->leader_id = atomic_load(&lead.leader->request->id);
    s->awaits = lead.rows;
    alike_await(&r->slots, lead.leader->slot, lead.rows);
    log_debug("sequence %llu: waits for %u rows of sequence %llu",
              (unsigned long long)atomic_load(&s->request->id), lead.rows,
              (unsigned long long)s->leader_id);
    if (sequence_get(&r->follows[s->row]) == 0)
        counter_add(r->child->process, CTR_COMPUTE_sequences_followed, 1);
}

bool memory_follows(struct runner *r, struct sequence *s)
{
    if (has_slot(s) || leads(s))
        return !has_slot(s);
    struct lead lead = find_leader(r, s->request, s->log);
    if (lead.leader)
        follow(r, s, lead);
    s->leader = lead.leader;
    atomic_store_explicit(&r->follows[s->row], lead.leader ? lead.leader->row + 1 : 0,
                          memory_order_relaxed);
    return lead.leader != NULL;
}

/* ---- whether there is memory ---- */

bool memory_ready(struct runner *r, struct sequence *s)
{
    struct sequence *later;
    struct error error;
    if (waits(r, s) || memory_follows(r, s))
        return false;
    while (!fits(r, s)) {
        if ((later = latest_after(r, s)) == NULL)
            return false;
        sequence_pause(later);
    }
    if (has_memory(r, s) ||
        (has_slot(s) ? sequence_grow(s, &error) : sequence_resume(s, &error)) == 0)
        return has_memory(r,
                          s); /* not if it shares less than fits() expected: it grows next time */
    sequence_fail(s, &error);
    return false;
}

bool memory_admits(const struct runner *r, const struct kv_request *q, const _Atomic uint32_t *log)
{
    uint32_t tokens = sequence_get(&q->log_tokens);
    uint64_t promised = 0;
    for (uint32_t i = 0; i < r->sequences; i++) {
        const struct sequence *s = &r->sequence[i];
        if (!s->request)
            continue;
        if (!has_slot(s) && leads(s)) /* else it begins before any later one */
            promised += kept_promise(&r->slots, sequence_growth(s), s->awaits);
        else if (!has_slot(s) || !fits(r, s))
            return false;
    }
    struct lead lead = find_leader(r, q, log);
    return lead.leader ? kept_has_room(&r->slots,
                                       promised + kept_bytes_beside(&r->slots, tokens, lead.rows))
                       : kept_admits(&r->slots, q, log, tokens, promised);
}
