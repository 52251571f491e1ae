/* SPDX-License-Identifier: Apache-2.0 */
#include "procs/engine/compute/runner/state.h"

#include "lib/base/assert.h"
#include "procs/engine/compute/compute.h"
#include "procs/engine/compute/runner/kept.h"

/* A template often writes the last tokens of a prompt in another way once the response follows:
 * the checkpoint is so many tokens before its end. */
#define BEFORE_END 8

static struct kv_head *head_of(const struct runner *r)
{
    return r->child->kv.head;
}

static bool has_state(const struct runner *r)
{
    return head_of(r)->state_bytes > 0;
}

static bool is_recurrent(const struct runner *r)
{
    return head_of(r)->windows_offset > 0;
}

static bool has_rings(const struct runner *r)
{
    return head_of(r)->ring > 0;
}

static _Atomic uint32_t *lowest_of(const struct runner *r, uint32_t slot)
{
    return &head_of(r)->slot[slot].lowest;
}

static uint64_t tag_of(const struct runner *r, uint32_t version)
{
    return atomic_load(&head_of(r)->state[version].tag);
}

static bool is_checkpoint(uint64_t tag)
{
    return tag >> 63 != 0;
}

/* KEPT_NONE: free. */
static uint32_t slot_of(uint64_t tag)
{
    return (uint32_t)(tag >> 32 & INT32_MAX) - 1;
}

static uint32_t rows_of(uint64_t tag)
{
    return (uint32_t)tag;
}

static void release(const struct runner *r, uint32_t version)
{
    atomic_store(&head_of(r)->state[version].tag, 0);
    if (atomic_load(&head_of(r)->state[version].allocated))
        kv_state_release(&r->child->kv, version);
}

static uint32_t find(const struct runner *r, uint32_t slot, uint32_t rows)
{
    for (uint32_t i = 0; has_state(r) && i < head_of(r)->states; i++)
        if (slot_of(tag_of(r, i)) == slot && rows_of(tag_of(r, i)) == rows)
            return i;
    return STATE_NONE;
}

/* Rows that a slot's state may have. */
static uint32_t rows_allowed(const struct runner *r, uint32_t slot)
{
    const struct kv_head *head = head_of(r);
    uint64_t owner = atomic_load(&head->slot[slot].owner);
    if (owner == 0)
        return atomic_load(&head->slot[slot].rows);
    for (uint32_t i = 0; i < KV_REQUESTS_MAX; i++)
        if (atomic_load(&head->request[i].state) == KV_RUNNING &&
            atomic_load(&head->request[i].id) == owner)
            return atomic_load(&head->request[i].kv_valid);
    return 0;
}

void state_check(const struct runner *r)
{
    for (uint32_t i = 0; has_state(r) && i < head_of(r)->states; i++) {
        uint64_t tag = tag_of(r, i);
        uint32_t slot = slot_of(tag);
        bool valid = slot < head_of(r)->slots && rows_of(tag) > 0 &&
                     rows_of(tag) <= rows_allowed(r, slot) && find(r, slot, rows_of(tag)) == i &&
                     atomic_load(&head_of(r)->state[i].allocated) == 1;
        if (!valid)
            release(r, i);
    }
}

/* Whether a version is all that a sequence needs: of rings, the windows are in checkpoints only. */
static bool suffices(const struct runner *r, uint32_t slot, uint64_t tag)
{
    return !has_rings(r) || is_checkpoint(tag) || rows_of(tag) >= atomic_load(lowest_of(r, slot));
}

uint32_t state_cut(const struct runner *r, uint32_t slot, uint32_t rows, uint32_t wanted)
{
    uint32_t most = wanted < rows ? wanted : rows, best = 0;
    if (!is_recurrent(r) && (!has_rings(r) || most >= atomic_load(lowest_of(r, slot))))
        return most;
    for (uint32_t i = 0; i < head_of(r)->states; i++) {
        uint64_t tag = tag_of(r, i);
        if (slot_of(tag) == slot && rows_of(tag) <= most && rows_of(tag) > best &&
            suffices(r, slot, tag))
            best = rows_of(tag);
    }
    return best;
}

uint64_t state_needed(const struct runner *r, uint32_t slot, uint32_t rows)
{
    bool needs = is_recurrent(r) || (has_rings(r) && rows < atomic_load(lowest_of(r, slot)));
    return needs ? head_of(r)->state_bytes : 0;
}

void state_drop(const struct runner *r, uint32_t slot, uint32_t rows)
{
    for (uint32_t i = 0; has_state(r) && i < head_of(r)->states; i++)
        if (tag_of(r, i) == 0 || (slot_of(tag_of(r, i)) == slot && rows_of(tag_of(r, i)) > rows))
            release(r, i);
}

/* ---- a pass ---- */

/* Where the checkpoint near the end of the prompt is; 0: nowhere. */
static uint32_t prompt_point(const struct kv_request *q)
{
    uint32_t prompt = atomic_load(&q->prompt_tokens);
    return prompt > BEFORE_END ? prompt - BEFORE_END : 0;
}

uint32_t state_rows(const struct runner *r, const struct kv_request *q, uint32_t position,
                    uint32_t rows)
{
    if (!has_state(r) || !kept_may(r, q))
        return rows;
    uint32_t every = (uint32_t)r->child->params->checkpoint_tokens;
    uint32_t next = every - position % every, point = prompt_point(q);
    rows = rows < next ? rows : next;
    return position < point && position + rows > point ? point - position : rows;
}

/* How many rows lie between the checkpoints around one of `rows` rows; `end`: those of the sequence. */
static uint32_t gap_around(const struct runner *r, uint32_t slot, uint32_t rows, uint32_t end)
{
    uint32_t below = 0, above = end;
    for (uint32_t i = 0; i < head_of(r)->states; i++) {
        uint32_t other = rows_of(tag_of(r, i));
        if (slot_of(tag_of(r, i)) != slot || other == rows)
            continue;
        if (other < rows && other > below)
            below = other;
        if (other > rows && other < above)
            above = other;
    }
    return above - below;
}

/* The checkpoint of the slot that is needed most rarely; those of `a` and `b` rows stay. */
static uint32_t weakest_of(const struct runner *r, uint32_t slot, uint32_t a, uint32_t b)
{
    uint32_t best = STATE_NONE, best_gap = UINT32_MAX;
    for (uint32_t i = 0; i < head_of(r)->states; i++) {
        uint32_t rows = rows_of(tag_of(r, i));
        if (slot_of(tag_of(r, i)) != slot || rows == a || rows == b)
            continue;
        uint32_t gap = gap_around(r, slot, rows, a);
        if (gap < best_gap) {
            best_gap = gap;
            best = i;
        }
    }
    return best;
}

/* In this order: of the last pass, free, of another slot, a checkpoint. */
static uint32_t choose(const struct runner *r, uint32_t slot, uint32_t position, uint32_t point)
{
    uint32_t empty = STATE_NONE, old = STATE_NONE, other = STATE_NONE;
    for (uint32_t i = 0; i < head_of(r)->states; i++) {
        uint64_t tag = tag_of(r, i);
        if (tag == 0 && atomic_load(&head_of(r)->state[i].allocated))
            return i;
        if (tag == 0)
            empty = i;
        else if (slot_of(tag) != slot)
            other = other == STATE_NONE || rows_of(tag) < rows_of(tag_of(r, other)) ? i : other;
        else if (!is_checkpoint(tag) && rows_of(tag) != position)
            old = i;
    }
    if (old != STATE_NONE)
        return old;
    if (empty != STATE_NONE)
        return empty;
    return other != STATE_NONE ? other : weakest_of(r, slot, position, point);
}

/* The windows before `position`, from a checkpoint if the rings have others; then the rings are to be written.
 * Whenever compute is killed, `lowest` allows no more than what is there. */
static void rings_begin(struct runner *r, uint32_t slot, uint32_t position, uint32_t rows)
{
    _Atomic uint32_t *lowest = lowest_of(r, slot);
    const struct kv_head *head = head_of(r);
    sl_assert(head->window + rows - 1 <= head->ring);
    if (position == 0)
        atomic_store(lowest, 0);
    if (position < atomic_load(lowest)) {
        uint32_t version = find(r, slot, position);
        sl_assert(version != STATE_NONE); /* state_cut */
        kv_windows_restore(&r->child->kv, slot, position, version);
        r->content[slot] = ++r->contents;
        child_inject(r->child, INJECT_COMPUTE_WINDOW_RESTORED);
        atomic_store(lowest, position);
    }
    uint32_t after = kv_ring_lowest(head, position + rows);
    if (after > atomic_load(lowest))
        atomic_store(lowest, after);
}

/* Whether the state of so many rows of a sequence becomes a checkpoint. */
static bool keeps(const struct runner *r, const struct kv_request *q, uint32_t rows)
{
    return kept_may(r, q) &&
           (rows % r->child->params->checkpoint_tokens == 0 || rows == prompt_point(q));
}

int state_begin(struct runner *r, uint32_t slot, const struct kv_request *q, uint32_t position,
                uint32_t rows, struct state_pass *pass, struct error *error)
{
    *pass = (struct state_pass){.version = STATE_NONE};
    if (!has_state(r)) /* nor rings */
        return 0;
    if (has_rings(r))
        rings_begin(r, slot, position, rows);
    if (!is_recurrent(r) && !keeps(r, q, position + rows))
        return 0;
    if (is_recurrent(r) && position > 0) {
        uint32_t before = find(r, slot, position);
        sl_assert(before != STATE_NONE); /* kv_valid has one: state_cut */
        pass->before = kv_state_at(&r->child->kv, before);
    }
    pass->version = choose(r, slot, is_recurrent(r) ? position : position + rows, prompt_point(q));
    sl_assert(pass->version != STATE_NONE || !is_recurrent(r));
    if (pass->version == STATE_NONE)
        return 0;
    struct kv_version *state = &head_of(r)->state[pass->version];
    atomic_store(&state->tag, 0);
    if (!atomic_load(&state->allocated)) {
        int rc = kv_state_allocate(&r->child->kv, pass->version, error);
        kept_publish(r);
        if (rc != 0)
            return -1;
    }
    pass->after = is_recurrent(r) ? kv_state_at(&r->child->kv, pass->version) : NULL;
    return 0;
}

void state_end(const struct runner *r, uint32_t slot, const struct kv_request *q,
               const struct state_pass *pass, uint32_t rows)
{
    if (pass->version == STATE_NONE)
        return;
    bool keep = keeps(r, q, rows);
    if (keep && has_rings(r))
        kv_windows_save(&r->child->kv, slot, rows, pass->version);
    atomic_store(&head_of(r)->state[pass->version].tag, KV_STATE_TAG(slot, rows, keep));
}

/* ---- the end of a sequence ---- */

uint64_t state_bytes(const struct runner *r, uint32_t slot)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; has_state(r) && i < head_of(r)->states; i++)
        if (atomic_load(&head_of(r)->state[i].allocated) &&
            (slot == STATE_NONE || slot_of(tag_of(r, i)) == slot))
            bytes += head_of(r)->state_bytes;
    return bytes;
}

void state_keep(const struct runner *r, uint32_t slot, uint32_t rows, uint64_t bytes)
{
    state_drop(r, slot, rows);
    for (uint32_t i = 0; has_state(r) && i < head_of(r)->states; i++) {
        uint64_t tag = tag_of(r, i);
        if (slot_of(tag) == slot && rows_of(tag) == rows) {
            if (has_rings(r) && !is_checkpoint(tag))
                kv_windows_save(&r->child->kv, slot, rows, i);
            atomic_store(&head_of(r)->state[i].tag, KV_STATE_TAG(slot, rows, true));
        } else if (!is_checkpoint(tag)) /* of the last pass */
            release(r, i);
    }
    uint32_t weakest;
    while (state_bytes(r, slot) > bytes &&
           (weakest = weakest_of(r, slot, rows, rows)) != STATE_NONE)
        release(r, weakest);
}
