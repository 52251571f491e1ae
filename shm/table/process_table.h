/* SPDX-License-Identifier: Apache-2.0 */
/* Process table and counters. Each field of a row has one writer: the process, or the supervisor
 * where noted. Any process reads it, without a lock; the supervisor builds the stats snapshot
 * (JSON) from it. The header also has the engine's parameters (config/params.h), constant after
 * start. */
#ifndef SLUICE_SHM_TABLE_PROCESS_TABLE_H
#define SLUICE_SHM_TABLE_PROCESS_TABLE_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "config/params.h"
#include "config/services.h"
#include "shm/segment/segment.h"
#include "shm/table/shared_text.h"

#define PROCS_COUNTERS_MAX  112
#define PROCS_MESSAGE_BYTES 256
#define PROCS_SAMPLES       256 /* latency samples per process: a ring for medians */

/* Named waits: where a process may block. WAIT(NAME, text) */
#define WAITS(X)                                                                                   \
    X(NONE, "running")                                                                             \
    X(START, "starting")                                                                           \
    X(IDLE, "waiting for work")                                                                    \
    X(DENSE, "waiting for dense weights")                                                          \
    X(EXPERT, "waiting for an expert")                                                             \
    X(PAGES, "waiting for rows of a table")                                                        \
    X(FLUSH, "waiting for loaders to flush")                                                       \
    X(STORAGE, "waiting for storage")                                                              \
    X(THROTTLE, "waiting for its throttle")                                                        \
    X(GATES, "waiting for gate inputs")                                                            \
    X(STOPPING, "stopping")

enum proc_wait {
#define X(name, text) WAIT_##name,
    WAITS(X)
#undef X
        WAIT__COUNT
};

enum proc_state {
    PROC_DOWN,
    PROC_STARTING,
    PROC_READY,
    PROC_STOPPING,
    PROC_BACKOFF,
    PROC_KILLED,
    PROC_FAILED
};

/* One table per process, append only: COUNTER(name, kind, unit, doc) in
 * shm/table/counters_<process>.tbl.h. */
struct counter_desc {
    const char *name, *kind, *unit, *doc;
};

struct process {
    /* writer: supervisor */
    uint32_t service; /* enum service; constant */
    uint32_t number;  /* loader number; constant */
    _Atomic int32_t pid;
    _Atomic uint32_t incarnation; /* of the running process, or the last one; 0: never spawned */
    _Atomic uint32_t state;       /* enum proc_state */
    _Atomic uint32_t reaped;      /* highest incarnation returned by waitpid */
    _Atomic uint32_t restarts;
    _Atomic uint32_t last_signal; /* of the last exit; 0: exited without a signal */
    _Atomic uint32_t last_exit;
    _Atomic uint32_t crashes; /* exits that were neither requested nor a SIGKILL from outside */
    struct shared_text crash_reason; /* of the last one */
    /* writer: cache, loader rows only: all pending shards of incarnations <= cleaned are doomed,
     * punched and reset */
    _Atomic uint32_t cleaned;
    /* writer: the process */
    _Atomic uint32_t wait; /* enum proc_wait */
    _Atomic uint32_t threads;
    _Atomic uint32_t sandbox; /* enum sandbox_parts in effect (lib/sandbox/sandbox.h) */
    _Atomic uint64_t heartbeat_ns;
    _Atomic uint64_t progress;
    _Atomic uint64_t counters[PROCS_COUNTERS_MAX];
    _Atomic uint64_t samples_count;
    _Atomic uint32_t samples_us[PROCS_SAMPLES]; /* loader: DEMAND -> submission of demand reads */
    char exit_message[PROCS_MESSAGE_BYTES];
} __attribute__((aligned(64)));

#define PROCS_GPUS_MAX         4
#define PROCS_GPU_PARTS        8
#define PROCS_GPU_MODULE_BYTES 1024

/* A GPU of compute (--gpu). Constant after start, but for slots and slots_used. */
struct procs_gpu {
    uint32_t number;
    uint32_t first_layer, end_layer; /* it computes the layers [first_layer, end_layer) */
    uint32_t kv_layers;              /* of these, whose keys, values and states stay there */
    uint64_t bytes[PROCS_GPU_PARTS]; /* planned: enum cuda_part (lib/device/cuda/layout.h) */
    _Atomic uint64_t
        slots; /* of experts, as its memory is divided; 0: not known. Writer: compute */
    _Atomic uint64_t slots_used; /* that have an expert. Writer: compute */
};

/* All of them, in the order of their layers, which begin with the first one. */
struct procs_gpus {
    uint32_t count;                  /* 0: compute is on the CPU */
    uint32_t required;               /* 0: compute may start without them (--gpu auto) */
    uint32_t positions;              /* of the longest sequence */
    uint32_t layers, experts, top_k; /* of the model */
    uint32_t
        takes_all; /* precisions, 1 << enum precision, of which the only one takes all experts */
    struct procs_gpu gpu[PROCS_GPUS_MAX];
    char module[PROCS_GPU_MODULE_BYTES];
};

struct procs_head {
    struct segment_head segment;
    struct params params; /* constant after start */
    uint32_t processes;
    uint32_t loaders;
    char run_dir[128];
    char model_path[1024];
    struct procs_gpus gpus;
    _Atomic uint32_t injection; /* tests only: enum injection, 0 in production (see
                    * procs/engine/child/child.h) */
    _Atomic uint32_t injection_arg;
    /* Preset numbers (lib/policy/presets/presets.h): the requested one (writer: supervisor) and the
     * active one (writer: compute, at the start of a sequence; other processes follow the access
     * log and read this field when they start). */
    _Atomic uint32_t preset_requested, preset_active;
    /* enum log_level + 1, set by ctl log-level (writer: supervisor); 0: that of the parameters.
     * Processes read it at their start and on every tick: relaxed, a late change is harmless. */
    _Atomic uint32_t log_level;
    uint8_t model_identity[16]; /* of its bytes and its index; constant after start */
    uint32_t reserved[7];
    /* Why requests cannot be served now: an essential process that crashes again and again, with
     * the reason. Empty: they can. Writer: supervisor. */
    struct shared_text failing;
    struct process process[SERVICE_PROCESSES_MAX];
};

struct procs {
    struct segment segment;
    struct procs_head *head;
};

uint64_t procs_bytes(void);

/* supervisor: initialises a newly created segment; run_dir and model_path are set by the caller.
 * Rows: the supervisor, the services in the order of their table, then the loaders. */
void procs_format(void *base, const struct params *params, uint32_t loaders);

int procs_attach(int fd, bool writable, uint64_t boot, struct procs *out, struct error *error);

/* Row index of a service (loaders: number). */
uint32_t procs_index_of(enum service service, uint32_t number);

/* ERR_UNAVAILABLE with the reason while an essential process cannot be kept running, else 0. */
int procs_check(const struct procs_head *head, struct error *error);

const char *proc_wait_text(uint32_t wait);
const char *proc_state_text(uint32_t state);

/* Counter descriptions of a service; *count of them. Counter i of a row has description i. */
const struct counter_desc *counters_of(enum service service, size_t *count);

static inline void counter_add(struct process *process, unsigned counter, uint64_t n)
{
    /* Several threads of the one writing process may count: relaxed RMW; readers only display
     * it. */
    atomic_fetch_add_explicit(&process->counters[counter], n, memory_order_relaxed);
}
static inline void counter_set(struct process *process, unsigned counter, uint64_t n)
{
    atomic_store_explicit(&process->counters[counter], n, memory_order_relaxed);
}
static inline uint64_t counter_get(const struct process *process, unsigned counter)
{
    return atomic_load_explicit(&process->counters[counter], memory_order_relaxed);
}

#endif
