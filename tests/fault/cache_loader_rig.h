/* SPDX-License-Identifier: Apache-2.0 */
/* A rig for the cache manager and its loaders alone. It acts as the supervisor (segments, spawning,
 * reaping, the process table) and as compute (pins, DEMANDs, the access log), and compares READY
 * entries with the bytes of the model file. Every wait is for a condition with a deadline. */
#ifndef SLUICE_TESTS_FAULT_CACHE_LOADER_RIG_H
#define SLUICE_TESTS_FAULT_CACHE_LOADER_RIG_H

#include <stdbool.h>
#include <sys/types.h>

#include "procs/engine/child/child.h"
#include "procs/engine/child/run_files.h"

struct rig_options {
    uint32_t loaders;
    double experts_share;  /* fraction of the experts' slots that fit into the quota */
    const char *backend;   /* NULL: auto */
    uint64_t chunk, depth; /* 0: default */
    bool own_copy;         /* of the demo model, at model_path: the test may damage it */
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
    int model_fd; /* of model_path, for the loaders */
    struct directory_file model_file;
    int lifeline[2], lock;
    pid_t pid[SERVICE_PROCESSES_MAX];
    int ready_fd[SERVICE_PROCESSES_MAX];
    struct channel *channel[SERVICE_PROCESSES_MAX]; /* the supervisor's ends */
    struct channel *compute, *predictor;
    uint64_t boot;
    uint32_t position, control_epoch;
};

/* Segments and run directory; no process yet. */
/* In main, before and after the cases: a case that fails leaves its directory. */
void rig_cases_start(void);
void rig_cases_end(void);

void rig_open(struct rig *r, const struct rig_options *options);
/* Stops every process in order and checks that none had to be killed. */
void rig_close(struct rig *r);
/* Starts the cache, then the loaders; waits until each is ready. */
void rig_start(struct rig *r);

void rig_spawn(struct rig *r, enum service service, uint32_t number, const char *backend);
void rig_wait_ready(struct rig *r, enum service service, uint32_t number);
/* SIGKILL and waitpid; sets `reaped`. */
void rig_kill(struct rig *r, enum service service, uint32_t number);
/* Orderly stop, by CONTROL_STOP. */
void rig_stop(struct rig *r, enum service service, uint32_t number);
void rig_wait_cleaned(struct rig *r, uint32_t number);
/* Kills a loader, waits for the clean-up by the cache, starts a successor. */
void rig_replace_loader(struct rig *r, uint32_t number);
/* Waits until the process stops itself at its injection point. */
void rig_wait_stopped(struct rig *r, enum service service, uint32_t number);
void rig_inject(struct rig *r, enum injection point, uint32_t pass);

struct process *rig_process(struct rig *r, enum service service, uint32_t number);
uint64_t rig_counter(struct rig *r, enum service service, uint32_t number, unsigned counter);

/* Sends a control and waits for its ACK; returns how long that took, ns. */
uint64_t rig_control(struct rig *r, enum service service, uint32_t number, uint32_t kind,
                     uint64_t value);
void rig_quota(struct rig *r, uint64_t bytes);

/* As compute: pins, sends one DEMAND, waits until all entries are READY (repeats the DEMAND after
 * 100 ms), compares the payload with the file. The pins stay. False if the deadline passed or an
 * entry failed. */
bool rig_demand(struct rig *r, const uint32_t *entries, uint32_t count, unsigned ms);
/* Only pins and sends one DEMAND. */
void rig_send_demand(struct rig *r, const uint32_t *entries, uint32_t count, uint32_t attempt);
void rig_unpin(struct rig *r, const uint32_t *entries, uint32_t count);
/* Logs an access to each, then unpins. */
void rig_access(struct rig *r, const uint32_t *entries, uint32_t count);
void rig_hint(struct rig *r, uint32_t layer, const uint32_t *entries, uint32_t count);
bool rig_wait_dense(struct rig *r, unsigned ms);
/* The payload of a READY entry equals the file. */
bool rig_payload_right(struct rig *r, uint32_t entry);
enum entry_state rig_state(struct rig *r, uint32_t entry);

uint64_t rig_deadline(unsigned ms);
/* A short wait on the sockets; false once the deadline has passed. */
bool rig_tick(struct rig *r, uint64_t deadline);

/* Reproducible random numbers. */
uint32_t rig_random(uint64_t *state, uint32_t below);

#endif
