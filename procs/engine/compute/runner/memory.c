/* SPDX-License-Identifier: Apache-2.0 */
/* Shares the memory of keys and values among the sequences that run. */
#include "procs/engine/compute/runner/memory.h"

#include "procs/engine/compute/runner/runner.h"
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
                       : kept_admits(&r->slots, s->request, s->log, tokens);
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

bool memory_ready(struct runner *r, struct sequence *s)
{
    struct sequence *later;
    struct error error;
    if (waits(r, s))
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
    for (uint32_t i = 0; i < r->sequences; i++)
        if (r->sequence[i].request && (!has_slot(&r->sequence[i]) || !fits(r, &r->sequence[i])))
            return false;
    return kept_admits(&r->slots, q, log, sequence_get(&q->log_tokens));
}
