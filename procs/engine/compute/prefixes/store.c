/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses which kept slot is written to storage, and copies it piece by piece for the thread. If
 * the slot changes meanwhile, the file is given up. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/assert.h"
#include "lib/base/bytes.h"
#include "lib/base/clock.h"
#include "lib/base/log.h"
#include "lib/policy/reuse/reuse.h"
#include "procs/engine/compute/prefixes/worker.h"
#include "procs/engine/compute/slots/kept.h"
#include "procs/engine/compute/slots/slots.h"
#include "procs/engine/compute/slots/state.h"
#include "shm/kv/blocks.h"

#define TURN_NS  (5 * NS_PER_MS) /* between looks at the slots */
#define PAUSE_NS (30 * NS_PER_S) /* after an error */
#define RETRY_NS (5 * NS_PER_S)  /* while another engine writes */

static struct kv *kv_of(const struct prefixes *p)
{
    return &p->slots->child->kv;
}

static struct kv_slot *slot_at(const struct prefixes *p, uint32_t slot)
{
    return &kv_of(p)->head->slot[slot];
}

static bool is_kept(const struct prefixes *p, uint32_t slot)
{
    return atomic_load(&slot_at(p, slot)->owner) == 0 && atomic_load(&slot_at(p, slot)->rows) > 0;
}

/* prefix_bond.preset of its rows. False: it is not known any more. */
static bool class_of(const struct prefixes *p, const struct kv_slot *s, uint64_t *class)
{
    *class = s->lossy ? p->slots->preset_class : 0;
    return !s->lossy || s->preset == p->slots->preset;
}

/* ---- the file ---- */

/* Versions of the slot that are checkpoints, by their rows; returns their number. */
static uint32_t list_states(struct prefixes *p, uint32_t slot, uint32_t rows)
{
    const struct kv *kv = kv_of(p);
    struct store *s = &p->store;
    uint32_t n = 0;
    for (uint32_t i = 0; kv->head->state_bytes > 0 && i < kv->states; i++) {
        uint64_t tag = atomic_load(&kv->head->state[i].tag);
        if (KV_STATE_SLOT(tag) != slot || !KV_STATE_IS_KEPT(tag) || KV_STATE_ROWS(tag) > rows ||
            n == PREFIX_STATES_MAX)
            continue;
        uint32_t at = n++;
        for (; at > 0 && KV_STATE_ROWS(s->tag[at - 1]) > KV_STATE_ROWS(tag); at--) {
            s->tag[at] = s->tag[at - 1];
            s->version[at] = s->version[at - 1];
        }
        s->tag[at] = tag;
        s->version[at] = i;
    }
    return n;
}

static struct prefix_head head_for(struct prefixes *p, uint32_t slot)
{
    const struct kv_head *kv = kv_of(p)->head;
    const struct kv_slot *s = slot_at(p, slot);
    uint32_t rows = atomic_load(&s->rows);
    struct prefix_head h = {.tokens = rows,
                            .bond = p->index.bond,
                            .tile_bytes = kv_tile_block_bytes(kv),
                            .ring_bytes = kv->ring > 0 ? kv_ring_block_bytes(kv, rows) : 0,
                            .state_bytes = kv->state_bytes,
                            .cost_ns = s->cost_ns,
                            .states = list_states(p, slot, rows),
                            .lowest = atomic_load(&s->lowest),
                            .prompt = s->prompt < rows ? s->prompt : rows,
                            .uses = s->uses};
    h.lowest = h.lowest <= rows ? h.lowest : rows + 1;
    return h;
}

static bool fill_tables(struct prefixes *p, uint32_t slot)
{
    struct store *s = &p->store;
    s->tables = calloc(1, prefix_tables_bytes(&s->head));
    if (!s->tables)
        return false;
    const _Atomic uint32_t *log = kv_slot_log(kv_of(p), slot);
    uint32_t *tokens = prefix_tokens(&s->head, s->tables);
    for (uint32_t i = 0; i < s->head.tokens; i++)
        tokens[i] = atomic_load_explicit(&log[i], memory_order_relaxed);
    for (uint32_t i = 0; i < s->head.states; i++)
        prefix_positions(&s->head, s->tables)[i] = KV_STATE_ROWS(s->tag[i]);
    prefix_name(&s->head.bond, tokens, s->head.tokens, s->name);
    return true;
}

static void begin(struct prefixes *p, uint32_t slot)
{
    struct store *s = &p->store;
    s->slot = slot;
    s->rows = atomic_load(&slot_at(p, slot)->rows);
    s->content = p->slots->content[slot];
    s->head = head_for(p, slot);
    p->noted[slot].delay_ns = UINT64_MAX; /* whatever comes of it, until it changes */
    if (!class_of(p, slot_at(p, slot), &s->head.bond.preset) || !fill_tables(p, slot))
        return;
    prefixes_lock(p);
    s->aborted = false;
    s->state = STORE_OPENS;
    pthread_cond_signal(&p->changed);
    prefixes_unlock(p);
}

/* The slot has what it had when it was chosen. */
static bool intact(const struct prefixes *p)
{
    const struct store *s = &p->store;
    bool same = is_kept(p, s->slot) && atomic_load(&slot_at(p, s->slot)->rows) == s->rows &&
                p->slots->content[s->slot] == s->content;
    for (uint32_t i = 0; same && i < s->head.states; i++)
        same = atomic_load(&kv_of(p)->head->state[s->version[i]].tag) == s->tag[i];
    return same;
}

static void fill_piece(struct prefixes *p)
{
    struct store *s = &p->store;
    const struct prefix_head *h = &s->head;
    uint64_t left = prefix_block_bytes(h, s->block) - s->at;
    uint32_t states = prefix_state_block(h);
    s->bytes = left < PIECE_BYTES ? left : PIECE_BYTES;
    memset(s->piece, 0, s->bytes);
    if (s->block < prefix_tiles(h))
        kv_tile_block_copy(kv_of(p), s->slot, s->block, s->at, s->bytes, s->piece, false);
    else if (s->block < states)
        kv_ring_block_copy(kv_of(p), s->slot, h->tokens, s->at, s->bytes, s->piece, false);
    else if (s->at < h->state_bytes)
        memcpy(s->piece, (const char *)kv_state_at(kv_of(p), s->version[s->block - states]) + s->at,
               s->bytes < h->state_bytes - s->at ? s->bytes : h->state_bytes - s->at);
}

/* ---- its end ---- */

static void count(struct prefixes *p, unsigned counter, uint64_t n)
{
    counter_add(p->slots->child->process, counter, n);
}

static void failed(struct prefixes *p, uint64_t now)
{
    int why = p->store.why;
    if (why == ECANCELED || why == EFBIG)
        return;
    p->noted[p->store.slot].delay_ns = 0; /* once more */
    p->pause_until_ns = now + (why == EAGAIN ? RETRY_NS : PAUSE_NS);
    if (why == EAGAIN)
        return;
    atomic_fetch_add(&p->index.counts.errors, 1);
    if (!p->failed_before)
        log_warn("prefixes are not written to %s for %d s: %s", p->slots->child->params->prefix_dir,
                 (int)(PAUSE_NS / NS_PER_S), strerror(why));
    p->failed_before = true;
}

/* The thread is done with the file. */
static void collect(struct prefixes *p, uint64_t now)
{
    struct store *s = &p->store;
    count(p, CTR_COMPUTE_prefix_bytes_written, s->written);
    if (s->state == STORE_DONE) {
        count(p, CTR_COMPUTE_prefixes_stored, 1);
        p->failed_before = false;
        log_debug("prefix of %" PRIu32 " tokens stored as %s", s->head.tokens, s->name);
    } else {
        failed(p, now);
    }
    free(s->tables);
    s->tables = NULL;
    s->name[0] = 0;
    prefixes_lock(p);
    s->state = STORE_NONE;
    pthread_cond_signal(&p->changed); /* a request to remove them all may wait for it */
    prefixes_unlock(p);
}

static void publish(struct prefixes *p)
{
    struct process *row = p->slots->child->process;
    uint32_t files;
    counter_set(row, CTR_COMPUTE_prefix_bytes, index_bytes(&p->index, &files));
    counter_set(row, CTR_COMPUTE_prefix_files, files);
    counter_set(row, CTR_COMPUTE_prefixes_rejected, atomic_load(&p->index.counts.rejected));
    counter_set(row, CTR_COMPUTE_prefix_errors, atomic_load(&p->index.counts.errors));
}

/* ---- the choice ---- */

/* How long until it is written; UINT64_MAX: it is not. */
static uint64_t delay_of(struct prefixes *p, uint32_t slot)
{
    const struct kv_slot *s = slot_at(p, slot);
    uint32_t rows = atomic_load(&s->rows);
    uint64_t bytes = kv_tokens_bytes(kv_of(p), rows) + state_bytes(p->slots, slot);
    uint64_t class;
    if (!class_of(p, s, &class))
        return UINT64_MAX;
    uint32_t stored = index_stored(&p->index, kv_slot_log(kv_of(p), slot), rows, class);
    if (stored >= rows || !reuse_reads(s->cost_ns, bytes, prefixes_rate(p)))
        return UINT64_MAX;
    return reuse_store_delay_ns(bytes, rows, stored);
}

static bool is_due(struct prefixes *p, uint32_t slot, uint64_t now)
{
    struct noted *n = &p->noted[slot];
    const struct kv_slot *s = slot_at(p, slot);
    uint32_t rows = is_kept(p, slot) ? atomic_load(&s->rows) : 0;
    if (rows != n->rows || s->used != n->used)
        *n = (struct noted){.rows = rows,
                            .used = s->used,
                            .since_ns = now,
                            .delay_ns = rows > 0 ? delay_of(p, slot) : 0};
    return rows > 0 && n->delay_ns != UINT64_MAX && now - n->since_ns >= n->delay_ns;
}

/* Of those that are due, the one that was used last. */
static void choose(struct prefixes *p, uint64_t now)
{
    uint32_t found = KEPT_NONE;
    for (uint32_t i = 0; i < kv_of(p)->slots; i++)
        if (is_due(p, i, now) &&
            (found == KEPT_NONE || slot_at(p, i)->used > slot_at(p, found)->used))
            found = i;
    if (found != KEPT_NONE && now >= p->pause_until_ns)
        begin(p, found);
}

/* ---- a turn ---- */

/* False: the thread has it, or there is none. */
static bool may_fill(struct prefixes *p)
{
    bool ok = intact(p);
    prefixes_lock(p);
    if (p->store.state != STORE_NONE && p->store.state < STORE_DONE && !ok && !p->store.aborted) {
        p->store.aborted = true;
        pthread_cond_signal(&p->changed);
    }
    bool waits = p->store.state == STORE_WAITS && !p->store.aborted;
    prefixes_unlock(p);
    return waits;
}

static void next_piece(struct prefixes *p)
{
    struct store *s = &p->store;
    bool ends = s->block == prefix_blocks(&s->head);
    if (!ends)
        fill_piece(p);
    prefixes_lock(p);
    s->state = ends ? STORE_ENDS : STORE_PIECE;
    pthread_cond_signal(&p->changed);
    prefixes_unlock(p);
}

static enum store_state state_of(struct prefixes *p)
{
    prefixes_lock(p);
    enum store_state state = p->store.state;
    prefixes_unlock(p);
    return state;
}

void prefixes_turn(struct prefixes *p, bool idle, uint64_t stall_ns)
{
    if (!p)
        return;
    uint64_t now = clock_now_ns();
    bool quiet = idle || stall_ns == p->stall_ns;
    p->stall_ns = stall_ns;
    enum store_state state = state_of(p);
    if (state == STORE_DONE || state == STORE_FAILED)
        collect(p, now);
    else if (state != STORE_NONE && may_fill(p) && quiet)
        next_piece(p);
    if (now - p->turn_ns < TURN_NS)
        return;
    p->turn_ns = now;
    publish(p);
    if (state == STORE_NONE)
        choose(p, now);
}
