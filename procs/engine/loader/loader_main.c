/* SPDX-License-Identifier: Apache-2.0 */
/* sluice-loader N: reads shards of entries into their ranges of the arena.
 *
 * One per storage device. It decides only the order of its reads: demands before dense weights
 * before prefetches, in chunks, at most `queue_depth` of them in flight.
 *
 * With a throttle, completed reads are delayed to the time a device of that bandwidth needs
 * (throttle.h).
 *
 * Messages   in: LOAD, FLUSH (cache), CONTROL (supervisor).  out: DONE, FLUSHED, ACK.
 *            With a cache (cache/), it also writes what its server delivered to a local file.
 * Memory     writes: payload of LOADING entries (only by reads of the device, never by stores);
 *            entry words by shard done and shard fail; failures, last_errno and last_loader; its
 *            flag of the directory's quarantine, what is known about its files; its own row.
 *            reads: model index, directory head (epoch, throttle, prefetch_paused).
 * On its crash: entries with a pending shard stay LOADING until the cache has doomed and punched
 *            them (reads may write after waitpid), then they are requested from its successor.
 * On a crash of others: without a cache its jobs continue until the successor's FLUSH; without a
 *            supervisor it exits.
 * Trust:     a LOAD must agree with the entry word, the epoch and the ranges that follow from the
 *            model index, else it is rejected and counted. It reads only files that the supervisor
 *            opened. One that changed in place or is missing fails the entries with an errno, not
 *            the process, and only when no copy delivers them (copies.c). A device that completes
 *            no read for too long ends the process. Bytes of a store are published only when their
 *            checksum is right.
 * Limits:    LOADER_JOBS_MAX jobs, `queue_depth` reads in flight, `io_size` bytes each. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "lib/base/assert.h"
#include "lib/base/clock.h"
#include "lib/base/log.h"
#include "procs/engine/loader/loader.h"

#define STOP_WAIT_NS (2 * NS_PER_S) /* for reads in flight at a stop */
#define POLLED_MAX   (2 + READERS_MAX)

static struct loader the_loader;

/* --backend NAME on the command line (ctl replace) overrides the parameter. It is removed from
 * argv, which the child runtime parses. NULL without it. */
static const char *take_backend(int *argc, char **argv)
{
    for (int i = 1; i + 1 < *argc; i++) {
        if (strcmp(argv[i], "--backend") != 0)
            continue;
        const char *name = argv[i + 1];
        memmove(&argv[i], &argv[i + 2], (size_t)(*argc - i - 1) * sizeof *argv);
        *argc -= 2;
        return name;
    }
    return NULL;
}

static void open_files(struct loader *l, const char *backend)
{
    struct error error;
    if (readers_open_files(&l->readers, backend, (uint32_t)l->own.queue_depth, &error) != 0)
        log_fatal(error.code == ERR_BAD_INPUT ? 2 : 1, "%s", error.text);
}

/* Parameters of the device (--devices) override those of all devices. */
static void take_params(struct loader *l)
{
    struct error error;
    if (storage_take(l->child.params, loader_self(l), &l->own, NULL, &error) != 0)
        log_fatal(2, "%s", error.text);
}

static void open_channel(struct loader *l)
{
    char path[ENDPOINT_BYTES];
    struct error error;
    if (endpoint_path(l->child.run_dir, ENDPOINT_CACHE_LOADER, loader_self(l), path, &error) != 0)
        log_fatal(1, "%s", error.text);
    l->cache = channel_dial(path, ROLE_LOADER, l->child.incarnation, &error);
    if (!l->cache)
        log_fatal(1, "%s", error.text);
}

static void create_jobs(struct loader *l)
{
    uint32_t entries = l->child.directory.head->entry_count;
    uint32_t capacity = entries < LOADER_JOBS_MAX ? entries : LOADER_JOBS_MAX;
    struct error error;
    if (jobs_create(&l->jobs, entries, capacity, (uint32_t)l->own.queue_depth) != 0)
        log_fatal(1, "out of memory (%u jobs)", capacity);
    if (verify_create(&l->verify, l->child.model, l->child.arena.base, loader_self(l), &l->jobs,
                      &error) != 0)
        log_fatal(1, "%s", error.text);
}

static void obey_supervisor(struct loader *l)
{
    struct msg_control control;
    while (child_control(&l->child, &control))
        child_ack(&l->child, &control); /* the throttle is in the directory, read in every round */
}

static void read_throttle(struct loader *l, uint64_t now_ns)
{
    const struct directory_head *head = l->child.directory.head;
    uint64_t rate =
        atomic_load_explicit(&head->throttle_bytes_per_s[loader_self(l)], memory_order_relaxed);
    throttle_set(&l->throttle, rate, now_ns);
}

static void show(struct loader *l)
{
    struct process *process = l->child.process;
    counter_set(process, CTR_LOADER_inflight, l->jobs.inflight);
    counter_set(process, CTR_LOADER_inflight_bytes, l->jobs.inflight_bytes);
    counter_set(process, CTR_LOADER_jobs, l->jobs.job_count);
    child_wait(&l->child, l->throttled_ns         ? WAIT_THROTTLE
                          : l->jobs.inflight > 0  ? WAIT_STORAGE
                          : l->jobs.job_count > 0 ? WAIT_NONE
                                                  : WAIT_IDLE);
}

static void tick(struct loader *l, uint64_t now_ns)
{
    if (now_ns >= l->next_jobs_check_ns) {
        l->next_jobs_check_ns = now_ns + LOADER_CHECK_NS;
        loader_check_jobs(l);
    }
    if (now_ns < l->next_tick_ns)
        return;
    l->next_tick_ns = now_ns + LOADER_TICK_NS;
    child_tick(&l->child);
    channel_tick(l->cache, now_ns);
    struct channel_stats stats;
    channel_stats_get(l->cache, &stats);
    counter_add(l->child.process, CTR_LOADER_messages_invalid,
                stats.invalid - l->last_channel_stats.invalid);
    counter_add(l->child.process, CTR_LOADER_messages_dropped,
                stats.lost - l->last_channel_stats.lost);
    l->last_channel_stats = stats;
}

/* A new cache first sends FLUSH to every loader. When it does not arrive, the connection is broken
 * and cannot be repaired here: exit, so that the cache does not wait. */
static void check_cache(struct loader *l, uint64_t now_ns)
{
    uint32_t epoch = atomic_load_explicit(&l->child.directory.head->epoch, memory_order_acquire);
    if (epoch == l->epoch_met) {
        l->epoch_seen_ns = 0;
        return;
    }
    if (l->epoch_seen_ns == 0)
        l->epoch_seen_ns = now_ns;
    if (now_ns - l->epoch_seen_ns > LOADER_ALONE_NS)
        log_fatal(1, "no FLUSH from the cache (epoch %u); exiting for restart", epoch);
}

/* Time until work is due without an event. */
static struct timespec timeout(struct loader *l, uint64_t now_ns)
{
    uint64_t wait = LOADER_TICK_NS;
    if (l->jobs.job_count > 0) {
        uint64_t pause = jobs_pause_ns(&l->jobs, now_ns);
        wait = pause < wait ? pause : wait;
        bool idle = l->jobs.inflight == 0;
        wait = idle && LOADER_CHECK_NS < wait ? LOADER_CHECK_NS : wait;
    }
    if (l->flush_pending && wait > LOADER_CHECK_NS)
        wait = LOADER_CHECK_NS;
    uint64_t withheld = loader_withheld_ns(l, now_ns);
    wait = withheld < wait ? withheld : wait;
    return (struct timespec){.tv_sec = (time_t)(wait / NS_PER_S),
                             .tv_nsec = (long)(wait % NS_PER_S)};
}

static uint32_t add_readers(const struct loader *l, struct pollfd *fds, uint32_t count)
{
    for (uint32_t i = 0; i < l->readers.count; i++)
        fds[count++] = (struct pollfd){.fd = l->readers.reader[i].fd, .events = POLLIN};
    return count;
}

static bool any_ready(const struct pollfd *fds, uint32_t count)
{
    bool any = false;
    for (uint32_t i = 0; i < count; i++)
        any |= fds[i].revents != 0;
    return any;
}

static void run(struct loader *l)
{
    while (!l->child.stop) {
        uint64_t now = clock_now_ns();
        struct pollfd fds[POLLED_MAX] = {{.fd = channel_fd(l->cache), .events = POLLIN},
                                         {.fd = child_fd(&l->child), .events = POLLIN}};
        uint32_t polled = add_readers(l, fds, 2);
        struct timespec time_left = timeout(l, now);
        int ready = ppoll(fds, polled, &time_left, NULL);
        if (ready < 0 && errno != EINTR)
            log_fatal(1, "ppoll: %s", strerror(errno));
        if (fds[0].revents)
            loader_receive(l); /* before the completions, so that a demand does not wait */
        now = clock_now_ns();
        read_throttle(l, now);
        loader_submit(l, now);
        /* No event: a submission that the kernel rejected for lack of memory is retried there. */
        if (any_ready(fds + 2, polled - 2) || l->withheld > 0 ||
            (ready == 0 && l->jobs.inflight > 0)) {
            loader_reap(l);
            loader_submit(l, clock_now_ns());
        }
        loader_send_dones(l);
        if (fds[1].revents)
            obey_supervisor(l);
        loader_check_copies(l, now);
        cache_tick(l);
        check_cache(l, now);
        loader_reply_flush(l);
        tick(l, now);
        loader_send_dones(l);
        show(l);
    }
}

/* Reads in flight end first: their buffers must not be reused before. */
static void finish(struct loader *l)
{
    child_wait(&l->child, WAIT_STOPPING);
    uint64_t deadline = clock_now_ns() + STOP_WAIT_NS;
    loader_fail_all(l, ECANCELED);
    while (l->jobs.inflight > 0 && clock_now_ns() < deadline) {
        struct pollfd fds[READERS_MAX];
        (void)poll(fds, add_readers(l, fds, 0), 50);
        loader_reap(l);
        child_heartbeat(&l->child);
    }
    if (l->jobs.inflight == 0)
        readers_close(&l->readers);
    /* The channel is left to the kernel. */
}

int main(int argc, char **argv)
{
    struct loader *l = &the_loader;
    l->magic = LOADER_MAGIC;
    const char *backend = take_backend(&argc, argv);
    child_start(&l->child, SERVICE_LOADER, argc, argv);
    take_params(l);
    open_files(l, backend ? backend : l->own.backend);
    loader_open_sources(l);
    create_jobs(l);
    cache_open(l);
    l->epoch_met = atomic_load_explicit(&l->child.directory.head->epoch, memory_order_acquire);
    open_channel(l); /* last: LOADs can arrive from now on */
    child_ready(&l->child);
    run(l);
    finish(l);
    child_exit(&l->child);
}
