/* SPDX-License-Identifier: Apache-2.0 */
/* Starts programs for tests, and waits for states of processes. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/base/clock.h"
#include "tests/harness/internal.h"

#define ARGS_MAX 64

extern char **environ;

char process_state(pid_t pid)
{
    char path[64], text[512];
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    ssize_t n = read(fd, text, sizeof text - 1);
    close(fd);
    if (n <= 0)
        return 0;
    text[n] = 0;
    const char *after = strrchr(text, ')'); /* the name may contain any character */
    return after && after[1] == ' ' ? after[2] : 0;
}

bool process_alive(pid_t pid)
{
    char state = process_state(pid);
    return state != 0 && state != 'Z' && state != 'X';
}

/* Field 22 of stat; 0: no such process. A thread's number is a pid, too. */
static uint64_t started(pid_t pid)
{
    char path[64], text[512];
    unsigned long long ticks = 0;
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *f = fopen(path, "re");
    size_t n = f ? fread(text, 1, sizeof text - 1, f) : 0;
    if (f)
        fclose(f);
    text[n] = 0;
    const char *after = strrchr(text, ')');
    static const char fields[] =
        " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %llu";
    return after && sscanf(after + 1, fields, &ticks) == 1 ? ticks : 0;
}

struct process_id process_id_of(pid_t pid)
{
    return (struct process_id){pid, started(pid)};
}

bool process_id_alive(struct process_id id)
{
    return process_alive(id.pid) && started(id.pid) == id.started;
}

void process_wait_state(pid_t pid, char state, unsigned ms)
{
    uint64_t deadline = deadline_in(ms);
    char now;
    while ((now = process_state(pid)) != state)
        CHECK(deadline_tick(deadline), "process %d is in state '%c' after %u ms, expected '%c'",
              (int)pid, now ? now : '-', ms, state);
}

void process_wait_gone(pid_t pid, unsigned ms)
{
    uint64_t deadline = deadline_in(ms);
    while (process_alive(pid))
        CHECK(deadline_tick(deadline), "process %d still exists after %u ms", (int)pid, ms);
}

void spawning_start(struct spawning *s, short flags)
{
    sigset_t all;
    posix_spawn_file_actions_init(&s->actions);
    posix_spawnattr_init(&s->attributes);
    sigfillset(&all);
    posix_spawnattr_setsigdefault(&s->attributes, &all);
    posix_spawnattr_setflags(&s->attributes, (short)(flags | POSIX_SPAWN_SETSIGDEF));
}

pid_t spawning_end(struct spawning *s, const char *const argv[])
{
    pid_t pid = 0;
    int result = posix_spawnp(&pid, argv[0], &s->actions, &s->attributes,
                              (char *const *)(uintptr_t)argv, environ);
    posix_spawn_file_actions_destroy(&s->actions);
    posix_spawnattr_destroy(&s->attributes);
    CHECK(result == 0, "cannot start %s: %s", argv[0], strerror(result));
    return pid;
}

pid_t spawn_program(const char *const argv[], int in, int out, int err)
{
    struct spawning s;
    spawning_start(&s, POSIX_SPAWN_SETPGROUP);
    if (in >= 0)
        posix_spawn_file_actions_adddup2(&s.actions, in, STDIN_FILENO);
    else
        posix_spawn_file_actions_addopen(&s.actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&s.actions, out, STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&s.actions, err, STDERR_FILENO);
    return spawning_end(&s, argv);
}

static int temporary(void)
{
    int fd = open(test_dir(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    CHECK(fd >= 0, "no temporary file in %s: %s", test_dir(), strerror(errno));
    return fd;
}

static char *contents(int fd, size_t *bytes)
{
    struct stat st;
    CHECK(fstat(fd, &st) == 0, "fstat: %s", strerror(errno));
    char *text = calloc(1, (size_t)st.st_size + 1);
    CHECK(text && pread(fd, text, (size_t)st.st_size, 0) == st.st_size, "cannot read output back");
    *bytes = (size_t)st.st_size;
    close(fd);
    return text;
}

/* Not process_alive: the first thread of a process may end before the others. */
static bool child_runs(pid_t pid)
{
    siginfo_t info = {0};
    return waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == 0;
}

void process_wait_child(pid_t pid, unsigned ms)
{
    uint64_t deadline = deadline_in(ms), now;
    int fd = pid > 0 ? pidfd_open(pid, 0) : -1;
    /* A container may forbid the call (EPERM), or have an emulated kernel without it (ENOSYS). */
    while (fd < 0 && pid > 0 && child_runs(pid) && deadline_tick(deadline))
        continue;
    struct pollfd ended = {.fd = fd, .events = POLLIN};
    while (fd >= 0 && !ended.revents && (now = clock_now_ns()) < deadline)
        poll(&ended, 1, (int)((deadline - now) / NS_PER_MS + 1));
    if (fd >= 0)
        close(fd);
}

static int wait_status(pid_t pid, const char *name, unsigned ms)
{
    int status;
    process_wait_child(pid, ms);
    if (waitpid(pid, &status, WNOHANG) == 0) {
        kill(-pid, SIGKILL);
        waitpid(pid, &status, 0);
        test_fail("%s did not end within %u ms", name, ms);
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

void command_run(struct command *c, const char *input, unsigned ms, const char *const argv[])
{
    char program[PATH_MAX];
    const char *args[ARGS_MAX] = {0};
    size_t n = 0;
    for (; argv[n] && n + 1 < ARGS_MAX; n++)
        args[n] = argv[n];
    if (!strchr(args[0], '/')) {
        snprintf(program, sizeof program, "%s/sluice-%s", test_libexec(), args[0]);
        args[0] = program;
    }
    int out = temporary(), err = temporary(), in = -1;
    if (input) {
        in = temporary();
        size_t bytes = strlen(input);
        CHECK(write(in, input, bytes) == (ssize_t)bytes && lseek(in, 0, SEEK_SET) == 0,
              "cannot write the input");
    }
    pid_t pid = spawn_program(args, in, out, err);
    c->status = wait_status(pid, args[0], ms);
    if (in >= 0)
        close(in);
    c->out = contents(out, &c->out_bytes);
    c->err = contents(err, &c->err_bytes);
}

void command_free(struct command *c)
{
    free(c->out);
    free(c->err);
    memset(c, 0, sizeof *c);
}

json_t *command_json(unsigned ms, const char *const argv[])
{
    struct command c;
    command_run(&c, NULL, ms, argv);
    CHECK(c.status == 0, "%s: %.300s", argv[0], c.err);
    json_t *doc = json_loads(c.out, JSON_ALLOW_NUL, NULL);
    command_free(&c);
    return doc;
}

size_t command_lines(const char *text)
{
    size_t lines = 0;
    for (; *text; text++)
        lines += *text == '\n' || text[1] == 0;
    return lines;
}
