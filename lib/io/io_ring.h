/* SPDX-License-Identifier: Apache-2.0 */
/* A ring of io_uring that can read and nothing else: seccomp does not see what a ring executes. */
#ifndef SLUICE_IO_IO_RING_H
#define SLUICE_IO_IO_RING_H

#include <liburing.h>
#include <stdbool.h>

/* eventfd: signalled by completions. *restricted is false on a kernel before 5.10, which cannot
 * restrict a ring. 0 or -errno. */
int io_ring_open(struct io_uring *ring, unsigned depth, int eventfd, bool *restricted);

#endif
