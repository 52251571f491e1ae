/* SPDX-License-Identifier: Apache-2.0 */
/* Connections, requests and responses over HTTP, whatever they are about. One thread does
 * everything; the HTTP library runs on it, only inside http_run.
 *
 *   acceptor.c    a connection whose head has not arrived; then the HTTP library owns it
 *   http.c        struct exchange: one HTTP request. body collected -> route -> response at once,
 *                 or SUSPENDED (the HTTP library ignores the connection) until exchange_respond is
 *                 called */
#ifndef SLUICE_ENGINE_GATEWAY_HTTP_HTTP_H
#define SLUICE_ENGINE_GATEWAY_HTTP_HTTP_H

#include <jansson.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "lib/base/clock.h"
#include "lib/base/log.h"
#include "procs/engine/child/child.h"
#include "procs/engine/gateway/http/buffer.h"

#define EXCHANGE_MAGIC 0x45584348u
#define HTTP_MAGIC     0x48545450u

#define KEY_BYTES_MAX   PARAM_TEXT_BYTES /* including the terminator */
#define CAUSE_BYTES     160
#define PATH_REST_BYTES 160
#define BUFFERS_FULL    "buffers are full (--http-buffer); retry later"

struct acceptor;
struct ask;
struct connection;
struct dialect;
struct exchange;
struct gateway;
struct http;
struct stream;

/* ---- http.c ---------------------------------------------------------------------------------- */

/* Handles a request whose body is complete: responds now, or arranges for a later response. */
typedef void route_fn(struct exchange *x);

struct http_route {
    const char *method,
        *path; /* a path that ends with "/", but for "/" itself: any that begins so */
    route_fn *start;
    const struct dialect *dialect; /* of its errors, and completions */
    bool open;                     /* needs no key */
};

/* The service that answers the requests. */
struct http_service {
    const struct http_route *routes;
    size_t count;
    const struct dialect *otherwise; /* the dialect of other paths */
    /* The body of an error in a dialect; param may be NULL or "". NULL without memory. */
    json_t *(*error)(const struct dialect *dialect, unsigned status, const struct error *error,
                     const char *param);
    /* The exchange ends, with or without a response: nothing may refer to it. */
    void (*ended)(struct exchange *x);
};

struct exchange {
    uint32_t magic;
    struct http *http;
    struct gateway *gateway;
    struct MHD_Connection *connection;
    const struct http_route *route;
    const struct dialect *dialect;
    struct buffer body;
    uint64_t discarded;         /* bytes of a body that is discarded */
    struct MHD_Response *ready; /* its response, not yet passed to the library */
    struct shared *shared;      /* the response that `ready` uses, or NULL */
    size_t response_bytes;      /* of a response, counted until it was read */
    unsigned status;
    bool started, suspended;
    bool gone;             /* the client disconnected, or out of memory: to be closed */
    struct stream *stream; /* a completion; NULL: none */
    struct ask *ask;       /* a question of a prompt; NULL: none */
    struct exchange *next; /* list of exchanges that wait for a snapshot */
    const struct doc_view *view;
    /* for the access log */
    char log_method[16], log_path[200];
    char rest
        [PATH_REST_BYTES]; /* of a path whose route is its beginning; "": nothing, or too long */
    bool shared_origin;    /* a page of --http-origins may read the response */
    uint64_t since_ns, sent_bytes, prompt_tokens, new_tokens;
    const char *class; /* of a completion that was submitted; NULL: none was */
};

/* Needs h->child and h->gateway. */
int http_start(struct http *h, const struct http_service *service, struct error *error);
/* One round: all work that needs no waiting. */
void http_run(struct http *h);
/* Signals work for http_run; -1: none yet. */
int http_fd(const struct http *h);

/* Continues with an exchange that was suspended. */
void exchange_resume(struct exchange *x);

/* ---- errors.c -------------------------------------------------------------------------------- */

/* An error in the form of the exchange's dialect. param may be NULL or "". */
void exchange_error(struct exchange *x, const struct error *error, const char *param);
void exchange_status_error(struct exchange *x, unsigned status, const char *text);
unsigned error_http_status(enum error_code code);
/* Counts a rejected request and logs a line, at most LOG_LINES of them per LOG_EVERY_NS. */
void log_rejection(struct http *h, const char *why);
/* Messages of the HTTP library, an MHD_LogCallback: malformed requests, broken connections.
 * Cause and response of one request become one line. */
void log_library_message(void *http, const char *fmt, va_list list);
/* A cause to which no response followed. */
void log_cause(struct http *h);

/* ---- auth.c ---------------------------------------------------------------------------------- */

/* Whether the request may be handled; else it has its response. */
bool auth_admits(struct exchange *x);
/* Whether a browser asks if it may send a request of another page (CORS); it has its response. */
bool auth_preflight(struct exchange *x, const char *method);
/* Headers of a response that such a page may read. */
void auth_share(struct exchange *x, struct MHD_Response *response);
/* Learns from the listening socket whether only this machine can reach it. */
void auth_read_own_address(struct http *h);

/* ---- responses.c ----------------------------------------------------------------------------- */

/* Passes the response on (takes the reference) and resumes the exchange. NULL (out of memory): the
 * connection is closed. */
void exchange_respond(struct exchange *x, unsigned status, struct MHD_Response *response);
/* Not counted: a small object. */
void exchange_json(struct exchange *x, unsigned status, json_t *object);
void exchange_text(struct exchange *x, unsigned status, const char *type, char *text, size_t bytes);
/* A header of the response that waits to be passed to the library. */
void exchange_header(struct exchange *x, const char *name, const char *value);

/* JSON of any size, malloc'ed: counted until it was read. Without space: an error. The text is NULL
 * when out of memory. */
void exchange_counted(struct exchange *x, char *text, size_t bytes);
/* The buffers are full. */
void exchange_too_much(struct exchange *x);

/* The bytes of many responses, which are stored and counted once, until the last has read them. */
struct shared;
/* Takes the text, malloc'ed or NULL; the type is a literal. NULL when out of memory or buffers. The
 * caller is its first user. */
struct shared *shared_new(struct http *h, const char *type, char *text, size_t bytes);
void shared_release(struct shared *shared);
void exchange_shared(struct exchange *x, struct shared *shared);

/* ---- http_log.c: --http-log ------------------------------------------------------------------ */

#define HTTP_LOG_BYTES 32768 /* between two ticks */

struct http_log {
    int fd; /* -1: none */
    dev_t device;
    ino_t inode;
    uint64_t check_due_ns, lines;
    size_t bytes;
    size_t rest;  /* of them: the end of a line whose beginning is in the file */
    bool failing; /* logged already */
    char text[HTTP_LOG_BYTES];
};

int http_log_open(struct http *h, struct error *error);
void http_log_tick(struct http *h, uint64_t now_ns);
/* A request, and its end. */
void http_log_begin(struct exchange *x, const char *method, const char *path);
void http_log_end(struct exchange *x);
/* The address of the client; "-": none. */
void exchange_client(const struct exchange *x, char out[INET6_ADDRSTRLEN]);

/* ---- acceptor.c: connections before the head of their request -------------------------------- */

#define ACCEPTOR_FDS 2

int acceptor_open(struct http *h, unsigned connections, struct error *error);
/* Stops accepting connections; existing ones are served. */
void acceptor_close(struct http *h);
void acceptor_poll(const struct http *h, uint64_t now_ns, struct pollfd fds[ACCEPTOR_FDS]);
/* Accepts connections, checks the head of their request, passes them to the library. */
void acceptor_run(struct http *h);
void acceptor_tick(struct http *h, uint64_t now_ns);
/* Open connections: pending ones and the library's. */
unsigned acceptor_connections(const struct http *h);

/* ---- connections.c: time limits -------------------------------------------------------------- */

void connection_event(void *http, struct MHD_Connection *connection, void **slot,
                      enum MHD_ConnectionNotificationCode what);
/* works: a complete request is being handled; rests: its response was sent, the next one can
 * follow. */
void connection_works(struct MHD_Connection *connection);
void connection_rests(struct MHD_Connection *connection);
/* Closes connections that have not sent a whole request in time. */
void connections_tick(struct http *h, uint64_t now_ns);
/* --http-connections, or fewer if the limit of descriptors is lower. */
unsigned connections_max(const struct params *p);

/* ---- all of it ------------------------------------------------------------------------------- */

struct http {
    uint32_t magic;
    struct child *child;
    struct gateway *gateway; /* of every exchange; not looked into */
    const struct http_service *service;
    bool accepts; /* connections are accepted: requests can be handled */
    struct MHD_Daemon *daemon;
    char key[KEY_BYTES_MAX]; /* "": no key is required */
    bool loopback;           /* bound to a loopback address */
    bool closing; /* closing a disconnected client: the library's messages are not logged */
    char cause[CAUSE_BYTES]; /* messages of the library that are not logged yet */
    struct http_log log;
    struct acceptor *acceptor;
    unsigned connections;               /* the library's */
    unsigned responding;                /* complete requests whose response is not fully sent */
    struct connection *oldest, *newest; /* ordered by the start of their rest */
    struct quota quota;                 /* buffered bytes */
    uint64_t rejected_count, rejected_logged, log_due_ns;
    uint32_t log_lines; /* since log_due_ns was set */
};

#endif
