/* SPDX-License-Identifier: Apache-2.0 */
/* Tables of slots and versions, filled from the kv segment for the policy of reuse. */
#include "procs/engine/compute/slots/table.h"

#include <string.h>

#include "procs/engine/compute/slots/slots.h"
#include "shm/kv/pages.h"

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

bool slots_is_kept(const struct slots *p, uint32_t slot)
{
    const struct kv_slot *s = &p->child->kv.head->slot[slot];
    return atomic_load(&s->owner) == 0 && atomic_load(&s->rows) > 0;
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
        .given = s->given,
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

/* One that gets a copy now is neither kept nor running; it will run. */
static bool comes_before(const struct slots_table *s, uint32_t a, uint32_t b)
{
    static const uint32_t rank[] = {[REUSE_RUNNING] = 0, [REUSE_EMPTY] = 1, [REUSE_KEPT] = 2};
    uint32_t x = rank[s->slot[a].use], y = rank[s->slot[b].use];
    return x != y ? x < y : a < b;
}

uint64_t slots_spare_bytes(const struct slots *p)
{
    return p->spare_bytes ? atomic_load_explicit(p->spare_bytes, memory_order_relaxed) : 0;
}

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* Of a slot that has `pages` pages in common with another one: what it has of the last one, if it
 * will write there. */
static uint64_t part_of(const struct kv *kv, uint32_t slot, uint32_t pages)
{
    uint32_t tokens = atomic_load(&kv->head->slot[slot].allocated), page = kv->head->page_tokens;
    return tokens % page != 0 && tokens < pages * page
               ? kv_pages_bytes(kv, tokens) - kv_pages_bytes(kv, tokens - tokens % page)
               : 0;
}

static void note_part(struct reuse_slot *s, const struct reuse_slot *other, uint64_t bytes)
{
    s->apart = larger(s->apart, bytes);
    if (other->use == REUSE_RUNNING)
        s->apart_running = larger(s->apart_running, bytes);
}

/* Positions that two slots have in the same memory. */
static uint32_t common_rows(const struct kv *kv, uint32_t a, uint32_t b)
{
    uint32_t rows = kv_pages_common(kv, a, b) * kv->head->page_tokens;
    uint32_t x = atomic_load(&kv->head->slot[a].allocated);
    uint32_t y = atomic_load(&kv->head->slot[b].allocated);
    rows = rows < x ? rows : x;
    return rows < y ? rows : y;
}

uint32_t slots_joint_rows(const struct slots *p, uint32_t slot)
{
    uint32_t most = 0;
    for (uint32_t i = 0; i < p->child->kv.slots; i++) {
        uint32_t rows = i != slot ? common_rows(&p->child->kv, slot, i) : 0;
        most = rows > most ? rows : most;
    }
    return most;
}

static void note_shared(const struct slots *p, struct slots_table *s, uint32_t a, uint32_t b)
{
    const struct kv *kv = &p->child->kv;
    uint32_t pages = kv_pages_common(kv, a, b);
    if (pages == 0)
        return;
    uint64_t bytes = kv_pages_bytes(kv, common_rows(kv, a, b));
    struct reuse_slot *first = &s->slot[a], *second = &s->slot[b];
    struct reuse_slot *later = comes_before(s, a, b) ? second : first;
    first->joint = larger(first->joint, bytes);
    second->joint = larger(second->joint, bytes);
    later->counted = larger(later->counted, bytes);
    note_part(first, second, part_of(kv, a, pages));
    note_part(second, first, part_of(kv, b, pages));
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
                                    .spare_bytes = slots_spare_bytes(p),
                                    .slot = s->slot,
                                    .version = s->version};
    for (uint32_t i = 0; i < s->table.slots; i++)
        s->slot[i] = slot_of(p, i);
    for (uint32_t i = 0; i < s->table.slots; i++)
        for (uint32_t j = 0; j < i; j++)
            note_shared(p, s, j, i);
    for (uint32_t i = 0; i < s->table.versions; i++)
        s->version[i] = version_of(p, i);
    return &s->table;
}
