/* A client of the gateway made of bare sockets, so that it can be as slow, broken or rude as a test
 * wants. One request in a connection ("Connection: close"); the reply is what comes until its end.
 */
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

/* Port the engine's gateway listens on, waiting until it takes requests. */
unsigned http_port(struct engine *e);

int http_connect(unsigned port);
/* One that can be sent little before it reads: of a client that falls behind. */
int http_connect_narrow(unsigned port);
void http_write(int fd, const char *bytes, size_t n);

/* Sends a request. body NULL: GET. headers: further lines, each ended by \r\n, or NULL. */
void http_open(struct http *h, unsigned port, const char *path, const char *headers,
               const char *body);
/* The same on a connection that is there. */
void http_send_request(struct http *h, int fd, const char *path, const char *headers,
                       const char *body);
/* Receives until the text stands in what came, or the connection ends; false when it ended. */
bool http_wait(struct http *h, const char *text, unsigned ms);
/* Receives to the end and takes the reply apart. */
void http_finish(struct http *h, unsigned ms);
void http_close(struct http *h);

/* All of it; the status has to be the expected one. */
void http_call(struct http *h, unsigned port, const char *path, const char *headers,
               const char *body, int status);

/* A body as JSON; a new reference. */
json_t *http_json(const struct http *h);

/* The contents of the events of a stream: their texts concatenated (caller frees), the last reason
 * to finish, whether [DONE] came, and an error's text or "". */
struct events {
    char *text;
    char finish[16], error[200];
    bool done;
    size_t count;
    uint64_t prompt_tokens, completion_tokens;
};
void http_events(const struct http *h, struct events *out);

#endif
