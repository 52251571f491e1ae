/* SPDX-License-Identifier: Apache-2.0 */
/* The runtime of every child of the supervisor: takes the inherited descriptors, attaches the
 * segments, watches the lifeline, updates the heartbeat, acknowledges the supervisor's controls.
 *
 *   struct child child;
 *   child_start(&child, SERVICE_CACHE, argc, argv);   // exits with a message on any error
 *   ... open the process's channels ...
 *   child_ready(&child);                              // the byte on the ready descriptor
 *   while (!child.stop) {
 *       poll(... child_fd(&child) ..., <= 250 ms);
 *       child_tick(&child);
 *       child_control(...); ...
 *   }
 *   child_exit(&child);
 *
 * Trust: the supervisor's descriptors and segments are checked (signature, layout), then
 * trusted. */
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

/* A gateway has only the process table: its other fields stay zero. */
struct child {
    enum service service;
    uint32_t number; /* loader number, else 0 */
    uint32_t incarnation;
    uint64_t boot;
    struct procs procs;
    struct process *process; /* own process */
    const struct params *params;
    const struct model_index *model; /* checked; read-only mapping */
    struct segment model_segment;
    const struct plan *plan;      /* checked, for this model; NULL: none */
    struct directory directory;   /* writable */
    struct segment arena;         /* writable for loader and cache, else read-only */
    struct gates gates;           /* writable for compute and predictor (its waiter flag) */
    struct access_log access_log; /* writable for compute */
    struct kv kv;                 /* mapped by compute only */
    struct channel *supervisor;
    char run_dir[ENDPOINT_BYTES];
    bool stop;                             /* CONTROL_STOP was received */
    uint64_t idle_since_ns, idle_progress; /* private to child_tick */
    uint64_t no_memory_since_ns;           /* the same; 0: there is memory */
};

/* Parses the command line PROGRAM --number N --incarnation N --boot N, which only the supervisor
 * uses; any other one prints an error and exits with 2. Also: log_init, prctl(PR_SET_PDEATHSIG,
 * SIGKILL) re-checked with getppid, the lifeline thread (polls INHERITED_LIFELINE, _exit(1) at
 * EOF), exit-message hook, SIGPIPE ignored, SIGINT ignored (the supervisor decides). */
void child_start(struct child *child, enum service service, int argc, char **argv);

void child_ready(struct child *child);

/* Descriptor to poll for the supervisor's messages. */
int child_fd(const struct child *child);

/* Call at least every 250 ms: updates the heartbeat, checks the supervisor's channel, counts
 * progress per idle second (while the row's wait is IDLE or GATES). Ends the process if it had no
 * memory for 5 s. */
void child_tick(struct child *child);

/* Updates only the heartbeat (during a long computation). No system call. */
void child_heartbeat(struct child *child);

/* Counts progress in the process table: a token appended, a read completed, an entry loaded, a
 * response sent. A message or request that arrived is none: the process may crash at each. */
static inline void child_progress(struct child *child)
{
    atomic_fetch_add_explicit(&child->process->progress, 1, memory_order_relaxed);
}

static inline void child_wait(struct child *child, enum proc_wait wait)
{
    atomic_store_explicit(&child->process->wait, (uint32_t)wait, memory_order_relaxed);
}

/* Next control from the supervisor into *control; STOP sets child->stop. The caller acknowledges
 * with child_ack once the control is applied. POLL and unknown controls are returned, too. */
bool child_control(struct child *child, struct msg_control *control);
void child_ack(struct child *child, const struct msg_control *control);

/* The policy parameters of a preset: its own, those of the plan, those of the command line; and its
 * precision policy for this model (preset_servable). The
 * supervisor has checked them: only a damaged segment causes an error. */
int child_knobs(const struct child *child, uint32_t preset, struct knobs *knobs,
                struct precision_policy *policy, struct error *error);

/* Exits with status 0. */
_Noreturn void child_exit(struct child *child);

/* Injection points for tests. A process that reaches the point given in procs_head.injection raises
 * SIGSTOP once (the test then kills it) and resets the number. injection_arg, set before, is how
 * often the point is passed first. Always compiled in; the cost is one relaxed load at points that
 * are not on the hit path. Points of process "loader N" or "compute N" do not stop a process: they
 * are in effect until the number is reset, for the one with number injection_arg (child_injected).
 * X(NAME, process, where) */
#define INJECTIONS(X)                                                                              \
    X(NONE, "", "")                                                                                \
    X(LOADER_READS_PENDING, "loader", "after submission, before the last completion of a shard")   \
    X(LOADER_BEFORE_PUBLISH, "loader", "all reads of a shard completed, word not yet changed")     \
    X(CACHE_RESERVED, "cache", "between reserve and LOAD")                                         \
    X(CACHE_CLEANING, "cache", "between punch and reset of a crashed loader's range")              \
    X(COMPUTE_MID_TOKEN, "compute", "in decode, between two appends, after layer 0")               \
    X(COMPUTE_SLOT_CUT, "compute", "a kept slot is cut back, and no request owns it yet")          \
    X(COMPUTE_SLOT_COPIED, "compute", "an empty slot has rows of another one")                     \
    X(COMPUTE_SLOT_TAKEN, "compute", "a request owns a slot that was kept")                        \
    X(COMPUTE_SLOT_LOGGED, "compute",                                                              \
      "the tokens of a slot are logged, its request still owns it")                                \
    X(COMPUTE_WINDOW_RESTORED, "compute",                                                          \
      "rings have the window of a checkpoint, not yet counted")                                    \
    X(COMPUTE_STATE_WRITTEN, "compute", "a recurrent state is complete, and not yet committed")    \
    X(COMPUTE_ROWS_COMMITTED, "compute",                                                           \
      "the rows of a pass are committed, its sequence continues")                                  \
    X(COMPUTE_SLOT_KEPT, "compute", "a slot is kept, and its request has not ended")               \
    X(COMPUTE_PREFIX_WRITTEN, "compute", "a file of a prefix has another piece, or its name")      \
    X(COMPUTE_PREFIX_READ, "compute", "a slot has another piece of a file")                        \
    X(COMPUTE_PREFIX_TAKEN, "compute", "a slot has all of a file, and no row is valid yet")        \
    X(COMPUTE_CLEARS, "compute", "a part of what is kept is removed, in four steps")               \
    X(COMPUTE_END_SENT, "compute", "the end of a request is sent, its client has not got it yet")  \
    X(COMPUTE_PREFILL, "compute", "in prefill, beyond the first chunk or layer")                   \
    X(COMPUTE_CALL, "compute", "in a call with a prompt, before it is read")                       \
    X(COMPUTE_PINNED, "compute", "after pins are set, before the demand is sent")                  \
    X(LOADER_READS_FAIL, "loader N", "reads of its first copy of the experts come back with EIO")  \
    X(LOADER_READS_WAIT, "loader N", "the same with EAGAIN, however often they are tried")         \
    X(LOADER_READS_STALL, "loader N", "and these never come back")                                 \
    X(COMPUTE_ONE_BY_ONE, "compute N", "tokens that a grammar forces are appended one by one")     \
    X(FORBIDDEN_CALL, "all", "process injection_arg calls ptrace, once")

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
