/* SPDX-License-Identifier: Apache-2.0 */
/* Loaders as listed in the process table, and the clean-up after a crash of one.
 *
 * Reads of a killed loader can still be in flight and write after waitpid. For every entry with a
 * pending shard of that loader, in this order:
 *   1. doom the entry: the punch also removes bytes that other loaders have read, which must not be
 *      used
 *   2. punch the range: late reads then write to pages that are no longer part of the arena
 *   3. clear the loader's pending bit
 *   4. reset the entry when no other shard is pending
 * Then acknowledge in the process table, which allows the supervisor to spawn the successor. */
#include <string.h>

#include "lib/base/assert.h"
#include "lib/base/clock.h"
#include "lib/base/log.h"
#include "procs/engine/cache/cache.h"

struct process *cache_loader_process(const struct cache *c, uint32_t loader)
{
    return &c->child.procs.head->process[procs_index_of(SERVICE_LOADER, loader)];
}

bool cache_loader_ready(const struct cache *c, uint32_t loader)
{
    const struct process *process = cache_loader_process(c, loader);
    uint32_t incarnation = atomic_load_explicit(&process->incarnation, memory_order_acquire);
    return atomic_load_explicit(&process->state, memory_order_acquire) == PROC_READY &&
           incarnation > atomic_load_explicit(&process->reaped, memory_order_acquire);
}

static void clean_entry(struct cache *c, uint32_t entry, uint32_t loader)
{
    struct directory_entry *d = cache_directory_entry(c, entry);
    uint64_t bytes = c->entries[entry].slot_bytes;
    bool doomed = entry_doom(&d->word, c->notes[entry].generation, 0);
    sl_assert(doomed);
    int rv = segment_punch(c->child.arena.fd, cache_offset(c, entry), bytes);
    if (rv != 0) /* else pages that a crashed process may still write would be reused */
        sl_panic("cannot punch the arena: %s", strerror(-rv));
    cache_count(c, CTR_CACHE_punched_bytes, bytes);
    child_inject(&c->child, INJECT_CACHE_CLEANING);
    doomed = entry_doom(&d->word, c->notes[entry].generation, 1u << loader);
    sl_assert(doomed);
    c->notes[entry].flags |= NOTE_DIRTY;
    cache_signal(c, entry);
    cache_observe(c, entry); /* resets it when no shard is pending, and requests it again */
}

void cache_clean_loader(struct cache *c, uint32_t loader, uint32_t reaped)
{
    uint32_t left = c->loading.count; /* entries requested again are appended to the list */
    for (uint32_t e = c->loading.head, next; left > 0 && e != ENTRY_NONE; e = next, left--) {
        next = c->notes[e].next;
        enum entry_state state = entry_state_of(cache_entry_word(c, e));
        bool pending = (entry_pending_of(cache_entry_word(c, e)) & (1u << loader)) != 0;
        if ((state == ENTRY_LOADING || state == ENTRY_DOOMED) && pending)
            clean_entry(c, e, loader);
        child_heartbeat(&c->child);
    }
    atomic_store_explicit(&cache_loader_process(c, loader)->cleaned, reaped, memory_order_release);
    cache_count(c, CTR_CACHE_loaders_cleaned, 1);
    log_info("cleaned up after loader %u, incarnation %u", loader, reaped);
}

/* A ready loader with pending shards that never sent a message: the channel may be broken. A
 * successor of this process opens new sockets and rebuilds everything else. */
static void check_reach(struct cache *c, uint32_t loader, uint32_t incarnation, uint64_t now_ns)
{
    struct cache_loader *l = &c->loaders[loader];
    bool pending = false;
    for (uint32_t e = c->loading.head; e != ENTRY_NONE && !pending; e = c->notes[e].next)
        pending = (entry_pending_of(cache_entry_word(c, e)) & (1u << loader)) != 0;
    if (!pending || l->last_sender == incarnation || !cache_loader_ready(c, loader) ||
        counter_get(cache_loader_process(c, loader), CTR_LOADER_messages) != l->messages_seen) {
        l->silent_ns = 0;
        l->messages_seen = counter_get(cache_loader_process(c, loader), CTR_LOADER_messages);
        return;
    }
    if (l->silent_ns == 0)
        l->silent_ns = now_ns;
    if (now_ns - l->silent_ns > CACHE_SILENCE_NS)
        log_fatal(1, "no message from loader.%u (incarnation %u) within 5 s; exiting for restart",
                  loader, incarnation);
}

void cache_check_loaders(struct cache *c)
{
    uint64_t now = clock_now_ns();
    for (uint32_t i = 0; i < c->loader_count; i++) {
        const struct process *process = cache_loader_process(c, i);
        uint32_t reaped = atomic_load_explicit(&process->reaped, memory_order_acquire);
        if (reaped > atomic_load_explicit(&process->cleaned, memory_order_relaxed))
            cache_clean_loader(c, i, reaped);
        uint32_t incarnation = atomic_load_explicit(&process->incarnation, memory_order_acquire);
        check_reach(c, i, incarnation, now);
        if (c->loaders[i].connected_incarnation == incarnation || !cache_loader_ready(c, i) ||
            !channel_connected(c->loaders[i].channel))
            continue;
        c->loaders[i].connected_incarnation = incarnation;
        cache_send_all_to(c, i);
    }
}

void cache_receive_loader(struct cache *c, uint32_t loader)
{
    _Alignas(8) char buf[MSG_BYTES_MAX];
    while (channel_receive(c->loaders[loader].channel, buf) > 0) {
        const struct msg_head *head = (const struct msg_head *)(const void *)buf;
        cache_count(c, CTR_CACHE_messages, 1);
        c->loaders[loader].last_sender = head->incarnation;
        if (head->type != MSG_DONES)
            continue; /* a repeated FLUSHED */
        const struct msg_dones *m = (const struct msg_dones *)(const void *)buf;
        for (uint32_t i = 0; i < m->count; i++) {
            if (m->dones[i].entry < c->child.model->entry_count)
                cache_observe(c, m->dones[i].entry); /* the entry word is authoritative */
            else
                cache_count(c, CTR_CACHE_messages_invalid, 1);
        }
        child_progress(&c->child);
    }
}
