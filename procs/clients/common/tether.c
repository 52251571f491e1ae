/* SPDX-License-Identifier: Apache-2.0 */
/* sluice-tether PARENT PROGRAM ARGS...: executes PROGRAM so that it is terminated with its parent.
 *
 * A client that is killed with SIGKILL must not leave its private engine behind. posix_spawn cannot
 * set a parent-death signal, and a bare fork is not safe in processes that use NNG. This program
 * sets the signal, checks that the parent still exists (it may have exited before), and executes
 * PROGRAM. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    if (argc < 3) {
        fprintf(stderr, "usage: sluice-tether PARENT PROGRAM ARGS... (used by sluice clients)\n");
        return 2;
    }
    long parent = strtol(argv[1], NULL, 10);
    if (prctl(PR_SET_PDEATHSIG, SIGTERM) != 0 || getppid() != (pid_t)parent)
        return 1;
    execv(argv[2], argv + 2);
    fprintf(stderr, "sluice: cannot start %s: %s\n", argv[2], strerror(errno));
    return 1;
}
