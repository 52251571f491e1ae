/* SPDX-License-Identifier: Apache-2.0 */
/* An HTTP client on plain sockets: tests can stall, send malformed bytes and disconnect at any
 * point. One request per connection ("Connection: close"); the reply ends with the connection. */
#ifndef SLUICE_TESTS_SCENARIO_HTTP_H
#define SLUICE_TESTS_SCENARIO_HTTP_H

#include "tests/harness/harness.h"

struct http {
    int fd;
    char *raw; /* everything received, NUL-terminated */
    size_t bytes;
    bool ended;
    int status; /* of the reply, 0: none */
    char *body; /* without chunks; after http_finish */
    size_t body_bytes;
};

/* Port of the engine's gateway; waits until it accepts requests. */
unsigned http_port(struct engine *e);

int http_connect(unsigned port);
/* Connects with a small receive buffer: a client that reads too slowly. */
int http_connect_narrow(unsigned port);
void http_write(int fd, const char *bytes, size_t n);

/* Sends a request. body NULL: GET. headers: more header lines, each ending in \r\n, or NULL; a Host
 * at their start replaces the usual one. */
void http_open(struct http *h, unsigned port, const char *path, const char *headers,
               const char *body);
/* The same on an open connection. */
void http_send_request(struct http *h, int fd, const char *path, const char *headers,
                       const char *body);
/* Receives until the reply contains the text; false if the connection ended first. */
bool http_wait(struct http *h, const char *text, unsigned ms);
/* The same until the text has come that many times. */
bool http_wait_times(struct http *h, const char *text, size_t times, unsigned ms);
/* Receives to the end and parses the reply. */
void http_finish(struct http *h, unsigned ms);
void http_close(struct http *h);

/* Open and finish; fails the case on another status. */
void http_call(struct http *h, unsigned port, const char *path, const char *headers,
               const char *body, int status);

/* The body as JSON; a new reference. */
json_t *http_json(const struct http *h);

/* The events of a stream: their concatenated text (caller frees), the last finish_reason, whether
 * [DONE] was received, and the text of an error or "". */
struct events {
    char *text;
    char finish[16], error[200];
    bool done;
    size_t count;
    uint64_t prompt_tokens, completion_tokens;
};
void http_events(const struct http *h, struct events *out);

#endif
