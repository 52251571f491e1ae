/* SPDX-License-Identifier: Apache-2.0 */
/* Copies of the files that this loader reads, and the choice among them.
 *
 *   missing: the supervisor could not open it
 *   in use --(consecutive entries not delivered, a stall, or its file changed in place)-->
 *       quarantined
 *   quarantined, missing --(ctl replace: the supervisor opens it again; a successor)--> in use
 *   in use --(a server's connection breaks)--> away --(its reader has connected again)--> in use
 *
 * A job starts with the first copy in use. Shards that a copy does not deliver are read from the
 * next one, so that a bad sector costs one additional read; a shard fails only when no copy
 * delivers it. The quarantine flag is in the directory and outlives the loader, which exits when
 * reads stall: stalled reads may still write, so that the cache punches their ranges before they
 * are reused, and the successor starts with the next copy. Reads of a server can be taken back, so
 * that the loader remains. Without another copy, reads wait for a server that is away as long as
 * for one that does not answer. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "lib/base/assert.h"
#include "lib/base/clock.h"
#include "lib/base/log.h"
#include "lib/io/read_errors.h"
#include "lib/io/server/url.h"
#include "lib/model/limits.h"
#include "procs/engine/loader/loader.h"

#define LINK_QUIET_NS (300 * NS_PER_MS) /* a shorter outage of a server is not logged */
#define AWAKE_NS      NS_PER_S /* a longer pause between checks: this process was stopped */

static _Atomic uint32_t *quarantine_word(struct loader *l)
{
    return &l->child.directory.head->quarantined[loader_self(l)];
}

static enum run_source source_of(const struct loader *l, uint32_t entry)
{
    return run_source_of(l->child.params, l->child.model, entry);
}

static bool right(const struct storage *d)
{
    return !d->missing && !d->quarantined && !d->changed;
}

static bool usable(const struct storage *d)
{
    return right(d) && !d->away;
}

static uint64_t patience_ns(const struct loader *l)
{
    return l->own.device_timeout * NS_PER_MS;
}

/* A server that may come back in time. */
static bool awaited(const struct loader *l, const struct storage *d, uint64_t now_ns)
{
    return right(d) && d->away && now_ns < d->away_ns + patience_ns(l);
}

static void open_server(struct loader *l, struct storage *d, const char *url,
                        struct directory_file *file, bool quarantined)
{
    struct error error;
    struct io_url parsed;
    struct io_source source = {.url = url,
                               .bytes = file->bytes,
                               .depth = (uint32_t)l->own.queue_depth,
                               .identity = atomic_load(&file->identity)};
    bool known = io_url_parse(url, &parsed, &error) == 0;
    source.backend = known ? parsed.backend : IO_BACKEND__COUNT;
    storage_open_server(d, url, file, quarantined);
    d->reader = quarantined || !known ? NULL : readers_open_server(&l->readers, &source, &error);
    if (quarantined || d->reader)
        return;
    log_error("%s", error.text);
    d->missing = true;
}

static void open_copy(struct loader *l, enum run_source which, uint32_t i, const char *path)
{
    struct storage *d = &l->source[which].copy[i];
    uint32_t at = run_file_index(which, i);
    struct directory_file *file = &l->child.directory.head->files[loader_self(l)][at];
    /* Relaxed: the supervisor clears the flag only while no loader runs. */
    uint32_t word = atomic_load_explicit(quarantine_word(l), memory_order_relaxed);
    bool quarantined = (word & quarantine_bit(which, i)) != 0;
    if (io_url_is(path)) {
        open_server(l, d, path, file, quarantined);
        return;
    }
    storage_open(d, path, l->own.direct_io, INHERITED_FILES + (int)at, file, quarantined);
    d->reader = &l->readers.reader[0];
}

static void open_source(struct loader *l, enum run_source which)
{
    struct source *source = &l->source[which];
    struct run_copies copies;
    struct error error;
    if (run_copies(l->child.params, l->child.model, l->child.procs.head->model_path, loader_self(l),
                   which, &copies, &error) != 0)
        log_fatal(2, "%s", error.text);
    source->copies = copies.count;
    for (uint32_t i = 0; i < copies.count; i++)
        open_copy(l, which, i, copies.path[i]);
}

void loader_open_sources(struct loader *l)
{
    const struct model_index *m = l->child.model;
    sl_assert(run_files(m) == 0 || loader_self(l) < run_files(m));
    for (uint32_t source = 0; source < RUN_SOURCES; source++)
        open_source(l, (enum run_source)source); /* RUN_DENSE may have no copies */
    const struct storage *first = &l->source[RUN_EXPERTS].copy[0];
    const struct reader *reader = first->reader ? first->reader : &l->readers.reader[0];
    counter_set(l->child.process, CTR_LOADER_backend, io_backend_info(reader->backend->id)->number);
}

struct storage *loader_storage_of(struct loader *l, const struct job *job)
{
    struct source *source = &l->source[source_of(l, job->entry)];
    if (job->copy == COPY_CACHE)
        return &l->cached.storage;
    sl_assert(job->copy < source->copies);
    return &source->copy[job->copy];
}

/* The first copy from number `from` on that can be read; the number of copies when there is
 * none. */
static uint32_t copy_from(const struct source *source, uint32_t from)
{
    while (from < source->copies && !usable(&source->copy[from]))
        from++;
    return from;
}

/* The first server from number `from` on that is worth waiting for; the number of copies when there
 * is none. */
static uint32_t awaited_from(const struct loader *l, const struct source *source, uint32_t from)
{
    uint64_t now = clock_now_ns();
    while (from < source->copies && !awaited(l, &source->copy[from], now))
        from++;
    return from;
}

/* Why no copy can be read. A server that is away comes first: it can come back, and what is in
 * quarantine cannot. */
static int reason(struct loader *l, const struct source *source)
{
    for (uint32_t i = 0; i < source->copies; i++)
        if (right(&source->copy[i]))
            return ENOTCONN;
    /* 0: a copy that changed is not in quarantine yet. */
    int why = quarantine_errno(atomic_load_explicit(quarantine_word(l), memory_order_relaxed));
    return why ? why : source->copy[source->copies - 1].missing ? ENOENT : ESTALE;
}

void loader_choose_copy(struct loader *l, struct job *job)
{
    const struct source *source = &l->source[source_of(l, job->entry)];
    if (cache_choose(l, job))
        return;
    uint32_t copy = copy_from(source, 0);
    if (copy == source->copies)
        copy = awaited_from(l, source, 0);
    if (copy < source->copies) {
        job->copy = (uint16_t)copy;
        return;
    }
    job->copy = (uint16_t)(source->copies - 1);
    jobs_fail(&l->jobs, job, reason(l, source));
}

bool loader_take_other_copy(struct loader *l, struct job *job)
{
    const struct source *source = &l->source[source_of(l, job->entry)];
    sl_assert(job_ended(job) && job->status != 0);
    const bool cached = job->copy == COPY_CACHE;
    uint32_t from = cached ? 0 : job->copy + 1u, copy = copy_from(source, from);
    int status = job->status;
    if (copy == source->copies)
        copy = awaited_from(l, source, from);
    if (status == ECANCELED || read_reported_memory(status))
        return false;
    if (copy == source->copies) {
        if (cached) /* the servers are why it fails */
            job->status = reason(l, source);
        return false;
    }
    jobs_move(job, (uint16_t)copy);
    if (cached)
        cache_leave(l, job, status);
    else
        counter_add(l->child.process, CTR_LOADER_parts_failed_over, 1);
    return true;
}

/* ---- quarantine ------------------------------------------------------------------------------ */

static uint32_t bit_of(const struct loader *l, const struct storage *storage)
{
    uint32_t bit = storage == &l->cached.storage ? QUARANTINE_CACHE : 0;
    for (uint32_t s = 0; s < RUN_SOURCES; s++)
        for (uint32_t i = 0; i < l->source[s].copies; i++)
            if (&l->source[s].copy[i] == storage)
                bit = quarantine_bit((enum run_source)s, i);
    sl_assert(bit != 0);
    return bit;
}

static void set_quarantined(struct loader *l, struct storage *storage, int errno_value)
{
    uint32_t word = atomic_load_explicit(quarantine_word(l), memory_order_relaxed);
    sl_assert(!storage->quarantined);
    storage->quarantined = true;
    word = (word & ((1u << QUARANTINE_ERRNO_SHIFT) - 1)) | bit_of(l, storage);
    word |= (uint32_t)errno_value << QUARANTINE_ERRNO_SHIFT;
    atomic_store_explicit(quarantine_word(l), word, memory_order_release);
    counter_add(l->child.process, CTR_LOADER_quarantines, 1);
}

/* Takes back what its server has not delivered: those jobs fail, or continue on another copy. */
static void give_up_reads(struct loader *l, struct storage *storage, int status)
{
    loader_fail_storage(l, storage, status);
    if (storage->inflight > 0)
        storage->reader->backend->abandon(storage->reader->io);
}

void loader_note_failed(struct loader *l, struct storage *storage, uint32_t entry, int errno_value)
{
    if (storage->quarantined || !storage_failed(storage, entry, l->own.device_errors))
        return;
    set_quarantined(l, storage, errno_value);
    log_error("%s is quarantined: %u consecutive experts could not be read, the last with '%s'; "
              "`sluice ctl replace loader.%u` ends the quarantine",
              storage->path, storage->failed, strerror(errno_value), loader_self(l));
    if (storage->server) /* nothing else would end its reads: it is not checked any more */
        give_up_reads(l, storage, errno_value);
    else
        loader_fail_storage(l, storage, errno_value);
}

static void check_stall(struct loader *l, struct storage *storage, uint64_t now_ns)
{
    uint64_t limit = l->own.device_timeout * NS_PER_MS;
    if (storage->quarantined || !storage_stalled(storage, now_ns, l->awake_ns, limit))
        return;
    set_quarantined(l, storage, ETIME);
    char text[sizeof storage->path + 160];
    snprintf(text, sizeof text,
             "%s is quarantined: it completed no read for %" PRIu64
             " ms; `sluice ctl replace loader.%u` ends the quarantine",
             storage->path, l->own.device_timeout, loader_self(l));
    if (!storage->server)
        log_fatal(1, "%s", text);
    log_error("%s", text);
    give_up_reads(l, storage, ETIME);
}

/* A copy after it, where its jobs can continue. */
static bool other_usable(const struct loader *l, const struct storage *storage)
{
    const struct source *source = &l->source[RUN_EXPERTS]; /* only these have servers */
    uint32_t own = (uint32_t)(storage - source->copy);
    return copy_from(source, own + 1) < source->copies;
}

static void report_link(struct storage *storage, const struct io_link *link, bool changed,
                        uint64_t now_ns)
{
    if (changed && link->up && storage->away_logged)
        log_info("%s is connected", storage->path);
    bool log = !link->up && link->known && !storage->away_logged &&
               now_ns > link->since_ns + LINK_QUIET_NS;
    if (log)
        log_warn("%s is not connected: %s", storage->path, link->why);
    storage->away_logged = !link->up && (storage->away_logged || log);
}

/* A server that is away is not quarantined: it is read again as soon as it is connected. */
static void check_link(struct loader *l, struct storage *storage, uint64_t now_ns)
{
    struct io_link link;
    if (!storage->server || storage->missing)
        return;
    storage->reader->backend->link(storage->reader->io, &link);
    if (link.wrong) {
        log_error("%s is not a copy of the model: %s", storage->path, link.why);
        storage->missing = true;
        give_up_reads(l, storage, ENOENT);
        return;
    }
    if (link.identity != 0) /* its successor gets it */
        atomic_store_explicit(&storage->file->identity, link.identity, memory_order_relaxed);
    bool changed = storage_note_link(storage, link.up, link.since_ns, now_ns);
    report_link(storage, &link, changed, now_ns);
    if (storage->away && l->jobs.job_count > 0 &&
        (other_usable(l, storage) || !awaited(l, storage, now_ns)))
        give_up_reads(l, storage, ENOTCONN);
}

/* Every job that reads it fails, or continues on another copy. */
static void check_changed(struct loader *l, struct storage *storage)
{
    if (!storage->changed)
        return;
    set_quarantined(l, storage, ESTALE);
    log_error("%s is quarantined: it %s; move a right copy to that path, then "
              "`sluice ctl replace loader.%u` ends the quarantine",
              storage->path, run_errno_text(ESTALE), loader_self(l));
    loader_fail_storage(l, storage, ESTALE);
}

/* The supervisor reports it: several loaders may read the same file. */
static void note_moved(struct loader *l, struct storage *storage)
{
    _Atomic uint32_t *word = &l->child.directory.head->replaced[loader_self(l)];
    if (storage->moved)
        atomic_fetch_or_explicit(word, bit_of(l, storage), memory_order_release);
    storage->moved = false;
}

static void check_copy(struct loader *l, struct storage *storage, uint64_t now_ns)
{
    check_stall(l, storage, now_ns);
    if (storage->quarantined)
        return;
    check_link(l, storage, now_ns);
    storage_tick(storage, now_ns);
    note_moved(l, storage);
    check_changed(l, storage);
}

void loader_check_copies(struct loader *l, uint64_t now_ns)
{
    uint64_t quarantined = 0;
    if (now_ns - l->copies_checked_ns > AWAKE_NS)
        l->awake_ns = now_ns;
    l->copies_checked_ns = now_ns;
    for (uint32_t s = 0; s < RUN_SOURCES; s++)
        for (uint32_t i = 0; i < l->source[s].copies; i++) {
            check_copy(l, &l->source[s].copy[i], now_ns);
            quarantined += l->source[s].copy[i].quarantined;
        }
    if (l->cached.storage.cache)
        check_stall(l, &l->cached.storage, now_ns);
    quarantined += l->cached.storage.quarantined;
    counter_set(l->child.process, CTR_LOADER_quarantined, quarantined);
}

/* ---- tests ----------------------------------------------------------------------------------- */

/* Injected faults are those of the first copy of the experts. */
static struct storage *injected(struct loader *l, enum injection point)
{
    struct storage *first = &l->source[RUN_EXPERTS].copy[0];
    return child_injected(&l->child, point) && !first->quarantined ? first : NULL;
}

bool loader_reads_stall(struct loader *l)
{
    struct storage *first = injected(l, INJECT_LOADER_READS_STALL);
    return first && first->inflight > 0;
}

int loader_read_error(struct loader *l, const struct job *job)
{
    const struct storage *fails = injected(l, INJECT_LOADER_READS_FAIL);
    const struct storage *waits = injected(l, INJECT_LOADER_READS_WAIT);
    const struct storage *of = loader_storage_of(l, job);
    return of == fails ? EIO : of == waits ? EAGAIN : 0;
}
