/* How reads reach the device: a backend is five functions. Each read has one completion; buffers
 * lie in the arena and stay valid until it came. One thread uses a backend: the loader's main
 * thread, or doctor's. */
#ifndef SLUICE_IO_IO_H
#define SLUICE_IO_IO_H

#include <stdint.h>

#include "lib/base/error.h"

struct io; /* state of the backend in use */

struct io_read {
    int fd;
    uint32_t bytes;
    uint64_t file_offset;
    void *buffer;
    void *tag; /* comes back with the completion */
};

struct io_done {
    void *tag;
    int64_t result; /* bytes, or -errno */
};

struct io_backend {
    const char *name;
    uint32_t number; /* value of the counter `backend` */
    /* Room for `depth` reads at once. *fd becomes readable when completions wait. NULL with *error.
     */
    struct io *(*open)(uint32_t depth, int *fd, struct error *error);
    /* Hands over at most `count` reads, no more than `depth` without completion in all; returns how
     * many were taken. */
    uint32_t (*submit)(struct io *io, const struct io_read *reads, uint32_t count);
    /* Takes up to `max` completions, never waits. */
    uint32_t (*poll)(struct io *io, struct io_done *done, uint32_t max);
    /* No read is in flight. */
    void (*close)(struct io *io);
};

extern const struct io_backend io_backend_uring, io_backend_pread;

#endif
