/* SPDX-License-Identifier: Apache-2.0 */
/* The exit of a child: it is reaped, its cause is described and recorded, and becomes an event of the
 * state machine. */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>

#include "lib/base/clock.h"
#include "lib/base/log.h"
#include "procs/engine/supervisor/supervisor.h"
#include "shm/table/counters.h"

/* The cause of its exit, for messages. Its exit message takes precedence: it states the reason. */
static void describe_exit(struct child_slot *c)
{
    uint32_t number = atomic_load(&c->row->last_signal);
    char own[PROCS_MESSAGE_BYTES];
    memcpy(own, c->row->exit_message, sizeof own);
    own[sizeof own - 1] = 0;
    c->row->exit_message[0] = 0;
    for (char *p = own; *p; p++)
        if ((unsigned char)*p < 0x20 || *p == 0x7f)
            *p = ' ';
    if (own[0])
        memcpy(c->exit_message, own, sizeof own);
    else if (c->late)
        snprintf(c->exit_message, sizeof c->exit_message, "heartbeat too old, killed");
    else if (c->exit_requested)
        snprintf(c->exit_message, sizeof c->exit_message, "on request");
    else if (number)
        snprintf(c->exit_message, sizeof c->exit_message, "signal %" PRIu32 " (%s)", number,
                 strsignal((int)number));
    else
        snprintf(c->exit_message, sizeof c->exit_message, "exit status %" PRIu32,
                 atomic_load(&c->row->last_exit));
}

static enum fsm_event classify(struct child_slot *c)
{
    bool progressed =
        c->ready_ns &&
        atomic_load_explicit(&c->row->progress, memory_order_relaxed) != c->progress_at_ready;
    if (progressed)
        tally_clear(&c->tally);
    if (progressed || c->exit_requested || child_state(c) == PROC_STOPPING)
        return EVENT_EXITED;
    if (child_state(c) == PROC_STARTING && atomic_load(&c->row->last_exit) == 2 &&
        atomic_load(&c->row->last_signal) == 0)
        return EVENT_EXITED_FATAL;
    if (c->backend[0] && !c->ready_ns) {
        /* A backend chosen by ctl must not end the engine: the next start uses the configured
         * one. */
        log_warn("backend %s failed to start; using the configured backend again", c->backend);
        c->backend[0] = 0;
    }
    return tally_note(&c->tally, clock_now_ns()) ? EVENT_EXITED_OFTEN : EVENT_EXITED_EARLY;
}

/* Before the state machine records the exit, which clears its state. */
static void record_exit(struct supervisor *s, struct child_slot *c)
{
    struct timespec wall;
    clock_gettime(CLOCK_REALTIME, &wall);
    uint32_t number = atomic_load(&c->row->last_signal);
    const struct exit_facts facts = {.late = c->late,
                                     .requested = c->exit_requested,
                                     .too_slow = child_state(c) == PROC_KILLED && !c->ready_ns,
                                     .signal = number};
    c->cause = exit_cause_of(&facts);
    const struct exit_record exit_record = {
        .uptime_ms = (clock_now_ns() - s->started_ns) / NS_PER_MS,
        .wall_ms = (uint64_t)wall.tv_sec * 1000 + (uint64_t)wall.tv_nsec / NS_PER_MS,
        .child = (uint32_t)(c - s->children),
        .incarnation = atomic_load(&c->row->incarnation),
        .pid = (int32_t)c->pid,
        .cause = c->cause,
        .signal = number,
        .exit_status = atomic_load(&c->row->last_exit)};
    exits_record(&s->exits, &exit_record, c->exit_message);
}

static void reap_one(struct supervisor *s, struct child_slot *c, int status)
{
    char name[32];
    atomic_store(&c->row->last_signal, WIFSIGNALED(status) ? (uint32_t)WTERMSIG(status) : 0);
    atomic_store(&c->row->last_exit, WIFEXITED(status) ? (uint32_t)WEXITSTATUS(status) : 0);
    counter_add(s->row, CTR_SUPERVISOR_exits, 1);
    enum fsm_event event = classify(c);
    describe_exit(c);
    record_exit(s, c);
    if (s->phase != PHASE_STOP)
        (c->cause == EXIT_CAUSE_REQUESTED ? log_info : log_warn)(
            "%s (process %d) ended: %s", child_name(c, name), (int)c->pid, c->exit_message);
    children_event(s, c, event);
}

void children_reap(struct supervisor *s)
{
    /* By pid, never -1: SIGCHLDs merge, and inspect has no row. Never blocking: a process in an
     * uninterruptible read stays KILLED until it returns. */
    for (uint32_t i = 0; i < s->children_count; i++) {
        struct child_slot *c = &s->children[i];
        int status;
        if (c->pid > 0 && waitpid(c->pid, &status, WNOHANG) == c->pid)
            reap_one(s, c, status);
    }
}
