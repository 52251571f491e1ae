/* SPDX-License-Identifier: Apache-2.0 */
/* Start and recovery: all state is rebuilt from shared memory.
 *
 *   epoch + 1            LOADs of a predecessor are rejected from now on
 *   cache_flush_loaders  every loader has no read of an older epoch left, or was reaped
 *   cache_rebuild        LOADING and DOOMED ranges punched, entries reset; READY ones owned;
 *                        ranges without an owner punched
 *   (ready)
 *   cache_load_required  dense tensors, and entries that compute waits for
 */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <string.h>

#include "lib/base/assert.h"
#include "lib/base/clock.h"
#include "lib/base/log.h"
#include "procs/engine/cache/cache.h"

#define FLUSH_WAIT_NS  (10 * NS_PER_S)
#define FLUSH_AGAIN_NS (100 * NS_PER_MS)

/* ---- FLUSH ---------------------------------------------------------------------------------- */

/* The loader can no longer write: it never ran, was reaped, or has sent FLUSHED. */
static bool loader_quiet(const struct cache *c, uint32_t loader)
{
    const struct process *process = cache_loader_process(c, loader);
    uint32_t incarnation = atomic_load_explicit(&process->incarnation, memory_order_acquire);
    return c->loaders[loader].flushed ||
           incarnation <= atomic_load_explicit(&process->reaped, memory_order_acquire);
}

static void send_flush(struct cache *c, uint32_t loader)
{
    const struct process *process = cache_loader_process(c, loader);
    struct msg_flush flush = {
        .epoch = c->epoch,
        .loader_incarnation = atomic_load_explicit(&process->incarnation, memory_order_acquire)};
    /* repeated until FLUSHED arrives */
    (void)channel_send(c->loaders[loader].channel, &flush, MSG_FLUSH);
}

static void receive_flushed(struct cache *c, uint32_t loader)
{
    _Alignas(8) char buf[MSG_BYTES_MAX];
    const struct process *process = cache_loader_process(c, loader);
    while (channel_receive(c->loaders[loader].channel, buf) > 0) {
        const struct msg_flush *m = (const struct msg_flush *)(const void *)buf;
        cache_count(c, CTR_CACHE_messages, 1);
        if (m->head.type == MSG_FLUSHED && m->epoch == c->epoch &&
            m->loader_incarnation ==
                atomic_load_explicit(&process->incarnation, memory_order_acquire))
            c->loaders[loader].flushed = true,
            c->loaders[loader].last_sender = m->loader_incarnation;
    }
}

/* False while a loader has not flushed; `again`: send FLUSH to those again. */
static bool flush_round(struct cache *c, bool again)
{
    bool quiet = true;
    for (uint32_t i = 0; i < c->loader_count; i++) {
        receive_flushed(c, i);
        channel_tick(c->loaders[i].channel, clock_now_ns());
        if (loader_quiet(c, i))
            continue;
        quiet = false;
        if (again)
            send_flush(c, i);
    }
    return quiet;
}

void cache_flush_loaders(struct cache *c)
{
    struct pollfd fds[SERVICE_LOADERS_MAX];
    for (uint32_t i = 0; i < c->loader_count; i++)
        fds[i] = (struct pollfd){.fd = channel_fd(c->loaders[i].channel), .events = POLLIN};
    child_wait(&c->child, WAIT_FLUSH);
    uint64_t start = clock_now_ns(), next = 0;
    for (uint64_t now = start; !flush_round(c, now >= next); now = clock_now_ns()) {
        struct msg_control control;
        if (now >= next)
            next = now + FLUSH_AGAIN_NS;
        if (now - start > FLUSH_WAIT_NS)
            log_fatal(
                1,
                "no FLUSHED from a loader within 10 s, and it was not reaped; exiting for restart");
        (void)poll(fds, c->loader_count, 10);
        child_tick(&c->child);
        while (child_control(&c->child, &control))
            ; /* repeated by the supervisor until acknowledged */
        if (c->child.stop)
            child_exit(&c->child);
    }
}

/* ---- rebuild -------------------------------------------------------------------------------- */

/* The directory is untrusted here: a predecessor may have written it before it crashed. */
static bool offset_is_valid(struct cache *c, uint32_t entry)
{
    uint64_t at = cache_offset(c, entry), bytes = c->entries[entry].slot_bytes;
    if (!cache_is_expert(c, entry)) /* dense, or a page slot */
        return at == arena_dense_offset(c->child.model, &c->layout, entry);
    return arena_class_has(&c->layout.class[arena_class_of(&c->layout, bytes)], at);
}

/* No running loader can write the range, but reads of a crashed one may still be in flight. */
static void clear_unfinished(struct cache *c, uint32_t entry, uint64_t word)
{
    struct directory_entry *d = cache_directory_entry(c, entry);
    uint64_t bytes = c->entries[entry].slot_bytes;
    if (offset_is_valid(c, entry)) {
        int rv = segment_punch(c->child.arena.fd, cache_offset(c, entry), bytes);
        if (rv != 0)
            sl_panic("cannot punch the arena: %s", strerror(-rv));
        cache_count(c, CTR_CACHE_punched_bytes, bytes);
    }
    child_inject(&c->child, INJECT_CACHE_CLEANING);
    bool doomed = entry_doom(&d->word, entry_generation_of(word), entry_pending_of(word));
    sl_assert(doomed);
    bool was_reset = entry_reset(&d->word);
    sl_assert(was_reset);
    cache_count(c, CTR_CACHE_resets, 1);
    cache_signal(c, entry);
}

static void own_ready(struct cache *c, uint32_t entry)
{
    if (!offset_is_valid(c, entry))
        log_fatal(1, "entry %u is READY at an invalid offset: %" PRIu64, entry,
                  cache_offset(c, entry));
    if (!cache_is_page(c, entry)) {
        arena_alloc_own(c->alloc, cache_offset(c, entry), c->entries[entry].slot_bytes);
        c->owned_bytes += c->entries[entry].slot_bytes;
    }
    if (cache_is_expert(c, entry)) {
        c->allocated_payload += c->entries[entry].payload_bytes;
        residency_insert(c->residency, cache_slot(c, entry), false);
    }
    cache_note_resident(c, entry);
}

/* Passes recent accesses from the tail of the log to the policy. */
static void remember_accesses(struct cache *c)
{
    uint64_t written = access_log_written(&c->child.access_log), tail = ACCESS_LOG_RECORDS / 2;
    access_log_reader_start(&c->child.access_log, &c->accesses);
    c->accesses.next = written > tail ? written - tail : 0;
    cache_read_accesses(c, UINT64_MAX);
}

void cache_rebuild(struct cache *c)
{
    struct error error;
    bool first = c->epoch == 1;
    cache_take_pages(c);
    for (uint32_t e = 0; e < c->child.model->entry_count; e++) {
        uint64_t word = cache_entry_word(c, e);
        switch (entry_state_of(word)) {
        case ENTRY_ABSENT: break;
        case ENTRY_READY: own_ready(c, e); break;
        case ENTRY_LOADING:
        case ENTRY_DOOMED: clear_unfinished(c, e, word); break;
        }
        if (e % 256 == 0)
            child_heartbeat(&c->child);
    }
    if (arena_alloc_settle(c->alloc, &error) != 0)
        log_fatal(1, "%s", error.text);
    for (uint32_t i = 0; i < c->loader_count; i++) {
        struct process *process = cache_loader_process(c, i);
        atomic_store_explicit(&process->cleaned,
                              atomic_load_explicit(&process->reaped, memory_order_acquire),
                              memory_order_release);
    }
    remember_accesses(c);
    if (first)
        return;
    cache_count(c, CTR_CACHE_rebuilds, 1);
    log_info("rebuilt from the directory: %u experts and %" PRIu64 " bytes are resident",
             c->resident_entries, c->owned_bytes);
}

/* ---- after READY ---------------------------------------------------------------------------- */

void cache_load_required(struct cache *c)
{
    const struct model_index *m = c->child.model;
    uint32_t dense = m->dense_count;
    for (uint32_t e = 0; e < dense; e++)
        if (e != model_table_entry(m))
            (void)entry_pin(&cache_directory_entry(c, e)->word, PINNER_KEEP);
    for (uint32_t e = 0; e < model_experts_end(m); e++) { /* pages are demanded again */
        uint64_t word = cache_entry_word(c, e);
        if (e == model_table_entry(m))
            continue;
        if (entry_state_of(word) == ENTRY_ABSENT && entry_pins_of(word) != 0)
            cache_request_fresh(c, e, e < dense ? LOAD_DENSE : LOAD_DEMAND, 0);
        child_heartbeat(&c->child); /* allocating the pages of a large entry can take long */
    }
}
