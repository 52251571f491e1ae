/* SPDX-License-Identifier: Apache-2.0 */
/* Starts the processes of an engine. It uses posix_spawn only, because NNG's threads forbid a bare
 * fork, and always the main thread, because the children's parent-death signal follows the thread
 * that spawned them.
 *
 * A child gets /dev/null, our stderr twice, the descriptors of shm/segment/inherited_fds.h and
 * nothing else. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "lib/base/assert.h"
#include "lib/sandbox/sandbox.h"
#include "procs/engine/supervisor/children/children.h"
#include "procs/engine/supervisor/start/start.h"
#include "procs/engine/supervisor/supervisor.h"

#define INSPECT_DATA_BYTES (512 * MIB)
#define INSPECT_CPU_S      30
#define INSPECT_SEGMENT_FD 3
#define INSPECT_MODEL_FD   4
#define ARGUMENT_BYTES     32
#define ENVIRONMENT_FIXED  3

extern char **environ;

int spawn_programs_dir(struct supervisor *s, struct error *error)
{
    ssize_t n = readlink("/proc/self/exe", s->programs, sizeof s->programs - 1);
    if (n < 0)
        return error_set_errno(error, ERR_FAILED, errno, "cannot read /proc/self/exe");
    s->programs[n] = 0;
    char *slash = strrchr(s->programs, '/');
    sl_assert(slash != NULL);
    *slash = 0;
    return 0;
}

/* Which children may write a segment. compute writes gates, access log and kv; the predictor writes
 * its waiter flag into gates; every child writes pins, entry words or futex waiters in the
 * directory, and its own row in procs. */
bool child_may_write(enum service service, enum segment_kind kind)
{
    switch (kind) {
    case SEGMENT_MODEL: return false;
    case SEGMENT_DIRECTORY:
    case SEGMENT_PROCS: return true;
    case SEGMENT_ARENA: return service == SERVICE_LOADER || service == SERVICE_CACHE;
    case SEGMENT_GATES: return service == SERVICE_COMPUTE || service == SERVICE_PREDICTOR;
    case SEGMENT_ACCESS_LOG:
    case SEGMENT_KV: return service == SERVICE_COMPUTE;
    case SEGMENT__COUNT: break;
    }
    sl_panic("segment %d has no writers", (int)kind);
}

/* malloc with one arena and early trim: private memory is reserved, and free memory is returned.
 * Of our variables, those that a sandboxed process keeps; without a sandbox, all others. Secrets
 * only where they are needed. */
static char **child_environment(const struct supervisor *s, bool secrets)
{
    bool all = strcmp(s->params.sandbox, "off") == 0 || sandbox_disabled();
    static const char *const fixed[ENVIRONMENT_FIXED] = {
        "MALLOC_ARENA_MAX=1", "MALLOC_TRIM_THRESHOLD_=131072", "MALLOC_MMAP_THRESHOLD_=131072"};
    size_t n = 0;
    while (environ[n])
        n++;
    char **made = calloc(n + ENVIRONMENT_FIXED + 1, sizeof *made);
    if (!made)
        return NULL;
    size_t kept = 0;
    for (size_t i = 0; i < ENVIRONMENT_FIXED; i++)
        made[kept++] = (char *)(uintptr_t)fixed[i];
    for (size_t i = 0; i < n; i++)
        if (sandbox_secret_variable(environ[i]) ? secrets
                                                : (all ? strncmp(environ[i], "MALLOC_", 7) != 0
                                                       : sandbox_keeps_variable(environ[i])))
            made[kept++] = environ[i];
    return made;
}

static int attributes_make(posix_spawnattr_t *attributes)
{
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    int rc = posix_spawnattr_init(attributes);
    if (rc != 0)
        return rc;
    posix_spawnattr_setflags(attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK |
                                             POSIX_SPAWN_SETSIGDEF);
    posix_spawnattr_setpgroup(attributes, 0); /* Ctrl-C is handled by the supervisor only */
    posix_spawnattr_setsigmask(attributes, &none);
    posix_spawnattr_setsigdefault(attributes, &all);
    return 0;
}

static void standard_streams(posix_spawn_file_actions_t *actions)
{
    posix_spawn_file_actions_addopen(actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(actions, STDERR_FILENO, STDOUT_FILENO);
}

/* A program has the limit of the stack that its parent has when it starts. */
static void limit_stack(uint64_t bytes)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_STACK, &limit) != 0)
        return;
    limit.rlim_cur = bytes < limit.rlim_max ? bytes : limit.rlim_max;
    setrlimit(RLIMIT_STACK, &limit);
}

static pid_t spawn(const struct supervisor *s, const char *path, char **argv, bool secrets,
                   posix_spawn_file_actions_t *actions, struct error *error)
{
    posix_spawnattr_t attributes;
    char **environment = child_environment(s, secrets);
    pid_t pid = -1;
    int rc = environment ? attributes_make(&attributes) : ENOMEM;
    if (rc == 0) {
        rc = posix_spawn(&pid, path, actions, &attributes, argv, environment);
        posix_spawnattr_destroy(&attributes);
    }
    free(environment);
    if (rc != 0)
        return error_set_errno(error, ERR_FAILED, rc, "cannot start %.250s", path);
    return pid;
}

/* The same for a program with the library of a server; NULL: without. */
static pid_t spawn_for(const struct supervisor *s, const struct io_backend_info *server,
                       const char *path, char **argv, bool secrets,
                       posix_spawn_file_actions_t *actions, struct error *error)
{
    if (!server || server->stack_bytes == 0)
        return spawn(s, path, argv, secrets, actions, error);
    limit_stack(server->stack_bytes);
    pid_t pid = spawn(s, path, argv, secrets, actions, error);
    limit_stack(THREAD_STACK_BYTES);
    return pid;
}

pid_t spawn_inspect(struct supervisor *s, int out_fd, struct error *error)
{
    char path[PATH_MAX + 32], out[ARGUMENT_BYTES], in[ARGUMENT_BYTES];
    snprintf(path, sizeof path, "%s/sluice-inspect", s->programs);
    snprintf(out, sizeof out, "--segment-fd=%d", INSPECT_SEGMENT_FD);
    snprintf(in, sizeof in, "--model-fd=%d", INSPECT_MODEL_FD);
    char plan[PARAM_TEXT_BYTES + 16];
    snprintf(plan, sizeof plan, "--plan=%s", s->params.plan);
    char format[ARGUMENT_BYTES];
    snprintf(format, sizeof format, "--log-format=%s", s->params.log_format);
    char sandbox[ARGUMENT_BYTES];
    snprintf(sandbox, sizeof sandbox, "--sandbox=%s", s->params.sandbox);
    bool formatted = !s->options.print_memory;
    char skeleton[] = "--skeleton";
    char *argv[] = {path,
                    out,
                    in,
                    sandbox,
                    s->options.model,
                    formatted ? format : in,
                    s->params.origin[0] ? skeleton : in,
                    s->params.plan[0] ? plan : NULL,
                    NULL};

    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    standard_streams(&actions);
    posix_spawn_file_actions_adddup2(&actions, out_fd, INSPECT_SEGMENT_FD);
    posix_spawn_file_actions_adddup2(&actions, s->model_fd, INSPECT_MODEL_FD);
    pid_t pid = spawn(s, path, argv, false, &actions, error);
    posix_spawn_file_actions_destroy(&actions);
    if (pid > 0) {
        oom_score_child(s, pid, NULL);
        /* inspect sets the same limits before it reads a byte; set here as a second barrier. */
        prlimit(pid, RLIMIT_DATA, &(struct rlimit){INSPECT_DATA_BYTES, INSPECT_DATA_BYTES}, NULL);
        prlimit(pid, RLIMIT_CPU, &(struct rlimit){INSPECT_CPU_S, INSPECT_CPU_S}, NULL);
    }
    return pid;
}

pid_t spawn_fetch(struct supervisor *s, const struct io_backend_info *server, bool secrets,
                  char *arguments[SPAWN_FETCH_ARGUMENTS], int out_fd, struct error *error)
{
    char path[PATH_MAX + 32];
    snprintf(path, sizeof path, SPAWN_FETCH_PROGRAM, s->programs, server->module);
    char *argv[SPAWN_FETCH_ARGUMENTS + 2] = {path};
    memcpy(argv + 1, arguments, SPAWN_FETCH_ARGUMENTS * sizeof *arguments);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, out_fd, STDOUT_FILENO);
    pid_t pid = spawn_for(s, server, path, argv, secrets, &actions, error);
    posix_spawn_file_actions_destroy(&actions);
    return pid;
}

static void add_inherited_fds(struct supervisor *s, const struct child_record *c, int ready_write,
                              posix_spawn_file_actions_t *actions)
{
    standard_streams(actions);
    posix_spawn_file_actions_adddup2(actions, s->lifeline[0], INHERITED_LIFELINE);
    posix_spawn_file_actions_adddup2(actions, ready_write, INHERITED_READY);
    posix_spawn_file_actions_adddup2(actions, s->lock_fd, INHERITED_RUN_LOCK);
    if (c->service == SERVICE_LOADER)
        files_inherit(s, c->number, actions);
    if (c->service == SERVICE_GATEWAY)
        posix_spawn_file_actions_adddup2(actions, s->http_fd, INHERITED_HTTP);
    for (int kind = 0; kind < SEGMENT__COUNT; kind++) {
        if (!inherits_segment(c->service, (enum segment_kind)kind))
            continue;
        int fd = child_may_write(c->service, (enum segment_kind)kind) ? s->segments[kind].fd
                                                                      : s->segments_readonly[kind];
        sl_assert(fd >= FD_MIN);
        posix_spawn_file_actions_adddup2(actions, fd, INHERITED_SEGMENTS + kind);
    }
}

int spawn_child(struct supervisor *s, struct child_record *c, struct error *error)
{
    sl_assert(c->pid == 0 && c->ready_fd < 0);
    int ready[2];
    if (pipe2(ready, O_CLOEXEC | O_NONBLOCK) != 0)
        return error_set_errno(error, ERR_FAILED, errno, "cannot create a pipe");
    ready[0] = fd_high(ready[0]);
    ready[1] = fd_high(ready[1]);

    uint32_t incarnation = atomic_load(&c->process->incarnation) + 1;
    char path[PATH_MAX + 32], number[ARGUMENT_BYTES], inc[ARGUMENT_BYTES], boot[ARGUMENT_BYTES];
    snprintf(path, sizeof path, "%s/%s", s->programs, storage_program(s, c->service, c->number));
    snprintf(number, sizeof number, "%" PRIu32, c->number);
    snprintf(inc, sizeof inc, "%" PRIu32, incarnation);
    snprintf(boot, sizeof boot, "%" PRIu64, s->boot);
    char *argv[10] = {path, "--number", number, "--incarnation", inc, "--boot", boot};
    if (c->backend[0]) {
        argv[7] = "--backend";
        argv[8] = c->backend;
    }
    const struct io_backend_info *server =
        c->service == SERVICE_LOADER ? storage_server(s, c->number) : NULL;
    /* Before the child exists: it, and readers of the table, must find its number. */
    atomic_store_explicit(&c->process->incarnation, incarnation, memory_order_release);

    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    add_inherited_fds(s, c, ready[1], &actions);
    pid_t pid = ready[0] < 0 || ready[1] < 0
                    ? error_set_errno(error, ERR_FAILED, errno, "cannot move a descriptor")
                    : spawn_for(s, server, path, argv,
                                storage_needs_secrets(s, c->service, c->number), &actions, error);
    posix_spawn_file_actions_destroy(&actions);
    if (ready[1] >= 0)
        close(ready[1]);
    if (pid < 0) {
        if (ready[0] >= 0)
            close(ready[0]);
        return -1;
    }
    c->pid = pid;
    c->ready_fd = ready[0];
    return 0;
}
