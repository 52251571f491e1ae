/* SPDX-License-Identifier: Apache-2.0 */
/* The event loop: signals, ready bytes, acknowledgements, control requests, and a tick. One thread;
 * nothing in it waits for shared memory or for a process. */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "lib/base/clock.h"
#include "lib/base/log.h"
#include "procs/engine/supervisor/auto.h"
#include "procs/engine/supervisor/budget/budget.h"
#include "procs/engine/supervisor/children/children.h"
#include "procs/engine/supervisor/control/control.h"
#include "procs/engine/supervisor/start/start.h"
#include "procs/engine/supervisor/supervisor.h"
#include "shm/table/counters.h"

#define POLLED_MAX (3 + 2 * CHILDREN_MAX)
#define LATE_TICK_NS                                                                               \
    (NS_PER_S) /* a tick this late: the supervisor was stopped, and probably the children, too */
#define STOP_ALL_NS   (25 * NS_PER_S) /* then the engine ends even if children remain */
#define DRAIN_POLL_NS (NS_PER_S)

int loop_open(struct supervisor *s, struct error *error)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGCHLD);
    /* Before NNG starts its threads: they inherit the mask, so that signals arrive only at
     * signal_fd. */
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGHUP, SIG_IGN); /* the engine outlives the terminal that started it */
    s->signal_fd = fd_high(signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
    s->timer_fd = fd_high(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
    struct timespec tick = {.tv_nsec = TICK_NS};
    if (s->signal_fd < 0 || s->timer_fd < 0 ||
        timerfd_settime(s->timer_fd, 0, &(struct itimerspec){tick, tick}, NULL) != 0)
        return error_set_errno(error, ERR_FAILED, errno,
                               "cannot create signal or timer descriptors");
    return 0;
}

const char *phase_text(const struct supervisor *s)
{
    if (s->phase == PHASE_STOP)
        return "stopping";
    if (!s->announced)
        return "starting";
    if (s->failing[0])
        return "failing";
    if (!children_serve(s))
        return "restarting";
    return atomic_load(&s->directory.head->draining) ? "draining" : "ready";
}

void loop_stop(struct supervisor *s, int status, const char *fmt, ...)
{
    va_list args;
    char text[sizeof s->end_error.text];
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    if (s->phase == PHASE_STOP)
        return; /* the first reason counts */
    if (status != 0)
        error_set(&s->end_error, ERR_FAILED, "%s", text);
    s->phase = PHASE_STOP;
    s->exit_status = status;
    s->stop_ns = clock_now_ns();
    notify_send(s, "STOPPING=1");
    atomic_store_explicit(&s->directory.head->draining, DRAINING_STOP, memory_order_release);
    if (s->end_error.code != ERR_FAILED)
        log_info("stopping: %s", text);
}

static void on_signals(struct supervisor *s)
{
    struct signalfd_siginfo info;
    while (read(s->signal_fd, &info, sizeof info) == (ssize_t)sizeof info) {
        if (info.ssi_signo == SIGCHLD)
            continue; /* children_reap checks all children anyway */
        if (s->phase == PHASE_STOP)
            s->fast = true;
        else
            loop_stop(s, 0, "%s", strsignal((int)info.ssi_signo));
    }
    children_reap(s);
}

/* As doctor's `parallel`. */
static void advise_parallel(const struct supervisor *s)
{
    char beside[64] = "beside less than a quarter of the experts";
    unsigned percent;
    uint32_t n = budget_sequences(s, &percent);
    if (percent > 0)
        snprintf(beside, sizeof beside, "beside %u %% of the experts", percent);
    log_info("--parallel %" PRIu64 ": keys and values of up to %u sequence%s of %" PRIu64
             " tokens fit into the budget %s",
             s->params.parallel, n, n == 1 ? "" : "s", s->params.ctx_size, beside);
}

static void announce(struct supervisor *s)
{
    if (s->announced || s->phase != PHASE_RUN || !children_serve(s))
        return;
    struct error error;
    if (budget_all_ready(s, &error) != 0) {
        loop_stop(s, error_exit_status(error.code), "%s", error.text);
        return;
    }
    s->announced = true;
    auto_poll(s); /* the dense weights have been read: the read bandwidth is known */
    notify_send(s, "READY=1");
    char budget[16], arena[16];
    const char *name = strrchr(s->options.model, '/');
    log_line(LOG_LEVEL_INFO,
             "ready: model %s, budget %s, arena %s, context %" PRIu64 " tokens, up to %" PRIu64
             " sequences at a time, %u processes%s%s",
             name ? name + 1 : s->options.model, bytes_format(s->budget.applied, budget),
             bytes_format(s->budget.quota, arena), s->params.ctx_size, s->params.parallel,
             s->children_count + 1, s->http_url[0] ? ", " : "", s->http_url);
    advise_parallel(s);
}

static void on_tick(struct supervisor *s)
{
    uint64_t times, now_ns = clock_now_ns();
    ssize_t n = read(s->timer_fd, &times, sizeof times);
    (void)n;
    if (now_ns - s->tick_ns > LATE_TICK_NS) {
        /* Stopped or starved: for one period no heartbeat counts as late. */
        counter_add(s->process, CTR_SUPERVISOR_tick_overruns, 1);
        s->heartbeats_from_ns = now_ns + s->params.heartbeat_timeout * NS_PER_MS;
    }
    s->tick_ns = now_ns;
    atomic_store_explicit(&s->process->heartbeat_ns, now_ns, memory_order_relaxed);
    atomic_fetch_add_explicit(&s->process->progress, 1, memory_order_relaxed);
    counter_set(s->process, CTR_SUPERVISOR_log_lines_dropped, log_dropped_lines());
    notify_alive(s, now_ns);
    children_reap(s);
    children_tick(s, now_ns);
    oom_tick(s, now_ns);
    budget_tick(s, now_ns);
    files_watch(s);
    if (s->announced)
        auto_poll(s);
}

/* A stop with a changed model is not an orderly end, also if a loader noticed the change last. */
static void judge_model(struct supervisor *s)
{
    files_watch(s);
    if (s->exit_status == 0 && files_changed(s, &s->end_error))
        s->exit_status = error_exit_status(s->end_error.code);
}

/* Ends the loop when the last child has exited. After the deadline all are killed; a process that
 * does not exit even then is left to the kernel. */
static void stop_step(struct supervisor *s)
{
    if (s->phase != PHASE_STOP)
        return;
    uint64_t waited = clock_now_ns() - s->stop_ns;
    if (waited > STOP_ALL_NS)
        s->fast = true;
    if (children_stop(s) || waited > STOP_ALL_NS + REAP_NS) {
        judge_model(s);
        s->over = true;
    }
}

static nfds_t polled(struct supervisor *s, struct pollfd *fds)
{
    nfds_t n = 0;
    fds[n++] = (struct pollfd){.fd = s->signal_fd, .events = POLLIN};
    fds[n++] = (struct pollfd){.fd = s->timer_fd, .events = POLLIN};
    fds[n++] = (struct pollfd){.fd = rpc_server_fd(s->control), .events = POLLIN};
    for (uint32_t i = 0; i < s->children_count; i++) {
        fds[n++] = (struct pollfd){.fd = channel_fd(s->children[i].channel), .events = POLLIN};
        fds[n++] = (struct pollfd){.fd = s->children[i].ready_fd, .events = POLLIN};
    }
    return n;
}

static void on_children(struct supervisor *s, const struct pollfd *fds)
{
    for (uint32_t i = 0; i < s->children_count; i++) {
        struct child_record *c = &s->children[i];
        if (fds[2 * i].revents)
            controls_receive(s, c);
        if (fds[2 * i + 1].revents && c->ready_fd == fds[2 * i + 1].fd)
            children_ready_byte(s, c);
    }
}

void loop_run(struct supervisor *s)
{
    static struct pollfd fds[POLLED_MAX];
    s->phase = PHASE_RUN;
    s->tick_ns = clock_now_ns();
    while (!s->over) {
        children_go(s);
        children_judge(s);
        nfds_t n = polled(s, fds);
        if (poll(fds, n, -1) < 0) {
            if (errno != EINTR)
                log_panic(__FILE__, __LINE__, __func__, "poll: %s", strerror(errno));
            continue;
        }
        if (fds[0].revents)
            on_signals(s);
        if (fds[1].revents)
            on_tick(s);
        on_children(s, fds + 3);
        announce(s);
        if (fds[2].revents)
            control_serve(s);
        control_tick(s, clock_now_ns());
        stop_step(s);
    }
}
