/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs of a loader and the order of their reads. Pure: no I/O, no shared memory, time is an
 * argument.
 *
 * A job is one accepted LOAD: up to three runs of whole pages. Its bytes are read in chunks:
 *
 *   jobs_add -> [jobs_pick -> jobs_cut -> (device) -> jobs_complete]* -> job_ended -> jobs_remove
 *
 * A chunk that completes short or with an error returns to its job and is submitted again, after a
 * pause in case of an error; more often if the error is not the device's (lib/io/read_errors.h),
 * and both kinds are counted apart. After jobs_fail no more chunks are submitted; the job ends when
 * its last chunk in flight completes. A job whose checksum was wrong can be restarted once
 * (jobs_restart). A job that failed can be restarted on another copy of its file (jobs_move).
 *
 * Order: demand before dense before prefetch, first come first served within each. A prefetch chunk
 * is submitted only when no chunk of the other priorities is in flight, because devices share
 * bandwidth among reads and some report all completions when the last is done. At most
 * PREFETCH_CHUNKS_MAX prefetch chunks are in flight, so that a demand waits for no more than that
 * many. */
#ifndef SLUICE_ENGINE_LOADER_JOBS_H
#define SLUICE_ENGINE_LOADER_JOBS_H

#include <stdbool.h>
#include <stdint.h>

#include "ipc/channel/messages.h"

#define PREFETCH_CHUNKS_MAX 2
#define CHUNK_TRIES_MAX     4 /* one read and three retries */
#define CHUNK_WAITS_MAX     8 /* the same of other errors (lib/io/read_errors.h): about a second */
#define JOB_NONE            UINT32_MAX

#define LOAD_PRIORITIES (LOAD_DEMAND + 1)

struct chunk {       /* a piece of a run, in flight or waiting for a retry */
    struct job *job; /* NULL: free */
    struct chunk *next;
    uint64_t file_offset, arena_offset, bytes;
    uint64_t not_before_ns, submit_ns;
    double position; /* in the throttle's sequence (throttle.h) */
    int64_t result;  /* once it is `withheld` */
    uint16_t tries;  /* errors of the device */
    uint16_t waits;  /* other errors */
    uint16_t priority;
    bool at_storage; /* also while it is withheld */
    bool withheld;   /* completed, but delayed by the throttle */
};

struct job {
    struct job *older, *newer; /* in the queue of its priority */
    struct chunk *again;       /* chunks to be submitted again */
    uint32_t entry;
    uint32_t epoch;
    uint64_t generation;
    uint64_t demand_ns;                   /* time of its DEMAND, 0: none */
    uint64_t taken_ns, first_ns, last_ns; /* accepted, first submission, last completion */
    uint64_t bytes;                       /* of all runs */
    uint64_t run_cut;                     /* bytes of run[run_at] submitted */
    uint64_t summed;                      /* bytes of run[0] in the checksum (verify.c) */
    uint32_t chunks;                      /* in flight or waiting */
    uint16_t priority, run_at, runs;
    uint16_t copy; /* the copy that it reads (copies.c) */
    bool active, restarted;
    int status; /* 0, or the errno value of its end */
    struct msg_run run[MSG_RUNS_MAX];
};

struct jobs {
    uint32_t magic;
    uint32_t capacity, entries, depth;
    uint32_t job_count;
    uint32_t inflight, inflight_prefetch;
    uint64_t inflight_bytes;
    uint32_t *of_entry; /* index of the entry's job, or JOB_NONE */
    struct job *job, *free;
    struct chunk *chunk, *chunk_free;
    struct job *oldest[LOAD_PRIORITIES], *newest[LOAD_PRIORITIES];
};

/* At most `capacity` jobs, and `depth` chunks in flight. 0, or -1 when out of memory. */
int jobs_create(struct jobs *jobs, uint32_t entries, uint32_t capacity, uint32_t depth);
void jobs_destroy(struct jobs *jobs);

/* The job of an entry; NULL when there is none. */
struct job *jobs_find(struct jobs *jobs, uint32_t entry);

/* Pre: no job for the entry. NULL when the table is full. */
struct job *jobs_add(struct jobs *jobs, const struct msg_load *load, uint32_t epoch,
                     uint64_t now_ns);

/* Raises a job's priority (never lowers it), also of its chunks in flight. True when it was
 * lower. */
bool jobs_raise(struct jobs *jobs, struct job *job, uint16_t priority, uint64_t demand_ns);

/* The job whose chunk is next; NULL when no chunk can be submitted. prefetch_paused: a request
 * waits for space, and no prefetch is submitted. */
struct job *jobs_pick(struct jobs *jobs, uint64_t now_ns, bool prefetch_paused);

/* Takes a chunk of at most chunk_bytes from the job. Pre: jobs_pick returned the job. */
struct chunk *jobs_cut(struct jobs *jobs, struct job *job, uint64_t now_ns, uint64_t chunk_bytes);

enum chunk_fate {
    CHUNK_DONE,  /* all its bytes arrived */
    CHUNK_SHORT, /* the rest will be submitted again */
    CHUNK_RETRY, /* an error; it will be submitted again after a pause */
    CHUNK_FAILED /* the job fails */
};

/* A chunk completed: result in bytes, or -errno. file_bytes: size of the file; a run can end up to
 * a page after it. */
enum chunk_fate jobs_complete(struct jobs *jobs, struct chunk *chunk, int64_t result,
                              uint64_t now_ns, uint64_t file_bytes);

/* The chunk could not be submitted: it returns to its job. */
void jobs_put_back(struct jobs *jobs, struct chunk *chunk);

/* The job ends with `status` (an errno value) when none of its chunks is in flight. The first
 * status counts. */
void jobs_fail(struct jobs *jobs, struct job *job, int status);

/* No chunk is in flight and none is left to submit. */
bool job_ended(const struct job *job);
void jobs_remove(struct jobs *jobs, struct job *job); /* Pre: job_ended */

/* Length of the prefix of run[0] that is completely read. */
uint64_t jobs_arrived(const struct jobs *jobs, const struct job *job);

/* Reads everything again. Pre: job_ended, no status, not restarted before. */
void jobs_restart(struct job *job);

/* Restarts a failed job on another copy of its file. Pre: job_ended, a status. */
void jobs_move(struct job *job, uint16_t copy);

/* Time until a chunk that pauses after an error is due; UINT64_MAX when none pauses. */
uint64_t jobs_pause_ns(const struct jobs *jobs, uint64_t now_ns);

/* Visits every job; the visitor may fail or remove its job. */
void jobs_each(struct jobs *jobs, void (*visit)(struct job *job, void *arg), void *arg);

#endif
