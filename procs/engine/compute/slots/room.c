/* SPDX-License-Identifier: Apache-2.0 */
/* Finds memory of the pool for rows and versions, and gives up what the policy of reuse names. */
#include "procs/engine/compute/slots/room.h"

#include <inttypes.h>

#include "procs/engine/compute/slots/kept.h"
#include "procs/engine/compute/slots/slots.h"
#include "procs/engine/compute/slots/state.h"
#include "procs/engine/compute/slots/table.h"

/* Of kept slots, it is counted. `release`: of a version, the memory, too; else it is written again
 * soon. */
static void give_up(struct slots *p, const struct reuse_table *t, struct reuse_victim v,
                    bool release)
{
    uint32_t slot = v.slot != REUSE_NONE ? v.slot : t->version[v.version].slot;
    if (slot != REUSE_NONE && t->slot[slot].use == REUSE_KEPT)
        counter_add(p->child->process, CTR_COMPUTE_kv_kept_evictions, 1);
    if (v.slot != REUSE_NONE)
        kept_cut(p, v.slot, v.bytes);
    else if (release)
        state_release(p, v.version);
    else
        state_forget(p, v.version);
}

/* The same for lack of memory: with more, it would be kept. */
static void yield(struct slots *p, const struct reuse_table *t, struct reuse_victim v, bool release)
{
    if (v.slot != REUSE_NONE && t->slot[v.slot].use == REUSE_KEPT)
        worth_given_up(p, v.slot);
    give_up(p, t, v, release);
}

static int no_room(const struct slots *p, struct error *error)
{
    const struct kv *kv = &p->child->kv;
    return error_set(error, ERR_BUSY,
                     "no memory for keys and values: up to %" PRIu32
                     " sequences share that of one with %" PRIu32
                     " tokens; a larger --ctx-size or a smaller --parallel gives each more",
                     kv->sequences, kv->head->context);
}

int room_for_rows(struct slots *p, uint32_t slot, uint64_t bytes, struct error *error)
{
    struct slots_table s;
    struct reuse_victim v;
    if (!reuse_may_grow(slots_table(p, &s), slot, bytes))
        return no_room(p, error);
    while (v = reuse_yield(slots_table(p, &s), slot, bytes), !reuse_nothing(v))
        yield(p, &s.table, v, true);
    return reuse_fits(&s.table, slot, bytes) ? 0 : no_room(p, error);
}

uint32_t room_for_version(struct slots *p, uint32_t slot, uint32_t end)
{
    struct slots_table s;
    struct reuse_victim v;
    while (v = reuse_room(slots_table(p, &s), slot, end), !reuse_nothing(v))
        yield(p, &s.table, v, false);
    return reuse_write(&s.table, slot, end);
}

void room_limit_kept(struct slots *p, uint32_t most, uint64_t bytes)
{
    struct slots_table s;
    struct reuse_victim v;
    while (v = reuse_surplus(slots_table(p, &s), most, bytes), !reuse_nothing(v))
        give_up(p, &s.table, v, true);
}

bool room_from_kept(struct slots *p, uint32_t except, uint64_t bytes)
{
    struct slots_table s;
    struct reuse_victim v = reuse_least_dense(slots_table(p, &s), except, false);
    if (reuse_nothing(v))
        return false;
    v.bytes = v.bytes < bytes ? v.bytes : bytes;
    give_up(p, &s.table, v, true);
    return true;
}

void room_return(struct slots *p)
{
    struct slots_table s;
    struct reuse_victim v;
    uint64_t spare = slots_spare_bytes(p),
             has = counter_get(p->child->process, CTR_COMPUTE_kv_bytes);
    if (spare < p->spare_seen || has > p->child->kv.pool_bytes + spare) {
        while (v = reuse_excess(slots_table(p, &s)), !reuse_nothing(v))
            yield(p, &s.table, v, true);
        kept_publish(p);
    }
    p->spare_seen = spare;
    counter_set(p->child->process, CTR_COMPUTE_kv_spare_seen_bytes, spare);
}

uint32_t room_for_sequence(struct slots *p)
{
    struct slots_table s;
    uint32_t slot = reuse_slot(slots_table(p, &s));
    if (slot != REUSE_NONE && s.table.slot[slot].use == REUSE_KEPT)
        give_up(p, &s.table, (struct reuse_victim){slot, REUSE_NONE, UINT64_MAX}, true);
    return slot;
}
