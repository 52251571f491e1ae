/* SPDX-License-Identifier: Apache-2.0 */
/* A local file in front of the servers of a loader (the key `cache` of a device,
 * docs/network_stores.md). A shard of an expert that it has is read from there as from a copy that
 * is nearest; one that a server delivered is written to it after it was published.
 *
 *   STARTING --(the writer has read the heads)--> USED --(a write fails)--> USED, read only
 *   STARTING --(another process has the file, an error)--> OFF
 *   USED --(reads fail or stall: quarantine)--> OFF, until `ctl replace`
 *   USED --(the server has another file than the one of the slots)--> LEAVING --(no slot is read or
 *   written)--> USED, empty
 *
 * Which file a server has is known when it is connected: STARTING waits a second for that.
 *
 * A job that reads a slot has copy COPY_CACHE, and file offsets of the cache file; they are those
 * of the model again when it moves to a server. */
#ifndef SLUICE_ENGINE_LOADER_CACHE_CACHE_H
#define SLUICE_ENGINE_LOADER_CACHE_CACHE_H

#include "procs/engine/child/run_cache.h"
#include "procs/engine/child/run_storage.h"
#include "procs/engine/loader/cache/index.h"
#include "procs/engine/loader/chunk.h"
#include "procs/engine/loader/jobs.h"
#include "procs/engine/loader/storage.h"

#define COPY_CACHE RUN_COPIES_MAX /* job.copy */

struct loader;
struct writer;

struct cached {
    enum { CACHED_OFF, CACHED_STARTING, CACHED_USED, CACHED_LEAVING } state;
    struct storage storage;     /* its reads */
    struct directory_file file; /* of storage: its size */
    struct chunk_pace pace;
    struct run_cache where;
    struct cache_index index;
    struct writer *writer;
    uint64_t identity; /* of the file that the slots are of (struct cache_head) */
    bool write_failed;
    bool sweeps;     /* experts in memory that this process has not read are of that file, too */
    uint64_t stamp;  /* of the next fill */
    uint32_t cursor; /* of the experts that are in memory and not in the file */
};

/* Opens the file, if the device has one, and starts its thread: before child_ready. What fails is
 * logged, and the loader runs without. */
void cache_open(struct loader *l);

/* In every round: takes what the thread has done, and gives it experts in memory for free slots
 * while nothing is read. */
void cache_tick(struct loader *l);

/* The job of a new LOAD reads a slot from now on, if one has its shard. */
bool cache_choose(struct loader *l, struct job *job);
/* The bytes of an ended job are those that the head of the slot names. Pre: it reads a slot. */
bool cache_right(struct loader *l, const struct job *job);
/* A failed job leaves the slot for a server: after jobs_move. */
void cache_leave(struct loader *l, struct job *job, int status);
/* A job has ended: its slot is free again; or the expert that a server delivered is written. */
void cache_ended(struct loader *l, const struct job *job);

#endif
