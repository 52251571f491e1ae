/* SPDX-License-Identifier: Apache-2.0 */
/* sluice-cache: the cache manager. Decides which experts are in memory: turns demands and hints
 * into loads, evicts, and enforces the quota of the arena.
 *
 * Messages   in: DEMAND, TOKENS (compute), HINT (predictor), DONES, FLUSHED (loaders), CONTROL
 *            (supervisor).
 *            out: LOAD, FLUSH (loaders), ACK (supervisor). It listens; the others connect.
 * Memory     writes: entry words by reserve, doom, reset, evict and the KEEP pin; locations while
 *            ABSENT; the directory's epoch, sums and prefetch_paused; `cleaned` of loader rows; its
 *            own row. Frees and allocates pages of the arena, never writes into them.
 *            reads: model index, process table, access log.
 * On its crash: hits continue; misses wait. Its successor, started after it was reaped, flushes the
 *            loaders, rebuilds its private state from the directory and loads what is pinned.
 * On a crash of others: a loader's ranges are punched and its entries requested from its successor;
 *            the supervisor clears compute's pins, which ends its demands; without a supervisor it
 *            exits.
 * Trust:     messages only point to shared memory; the entry word is authoritative. A contradiction
 *            in the cache's own state is a panic.
 * Limits:    SERVICE_LOADERS_MAX loaders; memory is proportional to the number of entries. */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/assert.h"
#include "lib/base/clock.h"
#include "lib/base/log.h"
#include "procs/engine/cache/cache.h"

static struct cache the_cache;

/* ---- setting up ----------------------------------------------------------------------------- */

static void *allocate(size_t count, size_t bytes)
{
    void *memory = calloc(count, bytes);
    if (!memory)
        log_fatal(1, "out of memory (tables of the cache)");
    return memory;
}

static void create_tables(struct cache *c)
{
    const struct model_index *m = c->child.model;
    struct error error;
    c->entries = model_index_entries(m);
    c->loader_count = c->child.directory.head->loader_count;
    c->loading = c->waiting = (struct entry_list){ENTRY_NONE, ENTRY_NONE, 0};
    c->notes = allocate(m->entry_count, sizeof *c->notes);
    if (arena_layout_make(m, &c->layout, &error) != 0)
        log_fatal(1, "%s", error.text);
    c->alloc = arena_alloc_create(&c->child.arena, &c->layout, c->child.params->huge_pages, &error);
    if (!c->alloc)
        log_fatal(1, "%s", error.text);
    arena_alloc_beat(c->alloc, &c->child.process->heartbeat_ns);
    if (cache_set_preset(c, atomic_load(&c->child.procs.head->preset_active), &error) != 0)
        log_fatal(error_exit_status(error.code), "%s", error.text);
    if (!cache_create_predictions(c))
        log_fatal(1, "out of memory (predictions)");
}

static struct channel *listen_on(struct cache *c, enum endpoint endpoint, unsigned number)
{
    char path[ENDPOINT_BYTES];
    struct error error;
    struct channel *channel = NULL;
    if (endpoint_path(c->child.run_dir, endpoint, number, path, &error) == 0)
        channel = channel_listen(path, ROLE_CACHE, c->child.incarnation, &error);
    if (!channel)
        log_fatal(1, "%s", error.text);
    return channel;
}

static void open_channels(struct cache *c)
{
    for (uint32_t i = 0; i < c->loader_count; i++)
        c->loaders[i].channel = listen_on(c, ENDPOINT_CACHE_LOADER, i);
    c->compute = listen_on(c, ENDPOINT_CACHE_COMPUTE, 0);
    c->predictor = listen_on(c, ENDPOINT_CACHE_PREDICTOR, 0);
}

static void raise_epoch(struct cache *c)
{
    struct directory_head *head = c->child.directory.head;
    c->epoch = atomic_fetch_add_explicit(&head->epoch, 1, memory_order_acq_rel) + 1;
    atomic_store_explicit(&head->prefetch_paused, 0, memory_order_relaxed);
}

static void start_prefault(struct cache *c)
{
    struct error error;
    if (!c->child.params->prefault)
        return;
    c->prefault = prefault_start(&c->child.arena, &error);
    if (!c->prefault)
        log_warn("%s; pages are allocated when they are read into", error.text);
}

/* ---- the loop ------------------------------------------------------------------------------- */

static void publish(struct cache *c)
{
    struct directory_head *head = c->child.directory.head;
    struct process *process = c->child.process;
    struct arena_alloc_stats stats;
    arena_alloc_stats_get(c->alloc, &stats);
    cache_count(c, CTR_CACHE_punched_bytes, stats.punched_bytes - c->alloc_seen.punched_bytes);
    cache_count(c, CTR_CACHE_huge_bytes, stats.huge_bytes - c->alloc_seen.huge_bytes);
    cache_count(c, CTR_CACHE_huge_ns, stats.huge_ns - c->alloc_seen.huge_ns);
    cache_count(c, CTR_CACHE_huge_failed, stats.huge_failed - c->alloc_seen.huge_failed);
    c->alloc_seen = stats;
    atomic_store_explicit(&head->backed_bytes, stats.backed_bytes, memory_order_release);
    atomic_store_explicit(&head->owned_bytes, c->owned_bytes, memory_order_relaxed);
    atomic_store_explicit(&head->resident_payload_bytes, c->resident_payload, memory_order_relaxed);
    counter_set(process, CTR_CACHE_backed_bytes, stats.backed_bytes);
    counter_set(process, CTR_CACHE_free_backed_bytes, stats.free_backed_bytes);
    counter_set(process, CTR_CACHE_owned_bytes, c->owned_bytes);
    counter_set(process, CTR_CACHE_resident_entries, c->resident_entries);
    counter_set(process, CTR_CACHE_resident_payload_bytes, c->resident_payload);
    counter_set(process, CTR_CACHE_quota_bytes, cache_quota(c));
    counter_set(process, CTR_CACHE_waiting_entries, c->waiting.count);
    child_wait(&c->child, c->loading.count + c->waiting.count > 0 ? WAIT_STORAGE : WAIT_IDLE);
}

static void obey_supervisor(struct cache *c)
{
    struct msg_control control;
    while (child_control(&c->child, &control)) {
        switch (control.kind) {
        case CONTROL_QUOTA: /* the newest counts; acknowledged when it is applied */
            if (!c->quota_pending || control.epoch >= c->quota_control.epoch)
                c->quota_control = control;
            c->quota_pending = true;
            c->prefault_full = false;
            break;
        case CONTROL_POLL:
            cache_check_loaders(c);
            child_ack(&c->child, &control);
            break;
        default: child_ack(&c->child, &control); break;
        }
    }
}

static void tick_channels(struct cache *c, uint64_t now_ns)
{
    struct channel *channels[SERVICE_LOADERS_MAX + 2] = {c->compute, c->predictor};
    for (uint32_t i = 0; i < c->loader_count; i++)
        channels[2 + i] = c->loaders[i].channel;
    uint64_t invalid = 0, lost = 0;
    for (uint32_t i = 0; i < 2 + c->loader_count; i++) {
        struct channel_stats stats;
        channel_tick(channels[i], now_ns);
        channel_stats_get(channels[i], &stats);
        invalid += stats.invalid;
        lost += stats.lost;
    }
    cache_count(c, CTR_CACHE_messages_invalid, invalid - c->invalid_seen);
    cache_count(c, CTR_CACHE_messages_dropped, lost - c->lost_seen);
    c->invalid_seen = invalid;
    c->lost_seen = lost;
}

/* Requests DONE messages while the end of a load may allow other work, and no demand is needed for
 * it. */
static void request_doorbells(struct cache *c)
{
    _Atomic uint32_t *flag = &c->child.directory.head->doorbells_wanted;
    uint32_t wanted = c->loading.count > 0 &&
                      (c->waiting.count > 0 || c->prefetches_open > 0 || c->quota_pending ||
                       cache_predictions_wait(c) || cache_fill_waits(c) || cache_prefault_waits(c));
    if (atomic_load_explicit(flag, memory_order_relaxed) == wanted)
        return;
    atomic_store_explicit(flag, wanted, memory_order_relaxed);
    if (!wanted)
        return;
    atomic_thread_fence(memory_order_seq_cst);
    cache_observe_all(c); /* loads whose DONE was not sent */
}

static void tick(struct cache *c, uint64_t now_ns)
{
    if (now_ns >= c->next_observe_ns) {
        c->next_observe_ns = now_ns + CACHE_OBSERVE_NS;
        cache_observe_all(c);
        cache_check_loaders(c);
    }
    cache_check_pins(c, now_ns);
    if (now_ns < c->next_tick_ns)
        return;
    c->next_tick_ns = now_ns + CACHE_TICK_NS;
    cache_read_accesses(c, UINT64_MAX);
    child_tick(&c->child);
    tick_channels(c, now_ns);
}

static int timeout_ms(struct cache *c, bool more)
{
    if (more || (c->prefetch_check && c->waiting.count == 0) || cache_tokens_passed(c))
        return 0;
    if (c->unsent > 0)
        return 1;
    if (c->waiting.count > 0 || c->pair_active)
        return CACHE_WAITING_MS;
    if (c->pins_soon)
        return CACHE_PINS_SOON_MS;
    return (c->loading.count > 0 ? CACHE_OBSERVE_NS : CACHE_TICK_NS) / NS_PER_MS;
}

static void receive(struct cache *c, const struct pollfd *fds, nfds_t first_loader)
{
    if (fds[0].revents)
        cache_receive_compute(c);
    for (uint32_t i = 0; i < c->loader_count; i++)
        if (fds[first_loader + i].revents)
            cache_receive_loader(c, i);
    if (fds[1].revents)
        cache_receive_predictor(c);
    if (fds[2].revents)
        obey_supervisor(c);
}

static void run(struct cache *c)
{
    struct pollfd fds[4 + SERVICE_LOADERS_MAX] = {
        {.fd = channel_fd(c->compute), .events = POLLIN},
        {.fd = channel_fd(c->predictor), .events = POLLIN},
        {.fd = child_fd(&c->child), .events = POLLIN},
        {.fd = c->prefault ? prefault_fd(c->prefault) : -1, .events = POLLIN}};
    for (uint32_t i = 0; i < c->loader_count; i++)
        fds[4 + i] = (struct pollfd){.fd = channel_fd(c->loaders[i].channel), .events = POLLIN};
    bool more = false;
    while (!c->child.stop) {
        if (poll(fds, 4 + c->loader_count, timeout_ms(c, more)) < 0 && errno != EINTR)
            log_fatal(1, "poll: %s", strerror(errno));
        receive(c, fds, 4);
        if (c->waiting.count > 0)
            cache_retry_waiting(c);
        uint64_t now = clock_now_ns();
        if (cache_tokens_passed(c))
            cache_read_accesses(c, UINT64_MAX);
        cache_follow_capacity(c);
        cache_send_due(c, now);
        cache_prefetch(c);
        cache_fill(c);
        cache_send_gathered(c);
        tick(c, now);
        more = cache_apply_quota(c);
        more |= cache_recheck(c, now);
        cache_prefault(c);
        request_doorbells(c);
        cache_set_token_bell(c);
        cache_send_gathered(c);
        publish(c);
    }
}

static void finish(struct cache *c)
{
    child_wait(&c->child, WAIT_STOPPING);
    prefault_stop(c->prefault);
    /* Descriptors and mappings are left to the kernel. */
}

int main(int argc, char **argv)
{
    struct cache *c = &the_cache;
    c->magic = CACHE_MAGIC;
    child_start(&c->child, SERVICE_CACHE, argc, argv);
    create_tables(c);
    raise_epoch(c); /* before any message is sent */
    open_channels(c);
    cache_flush_loaders(c);
    cache_rebuild(c); /* no loader can write the cleared ranges any more */
    start_prefault(c);
    child_ready(&c->child);
    cache_load_required(c);
    run(c);
    finish(c);
    child_exit(&c->child);
}
