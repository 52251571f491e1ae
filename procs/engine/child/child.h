/* The runtime every child of the supervisor shares: takes the inherited descriptors, attaches the
 * segments, watches the lifeline, stamps the heartbeat, answers the supervisor's controls.
 *
 *   struct child child;
 *   child_start(&child, SERVICE_CACHE, argc, argv);   // fatal with its reason when anything is
 * wrong
 *   ... open own edges ...
 *   child_ready(&child);                              // the byte on the ready descriptor
 *   while (!child.stop) { poll(... child_fd(&child) ..., <= 250 ms); child_tend(&child);
 * child_control(...); ... } child_exit(&child);
 *
 * Trust: the supervisor's descriptors and segments are checked (signature, layout), then believed.
 */
#ifndef SLUICE_ENGINE_CHILD_CHILD_H
#define SLUICE_ENGINE_CHILD_CHILD_H

#include <stdbool.h>
#include <stdint.h>

#include "config/services.h"
#include "ipc/channel/channel.h"
#include "ipc/endpoints.h"
#include "lib/model/index/model_index.h"
#include "lib/plan/plan.h"
#include "lib/policy/presets/presets.h"
#include "shm/arena/arena.h"
#include "shm/directory/directory.h"
#include "shm/kv/kv.h"
#include "shm/rings/access_log.h"
#include "shm/rings/gates.h"
#include "shm/table/counters.h"
#include "shm/table/process_table.h"

/* A gateway has the process table and nothing else: what it is not given stays zero. */
struct child {
    enum service service;
    uint32_t number; /* loader number, else 0 */
    uint32_t incarnation;
    uint64_t boot;
    struct procs procs;
    struct proc_row *row; /* own row */
    const struct params *params;
    const struct model_index *model; /* checked; read-only mapping */
    struct segment model_segment;
    const struct plan *plan;    /* checked, for this model; NULL: the run has none */
    struct directory directory; /* writable */
    struct segment arena;       /* writable for loader and cache, else read-only */
    struct gates gates;         /* writable for compute and predictor (its sleeper flag) */
    struct uses uses;           /* writable for compute */
    struct kv kv;               /* compute only; others leave it unmapped */
    struct edge *supervisor;
    char run_dir[ENDPOINT_BYTES];
    bool stop;                             /* CONTROL_STOP came */
    uint64_t idle_since_ns, idle_progress; /* child_tend's own */
};

/* Command line of a child: PROGRAM --number N --incarnation N --boot N (made by the supervisor
 * alone). A child started by hand says so and exits 2. Also: log_init, prctl(PR_SET_PDEATHSIG,
 * SIGKILL) re-checked with getppid, the lifeline thread (polls HERITAGE_LIFELINE, _exit(1) at EOF),
 * last-words hook, SIGPIPE ignored, SIGINT ignored (the supervisor decides). */
void child_start(struct child *child, enum service service, int argc, char **argv);

void child_ready(struct child *child);

/* Descriptor to poll for the supervisor's messages. */
int child_fd(const struct child *child);

/* Heartbeat, watchdogs of the supervisor edge, the idle second of progress (counted while the row's
 * wait is IDLE or GATES). At least every 250 ms. */
void child_tend(struct child *child);

/* Stamps the heartbeat only (from a long computation). No system call. */
void child_heartbeat(struct child *child);

/* A message was handled, a token appended, a read completed: progress in the process-table sense.
 */
static inline void child_progress(struct child *child)
{
    atomic_fetch_add_explicit(&child->row->progress, 1, memory_order_relaxed);
}

static inline void child_wait(struct child *child, enum proc_wait wait)
{
    atomic_store_explicit(&child->row->wait, (uint32_t)wait, memory_order_relaxed);
}

/* Next control from the supervisor into *control; STOP sets child->stop. The caller acknowledges
 * with child_ack once the control is in force. LOOK and unknown verbs are returned too. */
bool child_control(struct child *child, struct msg_control *control);
void child_ack(struct child *child, const struct msg_control *control);

/* The knobs of a system in this run: its preset, what the plan found, what the command line says.
 * Names were checked by the supervisor: only a damaged segment makes it fail. */
int child_knobs(const struct child *child, uint32_t system, struct knobs *knobs,
                struct error *error);

/* Orderly end: exit status 0. */
_Noreturn void child_exit(struct child *child);

/* Test switches: places where a test may stop a process. The number in procs_head.injection makes
 * the process that reaches that point raise SIGSTOP once (the test then kills it) and resets the
 * number; injection_arg, set before, is how many times the point is passed first. Compiled in
 * always; the cost is one relaxed load at points that are not on the hit path. Points whose process
 * is "loader N" stop nobody: what they say lasts until the number is set back, for the loader whose
 * number injection_arg is (child_injected). X(NAME, process, where) */
#define INJECTIONS(X)                                                                              \
    X(NONE, "", "")                                                                                \
    X(LOADER_READS_OWED, "loader", "after submission, before the last completion of a part")       \
    X(LOADER_BEFORE_PUBLISH, "loader", "all reads of a part completed, word not yet changed")      \
    X(CACHE_RESERVED, "cache", "between reserve and LOAD")                                         \
    X(CACHE_CLEANING, "cache", "between punch and reset of a dead loader's range")                 \
    X(COMPUTE_MID_TOKEN, "compute", "in decode, between two appends, beyond layer 0")              \
    X(COMPUTE_PREFILL, "compute", "in prefill, beyond the first chunk or layer")                   \
    X(COMPUTE_PINNED, "compute", "after pins are set, before the demand is sent")                  \
    X(LOADER_READS_FAIL, "loader N", "reads of its first copy of the experts come back with EIO")  \
    X(LOADER_READS_STALL, "loader N", "and these never come back")

enum injection {
#define X(name, process, where) INJECT_##name,
    INJECTIONS(X)
#undef X
        INJECT__COUNT
};

void child_injection_hit(struct child *child, enum injection point);
static inline void child_inject(struct child *child, enum injection point)
{
    if (__builtin_expect(atomic_load_explicit(&child->procs.head->injection,
                                              memory_order_relaxed) == (uint32_t)point,
                         0))
        child_injection_hit(child, point);
}

static inline bool child_injected(const struct child *child, enum injection point)
{
    const struct procs_head *head = child->procs.head;
    return __builtin_expect(atomic_load_explicit(&head->injection, memory_order_relaxed) ==
                                (uint32_t)point,
                            0) &&
           atomic_load_explicit(&head->injection_arg, memory_order_relaxed) == child->number;
}

#endif
