/* SPDX-License-Identifier: Apache-2.0 */
#include "procs/engine/compute/runner/kept.h"

#include <inttypes.h>

#include "lib/base/assert.h"
#include "lib/policy/presets/presets.h"
#include "procs/engine/compute/compute.h"
#include "procs/engine/compute/runner/state.h"

uint32_t kept_prefix(const _Atomic uint32_t *kept, uint32_t rows, const _Atomic uint32_t *log,
                     uint32_t tokens)
{
    sl_assert(tokens > 0);
    uint32_t n = 0, max = rows < tokens - 1 ? rows : tokens - 1;
    while (n < max && atomic_load_explicit(&kept[n], memory_order_relaxed) ==
                          atomic_load_explicit(&log[n], memory_order_relaxed))
        n++;
    return n;
}

static uint32_t slots_of(const struct runner *r)
{
    return r->child->kv.head->slots;
}

static struct kv_slot *slot_at(const struct runner *r, uint32_t slot)
{
    return &r->child->kv.head->slot[slot];
}

static uint64_t bytes_for(const struct runner *r, uint32_t tokens)
{
    return kv_tokens_bytes(&r->child->kv, tokens);
}

static uint64_t bytes_of(const struct runner *r, uint32_t slot)
{
    uint32_t tokens = atomic_load(&slot_at(r, slot)->allocated);
    return bytes_for(r, tokens);
}

static bool is_kept(const struct runner *r, uint32_t slot)
{
    return atomic_load(&slot_at(r, slot)->owner) == 0 && atomic_load(&slot_at(r, slot)->rows) > 0;
}

void kept_publish(const struct runner *r)
{
    uint64_t all = state_bytes(r, STATE_NONE), kept = 0;
    for (uint32_t i = 0; i < slots_of(r); i++) {
        all += bytes_of(r, i);
        kept += is_kept(r, i) ? bytes_of(r, i) + state_bytes(r, i) : 0;
    }
    counter_set(r->child->row, CTR_COMPUTE_state_bytes, state_bytes(r, STATE_NONE));
    counter_set(r->child->row, CTR_COMPUTE_kv_bytes, all);
    counter_set(r->child->row, CTR_COMPUTE_kv_kept_bytes, kept);
}

/* Gigabytes of KV take seconds to allocate, and to free. */
static void alive(void *arg)
{
    struct runner *r = arg;
    atomic_store_explicit(&r->beat_ns, clock_now_ns(), memory_order_relaxed);
}

/* Rows before owner: between the two stores the slot is owned and has nothing from before. */
static void empty(struct runner *r, uint32_t slot)
{
    atomic_store(&slot_at(r, slot)->rows, 0);
    atomic_store(&slot_at(r, slot)->owner, 0);
    atomic_store(&slot_at(r, slot)->lowest, 0);
    r->content[slot] = 0;
    state_drop(r, slot, 0);
    kv_slot_release(&r->child->kv, slot, alive, r);
    kv_slot_log_release(&r->child->kv, slot);
}

static void shrink(struct runner *r, uint32_t slot, uint32_t tokens)
{
    struct error error;
    sl_assert(tokens <= atomic_load(&slot_at(r, slot)->allocated));
    int rc = kv_slot_resize(&r->child->kv, slot, tokens, alive, r, &error);
    sl_assert(rc == 0);
}

/* ---- after a restart ---- */

static bool runs(const struct runner *r, uint64_t id)
{
    const struct kv_request *requests = r->child->kv.head->request;
    for (uint32_t i = 0; i < KV_REQUESTS_MAX; i++)
        if (atomic_load(&requests[i].state) == KV_RUNNING && atomic_load(&requests[i].id) == id)
            return true;
    return false;
}

static uint32_t owned_by(const struct runner *r, uint64_t id)
{
    for (uint32_t i = 0; i < slots_of(r); i++)
        if (atomic_load(&slot_at(r, i)->owner) == id)
            return i;
    return KEPT_NONE;
}

static bool log_valid(const struct runner *r, uint32_t slot, uint32_t rows)
{
    const _Atomic uint32_t *log = kv_slot_log(&r->child->kv, slot);
    for (uint32_t i = 0; i < rows; i++)
        if (atomic_load_explicit(&log[i], memory_order_relaxed) >= r->child->model->hparams.vocab)
            return false;
    return true;
}

/* What a predecessor can have left in a slot; everything else is not used. */
static bool slot_valid(const struct runner *r, uint32_t slot)
{
    const struct kv_slot *s = slot_at(r, slot);
    uint32_t rows = atomic_load(&s->rows), allocated = atomic_load(&s->allocated);
    uint64_t owner = atomic_load(&s->owner);
    return allocated <= r->child->kv.head->context && rows <= allocated &&
           (owner == 0 || (runs(r, owner) && owned_by(r, owner) == slot)) &&
           log_valid(r, slot, rows);
}

void kept_check(struct runner *r)
{
    for (uint32_t i = 0; i < slots_of(r); i++) {
        struct kv_slot *s = slot_at(r, i);
        bool valid = slot_valid(r, i);
        if (!valid)
            log_warn("kv slot %u: %u rows kept of %u, request %" PRIu64 ": contradictory, not used",
                     i, atomic_load(&s->rows), atomic_load(&s->allocated), atomic_load(&s->owner));
        if (!valid || (atomic_load(&s->owner) == 0 && atomic_load(&s->rows) == 0))
            empty(r, i);
        else if (atomic_load(&s->owner) == 0)
            shrink(r, i, atomic_load(&s->rows));
    }
    state_check(r);
    kept_publish(r);
}

/* ---- a sequence starts ---- */

/* Rows of a lossless preset are the same under every lossless preset. Deterministic mode simulates
 * every token, so it keeps nothing. */
bool kept_may(const struct runner *r, const struct kv_request *q)
{
    return (q->flags & (KV_FLAG_NO_CACHE | KV_FLAG_SCORE_PROMPT)) == 0 &&
           !r->child->params->deterministic && r->child->params->keep_kv > 0;
}

static bool same_bits(const struct runner *r, const struct kv_slot *s)
{
    return s->preset == r->experts.preset || (!s->lossy && !knobs_lossy(&r->experts.knobs));
}

uint32_t kept_owned(const struct runner *r, const struct kv_request *q)
{
    return owned_by(r, atomic_load(&q->id));
}

static uint32_t find_prefix(const struct runner *r, const struct kv_request *q,
                            const _Atomic uint32_t *log, uint32_t *rows)
{
    uint32_t best = KEPT_NONE;
    *rows = 0;
    for (uint32_t i = 0; i < slots_of(r) && kept_may(r, q); i++) {
        const struct kv_slot *s = slot_at(r, i);
        if (!is_kept(r, i) || !same_bits(r, s))
            continue;
        uint32_t kept = atomic_load(&s->rows);
        uint32_t n =
            kept_prefix(kv_slot_log(&r->child->kv, i), kept, log, atomic_load(&q->log_tokens));
        n = state_cut(r, i, kept, n);
        if (n > *rows) {
            *rows = n;
            best = i;
        }
    }
    return best;
}

/* An empty slot; without one, a kept sequence is given up. */
static uint32_t find_empty(struct runner *r)
{
    uint32_t slot = KEPT_NONE;
    for (uint32_t i = 0; i < slots_of(r); i++)
        if (atomic_load(&slot_at(r, i)->owner) == 0 && (slot == KEPT_NONE || !is_kept(r, i)))
            slot = i;
    sl_assert(slot != KEPT_NONE); /* one sequence runs at a time */
    if (is_kept(r, slot))
        empty(r, slot);
    return slot;
}

/* The rows that a predecessor computed for this request. Memory that it requested last may be
 * missing, so what is beyond the rows is freed and allocated again. */
static void resume(struct runner *r, uint32_t slot, struct kv_request *q)
{
    uint32_t valid = atomic_load(&q->kv_valid);
    if (valid > atomic_load(&slot_at(r, slot)->allocated) || valid > atomic_load(&q->log_tokens)) {
        log_warn("sequence %" PRIu64 ": %u rows do not fit its slot; computed again",
                 atomic_load(&q->id), valid);
        valid = 0;
        atomic_store(&q->kv_valid, 0);
    }
    uint32_t cut = state_cut(r, slot, valid, valid);
    if (cut < valid) { /* the last checkpoint; the log has the tokens */
        log_warn("sequence %" PRIu64 ": no state after %u rows; continues from %u",
                 atomic_load(&q->id), valid, cut);
        valid = cut;
        atomic_store(&q->kv_valid, valid);
    }
    state_drop(r, slot, valid);
    if (atomic_load(&slot_at(r, slot)->rows) > valid)
        atomic_store(&slot_at(r, slot)->rows, valid);
    shrink(r, slot, valid);
}

uint32_t kept_take(struct runner *r, struct kv_request *q, const _Atomic uint32_t *log)
{
    uint32_t rows, slot = kept_owned(r, q);
    if (slot != KEPT_NONE) {
        resume(r, slot, q);
        return slot;
    }
    slot = find_prefix(r, q, log, &rows);
    if (slot == KEPT_NONE)
        slot = find_empty(r);
    else if (q->stats.resumes == 0) { /* else a predecessor counted it */
        q->stats.cached = rows;
        counter_add(r->child->row, CTR_COMPUTE_tokens_reused, rows);
        counter_add(r->child->row, CTR_COMPUTE_sequences_reused, 1);
    }
    /* The owner is stored last: until then the slot is kept, with fewer rows. */
    atomic_store(&slot_at(r, slot)->rows, rows);
    atomic_store(&q->kv_valid, rows);
    child_inject(r->child, INJECT_COMPUTE_SLOT_CUT);
    state_drop(r, slot, rows); /* states of another log */
    atomic_store(&slot_at(r, slot)->owner, atomic_load(&q->id));
    child_inject(r->child, INJECT_COMPUTE_SLOT_TAKEN);
    return slot;
}

/* ---- it grows, and ends ---- */

/* Kept slots of the pool, except `slot`, until `bytes` fit, too. */
static void yield_to(struct runner *r, uint32_t slot, uint64_t bytes)
{
    uint64_t others = 0;
    for (uint32_t i = 0; i < slots_of(r); i++)
        others += i == slot ? 0 : bytes_of(r, i);
    uint64_t reserved = kv_slots_bytes_max(&r->child->kv);
    for (uint32_t i = 0; i < slots_of(r) && others + bytes > reserved; i++)
        if (i != slot && is_kept(r, i)) {
            others -= bytes_of(r, i);
            empty(r, i);
        }
}

int kept_resize(struct runner *r, uint32_t slot, uint32_t tokens, struct error *error)
{
    yield_to(r, slot, bytes_for(r, tokens));
    int rc = kv_slot_resize(&r->child->kv, slot, tokens, alive, r, error);
    kept_publish(r);
    return rc;
}

/* The log is written before `rows` covers it, and `owner` is cleared last: a successor finds the
 * request with its slot, or the kept rows with their tokens. */
static bool keep_rows(struct runner *r, uint32_t slot, const struct kv_request *q,
                      const _Atomic uint32_t *log)
{
    struct error error;
    struct kv_slot *s = slot_at(r, slot);
    uint32_t valid = atomic_load(&q->kv_valid);
    uint64_t limit = r->child->params->keep_kv;
    uint32_t fits = kv_tokens_within(&r->child->kv, limit, valid);
    uint64_t one = state_needed(r, slot, fits);
    if (one > 0)
        fits = one <= limit ? kv_tokens_within(&r->child->kv, limit - one, valid) : 0;
    uint32_t rows = state_cut(r, slot, valid, fits);
    state_keep(r, slot, rows, limit - bytes_for(r, rows));
    if (rows == 0 || kv_slot_log_allocate(&r->child->kv, slot, rows, &error) != 0)
        return false;
    _Atomic uint32_t *kept = kv_slot_log(&r->child->kv, slot);
    for (uint32_t i = 0; i < rows; i++)
        atomic_store_explicit(&kept[i], atomic_load_explicit(&log[i], memory_order_relaxed),
                              memory_order_relaxed);
    s->preset = r->experts.preset;
    s->lossy = knobs_lossy(&r->experts.knobs);
    child_inject(r->child, INJECT_COMPUTE_SLOT_LOGGED);
    atomic_store(&s->rows, rows);
    atomic_store(&s->owner, 0);
    child_inject(r->child, INJECT_COMPUTE_SLOT_KEPT);
    shrink(r, slot, rows);
    return true;
}

void kept_end(struct runner *r, uint32_t slot, const struct kv_request *q,
              const _Atomic uint32_t *log, bool keep)
{
    keep = keep && kept_may(r, q);
    for (uint32_t i = 0; keep && i < slots_of(r); i++)
        if (i != slot && is_kept(r, i)) /* the pool keeps one */
            empty(r, i);
    if (!keep || !keep_rows(r, slot, q, log))
        empty(r, slot);
    kept_publish(r);
}
