/* SPDX-License-Identifier: Apache-2.0 */
/* Versions of the state of slots: allocated, written, marked and freed as the policy of reuse
 * decides, in an order in which compute may be killed anywhere. */
#include "procs/engine/compute/slots/state.h"

#include <string.h>

#include "lib/base/assert.h"
#include "procs/engine/compute/slots/kept.h"
#include "procs/engine/compute/slots/room.h"
#include "procs/engine/compute/slots/slots.h"
#include "procs/engine/compute/slots/table.h"

static struct kv_head *head_of(const struct slots *p)
{
    return p->child->kv.head;
}

static bool has_state(const struct slots *p)
{
    return head_of(p)->state_bytes > 0;
}

static bool is_recurrent(const struct slots *p)
{
    return head_of(p)->windows_offset > 0;
}

static bool has_rings(const struct slots *p)
{
    return head_of(p)->ring > 0;
}

static _Atomic uint32_t *lowest_of(const struct slots *p, uint32_t slot)
{
    return &head_of(p)->slot[slot].lowest;
}

static uint64_t tag_of(const struct slots *p, uint32_t version)
{
    return atomic_load(&head_of(p)->state[version].tag);
}

static bool is_of(const struct slots *p, uint32_t version, uint32_t slot)
{
    return KV_STATE_SLOT(tag_of(p, version)) == slot;
}

static uint32_t states_of(const struct slots *p)
{
    return p->child->kv.states;
}

void state_forget(struct slots *p, uint32_t version)
{
    p->writes[version] = 0;
    atomic_store(&head_of(p)->state[version].tag, 0);
}

void state_release(struct slots *p, uint32_t version)
{
    state_forget(p, version);
    if (atomic_load(&head_of(p)->state[version].allocated))
        kv_state_release(&p->child->kv, version);
}

uint32_t state_version(const struct slots *p, uint32_t slot, uint32_t rows)
{
    struct slots_table s;
    return reuse_version(slots_table(p, &s), slot, rows);
}

void state_check(struct slots *p)
{
    memset(p->writes, 0, sizeof p->writes);
    for (uint32_t i = 0; has_state(p) && i < states_of(p); i++) {
        uint64_t tag = tag_of(p, i);
        uint32_t slot = KV_STATE_SLOT(tag), rows = KV_STATE_ROWS(tag);
        bool valid = slot < p->child->kv.slots && rows > 0 && rows <= slots_rows(p, slot) &&
                     state_version(p, slot, rows) == i &&
                     atomic_load(&head_of(p)->state[i].allocated) == 1;
        if (!valid)
            state_release(p, i);
    }
}

uint32_t state_cut(const struct slots *p, uint32_t slot, uint32_t rows, uint32_t wanted)
{
    struct slots_table s;
    return reuse_cut(slots_table(p, &s), slot, rows, wanted);
}

uint64_t state_needed(const struct slots *p, uint32_t slot, uint32_t rows)
{
    bool needs = is_recurrent(p) || (has_rings(p) && rows < atomic_load(lowest_of(p, slot)));
    return needs ? head_of(p)->state_bytes : 0;
}

/* Nobody's memory: a pass that was killed or failed wrote there. */
static bool is_left(const struct slots *p, uint32_t version, uint32_t slot)
{
    return tag_of(p, version) == 0 && (p->writes[version] == 0 || p->writes[version] == slot + 1);
}

void state_drop(struct slots *p, uint32_t slot, uint32_t rows)
{
    for (uint32_t i = 0; has_state(p) && i < states_of(p); i++)
        if (is_left(p, i, slot) || (is_of(p, i, slot) && KV_STATE_ROWS(tag_of(p, i)) > rows))
            state_release(p, i);
}

/* ---- a pass ---- */

static struct reuse_points points_of(const struct slots *p, const struct kv_request *q)
{
    return (struct reuse_points){.prompt = atomic_load(&q->prompt_tokens),
                                 .branch = q->branch,
                                 .turns = q->turns,
                                 .every = (uint32_t)p->child->params->checkpoint_tokens};
}

uint32_t state_rows(const struct slots *p, const struct kv_request *q, uint32_t position,
                    uint32_t rows)
{
    if (!has_state(p) || !kept_may(p, q))
        return rows;
    struct reuse_points points = points_of(p, q);
    return reuse_pass_rows(position, rows, &points);
}

/* Rings can be cut back by the rows of the last pass. A state needs a checkpoint: there is one at a
 * point of the sequence, or where state_branch sets one, once the place where an earlier prompt
 * began to differ is behind. A few rows more are not worth a pass that ends there. */
uint32_t state_will_cut(const struct slots *p, const struct kv_request *q, uint32_t rows,
                        uint32_t wanted)
{
    if (!is_recurrent(p))
        return wanted;
    struct reuse_points points = points_of(p, q);
    uint32_t last = reuse_last_point(wanted, &points);
    return q->branch <= rows && wanted - last >= REUSE_BRANCH_LEAST ? wanted : last;
}

void state_branch(struct slots *p, uint32_t slot, struct kv_request *q, uint32_t rows)
{
    struct reuse_points points = points_of(p, q);
    if (!is_recurrent(p) || reuse_is_point(rows, &points))
        return;
    q->branch = rows;
    head_of(p)->slot[slot].branch = rows;
}

/* The windows before `position`, from a checkpoint if the rings have others; then the rings are to
 * be written. Whenever compute is killed, `lowest` allows no more than what is there. */
static void rings_begin(struct slots *p, uint32_t slot, uint32_t position, uint32_t rows)
{
    _Atomic uint32_t *lowest = lowest_of(p, slot);
    const struct kv_head *head = head_of(p);
    sl_assert(head->window + rows - 1 <= head->ring);
    if (position == 0)
        atomic_store(lowest, 0);
    if (position < atomic_load(lowest)) {
        uint32_t version = state_version(p, slot, position);
        sl_assert(version != REUSE_NONE); /* state_cut */
        kv_windows_restore(&p->child->kv, slot, position, version);
        p->content[slot] = ++p->contents;
        child_inject(p->child, INJECT_COMPUTE_WINDOW_RESTORED);
        atomic_store(lowest, position);
    }
    uint32_t after = kv_ring_lowest(head, position + rows);
    if (after > atomic_load(lowest))
        atomic_store(lowest, after);
}

/* Whether the state of so many rows of a sequence becomes a checkpoint. Of windows, none of what a
 * side request adds to rows that it borrows: it would take the memory of theirs, and is dropped. */
static bool keeps(const struct slots *p, uint32_t slot, const struct kv_request *q, uint32_t rows)
{
    struct reuse_points points = points_of(p, q);
    return kept_may(p, q) && reuse_is_point(rows, &points) &&
           (is_recurrent(p) || !kept_borrows(p, slot, q));
}

/* The version that a pass writes; until it has ended, nobody else does. STATE_NONE: all are needed.
 */
static uint32_t claim(struct slots *p, uint32_t slot, uint32_t end)
{
    for (uint32_t i = 0; i < states_of(p); i++)
        if (p->writes[i] == slot + 1) /* of a pass that failed */
            p->writes[i] = 0;
    uint32_t version = room_for_version(p, slot, end);
    if (version == REUSE_NONE)
        return STATE_NONE;
    state_forget(p, version);
    p->writes[version] = (uint8_t)(slot + 1);
    return version;
}

/* Memory of a version that a slot will write, also where kept ones have what is left of
 * /dev/shm. */
static int allocate(struct slots *p, uint32_t slot, uint32_t version, struct error *error)
{
    struct slots_table s;
    int rc = 0;
    if (atomic_load(&head_of(p)->state[version].allocated))
        return 0;
    do
        rc = kv_state_allocate(&p->child->kv, version, error);
    while (rc != 0 && room_from_kept(p, slot, slots_table(p, &s)->version_bytes));
    kept_publish(p);
    return rc;
}

/* Before a pass of a side request overwrites the windows of the rows that it borrows: they become a
 * checkpoint, from which the conversation continues. Without memory for one, it continues from an
 * earlier one. */
static void save_borrowed(struct slots *p, uint32_t slot, const struct kv_request *q, uint32_t end)
{
    struct error error;
    uint32_t rows = atomic_load(&head_of(p)->slot[slot].rows);
    bool loses = atomic_load(lowest_of(p, slot)) <= rows && kv_ring_lowest(head_of(p), end) > rows;
    if (!loses || !kept_borrows(p, slot, q) || state_version(p, slot, rows) != REUSE_NONE)
        return;
    uint32_t version = claim(p, slot, rows);
    if (version == STATE_NONE)
        return;
    if (allocate(p, slot, version, &error) == 0) {
        kv_windows_save(&p->child->kv, slot, rows, version);
        atomic_store(&head_of(p)->state[version].tag, KV_STATE_TAG(slot, rows, true));
    }
    p->writes[version] = 0;
}

int state_begin(struct slots *p, uint32_t slot, const struct kv_request *q, uint32_t position,
                uint32_t rows, struct state_pass *pass, struct error *error)
{
    *pass = (struct state_pass){.version = STATE_NONE};
    if (!has_state(p)) /* nor rings */
        return 0;
    if (has_rings(p)) {
        save_borrowed(p, slot, q, position + rows);
        rings_begin(p, slot, position, rows);
    }
    if (!is_recurrent(p) && !keeps(p, slot, q, position + rows))
        return 0;
    if (is_recurrent(p) && position > 0) {
        uint32_t before = state_version(p, slot, position);
        sl_assert(before != REUSE_NONE); /* kv_valid has one: state_cut */
        pass->before = kv_state_at(&p->child->kv, before);
    }
    pass->version = claim(p, slot, is_recurrent(p) ? position : position + rows);
    sl_assert(pass->version != STATE_NONE || !is_recurrent(p)); /* kept_resize */
    if (pass->version == STATE_NONE)
        return 0;
    if (allocate(p, slot, pass->version, error) != 0)
        return -1;
    pass->after = is_recurrent(p) ? kv_state_at(&p->child->kv, pass->version) : NULL;
    return 0;
}

void state_end(struct slots *p, uint32_t slot, const struct kv_request *q,
               const struct state_pass *pass, uint32_t rows)
{
    if (pass->version == STATE_NONE)
        return;
    bool keep = keeps(p, slot, q, rows);
    if (keep && has_rings(p))
        kv_windows_save(&p->child->kv, slot, rows, pass->version);
    atomic_store(&head_of(p)->state[pass->version].tag, KV_STATE_TAG(slot, rows, keep));
    p->writes[pass->version] = 0;
}

/* ---- a copy ---- */

/* Allocated, and nobody's. */
static uint32_t version_for(struct slots *p, uint32_t slot, struct error *error)
{
    uint32_t version = room_for_version(p, slot, 0);
    if (version == REUSE_NONE) {
        (void)error_set(error, ERR_BUSY, "no memory for the copy of a state");
        return STATE_NONE;
    }
    state_forget(p, version);
    return allocate(p, slot, version, error) == 0 ? version : STATE_NONE;
}

int state_copy(struct slots *p, uint32_t from, uint32_t to, uint32_t rows, struct error *error)
{
    uint32_t lowest = atomic_load(lowest_of(p, from));
    bool in_rings = rows >= lowest;
    /* else they are restored before the next pass (rings_begin) */
    atomic_store(lowest_of(p, to), in_rings ? lowest : rows + 1);
    if (!is_recurrent(p) && in_rings)
        return 0;
    uint32_t source = state_version(p, from, rows), version = version_for(p, to, error);
    sl_assert(source != REUSE_NONE);
    if (version == STATE_NONE)
        return -1;
    memcpy(kv_state_at(&p->child->kv, version), kv_state_at(&p->child->kv, source),
           head_of(p)->state_bytes);
    atomic_store(&head_of(p)->state[version].tag,
                 KV_STATE_TAG(to, rows, KV_STATE_IS_KEPT(tag_of(p, source))));
    return 0;
}

/* ---- from storage ---- */

uint32_t state_reserve(struct slots *p, uint32_t slot)
{
    struct error error;
    uint32_t version = claim(p, slot, 0);
    if (version == STATE_NONE)
        return version;
    if (!atomic_load(&head_of(p)->state[version].allocated) &&
        kv_state_allocate(&p->child->kv, version, &error) != 0) {
        p->writes[version] = 0;
        version = STATE_NONE;
    }
    kept_publish(p);
    return version;
}

void state_loaded(struct slots *p, uint32_t slot, uint32_t version, uint32_t rows)
{
    sl_assert(p->writes[version] == slot + 1);
    if (has_rings(p))
        atomic_store(lowest_of(p, slot), rows + 1); /* until rings_begin */
    atomic_store(&head_of(p)->state[version].tag, KV_STATE_TAG(slot, rows, true));
    p->writes[version] = 0;
}

/* ---- the end of a sequence ---- */

uint64_t state_bytes(const struct slots *p, uint32_t slot)
{
    struct slots_table s;
    return reuse_version_bytes(slots_table(p, &s), slot);
}

void state_keep(struct slots *p, uint32_t slot, uint32_t rows, uint64_t bytes)
{
    struct slots_table s;
    state_drop(p, slot, rows);
    for (uint32_t i = 0; has_state(p) && i < states_of(p); i++) {
        if (!is_of(p, i, slot))
            continue;
        uint64_t tag = tag_of(p, i);
        if (KV_STATE_ROWS(tag) == rows) {
            if (has_rings(p) && !KV_STATE_IS_KEPT(tag))
                kv_windows_save(&p->child->kv, slot, rows, i);
            atomic_store(&head_of(p)->state[i].tag, KV_STATE_TAG(slot, rows, true));
        } else if (!KV_STATE_IS_KEPT(tag)) /* of the last pass */
            state_release(p, i);
    }
    uint32_t weakest;
    while (state_bytes(p, slot) > bytes &&
           (weakest = reuse_weakest(slots_table(p, &s), slot, rows)) != REUSE_NONE)
        state_release(p, weakest);
}
