/* SPDX-License-Identifier: Apache-2.0 */
/* One request of a push to a web server or S3, sent again while that may help. */
#ifndef SLUICE_TOOLS_PUSH_REQUEST_H
#define SLUICE_TOOLS_PUSH_REQUEST_H

#include <curl/curl.h>

#include "procs/tools/push/push.h"

#define ANSWER_TAG_BYTES  256
#define ANSWER_TEXT_BYTES 4096

enum method { METHOD_HEAD, METHOD_GET, METHOD_PUT, METHOD_POST };

struct request {
    enum method method;
    const char *name;  /* of the file */
    const char *query; /* with its '?', or "" */
    /* PUT: these bytes of a file. */
    const struct push_file *file;
    uint64_t at, bytes;
    /* POST: a text. */
    const char *text;
    /* GET: at most `room` bytes go here. */
    char *to;
    uint64_t room;
};

struct answer {
    long status;
    uint64_t bytes; /* Content-Length; of GET: that were received */
    char tag[ANSWER_TAG_BYTES], modified[64];
    char text[ANSWER_TEXT_BYTES]; /* the beginning of its body, but of GET */
};

struct client;

struct client *client_open(struct push *p, struct error *error);
void client_close(struct client *c);
bool client_is_s3(const struct client *c);

/* 0: the server did it, and *a is its answer; or a->status is 404 and the method HEAD or GET.
 * -1: *error has the URL and the reason; ERR_GONE: 404 for another method. */
int client_ask(struct client *c, const struct request *r, struct answer *a, struct error *error);

#endif
