/* SPDX-License-Identifier: Apache-2.0 */
/* Starts a child: takes its command line and descriptors, attaches the segments, and keeps
 * heartbeat and lifeline. */
#include "procs/engine/child/child.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/assert.h"
#include "lib/base/clock.h"
#include "lib/base/timeslice.h"
#include "lib/policy/presets/loss.h"
#include "procs/engine/child/confine.h"
#include "procs/engine/child/run_knobs.h"
#include "shm/segment/inherited_fds.h"

#define LIFELINE_STACK_BYTES (64 * KIB)
#define EXIT_USAGE           2
#define MEMORY_PROBE_BYTES   (16 * KIB)
#define MEMORY_WAIT_NS       (5 * NS_PER_S)

_Static_assert(DIRECTORY_LOADERS_MAX == MSG_SHARDS_MAX,
               "a loader of the directory is a shard of a LOAD");

static const struct {
    enum service service;
    enum msg_role role;
} roles[] = {{SERVICE_CACHE, ROLE_CACHE},         {SERVICE_LOADER, ROLE_LOADER},
             {SERVICE_PREDICTOR, ROLE_PREDICTOR}, {SERVICE_COMPUTE, ROLE_COMPUTE},
             {SERVICE_RECORDER, ROLE_RECORDER},   {SERVICE_GATEWAY, ROLE_GATEWAY}};

static enum msg_role role_of(enum service service)
{
    for (size_t i = 0; i < ARRAY_LEN(roles); i++)
        if (roles[i].service == service)
            return roles[i].role;
    sl_panic("service %d is not a child", (int)service);
}

/* ---- command line and descriptors ----------------------------------------------------------- */

static bool take_number(const char *text, uint64_t max, uint64_t *value)
{
    char *end;
    errno = 0;
    *value = strtoull(text, &end, 10);
    return text[0] >= '0' && text[0] <= '9' && *end == 0 && errno == 0 && *value <= max;
}

static bool take_args(struct child *child, int argc, char **argv)
{
    uint64_t number, incarnation, boot;
    if (argc != 7 || strcmp(argv[1], "--number") != 0 || strcmp(argv[3], "--incarnation") != 0 ||
        strcmp(argv[5], "--boot") != 0)
        return false;
    uint64_t max = child->service == SERVICE_LOADER ? SERVICE_LOADERS_MAX - 1 : 0;
    if (!take_number(argv[2], max, &number) || !take_number(argv[4], UINT32_MAX, &incarnation) ||
        !take_number(argv[6], UINT64_MAX, &boot) || incarnation == 0 || boot == 0)
        return false;
    child->number = (uint32_t)number;
    child->incarnation = (uint32_t)incarnation;
    child->boot = boot;
    return true;
}

/* A process that was not started by the supervisor has other descriptors, or none, at these
 * numbers. */
static bool inherited(enum service service)
{
    struct stat st;
    if (fstat(INHERITED_LIFELINE, &st) != 0 || !S_ISFIFO(st.st_mode))
        return false;
    if (fstat(INHERITED_READY, &st) != 0 || !S_ISFIFO(st.st_mode))
        return false;
    for (int fd = INHERITED_LIFELINE; fd < INHERITED__END; fd++) {
        if (fd >= INHERITED_SEGMENTS &&
            !inherits_segment(service, (enum segment_kind)(fd - INHERITED_SEGMENTS)))
            continue;
        if (fcntl(fd, F_GETFD) < 0 || fcntl(fd, F_SETFD, FD_CLOEXEC) < 0)
            return false;
    }
    return true;
}

/* ---- lifeline ------------------------------------------------------------------------------- */

/* A separate thread, so that a child that computes or waits in the kernel still exits when the
 * supervisor does. It only reads the pipe. */
static void *lifeline_main(void *unused)
{
    (void)unused;
    prctl(PR_SET_NAME, "lifeline");
    struct pollfd lifeline = {.fd = INHERITED_LIFELINE, .events = POLLIN};
    for (;;) {
        char byte;
        if (poll(&lifeline, 1, -1) < 0 && errno != EINTR)
            _exit(1);
        if ((lifeline.revents & POLLIN) && read(INHERITED_LIFELINE, &byte, 1) > 0)
            continue; /* no process writes to it; bytes are not EOF */
        if (lifeline.revents)
            _exit(1);
    }
}

static void start_lifeline(void)
{
    pthread_attr_t attr;
    pthread_t thread;
    sigset_t all, before;
    size_t stack = LIFELINE_STACK_BYTES;
    if (stack < (size_t)PTHREAD_STACK_MIN)
        stack = (size_t)PTHREAD_STACK_MIN;
    sigfillset(&all);
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, stack);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* signals go to the main thread */
    int rc = pthread_create(&thread, &attr, lifeline_main, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attr);
    if (rc != 0)
        log_fatal(1, "cannot start the lifeline thread: %s", strerror(rc));
}

static void die_with_parent(void)
{
    pid_t parent = getppid();
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) /* it exited before the call above: no signal will arrive */
        _exit(1);
}

/* ---- segments ------------------------------------------------------------------------------- */

static void must(int rc, const struct error *error)
{
    if (rc != 0)
        log_fatal(error_exit_status(error->code), "%s", error->text);
}

static int segment_fd(enum segment_kind kind)
{
    return INHERITED_SEGMENTS + (int)kind;
}

static void keep_exit_message(const char *text, void *arg)
{
    struct process *process = arg;
    size_t n = strnlen(text, PROCS_MESSAGE_BYTES - 1);
    memcpy(process->exit_message, text, n);
    process->exit_message[n] = 0;
}

static enum log_level log_level_now(const struct child *child)
{
    uint32_t set = atomic_load_explicit(&child->procs.head->log_level, memory_order_relaxed);
    enum log_level level = LOG_LEVEL_INFO;
    if (set > 0 && set - 1 <= LOG_LEVEL_NONE)
        return (enum log_level)(set - 1);
    log_level_parse(child->params->log_level, &level);
    return level;
}

static void attach_procs(struct child *child)
{
    struct error error;
    must(procs_attach(segment_fd(SEGMENT_PROCS), true, child->boot, &child->procs, &error), &error);
    child->process = &child->procs.head->process[procs_index_of(child->service, child->number)];
    child->params = &child->procs.head->params;
    enum log_format format;
    if (log_format_parse(child->params->log_format, &format))
        log_set_format(format);
    char name[32];
    if (child->service == SERVICE_LOADER)
        snprintf(name, sizeof name, "loader.%u", child->number);
    else
        snprintf(name, sizeof name, "%s", service_name(child->service));
    log_init(name, log_level_now(child));
    child->process->exit_message[0] = 0;
    log_set_exit_message_hook(keep_exit_message, child->process);
    child_wait(child, WAIT_START);
    child_heartbeat(child);
    size_t n = strnlen(child->procs.head->run_dir, sizeof child->procs.head->run_dir);
    if (n == 0 || n >= sizeof child->run_dir)
        log_fatal(1, "the process table contains no run directory");
    memcpy(child->run_dir, child->procs.head->run_dir, n);
}

static void start_log_thread(void)
{
    int rc = log_start_thread();
    if (rc != 0)
        log_fatal(1, "cannot start the log thread: %s", strerror(rc));
}

static void attach_model(struct child *child)
{
    struct error error;
    must(segment_attach(segment_fd(SEGMENT_MODEL), SEGMENT_MODEL, false, child->boot,
                        &child->model_segment, &error),
         &error);
    const struct model_index *model =
        (const void *)((const char *)child->model_segment.base + SEGMENT_MODEL_OFFSET);
    uint64_t bytes = child->model_segment.bytes - SEGMENT_MODEL_OFFSET;
    /* The segment is whole pages; the blob contains its own size. */
    if (bytes < sizeof *model || model->bytes > bytes)
        log_fatal(1, "model segment: the index does not fit its %llu bytes",
                  (unsigned long long)bytes);
    must(model_index_check(model, model->bytes, &error), &error);
    child->model = model;
    must(plan_after_index(model, bytes, &child->plan, &error), &error);
}

int child_knobs(const struct child *child, uint32_t preset, struct knobs *knobs,
                struct precision_policy *policy, struct error *error)
{
    if (run_knobs(child->params, preset, child->plan, knobs, error) != 0)
        return -1;
    return preset_servable(knobs, child->plan, child->model, policy, error);
}

static void attach_rest(struct child *child)
{
    struct error error;
    enum service s = child->service;
    must(directory_attach(segment_fd(SEGMENT_DIRECTORY), true, child->boot, child->model,
                          &child->directory, &error),
         &error);
    must(segment_attach(segment_fd(SEGMENT_ARENA), SEGMENT_ARENA,
                        s == SERVICE_LOADER || s == SERVICE_CACHE, child->boot, &child->arena,
                        &error),
         &error);
    /* The predictor writes its waiter flag into the header of gates. */
    must(gates_attach(segment_fd(SEGMENT_GATES), s == SERVICE_COMPUTE || s == SERVICE_PREDICTOR,
                      child->boot, &child->gates, &error),
         &error);
    must(access_log_attach(segment_fd(SEGMENT_ACCESS_LOG), s == SERVICE_COMPUTE, child->boot,
                           &child->access_log, &error),
         &error);
    if (s == SERVICE_COMPUTE)
        must(kv_attach(segment_fd(SEGMENT_KV), true, child->boot, &child->kv, &error), &error);
}

static void open_supervisor(struct child *child)
{
    struct error error;
    char path[ENDPOINT_BYTES];
    must(endpoint_path(child->run_dir, ENDPOINT_SUPERVISOR_CHILD,
                       procs_index_of(child->service, child->number), path, &error),
         &error);
    child->supervisor = channel_dial(path, role_of(child->service), child->incarnation, &error);
    must(child->supervisor ? 0 : -1, &error);
}

/* ---- the runtime ---------------------------------------------------------------------------- */

/* Compute waits for these processes: a short time slice lets them preempt it when they are woken.
 * Older kernels ignore it; there only compute's niceness has that effect. */
static void set_short_timeslice(enum service service)
{
    if (service == SERVICE_LOADER || service == SERVICE_CACHE || service == SERVICE_PREDICTOR)
        timeslice_set(TIMESLICE_SHORT_NS);
}

void child_start(struct child *child, enum service service, int argc, char **argv)
{
    memset(child, 0, sizeof *child);
    child->service = service;
    log_init(service_name(service), LOG_LEVEL_INFO);
    if (!take_args(child, argc, argv) || !inherited(service))
        log_fatal(EXIT_USAGE, "this program is part of the engine and is started by `sluice run`");
    signal(SIGPIPE, SIG_IGN);
    signal(SIGHUP, SIG_IGN);
    signal(SIGINT, SIG_IGN);
    die_with_parent();
    set_short_timeslice(service);
    if (sysconf(_SC_PAGESIZE) != PAGE_BYTES)
        log_fatal(1, "unsupported page size; sluice needs pages of %u bytes", PAGE_BYTES);
    attach_procs(child);
    if (inherits_segment(service, SEGMENT_MODEL))
        attach_model(child);
    confine_files(child); /* before there is a second thread, which would keep its rights */
    start_lifeline();
    start_log_thread();
    if (inherits_segment(service, SEGMENT_DIRECTORY))
        attach_rest(child);
    open_supervisor(child);
    child->idle_since_ns = clock_now_ns();
}

void child_ready(struct child *child)
{
    confine_calls(child);
    child_heartbeat(child);
    child->idle_since_ns = clock_now_ns();
    child->idle_progress = atomic_load_explicit(&child->process->progress, memory_order_relaxed);
    ssize_t n;
    do {
        n = write(INHERITED_READY, "r", 1);
    } while (n < 0 && errno == EINTR);
    if (n != 1)
        log_fatal(1, "cannot report readiness to the supervisor: %s", strerror(errno));
    close(INHERITED_READY);
}

int child_fd(const struct child *child)
{
    return channel_fd(child->supervisor);
}

void child_heartbeat(struct child *child)
{
    atomic_store_explicit(&child->process->heartbeat_ns, clock_now_ns(), memory_order_relaxed);
}

/* A second without work counts as progress, but only while the process waits for work; while it
 * waits for a device or an expert, only completed work counts. */
static void count_idle_second(struct child *child, uint64_t now)
{
    uint64_t progress = atomic_load_explicit(&child->process->progress, memory_order_relaxed);
    uint32_t wait = atomic_load_explicit(&child->process->wait, memory_order_relaxed);
    if (progress != child->idle_progress || (wait != WAIT_IDLE && wait != WAIT_GATES)) {
        child->idle_progress = progress;
        child->idle_since_ns = now;
    } else if (now - child->idle_since_ns >= NS_PER_S) {
        child_progress(child);
        child->idle_progress = progress + 1;
        child->idle_since_ns = now;
    }
}

static void count_dropped_lines(struct child *child)
{
    static const unsigned counter[SERVICE__COUNT] = {
#define SERVICE(id, ...) [SERVICE_##id] = CTR_##id##_log_lines_dropped,
#include "config/services.tbl.h"
    };
    counter_set(child->process, counter[child->service], log_dropped_lines());
}

/* Injected: a call that no sandbox permits. */
static void call_forbidden(struct child *child)
{
    struct procs_head *head = child->procs.head;
    uint32_t expected = INJECT_FORBIDDEN_CALL;
    if (atomic_load(&head->injection) == expected &&
        atomic_load(&head->injection_arg) == (uint32_t)getpid() &&
        atomic_compare_exchange_strong(&head->injection, &expected, INJECT_NONE))
        ptrace(PTRACE_TRACEME, 0, NULL, NULL);
}

/* Without memory a process can neither answer nor connect, and its clients wait. Its successor has
 * memory again. */
static void check_memory(struct child *child, uint64_t now)
{
    void *probe = malloc(MEMORY_PROBE_BYTES);
    __asm__ volatile("" : : "r"(probe)); /* else the compiler removes the pair of calls */
    free(probe);
    if (probe)
        child->no_memory_since_ns = 0;
    else if (child->no_memory_since_ns == 0)
        child->no_memory_since_ns = now;
    else if (now - child->no_memory_since_ns > MEMORY_WAIT_NS)
        log_fatal(error_exit_status(ERR_NO_MEMORY), "out of memory for %d s",
                  (int)(MEMORY_WAIT_NS / NS_PER_S));
}

void child_tick(struct child *child)
{
    uint64_t now = clock_now_ns();
    check_memory(child, now);
    call_forbidden(child);
    count_dropped_lines(child);
    log_set_level(log_level_now(child));
    atomic_store_explicit(&child->process->heartbeat_ns, now, memory_order_relaxed);
    channel_tick(child->supervisor, now);
    count_idle_second(child, now);
}

bool child_control(struct child *child, struct msg_control *control)
{
    _Alignas(8) char message[MSG_BYTES_MAX];
    while (channel_receive(child->supervisor, message) > 0) {
        struct msg_head head;
        memcpy(&head, message, sizeof head);
        if (head.type != MSG_CONTROL)
            continue;
        memcpy(control, message, sizeof *control);
        if (control->kind == CONTROL_STOP) {
            child->stop = true;
            child_wait(child, WAIT_STOPPING);
        }
        return true;
    }
    return false;
}

void child_ack(struct child *child, const struct msg_control *control)
{
    struct msg_ack ack = {.value = control->value, .kind = control->kind, .epoch = control->epoch};
    channel_send(child->supervisor, &ack, MSG_ACK); /* if it is lost, the control is repeated */
}

void child_exit(struct child *child)
{
    child_wait(child, WAIT_STOPPING);
    child_heartbeat(child);
    log_flush(LOG_FLUSH_MS);
    channel_close(child->supervisor);
    /* exit(3) would run destructors of libraries while their threads run */
    _exit(0);
}

void child_injection_hit(struct child *child, enum injection point)
{
    struct procs_head *head = child->procs.head;
    uint32_t pass = atomic_load_explicit(&head->injection_arg, memory_order_relaxed);
    while (pass > 0)
        if (atomic_compare_exchange_weak(&head->injection_arg, &pass, pass - 1))
            return;
    uint32_t expected = (uint32_t)point;
    if (atomic_compare_exchange_strong(&head->injection, &expected, INJECT_NONE))
        raise(SIGSTOP);
}
