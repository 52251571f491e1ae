/* SPDX-License-Identifier: Apache-2.0 */
/* The stages are other programs of sluice. They end when this process does, and hold its lock until then. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/base/bytes.h"
#include "procs/tools/tune/tune.h"

#define OUT_MAX (4 * MIB)

volatile sig_atomic_t tune_stop;

static _Noreturn void child(const char *path, char *const argv[], int out)
{
    int null = open("/dev/null", O_RDONLY);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    signal(SIGINT, SIG_DFL);
    signal(SIGTERM, SIG_DFL);
    signal(SIGHUP, SIG_DFL);
    if (getppid() == 1 || null < 0 || dup2(null, STDIN_FILENO) < 0 ||
        dup2(out >= 0 ? out : STDERR_FILENO, STDOUT_FILENO) < 0)
        _exit(127);
    execv(path, argv);
    _exit(127);
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

/* argv of a process from arguments that it does not change. */
static char **arguments(const char *path, const char *const argv[])
{
    size_t n = 0;
    while (argv[n])
        n++;
    char **all = calloc(n + 2, sizeof *all);
    for (size_t i = 0; all && i <= n; i++) {
        const char *from = i == 0 ? path : argv[i - 1];
        memcpy(&all[i], &from, sizeof from);
    }
    return all;
}

int run_program(const struct tune *t, const char *name, const char *const argv[], char **out,
                int *exit_status, struct error *error)
{
    char path[PATH_MAX + 64];
    int ends[2] = {-1, -1};
    snprintf(path, sizeof path, "%s/sluice-%s", t->programs, name);
    char **all = arguments(path, argv);
    if (!all || (out && pipe2(ends, O_CLOEXEC) != 0)) {
        free(all);
        return error_set(error, ERR_FAILED, "cannot start %.200s: out of memory or descriptors",
                         path);
    }
    pid_t pid = tune_stop ? -1 : fork();
    if (pid == 0)
        child(path, all, ends[1]);
    free(all);
    if (ends[1] >= 0)
        close(ends[1]);
    if (pid > 0 && out)
        *out = read_out(ends[0], pid);
    if (ends[0] >= 0)
        close(ends[0]);
    int status = pid > 0 ? wait_for(pid) : -1;
    if (pid > 0 && status >= 0 && !tune_stop && WIFEXITED(status)) {
        *exit_status = WEXITSTATUS(status);
        if (*exit_status != 127)
            return 0;
    }
    if (out && pid > 0) {
        free(*out);
        *out = NULL;
    }
    if (tune_stop)
        return error_set(error, ERR_CANCELLED, "interrupted; the same command continues");
    return error_set(error, ERR_FAILED, "sluice %s could not run, or was killed", name);
}
