/* SPDX-License-Identifier: Apache-2.0 */
/* The client of a Ceph cluster, and what a file there is: everything of the library that blocks.
 * A thread of the backend calls it (rados.c), one at a time. */
#ifndef SLUICE_IO_SERVER_RADOS_CLUSTER_H
#define SLUICE_IO_SERVER_RADOS_CLUSTER_H

#include <rados/librados.h>

#include "lib/io/server/rados/layout.h"
#include "lib/io/server/remote.h"

struct cluster {
    rados_t rados; /* NULL: not connected */
    rados_ioctx_t pool;
    struct layout layout;
    uint64_t identity; /* the version of a plain object; a hash of that of a striped file */
};

/* Connects unless that was done. 0, or -1 with the reason in `why`. */
int cluster_connect(struct cluster *c, const struct io_url *url, char why[REMOTE_WHY_BYTES]);

/* Reads what the file `name` is. 0, or -errno with the reason in `why`; -ENOENT: there is none;
 * -ENODATA: its first object is there without the attributes of a file. */
int cluster_look(struct cluster *c, const char *name, uint64_t until_ns,
                 char why[REMOTE_WHY_BYTES]);

/* Size in bytes and version of one object. 0, or -errno. */
int cluster_stat(struct cluster *c, const char *object, uint64_t *size, uint64_t *version,
                 uint64_t until_ns);

/* The result of an operation, which is taken back when it comes too late (-ETIMEDOUT). */
rados_completion_t cluster_completion(void);
int cluster_await(struct cluster *c, rados_completion_t done, uint64_t until_ns);

/* Connects unless that was done, and reads what the file is; then a byte of this object, which had
 * given no answer (0: any). Some seconds at most. 0, or -1 with the reason in `why`. */
int cluster_attempt(struct cluster *c, const struct io_url *url, uint64_t object,
                    char why[REMOTE_WHY_BYTES]);

void cluster_close(struct cluster *c);

#endif
