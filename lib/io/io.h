/* SPDX-License-Identifier: Apache-2.0 */
/* The interface of read backends. A backend reads either files, which other code opens, or one
 * server that it connects to itself. Every read completes exactly once; its buffer is in the arena
 * and must stay valid until then. One thread per instance: the main thread of the loader, or of
 * doctor. What the rest of the engine must know of a backend is in backends.tbl.h. */
#ifndef SLUICE_IO_IO_H
#define SLUICE_IO_IO_H

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/error.h"
#include "lib/io/backends.h"

struct io; /* state of the backend */

struct io_read {
    int fd; /* of the file; unused for a server */
    uint32_t bytes;
    uint64_t file_offset;
    void *buffer;
    void *tag; /* returned with the completion */
};

struct io_done {
    void *tag;
    int64_t result; /* bytes, or -errno */
};

/* What an instance reads. */
struct io_source {
    const char *url;            /* of the server; NULL: files */
    enum io_backend_id backend; /* of a server: which one reads it */
    uint64_t bytes;             /* of the file that the server has a copy of; 0: whatever it has */
    uint32_t depth;             /* reads in flight at most */
    uint64_t identity;          /* that the file must have, of an earlier link; 0: any */
};

/* The connection to a server. */
struct io_link {
    bool up;           /* reads are served */
    bool wrong;        /* the server has something else; it is not connected again */
    uint64_t bytes;    /* of the file; 0: not known before the first connection */
    uint64_t identity; /* a hash of what the server says of this version of the file (ETag, time,
                        * version); 0: not known, or the server says nothing */
    uint64_t since_ns; /* when it went down; 0 while it is up */
    const char *why;   /* it is down; valid until the next call of the backend */
    bool known;        /* an attempt to connect has ended, or a connection: `why` is the reason */
};

struct io_backend {
    enum io_backend_id id;
    /* *fd becomes readable when `poll` has something to do. A server need not be there: its reads
     * wait. NULL with *error. */
    struct io *(*open)(const struct io_source *source, int *fd, struct error *error);
    /* Submits at most `count` reads, of which at most `depth` may be in flight. Returns the number
     * accepted. */
    uint32_t (*submit)(struct io *io, const struct io_read *reads, uint32_t count);
    /* Takes up to `max` completions; never blocks. */
    uint32_t (*poll)(struct io *io, struct io_done *done, uint32_t max);
    /* Only when no read is in flight. */
    void (*close)(struct io *io);
    /* Servers only, else NULL. */
    void (*link)(struct io *io, struct io_link *link);
    /* Servers only, else NULL: reads of a file cannot be taken back. Drops a connection that is up
     * and makes a new one; one that is being made continues. Reads in flight complete with
     * -ENOTCONN, and nothing is written to their buffers any more. */
    void (*abandon)(struct io *io);
};

extern const struct io_backend io_backend_uring, io_backend_pread;

/* The backends of servers that this program has: lib/io/server/none.c or another of that
 * directory. */
extern const struct io_backend *const io_servers[];
extern const uint32_t io_servers_count;

#endif
