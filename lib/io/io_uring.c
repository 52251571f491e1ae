/* SPDX-License-Identifier: Apache-2.0 */
/* Backend io_uring: one ring, plain reads into the arena mapping. No registered buffers: they would
 * pin pages across a hole-punch, and later reads would fill pages that are no longer mapped. */
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "lib/base/assert.h"
#include "lib/base/log.h"
#include "lib/io/io.h"
#include "lib/io/io_ring.h"

#define URING_MAGIC 0x474e5255u

struct io {
    uint32_t magic;
    int eventfd;
    struct io_uring ring;
};

static struct io *uring_open(const struct io_source *source, int *fd, struct error *error)
{
    struct io *io = calloc(1, sizeof *io);
    if (!io) {
        error_set(error, ERR_NO_MEMORY, "out of memory (io_uring)");
        return NULL;
    }
    io->magic = URING_MAGIC;
    io->eventfd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    bool restricted;
    int rv =
        io->eventfd < 0 ? -errno : io_ring_open(&io->ring, source->depth, io->eventfd, &restricted);
    if (rv != 0) {
        error_set_errno(error, ERR_FAILED, -rv, "cannot set up io_uring");
        if (io->eventfd >= 0)
            close(io->eventfd);
        free(io);
        return NULL;
    }
    if (!restricted)
        log_warn("this kernel cannot restrict io_uring to reads; --backend pread avoids it");
    *fd = io->eventfd;
    return io;
}

static uint32_t uring_submit(struct io *io, const struct io_read *reads, uint32_t count)
{
    OBJ_CHECK(io, URING_MAGIC);
    uint32_t taken = 0;
    for (; taken < count; taken++) {
        struct io_uring_sqe *sqe = io_uring_get_sqe(&io->ring);
        if (!sqe)
            break;
        const struct io_read *r = &reads[taken];
        io_uring_prep_read(sqe, r->fd, r->buffer, r->bytes, r->file_offset);
        io_uring_sqe_set_data(sqe, r->tag);
    }
    io_uring_submit(
        &io->ring); /* reads that the kernel rejects now stay in the ring until uring_poll */
    return taken;
}

static uint32_t uring_poll(struct io *io, struct io_done *done, uint32_t max)
{
    OBJ_CHECK(io, URING_MAGIC);
    uint64_t events;
    ssize_t got = read(io->eventfd, &events,
                       sizeof events); /* before peeking, so that no completion is missed */
    (void)got;
    if (io_uring_sq_ready(&io->ring) > 0)
        io_uring_submit(&io->ring);
    uint32_t n = 0;
    struct io_uring_cqe *cqe;
    for (; n < max && io_uring_peek_cqe(&io->ring, &cqe) == 0; n++) {
        done[n] = (struct io_done){io_uring_cqe_get_data(cqe), cqe->res};
        io_uring_cqe_seen(&io->ring, cqe);
    }
    return n;
}

static void uring_close(struct io *io)
{
    OBJ_CHECK(io, URING_MAGIC);
    io_uring_queue_exit(&io->ring);
    close(io->eventfd);
    io->magic = 0;
    free(io);
}

const struct io_backend io_backend_uring = {
    .id = IO_URING,
    .open = uring_open,
    .submit = uring_submit,
    .poll = uring_poll,
    .close = uring_close,
};
