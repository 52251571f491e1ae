/* SPDX-License-Identifier: Apache-2.0 */
/* From ABSENT to READY and back: reservations, LOADs, and their completion.
 *
 *   cache_request -> (space?)-> cache_reserve -> LOADS ... DONES -> cache_observe
 *        |  no                                                  | READY: resident
 *        v                                                      | DOOMED, no shard pending: reset,
 *      waiting  <-----------------------------------------------+   requested again if is_pinned
 */
#include <string.h>

#include "lib/base/assert.h"
#include "lib/base/clock.h"
#include "lib/base/log.h"
#include "procs/engine/cache/cache.h"
#include "procs/engine/child/run_storage.h"

#define RESEND_MIN_MS  100
#define RESEND_MAX_MS  1000
#define DENSE_RETRY_NS NS_PER_S /* nothing runs without dense tensors: retried indefinitely */

static atomic_flag failure_logged = ATOMIC_FLAG_INIT, page_failure_logged = ATOMIC_FLAG_INIT;

void cache_list_append(struct cache *c, struct entry_list *list, uint32_t entry)
{
    struct cache_note *n = &c->notes[entry];
    n->previous = list->tail;
    n->next = ENTRY_NONE;
    if (list->tail != ENTRY_NONE)
        c->notes[list->tail].next = entry;
    else
        list->head = entry;
    list->tail = entry;
    list->count++;
}

void cache_list_remove(struct cache *c, struct entry_list *list, uint32_t entry)
{
    const struct cache_note *n = &c->notes[entry];
    sl_assert(list->count > 0);
    if (n->previous != ENTRY_NONE)
        c->notes[n->previous].next = n->next;
    else
        list->head = n->next;
    if (n->next != ENTRY_NONE)
        c->notes[n->next].previous = n->previous;
    else
        list->tail = n->previous;
    list->count--;
}

/* ---- demands -------------------------------------------------------------------------------- */

void cache_set_demanded(struct cache *c, uint32_t entry, bool demanded)
{
    if (cache_noted(c, entry, NOTE_DEMANDED) == demanded)
        return;
    c->notes[entry].flags ^= NOTE_DEMANDED;
    c->demands_open += demanded ? 1 : UINT32_MAX;
    if (c->demands_open == 0)
        c->prefetch_check = true;
    else if (c->prefault)
        prefault_abandon(c->prefault);
}

/* While a request waits for space, prefetches use neither space nor the device. */
static void pause_prefetches(struct cache *c, bool paused)
{
    atomic_store_explicit(&c->child.directory.head->prefetch_paused, paused, memory_order_release);
    if (paused)
        return;
    c->prefetch_check = true;
    /* Loaders hold back paused prefetches: sending the LOAD again resumes them. */
    for (uint32_t e = c->loading.head; c->prefetches_open > 0 && e != ENTRY_NONE;
         e = c->notes[e].next)
        if (c->notes[e].priority == LOAD_PREFETCH)
            c->notes[e].next_send_ns = 0;
}

/* ---- sending -------------------------------------------------------------------------------- */

static uint32_t shard_of(struct cache *c, uint32_t entry, uint32_t loader,
                         struct model_extent shard[ENTRY_EXTENTS_MAX])
{
    if (!cache_is_page(c, entry))
        return model_entry_shard(&c->entries[entry], loader, c->loader_count, shard);
    uint32_t page =
        atomic_load_explicit(&cache_directory_entry(c, entry)->page, memory_order_relaxed);
    return model_page_shard(c->child.model, page - 1, loader, c->loader_count, shard);
}

static uint32_t pending_mask(struct cache *c, uint32_t entry)
{
    struct model_extent shard[ENTRY_EXTENTS_MAX];
    uint32_t mask = 0;
    for (uint32_t i = 0; i < c->loader_count; i++)
        if (shard_of(c, entry, i, shard) > 0)
            mask |= 1u << i;
    return mask;
}

static void set_unsent(struct cache *c, uint32_t entry, bool unsent)
{
    if (cache_noted(c, entry, NOTE_UNSENT) == unsent)
        return;
    c->notes[entry].flags ^= NOTE_UNSENT;
    c->unsent += unsent ? 1 : UINT32_MAX;
}

/* What does not fit into the queue is sent in the next round. */
static void send_gathered_to(struct cache *c, uint32_t loader)
{
    struct msg_loads *m = &c->loaders[loader].loads;
    if (m->count == 0)
        return;
    m->epoch = c->epoch;
    m->loader_incarnation =
        atomic_load_explicit(&cache_loader_process(c, loader)->incarnation, memory_order_acquire);
    cache_count(c, CTR_CACHE_loads_sent, m->count);
    cache_count(c, CTR_CACHE_load_messages, 1);
    bool sent = channel_send(c->loaders[loader].channel, m, MSG_LOADS) == 0;
    for (uint32_t i = 0; i < m->count && !sent; i++) {
        if (!cache_noted(c, m->loads[i].entry, NOTE_LISTED))
            continue;
        set_unsent(c, m->loads[i].entry, true);
        c->notes[m->loads[i].entry].next_send_ns = 0;
    }
    m->count = 0;
}

void cache_send_gathered(struct cache *c)
{
    for (uint32_t i = 0; i < c->loader_count; i++)
        send_gathered_to(c, i);
}

static void gather_load(struct cache *c, uint32_t entry, uint32_t loader)
{
    const struct cache_note *n = &c->notes[entry];
    struct msg_loads *m = &c->loaders[loader].loads;
    if (m->count == MSG_LOADS_MAX)
        send_gathered_to(c, loader);
    if (cache_is_expert(c, entry))
        cache_count(c, CTR_CACHE_expert_loads_sent, 1);
    struct msg_load *load = &m->loads[m->count++];
    *load = (struct msg_load){
        .entry = entry,
        .generation = n->generation,
        .priority = n->priority,
        .demand_ns = n->priority == LOAD_DEMAND ? n->demand_ns : 0,
    };
    struct model_extent shard[ENTRY_EXTENTS_MAX];
    uint64_t at = cache_offset(c, entry);
    load->runs_count = (uint16_t)shard_of(c, entry, loader, shard);
    for (unsigned i = 0; i < load->runs_count; i++)
        load->runs[i] = (struct msg_run){.file_offset = shard[i].file_offset,
                                         .arena_offset = at + shard[i].slot_offset,
                                         .bytes = shard[i].read_bytes};
}

/* A LOAD to every loader with a pending shard. Loaders that are not connected get it when they
 * are. */
static void send_loads(struct cache *c, uint32_t entry)
{
    struct cache_note *n = &c->notes[entry];
    uint32_t pending = entry_pending_of(cache_entry_word(c, entry));
    set_unsent(c, entry, false);
    n->next_send_ns = clock_now_ns() + n->resend_ms * NS_PER_MS;
    for (uint32_t i = 0; i < c->loader_count; i++)
        if ((pending & (1u << i)) && cache_loader_ready(c, i) &&
            channel_connected(c->loaders[i].channel))
            gather_load(c, entry, i);
}

void cache_send_due(struct cache *c, uint64_t now_ns)
{
    for (uint32_t e = c->loading.head; e != ENTRY_NONE; e = c->notes[e].next) {
        struct cache_note *n = &c->notes[e];
        if (n->next_send_ns > now_ns)
            continue;
        if (n->next_send_ns != 0) { /* 0: not a repeat, it is to be sent now */
            cache_count(c, CTR_CACHE_loads_resent, 1);
            n->resend_ms = n->resend_ms * 2 < RESEND_MAX_MS ? n->resend_ms * 2 : RESEND_MAX_MS;
        }
        send_loads(c, e);
    }
}

void cache_send_all_to(struct cache *c, uint32_t loader)
{
    for (uint32_t e = c->loading.head; e != ENTRY_NONE; e = c->notes[e].next)
        if (entry_pending_of(cache_entry_word(c, e)) & (1u << loader))
            c->notes[e].next_send_ns = 0;
    cache_send_due(c, 1);
}

/* ---- ABSENT -> LOADING ---------------------------------------------------------------------- */

void cache_reserve(struct cache *c, uint32_t entry, uint64_t offset, enum load_priority priority,
                   uint64_t demand_ns)
{
    struct directory_entry *d = cache_directory_entry(c, entry);
    struct cache_note *n = &c->notes[entry];
    sl_assert(!(n->flags & (NOTE_LISTED | NOTE_WAITING | NOTE_RESIDENT)));
    atomic_store_explicit(&d->arena_offset, offset, memory_order_release); /* while ABSENT */
    bool reserved = entry_reserve(&d->word, pending_mask(c, entry), &n->generation);
    sl_assert(reserved); /* only the cache changes ABSENT */
    n->priority = (uint16_t)priority;
    n->demand_ns = demand_ns;
    n->resend_ms = RESEND_MIN_MS;
    n->failures_seen = atomic_load_explicit(&d->failures, memory_order_relaxed);
    n->flags = (uint16_t)((n->flags & ~NOTE_DIRTY) | NOTE_LISTED);
    cache_list_append(c, &c->loading, entry);
    if (!cache_is_page(c, entry))
        c->owned_bytes += c->entries[entry].slot_bytes;
    if (cache_is_expert(c, entry)) {
        c->allocated_payload += c->entries[entry].payload_bytes;
        /* at the reservation, not when READY: the order of insertions must not depend on the
         * device */
        residency_insert(c->residency, cache_slot(c, entry), priority == LOAD_PREFETCH);
    }
    if (priority == LOAD_PREFETCH)
        c->prefetches_open++;
    child_inject(&c->child, INJECT_CACHE_RESERVED);
    send_loads(c, entry);
}

void cache_waiting_add(struct cache *c, uint32_t entry, enum load_priority priority,
                       uint64_t demand_ns, uint64_t not_before_ns)
{
    struct cache_note *n = &c->notes[entry];
    sl_assert(!(n->flags & (NOTE_LISTED | NOTE_WAITING | NOTE_RESIDENT)));
    n->priority = (uint16_t)priority;
    n->demand_ns = demand_ns;
    n->next_send_ns = not_before_ns;
    n->flags |= NOTE_WAITING;
    cache_list_append(c, &c->waiting, entry);
    if (c->waiting.count == 1)
        pause_prefetches(c, true);
}

static void waiting_remove(struct cache *c, uint32_t entry)
{
    c->notes[entry].flags &= (uint16_t)~NOTE_WAITING;
    cache_list_remove(c, &c->waiting, entry);
    if (c->waiting.count == 0)
        pause_prefetches(c, false);
}

void cache_request(struct cache *c, uint32_t entry, enum load_priority priority, uint64_t demand_ns)
{
    uint64_t offset;
    if (priority == LOAD_DEMAND)
        cache_set_demanded(c, entry, true);
    /* First come, first served: no request overtakes those that wait for space. */
    if (c->waiting.count == 0 && cache_space_take(c, entry, &offset)) {
        if (priority == LOAD_DEMAND)
            cache_count(c, CTR_CACHE_demand_loads, 1);
        cache_reserve(c, entry, offset, priority, demand_ns);
        return;
    }
    cache_waiting_add(c, entry, priority, demand_ns, 0);
}

void cache_request_fresh(struct cache *c, uint32_t entry, enum load_priority priority,
                         uint64_t demand_ns)
{
    c->notes[entry].failures_from =
        atomic_load_explicit(&cache_directory_entry(c, entry)->failures, memory_order_acquire);
    cache_request(c, entry, priority, demand_ns);
}

/* Pinned, by compute or by the cache itself. */
static bool is_pinned(struct cache *c, uint32_t entry)
{
    return entry_pins_of(cache_entry_word(c, entry)) != 0;
}

void cache_retry_waiting(struct cache *c)
{
    uint64_t now = clock_now_ns();
    for (uint32_t e = c->waiting.head, next; e != ENTRY_NONE; e = next) {
        struct cache_note *n = &c->notes[e];
        next = n->next;
        if (!is_pinned(c, e)) { /* no longer pinned */
            waiting_remove(c, e);
            cache_set_demanded(c, e, false);
            continue;
        }
        if (n->next_send_ns > now)
            continue;
        uint64_t offset;
        if (!cache_space_take(c, e, &offset))
            return;
        waiting_remove(c, e);
        if (n->priority == LOAD_DEMAND)
            cache_count(c, CTR_CACHE_demand_loads, 1);
        cache_reserve(c, e, offset, (enum load_priority)n->priority, n->demand_ns);
    }
}

void cache_raise(struct cache *c, uint32_t entry, uint64_t demand_ns)
{
    struct cache_note *n = &c->notes[entry];
    sl_assert(n->flags & NOTE_LISTED);
    cache_set_demanded(c, entry, true);
    if (n->priority == LOAD_DEMAND)
        return;
    if (n->priority == LOAD_PREFETCH)
        c->prefetches_open--;
    n->priority = LOAD_DEMAND;
    n->demand_ns = demand_ns;
    send_loads(c, entry);
}

bool cache_cancel(struct cache *c, uint32_t entry)
{
    const struct cache_note *n = &c->notes[entry];
    sl_assert(n->flags & NOTE_LISTED);
    if (entry_state_of(cache_entry_word(c, entry)) != ENTRY_LOADING ||
        !entry_doom(&cache_directory_entry(c, entry)->word, n->generation, 0))
        return false;
    cache_count(c, CTR_CACHE_cancels, 1);
    cache_signal(c, entry);
    send_loads(c, entry); /* its loaders reject it and check their job */
    return true;
}

/* ---- completion ----------------------------------------------------------------------------- */

static void leave_loading(struct cache *c, uint32_t entry)
{
    struct cache_note *n = &c->notes[entry];
    if (n->priority == LOAD_PREFETCH)
        c->prefetches_open--;
    set_unsent(c, entry, false);
    n->flags &= (uint16_t)~NOTE_LISTED;
    cache_list_remove(c, &c->loading, entry);
    c->prefetch_check = true;
}

void cache_note_resident(struct cache *c, uint32_t entry)
{
    c->notes[entry].flags |= NOTE_RESIDENT;
    if (!cache_is_expert(c, entry))
        return;
    c->resident_entries++;
    c->resident_payload += c->entries[entry].payload_bytes;
}

static void entry_ready(struct cache *c, uint32_t entry)
{
    leave_loading(c, entry);
    cache_note_resident(c, entry);
    cache_set_demanded(c, entry, false);
}

/* Failures since the request; the count restarts at 0 whenever the entry becomes READY. */
static bool failed_too_often(struct cache *c, uint32_t entry)
{
    const struct cache_note *n = &c->notes[entry];
    uint64_t failures =
        atomic_load_explicit(&cache_directory_entry(c, entry)->failures, memory_order_acquire);
    return failures >= n->failures_from && failures - n->failures_from >= CACHE_FAILURES_MAX;
}

/* After too many failures the entry stays ABSENT. Its failure count makes compute return an error;
 * compute can request it again. Dense tensors are retried by the cache itself, after a pause. */
static void request_again(struct cache *c, uint32_t entry, bool failed)
{
    struct cache_note *n = &c->notes[entry];
    bool dense = !cache_is_expert(c, entry);
    if (failed && failed_too_often(c, entry)) {
        cache_set_demanded(c, entry, false);
        if (dense)
            cache_waiting_add(c, entry, LOAD_DENSE, 0, clock_now_ns() + DENSE_RETRY_NS);
        return;
    }
    bool standing = dense && !(n->flags & NOTE_DEMANDED);
    cache_request(c, entry, standing ? LOAD_DENSE : LOAD_DEMAND, n->demand_ns);
}

static void log_failure(struct cache *c, uint32_t entry)
{
    char storage[256];
    struct directory_entry *d = cache_directory_entry(c, entry);
    run_storage_text(c->child.params, c->child.model, c->child.procs.head->model_path,
                     atomic_load_explicit(&d->last_loader, memory_order_relaxed), entry, storage,
                     sizeof storage);
    const char *why =
        run_errno_text((int)atomic_load_explicit(&d->last_errno, memory_order_relaxed));
    if (cache_is_page(c, entry))
        log_warn("page %u of the table could not be read from %s: %s (further failures are only "
                 "counted)",
                 atomic_load_explicit(&d->page, memory_order_relaxed) - 1, storage, why);
    else
        log_warn("layer %u expert %u could not be read from %s: %s (further failures are only "
                 "counted)",
                 d->layer, d->expert, storage, why);
}

/* DOOMED with no pending shard: no loader can write the range any more. */
static void reset_entry(struct cache *c, uint32_t entry)
{
    struct cache_note *n = &c->notes[entry];
    struct directory_entry *d = cache_directory_entry(c, entry);
    bool dirty = (n->flags & NOTE_DIRTY) != 0;
    bool was_reset = entry_reset(&d->word);
    sl_assert(was_reset);
    cache_count(c, CTR_CACHE_resets, 1);
    leave_loading(c, entry);
    if (!cache_is_page(c, entry)) {
        arena_alloc_give(c->alloc, cache_offset(c, entry), c->entries[entry].slot_bytes, !dirty);
        c->owned_bytes -= c->entries[entry].slot_bytes;
    }
    if (cache_is_expert(c, entry)) {
        c->allocated_payload -= c->entries[entry].payload_bytes;
        residency_remove(c->residency, cache_slot(c, entry), false);
    }
    if (n->flags & NOTE_PREFETCHED) {
        cache_count(c, CTR_CACHE_prefetches_unused, 1);
        prefetch_limit_outcome(&c->limit, false, c->prefill);
    }
    n->flags &= (uint16_t) ~(NOTE_DIRTY | NOTE_PREFETCHED);
    bool failed = atomic_load_explicit(&d->failures, memory_order_acquire) > n->failures_seen;
    if (failed) {
        cache_count(c, CTR_CACHE_load_failures, 1);
        if (log_once(cache_is_page(c, entry) ? &page_failure_logged : &failure_logged))
            log_failure(c, entry);
    }
    if (cache_is_page(c, entry))
        cache_page_was_reset(c, entry, failed);
    else if (is_pinned(c, entry))
        request_again(c, entry, failed);
    else
        cache_set_demanded(c, entry, false);
    cache_signal(c, entry);
}

void cache_observe(struct cache *c, uint32_t entry)
{
    if (!cache_noted(c, entry, NOTE_LISTED))
        return;
    uint64_t word = cache_entry_word(c, entry);
    switch (entry_state_of(word)) {
    case ENTRY_READY: entry_ready(c, entry); break;
    case ENTRY_DOOMED:
        if (entry_pending_of(word) == 0)
            reset_entry(c, entry);
        break;
    case ENTRY_LOADING: break;
    case ENTRY_ABSENT: sl_panic("entry %u was changed to ABSENT by another process", entry);
    }
}

void cache_observe_all(struct cache *c)
{
    for (uint32_t e = c->loading.head, next; e != ENTRY_NONE; e = next) {
        next = c->notes[e].next;
        cache_observe(c, e);
    }
}
