/* SPDX-License-Identifier: Apache-2.0 */
/* The open backends of a loader: one for all of its files, one for each server. */
#ifndef SLUICE_IO_READERS_H
#define SLUICE_IO_READERS_H

#include "lib/io/io.h"

#define READERS_MAX 9 /* files, and every copy of every source */

struct reader {
    const struct io_backend *backend;
    struct io *io;
    int fd; /* readable when it has something to do */
};

struct readers {
    uint32_t count;
    struct reader reader[READERS_MAX]; /* the first reads files */
};

/* Adds the one for files. backend: auto, io_uring or pread. -1: ERR_BAD_INPUT for an unknown name,
 * else ERR_FAILED or ERR_NO_MEMORY. */
int readers_open_files(struct readers *r, const char *backend, uint32_t depth, struct error *error);

/* Adds one for a server; a URL without a backend in this program is ERR_BAD_INPUT. NULL with
 * *error. */
struct reader *readers_open_server(struct readers *r, const struct io_source *source,
                                   struct error *error);

/* Only when no read is in flight. */
void readers_close(struct readers *r);

#endif
