/* SPDX-License-Identifier: Apache-2.0 */
/* The exit of a child: it is reaped, its cause is described and recorded, and becomes an event of
 * the state machine. */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>

#include "lib/base/bytes.h"
#include "lib/base/clock.h"
#include "lib/base/log.h"
#include "procs/engine/supervisor/children/children.h"
#include "procs/engine/supervisor/supervisor.h"
#include "shm/table/counters.h"

/* The cause of its exit, for messages. Unless the OOM killer ended it, its exit message takes
 * precedence: it states the reason. */
static void describe_exit(struct child_record *c)
{
    uint32_t number = atomic_load(&c->process->last_signal);
    char own[PROCS_MESSAGE_BYTES];
    memcpy(own, c->process->exit_message, sizeof own);
    own[sizeof own - 1] = 0;
    c->process->exit_message[0] = 0;
    for (char *p = own; *p; p++)
        if ((unsigned char)*p < 0x20 || *p == 0x7f)
            *p = ' ';
    if (c->oom)
        snprintf(c->exit_message, sizeof c->exit_message, "%s", c->oom);
    else if (own[0])
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
                 atomic_load(&c->process->last_exit));
}

static struct exit_facts facts_of(struct supervisor *s, struct child_record *c)
{
    uint32_t number = atomic_load(&c->process->last_signal);
    if (number == SIGKILL && child_state(c) != PROC_KILLED) /* there we sent it */
        c->oom = oom_killed(s);
    return (struct exit_facts){.late = c->late,
                               .requested = c->exit_requested,
                               .too_slow = child_state(c) == PROC_KILLED && !c->ready_ns,
                               .oom = c->oom != NULL,
                               .signal = number};
}

/* Only at the first start does a child fail to start: afterwards it is restarted until it stays
 * up. */
static bool may_fail(const struct supervisor *s, const struct child_record *c)
{
    return !s->announced || !c->was_ready;
}

enum fsm_event child_crashed(struct supervisor *s, struct child_record *c)
{
    bool often = tally_note(&c->tally, clock_now_ns());
    return often && may_fail(s, c) ? EVENT_EXITED_OFTEN : EVENT_EXITED_EARLY;
}

static enum fsm_event classify(struct supervisor *s, struct child_record *c, bool crash)
{
    bool progressed =
        c->ready_ns &&
        atomic_load_explicit(&c->process->progress, memory_order_relaxed) != c->progress_at_spawn;
    if (progressed)
        tally_clear(&c->tally);
    if (progressed || c->exit_requested || child_state(c) == PROC_STOPPING)
        return EVENT_EXITED;
    if (child_state(c) == PROC_STARTING && atomic_load(&c->process->last_exit) == 2 &&
        atomic_load(&c->process->last_signal) == 0 && may_fail(s, c))
        return EVENT_EXITED_FATAL;
    if (c->backend[0] && !c->ready_ns) {
        /* A backend chosen by ctl must not end the engine: the next start uses the configured
         * one. */
        log_warn("backend %s failed to start; using the configured backend again", c->backend);
        c->backend[0] = 0;
    }
    return crash ? child_crashed(s, c) : EVENT_EXITED_EARLY;
}

/* Before the state machine records the exit, which clears its state. */
static void record_exit(struct supervisor *s, struct child_record *c,
                        const struct exit_facts *facts)
{
    struct timespec wall;
    clock_gettime(CLOCK_REALTIME, &wall);
    c->cause = exit_cause_of(facts);
    const struct exit_record exit_record = {
        .uptime_ms = (clock_now_ns() - s->started_ns) / NS_PER_MS,
        .wall_ms = (uint64_t)wall.tv_sec * 1000 + (uint64_t)wall.tv_nsec / NS_PER_MS,
        .child = (uint32_t)(c - s->children),
        .incarnation = atomic_load(&c->process->incarnation),
        .pid = (int32_t)c->pid,
        .cause = c->cause,
        .signal = facts->signal,
        .exit_status = atomic_load(&c->process->last_exit)};
    exits_record(&s->exits, &exit_record, c->exit_message);
}

/* The kernel or an assertion of its own ended it: it may have written where it should not. After a
 * SIGKILL nothing suggests that. */
static bool may_have_damaged(uint32_t number)
{
    static const int faults[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP, SIGABRT, SIGSYS};
    for (size_t i = 0; i < ARRAY_LEN(faults); i++)
        if (number == (uint32_t)faults[i])
            return true;
    return false;
}

/* Before the exit is published, so that a cache that reads the exit reads this, too. */
static void suspect_arena(struct supervisor *s, const struct child_record *c)
{
    if (child_may_write(c->service, SEGMENT_ARENA) &&
        may_have_damaged(atomic_load(&c->process->last_signal)))
        atomic_fetch_add_explicit(&s->directory.head->arena_suspect, 1, memory_order_release);
}

static void reap_one(struct supervisor *s, struct child_record *c, int status)
{
    char name[32];
    atomic_store(&c->process->last_signal, WIFSIGNALED(status) ? (uint32_t)WTERMSIG(status) : 0);
    atomic_store(&c->process->last_exit, WIFEXITED(status) ? (uint32_t)WEXITSTATUS(status) : 0);
    counter_add(s->process, CTR_SUPERVISOR_exits, 1);
    const struct exit_facts facts = facts_of(s, c);
    bool crash = exit_is_crash(&facts);
    enum fsm_event event = classify(s, c, crash);
    describe_exit(c);
    record_exit(s, c, &facts);
    if (crash) { /* before its successor exists, which reads both */
        atomic_fetch_add_explicit(&c->process->crashes, 1, memory_order_relaxed);
        shared_text_set(&c->process->crash_reason, c->exit_message);
    }
    if (s->phase != PHASE_STOP)
        (c->cause == EXIT_CAUSE_REQUESTED ? log_info : log_warn)(
            "%s (process %d) ended: %s", child_name(c, name), (int)c->pid, c->exit_message);
    suspect_arena(s, c);
    children_event(s, c, event);
}

void children_reap(struct supervisor *s)
{
    /* By pid, never -1: SIGCHLDs merge, and inspect has no row. Never blocking: a process in an
     * uninterruptible read stays KILLED until it returns. */
    for (uint32_t i = 0; i < s->children_count; i++) {
        struct child_record *c = &s->children[i];
        int status;
        if (c->pid > 0 && waitpid(c->pid, &status, WNOHANG) == c->pid)
            reap_one(s, c, status);
    }
}

/* ---- requests that cannot be served ---- */

/* What keeps an essential child from running, or false. A READY one is given the requests: they are
 * the proof. */
static bool keeps_failing(const struct child_record *c, char *why, size_t cap)
{
    char name[32];
    enum proc_state state = child_state(c);
    if (!c->info->essential || state == PROC_READY || state == PROC_STOPPING)
        return false;
    if (c->stuck)
        snprintf(why, cap, "%s was killed and has not exited (%.100s)", child_name(c, name),
                 c->exit_message);
    else if (tally_loops(&c->tally))
        snprintf(why, cap, "%s crashed %u times in a row and is being restarted (%.100s)",
                 child_name(c, name), c->tally.exits, c->exit_message);
    return c->stuck || tally_loops(&c->tally);
}

void children_judge(struct supervisor *s)
{
    char why[SHARED_TEXT_BYTES] = "";
    for (uint32_t i = 0; i < s->children_count && s->phase == PHASE_RUN; i++)
        if (keeps_failing(&s->children[i], why, sizeof why))
            break;
    if (strcmp(why, s->failing) == 0)
        return;
    if (why[0])
        log_error("requests fail: %s", why);
    else
        log_info("requests are served again");
    memcpy(s->failing, why, sizeof why);
    shared_text_set(&s->procs->failing, why);
}
