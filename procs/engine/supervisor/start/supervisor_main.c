/* SPDX-License-Identifier: Apache-2.0 */
/* sluice-run: the supervisor, the first process of an engine and the only one that users start.
 *
 * It locks the run directory, runs inspect on the model, divides the budget, creates the shared
 * memory, spawns the children in the order of config/services.tbl.h, watches and restarts them,
 * keeps the ledger, and serves the control endpoint.
 *
 * Shared memory:  creates every segment; writes the constants before any child exists, afterwards
 *                 quota, throttles and draining in the directory's header, its columns of the
 *                 process table, and the pin bits of exited processes (directory_sweep). It never
 *                 reads weights and never waits on shared memory.
 * Messages:       CONTROL to each child, ACK back (ipc/channel/messages.tbl.h); JSON from clients.
 * Crash of others: loader: the cache cleans up, then a successor starts; compute, predictor: pins
 *                 are cleared, the successor starts at once; cache: a successor after it was
 *                 reaped; inspect: the start fails with its reason.
 * Its crash:      the lifelines close, so that every child exits; the segments are unlinked and
 *                 freed with their last mapping; the run lock is free when the last child has
 *                 exited. Only the text in progress is lost.
 * Trust:          the command line and control requests are untrusted; the model's index is checked
 *                 after inspect wrote it; children's rows are read as numbers only.
 * Known limits:   one engine per run directory; the cgroup limit only where a cgroup can be
 *                 created. */
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "lib/base/bytes.h"
#include "lib/base/clock.h"
#include "lib/base/log.h"
#include "lib/kernels/kernels.h"
#include "lib/sandbox/sandbox.h"
#include "procs/engine/supervisor/auto.h"
#include "procs/engine/supervisor/budget/budget.h"
#include "procs/engine/supervisor/children/children.h"
#include "procs/engine/supervisor/control/control.h"
#include "procs/engine/supervisor/gpu/gpu.h"
#include "procs/engine/supervisor/start/start.h"
#include "procs/engine/supervisor/supervisor.h"

#ifndef PR_THP_DISABLE_EXCEPT_ADVISED
#define PR_THP_DISABLE_EXCEPT_ADVISED (1 << 1)
#endif

static struct supervisor the_supervisor;

static void init(struct supervisor *s)
{
    s->magic = SUPERVISOR_MAGIC;
    s->lock_fd = s->run_dir_fd = s->http_fd = s->model_fd = s->signal_fd = s->timer_fd = -1;
    s->lifeline[0] = s->lifeline[1] = -1;
    for (int kind = 0; kind < SEGMENT__COUNT; kind++)
        s->segments[kind].fd = s->segments_readonly[kind] = -1;
    s->started_ns = clock_now_ns();
    const char *test = getenv("SLUICE_TEST");
    s->test = test && strcmp(test, "1") == 0;
}

/* Children inherit it. A debugger needs none of it. */
static void give_up_privileges(const struct supervisor *s)
{
    if (strcmp(s->params.sandbox, "off") != 0)
        prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
}

static enum sandbox_profile own_profile(struct supervisor *s)
{
    if (storage_uses_tcp(s))
        return s->gpus.count > 0 ? SANDBOX_SUPERVISOR_GPU_NET : SANDBOX_SUPERVISOR_NET;
    return s->gpus.count > 0 ? SANDBOX_SUPERVISOR_GPU : SANDBOX_SUPERVISOR;
}

/* Once everything is open and no child runs yet. Children inherit it, and add their own. */
static int confine_self(struct supervisor *s, struct error *error)
{
    uint32_t parts = prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1 ? SANDBOX_NO_NEW_PRIVS : 0;
    int rc = 0;
    if (strcmp(s->params.sandbox, "off") != 0)
        rc = sandbox_calls(own_profile(s), NULL, NULL, &parts, error);
    atomic_store(&s->process->sandbox, parts);
    return rc;
}

/* Limits of this process that children inherit: small stacks, one malloc arena, no transparent huge
 * pages that the ledger does not count, no core files of gigabytes of shared memory. */
static void limit_self(void)
{
    struct rlimit limit;
    pthread_attr_t attributes;
    mallopt(M_ARENA_MAX, 1);
    mallopt(M_TRIM_THRESHOLD, 128 * 1024);
    /* The arena requests huge pages explicitly (shm/segment/huge.c); others can be disabled
     * separately since Linux 6.18. */
    if (prctl(PR_SET_THP_DISABLE, 1, PR_THP_DISABLE_EXCEPT_ADVISED, 0, 0) != 0)
        prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
    if (getrlimit(RLIMIT_STACK, &limit) == 0) {
        limit.rlim_cur = THREAD_STACK_BYTES;
        setrlimit(RLIMIT_STACK, &limit);
    }
    setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, THREAD_STACK_BYTES);
    pthread_setattr_default_np(&attributes);
    pthread_attr_destroy(&attributes);
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
        limit.rlim_cur = limit.rlim_max < 4096 ? limit.rlim_max : 4096;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
}

/* Of the supervisor: those below FD_MIN stay free for children, and its own with one loader. What a
 * start needs beyond (loaders, copies of the model) fails later, with the same advice. */
#define DESCRIPTORS_NEEDED (FD_MIN + 32)

static int check_descriptors(struct error *error)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= DESCRIPTORS_NEEDED)
        return 0;
    return error_set(error, ERR_FAILED,
                     "the limit of open files is %llu, and the engine needs at least %d: raise it "
                     "(ulimit -n)",
                     (unsigned long long)limit.rlim_cur, DESCRIPTORS_NEEDED);
}

static int lifeline_make(struct supervisor *s, struct error *error)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0)
        return error_set_errno(error, ERR_FAILED, errno, "cannot create the lifeline");
    s->lifeline[0] = fd_high(ends[0]);
    s->lifeline[1] = fd_high(ends[1]);
    return s->lifeline[0] < 0 || s->lifeline[1] < 0
               ? error_set_errno(error, ERR_FAILED, errno, "cannot move a descriptor")
               : 0;
}

static int start(struct supervisor *s, struct error *error)
{
    enum log_level level;
    if (log_level_parse(s->params.log_level, &level))
        log_init("run", level);
    enum log_format format;
    if (log_format_parse(s->params.log_format, &format) && !s->options.print_memory)
        log_set_format(format);
    if (!s->options.print_memory && log_start_thread() != 0)
        return error_set(error, ERR_NO_MEMORY, "cannot start the log thread");
    if (sysconf(_SC_PAGESIZE) != PAGE_BYTES)
        return error_set(error, ERR_FAILED,
                         "this kernel has pages of %ld bytes; sluice needs pages of %u",
                         sysconf(_SC_PAGESIZE), PAGE_BYTES);
    if (check_descriptors(error) != 0 || spawn_programs_dir(s, error) != 0)
        return -1;
    if (gpu_find(s, error) != 0) /* before anything is started */
        return -1;
    if (prefix_dir_make(s, error) != 0)
        return -1;
    if (run_dir_take(s, error) != 0) /* before anything listens or is created */
        return -1;
    if (loop_open(s, error) != 0) /* signals, before inspect runs */
        return -1;
    if (http_listen(s, error) != 0) /* report invalid settings before the model is read */
        return -1;
    if (origin_take(s, error) != 0) /* what it writes is charged to no cgroup of ours */
        return -1;
    if (cgroup_enter(s, error) != 0) /* before memory is touched that is to be charged to it */
        return -1;
    oom_open(s); /* reads the counters of that cgroup */
    if (model_take(s, error) != 0 || gpu_lay_out(s, error) != 0)
        return -1;
    if (s->options.print_memory)
        return memory_estimate_print(s, error);
    if (budget_start(s, error) != 0 || segments_check_space(s, error) != 0) /* needs the model */
        return -1;
    if (model_check_start(s, budget_share_now(s), error) != 0)
        return -1;
    auto_start(s); /* needs the budget; determines the initial preset */
    if (segments_make(s, error) != 0 || lifeline_make(s, error) != 0)
        return -1;
    if (prefix_dir_publish(s, error) != 0)
        return -1;
    warm_begin(s);
    if (children_make(s, error) != 0) /* their listeners; needs the process table */
        return -1;
    budget_publish(s);
    return control_open(s, error) != 0 ? -1 : confine_self(s, error);
}

/* The reason of a failed start must not be lost, also while writes to storage are slow. */
#define LAST_LINE_MS 3000

/* The last line: clients that start an engine show it as the reason. */
static int report(const struct error *error, int status)
{
    if (error->text[0])
        log_line(LOG_LEVEL_ERROR, "error: %s", error->text);
    return status;
}

/* Sends pending replies, removes socket files and the cgroup. Connections are not closed one by
 * one: closing sockets of NNG while its threads use them can block forever, and the exit of the
 * process closes them. For the same reason exit(3), which runs destructors of libraries under those
 * threads, is not called. */
static _Noreturn void finish(struct supervisor *s, const struct error *error, int status)
{
    control_finish(s);
    segments_drop(s);
    run_dir_clear(s);
    if (s->options.print_memory)
        run_dir_remove(s);
    cgroup_leave(s);
    report(error, status);
    log_flush(status == 0 ? LOG_FLUSH_MS : LAST_LINE_MS);
    _exit(status);
}

int main(int argc, char **argv)
{
    struct supervisor *s = &the_supervisor;
    struct error error = {0};
    log_init("run", LOG_LEVEL_INFO);
    init(s);
    if (options_take(s, argc, argv, &error) != 0)
        return report(&error, error_exit_status(error.code));
    if (tuned_take(s, &error) != 0)
        return report(&error, error_exit_status(error.code));
    limit_self();
    give_up_privileges(s);
    notify_take(s);
    /* Not by the error, which also has what a start has overcome. */
    if (start(s, &error) != 0) {
        if (error.code != ERR_CANCELLED)
            finish(s, &error, error_exit_status(error.code));
        log_info("stopping during the start: %s", error.text);
        finish(s, &s->end_error, 0);
    }
    if (s->options.print_memory)
        finish(s, &s->end_error, 0);
    loop_run(s);
    warm_end(s);
    finish(s, &s->end_error, s->exit_status);
}
