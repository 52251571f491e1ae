/* A rig for the cache manager and its loaders alone: it plays the supervisor (segments, spawning,
 * reaping, the process table) and compute (pins, DEMANDs, the use log), and compares what becomes
 * READY with the bytes of the model file. Nothing sleeps: every wait is for a condition. */
#ifndef SLUICE_TESTS_FAULT_CACHE_LOADER_RIG_H
#define SLUICE_TESTS_FAULT_CACHE_LOADER_RIG_H

#include <stdbool.h>
#include <sys/types.h>

#include "procs/engine/child/child.h"

struct rig_options {
    uint32_t loaders;
    double experts_share;  /* of the experts' slots that that fit into the quota */
    const char *backend;   /* NULL: auto */
    uint64_t chunk, depth; /* 0: default */
    bool own_copy;         /* of the demo model, at model_path: a test may spoil it */
    bool prefault;
};

struct rig {
    char dir[ENDPOINT_BYTES], model_path[ENDPOINT_BYTES + 16];
    struct model_index *model;
    const struct model_entry *entries;
    struct arena_layout layout;
    struct segment segment[SEGMENT__COUNT];
    struct procs procs;
    struct directory directory;
    struct access_log access_log;
    const uint8_t *file; /* mapped */
    size_t file_bytes;
    int lifeline[2], lock;
    pid_t pid[SERVICE_ROWS_MAX];
    int ready_fd[SERVICE_ROWS_MAX];
    struct channel *channel[SERVICE_ROWS_MAX]; /* the supervisor's ends */
    struct channel *compute, *predictor;
    uint64_t boot;
    uint32_t position, control_epoch;
};

/* Segments and run directory; no process yet. */
void rig_open(struct rig *r, const struct rig_options *options);
/* Ends every process in order, and checks that none had to be killed. */
void rig_close(struct rig *r);
/* Cache, then loaders, each ready. */
void rig_start(struct rig *r);

void rig_spawn(struct rig *r, enum service service, uint32_t number, const char *backend);
void rig_wait_ready(struct rig *r, enum service service, uint32_t number);
/* SIGKILL and waitpid; `reaped` is written. */
void rig_kill(struct rig *r, enum service service, uint32_t number);
/* Ends in order, by CONTROL_STOP. */
void rig_stop(struct rig *r, enum service service, uint32_t number);
void rig_wait_cleaned(struct rig *r, uint32_t number);
/* kill, clean-up by the cache, successor ready. */
void rig_replace_loader(struct rig *r, uint32_t number);
/* Until the process is stopped by the injection it was set to. */
void rig_wait_stopped(struct rig *r, enum service service, uint32_t number);
void rig_inject(struct rig *r, enum injection point, uint32_t pass);

struct proc_row *rig_row(struct rig *r, enum service service, uint32_t number);
uint64_t rig_counter(struct rig *r, enum service service, uint32_t number, unsigned counter);

/* Sends a control and waits for its ACK; returns how long that took, ns. */
uint64_t rig_control(struct rig *r, enum service service, uint32_t number, uint32_t kind,
                     uint64_t value);
void rig_quota(struct rig *r, uint64_t bytes);

/* compute: pins, sends one DEMAND, waits until all are READY (asking again after 100 ms), compares
 * the payload with the file. The pins stay. False when the deadline passed or an entry failed. */
bool rig_demand(struct rig *r, const uint32_t *entries, uint32_t count, unsigned ms);
/* Only pins and sends. */
void rig_send_demand(struct rig *r, const uint32_t *entries, uint32_t count, uint32_t attempt);
void rig_unpin(struct rig *r, const uint32_t *entries, uint32_t count);
/* A use of each in the log, then unpin. */
void rig_access(struct rig *r, const uint32_t *entries, uint32_t count);
void rig_hint(struct rig *r, uint32_t layer, const uint32_t *entries, uint32_t count);
bool rig_wait_dense(struct rig *r, unsigned ms);
/* Payload of a READY entry equals the file's. */
bool rig_payload_right(struct rig *r, uint32_t entry);
enum entry_state rig_state(struct rig *r, uint32_t entry);

uint64_t rig_deadline(unsigned ms);
/* A short wait on the sockets; false once the deadline has passed. */
bool rig_tick(struct rig *r, uint64_t deadline);

/* Repeatable numbers. */
uint32_t rig_random(uint64_t *state, uint32_t below);

#endif
