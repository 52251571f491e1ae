/* SPDX-License-Identifier: Apache-2.0 */
/* Queues jobs by priority, cuts them into chunks, and puts failed chunks back for another try. */
#include "procs/engine/loader/jobs.h"

#include <errno.h>
#include <stdlib.h>

#include "lib/base/assert.h"
#include "lib/base/bytes.h"
#include "lib/base/clock.h"
#include "lib/io/read_errors.h"

#define JOBS_MAGIC 0x53424f4au

#define RETRY_PAUSE_NS     (10 * NS_PER_MS) /* then 4, 16 and more times that */
#define RETRY_PAUSE_MAX_NS (250 * NS_PER_MS)

static void queue_append(struct jobs *jobs, struct job *job)
{
    unsigned p = job->priority;
    job->older = jobs->newest[p];
    job->newer = NULL;
    if (job->older)
        job->older->newer = job;
    else
        jobs->oldest[p] = job;
    jobs->newest[p] = job;
}

static void queue_remove(struct jobs *jobs, struct job *job)
{
    unsigned p = job->priority;
    if (job->older)
        job->older->newer = job->newer;
    else
        jobs->oldest[p] = job->newer;
    if (job->newer)
        job->newer->older = job->older;
    else
        jobs->newest[p] = job->older;
    job->older = job->newer = NULL;
}

int jobs_create(struct jobs *jobs, uint32_t entries, uint32_t capacity, uint32_t depth)
{
    /* Chunks that wait for a retry do not occupy the device: twice the depth holds a full queue and
     * a full set of waiting chunks. */
    uint32_t chunks = 2 * depth;
    *jobs = (struct jobs){.magic = JOBS_MAGIC,
                          .capacity = capacity,
                          .entries = entries,
                          .depth = depth,
                          .of_entry = calloc(entries + 1u, sizeof *jobs->of_entry),
                          .job = calloc(capacity, sizeof *jobs->job),
                          .chunk = calloc(chunks, sizeof *jobs->chunk)};
    if (!jobs->of_entry || !jobs->job || !jobs->chunk) {
        jobs_destroy(jobs);
        return -1;
    }
    for (uint32_t i = 0; i < entries; i++)
        jobs->of_entry[i] = JOB_NONE;
    for (uint32_t i = 0; i < capacity; i++) {
        jobs->job[i].newer = jobs->free;
        jobs->free = &jobs->job[i];
    }
    for (uint32_t i = 0; i < chunks; i++) {
        jobs->chunk[i].next = jobs->chunk_free;
        jobs->chunk_free = &jobs->chunk[i];
    }
    return 0;
}

void jobs_destroy(struct jobs *jobs)
{
    OBJ_CHECK(jobs, JOBS_MAGIC);
    free(jobs->of_entry);
    free(jobs->job);
    free(jobs->chunk);
    *jobs = (struct jobs){0};
}

struct job *jobs_find(struct jobs *jobs, uint32_t entry)
{
    OBJ_CHECK(jobs, JOBS_MAGIC);
    sl_assert(entry < jobs->entries);
    uint32_t number = jobs->of_entry[entry];
    return number == JOB_NONE ? NULL : &jobs->job[number];
}

struct job *jobs_add(struct jobs *jobs, const struct msg_load *load, uint32_t epoch,
                     uint64_t now_ns)
{
    sl_assert(jobs_find(jobs, load->entry) == NULL);
    sl_assert(load->runs_count > 0 && load->runs_count <= MSG_RUNS_MAX);
    struct job *job = jobs->free;
    if (!job)
        return NULL;
    jobs->free = job->newer;
    *job = (struct job){.entry = load->entry,
                        .epoch = epoch,
                        .generation = load->generation,
                        .demand_ns = load->demand_ns,
                        .taken_ns = now_ns,
                        .priority = load->priority,
                        .runs = load->runs_count,
                        .active = true};
    for (unsigned i = 0; i < job->runs; i++) {
        job->run[i] = load->runs[i];
        job->bytes += load->runs[i].bytes;
    }
    jobs->of_entry[load->entry] = (uint32_t)(job - jobs->job);
    jobs->job_count++;
    queue_append(jobs, job);
    return job;
}

bool jobs_raise(struct jobs *jobs, struct job *job, uint16_t priority, uint64_t demand_ns)
{
    if (priority <= job->priority)
        return false;
    for (uint32_t i = 0; i < 2 * jobs->depth; i++) {
        struct chunk *c = &jobs->chunk[i];
        if (c->job != job)
            continue;
        if (c->at_storage && c->priority == LOAD_PREFETCH)
            jobs->inflight_prefetch--;
        c->priority = priority;
    }
    queue_remove(jobs, job);
    job->priority = priority;
    job->demand_ns = demand_ns;
    queue_append(jobs, job);
    return true;
}

static bool fresh_left(const struct job *job)
{
    return job->run_at < job->runs;
}

static struct chunk **due_again(struct job *job, uint64_t now_ns)
{
    for (struct chunk **at = &job->again; *at; at = &(*at)->next)
        if ((*at)->not_before_ns <= now_ns)
            return at;
    return NULL;
}

struct job *jobs_pick(struct jobs *jobs, uint64_t now_ns, bool prefetch_paused)
{
    OBJ_CHECK(jobs, JOBS_MAGIC);
    if (jobs->inflight >= jobs->depth)
        return NULL;
    for (int p = LOAD_DEMAND; p >= LOAD_PREFETCH; p--) {
        if (p == LOAD_PREFETCH &&
            (prefetch_paused || jobs->inflight_prefetch >= PREFETCH_CHUNKS_MAX ||
             jobs->inflight > jobs->inflight_prefetch))
            return NULL; /* a prefetch in parallel would delay the demand */
        for (struct job *job = jobs->oldest[p]; job; job = job->newer) {
            if (job->status != 0)
                continue;
            if (due_again(job, now_ns) || (fresh_left(job) && jobs->chunk_free))
                return job;
        }
    }
    return NULL;
}

/* Equal pieces when less than two chunks are left: a small read costs the device as much as a large
 * one. */
static uint64_t piece_of(uint64_t left, uint64_t max)
{
    if (left <= max)
        return left;
    uint64_t half = align_up(left / 2, PAGE_BYTES);
    return half < max ? half : max;
}

static struct chunk *cut_fresh(struct jobs *jobs, struct job *job, uint64_t chunk_bytes)
{
    sl_assert(fresh_left(job));
    const struct msg_run *run = &job->run[job->run_at];
    struct chunk *c = jobs->chunk_free;
    sl_assert(c != NULL);
    jobs->chunk_free = c->next;
    uint64_t left = run->bytes - job->run_cut;
    *c = (struct chunk){.job = job,
                        .file_offset = run->file_offset + job->run_cut,
                        .arena_offset = run->arena_offset + job->run_cut,
                        .bytes = piece_of(left, chunk_bytes)};
    job->chunks++;
    job->run_cut += c->bytes;
    if (job->run_cut == run->bytes) {
        job->run_at++;
        job->run_cut = 0;
    }
    return c;
}

struct chunk *jobs_cut(struct jobs *jobs, struct job *job, uint64_t now_ns, uint64_t chunk_bytes)
{
    sl_assert(job->active && job->status == 0);
    sl_assert(chunk_bytes > 0 && chunk_bytes % PAGE_BYTES == 0);
    struct chunk **again = due_again(job, now_ns);
    struct chunk *c = again ? *again : NULL;
    if (c)
        *again = c->next;
    else
        c = cut_fresh(jobs, job, chunk_bytes);
    c->next = NULL;
    c->priority = job->priority;
    c->at_storage = true;
    c->submit_ns = now_ns;
    if (job->first_ns == 0)
        job->first_ns = now_ns;
    jobs->inflight++;
    jobs->inflight_prefetch += c->priority == LOAD_PREFETCH;
    jobs->inflight_bytes += c->bytes;
    return c;
}

static void leave_storage(struct jobs *jobs, struct chunk *c)
{
    sl_assert(c->at_storage && jobs->inflight > 0);
    c->at_storage = false;
    jobs->inflight--;
    jobs->inflight_prefetch -= c->priority == LOAD_PREFETCH;
    jobs->inflight_bytes -= c->bytes;
}

static void chunk_release(struct jobs *jobs, struct chunk *c)
{
    sl_assert(c->job->chunks > 0);
    c->job->chunks--;
    c->job = NULL;
    c->next = jobs->chunk_free;
    jobs->chunk_free = c;
}

static void hand_out_again(struct jobs *jobs, struct chunk *c, uint64_t not_before_ns)
{
    if (c->job->status != 0) { /* no process will use it */
        chunk_release(jobs, c);
        return;
    }
    c->not_before_ns = not_before_ns;
    c->next = c->job->again;
    c->job->again = c;
}

void jobs_put_back(struct jobs *jobs, struct chunk *chunk)
{
    leave_storage(jobs, chunk);
    hand_out_again(jobs, chunk, 0);
}

static uint64_t retry_pause_ns(uint32_t tries)
{
    uint64_t pause = RETRY_PAUSE_NS << (2 * (tries - 1));
    return pause < RETRY_PAUSE_MAX_NS ? pause : RETRY_PAUSE_MAX_NS;
}

static enum chunk_fate chunk_error(struct jobs *jobs, struct chunk *c, int errno_value,
                                   uint64_t now_ns)
{
    struct job *job = c->job;
    bool storage = read_fault_of(errno_value) == READ_FAULT_STORAGE;
    uint32_t count = storage ? ++c->tries : ++c->waits;
    if (count < (storage ? CHUNK_TRIES_MAX : CHUNK_WAITS_MAX)) {
        hand_out_again(jobs, c, now_ns + retry_pause_ns(count));
        return CHUNK_RETRY;
    }
    chunk_release(jobs, c);
    jobs_fail(jobs, job, read_error_reported(errno_value));
    return CHUNK_FAILED;
}

enum chunk_fate jobs_complete(struct jobs *jobs, struct chunk *c, int64_t result, uint64_t now_ns,
                              uint64_t file_bytes)
{
    OBJ_CHECK(jobs, JOBS_MAGIC);
    struct job *job = c->job;
    sl_assert(job != NULL && job->active);
    sl_assert(result <= (int64_t)c->bytes);
    leave_storage(jobs, c);
    job->last_ns = now_ns;
    if (result < 0)
        return chunk_error(jobs, c, (int)-result, now_ns);
    uint64_t end = c->file_offset + c->bytes; /* the last page of the file can be partial */
    if (c->file_offset + (uint64_t)result >= (end < file_bytes ? end : file_bytes)) {
        chunk_release(jobs, c);
        return CHUNK_DONE;
    }
    if (result == 0) { /* the file is shorter than the index states */
        chunk_release(jobs, c);
        jobs_fail(jobs, job, ENODATA);
        return CHUNK_FAILED;
    }
    uint64_t whole = align_down((uint64_t)result, PAGE_BYTES); /* direct reads continue at a page */
    if (whole == 0)
        return chunk_error(jobs, c, EIO, now_ns);
    c->file_offset += whole;
    c->arena_offset += whole;
    c->bytes -= whole;
    hand_out_again(jobs, c, 0);
    return CHUNK_SHORT;
}

void jobs_fail(struct jobs *jobs, struct job *job, int status)
{
    sl_assert(job->active && status > 0);
    if (job->status == 0)
        job->status = status;
    job->run_at = job->runs;
    while (job->again) {
        struct chunk *c = job->again;
        job->again = c->next;
        chunk_release(jobs, c);
    }
}

bool job_ended(const struct job *job)
{
    return job->active && job->chunks == 0 && !fresh_left(job);
}

void jobs_remove(struct jobs *jobs, struct job *job)
{
    sl_assert(job_ended(job));
    queue_remove(jobs, job);
    jobs->of_entry[job->entry] = JOB_NONE;
    jobs->job_count--;
    job->active = false;
    job->newer = jobs->free;
    jobs->free = job;
}

uint64_t jobs_arrived(const struct jobs *jobs, const struct job *job)
{
    sl_assert(job->active);
    uint64_t min = job->run_at > 0 ? job->run[0].bytes : job->run_cut;
    for (uint32_t i = 0; i < 2 * jobs->depth && job->chunks > 0; i++) {
        const struct chunk *c = &jobs->chunk[i];
        uint64_t at = c->arena_offset - job->run[0].arena_offset;
        if (c->job == job && at < min) /* of a later run: beyond it */
            min = at;
    }
    return min;
}

static void rewind_job(struct job *job)
{
    job->run_at = 0;
    job->run_cut = job->summed = 0;
}

void jobs_restart(struct job *job)
{
    sl_assert(job_ended(job) && job->status == 0 && !job->restarted);
    job->restarted = true;
    rewind_job(job);
}

void jobs_move(struct job *job, uint16_t copy)
{
    sl_assert(job_ended(job) && job->status != 0 && copy != job->copy);
    job->status = 0;
    job->restarted = false;
    job->copy = copy;
    rewind_job(job);
}

uint64_t jobs_pause_ns(const struct jobs *jobs, uint64_t now_ns)
{
    uint64_t min = UINT64_MAX;
    for (uint32_t i = 0; i < 2 * jobs->depth; i++) {
        const struct chunk *c = &jobs->chunk[i];
        if (!c->job || c->at_storage || c->not_before_ns <= now_ns)
            continue;
        uint64_t left = c->not_before_ns - now_ns;
        min = left < min ? left : min;
    }
    return min;
}

void jobs_each(struct jobs *jobs, void (*visit)(struct job *job, void *arg), void *arg)
{
    for (int p = 0; p < LOAD_PRIORITIES; p++) {
        for (struct job *job = jobs->oldest[p], *next; job; job = next) {
            next = job->newer;
            visit(job, arg);
        }
    }
}
