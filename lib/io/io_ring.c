/* SPDX-License-Identifier: Apache-2.0 */
/* Opens a ring of io_uring and restricts it to reads. */
#include "lib/io/io_ring.h"

#include <errno.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "lib/base/bytes.h"

/* Debian's liburing 2.3 declares functions for this and does not export them. */
static int ring_register(struct io_uring *ring, unsigned what, void *arg, unsigned count)
{
    return syscall(__NR_io_uring_register, ring->ring_fd, what, arg, count) < 0 ? -errno : 0;
}

/* Only plain reads, without flags (no linked requests, no registered files). Of the calls that
 * change a ring, only the one that starts it. */
static int restrict_to_reads(struct io_uring *ring)
{
    struct io_uring_restriction only[] = {
        {.opcode = IORING_RESTRICTION_SQE_OP, .sqe_op = IORING_OP_READ},
        {.opcode = IORING_RESTRICTION_SQE_FLAGS_ALLOWED, .sqe_flags = 0},
        {.opcode = IORING_RESTRICTION_REGISTER_OP, .register_op = IORING_REGISTER_ENABLE_RINGS}};
    return ring_register(ring, IORING_REGISTER_RESTRICTIONS, only, ARRAY_LEN(only));
}

int io_ring_open(struct io_uring *ring, unsigned depth, int eventfd, bool *restricted)
{
    int rv = io_uring_queue_init(depth, ring, IORING_SETUP_R_DISABLED);
    *restricted = rv == 0;
    if (rv == -EINVAL)
        rv = io_uring_queue_init(depth, ring, 0);
    if (rv != 0)
        return rv;
    rv = io_uring_register_eventfd(ring, eventfd);
    if (rv == 0 && *restricted)
        rv = restrict_to_reads(ring);
    if (rv == 0 && *restricted)
        rv = ring_register(ring, IORING_REGISTER_ENABLE_RINGS, NULL, 0);
    if (rv != 0)
        io_uring_queue_exit(ring);
    return rv;
}
