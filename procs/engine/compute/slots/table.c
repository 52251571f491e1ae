/* SPDX-License-Identifier: Apache-2.0 */
/* Tables of slots and versions, filled from the kv segment for the policy of reuse. */
#include "procs/engine/compute/slots/table.h"

#include <string.h>

#include "procs/engine/compute/slots/slots.h"

_Static_assert(KV_TURNS_MAX == REUSE_TURNS_MAX, "one list");

const struct kv_request *slots_request(const struct slots *p, uint32_t slot, uint32_t *row)
{
    const struct kv_head *head = p->child->kv.head;
    uint64_t owner = atomic_load(&head->slot[slot].owner);
    for (*row = 0; owner != 0 && *row < KV_REQUESTS_MAX; ++*row)
        if (atomic_load(&head->request[*row].state) == KV_RUNNING &&
            atomic_load(&head->request[*row].id) == owner)
            return &head->request[*row];
    return NULL;
}

uint32_t slots_rows(const struct slots *p, uint32_t slot)
{
    const struct kv_slot *s = &p->child->kv.head->slot[slot];
    uint32_t row;
    if (atomic_load(&s->owner) == 0)
        return atomic_load(&s->rows);
    const struct kv_request *q = slots_request(p, slot, &row);
    return q ? atomic_load(&q->kv_valid) : 0;
}

static struct reuse_slot slot_of(const struct slots *p, uint32_t slot)
{
    const struct kv_slot *s = &p->child->kv.head->slot[slot];
    uint32_t row, rows = slots_rows(p, slot);
    const struct kv_request *q = slots_request(p, slot, &row);
    struct reuse_slot out = {
        .use = atomic_load(&s->owner) != 0 || p->copied == slot + 1 ? REUSE_RUNNING
               : rows > 0                                           ? REUSE_KEPT
                                                                    : REUSE_EMPTY,
        .side = s->side != 0,
        .rows = rows,
        .lowest = atomic_load(&s->lowest),
        .prompt = q ? atomic_load(&q->prompt_tokens) : s->prompt,
        .branch = s->branch,
        .start = s->start,
        .shared = s->shared,
        .used = s->used,
        .uses = s->uses,
        .cost_ns = s->cost_ns > 0 ? s->cost_ns : rows, /* a row costs something */
        .bytes = kv_tokens_bytes(&p->child->kv, atomic_load(&s->allocated)),
    };
    memcpy(out.turns, q ? q->turns : s->turns, sizeof out.turns);
    return out;
}

static struct reuse_version version_of(const struct slots *p, uint32_t version)
{
    const struct kv *kv = &p->child->kv;
    const struct kv_version *v = &kv->head->state[version];
    uint64_t tag = atomic_load(&v->tag);
    uint32_t slot = KV_STATE_SLOT(tag);
    return (struct reuse_version){
        .slot = slot < kv->slots ? slot : REUSE_NONE,
        .rows = KV_STATE_ROWS(tag),
        .checkpoint = KV_STATE_IS_KEPT(tag),
        .memory = atomic_load(&v->allocated) != 0,
        .busy = p->writes[version] != 0 || p->copied_version == version + 1,
    };
}

const struct reuse_table *slots_table(const struct slots *p, struct slots_table *s)
{
    const struct kv *kv = &p->child->kv;
    const struct kv_head *head = kv->head;
    s->table = (struct reuse_table){.recurrent = head->windows_offset > 0,
                                    .rings = head->ring > 0,
                                    .slots = kv->slots,
                                    .versions = head->state_bytes > 0 ? kv->states : 0,
                                    .version_bytes = head->state_bytes,
                                    .pool_bytes = kv->pool_bytes,
                                    .slot = s->slot,
                                    .version = s->version};
    for (uint32_t i = 0; i < s->table.slots; i++)
        s->slot[i] = slot_of(p, i);
    for (uint32_t i = 0; i < s->table.versions; i++)
        s->version[i] = version_of(p, i);
    return &s->table;
}
