/* SPDX-License-Identifier: Apache-2.0 */
/* Starts and kills nbdkit. */
#include "tests/harness/nbdkit.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define ARGS_MAX    20
#define START_TICKS 2000 /* of 10 ms */

static const char *const programs[] = {"/usr/bin/nbdkit", "/usr/sbin/nbdkit"};

static const char *program(void)
{
    for (size_t i = 0; i < sizeof programs / sizeof *programs; i++)
        if (access(programs[i], X_OK) == 0)
            return programs[i];
    return NULL;
}

const char *nbdkit_missing(void)
{
    return program() ? NULL : "there is no nbdkit";
}

static void run(const struct nbdkit *k, const char *const args[])
{
    const char *all[ARGS_MAX] = {program(), "-f", "-P", k->ready};
    const char *const tcp[] = {"-i", k->address, "-p", k->port}, *const local[] = {"-U", k->socket};
    size_t n = 4, where = k->address ? 4 : 2;
    memcpy(all + n, k->address ? tcp : local, where * sizeof *all);
    n += where;
    for (size_t i = 0; args[i] && n + 1 < ARGS_MAX; i++)
        all[n++] = args[i];
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    int null = open("/dev/null", O_RDWR);
    dup2(null, STDIN_FILENO);
    dup2(null, STDERR_FILENO); /* its reports of errors that a test wants */
    execv(all[0], (char *const *)all);
    _exit(127);
}

bool nbdkit_start(struct nbdkit *k, const char *directory, const char *const args[])
{
    static unsigned number;
    if (k->socket[0] == 0) {
        snprintf(k->socket, sizeof k->socket, "%s/nbd%d.%u", directory, (int)getpid(), number++);
        snprintf(k->ready, sizeof k->ready, "%s.ready", k->socket);
    }
    unlink(k->socket);
    unlink(k->ready);
    k->pid = fork();
    if (k->pid == 0)
        run(k, args);
    struct stat st;
    for (int i = 0; k->pid > 0 && i < START_TICKS; i++) {
        if (stat(k->ready, &st) == 0 && st.st_size > 0)
            return true;
        (void)poll(NULL, 0, 10);
    }
    return false;
}

void nbdkit_kill(struct nbdkit *k)
{
    if (k->pid <= 0)
        return;
    kill(k->pid, SIGKILL);
    waitpid(k->pid, NULL, 0);
    unlink(k->socket);
    unlink(k->ready);
    k->pid = 0;
}
