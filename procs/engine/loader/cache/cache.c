/* SPDX-License-Identifier: Apache-2.0 */
/* Reads slots of the cache file, gives experts to its writer, and counts both. */
#include "procs/engine/loader/cache/cache.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#define XXH_STATIC_LINKING_ONLY /* a state on the stack */
#include <xxhash.h>

#include "lib/base/assert.h"
#include "lib/base/clock.h"
#include "lib/base/log.h"
#include "lib/io/read_errors.h"
#include "procs/engine/loader/cache/writer.h"
#include "procs/engine/loader/loader.h"
#include "shm/segment/inherited_fds.h"

#define SWEEP_ENTRIES    256      /* of a round */
#define LINK_PATIENCE_NS NS_PER_S /* for the first connection */

_Static_assert(sizeof(struct index_slot) + sizeof(struct index_found) <= RUN_CACHE_SLOT_BYTES,
               "memory of a slot");
_Static_assert(FILL_RUNS_MAX == ENTRY_EXTENTS_MAX, "a run for each extent");

static bool is_expert(const struct loader *l, uint32_t entry)
{
    const struct model_index *m = l->child.model;
    return entry < model_experts_end(m) && model_index_entries(m)[entry].kind == ENTRY_EXPERT;
}

static void show(struct loader *l)
{
    struct cached *c = &l->cached;
    counter_set(l->child.process, CTR_LOADER_cache_slots, c->index.slots);
    counter_set(l->child.process, CTR_LOADER_cache_used, c->index.used);
}

/* Its gauges are not those of a cache in use. */
static void end_use(struct loader *l)
{
    l->cached.state = CACHED_OFF;
    counter_set(l->child.process, CTR_LOADER_cache_slots, 0);
    counter_set(l->child.process, CTR_LOADER_cache_used, 0);
}

/* ---- the file of the server ------------------------------------------------------------------ */

static struct directory_file *first_copy(const struct loader *l)
{
    uint32_t at = run_file_index(RUN_EXPERTS, 0);
    return &l->child.directory.head->files[loader_self(l)][at];
}

/* What the first copy is, or that this will not be known soon. */
static bool link_known(const struct loader *l)
{
    const struct storage *first = &l->source[RUN_EXPERTS].copy[0];
    return atomic_load(&first_copy(l)->identity) != 0 || first->missing || first->quarantined ||
           !first->away || clock_now_ns() > first->away_ns + LINK_PATIENCE_NS;
}

/* A server that says nothing of its file has that of the slots. */
static bool other_file(const struct loader *l)
{
    uint64_t now = atomic_load(&first_copy(l)->identity);
    return now != 0 && now != l->cached.identity;
}

/* Pre: no slot is used, read or written. */
static void begin_again(struct loader *l)
{
    struct cached *c = &l->cached;
    c->identity = atomic_load(&first_copy(l)->identity);
    writer_give(c->writer,
                &(struct fill){.slot = INDEX_NONE, .begins = true, .identity = c->identity});
}

/* ---- start ----------------------------------------------------------------------------------- */

static void off(struct loader *l, const char *why)
{
    log_warn("%s: the loader runs without this cache: %s", l->cached.where.path, why);
    end_use(l);
}

/* Another process may have put a link or a pipe at the path. -1 with errno. */
static int open_regular(const char *path, int flags)
{
    struct stat st;
    int fd = open(path, flags | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0 || (fstat(fd, &st) == 0 && S_ISREG(st.st_mode)))
        return fd;
    close(fd);
    errno = EINVAL;
    return -1;
}

static int open_direct(const struct loader *l, int flags, bool *direct)
{
    const char *path = l->cached.where.path;
    int fd = l->own.direct_io ? open_regular(path, flags | O_DIRECT) : -1;
    *direct = fd >= 0;
    return fd >= 0 ? fd : open_regular(path, flags);
}

static int open_storage(struct loader *l)
{
    struct cached *c = &l->cached;
    struct storage *d = &c->storage;
    c->file.bytes = PAGE_BYTES + c->where.slot_bytes * c->where.slots;
    *d = (struct storage){.fd = -1,
                          .cache = true,
                          .file = &c->file,
                          .reader = &l->readers.reader[0],
                          .failed_entry = ENTRY_NONE};
    memcpy(d->path, c->where.path, strlen(c->where.path) + 1);
    d->fd = open_direct(l, O_RDONLY, &d->direct);
    if (d->fd >= 0 && !d->direct)
        (void)posix_fadvise(d->fd, 0, 0,
                            POSIX_FADV_RANDOM); /* read-ahead counts against our memory */
    return d->fd >= 0 ? 0 : -1;
}

static bool start_writer(struct loader *l, struct error *error)
{
    struct cached *c = &l->cached;
    bool direct;
    struct writer_file file = {
        .fd = open_direct(l, O_RDWR, &direct),
        .arena_fd = INHERITED_SEGMENTS + SEGMENT_ARENA,
        .loader = loader_self(l),
        .slots = c->where.slots,
        .head = {.magic = RUN_CACHE_MAGIC,
                 .version = CACHE_VERSION,
                 .loader = loader_self(l),
                 .loaders = l->child.directory.head->loader_count,
                 .slot_bytes = c->where.slot_bytes,
                 .identity = atomic_load(&first_copy(l)->identity)},
    };
    if (file.fd < 0) {
        error_set_errno(error, ERR_IO, errno, "it cannot be opened");
        return false;
    }
    memcpy(file.head.model, l->child.procs.head->model_identity, sizeof file.head.model);
    cache_head_seal(&file.head);
    c->writer = writer_start(&file, error);
    return c->writer != NULL;
}

void cache_open(struct loader *l)
{
    struct cached *c = &l->cached;
    static const uint8_t unknown[16]; /* the supervisor has said why */
    const uint8_t *identity = l->child.procs.head->model_identity;
    struct error error;
    end_use(l); /* the gauges are of a process before this one */
    uint32_t word = atomic_load_explicit(&l->child.directory.head->quarantined[loader_self(l)],
                                         memory_order_relaxed);
    if (memcmp(identity, unknown, sizeof unknown) == 0 ||
        !run_cache(l->child.params, l->child.model, l->child.procs.head->model_path, identity,
                   loader_self(l), &c->where))
        return;
    c->storage.quarantined = (word & QUARANTINE_CACHE) != 0;
    if (c->storage.quarantined)
        return;
    c->state = CACHED_STARTING;
    /* What is in memory after `ctl replace` may be of the file before. */
    c->sweeps = l->child.incarnation == 1 || atomic_load(&first_copy(l)->identity) != 0;
    if (open_storage(l) != 0)
        off(l, strerror(errno));
    else if (index_create(&c->index, c->where.slots, model_experts_end(l->child.model)) != 0)
        off(l, "no memory");
    else if (!start_writer(l, &error))
        off(l, error.text);
}

static uint64_t shard_bytes(const struct loader *l, uint32_t entry)
{
    struct model_extent shard[ENTRY_EXTENTS_MAX];
    uint64_t bytes = 0;
    uint32_t runs = is_expert(l, entry) ? loader_shard_of(l, entry, shard) : 0;
    for (uint32_t i = 0; i < runs; i++)
        bytes += shard[i].read_bytes;
    return bytes;
}

static void take_found(struct loader *l)
{
    struct cached *c = &l->cached;
    uint32_t count;
    struct index_found *found = writer_take_found(c->writer, &count);
    for (uint32_t i = 0; i < count; i++) {
        c->stamp = found[i].stamp > c->stamp ? found[i].stamp : c->stamp;
        if (found[i].bytes != shard_bytes(l, found[i].entry))
            found[i].entry = INDEX_NONE;
    }
    c->stamp++;
    c->identity = writer_identity(c->writer);
    index_build(&c->index, found, other_file(l) ? 0 : count);
    free(found);
    if (other_file(l))
        begin_again(l);
    c->state = CACHED_USED;
    log_info("%s: %" PRIu32 " of %" PRIu32 " slots have experts", c->where.path, c->index.used,
             c->index.slots);
}

static void finish_start(struct loader *l)
{
    struct cached *c = &l->cached;
    counter_set(l->child.process, CTR_LOADER_cache_checked, writer_checked(c->writer));
    switch (writer_state(c->writer)) {
    case WRITER_STARTING: return;
    case WRITER_READY:
        if (link_known(l))
            take_found(l);
        return;
    case WRITER_BUSY: off(l, "another engine uses it"); return;
    case WRITER_OTHER: off(l, "it is not a file of a cache"); return;
    case WRITER_FAILED: off(l, strerror(writer_errno(c->writer))); return;
    }
}

/* ---- fills ----------------------------------------------------------------------------------- */

/* The shard of an expert that is in memory, as the writer copies it. */
static bool fill_of(const struct loader *l, uint32_t entry, struct fill *f)
{
    struct directory_entry *e = &l->child.directory.entries[entry];
    struct model_extent shard[ENTRY_EXTENTS_MAX];
    uint64_t word = entry_read(&e->word);
    enum entry_state state = entry_state_of(word);
    if (state != ENTRY_READY &&
        (state != ENTRY_LOADING || (entry_pending_of(word) & 1u << loader_self(l))))
        return false;
    uint64_t at = atomic_load_explicit(&e->arena_offset, memory_order_acquire);
    *f = (struct fill){.entry = entry,
                       .generation = entry_generation_of(word),
                       .word = &e->word,
                       .runs = loader_shard_of(l, entry, shard)};
    for (uint32_t i = 0; i < f->runs; i++) {
        f->run[i] = (struct fill_run){at + shard[i].slot_offset, shard[i].read_bytes};
        f->bytes += shard[i].read_bytes;
    }
    return f->runs > 0 && f->bytes <= l->cached.where.slot_bytes - PAGE_BYTES;
}

static void offer(struct loader *l, uint32_t entry, bool evict)
{
    struct cached *c = &l->cached;
    struct fill f;
    if (c->write_failed || c->index.of_entry[entry] != INDEX_NONE || !fill_of(l, entry, &f))
        return;
    if (writer_room(c->writer) == 0) {
        counter_add(l->child.process, CTR_LOADER_cache_dropped, 1);
        return;
    }
    f.slot = index_take(&c->index, entry, evict, &f.evicts);
    if (f.slot == INDEX_NONE)
        return;
    f.stamp = c->stamp++;
    writer_give(c->writer, &f);
}

static void take_slot(struct loader *l, const struct filled *done)
{
    struct cached *c = &l->cached;
    struct process *process = l->child.process;
    bool evicted = c->index.slot[done->slot].entry != INDEX_NONE;
    if (done->result == FILL_WRITTEN)
        index_filled(&c->index, done->slot, done->sum);
    else
        index_unfilled(&c->index, done->slot, done->result == FILL_DROPPED);
    counter_add(process, CTR_LOADER_cache_bytes_written, done->bytes);
    counter_add(process, CTR_LOADER_cache_dropped, done->result != FILL_WRITTEN);
    counter_add(process, CTR_LOADER_cache_evicted, evicted && done->result != FILL_DROPPED);
}

static void take_filled(struct loader *l)
{
    struct cached *c = &l->cached;
    struct filled done;
    while (writer_take(c->writer, &done)) {
        if (done.slot != INDEX_NONE)
            take_slot(l, &done);
        if (done.result == FILL_FAILED && !c->write_failed) {
            c->write_failed = true;
            log_warn("%s cannot be written: %s; what it has is read, and nothing more is added",
                     c->where.path, strerror(writer_errno(c->writer)));
        }
    }
}

/* What was dropped, or was in memory before the file was there. */
static void sweep(struct loader *l)
{
    struct cached *c = &l->cached;
    if (!c->sweeps || l->jobs.job_count > 0 || c->index.free == INDEX_NONE || c->write_failed)
        return;
    for (uint32_t i = 0; i < SWEEP_ENTRIES && writer_room(c->writer) > FILLS_MAX / 2; i++) {
        c->cursor = c->cursor + 1 < c->index.entries ? c->cursor + 1 : 0;
        if (is_expert(l, c->cursor))
            offer(l, c->cursor, false);
    }
}

/* Experts of the file that the server had before are neither read nor written any more. */
static void leave(struct loader *l)
{
    struct cached *c = &l->cached;
    if (c->state == CACHED_USED) {
        log_warn("%s: the server has another file than the one that it was filled from; it begins "
                 "again",
                 c->where.path);
        c->state = CACHED_LEAVING;
        c->sweeps = false;
        loader_fail_storage(l, &c->storage, ESTALE); /* its jobs continue on a server */
    }
    take_filled(l);
    if (!index_forget(&c->index) || writer_room(c->writer) < FILLS_MAX)
        return;
    begin_again(l);
    c->state = CACHED_USED;
}

void cache_tick(struct loader *l)
{
    struct cached *c = &l->cached;
    if (c->state == CACHED_OFF)
        return;
    if (c->state == CACHED_STARTING)
        finish_start(l);
    if (c->storage.quarantined)
        end_use(l);
    if (c->state == CACHED_LEAVING || (c->state == CACHED_USED && other_file(l)))
        leave(l);
    if (c->state != CACHED_USED)
        return;
    take_filled(l);
    sweep(l);
    show(l);
}

/* ---- jobs ------------------------------------------------------------------------------------ */

bool cache_choose(struct loader *l, struct job *job)
{
    struct cached *c = &l->cached;
    if (c->state != CACHED_USED || c->storage.quarantined)
        return false;
    uint32_t slot = index_find(&c->index, job->entry);
    if (slot == INDEX_NONE)
        return false;
    uint64_t at = cache_slot_at(c->where.slot_bytes, slot) + PAGE_BYTES;
    for (uint32_t i = 0; i < job->runs; i++) {
        job->run[i].file_offset = at;
        at += job->run[i].bytes;
    }
    index_use(&c->index, slot);
    c->index.slot[slot].reading = true;
    job->copy = COPY_CACHE;
    return true;
}

bool cache_right(struct loader *l, const struct job *job)
{
    uint32_t slot = index_find(&l->cached.index, job->entry);
    uint64_t start = clock_now_ns();
    XXH3_state_t state;
    sl_assert(slot != INDEX_NONE);
    XXH3_64bits_reset(&state);
    for (uint32_t i = 0; i < job->runs; i++)
        XXH3_64bits_update(&state, (char *)l->child.arena.base + job->run[i].arena_offset,
                           job->run[i].bytes);
    l->verify.bytes += job->bytes;
    l->verify.ns += clock_now_ns() - start;
    return XXH3_64bits_digest(&state) == l->cached.index.slot[slot].sum;
}

/* status: why the job ended; 0: it has what the slot had. */
static void end_read(struct loader *l, uint32_t entry, int status)
{
    struct cached *c = &l->cached;
    uint32_t slot = index_find(&c->index, entry);
    sl_assert(slot != INDEX_NONE && c->index.slot[slot].reading);
    c->index.slot[slot].reading = false;
    if (status == 0)
        counter_add(l->child.process, CTR_LOADER_cache_hits, 1);
    if (status == 0 || status == ECANCELED || read_reported_memory(status))
        return;
    counter_add(l->child.process, CTR_LOADER_cache_damaged, c->state != CACHED_LEAVING);
    index_drop(&c->index, slot);
}

void cache_leave(struct loader *l, struct job *job, int status)
{
    struct model_extent shard[ENTRY_EXTENTS_MAX];
    uint32_t runs = loader_shard_of(l, job->entry, shard);
    sl_assert(runs == job->runs && job->copy != COPY_CACHE);
    for (uint32_t i = 0; i < runs; i++)
        job->run[i].file_offset = shard[i].file_offset;
    end_read(l, job->entry, status);
}

void cache_ended(struct loader *l, const struct job *job)
{
    if (job->copy == COPY_CACHE)
        end_read(l, job->entry, job->status);
    else if (l->cached.state == CACHED_USED && job->status == 0 && is_expert(l, job->entry))
        offer(l, job->entry, true);
}
