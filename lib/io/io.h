/* SPDX-License-Identifier: Apache-2.0 */
/* Read backends: five functions each. Every read completes exactly once; its buffer lies in the
 * arena and must stay valid until then. One thread per instance: the main thread of the loader, or
 * of doctor. */
#ifndef SLUICE_IO_IO_H
#define SLUICE_IO_IO_H

#include <stdint.h>

#include "lib/base/error.h"

struct io; /* state of the backend */

struct io_read {
    int fd;
    uint32_t bytes;
    uint64_t file_offset;
    void *buffer;
    void *tag; /* returned with the completion */
};

struct io_done {
    void *tag;
    int64_t result; /* bytes, or -errno */
};

struct io_backend {
    const char *name;
    uint32_t number; /* value of the counter `backend` */
    /* Up to `depth` reads in flight. *fd becomes readable when completions wait. NULL with
     * *error. */
    struct io *(*open)(uint32_t depth, int *fd, struct error *error);
    /* Submits at most `count` reads, of which at most `depth` may be in flight. Returns the number
     * accepted. */
    uint32_t (*submit)(struct io *io, const struct io_read *reads, uint32_t count);
    /* Takes up to `max` completions; never blocks. */
    uint32_t (*poll)(struct io *io, struct io_done *done, uint32_t max);
    /* Only when no read is in flight. */
    void (*close)(struct io *io);
};

extern const struct io_backend io_backend_uring, io_backend_pread;

#endif
