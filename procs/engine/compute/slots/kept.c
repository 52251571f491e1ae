/* SPDX-License-Identifier: Apache-2.0 */
/* Finds, takes and returns slots of keys and values that outlive their sequence. */
#include "procs/engine/compute/slots/kept.h"

#include <inttypes.h>
#include <string.h>

#include "lib/base/assert.h"
#include "lib/base/clock.h"
#include "procs/engine/compute/slots/alike.h"
#include "procs/engine/compute/slots/room.h"
#include "procs/engine/compute/slots/slots.h"
#include "procs/engine/compute/slots/state.h"
#include "procs/engine/compute/slots/table.h"
#include "shm/kv/pages.h"

/* A kept slot that is cut back to fewer is given up, and is not taken over for fewer. */
#define ROWS_LEAST KV_TILE

static uint32_t slots_of(const struct slots *p)
{
    return p->child->kv.slots;
}

static struct kv_slot *slot_at(const struct slots *p, uint32_t slot)
{
    return &p->child->kv.head->slot[slot];
}

static uint64_t bytes_for(const struct slots *p, uint32_t tokens)
{
    return kv_tokens_bytes(&p->child->kv, tokens);
}

/* Whole pages of `tokens` tokens, which slots can share. */
static uint64_t shared_bytes(const struct slots *p, uint32_t tokens)
{
    const struct kv *kv = &p->child->kv;
    return kv_pages_bytes(kv, tokens - tokens % kv->head->page_tokens);
}

static uint64_t share(uint64_t ns, uint32_t rows, uint32_t of)
{
    return of > 0 ? (uint64_t)((double)ns * rows / of) : 0;
}

void kept_publish(const struct slots *p)
{
    struct slots_table s;
    const struct reuse_table *t = slots_table(p, &s);
    uint64_t kept = 0, shared = 0;
    uint32_t entries = 0;
    for (uint32_t i = 0; i < t->slots; i++) {
        const struct reuse_slot *slot = &t->slot[i];
        shared += slot->counted;
        if (!slots_is_kept(p, i))
            continue;
        kept += slot->bytes - slot->counted + reuse_version_bytes(t, i);
        entries++;
    }
    counter_set(p->child->process, CTR_COMPUTE_kv_kept_entries, entries);
    counter_set(p->child->process, CTR_COMPUTE_state_bytes, reuse_version_bytes(t, REUSE_NONE));
    counter_set(p->child->process, CTR_COMPUTE_kv_bytes, reuse_bytes(t));
    counter_set(p->child->process, CTR_COMPUTE_kv_kept_bytes, kept);
    counter_set(p->child->process, CTR_COMPUTE_kv_shared_bytes, shared);
}

/* Gigabytes of KV take seconds to allocate, and to free. */
static void alive(void *arg)
{
    struct slots *p = arg;
    atomic_store_explicit(p->beat_ns, clock_now_ns(), memory_order_relaxed);
}

/* Rows before owner: between the two stores the slot is owned and has nothing from before. */
void kept_empty(struct slots *p, uint32_t slot)
{
    atomic_store(&slot_at(p, slot)->rows, 0);
    atomic_store(&slot_at(p, slot)->owner, 0);
    atomic_store(&slot_at(p, slot)->lowest, 0);
    slot_at(p, slot)->prompt = slot_at(p, slot)->uses = slot_at(p, slot)->side = 0;
    slot_at(p, slot)->branch = slot_at(p, slot)->start = slot_at(p, slot)->shared = 0;
    slot_at(p, slot)->given = 0;
    memset(slot_at(p, slot)->turns, 0, sizeof slot_at(p, slot)->turns);
    slot_at(p, slot)->cost_ns = 0;
    p->content[slot] = 0;
    state_drop(p, slot, 0);
    kv_slot_release(&p->child->kv, slot, alive, p);
    kv_slot_log_cut(&p->child->kv, slot, 0);
}

void kept_clear(struct slots *p)
{
    for (uint32_t i = 0; i < slots_of(p); i++)
        if (slots_is_kept(p, i))
            kept_empty(p, i);
    worth_forget(p);
    kept_publish(p);
}

static void shrink(struct slots *p, uint32_t slot, uint32_t tokens)
{
    struct error error;
    sl_assert(tokens <= atomic_load(&slot_at(p, slot)->allocated));
    int rc = kv_slot_resize(&p->child->kv, slot, tokens, alive, p, &error);
    sl_assert(rc == 0);
}

/* How many rows are left when so many bytes were freed. What other slots have, too, frees nothing:
 * it goes last, with all of the slot. */
static uint32_t rows_without(const struct slots *p, uint32_t slot, uint64_t bytes)
{
    struct slots_table s;
    const struct reuse_slot *r = &slots_table(p, &s)->slot[slot];
    uint64_t alone = r->bytes - r->joint;
    uint32_t joint = slots_joint_rows(p, slot), left = 0;
    if (bytes < alone)
        left = kv_tokens_within(&p->child->kv, r->bytes - bytes, r->rows);
    else if (bytes == UINT64_MAX || alone == 0)
        return 0;
    if (joint >= r->rows) /* what it has alone are rings, which go with all of the slot */
        return 0;
    return left > joint ? left : joint < r->rows ? joint : r->rows;
}

/* Rows before memory: a successor finishes it. */
void kept_cut(struct slots *p, uint32_t slot, uint64_t bytes)
{
    struct kv_slot *s = slot_at(p, slot);
    uint32_t rows = atomic_load(&s->rows), left = rows_without(p, slot, bytes);
    left = state_cut(p, slot, rows, left);
    if (left < ROWS_LEAST || left >= rows) { /* whoever asked repeats it until there is memory */
        kept_empty(p, slot);
        return;
    }
    s->cost_ns = share(s->cost_ns, left, rows);
    s->prompt = s->prompt < left ? s->prompt : left;
    atomic_store(&s->rows, left);
    state_drop(p, slot, left);
    shrink(p, slot, left);
    kv_slot_log_cut(&p->child->kv, slot, left);
}

/* ---- after a restart ---- */

static bool runs(const struct slots *p, uint64_t id)
{
    const struct kv_request *requests = p->child->kv.head->request;
    for (uint32_t i = 0; i < KV_REQUESTS_MAX; i++)
        if (atomic_load(&requests[i].state) == KV_RUNNING && atomic_load(&requests[i].id) == id)
            return true;
    return false;
}

static uint32_t owned_by(const struct slots *p, uint64_t id)
{
    for (uint32_t i = 0; i < slots_of(p); i++)
        if (atomic_load(&slot_at(p, i)->owner) == id)
            return i;
    return KEPT_NONE;
}

static bool log_valid(const struct slots *p, uint32_t slot, uint32_t rows)
{
    const _Atomic uint32_t *log = kv_slot_log(&p->child->kv, slot);
    for (uint32_t i = 0; i < rows; i++)
        if (atomic_load_explicit(&log[i], memory_order_relaxed) >= p->child->model->hparams.vocab)
            return false;
    return true;
}

/* What a predecessor can have left in a slot; everything else is not used. */
static bool slot_valid(const struct slots *p, uint32_t slot)
{
    const struct kv_slot *s = slot_at(p, slot);
    uint32_t rows = atomic_load(&s->rows), allocated = atomic_load(&s->allocated);
    uint64_t owner = atomic_load(&s->owner);
    return allocated <= p->child->kv.head->context && rows <= allocated &&
           (owner == 0 || (runs(p, owner) && owned_by(p, owner) == slot)) &&
           log_valid(p, slot, rows);
}

void kept_check(struct slots *p)
{
    struct error error;
    for (uint32_t i = 0; i < slots_of(p); i++) {
        struct kv_slot *s = slot_at(p, i);
        bool valid = kv_slot_map(&p->child->kv, i, &error) == 0 && slot_valid(p, i);
        if (!valid)
            log_warn("kv slot %u: %u rows kept of %u, request %" PRIu64 ": contradictory, not used",
                     i, atomic_load(&s->rows), atomic_load(&s->allocated), atomic_load(&s->owner));
        if (!valid || (atomic_load(&s->owner) == 0 && atomic_load(&s->rows) == 0))
            kept_empty(p, i);
        else if (atomic_load(&s->owner) == 0)
            shrink(p, i, atomic_load(&s->rows));
    }
    kv_pages_settle(&p->child->kv, alive, p);
    state_check(p);
    kept_publish(p);
}

/* ---- a sequence starts ---- */

/* Rows of a lossless preset are the same under every lossless preset. Deterministic mode simulates
 * every token, so it keeps nothing. */
bool kept_may(const struct slots *p, const struct kv_request *q)
{
    return (q->flags & (KV_FLAG_NO_CACHE | KV_FLAG_SCORE_PROMPT)) == 0 &&
           !p->child->params->deterministic && p->child->params->keep_kv > 0;
}

static bool is_side(const struct kv_request *q)
{
    return (q->flags & KV_FLAG_SIDE) != 0;
}

bool kept_borrows(const struct slots *p, uint32_t slot, const struct kv_request *q)
{
    return is_side(q) && !slot_at(p, slot)->side;
}

uint32_t kept_owned(const struct slots *p, const struct kv_request *q)
{
    return owned_by(p, atomic_load(&q->id));
}

/* Rows of the slot that are there although kv_valid has none: the request was to end, or to be
 * paused, and what it borrows is not given back yet. */
static uint32_t borrowed_rows(const struct slots *p, uint32_t slot, const struct kv_request *q)
{
    uint32_t rows = kept_borrows(p, slot, q) ? atomic_load(&slot_at(p, slot)->rows) : 0;
    return rows < atomic_load(&q->log_tokens) ? rows : 0;
}

/* The rows that a predecessor computed for this request. Memory that it requested last may be
 * missing, so what is beyond the rows is freed and allocated again. */
static void resume(struct slots *p, uint32_t slot, struct kv_request *q)
{
    uint32_t valid = atomic_load(&q->kv_valid);
    if (valid > atomic_load(&slot_at(p, slot)->allocated) || valid > atomic_load(&q->log_tokens)) {
        log_warn("sequence %" PRIu64 ": %u rows do not fit its slot; computed again",
                 atomic_load(&q->id), valid);
        valid = 0;
    }
    uint32_t borrowed = borrowed_rows(p, slot, q);
    valid = valid > borrowed ? valid : borrowed;
    atomic_store(&q->kv_valid, valid);
    uint32_t cut = state_cut(p, slot, valid, valid);
    if (cut < valid) { /* the last checkpoint; the log has the tokens */
        log_warn("sequence %" PRIu64 ": no state after %u rows; continues from %u",
                 atomic_load(&q->id), valid, cut);
        valid = cut;
        atomic_store(&q->kv_valid, valid);
    }
    state_drop(p, slot, valid);
    if (atomic_load(&slot_at(p, slot)->rows) > valid)
        atomic_store(&slot_at(p, slot)->rows, valid);
    shrink(p, slot, valid);
}

static uint32_t newest(const struct slots *p)
{
    uint32_t used = 0;
    for (uint32_t i = 0; i < slots_of(p); i++)
        if (slots_is_kept(p, i) && slot_at(p, i)->used > used)
            used = slot_at(p, i)->used;
    return used;
}

/* Measured of the prompt; the rows of the response are computed like it the next time. */
static uint64_t cost_of(const struct kv_slot *s, const struct kv_request *q, uint32_t rows)
{
    uint32_t prompt = atomic_load(&q->prompt_tokens), taken = q->stats.cached;
    if (taken >= prompt || taken >= rows)
        return s->cost_ns;
    return s->cost_ns + share(q->stats.prefill_ns, rows - taken, prompt - taken);
}

/* The time in which the rows of a slot were computed; of a running one, until now. */
static uint64_t cost_until_now(const struct slots *p, uint32_t slot)
{
    uint32_t row;
    const struct kv_request *q = slots_request(p, slot, &row);
    bool runs_now = atomic_load(&slot_at(p, slot)->owner) != 0 && q;
    return runs_now ? cost_of(slot_at(p, slot), q, slots_rows(p, slot)) : slot_at(p, slot)->cost_ns;
}

/* Memory for what the two cannot share, before it is taken. */
static int share_rows(struct slots *p, uint32_t from, uint32_t to, uint32_t rows, uint64_t own)
{
    struct error error;
    if (room_for_rows(p, to, own, &error) == 0 &&
        kv_slot_share(&p->child->kv, from, to, rows, alive, p, &error) == 0 &&
        state_copy(p, from, to, rows, &error) == 0)
        return 0;
    kept_empty(p, to);
    return -1;
}

/* An empty slot with the first rows of another one, which stays: whole pages are shared, the rest
 * is copied. KEPT_NONE: there is no memory for both if the new one has `tokens` tokens. */
static uint32_t share_prefix(struct slots *p, uint32_t from, uint32_t rows, uint32_t tokens)
{
    struct slots_table s;
    uint64_t own = kept_bytes_beside(p, rows, rows);
    p->copied = from + 1;
    p->copied_version = state_version(p, from, rows) + 1; /* none: 0 */
    bool fits = reuse_may_grow(slots_table(p, &s), REUSE_NONE, kept_bytes_beside(p, tokens, rows));
    uint32_t to = fits ? room_for_sequence(p) : KEPT_NONE;
    if (to != KEPT_NONE && share_rows(p, from, to, rows, own) != 0)
        to = KEPT_NONE;
    p->copied = p->copied_version = 0;
    kept_publish(p);
    if (to == KEPT_NONE)
        return to;
    if (rows >= REUSE_BRANCH_LEAST)
        slot_at(p, from)->given = rows;
    slot_at(p, to)->cost_ns = share(cost_until_now(p, from), rows, slots_rows(p, from));
    counter_add(p->child->process, CTR_COMPUTE_sequences_copied, 1);
    child_inject(p->child, INJECT_COMPUTE_SLOT_COPIED);
    return to;
}

/* A prompt that has no more than the first words of a template in common is no use of a slot. */
static void note_use(struct slots *p, uint32_t slot, uint32_t rows)
{
    if (!slots_is_kept(p, slot) || rows < REUSE_BRANCH_LEAST)
        return;
    slot_at(p, slot)->used = newest(p) + 1;
    slot_at(p, slot)->uses++;
}

/* A slot with the longest prefix of the request's log; KEPT_NONE: none has any. *copied: of
 * another slot, which stays. */
static uint32_t take_prefix(struct slots *p, struct kv_request *q, const _Atomic uint32_t *log,
                            uint32_t *rows, bool *copied)
{
    struct slots_table s;
    uint32_t common[KV_SLOTS_MAX] = {0};
    bool side = is_side(q); /* its answer, too, shall cost no conversation anything */
    uint32_t tokens = atomic_load(&q->log_tokens);
    for (uint32_t i = 0; i < slots_of(p) && kept_may(p, q); i++)
        common[i] = alike_common(p, i, q, log);
    q->branch = reuse_branch(slots_table(p, &s), common);
    for (;;) {
        struct reuse_prefix prefix = reuse_prefix(slots_table(p, &s), common, side);
        uint32_t slot = prefix.slot, to = KEPT_NONE;
        *rows = prefix.rows;
        if (slot == REUSE_NONE)
            return KEPT_NONE;
        bool moves = reuse_moves(&s.table, slot, common[slot], side);
        if (!moves)
            to = share_prefix(p, slot, prefix.rows, side ? tokens : prefix.rows);
        *copied = to != KEPT_NONE;
        if (*copied) {
            worth_takes(p, slot, prefix.rows);
            note_use(p, slot, prefix.rows);
            return to;
        }
        if (moves || reuse_takes(&s.table, slot, common[slot], prefix.rows, side)) {
            worth_takes(p, slot, prefix.rows);
            note_use(p, slot, prefix.rows);
            slot_at(p, slot)->cost_ns =
                share(slot_at(p, slot)->cost_ns, prefix.rows, s.slot[slot].rows);
            return slot;
        }
        common[slot] = 0; /* it runs, or has more to lose */
    }
}

uint32_t kept_take(struct slots *p, struct kv_request *q, const _Atomic uint32_t *log)
{
    uint32_t rows, slot = kept_owned(p, q);
    bool copied = false;
    if (slot != KEPT_NONE) {
        resume(p, slot, q);
        return slot;
    }
    slot = take_prefix(p, q, log, &rows, &copied);
    bool first = q->stats.cached == 0 && q->stats.prefill_ns == 0; /* else it was counted before */
    if (first && kept_may(p, q))
        worth_lacks(p, q, log, rows);
    if (slot == KEPT_NONE) {
        slot = room_for_sequence(p);
        sl_assert(slot != REUSE_NONE); /* there are at least as many slots as sequences that run */
    } else if (first) {
        uint32_t prompt = atomic_load(&q->prompt_tokens);
        q->stats.cached = rows < prompt ? rows : prompt; /* a paused one takes its answer, too */
        counter_add(p->child->process, CTR_COMPUTE_tokens_reused, q->stats.cached);
        counter_add(p->child->process, CTR_COMPUTE_sequences_reused, 1);
    }
    /* The owner is stored last: until then the slot is kept, with fewer rows, or empty. A copy has
     * no log, so it must not be found as a kept one. */
    atomic_store(&slot_at(p, slot)->rows, copied ? 0 : rows);
    if (kv_page_is_shared(&p->child->kv, slot, rows)) /* those from here on are written */
        shrink(p, slot, rows);
    bool borrowed = rows > 0 && !copied && !slot_at(p, slot)->side;
    slot_at(p, slot)->side = is_side(q) && !borrowed;
    slot_at(p, slot)->branch = q->branch;
    slot_at(p, slot)->start = rows;
    slot_at(p, slot)->given = slot_at(p, slot)->given < rows ? slot_at(p, slot)->given : 0;
    if (copied || rows < slot_at(p, slot)->shared)
        slot_at(p, slot)->shared = copied ? rows : 0;
    atomic_store(&q->kv_valid, rows);
    child_inject(p->child, INJECT_COMPUTE_SLOT_CUT);
    state_drop(p, slot, rows); /* states of another log */
    atomic_store(&slot_at(p, slot)->owner, atomic_load(&q->id));
    child_inject(p->child, INJECT_COMPUTE_SLOT_TAKEN);
    return slot;
}

/* ---- it grows, and ends ---- */

bool kept_fits(const struct slots *p, uint32_t slot, uint32_t tokens)
{
    struct slots_table s;
    return reuse_may_grow(slots_table(p, &s), slot, bytes_for(p, tokens));
}

bool kept_admits(const struct slots *p, const struct kv_request *q, const _Atomic uint32_t *log,
                 uint32_t tokens, uint64_t promised)
{
    struct slots_table s;
    const struct reuse_table *t = slots_table(p, &s);
    uint64_t bytes = bytes_for(p, tokens), most = 0;
    if (reuse_may_grow(t, REUSE_NONE, bytes + promised) || !kept_may(p, q))
        return reuse_may_grow(t, REUSE_NONE, bytes + promised);
    for (uint32_t i = 0; i < t->slots; i++) {
        if (t->slot[i].use != REUSE_RUNNING)
            continue;
        uint32_t rows = reuse_cut(t, i, t->slot[i].rows, alike_common(p, i, q, log));
        uint64_t shared = shared_bytes(p, rows);
        most = shared > most ? shared : most;
    }
    return reuse_may_grow(t, REUSE_NONE, bytes - most + promised);
}

uint64_t kept_bytes_beside(const struct slots *p, uint32_t tokens, uint32_t rows)
{
    return bytes_for(p, tokens) - shared_bytes(p, rows);
}

uint64_t kept_promise(const struct slots *p, uint32_t tokens, uint32_t rows)
{
    struct slots_table s;
    return kept_bytes_beside(p, tokens, rows) + reuse_new_bytes(slots_table(p, &s));
}

bool kept_has_room(const struct slots *p, uint64_t bytes)
{
    struct slots_table s;
    return reuse_may_grow(slots_table(p, &s), REUSE_NONE, bytes);
}

int kept_own(struct slots *p, uint32_t slot, uint32_t rows, struct error *error)
{
    uint32_t tokens = atomic_load(&slot_at(p, slot)->allocated);
    if (!kv_page_is_shared(&p->child->kv, slot, rows))
        return 0;
    shrink(p, slot, rows);
    return kept_resize(p, slot, tokens, error);
}

void kept_trim(struct slots *p, uint32_t slot, uint32_t tokens)
{
    if (tokens < atomic_load(&slot_at(p, slot)->allocated))
        shrink(p, slot, tokens);
}

int kept_resize(struct slots *p, uint32_t slot, uint32_t tokens, struct error *error)
{
    uint64_t has = bytes_for(p, atomic_load(&slot_at(p, slot)->allocated));
    uint64_t all = bytes_for(p, tokens);
    int rc = room_for_rows(p, slot, all, error);
    if (rc == 0)
        do
            rc = kv_slot_resize(&p->child->kv, slot, tokens, alive, p, error);
        while (rc != 0 && all > has && room_from_kept(p, slot, all - has));
    kept_publish(p);
    return rc;
}

/* Slots that are not needed by running sequences keep ended ones. */
static uint32_t kept_most(const struct slots *p)
{
    const struct kv *kv = &p->child->kv;
    return kv->slots > kv->sequences ? kv->slots - kv->sequences : 1;
}

/* However a side request ends: the rows that it began with, their log and what is known of the
 * conversation are as they were. */
static bool give_back(struct slots *p, uint32_t slot)
{
    struct kv_slot *s = slot_at(p, slot);
    uint32_t taken = atomic_load(&s->rows), rows = state_cut(p, slot, taken, taken);
    if (rows < ROWS_LEAST)
        return false;
    atomic_store(&s->rows, rows);
    s->prompt = s->prompt < rows ? s->prompt : rows;
    state_keep(p, slot, rows, UINT64_MAX);
    s->used = newest(p) + 1;
    atomic_store(&s->owner, 0);
    shrink(p, slot, rows);
    kv_slot_log_cut(&p->child->kv, slot, rows);
    return true;
}

/* The log is written before `rows` covers it, and `owner` is cleared last: a successor finds the
 * request with its slot, or the kept rows with their tokens. */
static bool keep_rows(struct slots *p, uint32_t slot, const struct kv_request *q,
                      const _Atomic uint32_t *log)
{
    struct error error;
    struct kv_slot *s = slot_at(p, slot);
    uint32_t valid = atomic_load(&q->kv_valid);
    uint64_t limit = p->child->params->keep_kv;
    uint32_t fits = kv_tokens_within(&p->child->kv, limit, valid);
    uint64_t one = state_needed(p, slot, fits);
    if (one > 0)
        fits = one <= limit ? kv_tokens_within(&p->child->kv, limit - one, valid) : 0;
    uint32_t rows = state_cut(p, slot, valid, fits);
    if (rows == 0) /* such as one that was cancelled before its first pass */
        return false;
    state_keep(p, slot, rows, limit - bytes_for(p, rows));
    if (kv_slot_log_allocate(&p->child->kv, slot, rows, &error) != 0)
        return false;
    _Atomic uint32_t *kept = kv_slot_log(&p->child->kv, slot);
    for (uint32_t i = 0; i < rows; i++)
        atomic_store_explicit(&kept[i], atomic_load_explicit(&log[i], memory_order_relaxed),
                              memory_order_relaxed);
    s->preset = p->preset;
    s->lossy = p->lossy;
    s->used = newest(p) + 1;
    uint32_t prompt = atomic_load(&q->prompt_tokens);
    s->prompt = prompt < rows ? prompt : rows;
    memcpy(s->turns, q->turns, sizeof s->turns);
    s->cost_ns = cost_of(s, q, rows);
    child_inject(p->child, INJECT_COMPUTE_SLOT_LOGGED);
    atomic_store(&s->rows, rows);
    atomic_store(&s->owner, 0);
    child_inject(p->child, INJECT_COMPUTE_SLOT_KEPT);
    shrink(p, slot, rows);
    return true;
}

void kept_end(struct slots *p, uint32_t slot, const struct kv_request *q,
              const _Atomic uint32_t *log, bool keep)
{
    bool kept = kept_borrows(p, slot, q) ? give_back(p, slot)
                                         : keep && kept_may(p, q) && keep_rows(p, slot, q, log);
    if (!kept)
        kept_empty(p, slot);
    room_limit_kept(p, kept_most(p), p->child->params->keep_kv);
    kept_publish(p);
}
