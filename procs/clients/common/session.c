/* SPDX-License-Identifier: Apache-2.0 */
/* Connects to a running engine, or starts a private one and stops it with the client. */
#include "procs/clients/common/session.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/base/bytes.h"
#include "lib/base/clock.h"
#include "lib/json/lookup.h"
#include "lib/tunings/tunings.h"
#include "procs/clients/common/options.h"
#include "procs/clients/common/private_engine.h"

#define START_REPORT_NS    (2 * NS_PER_S) /* a longer start is reported */
#define STOP_LIMIT_NS      (20 * NS_PER_S)
#define POLL_MS            20
#define CONTROL_TIMEOUT_MS 2000
#define STATS_MS           10000           /* nothing depends on them */
#define SILENT_NS          (30 * NS_PER_S) /* of an engine that had answered */
#define LOG_LINES_SHOWN    12
#define LOG_TAIL_BYTES     8192
#define ENGINE_ARGS_MAX    160
#define ENGINE_ARG_BYTES   (PARAM_TEXT_BYTES + 64)

extern char **environ;

volatile sig_atomic_t session_stop;

static void on_signal(int number)
{
    session_stop = number;
}

void session_signals(void)
{
    struct sigaction action = {.sa_handler = on_signal}; /* no SA_RESTART: blocking calls are
                                                          * interrupted */
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGHUP, &action, NULL);
    signal(SIGPIPE, SIG_IGN);
}

/* ---- the engine's command line ---- */

struct engine_args {
    char *argv[ENGINE_ARGS_MAX];
    size_t count;
    bool full;
};

static void add(struct engine_args *a, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static void add(struct engine_args *a, const char *fmt, ...)
{
    char text[PATH_MAX + 64];
    va_list list;
    va_start(list, fmt);
    int n = vsnprintf(text, sizeof text, fmt, list);
    va_end(list);
    char *copy = n >= 0 && (size_t)n < sizeof text ? strdup(text) : NULL;
    if (!copy || a->count + 1 >= ENGINE_ARGS_MAX) {
        free(copy);
        a->full = true;
        return;
    }
    a->argv[a->count++] = copy;
    a->argv[a->count] = NULL;
}

static void add_param(const char *name, const char *value, const char *def, const char *help,
                      void *arg)
{
    (void)help;
    if (strcmp(value, def) != 0)
        add(arg, "--%s=%s", name, value);
}

static void note_param(const char *name, const char *value, const char *def, const char *help,
                       void *arg)
{
    (void)name;
    (void)help;
    if (strcmp(value, def) != 0)
        *(bool *)arg = true;
}

/* Directory of the programs: that of this executable. */
static int programs_dir(char out[PATH_MAX], struct error *error)
{
    ssize_t n = readlink("/proc/self/exe", out, PATH_MAX - 1);
    if (n < 0)
        return error_set_errno(error, ERR_FAILED, errno, "cannot read /proc/self/exe");
    out[n] = 0;
    char *slash = strrchr(out, '/');
    if (slash)
        *slash = 0;
    return 0;
}

static int spawn_engine(struct session *s, const struct session_request *request,
                        struct error *error)
{
    char dir[PATH_MAX];
    if (programs_dir(dir, error) != 0)
        return -1;
    struct engine_args args = {.count = 0};
    add(&args, "%s/sluice-tether", dir);
    add(&args, "%d", (int)getpid());
    add(&args, "%s/sluice-run", dir);
    add(&args, "-m");
    add(&args, "%s", request->model);
    add(&args, "--name");
    add(&args, "%s", s->run);
    params_each(&request->params, add_param, &args);

    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_init(&attributes);
    /* Separate process group: Ctrl-C at the terminal reaches the client only. Default signal
     * actions. */
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGDEF);
    sigset_t all;
    sigfillset(&all);
    posix_spawnattr_setsigdefault(&attributes, &all);
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
    if (s->log_fd >= 0)
        posix_spawn_file_actions_adddup2(&actions, s->log_fd, STDERR_FILENO);
    int result =
        args.full ? E2BIG
                  : posix_spawn(&s->own, args.argv[0], &actions, &attributes, args.argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
    if (result != 0) {
        s->own = 0;
        error_set_errno(error, ERR_FAILED, result, "cannot start %.200s", args.argv[0]);
    }
    for (size_t i = 0; i < args.count; i++)
        free(args.argv[i]);
    return result == 0 ? 0 : -1;
}

/* ---- log of the private engine ---- */

static size_t log_tail(const struct session *s, char *out, size_t cap)
{
    struct stat st;
    out[0] = 0;
    if (s->log_fd < 0 || fstat(s->log_fd, &st) != 0)
        return 0;
    off_t from = st.st_size > (off_t)cap - 1 ? st.st_size - (off_t)cap + 1 : 0;
    ssize_t n = pread(s->log_fd, out, cap - 1, from);
    while (n > 0 && out[n - 1] == '\n')
        n--;
    out[n > 0 ? n : 0] = 0;
    return n > 0 ? (size_t)n : 0;
}

/* The lines before the last one, which is the reason and becomes the error. */
static void log_show(const struct session *s)
{
    char text[LOG_TAIL_BYTES];
    log_tail(s, text, sizeof text);
    char *last = strrchr(text, '\n');
    if (!last)
        return;
    *last = 0;
    size_t lines = 0, at = (size_t)(last - text);
    while (at > 0 && lines < LOG_LINES_SHOWN)
        if (text[--at] == '\n' && ++lines == LOG_LINES_SHOWN)
            at++;
    fprintf(stderr, "last lines of the engine's log:\n%s\n", text + at);
}

/* The last log line, which gives the reason. The prefix with level and process is dropped. */
static void log_reason(const struct session *s, char *out, size_t cap)
{
    char text[LOG_TAIL_BYTES];
    log_tail(s, text, sizeof text);
    const char *line = strrchr(text, '\n');
    line = line ? line + 1 : text;
    json_t *object = *line == '{' ? json_loads(line, 0, NULL) : NULL; /* --log-format json */
    if (object)
        line = lookup_text(object, "text");
    const char *colon = strstr(line, ": ");
    if (colon && strcspn(line, "/'\"") > (size_t)(colon - line))
        line = colon + 2;
    const char *none = s->log_fd < 0 ? "its log above has the reason" : "no log output";
    snprintf(out, cap, "%.*s", (int)cap - 1, *line ? line : none);
    json_decref(object);
}

bool session_alive(struct session *s, struct error *error)
{
    if (s->own == 0)
        return true;
    int status;
    pid_t got = waitpid(s->own, &status, WNOHANG);
    if (got == 0 || (got < 0 && errno == EINTR))
        return true;
    s->own = 0;
    char why[sizeof error->text];
    log_reason(s, why, sizeof why);
    if (got > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 2) {
        error_set(error, ERR_BAD_INPUT, "%s%s", s->log_fd < 0 ? "the engine did not start: " : "",
                  why);
        return false;
    }
    log_show(s);
    if (got > 0 && WIFSIGNALED(status))
        error_set(error, ERR_GONE, "the engine was killed by signal %d (%s)", WTERMSIG(status),
                  strsignal(WTERMSIG(status)));
    else
        error_set(error, ERR_GONE, "the engine exited: %s", why);
    return false;
}

/* ---- finding and waiting ---- */

/* ERR_UNAVAILABLE while the engine reports that it cannot serve requests. */
static int serving(const json_t *status, struct error *error)
{
    const char *why = lookup_text(status, "failing");
    return *why ? error_set(error, ERR_UNAVAILABLE, "%s", why) : 0;
}

/* While a call has no connection to compute: the supervisor has the reason. */
static int watch_engine(void *arg, struct error *error)
{
    struct session *s = arg;
    json_t *status = NULL;
    struct error ignored;
    if (rpc_call(s->control, "status", NULL, CONTROL_TIMEOUT_MS, &status, &ignored) != 0)
        return 0;
    int result = serving(status, error);
    json_decref(status);
    return result;
}

/* 1: the engine reports that it accepts requests; 0: not yet, with ERR_NONE if it reports that; -1:
 * it cannot. */
static int engine_ready(struct session *s, char *state, size_t cap, struct error *error)
{
    json_t *reply = NULL;
    struct error ignored;
    *error = (struct error){.code = ERR_NONE};
    if (!s->control && (s->control = control_client_open(s->run, &ignored)))
        rpc_client_set_stop(s->control, &session_stop);
    if (!s->control)
        return error_set(error, ERR_GONE, "there is no socket yet"), 0;
    if (control_call(s->control, "status", NULL, &reply, error) != 0)
        return error->code == ERR_TIMEOUT ? -1 : 0; /* the engine runs, but does not answer */
    snprintf(state, cap, "%s", lookup_text(reply, "state"));
    int result = serving(reply, error) != 0 ? -1 : strcmp(state, "ready") == 0;
    json_decref(reply);
    return result;
}

static void report_start(const struct session_request *request, uint64_t started,
                         uint64_t *reported_ns, const char *state)
{
    uint64_t now = clock_now_ns();
    if (now - started < START_REPORT_NS || now - *reported_ns < START_REPORT_NS)
        return;
    *reported_ns = now;
    bool detail = *state && strcmp(state, "starting") != 0;
    fprintf(stderr, "sluice %s: starting the engine, %.0f s%s%s\n", request->command,
            (double)(now - started) / NS_PER_S, detail ? ": " : "", detail ? state : "");
}

bool session_gone(const struct session *s)
{
    char dir[ENDPOINT_BYTES];
    struct error ignored;
    return s->own == 0 && run_dir_path(s->run, dir, &ignored) == 0 &&
           run_dir_state(dir) == RUN_GONE;
}

static int wait_ready(struct session *s, const struct session_request *request, struct error *error)
{
    uint64_t started = clock_now_ns(), reported_ns = 0;
    uint64_t answered_ns = s->control ? started : 0; /* find_engine had an answer; 0: never */
    char state[64] = "";
    int ready;
    while ((ready = engine_ready(s, state, sizeof state, error)) == 0) {
        uint64_t now_ns = clock_now_ns();
        if (error->code == ERR_NONE)
            answered_ns = now_ns;
        if (session_stop)
            return error_set(error, ERR_CANCELLED, "interrupted during engine startup");
        if (!session_alive(s, error))
            return -1;
        if (session_gone(s))
            return error_set(error, ERR_GONE, "engine '%s' exited during startup", s->run);
        if (answered_ns && now_ns - answered_ns >= SILENT_NS)
            return error_set(error, ERR_TIMEOUT,
                             "engine '%s' is running, but accepts no connection any more", s->run);
        if (strcmp(state, "draining") == 0 || strcmp(state, "stopping") == 0)
            return error_set(error, ERR_BUSY, "engine '%s' is %s and accepts no requests", s->run,
                             state);
        report_start(request, started, &reported_ns, state);
        poll(NULL, 0, POLL_MS);
    }
    s->engine = ready > 0 ? engine_client_open(s->run, error) : NULL;
    if (!s->engine)
        return -1;
    rpc_client_set_stop(s->engine, &session_stop);
    rpc_client_set_watch(s->engine, watch_engine, s);
    rpc_client_set_stop(s->control, NULL); /* statistics are also read after Ctrl-C */
    return 0;
}

static bool same_file(const char *a, const char *b)
{
    struct stat x, y;
    return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

/* The engine could not be reached for a reason of this process: whether it runs is not known. */
static bool is_own_failure(const struct error *error, bool opened)
{
    return error->code == ERR_NO_MEMORY || (!opened && error->code != ERR_GONE);
}

/* What a running engine serves. */
struct served {
    char model[PATH_MAX];
    char origin[PARAM_TEXT_BYTES]; /* of a model on a server its URL; else "" */
};

/* Connects to a running engine of that name, with a control client. 0: there is none; -1: that is
 * not known. */
static int find_engine(struct session *s, const char *run, struct served *served,
                       struct error *error)
{
    s->control = control_client_open(run, error);
    bool opened = s->control != NULL;
    json_t *reply = NULL;
    if (opened)
        rpc_client_set_stop(s->control, &session_stop); /* Ctrl-C interrupts this wait, too */
    if (!opened || control_call(s->control, "status", NULL, &reply, error) != 0) {
        rpc_client_close(s->control);
        s->control = NULL;
        return is_own_failure(error, opened) ? -1 : 0;
    }
    snprintf(served->model, sizeof served->model, "%s", lookup_text(reply, "model"));
    snprintf(served->origin, sizeof served->origin, "%s", lookup_text(reply, "origin"));
    json_decref(reply);
    snprintf(s->run, sizeof s->run, "%s", run);
    return 1;
}

static bool serves(const struct served *served, const char *model)
{
    return session_on_server(model) ? strcmp(model, served->origin) == 0
                                    : same_file(model, served->model);
}

/* 1: use a running engine; 0: start one; -1: neither is possible. */
static int choose(struct session *s, const struct session_request *request, struct error *error)
{
    bool params_given = false;
    params_each(&request->params, note_param, &params_given);
    char dir[ENDPOINT_BYTES];
    struct served served = {.model = ""};
    const char *run = request->run ? request->run : RUN_NAME_DEFAULT;
    if (run_dir_path(run, dir, error) != 0)
        return -1;
    if (!request->run && request->model && params_given)
        return 0;
    int found = find_engine(s, run, &served, error);
    if (found < 0)
        return -1;
    if (!found) {
        if (request->model)
            return 0;
        return error_set(
            error, request->run ? ERR_GONE : ERR_BAD_INPUT,
            "no engine '%s' is running; specify a model with -m FILE, or start one with "
            "'sluice run -m FILE'",
            run);
    }
    bool same = !request->model || serves(&served, request->model);
    if (same && !params_given)
        return 1;
    rpc_client_close(s->control);
    s->control = NULL;
    if (!request->run && request->model)
        return 0;
    return error_set(error, ERR_BAD_INPUT,
                     same ? "engine '%.32s' is already running; engine options cannot change it. "
                            "Omit them, or stop it with 'sluice ctl stop'"
                          : "engine '%.32s' serves another model (%.200s)",
                     run, served.origin[0] ? served.origin : served.model);
}

bool session_on_server(const char *model)
{
    return strstr(model, "://") != NULL;
}

int session_need_file(const char *model, const char *what, struct error *error)
{
    return session_on_server(model)
               ? error_set(error, ERR_BAD_INPUT, "%.200s: %s, but this is a server", model, what)
               : 0;
}

/* ---- tuning ---- */

static void print_tuning(void *arg, const char *line)
{
    const struct session_request *request = arg;
    fprintf(stderr, "sluice %s: %s\n", request->command, line);
}

int session_tune(struct session_request *request, bool quiet, struct error *error)
{
    struct params *p = &request->params;
    if (!params_close_choice(p) || !request->model || session_on_server(request->model))
        return 0;
    struct tuning *t = malloc(sizeof *t);
    if (!t)
        return error_set(error, ERR_NO_MEMORY, "out of memory (tuning)");
    struct tuning_start start = {.command = request->command,
                                 .model = request->model,
                                 .max_loss = p->max_loss,
                                 .budget = p->budget,
                                 .ask = isatty(STDIN_FILENO) && isatty(STDERR_FILENO),
                                 .say = quiet ? NULL : print_tuning,
                                 .arg = request};
    int status = tuning_offer(&start, t, error);
    /* The engine finds the same one, and knows that nobody has named its preset: where it cannot
     * run, another does. Without one, what is to be said of it was said here. */
    p->no_tune = status <= 0;
    free(t);
    return status < 0 ? -1 : 0;
}

int session_open(struct session *s, const struct session_request *request, struct error *error)
{
    memset(s, 0, sizeof *s);
    s->log_fd = -1;
    s->command = request->command;
    int running = choose(s, request, error);
    if (running < 0)
        return -1;
    if (!running) {
        /* Check obvious errors before processes are started. */
        if (!session_on_server(request->model) && access(request->model, R_OK) != 0)
            return error_set_errno(error, ERR_BAD_INPUT, errno, "cannot read %.200s",
                                   request->model);
        option_warn_budget(request->command, request->params.budget);
        if (request->run)
            snprintf(s->run, sizeof s->run, "%s", request->run);
        else
            snprintf(s->run, sizeof s->run, "own-%d", (int)getpid());
        private_instances_sweep();
        if (!request->verbose)
            s->log_fd = open("/tmp", O_TMPFILE | O_RDWR | O_APPEND | O_CLOEXEC, 0600);
        if (spawn_engine(s, request, error) != 0) {
            session_close(s);
            return -1;
        }
    }
    if (wait_ready(s, request, error) != 0) {
        session_close(s);
        return -1;
    }
    return 0;
}

void session_close(struct session *s)
{
    rpc_client_close(s->engine);
    rpc_client_close(s->control);
    s->engine = s->control = NULL;
    if (s->own > 0) {
        kill(s->own, SIGTERM);
        uint64_t limit = clock_now_ns() + STOP_LIMIT_NS;
        int status;
        while (waitpid(s->own, &status, WNOHANG) == 0) {
            if (clock_now_ns() > limit) {
                kill(s->own, SIGKILL); /* its children exit when their lifeline closes */
                waitpid(s->own, &status, 0);
                break;
            }
            poll(NULL, 0, POLL_MS);
        }
        s->own = 0;
    }
    private_instance_remove(s->run);
    if (s->log_fd >= 0)
        close(s->log_fd);
    s->log_fd = -1;
}

json_t *session_stats(struct session *s)
{
    json_t *reply = NULL;
    struct error ignored;
    if (!s->control || rpc_call(s->control, "stats", NULL, STATS_MS, &reply, &ignored) != 0)
        return NULL;
    return reply;
}
