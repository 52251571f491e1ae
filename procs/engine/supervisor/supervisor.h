/* SPDX-License-Identifier: Apache-2.0 */
/* The supervisor's state, and the functions its files share. start/supervisor_main.c is the
 * overview. */
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
#include "lib/device/cuda/plan.h"
#include "lib/memory/available.h"
#include "lib/rates/rates.h"
#include "lib/warm/warm.h"
#include "procs/engine/child/child.h"
#include "procs/engine/child/run_devices.h"
#include "procs/engine/child/run_knobs.h"
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
#define CHILDREN_MAX         (SERVICE_ROWS_MAX - 1)
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

struct child_slot {
    uint32_t magic;
    enum service service;
    uint32_t number; /* loaders; else 0 */
    uint32_t row_number;
    const struct service_info *info;
    struct proc_row *row;
    pid_t pid;    /* 0: none */
    int ready_fd; /* -1: none */
    struct channel *channel;
    uint64_t deadline_ns;       /* of STARTING, STOPPING, BACKOFF, KILLED */
    uint64_t ready_ns;          /* when it became READY */
    uint64_t progress_at_spawn; /* row->progress then */
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
    struct child_slot *child; /* RESTART, THROTTLE */
    uint64_t value;           /* RESTART: incarnation to become READY; BUDGET: bytes */
};

struct cgroup {
    enum cgroup_version version;
    char parent[PATH_MAX]; /* cgroup at the start */
    char path[PATH_MAX];   /* our own */
    uint64_t limit;        /* limit written last; 0: none */
    bool passed;           /* version 2: this process enabled the controller in the parent */
    /* The cgroup whose kills are counted: our own, or the one we run in; "": those of the machine. */
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
    struct ledger_plan plan;
    uint64_t applied; /* the budget in effect */
    uint64_t wanted;  /* requested; differs while a shrink is in progress */
    uint64_t quota;   /* sent to the cache */
    uint32_t epoch;
    uint64_t anon;        /* private pages of all processes, measured */
    uint64_t experts_max; /* --resident-experts, in payload bytes */
    uint64_t used, used_max;
    uint64_t next_measure_ns;
    uint64_t chunk_max;  /* of what budget_chunk may choose as --prefill-chunk; 0: it was given */
    bool context_chosen; /* --ctx-size was not given: context.c */
    bool over;           /* warned: private memory grew by more than the arena can release */
};

/* The preset auto: its measurements and its choice (auto.c). */
struct loader_seen {
    uint64_t bytes, busy_ns; /* of its counters, when its rate was last taken */
    double rate;             /* bytes per second while it reads; 0: not measured */
    uint64_t throttle;       /* throttle of those reads */
};

struct automatic {
    bool on;            /* the requested preset is auto */
    uint64_t usable;    /* candidates that can run here */
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
    struct cuda_plan plan; /* with its layers */
    char name[128];
};

enum gpu_chosen { GPU_BY_OPTION, GPU_BY_BYTES, GPU_BY_TIMES };

struct gpu_choice { /* how many layers GPUs have */
    enum gpu_chosen by;
    uint32_t layers, most;   /* most: that fit, or the option's number */
    uint64_t budget, memory; /* of the first GPU, also if it is not used */
    /* Estimated seconds of a token with those layers, with `most` by bytes, and on the CPU alone; 0: rates are not known. */
    double token_s, most_s, cpu_s;
};

/* Rates of this machine, and what the model needs (gpu_times.c). */
struct gpu_times {
    bool known;
    struct cost_cpu cpu;
    struct cost_gpu gpu[PROCS_GPUS_MAX]; /* as gpus.gpu */
    struct rates_model model;
};

struct gpus {                       /* gpu.c, gpu_plan.c */
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
    char run[RUN_NAME_MAX + 1];
    bool help, version, print_memory;
    bool choice_is_ours; /* of policies: a tuning may make it (params_close_choice) */
};

enum run_phase { PHASE_START, PHASE_RUN, PHASE_STOP };

struct supervisor {
    uint32_t magic;
    struct options options;
    struct params params;
    struct params device;    /* of one device (device_params); too large for a stack */
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
    uint32_t preset; /* number of the preset on the command line */
    struct arena_layout layout;
    struct segment segments[SEGMENT__COUNT];
    int segments_readonly[SEGMENT__COUNT];
    struct procs_head *procs;
    struct proc_row *row; /* own */
    struct directory directory;
    int lifeline[2];
    struct child_slot children[CHILDREN_MAX];
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

/* options.c */
int options_take(struct supervisor *s, int argc, char **argv, struct error *error);
void options_help(void);

/* run_dir.c: the run directory, its lock, files that a crashed predecessor left. */
int run_dir_take(struct supervisor *s, struct error *error);
void run_dir_clear(const struct supervisor *s);
void run_dir_remove(const struct supervisor *s);
/* Moves a descriptor above FD_MIN, close-on-exec. -1 with errno. */
int fd_high(int fd);

/* model.c: runs inspect, checks what it wrote, resolves the parameters that depend on it. */
int model_take(struct supervisor *s, struct error *error);
/* Whether a preset can run here: its policy parameters are valid, its precisions and plan are
 * available, and under --max-loss its measured loss holds and is small enough. share: of the
 * experts' bytes that fit. Fills *knobs. */
int model_check_preset(struct supervisor *s, uint32_t preset, double share, struct knobs *knobs,
                       struct error *error);
/* Whether the requested preset, which can run now, could also run with this throttle of a loader (0: none) in place
 * of the present one; 0 also if it cannot run now, since that is not because of the throttle. */
int model_check_throttle(struct supervisor *s, uint32_t loader, uint64_t bytes_per_s,
                         struct error *error);

/* tuned.c: before the start. Takes the store, plan and preset of the model's tuning, or offers to make one. */
int tuned_take(struct supervisor *s, struct error *error);

/* warm.c: the experts that earlier runs used. Before the children start; after they ended. */
void warm_begin(struct supervisor *s);
void warm_end(struct supervisor *s);

/* files.c: the files of the loaders. */
/* Opens every copy of every file. A copy that cannot be opened is logged and left out; -1 for the
 * inspected files and for a loader without any. */
int files_open(struct supervisor *s, struct error *error);
/* Before a loader is spawned: what is known about its files, and their descriptors. */
void files_publish(struct supervisor *s, uint32_t loader);
void files_inherit(struct supervisor *s, uint32_t loader, posix_spawn_file_actions_t *actions);
/* While the loader is down: opens the paths of its copies that are in quarantine or missing again.
 * Returns the copies that stay in quarantine. */
uint32_t files_renew(struct supervisor *s, uint32_t loader, uint32_t quarantined);
/* Reports replaced files once, and a file that changed in place and has no other copy. */
void files_watch(struct supervisor *s);
/* True while there is such a file, with ERR_MODEL_CHANGED. */
bool files_changed(const struct supervisor *s, struct error *error);
/* Paths of the replaced files. */
json_t *files_replaced(const struct supervisor *s);

/* devices.c */
/* One loader for each of --devices. Checks all of them, so that device_params cannot fail later. */
int devices_resolve(struct supervisor *s, struct error *error);
/* The parameters for a loader's device. Valid until the next call. */
const struct params *device_params(struct supervisor *s, uint32_t loader);
/* "loader.1 PATH: REASON" for every copy in quarantine. */
json_t *devices_quarantined(const struct supervisor *s);
/* Before a loader's successor is spawned: clears the quarantine if requested. */
void devices_clear_quarantine(struct supervisor *s, struct child_slot *c);

/* segments.c */
/* Free bytes of /dev/shm; UINT64_MAX: not known, with errno. */
uint64_t segments_space(void);
int segments_check_space(struct supervisor *s, struct error *error);
int segments_make(struct supervisor *s, struct error *error);
uint64_t segments_fixed_bytes(const struct supervisor *s);
void segments_drop(struct supervisor *s);

/* spawn.c */
bool child_may_write(enum service service, enum segment_kind kind);
int spawn_child(struct supervisor *s, struct child_slot *c, struct error *error);
/* inspect, writing the index to out_fd. The pid, or -1. */
pid_t spawn_inspect(struct supervisor *s, int out_fd, struct error *error);
int spawn_programs_dir(struct supervisor *s, struct error *error);

/* children.c: the state machines. */
int children_make(struct supervisor *s, struct error *error);
void children_event(struct supervisor *s, struct child_slot *c, enum fsm_event event);
void children_tick(struct supervisor *s, uint64_t now_ns);
/* Spawns children that are DOWN and can start. */
void children_go(struct supervisor *s);
/* One step of stopping in reverse order; true when nothing is left. */
bool children_stop(struct supervisor *s);
void children_ready_byte(struct supervisor *s, struct child_slot *c);
enum proc_state child_state(const struct child_slot *c);
struct child_slot *child_of(struct supervisor *s, enum service service, uint32_t number);
/* "cache", "loader.0" */
const char *child_name(const struct child_slot *c, char buf[32]);
/* By such a name; "loader" alone is loader 0, if there is one. */
struct child_slot *child_by_name(struct supervisor *s, const char *name);
/* Every child is READY, except optional ones that are disabled or crash again and again. */
bool children_serve(const struct supervisor *s);

/* reap.c: children that have exited. */
void children_reap(struct supervisor *s);
/* An early exit, or a failure to spawn: the event that follows. */
enum fsm_event child_crashed(struct supervisor *s, struct child_slot *c);
/* Publishes whether an essential child cannot be kept running (procs_head.failing). */
void children_judge(struct supervisor *s);

/* controls.c: controls, repeated until acknowledged. */
void control_set(struct supervisor *s, struct child_slot *c, enum control_kind kind, uint64_t value,
                 uint32_t epoch);
void controls_repeat(struct supervisor *s, struct child_slot *c);
void controls_receive(struct supervisor *s, struct child_slot *c);

/* oom_killer.c */
/* After cgroup_enter. Lowers the own score where that is permitted. */
void oom_open(struct supervisor *s);
/* Sets the score of a child; info NULL: of inspect. */
void oom_score_child(const struct supervisor *s, pid_t pid, const struct service_info *info);
void oom_tick(struct supervisor *s, uint64_t now_ns);
/* Once for each process that was reaped after a SIGKILL that we did not send: where memory ran out
 * if that was the OOM killer, else NULL. */
const char *oom_killed(struct supervisor *s);

/* measure.c, text.c */
bool measure_process(pid_t pid, struct usage *usage);
uint64_t measure_text(struct supervisor *s);
uint64_t estimate_text(struct supervisor *s);
void text_trim(const struct supervisor *s, const char *program);

/* budget.c */
/* Facts of the ledger about the model and about processes before they exist; divides --budget, or without it half
 * of the available memory, at least the minimum if that much is available. May be below budget.plan.min_budget. */
int budget_make(struct supervisor *s, struct error *error);
/* memory_available; 0: not known, too. */
uint64_t budget_available(void);
/* chunk.c. Of compute: activations of a chunk, logits, and rows gathered by every thread. Of the running sequences at
 * full length: keys and values, states. What --prefill-chunk 0 stands for with --budget, at most budget.chunk_max. */
uint64_t budget_compute_bytes(const struct supervisor *s);
uint64_t budget_compute_threads(const struct supervisor *s);
uint64_t budget_kv_bytes(const struct supervisor *s);
uint64_t budget_chunk(struct supervisor *s);
/* context.c: the context if none was given, with this budget; with any, as long as the engine can start with it; the
 * smallest that an engine starts with; and half of the one chosen, false: it was not, or is the smallest. */
#define CONTEXT_MIN 16u /* of --ctx-size */
uint32_t budget_context(struct supervisor *s);
uint32_t budget_context_low(const struct supervisor *s);
uint32_t budget_context_smallest(const struct supervisor *s);
bool budget_context_halve(struct supervisor *s);
int budget_start(struct supervisor *s, struct error *error);
/* Writes quota, caps and throttles into the directory, before any child exists. */
void budget_publish(struct supervisor *s);
void budget_child_ready(struct supervisor *s, struct child_slot *c);
int budget_all_ready(struct supervisor *s, struct error *error);
void budget_tick(struct supervisor *s, uint64_t now_ns);
/* Share of the experts' bytes that fits into a quota, and into the current one. */
double budget_share(const struct supervisor *s, uint64_t quota);
double budget_share_now(const struct supervisor *s);
/* Requests another budget. 0: in effect at once; 1: in progress; -1: rejected. */
int budget_change(struct supervisor *s, uint64_t bytes, struct error *error);
bool budget_settled(const struct supervisor *s);
uint64_t budget_timeout_ns(const struct supervisor *s, uint64_t bytes);

/* http.c: the socket of the gateway, which outlives it: clients that connect during a restart wait
 * in the socket's queue. */
int http_listen(struct supervisor *s, struct error *error);
/* Memory of the gateway: private bytes reserved in the ledger, bytes it can grow by, and kernel
 * memory for its connections. */
uint64_t http_reservation_bytes(const struct params *p, const struct model_index *m);
uint64_t http_growth(const struct params *p, const struct model_index *m);
uint64_t http_kernel(const struct params *p);

/* The type of --kv-type; params.c has checked its name. */
static inline enum kv_type kv_type_of(const struct supervisor *s)
{
    return kv_type_find(s->params.kv_type);
}

/* The shape of the kv segment. */
static inline struct kv_shape kv_shape_for(const struct supervisor *s)
{
    bool keeps = s->params.keep_kv > 0 && !s->params.deterministic; /* as kept_may in compute */
    struct kv_counts counts = {.sequences = 1,
                               .kept = 1,
                               .checkpoints = keeps ? (uint32_t)s->params.state_checkpoints : 0};
    return kv_shape_of(&s->model->hparams, kv_type_of(s), (uint32_t)s->params.ctx_size,
                       (uint32_t)s->params.prefill_chunk, &counts);
}

/* gpu.c: --gpu. Whether there are such GPUs, and the module for them. gpu_plan.c: then, with the model, the layers of each and the
 * plan of its memory. gpu_without: -1, or 0 with the CPU where that is allowed (--gpu auto). gpu_stats.c: for compute, and for
 * statistics: NULL without a GPU. */
bool gpu_required(const struct supervisor *s);
const char *gpu_test_module(const struct supervisor *s);
int gpu_without(struct supervisor *s, struct error *error);
int gpu_find(struct supervisor *s, struct error *error);
int gpu_plan(struct supervisor *s, struct error *error);
void gpu_publish(const struct supervisor *s, struct procs_gpus *out);
/* Groups of --threads threads in compute: for the layers on the CPU, and with each GPU for experts that it has not (--gpu-policy). */
uint32_t gpu_thread_groups(const struct supervisor *s);
json_t *gpu_stats(struct supervisor *s);
json_t *gpu_choice_stats(
    const struct supervisor *s); /* NULL with --gpu off, and where no GPU can be used */
/* gpu_times.c: 0 with t->known, or without it and a line in the log; -1 with ERR_NO_MEMORY. For gpu_times_close. */
int gpu_times_open(struct supervisor *s, struct gpu_times *t, struct error *error);
void gpu_times_close(struct gpu_times *t);
/* The seconds of a token, and of a layer of a GPU, with the current plan. */
double gpu_times_token(const struct supervisor *s, const struct gpu_times *t);
double gpu_times_layer(const struct supervisor *s, const struct gpu_times *t, uint32_t gpu);

/* notify.c: systemd, or another service manager that set NOTIFY_SOCKET. */
void notify_take(struct supervisor *s);
void notify_send(const struct supervisor *s, const char *text);
/* The keep-alive of systemd's WatchdogSec=, twice per period, and a changed phase as STATUS=. */
void notify_alive(struct supervisor *s, uint64_t now_ns);

/* estimate.c: --print-memory. Needs the model, and no other process. */
int memory_estimate_print(struct supervisor *s, struct error *error);

/* auto.c: the preset auto, which chooses among the others. */
/* Before any child runs: chooses by the plan's predictions and the throttles. */
void auto_start(struct supervisor *s);
/* Limit of a loader's bandwidth, bytes per second; 0: none. */
uint64_t auto_throttle(struct supervisor *s, uint32_t loader);
/* At readiness and on every tick: evaluates capacity, bandwidth and token times, and chooses again.
 * The choice takes effect with the next sequence. */
void auto_poll(struct supervisor *s);
/* A preset was requested. Returns the preset to run. */
uint32_t auto_requested(struct supervisor *s, uint32_t preset);
json_t *auto_stats(const struct supervisor *s); /* NULL: auto is off */
/* {"preset", "lossless", "why"} of each candidate with that share of the experts resident, in the order of
 * auto.tbl.h; "why" is missing if it can run here. */
json_t *auto_candidates_json(struct supervisor *s, double share);

/* cgroup.c */
int cgroup_enter(struct supervisor *s, struct error *error);
bool cgroup_limit(struct supervisor *s, uint64_t bytes);
/* Processes that the kernel killed for lack of memory, of the own cgroup or else the one we run in;
 * false where neither counts them. */
bool cgroup_oom_counts(const struct supervisor *s, struct oom_counts *counts);
bool cgroup_peak(const struct supervisor *s, uint64_t *usage, uint64_t *peak);
void cgroup_leave(struct supervisor *s);

/* control.c, ops.c, stats.c */
int control_open(struct supervisor *s, struct error *error);
void control_serve(struct supervisor *s);
void control_tick(struct supervisor *s, uint64_t now_ns);
void control_finish(struct supervisor *s);
void control_handle(struct supervisor *s, struct rpc_request *request);
struct pending_request *control_add_pending(struct supervisor *s, struct rpc_request *request,
                                            enum pending_kind kind, uint64_t deadline_ns);
json_t *stats_snapshot(struct supervisor *s);
json_t *stats_status(struct supervisor *s);
json_t *stats_chat(const struct supervisor *s);
json_t *stats_memory(struct supervisor *s);

/* map.c: characters of a layer's experts, other than the digit of the best resident precision. */
#define MAP_NO_EXPERT ' '
#define MAP_ABSENT    '.'
#define MAP_LOADING   '+'
json_t *map_snapshot(struct supervisor *s, struct error *error);

/* loop.c */
void loop_run(struct supervisor *s);
int loop_open(struct supervisor *s, struct error *error);
/* Starts the stop: children are stopped in reverse order. status becomes the exit status. */
void loop_stop(struct supervisor *s, int status, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
const char *phase_text(const struct supervisor *s);

#endif
