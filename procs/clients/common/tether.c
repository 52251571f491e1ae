/* sluice-tether PARENT PROGRAM ARGS...: becomes PROGRAM, tied to the life of its parent.
 *
 * A client that starts an engine of its own must not leave it behind when it is killed with
 * SIGKILL. posix_spawn cannot ask for a parent-death signal and a bare fork is not for processes
 * that use NNG, so this small program stands between: it asks, looks whether the parent still
 * lives (it may have died before the request), and executes. */
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
        fprintf(stderr, "usage: sluice-tether PARENT PROGRAM ARGS... (used by sluice's clients)\n");
        return 2;
    }
    long parent = strtol(argv[1], NULL, 10);
    if (prctl(PR_SET_PDEATHSIG, SIGTERM) != 0 || getppid() != (pid_t)parent)
        return 1;
    execv(argv[2], argv + 2);
    fprintf(stderr, "sluice: cannot start %s: %s\n", argv[2], strerror(errno));
    return 1;
}
