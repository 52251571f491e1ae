/* SPDX-License-Identifier: Apache-2.0 */
/* The stages are other programs of sluice. They end when this process does, and hold its lock until
 * then. */
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/base/bytes.h"
#include "procs/tools/tune/tune.h"

#define OUT_MAX (4 * MIB)

extern char **environ;

volatile sig_atomic_t tune_stop;

/* Through sluice-tether, so that the stage ends when this process does. 0: it could not be
 * started. */
static pid_t start(char *const argv[], int out, bool quiet)
{
    pid_t pid = 0;
    sigset_t all;
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
    sigfillset(&all);
    posix_spawnattr_setsigdefault(&attributes, &all);
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, out >= 0 ? out : STDERR_FILENO, STDOUT_FILENO);
    if (quiet)
        posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    if (posix_spawn(&pid, argv[0], &actions, &attributes, argv, environ) != 0)
        pid = 0;
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
    return pid;
}

/* Everything from fd, until its end; NULL when there is too much. A signal is passed on. */
static char *read_out(int fd, pid_t pid)
{
    size_t n = 0;
    char *text = malloc(OUT_MAX + 1);
    while (text && n < OUT_MAX) {
        ssize_t got = read(fd, text + n, OUT_MAX - n);
        if (got < 0 && errno == EINTR) {
            if (tune_stop)
                kill(pid, SIGTERM);
            continue;
        }
        if (got <= 0)
            break;
        n += (size_t)got;
    }
    if (text)
        text[n] = 0;
    return text;
}

static int wait_for(pid_t pid)
{
    int status;
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            return -1;
        else if (tune_stop)
            kill(pid, SIGTERM);
    return status;
}

/* argv of the tether from arguments that it does not change; freed with free. */
static char **arguments(const char *tether, const char *pid, const char *path,
                        const char *const argv[])
{
    const char *const first[] = {tether, pid, path};
    size_t n = 0, head = ARRAY_LEN(first);
    while (argv[n])
        n++;
    char **all = calloc(n + head + 1, sizeof *all);
    for (size_t i = 0; all && i < n + head; i++)
        memcpy(&all[i], i < head ? &first[i] : &argv[i - head], sizeof *all);
    return all;
}

int run_program(const struct tune *t, const char *name, const char *const argv[], char **out,
                int *exit_status, struct error *error)
{
    char tether[PATH_MAX + 64], path[PATH_MAX + 64], self[16];
    int ends[2] = {-1, -1}, status = -1;
    snprintf(tether, sizeof tether, "%s/sluice-tether", t->programs);
    snprintf(path, sizeof path, "%s/sluice-%s", t->programs, name);
    snprintf(self, sizeof self, "%d", (int)getpid());
    char **all = arguments(tether, self, path, argv), *text = NULL;
    bool ready = all && (!out || pipe2(ends, O_CLOEXEC) == 0);
    pid_t pid = ready && !tune_stop ? start(all, ends[1], t->quiet) : 0;
    free(all);
    if (ends[1] >= 0)
        close(ends[1]);
    if (pid > 0) {
        text = out ? read_out(ends[0], pid) : NULL;
        if (ends[0] >= 0)
            close(ends[0]); /* first: a program that writes too much must not wait for a reader */
        ends[0] = -1;
        status = wait_for(pid);
    }
    if (ends[0] >= 0)
        close(ends[0]);
    if (!tune_stop && pid > 0 && status >= 0 && WIFEXITED(status)) {
        if (out)
            *out = text;
        *exit_status = WEXITSTATUS(status);
        return 0;
    }
    free(text);
    if (tune_stop)
        return error_set(error, ERR_CANCELLED, "interrupted; the same command continues");
    return error_set(error, ERR_FAILED, "sluice %s could not run, or was killed", name);
}
