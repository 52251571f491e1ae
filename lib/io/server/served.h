/* SPDX-License-Identifier: Apache-2.0 */
/* Holds what the back ends of servers have in common beside their reads and links (remote.h): the
 * life of an instance, and the functions of io.h in terms of a few calls of the back end, whose
 * `struct io` begins with a struct served. */
#ifndef SLUICE_IO_SERVER_SERVED_H
#define SLUICE_IO_SERVER_SERVED_H

#include <stddef.h>

#include "lib/io/server/remote.h"
#include "lib/io/server/url.h"

#define SERVED_MAGIC 0x53525645u

/* What a back end does. */
struct served_calls {
    size_t bytes; /* of its struct io */
    /* Makes what it needs beside the struct served, which is made. -1 with *error. */
    int (*prepare)(struct io *io, struct error *error);
    /* Frees that, also after an error of prepare. No read is in flight. */
    void (*release)(struct io *io);
    /* Sends reads that wait, if the link is up. */
    void (*send)(struct io *io, uint64_t now_ns);
    /* Handles all that has happened: connections, answers, time limits. */
    void (*drive)(struct io *io, uint64_t now_ns);
    /* Ends its connections: nothing is written to buffers any more; then remote_drop. */
    void (*drop)(struct io *io, enum remote_state state, uint64_t now_ns);
    /* Arms what its descriptor waits for. */
    void (*wait)(struct io *io);
};

struct served {
    uint32_t magic;
    const struct served_calls *calls;
    struct io_url url;
    struct remote remote;
};

struct io *served_open(const struct served_calls *calls, const struct io_source *source, int *fd,
                       struct error *error);
uint32_t served_submit(struct io *io, const struct io_read *reads, uint32_t count);
uint32_t served_poll(struct io *io, struct io_done *done, uint32_t max);
void served_close(struct io *io);
void served_link(struct io *io, struct io_link *link);
void served_abandon(struct io *io);

/* The back ends of a program: this one, whose calls are `calls`. */
#define SERVED_BACKEND(backend, calls)                                                             \
    static struct io *open_##backend(const struct io_source *source, int *fd, struct error *error) \
    {                                                                                              \
        return served_open(&(calls), source, fd, error);                                           \
    }                                                                                              \
    static const struct io_backend only_##backend = {                                              \
        .id = IO_##backend,                                                                        \
        .open = open_##backend,                                                                    \
        .submit = served_submit,                                                                   \
        .poll = served_poll,                                                                       \
        .close = served_close,                                                                     \
        .link = served_link,                                                                       \
        .abandon = served_abandon,                                                                 \
    };                                                                                             \
    const struct io_backend *const io_servers[] = {&only_##backend};                               \
    const uint32_t io_servers_count = 1

#endif
