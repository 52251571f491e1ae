/* SPDX-License-Identifier: Apache-2.0 */
/* Servers of network block devices for tests: nbdkit on a Unix socket, or on a port, which ends
 * with the test. */
#ifndef SLUICE_TESTS_NBDKIT_H
#define SLUICE_TESTS_NBDKIT_H

#include <stdbool.h>
#include <sys/types.h>

struct nbdkit {
    pid_t pid; /* 0: it does not run */
    char socket[96], ready[104];
    const char *address; /* NULL: on the socket; else an address of this machine, with the port */
    char port[8];
};

/* NULL, or why no server can be started on this machine. */
const char *nbdkit_missing(void);

/* Starts one with these arguments, at most 12, up to a NULL: filters, the plugin and its settings.
 * directory: where its socket is, a short path. False: it does not serve within 20 s. */
bool nbdkit_start(struct nbdkit *k, const char *directory, const char *const args[]);

/* SIGKILL, in the middle of whatever it does. */
void nbdkit_kill(struct nbdkit *k);

#endif
