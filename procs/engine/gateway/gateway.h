/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of the gateway. One thread does everything; gateway_main.c is the overview.
 * The lifetime of a request:
 *
 *   acceptor.c    a connection whose head has not arrived; then the HTTP library owns it
 *   http.c        struct exchange: one HTTP request. body collected -> route -> response at once,
 *                 or SUSPENDED (the HTTP library ignores the connection) until exchange_respond is
 *                 called
 *   submit.c, stream.c   struct stream: one completion.
 *
 *     SUBMIT --(accepted)---------> FOLLOW --(end, error)--> ENDED --(all sent)--> free
 *       |                             |
 *       +--(disconnect)---> LEFT <----+--> free, once the cancel is sent
 *
 *     A stream whose client disconnects during submit waits for the number of its sequence, to
 *     cancel it.
 *   stats.c       exchanges that wait for a snapshot of the supervisor */
#ifndef SLUICE_ENGINE_GATEWAY_GATEWAY_H
#define SLUICE_ENGINE_GATEWAY_GATEWAY_H

#include <microhttpd.h>
#include <stdbool.h>
#include <stdint.h>

#include "ipc/rpc/async.h"
#include "ipc/rpc/json.h"
#include "lib/base/clock.h"
#include "lib/base/log.h"
#include "procs/engine/child/child.h"
#include "procs/engine/gateway/api/completion.h"
#include "procs/engine/gateway/http/buffer.h"

#define GATEWAY_MAGIC  0x47415445u
#define EXCHANGE_MAGIC 0x45584348u
#define STREAM_MAGIC   0x5354524du

#define STREAMS_MAX   64               /* maximum of --http-streams */
#define KEY_BYTES_MAX PARAM_TEXT_BYTES /* including the terminator */
#define CAUSE_BYTES   160
#define BUFFERS_FULL  "buffers are full (--http-buffer); retry later"

struct acceptor;
struct exchange;
struct gateway;

/* A histogram in Prometheus form. */
#define HISTOGRAM_BUCKETS 20
struct gateway_histogram {
    uint64_t count[HISTOGRAM_BUCKETS + 1]; /* the last: above all bounds */
    double sum;
};

/* ---- http.c ---------------------------------------------------------------------------------- */

/* Handles a request whose body is complete: responds now, or arranges for a later response. */
typedef void route_fn(struct exchange *x);

struct http_route {
    const char *method, *path;
    route_fn *start;
    const struct dialect *dialect; /* of its errors, and completions */
    bool open;                     /* needs no key */
};

struct exchange {
    uint32_t magic;
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
    struct stream *stream; /* NULL: none */
    struct exchange *next; /* list of exchanges that wait for a snapshot */
    const struct doc_view *view;
    /* for the access log */
    char log_method[16], log_path[200];
    uint64_t since_ns, sent_bytes, prompt_tokens, new_tokens;
};

/* Of the errors of requests whose path is not known. */
extern const struct dialect *const http_dialect;

int http_start(struct gateway *g, struct error *error);
/* One round: all work that needs no waiting. */
void http_run(struct gateway *g);

/* Passes the response on (takes the reference) and resumes the exchange. NULL (out of memory): the
 * connection is closed. */
void exchange_respond(struct exchange *x, unsigned status, struct MHD_Response *response);
void exchange_json(struct exchange *x, unsigned status, json_t *object);
void exchange_text(struct exchange *x, unsigned status, const char *type, char *text, size_t bytes);
/* An error in the form of the exchange's dialect. param may be NULL or "". */
void exchange_error(struct exchange *x, const struct error *error, const char *param);
void exchange_status_error(struct exchange *x, unsigned status, const char *text);
unsigned error_http_status(enum error_code code);
void exchange_resume(struct exchange *x);
/* The text of a completion, malloc'ed: counted until it was read. Without space: an error. */
void exchange_completion(struct exchange *x, char *text, size_t bytes);

/* One response for many requests: its bytes are stored and counted once, until the last has read
 * them. */
struct shared;
/* Takes the text, malloc'ed or NULL. NULL when out of memory or buffers. The caller is its first
 * user. */
struct shared *shared_new(struct gateway *g, const char *type, char *text, size_t bytes);
void shared_release(struct shared *shared);
void exchange_shared(struct exchange *x, struct shared *shared);

/* Counts a rejected request and logs a line, at most LOG_LINES of them per LOG_EVERY_NS. */
void log_rejection(struct gateway *g, const char *why);

/* ---- http_log.c: --http-log ---------------------------------------------------------------- */

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

int http_log_open(struct gateway *g, struct error *error);
void http_log_tick(struct gateway *g, uint64_t now_ns);
/* A request, and its end. */
void http_log_begin(struct exchange *x, const char *method, const char *path);
void http_log_end(struct exchange *x);

/* ---- acceptor.c: connections before the head of their request
 * ----------------------------------------- */

#define ACCEPTOR_FDS 2

int acceptor_open(struct gateway *g, unsigned connections, struct error *error);
/* Stops accepting connections; existing ones are served. */
void acceptor_close(struct gateway *g);
void acceptor_poll(const struct gateway *g, uint64_t now_ns, struct pollfd fds[ACCEPTOR_FDS]);
/* Accepts connections, checks the head of their request, passes them to the library. */
void acceptor_run(struct gateway *g);
void acceptor_tick(struct gateway *g, uint64_t now_ns);
/* Open connections: pending ones and the library's. */
unsigned acceptor_connections(const struct gateway *g);

/* ---- connections.c: time limits -------------------------------------------------------------- */

struct connection;
void connection_event(void *gateway, struct MHD_Connection *connection, void **slot,
                      enum MHD_ConnectionNotificationCode what);
/* works: a complete request is being handled; rests: its response was sent, the next one can
 * follow. */
void connection_works(struct MHD_Connection *connection);
void connection_rests(struct MHD_Connection *connection);
/* Closes connections that have not sent a whole request in time. */
void connections_tick(struct gateway *g, uint64_t now_ns);
/* --http-connections, or fewer if the limit of descriptors is lower. */
unsigned connections_max(const struct params *p);

/* ---- submit.c, stream.c ---------------------------------------------------------------------- */

enum stream_state { STREAM_FREE, STREAM_SUBMIT, STREAM_FOLLOW, STREAM_ENDED, STREAM_LEFT };

struct stream {
    uint32_t magic;
    enum stream_state state;
    struct gateway *gateway;
    struct exchange *exchange; /* NULL: the client disconnected */
    int fd;                    /* of its connection, watched for its end */
    struct completion completion;
    uint64_t sequence, from, ticket;
    size_t prompt_buffered; /* counted for the text of submit, while that call is in progress */
    size_t types_buffered;  /* counted for the request's types */
    uint64_t started_ns, output_ns, reply_ns, token_ns;
};

#define STREAM_STOPPING    "the engine is stopping"
#define STREAM_AHEAD_BYTES 16384 /* unsent bytes beyond which no more tokens are requested */

/* submit.c: from a body to a sequence. */
route_fn stream_start;
/* compute rejected it, or cannot get it. */
void stream_reject(struct stream *s, const struct error *error);

/* stream.c: what follows. */
void stream_free(struct stream *s);
/* Responds with an error, and frees the stream if there is one. */
void stream_refuse(struct exchange *x, const struct error *error, const char *param);
/* The text of the call with the prompt was freed. */
void stream_submitted(struct stream *s);
/* The answer begins. */
void stream_begin(struct stream *s);
/* Requests the next tokens, unless the client has not read enough. */
void stream_request_next(struct stream *s);
void stream_cancel(struct stream *s);
/* -1: compute is down and cannot be kept running, so that no call gets its reply. While it runs, it
 * rejects requests itself. */
int stream_check_compute(const struct gateway *g, struct error *error);
void stream_client_left(struct stream *s);
void streams_tick(struct gateway *g, uint64_t now_ns);
/* Ends all streams with an error. Their sequences end with the engine. */
void streams_stop(struct gateway *g);
/* Fills `fds` with streams whose connection is watched for its end; returns their number. */
nfds_t streams_poll(struct gateway *g, struct pollfd *fds, struct stream **of);

/* ---- stats.c, metrics.c, page.c -------------------------------------------------------------- */

/* Converts a snapshot to text of a content type. *text is malloc'ed; NULL when out of memory. */
struct doc_view {
    const char *op; /* of the supervisor */
    const char *type;
    char *(*make)(struct gateway *g, const json_t *doc, size_t *bytes);
};

route_fn stats_health, stats_all, stats_metrics, stats_page, stats_map, stats_models;
void stats_tick(struct gateway *g, uint64_t now_ns);
void stats_forget(struct exchange *x);

char *metrics_make(struct gateway *g, const json_t *doc, size_t *bytes);
void metrics_first_token(struct gateway *g, uint64_t ns);
void metrics_tokens(struct gateway *g, uint64_t ns, uint64_t count);
void metrics_finished(struct gateway *g, const char *reason);

char *page_make(struct gateway *g, const json_t *doc, size_t *bytes);
route_fn page_style, page_script, page_chat;

/* ---- the process ----------------------------------------------------------------------------- */

#define FINISH_REASONS 4

struct gateway {
    uint32_t magic;
    struct child child;
    struct MHD_Daemon *daemon;
    struct rpc_async *engine, *control;
    char key[KEY_BYTES_MAX]; /* "": no key is required */
    bool loopback;           /* bound to a loopback address */
    bool closing; /* closing a disconnected client: the library's messages are not logged */
    char cause[CAUSE_BYTES]; /* messages of the library that are not logged yet */
    struct http_log http_log;
    struct acceptor *acceptor;
    unsigned connections; /* the library's */
    unsigned responding;  /* complete requests whose response is not fully sent */
    uint64_t tick_due_ns;
    struct connection *oldest, *newest; /* ordered by the start of their rest */
    struct quota quota;                 /* buffered bytes */
    struct stream streams[STREAMS_MAX];

    /* of the model, once the supervisor has sent it */
    bool known;
    char model_name[128], arch[32];
    struct chat_format chat;
    int64_t started; /* wall clock, for /v1/models */

    /* of the engine */
    char state[24];
    struct error fault; /* of the engine, for which all sequences fail; ERR_NONE: none */
    uint64_t oom_kills; /* of the engine's processes */
    uint64_t state_ns, status_due_ns;
    bool status_pending, model_pending, stats_pending, map_pending;
    struct exchange *waiting; /* for snapshots */

    uint64_t rejected_count, rejected_logged, log_due_ns;
    uint32_t log_lines; /* since log_due_ns was set */
    struct gateway_histogram first_token, inter_token;
    uint64_t finished[FINISH_REASONS];
};

#endif
