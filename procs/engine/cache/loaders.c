/* Loaders as the process table tells of them, and what is done when one has died.
 *
 * A loader that was killed may still have reads at the device; they write on after waitpid. So, in
 * this order, for every entry it owed: doom the entry (the punch takes the bytes of the other
 * stripes' loaders too: they must see that nobody wants them before they find them wrong), punch
 * the range (late reads land in pages nobody has), clear the dead one's bit, reset the entry when
 * nobody else owes, and only then acknowledge in the process table, which allows the supervisor to
 * spawn its successor. */
#include <string.h>

#include "lib/base/assert.h"
#include "lib/base/clock.h"
#include "lib/base/log.h"
#include "procs/engine/cache/cache.h"

struct proc_row *cache_loader_row(const struct cache *c, uint32_t loader)
{
    return &c->child.procs.head->row[procs_row_of(SERVICE_LOADER, loader)];
}

bool cache_loader_ready(const struct cache *c, uint32_t loader)
{
    const struct proc_row *row = cache_loader_row(c, loader);
    uint32_t incarnation = atomic_load_explicit(&row->incarnation, memory_order_acquire);
    return atomic_load_explicit(&row->state, memory_order_acquire) == PROC_READY &&
           incarnation > atomic_load_explicit(&row->reaped, memory_order_acquire);
}

static void clean_entry(struct cache *c, uint32_t entry, uint32_t loader)
{
    struct directory_entry *d = cache_directory_entry(c, entry);
    uint64_t bytes = c->entries[entry].slot_bytes;
    bool doomed = entry_doom(&d->word, c->notes[entry].generation, 0);
    sl_assert(doomed);
    int rv = segment_punch(c->child.arena.fd, cache_offset(c, entry), bytes);
    if (rv != 0) /* going on would reuse pages a dead process may still write */
        sl_panic("cannot punch the arena: %s", strerror(-rv));
    cache_count(c, CTR_CACHE_punched_bytes, bytes);
    child_inject(&c->child, INJECT_CACHE_CLEANING);
    doomed = entry_doom(&d->word, c->notes[entry].generation, 1u << loader);
    sl_assert(doomed);
    c->notes[entry].flags |= NOTE_DIRTY;
    cache_signal(c, entry);
    cache_observe(c, entry); /* resets it when nothing is owed any more, and asks again */
}

void cache_clean_loader(struct cache *c, uint32_t loader, uint32_t reaped)
{
    uint32_t left = c->loading.count; /* entries asked again in passing go to the list's end */
    for (uint32_t e = c->loading.head, next; left > 0 && e != ENTRY_NONE; e = next, left--) {
        next = c->notes[e].next;
        enum entry_state state = entry_state_of(cache_word(c, e));
        bool owes = (entry_owed_of(cache_word(c, e)) & (1u << loader)) != 0;
        if ((state == ENTRY_LOADING || state == ENTRY_DOOMED) && owes)
            clean_entry(c, e, loader);
        child_heartbeat(&c->child);
    }
    atomic_store_explicit(&cache_loader_row(c, loader)->cleaned, reaped, memory_order_release);
    cache_count(c, CTR_CACHE_loaders_cleaned, 1);
    log_info("cleaned up after loader %u, incarnation %u", loader, reaped);
}

/* A loader that is ready, owes, and from which nothing ever came: whatever is wrong between us, a
 * successor of this process has new sockets, and rebuilds everything else. */
static void check_reach(struct cache *c, uint32_t loader, uint32_t incarnation, uint64_t now_ns)
{
    struct cache_loader *l = &c->loaders[loader];
    bool owes = false;
    for (uint32_t e = c->loading.head; e != ENTRY_NONE && !owes; e = c->notes[e].next)
        owes = (entry_owed_of(cache_word(c, e)) & (1u << loader)) != 0;
    if (!owes || l->heard == incarnation || !cache_loader_ready(c, loader) ||
        counter_get(cache_loader_row(c, loader), CTR_LOADER_messages) != l->messages_seen) {
        l->alone_ns = 0;
        l->messages_seen = counter_get(cache_loader_row(c, loader), CTR_LOADER_messages);
        return;
    }
    if (l->alone_ns == 0)
        l->alone_ns = now_ns;
    if (now_ns - l->alone_ns > CACHE_ALONE_NS)
        log_fatal(1, "loader %u, incarnation %u, is out of reach", loader, incarnation);
}

void cache_look_at_loaders(struct cache *c)
{
    uint64_t now = clock_now_ns();
    for (uint32_t i = 0; i < c->loader_count; i++) {
        const struct proc_row *row = cache_loader_row(c, i);
        uint32_t reaped = atomic_load_explicit(&row->reaped, memory_order_acquire);
        if (reaped > atomic_load_explicit(&row->cleaned, memory_order_relaxed))
            cache_clean_loader(c, i, reaped);
        uint32_t incarnation = atomic_load_explicit(&row->incarnation, memory_order_acquire);
        check_reach(c, i, incarnation, now);
        if (c->loaders[i].greeted == incarnation || !cache_loader_ready(c, i) ||
            !edge_connected(c->loaders[i].edge))
            continue;
        c->loaders[i].greeted = incarnation;
        cache_send_all_to(c, i);
    }
}

void cache_receive_loader(struct cache *c, uint32_t loader)
{
    _Alignas(8) char buf[MSG_BYTES_MAX];
    while (edge_receive(c->loaders[loader].edge, buf) > 0) {
        const struct msg_head *head = (const struct msg_head *)(const void *)buf;
        cache_count(c, CTR_CACHE_messages, 1);
        child_progress(&c->child);
        c->loaders[loader].heard = head->incarnation;
        if (head->type != MSG_DONES)
            continue; /* a FLUSHED that came twice */
        const struct msg_dones *m = (const struct msg_dones *)(const void *)buf;
        for (uint32_t i = 0; i < m->count; i++) {
            if (m->dones[i].entry < c->child.model->entry_count)
                cache_observe(c, m->dones[i].entry); /* the word decides */
            else
                cache_count(c, CTR_CACHE_messages_invalid, 1);
        }
    }
}
