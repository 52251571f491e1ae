/* SPDX-License-Identifier: Apache-2.0 */
/* The loader's context and the functions its files share. Private to procs/engine/loader. */
#ifndef SLUICE_ENGINE_LOADER_LOADER_H
#define SLUICE_ENGINE_LOADER_LOADER_H

#include "lib/base/clock.h"
#include "lib/io/readers.h"
#include "procs/engine/child/child.h"
#include "procs/engine/child/run_storage.h"
#include "procs/engine/loader/cache/cache.h"
#include "procs/engine/loader/chunk.h"
#include "procs/engine/loader/jobs.h"
#include "procs/engine/loader/storage.h"
#include "procs/engine/loader/throttle.h"
#include "procs/engine/loader/verify.h"

#define LOADER_MAGIC    0x52444f4cu
#define LOADER_JOBS_MAX 4096 /* more are rejected; the cache sends them again */
#define LOADER_TICK_NS  (50 * NS_PER_MS)
#define LOADER_CHECK_NS (5 * NS_PER_MS) /* between checks for cancelled jobs that wait */
#define LOADER_ALONE_NS                                                                            \
    (5 * NS_PER_S) /* a new cache that has sent no FLUSH by then cannot reach this process */
#define LOADER_BATCH_MAX 128

struct source { /* a file, in copies; the first is the device's own */
    struct storage copy[RUN_COPIES_MAX];
    uint32_t copies; /* 0: no data of this loader */
};

_Static_assert(READERS_MAX == 1 + RUN_SOURCES * RUN_COPIES_MAX, "files, and each copy a server");

struct loader {
    uint32_t magic;
    struct child child;
    struct params own; /* parameters, with those of the device */
    struct channel *cache;
    struct source source[RUN_SOURCES];
    struct jobs jobs;
    struct verify verify;
    struct throttle throttle;
    struct chunk_pace pace;
    struct readers readers;
    struct cached cached;
    bool flush_pending; /* no FLUSHED was sent yet for flush_epoch */
    uint32_t flush_epoch;
    uint32_t epoch_met;     /* of the last cache that sent a message, or the one at our start */
    uint64_t epoch_seen_ns; /* since when the directory has another epoch; 0: it has not */
    uint64_t next_tick_ns, next_jobs_check_ns;
    uint32_t withheld;     /* completed reads that the throttle delays */
    uint64_t throttled_ns; /* since when there are any; 0: none */
    uint64_t copies_checked_ns,
        awake_ns;          /* last check of the devices; last end of a stop of this process */
    uint64_t busy_seen_ns; /* up to then, busy and idle time are counted */
    struct channel_stats last_channel_stats; /* counter values already exported */
    struct msg_dones dones;                  /* not sent yet */
    bool dones_urgent;                       /* one of them failed: the cache must act */
};

/* take.c: messages of the cache. */
void loader_receive(struct loader *l);
/* What this loader reads of an entry: the runs of its LOAD. 0: nothing. */
uint32_t loader_shard_of(const struct loader *l, uint32_t entry,
                         struct model_extent shard[ENTRY_EXTENTS_MAX]);
/* Replies to a FLUSH when no job of an older epoch is left. */
void loader_reply_flush(struct loader *l);

/* run.c: reads, and ends of shards. */
void loader_submit(struct loader *l, uint64_t now_ns);
void loader_reap(struct loader *l);
/* Time until the throttle releases its first read; UINT64_MAX: it delays none. */
uint64_t loader_withheld_ns(struct loader *l, uint64_t now_ns);
/* Ends the job when none of its reads is in flight: publishes or fails its shard. */
void loader_end_if_due(struct loader *l, struct job *job);
/* Publishes or fails a shard without reads in flight; also for a LOAD without a job. */
void loader_end_shard(struct loader *l, const struct job *job);
/* Sends the cache the shards that ended, if it requested doorbells. */
void loader_send_dones(struct loader *l);
/* Ends cancelled jobs that would not be reached soon. */
void loader_check_jobs(struct loader *l);
/* Fails every job, or every job that reads this device, with `status`; jobs with reads in flight
 * end when these complete. */
void loader_fail_all(struct loader *l, int status);
void loader_fail_storage(struct loader *l, const struct storage *storage, int status);

/* copies.c: the copy that is read. */
void loader_open_sources(struct loader *l);
/* The copy a job reads. */
struct storage *loader_storage_of(struct loader *l, const struct job *job);
/* A new job starts with the first copy in use; without one it fails. */
void loader_choose_copy(struct loader *l, struct job *job);
/* A failed job continues on another copy. False: there is none. */
bool loader_take_other_copy(struct loader *l, struct job *job);
/* Counts success or failure of a device; too many consecutive failures quarantine it. */
void loader_note_failed(struct loader *l, struct storage *storage, uint32_t entry, int errno_value);
/* Checks for files that changed or returned, and for stalls. Exits when a device stalls. */
void loader_check_copies(struct loader *l, uint64_t now_ns);
/* Injected faults (tests): no completion is seen; the reads of a job fail with this errno value, if
 * not 0. */
bool loader_reads_stall(struct loader *l);
int loader_read_error(struct loader *l, const struct job *job);

static inline unsigned loader_self(const struct loader *l)
{
    return l->child.number;
}

#endif
