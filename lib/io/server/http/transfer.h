/* SPDX-License-Identifier: Apache-2.0 */
/* One request of a range of a file by HTTP, and the check of its answer. The bytes go straight to
 * their place; nothing is written there unless the answer is the range that was requested, of the
 * file that was there before. RFC 9110: ranges (14), conditions (13), Retry-After (10.2.3). */
#ifndef SLUICE_IO_SERVER_HTTP_TRANSFER_H
#define SLUICE_IO_SERVER_HTTP_TRANSFER_H

#include <curl/curl.h>
#include <stdbool.h>
#include <stdint.h>

#include "lib/io/server/remote.h"

#define TRANSFER_BUFFER_BYTES (64 * 1024) /* of the library, for each transfer */
#define TRANSFER_TAG_BYTES    256
#define TRANSFER_WAIT_MAX_S   60 /* a longer Retry-After is cut */

/* What a file on a server is known by. */
struct identity {
    uint64_t size;                /* 0: not known yet */
    char tag[TRANSFER_TAG_BYTES]; /* ETag; "": it has none */
    char modified[64];            /* Last-Modified; "": it has none */
};

enum transfer_end {
    TRANSFER_RIGHT,   /* all bytes are there */
    TRANSFER_BROKEN,  /* not all bytes, or not these, or an error of the server */
    TRANSFER_BUSY,    /* the server asks to wait */
    TRANSFER_AWAY,    /* there is no connection */
    TRANSFER_REFUSED, /* the server does not give it: 4xx, a redirect, no ranges */
    TRANSFER_CHANGED  /* the file is another one now */
};

struct transfer {
    CURL *easy;
    bool active;       /* in the multi handle */
    struct slot *slot; /* NULL: an attempt, which reads one byte */
    char *to;
    uint64_t offset;
    uint32_t bytes, got;
    const struct identity *identity; /* that the answer must have; of size 0: any */
    /* Of the answer: */
    struct identity found; /* size: 0 without a right Content-Range */
    long status;
    uint64_t first, last, wait_s;
    bool encoded;
    char location[128];
    char body[512]; /* the beginning of an answer without the range, as text */
    uint32_t body_bytes;
    uint64_t text_bytes; /* of that answer so far, kept or not */
    char error[CURL_ERROR_SIZE];
    char byte; /* of an attempt */
};

/* The callbacks of the library; the other settings are the backend's. -1: no memory. */
int transfer_create(struct transfer *t);
void transfer_destroy(struct transfer *t);

/* Requests [offset, offset + bytes) of the file; slot NULL: its first byte. The caller adds it to
 * the multi handle. */
void transfer_begin(struct transfer *t, struct slot *slot, const struct identity *identity);

/* After its end with `code`: what it was, and why in one line unless it was right. */
enum transfer_end transfer_judge(const struct transfer *t, CURLcode code,
                                 char why[REMOTE_WHY_BYTES]);

/* One line of the head of an answer; public for tests. */
void transfer_head_line(struct transfer *t, const char *line, size_t bytes);

#endif
