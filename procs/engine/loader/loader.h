/* The loader's context and what its files offer each other. Private to procs/loader. */
#ifndef SLUICE_ENGINE_LOADER_LOADER_H
#define SLUICE_ENGINE_LOADER_LOADER_H

#include "lib/base/clock.h"
#include "lib/io/io.h"
#include "procs/engine/child/child.h"
#include "procs/engine/child/run_devices.h"
#include "procs/engine/loader/chunk.h"
#include "procs/engine/loader/device.h"
#include "procs/engine/loader/jobs.h"
#include "procs/engine/loader/throttle.h"
#include "procs/engine/loader/verify.h"

#define LOADER_MAGIC    0x52444f4cu
#define LOADER_JOBS_MAX 4096 /* more are refused; the cache sends again */
#define LOADER_TEND_NS  (50 * NS_PER_MS)
#define LOADER_LOOK_NS  (5 * NS_PER_MS) /* between looks for cancelled jobs that are held back */
#define LOADER_ALONE_NS                                                                            \
    (5 * NS_PER_S) /* a new cache that has not flushed us by then cannot reach us */
#define LOADER_BATCH_MAX 128

struct source { /* a file, in copies; the first is the device's own */
    struct device copy[RUN_COPIES_MAX];
    uint32_t copies; /* 0: nothing of this loader lies there */
};

struct loader {
    uint32_t magic;
    struct child child;
    struct params own; /* the parameters as this device has them */
    struct edge *cache;
    struct source source[RUN_SOURCES];
    struct jobs jobs;
    struct verify verify;
    struct throttle throttle;
    struct chunk_pace pace;
    const struct io_backend *backend;
    struct io *io;
    int io_fd;
    bool flush_asked; /* a FLUSH of flush_epoch waits for its answer */
    uint32_t flush_epoch;
    uint32_t epoch_met;     /* of the last cache that reached us, or that was there when we came */
    uint64_t epoch_seen_ns; /* since when the directory has another; 0: it has not */
    uint64_t next_tend_ns, next_look_ns;
    uint32_t withheld;            /* reads that came back before their time */
    uint64_t throttled_ns;        /* since when there are any; 0: there are none */
    uint64_t looked_ns, awake_ns; /* last look at the devices; when we were last found stopped */
    uint64_t busy_seen_ns;        /* up to then the device was busy, or was counted as idle */
    struct edge_stats edge_seen;  /* counted so far */
    struct msg_dones dones;       /* not sent yet */
    bool dones_urgent;            /* one of them is no success: the cache has to act */
};

/* loader_take.c: messages of the cache. */
void loader_receive(struct loader *l);
/* Answers a FLUSH as soon as no job of an older epoch is left. */
void loader_answer_flush(struct loader *l);

/* loader_run.c: reads and the ends of parts. */
void loader_submit(struct loader *l, uint64_t now_ns);
void loader_reap(struct loader *l);
/* Time until the first of the reads that the throttle withholds is over; UINT64_MAX: none is. */
uint64_t loader_withheld_ns(struct loader *l, uint64_t now_ns);
/* Ends the job if nothing of it is at the device any more: publishes or fails its part. */
void loader_end_if_due(struct loader *l, struct job *job);
/* Publishes or fails a part of which nothing is at the device; also of a job never taken. */
void loader_end_part(struct loader *l, const struct job *job);
/* Tells the cache of the parts that ended since, if it wants to hear of them now. */
void loader_send_dones(struct loader *l);
/* Looks for cancelled jobs whose turn does not come, and ends them. */
void loader_look(struct loader *l);
/* Every job, or every job that reads this device, fails with `status`; those with reads at the
 * device when these came back. */
void loader_fail_all(struct loader *l, int status);
void loader_fail_device(struct loader *l, const struct device *device, int status);

/* loader_copies.c: what is read, and which copy of it. */
void loader_open_sources(struct loader *l);
/* The copy a job reads. */
struct device *loader_device_of(struct loader *l, const struct job *job);
/* A new job begins at the first copy in use; without one it fails. */
void loader_choose_copy(struct loader *l, struct job *job);
/* A job that ended with a status goes on at another copy. False: there is none for it. */
bool loader_take_other_copy(struct loader *l, struct job *job);
/* What a device did: one that fails too often in a row is quarantined. */
void loader_note_failed(struct loader *l, struct device *device, uint32_t entry, int errno_value);
/* Files that changed, came back, or do not answer. Ends the process when a device stalls. */
void loader_check_copies(struct loader *l, uint64_t now_ns);
/* Injected faults (tests): no completion is seen; a job's reads come back with EIO. */
bool loader_reads_stall(struct loader *l);
bool loader_read_fails(struct loader *l, const struct job *job);

static inline unsigned loader_self(const struct loader *l)
{
    return l->child.number;
}

#endif
