/* SPDX-License-Identifier: Apache-2.0 */
/* The supervisor's state is shared by its directories. Each has a header of its functions;
 * start/supervisor_main.c is the overview. */
#ifndef SLUICE_ENGINE_SUPERVISOR_SUPERVISOR_H
#define SLUICE_ENGINE_SUPERVISOR_SUPERVISOR_H

#include <limits.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include <jansson.h>

#include "config/params.h"
#include "config/services.h"
#include "ipc/channel/channel.h"
#include "ipc/endpoints.h"
#include "ipc/rpc/rpc.h"
#include "lib/cuda/cuda.h"
#include "lib/device/cuda/layout.h"
#include "lib/memory/available.h"
#include "lib/rates/rates.h"
#include "lib/warm/warm.h"
#include "procs/engine/child/child.h"
#include "procs/engine/child/run_knobs.h"
#include "procs/engine/child/run_storage.h"
#include "procs/engine/supervisor/budget/ledger.h"
#include "procs/engine/supervisor/budget/oom.h"
#include "procs/engine/supervisor/children/exits.h"
#include "procs/engine/supervisor/children/fsm.h"
#include "shm/arena/arena.h"
#include "shm/directory/directory.h"
#include "shm/kv/kv.h"
#include "shm/segment/inherited_fds.h"
#include "shm/table/process_table.h"

#define SUPERVISOR_MAGIC     0x53555056u /* "SUPV" */
#define CHILD_MAGIC          0x4348494cu /* "CHIL" */
#define CHILDREN_MAX         (SERVICE_PROCESSES_MAX - 1)
#define PENDING_REQUESTS_MAX 16

/* Descriptors of the supervisor lie above the numbers children inherit, so that posix_spawn's
 * dup2 actions never overwrite a source. */
#define FD_MIN 64
_Static_assert((int)INHERITED_FILES__END <= FD_MIN, "inherited descriptors are below our own");

#define TICK_NS (100 * NS_PER_MS)
#define STOP_NS (3 * NS_PER_S) /* for the stop of one child */
#define REAP_NS                                                                                    \
    (10 * NS_PER_S) /* a killed cache or compute that is not reaped by then ends the engine */
#define LOCK_WAIT_NS (5 * NS_PER_S)

/* Memory of one process, from /proc. */
struct usage {
    uint64_t anon;        /* RssAnon + VmSwap */
    uint64_t data;        /* VmData: private writable mappings, thread stacks included */
    uint64_t page_tables; /* VmPTE */
    uint32_t threads;
};

/* A control the child has not acknowledged yet; the newest of each kind. */
struct control_due {
    bool due;
    uint32_t epoch;
    uint64_t value;
};

struct child_record {
    uint32_t magic;
    enum service service;
    uint32_t number; /* loaders; else 0 */
    uint32_t process_index;
    const struct service_info *info;
    struct process *process;
    pid_t pid;    /* 0: none */
    int ready_fd; /* -1: none */
    struct channel *channel;
    uint64_t deadline_ns;       /* of STARTING, STOPPING, BACKOFF, KILLED */
    uint64_t ready_ns;          /* when it became READY */
    uint64_t progress_at_spawn; /* process->progress then */
    bool was_ready;             /* an incarnation of it became READY */
    bool stuck;                 /* KILLED, and not reaped in time */
    bool exit_requested;        /* requested by ctl or by the stop: no failure */
    bool late;                  /* killed for its heartbeat, for the exit record */
    const char *oom;            /* killed by the OOM killer: where memory ran out; else NULL */
    struct exit_tally tally;
    enum exit_cause cause; /* of the last exit, or of a failure to spawn */
    uint64_t restarts_by[EXIT_CAUSE__COUNT];
    char backend[PARAM_CHOICE_BYTES]; /* loaders: "", or chosen by ctl */
    bool clear_quarantine;            /* loaders: the successor starts without quarantine */
    struct control_due controls[CONTROL__COUNT];
    uint64_t invalid_seen;   /* counter of the channel's statistics */
    struct usage usage;      /* of the running process */
    uint64_t reserved_bytes; /* private bytes reserved in the ledger, kept for its successor */
    uint32_t threads;        /* likewise */
    char exit_message[PROCS_MESSAGE_BYTES]; /* of the last exit */
};

/* A request that gets its reply when its condition holds. */
enum pending_kind { PENDING_NONE, PENDING_BUDGET, PENDING_RESTART, PENDING_THROTTLE };

struct pending_request {
    enum pending_kind kind;
    struct rpc_request *request;
    uint64_t deadline_ns;
    struct child_record *child; /* RESTART, THROTTLE */
    uint64_t value;             /* RESTART: incarnation to become READY; BUDGET: bytes */
};

struct cgroup {
    enum cgroup_version version;
    char parent[PATH_MAX]; /* cgroup at the start */
    char path[PATH_MAX];   /* our own */
    uint64_t limit;        /* limit written last; 0: none */
    bool passed;           /* version 2: this process enabled the controller in the parent */
    /* The cgroup whose kills are counted: our own, or the one we run in; "": those of the machine.
     */
    enum cgroup_version counted_version;
    char counted[PATH_MAX];
};

/* The OOM killer (children/oom_killer.c). */
struct oom {
    int score; /* oom_score_adj of the supervisor at its start */
    struct oom_watch watch;
    uint64_t next_ns;
};

struct budget {
    struct ledger_facts facts;
    struct ledger_result ledger;
    uint64_t applied; /* the budget in effect */
    uint64_t wanted;  /* requested; differs while a shrink is in progress */
    uint64_t quota;   /* sent to the cache */
    uint64_t spare;   /* that experts do not need, in steps */
    uint64_t lent;    /* what kept prefixes may use while experts lend: at most facts.lent_bytes */
    uint32_t epoch;
    uint64_t anon;        /* private pages of all processes, measured */
    uint64_t experts_max; /* --resident-experts, in payload bytes */
    uint64_t used, used_max;
    uint64_t next_measure_ns;
    uint64_t chunk_max;  /* of what budget_chunk may choose as --prefill-chunk; 0: it was given */
    bool context_chosen; /* --ctx-size was not given: context.c */
    bool parallel_given; /* --parallel: the states of so many sequences have memory */
    bool over;           /* warned: private memory grew by more than the arena can release */
};

/* The preset auto: its measurements and its choice (auto.c). */
struct loader_seen {
    uint64_t bytes, busy_ns; /* of its counters, when its rate was last taken */
    double rate;             /* bytes per second while it reads; 0: not measured */
    uint64_t throttle;       /* throttle of those reads */
};

struct automatic {
    bool on;         /* the requested preset is auto */
    uint64_t usable; /* candidates that can run here, with this share and these throttles */
    double usable_share;
    uint64_t usable_throttle[SERVICE_LOADERS_MAX];
    uint32_t candidate; /* current choice; UINT32_MAX: none */
    bool predicted;     /* chosen by a plan, not by rule */
    double ns;          /* predicted time per token */
    double share, bytes_per_s;
    struct loader_seen loader[SERVICE_LOADERS_MAX];
    uint64_t tokens_seen, decode_ns_seen;     /* of compute's counters */
    uint64_t tokens_of[PLAN_AUTO_CANDIDATES]; /* decoded here under each */
    double ns_of[PLAN_AUTO_CANDIDATES];       /* and their time */
};

/* A file that loaders read (files.c). */
#define HELD_FILES_MAX                                                                             \
    (SERVICE_LOADERS_MAX * RUN_COPIES_MAX + 1) /* model.gguf of a store is one of all */

struct held_file {
    char path[MODEL_PATH_BYTES];
    int fd;        /* -1: it could not be opened */
    bool reported; /* that its path names another file */
    struct directory_file seen;
};

/* The stack of a thread of every process, which inherits it (RLIMIT_STACK). */
#define THREAD_STACK_BYTES (512 * KIB)

#define WARM_FILE "experts" /* in the model's directory of the user's cache */

struct gpu {
    uint32_t number;
    uint64_t memory; /* of the GPU */
    uint64_t budget; /* of it */
    uint64_t context_bytes;
    struct gpu_layout layout; /* with its layers */
    char name[128];
};

enum gpu_chosen { GPU_BY_OPTION, GPU_BY_BYTES, GPU_BY_TIMES };

struct gpu_choice { /* how many layers GPUs have */
    enum gpu_chosen by;
    uint32_t layers, most;   /* most: that fit, or the option's number */
    uint64_t budget, memory; /* of the first GPU, also if it is not used */
    /* Estimated seconds of a token with those layers, with `most` by bytes, and on the CPU alone;
     * 0: rates are not known. */
    double token_s, most_s, cpu_s;
};

/* Rates of this machine, and what the model needs (gpu/times.c). */
struct gpu_times {
    bool known;
    struct cost_cpu cpu;
    struct cost_gpu gpu[PROCS_GPUS_MAX]; /* as gpus.gpu */
    struct rates_model model;
};

struct gpus {                       /* gpu/gpu.c, gpu/layout.c */
    uint32_t count;                 /* 0: compute is on the CPU */
    struct gpu gpu[PROCS_GPUS_MAX]; /* in the order of their layers */
    struct gpu_choice choice;
    uint64_t whole_bytes; /* the minimum for all layers on one GPU; 0: not planned */
    uint64_t host_bytes;  /* private memory that compute has in addition */
    const struct gpu_kernels *kernels;
    char module[PROCS_GPU_MODULE_BYTES];
};

struct warm { /* warm.c */
    struct warm_model model;
    struct warm_list list; /* of earlier runs */
    bool writable;         /* the directory is there */
    char path[PATH_MAX];
};

struct options {
    char model[PATH_MAX];
    char url[PARAM_TEXT_BYTES]; /* of a model on a server, as it was given; else "" */
    char run[RUN_NAME_MAX + 1];
    bool print_memory;
    bool choice_is_ours; /* of policies: a tuning may make it (params_close_choice) */
    bool tuned;          /* the preset is a tuning's, which may not hold for this start */
};

enum run_phase { PHASE_START, PHASE_RUN, PHASE_STOP };

struct supervisor {
    uint32_t magic;
    struct options options;
    struct params params;
    struct params storage;   /* of one device (storage_params); too large for a stack */
    char programs[PATH_MAX]; /* directory of the executables */
    char run_dir[ENDPOINT_BYTES];
    int run_dir_fd;                            /* -1 before the directory is taken */
    char notify[ENDPOINT_BYTES];               /* socket of the service manager, "" without one */
    uint64_t notify_period_ns, notify_next_ns; /* of keep-alives; 0: not requested */
    const char *notify_phase;                  /* of the last STATUS= */
    char run_tag[RUN_NAME_MAX + 16];
    int lock_fd;
    uint64_t boot;
    int model_fd;
    struct held_file files[HELD_FILES_MAX];
    uint32_t files_count;
    int http_fd;               /* listening socket of the gateway; -1: none */
    char http_url[80];         /* "": none */
    uint64_t inspect_ns;       /* time limit of inspect */
    struct model_index *model; /* in the model segment */
    const struct plan *plan;   /* follows it in the segment; NULL: none */
    struct warm warm;
    uint8_t model_identity[16];                       /* of cache files; 0: not known */
    uint64_t device_cache_bytes[SERVICE_LOADERS_MAX]; /* memory for the cache of a loader */
    uint32_t preset;                                  /* number of the preset on the command line */
    struct arena_layout layout;
    struct segment segments[SEGMENT__COUNT];
    int segments_readonly[SEGMENT__COUNT];
    struct procs_head *procs;
    struct process *process; /* own */
    struct directory directory;
    int lifeline[2];
    struct child_record children[CHILDREN_MAX];
    uint32_t children_count;
    struct exits exits;              /* child: index of children */
    char failing[SHARED_TEXT_BYTES]; /* why requests fail; "": they are served */
    struct rpc_server *control;
    struct pending_request pending[PENDING_REQUESTS_MAX];
    struct gpus gpus;
    struct budget budget;
    struct cgroup cgroup;
    struct oom oom;
    struct automatic automatic;
    struct map *map; /* NULL before the first request */
    int signal_fd, timer_fd;
    enum run_phase phase;
    uint64_t started_ns;
    bool fast;                   /* second signal: stop at once */
    uint64_t stop_ns;            /* when stopping started */
    uint64_t tick_ns;            /* of the last tick */
    uint64_t heartbeats_from_ns; /* heartbeats are checked from here on */
    bool announced;              /* the ready line was printed */
    bool test;                   /* SLUICE_TEST=1 at start */
    uint32_t next_epoch;
    int exit_status;
    bool over; /* the loop may end */
    struct error end_error;
};

/* The type of --kv-type; params.c has checked its name. */
static inline enum kv_type kv_type_of(const struct supervisor *s)
{
    return kv_type_find(s->params.kv_type);
}

#define KEPT_SLOTS    16 /* prefixes that are kept, at most */
#define KEPT_VERSIONS (4 * KEPT_SLOTS)

/* The shape of the kv segment. */
static inline struct kv_shape kv_shape_for(const struct supervisor *s)
{
    bool keeps = s->params.keep_kv > 0 && !s->params.deterministic; /* as kept_may in compute */
    const uint32_t parallel = (uint32_t)s->params.parallel;
    struct kv_counts counts = {.sequences = parallel,
                               .kept = keeps ? KEPT_SLOTS : 1,
                               .reserved = s->budget.parallel_given ? parallel : 1,
                               .checkpoints = keeps ? (uint32_t)s->params.state_checkpoints : 0,
                               .versions = keeps ? KEPT_VERSIONS : 0};
    return kv_shape_of(&s->model->hparams, kv_type_of(s), (uint32_t)s->params.ctx_size,
                       (uint32_t)s->params.prefill_chunk, &counts);
}

#endif
