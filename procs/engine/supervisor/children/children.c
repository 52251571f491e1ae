/* SPDX-License-Identifier: Apache-2.0 */
/* The children: one state machine (fsm.h) per row of the process table. This file feeds events into
 * the table and executes its actions; all decisions by state are in the table.
 *
 * After an exit: the cache cleans up after a loader (process.reaped -> process.cleaned) before a
 * successor is spawned; pins of compute and of the predictor are cleared here, after waitpid; the
 * cache's successor rebuilds its state from the directory. */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/assert.h"
#include "lib/base/clock.h"
#include "lib/base/log.h"
#include "procs/engine/supervisor/budget/budget.h"
#include "procs/engine/supervisor/children/children.h"
#include "procs/engine/supervisor/start/start.h"
#include "procs/engine/supervisor/supervisor.h"
#include "shm/table/counters.h"

enum proc_state child_state(const struct child_record *c)
{
    return (enum proc_state)atomic_load_explicit(&c->process->state, memory_order_relaxed);
}

const char *child_name(const struct child_record *c, char buf[32])
{
    if (c->service == SERVICE_LOADER)
        snprintf(buf, 32, "loader.%" PRIu32, c->number);
    else
        snprintf(buf, 32, "%s", c->info->name);
    return buf;
}

struct child_record *child_of(struct supervisor *s, enum service service, uint32_t number)
{
    for (uint32_t i = 0; i < s->children_count; i++)
        if (s->children[i].service == service && s->children[i].number == number)
            return &s->children[i];
    return NULL;
}

struct child_record *child_by_name(struct supervisor *s, const char *name)
{
    char buf[32];
    for (uint32_t i = 0; i < s->children_count; i++) {
        struct child_record *c = &s->children[i];
        if (strcmp(child_name(c, buf), name) == 0 ||
            (c->number == 0 && strcmp(c->info->name, name) == 0))
            return c;
    }
    return NULL;
}

bool children_serve(const struct supervisor *s)
{
    for (uint32_t i = 0; i < s->children_count; i++) {
        const struct child_record *c = &s->children[i];
        bool left_out =
            !c->info->essential && (child_state(c) == PROC_FAILED || tally_loops(&c->tally));
        if (child_state(c) != PROC_READY && !left_out)
            return false;
    }
    return true;
}

static int child_make(struct supervisor *s, enum service service, uint32_t number,
                      struct error *error)
{
    sl_assert(s->children_count < CHILDREN_MAX);
    struct child_record *c = &s->children[s->children_count];
    *c = (struct child_record){.magic = CHILD_MAGIC,
                               .service = service,
                               .number = number,
                               .info = service_info(service),
                               .ready_fd = -1};
    c->process_index = procs_index_of(service, number);
    c->process = &s->procs->process[c->process_index];
    c->process->service = service;
    c->process->number = number;
    char path[ENDPOINT_BYTES];
    if (endpoint_path(s->run_dir, ENDPOINT_SUPERVISOR_CHILD, c->process_index, path, error) != 0)
        return -1;
    c->channel =
        channel_listen(path, ROLE_SUPERVISOR, atomic_load(&s->process->incarnation), error);
    if (!c->channel)
        return -1;
    s->children_count++;
    return 0;
}

int children_make(struct supervisor *s, struct error *error)
{
    for (int service = SERVICE_SUPERVISOR + 1; service < SERVICE__COUNT; service++) {
        uint32_t count = service_count((enum service)service, &s->params);
        for (uint32_t number = 0; number < count; number++)
            if (child_make(s, (enum service)service, number, error) != 0)
                return -1;
    }
    return 0;
}

/* ---- actions ---- */

static void act_spawn(struct supervisor *s, struct child_record *c)
{
    struct error error;
    char name[32];
    c->exit_requested = c->late = false;
    c->oom = NULL;
    storage_clear_quarantine(s, c);
    if (c->service == SERVICE_LOADER)
        files_publish(s, c->number);
    c->ready_ns = 0;
    c->progress_at_spawn = atomic_load_explicit(&c->process->progress, memory_order_relaxed);
    c->deadline_ns = clock_now_ns() + c->info->ready_ms * NS_PER_MS;
    if (spawn_child(s, c, &error) != 0) {
        snprintf(c->exit_message, sizeof c->exit_message, "%.*s", (int)sizeof c->exit_message - 1,
                 error.text);
        log_error("%s", error.text);
        children_event(s, c, child_crashed(s, c));
        return;
    }
    atomic_store_explicit(&c->process->pid, (int32_t)c->pid, memory_order_relaxed);
    uint32_t incarnation = atomic_load(&c->process->incarnation);
    if (incarnation > 1) {
        atomic_fetch_add_explicit(&c->process->restarts, 1, memory_order_relaxed);
        c->restarts_by[c->cause]++;
        exits_mark_restarted(&s->exits, (uint32_t)(c - s->children));
    }
    counter_add(s->process, CTR_SUPERVISOR_spawns, 1);
    oom_score_child(s, c->pid, c->info);
    log_debug("%s: incarnation %" PRIu32 " is process %d", child_name(c, name), incarnation,
              (int)c->pid);
}

static void act_announce(struct supervisor *s, struct child_record *c)
{
    char name[32];
    close(c->ready_fd);
    c->ready_fd = -1;
    c->ready_ns = clock_now_ns();
    c->was_ready = true;
    if (atomic_load(&c->process->incarnation) > 1)
        log_info("%s is back (incarnation %" PRIu32 ")", child_name(c, name),
                 atomic_load(&c->process->incarnation));
    budget_child_ready(s, c);
}

static void act_kill(struct child_record *c)
{
    sl_assert(c->pid > 0);
    /* Not reaped yet, so the pid is still valid. SIGKILL also ends a stopped process. */
    kill(c->pid, SIGKILL);
    c->deadline_ns = clock_now_ns() + REAP_NS;
}

static void act_request_stop(struct supervisor *s, struct child_record *c)
{
    c->deadline_ns = clock_now_ns() + STOP_NS;
    control_set(s, c, CONTROL_STOP, 0, ++s->next_epoch);
}

static void clean_up(struct supervisor *s, struct child_record *c)
{
    if (c->service == SERVICE_COMPUTE)
        directory_sweep(&s->directory, PINNER_COMPUTE);
    if (c->service == SERVICE_PREDICTOR)
        directory_sweep(&s->directory, PINNER_PREDICTOR);
    if (c->ready_fd >= 0)
        close(c->ready_fd);
    c->ready_fd = -1;
    c->pid = 0;
    c->ready_ns = 0;
    c->stuck = false;
    c->usage = (struct usage){0};
    c->controls[CONTROL_STOP].due = false;
    atomic_store_explicit(&c->process->pid, 0, memory_order_relaxed);
    /* Release: a process that reads the number finds the pins cleared. */
    atomic_store_explicit(&c->process->reaped, atomic_load(&c->process->incarnation),
                          memory_order_release);
    struct child_record *cache = child_of(s, SERVICE_CACHE, 0);
    if (c->service == SERVICE_LOADER)
        control_set(s, cache, CONTROL_POLL, c->number, ++s->next_epoch);
}

static void act_give_up(struct supervisor *s, struct child_record *c)
{
    char name[32];
    clean_up(s, c);
    if (!c->info->essential) {
        log_error("%s failed to start; disabled: %s", child_name(c, name), c->exit_message);
        return;
    }
    bool bad_input =
        atomic_load(&c->process->last_exit) == 2 && atomic_load(&c->process->last_signal) == 0;
    loop_stop(s, bad_input ? 2 : 1, "%s failed: %s", child_name(c, name), c->exit_message);
}

void children_event(struct supervisor *s, struct child_record *c, enum fsm_event event)
{
    OBJ_CHECK(c, CHILD_MAGIC);
    struct fsm_step step = fsm_step(child_state(c), event);
    if (step.action == ACTION_BROKEN)
        sl_panic("%s %s while %s", c->info->name, fsm_event_text(event),
                 proc_state_text(child_state(c)));
    atomic_store_explicit(&c->process->state, step.next, memory_order_release);
    switch ((enum fsm_action)step.action) {
    case ACTION_NONE: break;
    case ACTION_SPAWN: act_spawn(s, c); break;
    case ACTION_ANNOUNCE: act_announce(s, c); break;
    case ACTION_KILL: act_kill(c); break;
    case ACTION_REQUEST_STOP: act_request_stop(s, c); break;
    case ACTION_CLEAN_UP: clean_up(s, c); break;
    case ACTION_CLEAN_UP_WAIT:
        clean_up(s, c);
        c->deadline_ns = clock_now_ns() + tally_backoff_ns(&c->tally);
        break;
    case ACTION_GIVE_UP: act_give_up(s, c); break;
    case ACTION_BROKEN: break;
    }
}

/* ---- events ---- */

void children_ready_byte(struct supervisor *s, struct child_record *c)
{
    char byte;
    ssize_t n = read(c->ready_fd, &byte, 1);
    if (n == 1) {
        children_event(s, c, EVENT_READY);
    } else if (n == 0) {
        /* It closed its end or exited; then SIGCHLD follows. */
        close(c->ready_fd);
        c->ready_fd = -1;
    }
}

/* All its prerequisites are READY; for loaders: all of them. */
static bool may_start(const struct supervisor *s, const struct child_record *c)
{
    for (uint32_t i = 0; i < s->children_count; i++) {
        const struct child_record *other = &s->children[i];
        if ((c->info->after & (1u << other->service)) && child_state(other) != PROC_READY)
            return false;
    }
    /* A crashed loader's ranges must be clean before a loader writes there again. */
    return c->service != SERVICE_LOADER ||
           atomic_load_explicit(&c->process->cleaned, memory_order_acquire) >=
               atomic_load(&c->process->reaped);
}

static bool heartbeat_late(const struct supervisor *s, const struct child_record *c,
                           uint64_t now_ns)
{
    if (!s->params.watchdog || now_ns < s->heartbeats_from_ns)
        return false;
    uint64_t beat = atomic_load_explicit(&c->process->heartbeat_ns, memory_order_relaxed);
    if (beat < c->ready_ns)
        beat = c->ready_ns;
    return now_ns > beat && now_ns - beat > s->params.heartbeat_timeout * NS_PER_MS;
}

/* A loader may return from a read that hangs; without cache or compute nothing is computed. */
static void killed_too_long(struct supervisor *s, struct child_record *c)
{
    char name[32];
    c->deadline_ns = UINT64_MAX;
    c->stuck = true;
    if ((c->service == SERVICE_CACHE || c->service == SERVICE_COMPUTE) && s->phase != PHASE_STOP)
        loop_stop(s, 1, "%s (process %d) was killed and has not exited after 10 s",
                  child_name(c, name), (int)c->pid);
    else
        log_error("%s (process %d) was killed and has not exited after 10 s", child_name(c, name),
                  (int)c->pid);
}

static void child_record_tick(struct supervisor *s, struct child_record *c, uint64_t now_ns)
{
    if (c->pid > 0) /* an exited child has no connection to check */
        channel_tick(c->channel, now_ns);
    controls_repeat(s, c);
    char name[32];
    bool due = now_ns >= c->deadline_ns;
    switch (child_state(c)) {
    case PROC_STARTING:
        if (due)
            children_event(s, c, EVENT_SLOW_START);
        break;
    case PROC_READY:
        if (heartbeat_late(s, c, now_ns)) {
            c->late = true;
            counter_add(s->process, CTR_SUPERVISOR_kills, 1);
            children_event(s, c, EVENT_LATE);
        }
        break;
    case PROC_STOPPING:
        if (due) {
            log_warn("%s did not stop in time (%s, its connection is %s); sending SIGKILL",
                     child_name(c, name), proc_wait_text(atomic_load(&c->process->wait)),
                     channel_connected(c->channel) ? "up" : "down");
            children_event(s, c, EVENT_SLOW_STOP);
        }
        break;
    case PROC_BACKOFF:
        if (due)
            children_event(s, c, EVENT_BACKOFF_OVER);
        break;
    case PROC_KILLED:
        if (due)
            killed_too_long(s, c);
        break;
    case PROC_DOWN:
    case PROC_FAILED: break;
    }
}

void children_tick(struct supervisor *s, uint64_t now_ns)
{
    for (uint32_t i = 0; i < s->children_count; i++)
        child_record_tick(s, &s->children[i], now_ns);
}

void children_go(struct supervisor *s)
{
    if (s->phase == PHASE_STOP)
        return;
    for (uint32_t i = 0; i < s->children_count; i++) {
        struct child_record *c = &s->children[i];
        if (child_state(c) == PROC_DOWN && may_start(s, c))
            children_event(s, c, EVENT_GO);
    }
}

static bool gone(const struct child_record *c)
{
    return c->pid == 0 && child_state(c) != PROC_BACKOFF;
}

bool children_stop(struct supervisor *s)
{
    bool all = true;
    for (int service = SERVICE__COUNT - 1; service > SERVICE_SUPERVISOR; service--) {
        bool stage = true;
        for (uint32_t i = 0; i < s->children_count; i++) {
            struct child_record *c = &s->children[i];
            if (c->service != (enum service)service || gone(c))
                continue;
            stage = false;
            c->exit_requested = true;
            if (s->fast && child_state(c) == PROC_READY)
                children_event(s, c, EVENT_RESTART);
            else if (s->fast && child_state(c) == PROC_STOPPING)
                children_event(s, c, EVENT_SLOW_STOP);
            else
                children_event(s, c, EVENT_STOP);
        }
        all = all && stage;
        if (!stage && !s->fast)
            break; /* the next stage when these have exited */
    }
    return all;
}
