/* SPDX-License-Identifier: Apache-2.0 */
/* Reads a file of a server (lib/io/server) in order, several pieces at once. */
#ifndef SLUICE_ENGINE_FETCH_SERVER_H
#define SLUICE_ENGINE_FETCH_SERVER_H

#include <stdint.h>

#include "lib/base/error.h"
#include "lib/io/readers.h"

#define SERVER_DEPTH 8u

struct server {
    const char *url; /* borrowed */
    struct readers readers;
    struct reader *reader;
    uint64_t bytes; /* size of the file */
    char *buffer;   /* of SERVER_DEPTH pieces */
};

/* Connects, and waits for the server some seconds. The caller calls server_close, also after an
 * error. -1 with ERR_BAD_INPUT (the reason, with the URL), or ERR_NO_MEMORY. */
int server_open(struct server *s, const char *url, struct error *error);
void server_close(struct server *s);

/* Gets bytes [at, at + count) of the file; pieces come in no order. 0, or -1 with *error, which
 * ends the transfer. */
typedef int server_sink(void *arg, const void *bytes, uint64_t count, uint64_t at,
                        struct error *error);

/* Reads [from, to), which is inside the file. -1 with ERR_IO (the server reports errors, or is not
 * there any more) or the error of the sink. */
int server_transfer(struct server *s, uint64_t from, uint64_t to, server_sink *sink, void *arg,
                    struct error *error);

/* The same into a buffer of `to - from` bytes. */
int server_read(struct server *s, uint64_t from, uint64_t to, void *buffer, struct error *error);

#endif
