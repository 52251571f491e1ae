/* SPDX-License-Identifier: Apache-2.0 */
/* Finds memory of the pool for rows and versions, and gives up what the policy of reuse names. */
#include "procs/engine/compute/slots/room.h"

#include <inttypes.h>

#include "procs/engine/compute/slots/kept.h"
#include "procs/engine/compute/slots/slots.h"
#include "procs/engine/compute/slots/state.h"
#include "procs/engine/compute/slots/table.h"

static void give_up(struct slots *p, struct reuse_victim v)
{
    if (v.slot != REUSE_NONE)
        kept_empty(p, v.slot);
    else
        state_release(p, v.version);
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

int room_for_rows(struct slots *p, uint32_t slot, uint32_t tokens, struct error *error)
{
    struct slots_table s;
    struct reuse_victim v;
    uint64_t bytes = kv_tokens_bytes(&p->child->kv, tokens);
    if (!reuse_may_grow(slots_table(p, &s), slot, bytes))
        return no_room(p, error);
    while (v = reuse_yield(slots_table(p, &s), slot, bytes), !reuse_nothing(v))
        give_up(p, v);
    return 0;
}

uint32_t room_for_version(struct slots *p, uint32_t slot, uint32_t end, uint32_t point)
{
    struct slots_table s;
    struct reuse_victim v;
    while (v = reuse_room(slots_table(p, &s), slot, end), !reuse_nothing(v))
        if (v.slot != REUSE_NONE)
            kept_empty(p, v.slot);
        else /* its memory is written by the pass */
            state_forget(p, v.version);
    return reuse_write(&s.table, slot, end, point);
}
