/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a loader's jobs: submits reads, checks what was read, and publishes or fails the shards. */
#include <errno.h>
#include <inttypes.h>

#include "config/storage.h"
#include "lib/base/assert.h"
#include "lib/base/clock.h"
#include "lib/base/log.h"
#include "lib/io/read_errors.h"
#include "procs/engine/loader/loader.h"

static atomic_flag read_error_logged = ATOMIC_FLAG_INIT, checksum_logged = ATOMIC_FLAG_INIT,
                   memory_logged = ATOMIC_FLAG_INIT;

static struct directory_entry *entry_of(struct loader *l, const struct job *job)
{
    sl_assert(job->entry < l->child.directory.head->entry_count);
    return &l->child.directory.entries[job->entry];
}

static bool still_wanted(struct loader *l, const struct job *job)
{
    uint64_t word = entry_read(&entry_of(l, job)->word);
    return entry_wants_shard(word, job->generation, loader_self(l));
}

/* A doorbell: its loss delays the cache by one tick. A success that the cache does not wait for
 * would only wake it; it finds the READY word later. No event is missed: this side publishes and
 * then reads the request flag; the cache sets the flag and then reads the words. */
void loader_send_dones(struct loader *l)
{
    if (l->dones.count == 0)
        return;
    atomic_thread_fence(memory_order_seq_cst);
    if (l->dones_urgent ||
        atomic_load_explicit(&l->child.directory.head->doorbells_wanted, memory_order_relaxed)) {
        l->dones.loader_incarnation = l->child.incarnation;
        (void)channel_send(l->cache, &l->dones, MSG_DONES);
    }
    l->dones.count = 0;
    l->dones_urgent = false;
}

static void add_done(struct loader *l, const struct job *job)
{
    uint64_t first = job->first_ns ? job->first_ns : clock_now_ns();
    if (l->dones.count == MSG_LOADS_MAX)
        loader_send_dones(l);
    l->dones_urgent |= job->status != 0;
    l->dones.dones[l->dones.count++] = (struct msg_done){
        .entry = job->entry,
        .generation = job->generation,
        .status = job->status,
        .bytes = job->status == 0 ? job->bytes : 0,
        .queue_ns = first - job->taken_ns,
        .read_ns = job->last_ns > first ? job->last_ns - first : 0,
    };
}

/* In this order: a process that sees DOOMED must find the reason. */
static enum shard_result fail_shard(struct loader *l, struct directory_entry *e,
                                    const struct job *job)
{
    counter_add(l->child.process, CTR_LOADER_parts_failed, 1);
    if (job->status != ECANCELED) {
        atomic_store_explicit(&e->last_errno, (uint32_t)job->status, memory_order_relaxed);
        atomic_store_explicit(&e->last_loader, loader_self(l), memory_order_relaxed);
        atomic_fetch_add_explicit(&e->failures, 1, memory_order_release);
    }
    return entry_shard_fail(&e->word, job->generation, loader_self(l));
}

/* A bucket of the histogram; longer times than the last bound are only in the sum. */
static void count_time(struct loader *l, uint64_t ns)
{
    static const struct {
        unsigned counter;
        uint64_t ns;
    } bounds[] = {
#define LOAD_BOUND(name, ns) {CTR_LOADER_loads_##name, ns},
#include "shm/table/load_bounds.tbl.h"
    };
    counter_add(l->child.process, CTR_LOADER_loads_ns, ns);
    for (size_t i = 0; i < ARRAY_LEN(bounds); i++)
        if (ns <= bounds[i].ns) {
            counter_add(l->child.process, bounds[i].counter, 1);
            return;
        }
}

static enum shard_result publish_shard(struct loader *l, struct directory_entry *e,
                                       const struct job *job)
{
    child_inject(&l->child, INJECT_LOADER_BEFORE_PUBLISH);
    enum shard_result result = entry_shard_done(&e->word, job->generation, loader_self(l));
    if (result == SHARD_READY || result == SHARD_CLEARED) {
        counter_add(l->child.process, CTR_LOADER_parts_done, 1);
        counter_add(l->child.process, CTR_LOADER_bytes_published, job->bytes);
        count_time(l, job->last_ns > job->taken_ns ? job->last_ns - job->taken_ns : 0);
    } else {
        counter_add(l->child.process, CTR_LOADER_parts_failed, 1);
    }
    if (result == SHARD_READY) /* failures count since it was last READY */
        atomic_store_explicit(&e->failures, 0, memory_order_relaxed);
    return result;
}

void loader_end_shard(struct loader *l, const struct job *job)
{
    struct directory_entry *e = entry_of(l, job);
    enum shard_result result = job->status == 0 ? publish_shard(l, e, job) : fail_shard(l, e, job);
    if (result == SHARD_READY || result == SHARD_DOOMED)
        directory_signal(&l->child.directory,
                         directory_counter_of(&l->child.directory, job->entry));
    l->dones_urgent |= result == SHARD_DOOMED;
    if (result != SHARD_STALE)
        add_done(l, job);
    child_progress(&l->child);
}

/* Shards are published only with a right checksum. A wrong one is read once more, in case the
 * transfer and not the file is at fault; then the shard fails. A wrong checksum of a cancelled
 * entry means nothing: the cache punches it when the loader of another stripe has crashed. False:
 * the job continues. */
static bool checked(struct loader *l, struct job *job)
{
    struct process *process = l->child.process;
    enum verdict verdict = verify_end(&l->verify, &l->jobs, job);
    counter_set(process, CTR_LOADER_checksum_bytes, l->verify.bytes);
    counter_set(process, CTR_LOADER_checksum_ns, l->verify.ns);
    if (verdict == VERDICT_UNKNOWN && job->copy == COPY_CACHE)
        verdict = cache_right(l, job) ? VERDICT_RIGHT : VERDICT_WRONG;
    if (verdict == VERDICT_RIGHT)
        counter_add(process, CTR_LOADER_checksums_verified, 1);
    if (verdict != VERDICT_WRONG)
        return true;
    if (!still_wanted(l, job)) {
        jobs_fail(&l->jobs, job, ECANCELED);
        return true;
    }
    if (job->copy == COPY_CACHE) { /* the server has it */
        jobs_fail(&l->jobs, job, EBADMSG);
        return true;
    }
    counter_add(process, CTR_LOADER_checksums_failed, 1);
    if (log_once(&checksum_logged))
        log_error("%s: the bytes at %" PRIu64 " (layer %u expert %u) do not match their checksum "
                  "(further ones are only counted)",
                  loader_storage_of(l, job)->path, job->run[0].file_offset, entry_of(l, job)->layer,
                  entry_of(l, job)->expert);
    if (!job->restarted) {
        counter_add(process, CTR_LOADER_checksum_rereads, 1);
        jobs_restart(job);
        return false;
    }
    jobs_fail(&l->jobs, job, EBADMSG);
    return true;
}

/* After the last byte, before it is published: nothing that was read from a file after a change is
 * used, whatever the read itself reported. */
static void check_file(struct loader *l, struct job *job)
{
    struct storage *storage = loader_storage_of(l, job);
    if (job->status == ECANCELED || storage->quarantined || storage_unchanged(storage))
        return;
    job->status = 0; /* a short read of a truncated file */
    jobs_fail(&l->jobs, job, ESTALE);
    storage_suspect(storage); /* and the file is quarantined in this round */
}

void loader_end_if_due(struct loader *l, struct job *job)
{
    if (!job_ended(job))
        return;
    check_file(l, job);
    if (job->status == 0 && !checked(l, job))
        return;
    if (job->status != 0 && still_wanted(l, job) && loader_take_other_copy(l, job))
        return;
    loader_end_shard(l, job);
    cache_ended(l, job);
    jobs_remove(&l->jobs, job);
}

static void end_if_unwanted(struct job *job, void *arg)
{
    struct loader *l = arg;
    if (job->status == 0 && !still_wanted(l, job))
        jobs_fail(&l->jobs, job, ECANCELED);
    if (job->status != 0)
        loader_end_if_due(l, job);
}

void loader_check_jobs(struct loader *l)
{
    OBJ_CHECK(l, LOADER_MAGIC);
    jobs_each(&l->jobs, end_if_unwanted, l);
}

struct fail_all {
    struct loader *l;
    const struct storage *storage; /* NULL: any */
    int status;
};

static void fail_one(struct job *job, void *arg)
{
    struct fail_all *all = arg;
    if (all->storage && loader_storage_of(all->l, job) != all->storage)
        return;
    if (job->status == 0)
        jobs_fail(&all->l->jobs, job, all->status);
    loader_end_if_due(all->l, job);
}

void loader_fail_storage(struct loader *l, const struct storage *storage, int status)
{
    struct fail_all all = {l, storage, status};
    jobs_each(&l->jobs, fail_one, &all);
}

void loader_fail_all(struct loader *l, int status)
{
    loader_fail_storage(l, NULL, status);
}

/* Measured latency: from the DEMAND to the submission of its first read. */
static void sample_demand(struct loader *l, const struct job *job, uint64_t now_ns)
{
    if (job->priority != LOAD_DEMAND || job->demand_ns == 0 || now_ns < job->demand_ns)
        return;
    struct process *process = l->child.process;
    uint64_t n = atomic_load_explicit(&process->samples_count, memory_order_relaxed);
    atomic_store_explicit(&process->samples_us[n % PROCS_SAMPLES],
                          (uint32_t)((now_ns - job->demand_ns) / NS_PER_US), memory_order_relaxed);
    atomic_store_explicit(&process->samples_count, n + 1, memory_order_release);
}

static bool prefetch_paused(const struct loader *l)
{
    /* Relaxed: a stale value delays the demand by at most one prefetch chunk. */
    return atomic_load_explicit(&l->child.directory.head->prefetch_paused, memory_order_relaxed);
}

/* The next job whose entry still needs it; cancelled jobs before it are ended. */
static struct job *next_wanted(struct loader *l, uint64_t now_ns)
{
    struct job *job;
    while ((job = jobs_pick(&l->jobs, now_ns, prefetch_paused(l))) != NULL) {
        if (still_wanted(l, job))
            return job;
        jobs_fail(&l->jobs, job, ECANCELED);
        loader_end_if_due(l, job);
    }
    return NULL;
}

static uint32_t cut_batch(struct loader *l, uint64_t now_ns, struct io_read *reads)
{
    uint64_t expert_bytes = l->child.model->expert_slot_bytes_max;
    uint64_t flight = storage_flight_bytes(&l->own, expert_bytes);
    uint64_t max = throttle_chunk(&l->throttle, storage_read_bytes(&l->own, expert_bytes));
    uint32_t n = 0;
    struct job *job;
    while (n < LOADER_BATCH_MAX && l->jobs.inflight_bytes + max <= flight &&
           (job = next_wanted(l, now_ns)) != NULL) {
        bool first = job->first_ns == 0;
        const struct chunk_pace *pace = job->copy == COPY_CACHE ? &l->cached.pace : &l->pace;
        uint64_t bytes = chunk_pace_bytes(pace, job->priority, max, l->throttle.rate);
        struct chunk *c = jobs_cut(&l->jobs, job, now_ns, bytes);
        if (first)
            sample_demand(l, job, now_ns);
        sl_assert(c->arena_offset + c->bytes <= l->child.arena.bytes);
        reads[n++] = (struct io_read){.fd = loader_storage_of(l, job)->fd,
                                      .bytes = (uint32_t)c->bytes,
                                      .file_offset = c->file_offset,
                                      .buffer = (char *)l->child.arena.base + c->arena_offset,
                                      .tag = c};
    }
    return n;
}

/* Those of the batch that this reader reads. */
static void submit_to(struct loader *l, struct reader *reader, const struct io_read *batch,
                      uint32_t count, uint64_t now_ns)
{
    struct process *process = l->child.process;
    struct io_read reads[LOADER_BATCH_MAX];
    uint32_t n = 0;
    for (uint32_t i = 0; i < count; i++) {
        const struct chunk *c = batch[i].tag;
        if (loader_storage_of(l, c->job)->reader == reader)
            reads[n++] = batch[i];
    }
    uint32_t taken = n > 0 ? reader->backend->submit(reader->io, reads, n) : 0;
    for (uint32_t i = 0; i < n; i++) {
        struct chunk *c = reads[i].tag;
        if (i >= taken) {
            jobs_put_back(&l->jobs, c);
            continue;
        }
        /* The throttle is that of the server. */
        c->position =
            c->job->copy == COPY_CACHE ? 0 : throttle_take(&l->throttle, c->bytes, now_ns);
        storage_read_started(loader_storage_of(l, c->job), now_ns);
        counter_add(process, CTR_LOADER_reads_submitted, 1);
        counter_add(process, CTR_LOADER_bytes_submitted, c->bytes);
    }
}

void loader_submit(struct loader *l, uint64_t now_ns)
{
    OBJ_CHECK(l, LOADER_MAGIC);
    if (l->jobs.job_count == 0)
        return;
    struct io_read reads[LOADER_BATCH_MAX];
    uint32_t n = cut_batch(l, now_ns, reads);
    if (n == 0)
        return;
    for (uint32_t i = 0; i < l->readers.count; i++)
        submit_to(l, &l->readers.reader[i], reads, n, now_ns);
    child_inject(&l->child, INJECT_LOADER_READS_PENDING);
}

static void report_error(const struct storage *storage, const struct chunk *c, int errno_value)
{
    if (read_fault_of(errno_value) == READ_FAULT_MEMORY) {
        if (log_once(&memory_logged))
            log_warn("%s for %" PRIu64 " bytes read from %s: reads are tried again (further ones "
                     "are only counted)",
                     run_errno_text(read_error_reported(errno_value)), c->bytes, storage->path);
    } else if (log_once(&read_error_logged)) {
        log_error("%s: reading %" PRIu64 " bytes at %" PRIu64 ": error %d (further ones are only "
                  "counted)",
                  storage->path, c->bytes, c->file_offset, errno_value);
    }
}

/* By give_up_reads: nothing that the server reports. */
static bool taken_back(const struct storage *storage, const struct chunk *c, int64_t result)
{
    return storage->server && result == -ENOTCONN && c->job->status != 0;
}

static void count_result(struct loader *l, const struct storage *storage, const struct chunk *c,
                         int64_t result, uint64_t now_ns)
{
    struct process *process = l->child.process;
    uint64_t busy_from = c->submit_ns > l->busy_seen_ns ? c->submit_ns : l->busy_seen_ns;
    counter_add(process, CTR_LOADER_read_ns, now_ns - c->submit_ns);
    uint64_t busy_ns = now_ns > busy_from ? now_ns - busy_from : 0;
    counter_add(process, CTR_LOADER_busy_ns, busy_ns);
    l->busy_seen_ns = now_ns;
    if (result > 0) {
        chunk_pace_note(storage->cache ? &l->cached.pace : &l->pace, (uint64_t)result, busy_ns);
        counter_add(process, CTR_LOADER_bytes_read, (uint64_t)result);
        counter_add(process, CTR_LOADER_cache_bytes_read, storage->cache ? (uint64_t)result : 0);
        if (c->priority == LOAD_DEMAND)
            counter_add(process, CTR_LOADER_bytes_demand, (uint64_t)result);
        if (c->priority == LOAD_PREFETCH)
            counter_add(process, CTR_LOADER_bytes_prefetch, (uint64_t)result);
        storage_drop_cache(storage, c->file_offset, c->bytes);
    }
    if (result < 0 && !taken_back(storage, c, result))
        report_error(storage, c, (int)-result);
}

static void chunk_ended(struct loader *l, struct chunk *c, int64_t result, uint64_t now_ns)
{
    struct process *process = l->child.process;
    struct job *job = c->job;
    struct storage *storage = loader_storage_of(l, job);
    uint32_t entry = job->entry;
    count_result(l, storage, c, result, now_ns);
    if (result == -EINVAL && storage->direct)
        storage_fall_back(storage);
    enum read_fault fault = result < 0 ? read_fault_of((int)-result) : READ_FAULT_STORAGE;
    bool back = taken_back(storage, c, result);
    enum chunk_fate fate = jobs_complete(&l->jobs, c, result, now_ns, storage->file->bytes);
    bool failed = fate != CHUNK_DONE && !back;
    if (failed) {
        counter_add(process, CTR_LOADER_reads_failed, 1);
        counter_add(process, CTR_LOADER_reads_without_memory, fault == READ_FAULT_MEMORY);
        storage_suspect(storage);
    }
    if (failed && fate == CHUNK_RETRY)
        counter_add(process, CTR_LOADER_reads_retried, 1);
    if (fate == CHUNK_DONE)
        storage_delivered(storage);
    child_progress(&l->child);
    verify_arrived(&l->verify, &l->jobs, job);
    loader_end_if_due(l, job);
    /* last: the job can be removed here */
    if (failed && fate == CHUNK_FAILED && result < 0 && fault != READ_FAULT_MEMORY)
        loader_note_failed(l, storage, entry, read_error_reported((int)-result));
}

/* The throttle releases it, or its job has failed. */
static bool due(struct loader *l, const struct chunk *c, uint64_t now_ns)
{
    return c->job->status != 0 || throttle_left_ns(&l->throttle, c->position, now_ns) == 0;
}

static void came_back(struct loader *l, struct chunk *c, int64_t result, uint64_t now_ns)
{
    storage_read_ended(loader_storage_of(l, c->job), now_ns);
    if (result < 0 || due(l, c, now_ns)) { /* errors are not delayed */
        chunk_ended(l, c, result, now_ns);
        return;
    }
    c->withheld = true;
    c->result = result;
    l->withheld++;
}

static void end_withheld(struct loader *l, uint64_t now_ns)
{
    for (uint32_t i = 0; i < 2 * l->jobs.depth && l->withheld > 0; i++) {
        struct chunk *c = &l->jobs.chunk[i];
        if (!c->withheld || !due(l, c, now_ns))
            continue;
        c->withheld = false;
        l->withheld--;
        chunk_ended(l, c, c->result, now_ns);
    }
}

uint64_t loader_withheld_ns(struct loader *l, uint64_t now_ns)
{
    uint64_t min = UINT64_MAX, found = 0;
    for (uint32_t i = 0; found < l->withheld; i++) {
        sl_assert(i < 2 * l->jobs.depth);
        const struct chunk *c = &l->jobs.chunk[i];
        if (!c->withheld)
            continue;
        found++;
        uint64_t left = due(l, c, now_ns) ? 0 : throttle_left_ns(&l->throttle, c->position, now_ns);
        min = left < min ? left : min;
    }
    return min;
}

static void count_throttled(struct loader *l, uint64_t now_ns)
{
    if (l->throttled_ns != 0)
        counter_add(l->child.process, CTR_LOADER_throttle_ns, now_ns - l->throttled_ns);
    l->throttled_ns = l->withheld > 0 ? now_ns : 0;
}

static void reap_from(struct loader *l, struct reader *reader)
{
    struct io_done done[LOADER_BATCH_MAX];
    uint32_t n = reader->backend->poll(reader->io, done, LOADER_BATCH_MAX);
    uint64_t now = clock_now_ns();
    for (uint32_t i = 0; i < n; i++) {
        struct chunk *c = done[i].tag;
        int error = loader_read_error(l, c->job);
        came_back(l, c, error != 0 ? -error : done[i].result, now);
    }
}

void loader_reap(struct loader *l)
{
    OBJ_CHECK(l, LOADER_MAGIC);
    if (loader_reads_stall(l))
        return;
    if (l->withheld > 0)
        end_withheld(l, clock_now_ns());
    for (uint32_t i = 0; i < l->readers.count; i++)
        reap_from(l, &l->readers.reader[i]);
    count_throttled(l, clock_now_ns());
}
