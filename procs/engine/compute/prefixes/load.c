/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses which prompts continue from a file, in an order of stores of the slot that is read:
 * whenever compute is killed, a successor finds no row valid that was not checked. */
#include <inttypes.h>

#include "lib/base/bytes.h"
#include "lib/base/clock.h"
#include "lib/base/log.h"
#include "lib/policy/reuse/reuse.h"
#include "procs/engine/compute/prefixes/worker.h"
#include "procs/engine/compute/slots/kept.h"
#include "procs/engine/compute/slots/slots.h"
#include "procs/engine/compute/slots/state.h"
#include "shm/kv/blocks.h"

static struct kv_head *head_of(const struct prefixes *p)
{
    return p->slots->child->kv.head;
}

static struct kv_slot *slot_at(const struct prefixes *p, uint32_t slot)
{
    return &head_of(p)->slot[slot];
}

static bool is_recurrent(const struct prefixes *p)
{
    return head_of(p)->windows_offset > 0;
}

static bool has_state(const struct prefixes *p)
{
    return head_of(p)->state_bytes > 0;
}

/* From where a slot with `have` rows is read: rows of a tile that is read again are the same bits,
 * but they are not valid until it was checked. */
static uint32_t base_of(const struct prefixes *p, uint32_t have)
{
    return has_state(p) ? 0 : (uint32_t)align_down(have, PREFIX_TILE);
}

/* The bond has a hash of these sizes, which a file may contradict. */
static bool has_our_sizes(const struct prefixes *p, const struct prefix_head *h)
{
    const struct kv_head *kv = head_of(p);
    return h->tile_bytes == kv_tile_block_bytes(kv) && h->state_bytes == kv->state_bytes &&
           h->ring_bytes == (kv->ring > 0 ? kv_ring_block_bytes(kv, h->tokens) : 0);
}

/* What storage has of a prompt. */
static bool find(struct prefixes *p, const _Atomic uint32_t *log, uint32_t most,
                 struct index_found *found)
{
    while (index_find(&p->index, log, most, p->slots->preset_class, is_recurrent(p), found)) {
        if (has_our_sizes(p, &found->entry.head))
            return true;
        index_reject(&p->index, found->entry.name, "its blocks have other sizes than its layout");
    }
    return false;
}

static bool pays(struct prefixes *p, const struct index_found *f, uint32_t have)
{
    const struct prefix_head *h = &f->entry.head;
    if (f->use.rows <= have)
        return false;
    double cost = (double)h->cost_ns * (f->use.rows - have) / h->tokens;
    uint64_t bytes = prefix_use_bytes(h, f->use, base_of(p, have));
    return reuse_reads((uint64_t)cost, bytes, prefixes_rate(p));
}

/* No row from `base` on is valid any more, and no ring below any. */
static void prepare(struct prefixes *p, uint32_t slot, struct kv_request *q, uint32_t base,
                    uint32_t rows)
{
    struct kv_slot *s = slot_at(p, slot);
    atomic_store_explicit(&q->kv_valid, base, memory_order_release);
    if (atomic_load(&s->rows) > base)
        atomic_store(&s->rows, base);
    if (!has_state(p))
        return;
    state_drop(p->slots, slot, 0);
    atomic_store(&s->lowest, rows + 1);
}

static void start(struct prefixes *p, uint32_t slot, const _Atomic uint32_t *log,
                  const struct index_found *f, uint32_t base, uint32_t version)
{
    prefixes_lock(p);
    struct load *l = &p->load[slot];
    *l = (struct load){.state = LOAD_WANTED,
                       .serial = ++p->serial,
                       .start_ns = clock_now_ns(),
                       .slot = slot,
                       .from = base,
                       .version = version,
                       .use = f->use,
                       .entry = f->entry,
                       .log = log};
    pthread_cond_signal(&p->changed);
    prefixes_unlock(p);
}

/* As reuse_branch: another prompt began to differ there. */
static void note_branch(struct kv_request *q, struct kv_slot *s, uint32_t common)
{
    if (common < REUSE_BRANCH_LEAST || common - REUSE_BEFORE_END <= q->branch)
        return;
    q->branch = common - REUSE_BEFORE_END;
    s->branch = q->branch;
}

/* The rest is computed. */
static void cached_at_most(struct kv_request *q, uint32_t rows)
{
    q->stats.cached = q->stats.cached < rows ? q->stats.cached : rows;
}

static bool is_stalled(struct prefixes *p)
{
    prefixes_lock(p);
    bool stalled = p->stalled;
    prefixes_unlock(p);
    return stalled;
}

void prefixes_begin(struct prefixes *p, uint32_t slot, struct kv_request *q,
                    const _Atomic uint32_t *log)
{
    struct index_found found;
    struct error error;
    if (!p || !kept_may(p->slots, q) || kept_borrows(p->slots, slot, q) || is_stalled(p))
        return;
    uint32_t have = atomic_load(&q->kv_valid), most = atomic_load(&q->log_tokens) - 1;
    bool any = find(p, log, most, &found);
    note_branch(q, slot_at(p, slot), found.common);
    if (!any || !pays(p, &found, have))
        return;
    uint32_t base = base_of(p, have), version = STATE_NONE;
    prepare(p, slot, q, base, found.use.rows);
    if (kept_own(p->slots, slot, base, &error) != 0) {
        cached_at_most(q, base);
        return;
    }
    if (found.use.state != PREFIX_NO_STATE) {
        version = state_reserve(p->slots, slot);
        if (version == STATE_NONE) {
            cached_at_most(q, base);
            return;
        }
    }
    start(p, slot, log, &found, base, version);
}

static void take_stats(struct prefixes *p, struct kv_request *q, uint32_t rows)
{
    struct process *row = p->slots->child->process;
    uint32_t prompt = atomic_load(&q->prompt_tokens), before = q->stats.cached;
    uint32_t cached = rows < prompt ? rows : prompt;
    if (q->stats.prefill_ns > 0 || cached <= before) /* counted before */
        return;
    q->stats.cached = cached;
    counter_add(row, CTR_COMPUTE_tokens_reused, cached - before);
    counter_add(row, CTR_COMPUTE_sequences_reused, before == 0);
}

/* kv_valid last. */
static void commit(struct prefixes *p, const struct load *l, struct kv_request *q)
{
    struct kv_slot *s = slot_at(p, l->slot);
    const struct prefix_head *h = &l->entry.head;
    uint32_t rows = l->use.rows;
    if (l->version != STATE_NONE)
        state_loaded(p->slots, l->slot, l->version, rows);
    else if (head_of(p)->ring > 0)
        atomic_store(&s->lowest, h->lowest);
    s->start = rows;
    s->cost_ns = (uint64_t)((double)h->cost_ns * rows / h->tokens);
    p->slots->content[l->slot] = ++p->slots->contents;
    child_inject(p->slots->child, INJECT_COMPUTE_PREFIX_TAKEN);
    take_stats(p, q, rows);
    atomic_store_explicit(&q->kv_valid, rows, memory_order_release);
    counter_add(p->slots->child->process, CTR_COMPUTE_prefixes_read, 1);
    counter_add(p->slots->child->process, CTR_COMPUTE_prefix_tokens_read, rows - l->from);
    log_info("sequence %" PRIu64 ": %" PRIu32 " rows from %s", atomic_load(&q->id), rows,
             l->entry.name);
}

/* What there was before is given up, too (prepare). */
static void give_up(struct prefixes *p, const struct load *l, struct kv_request *q)
{
    if (q->stats.cached > l->from)
        q->stats.cached = l->from;
    if (has_state(p))
        state_drop(p->slots, l->slot, 0);
}

static bool is_waited_for(const struct load *l)
{
    return l->state == LOAD_WANTED || l->state == LOAD_READS;
}

/* Storage has not answered for too long. A slow read is not late while it has further pieces. With
 * the lock. */
static bool is_late(const struct prefixes *p, const struct load *l)
{
    uint64_t now = clock_now_ns(), since = l->start_ns > p->moved_ns ? l->start_ns : p->moved_ns;
    return now > since && now - since >= p->slots->child->params->load_timeout * NS_PER_MS;
}

/* The first of them: until the thread has an answer, no prompt waits for it again. */
static void note_stall(struct prefixes *p, const char *name)
{
    atomic_fetch_add(&p->index.counts.errors, 1);
    log_warn("prefix file %s: storage has not answered for %" PRIu64
             " ms; prompts are computed until it does",
             name, p->slots->child->params->load_timeout);
}

/* The load as it is now. What has ended, or waits for too long, is taken from the thread. */
static struct load take_result(struct prefixes *p, uint32_t slot)
{
    bool first = false;
    prefixes_lock(p);
    struct load l = p->load[slot];
    if (is_waited_for(&l) && is_late(p, &l)) {
        l.state = LOAD_FAILED;
        first = !p->stalled;
        p->stalled = true;
    }
    if (!is_waited_for(&l))
        p->load[slot].state = LOAD_NONE;
    prefixes_unlock(p);
    if (first)
        note_stall(p, l.entry.name);
    return l;
}

bool prefixes_loading(struct prefixes *p, uint32_t slot, struct kv_request *q)
{
    if (!p || slot == KEPT_NONE)
        return false;
    struct load l = take_result(p, slot);
    if (l.state == LOAD_DONE || l.state == LOAD_FAILED)
        counter_add(p->slots->child->process, CTR_COMPUTE_prefix_bytes_read, l.bytes);
    if (l.state == LOAD_DONE)
        commit(p, &l, q);
    else if (l.state == LOAD_FAILED)
        give_up(p, &l, q);
    return is_waited_for(&l);
}

void prefixes_cancel(struct prefixes *p, uint32_t slot)
{
    if (!p || slot == KEPT_NONE)
        return;
    prefixes_lock(p);
    p->load[slot].state = LOAD_NONE;
    prefixes_unlock(p);
}
