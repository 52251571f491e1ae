/* What the files of the gateway share. One thread of ours does everything; gateway_main.c tells the
 * story, this is the lifetime of a request:
 *
 *   door.c        a connection whose first line has not come; then it is the HTTP library's
 *   http.c        struct exchange: one HTTP request. body collected -> route -> answered at once,
 * or SUSPENDED (the HTTP library does not look at the connection) until somebody calls
 *                 exchange_answer
 *   stream.c      struct stream: one completion.
 *
 *     SUBMIT --(compute took it)--> FOLLOW --(end, error)--> ENDED --(all told)--> free
 *       |                             |
 *       +--(client left)--> LEFT <----+--> free, once the cancel is on its way
 *
 *     A stream whose client left while submit was under way waits for the number of its sequence,
 *     so that it can be cancelled.
 *   documents.c   exchanges that wait for a document of the supervisor */
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
#include "procs/engine/gateway/api/request.h"
#include "procs/engine/gateway/http/buffer.h"

#define GATEWAY_MAGIC  0x47415445u
#define EXCHANGE_MAGIC 0x45584348u
#define STREAM_MAGIC   0x5354524du

#define STREAMS_MAX     64               /* bound of --http-streams */
#define KEY_BYTES_MAX   PARAM_TEXT_BYTES /* with its end */
#define STREAM_ID_BYTES 40
#define CAUSE_BYTES     160
#define TOO_MUCH_HELD   "too much is held for other requests (--http-buffer)"

struct door;
struct exchange;
struct gateway;

/* A histogram as Prometheus has it. */
#define HISTOGRAM_BUCKETS 20
struct gateway_histogram {
    uint64_t count[HISTOGRAM_BUCKETS + 1]; /* the last: beyond all bounds */
    double sum;
};

/* ---- http.c ---------------------------------------------------------------------------------- */

/* What a route does with a request whose body is complete: answers it, or leaves it to somebody who
 * will. */
typedef void route_fn(struct exchange *x);

struct http_route {
    const char *method, *path;
    route_fn *begin;
    bool open; /* needs no key */
};

struct exchange {
    uint32_t magic;
    struct gateway *gateway;
    struct MHD_Connection *connection;
    const struct http_route *route;
    struct buffer body;
    uint64_t discarded;         /* bytes of a body that nobody wants */
    struct MHD_Response *ready; /* its answer, waiting to be handed over */
    struct shared *shared;      /* `ready` is that one's, or NULL */
    size_t answer_bytes;        /* of an answer, counted while it is read */
    unsigned status;
    bool begun, suspended;
    bool gone;             /* nobody reads any more, or there is no memory: to be closed */
    struct stream *stream; /* NULL: none */
    struct exchange *next; /* of those that wait for a document */
    const struct doc_view *view;
};

int http_start(struct gateway *g, struct error *error);
/* One round: everything that can be done now without waiting. */
void http_run(struct gateway *g);

/* Hands over the answer (takes the reference) and wakes the exchange. NULL without memory: the
 * connection is closed. */
void exchange_answer(struct exchange *x, unsigned status, struct MHD_Response *response);
void exchange_json(struct exchange *x, unsigned status, json_t *object);
void exchange_text(struct exchange *x, unsigned status, const char *type, char *text, size_t bytes);
/* An error in OpenAI's form. param may be NULL or "". */
void exchange_error(struct exchange *x, const struct error *error, const char *param);
void exchange_status_error(struct exchange *x, unsigned status, const char *text);
json_t *error_object(unsigned status, const struct error *error, const char *param);
unsigned error_http_status(enum error_code code);
void exchange_resume(struct exchange *x);
/* The text of a completion, malloc'ed: counted until it was read. Without room: an error. */
void exchange_completion(struct exchange *x, char *text, size_t bytes);

/* One answer for many: its bytes stay once, and counted, until the last has read them. */
struct shared;
/* Takes the text, malloc'ed or NULL. NULL without memory or room. The caller is its first user. */
struct shared *shared_new(struct gateway *g, const char *type, char *text, size_t bytes);
void shared_release(struct shared *shared);
void exchange_shared(struct exchange *x, struct shared *shared);

/* Counts, and says so in a line of the log, LOG_LINES of them in LOG_EVERY_NS at most. */
void refused(struct gateway *g, const char *why);

/* ---- door.c: connections before their first line --------------------------------------------- */

#define DOOR_FDS 2

int door_open(struct gateway *g, unsigned connections, struct error *error);
/* No connection is accepted any more; those that are there are served on. */
void door_close(struct gateway *g);
void door_poll(const struct gateway *g, uint64_t now_ns, struct pollfd fds[DOOR_FDS]);
/* Accepts, looks at who sent something, hands on to the library. */
void door_run(struct gateway *g);
void door_tend(struct gateway *g, uint64_t now_ns);
/* Open ones: here and the library's. */
unsigned door_connections(const struct gateway *g);

/* ---- connections.c: who takes too long ------------------------------------------------------- */

struct connection;
void connection_event(void *gateway, struct MHD_Connection *connection, void **slot,
                      enum MHD_ConnectionNotificationCode what);
/* Its request is complete and ours to answer; it is answered, and the next may come. */
void connection_works(struct MHD_Connection *connection);
void connection_rests(struct MHD_Connection *connection);
/* Cuts off who has not sent a whole request in time. */
void connections_tend(struct gateway *g, uint64_t now_ns);
/* --http-connections, or what descriptors there are for. */
unsigned connections_max(const struct params *p);

/* ---- stream.c, logprobs.c, answer.c ---------------------------------------------------------- */

/* Log-probabilities of what is told (logprobs.c). */
struct logprobs {
    size_t offset;                 /* characters told: where the next token begins in the answer */
    struct buffer whole;           /* of an answer that is told at once: its JSON so far, */
    struct buffer values, offsets; /* for completions in three arrays */
};

enum stream_state { STREAM_FREE, STREAM_SUBMIT, STREAM_FOLLOW, STREAM_ENDED, STREAM_LEFT };

struct stream {
    uint32_t magic;
    enum stream_state state;
    struct gateway *gateway;
    struct exchange *exchange; /* NULL: the client left */
    int fd;                    /* of its connection, watched for its end */
    struct api_request request;
    char id[STREAM_ID_BYTES];
    int64_t created;
    uint64_t sequence, from, ticket;
    size_t prompt_held; /* counted for the text of submit, while that call is under way */
    struct buffer out;  /* stream: events to be told; else the text so far */
    struct logprobs logprobs;
    uint64_t new_tokens, prompt_tokens; /* new: those of the text, none of a stop */
    const char *finish;                 /* "length", "stop"; NULL: not yet */
    bool role_told;
    bool failed; /* something did not fit: what was told is not whole */
    bool broken; /* and there was no room to say so: the connection is to be closed */
    uint64_t started_ns, spoke_ns, heard_ns, token_ns;
};

route_fn stream_completion, stream_chat;
void stream_client_left(struct stream *s);
void streams_tend(struct gateway *g, uint64_t now_ns);
/* Ends all of them with an error. Their sequences end with the engine. */
void streams_stop(struct gateway *g);
/* Fills places of streams whose connection nobody reads from; returns their number. */
nfds_t streams_poll(struct gateway *g, struct pollfd *fds, struct stream **of);

/* Entries of the first `count` tokens of a reply, as an array of OpenAI's form for conversations,
 * each with its offset in the answer; NULL when they were not asked for. */
json_t *logprobs_take(struct stream *s, const struct engine_next *next, size_t count);
/* Keeps entries for the end of an answer that is told at once; steals them. */
void logprobs_keep(struct stream *s, json_t *entries);
void logprobs_free(struct stream *s);

/* answer.c: OpenAI's objects. New references, NULL without memory. */
json_t *answer_chunk(const struct stream *s, const char *text, size_t bytes, json_t *logprobs,
                     const char *finish);
json_t *answer_role(const struct stream *s);
json_t *answer_usage_chunk(const struct stream *s);
/* Text, malloc'ed: the log-probabilities are in it as they were kept. */
char *answer_whole(const struct stream *s, size_t *bytes);
json_t *answer_model(const struct gateway *g);

/* ---- documents.c, metrics.c, page.c ---------------------------------------------------------- */

/* What becomes of a document: text of a content type. *text is malloc'ed; NULL without memory. */
struct doc_view {
    const char *op; /* of the supervisor */
    const char *type;
    char *(*make)(struct gateway *g, const json_t *doc, size_t *bytes);
};

route_fn documents_health, documents_stats, documents_metrics, documents_page, documents_map,
    documents_models;
void documents_tend(struct gateway *g, uint64_t now_ns);
void documents_forget(struct exchange *x);

char *metrics_make(struct gateway *g, const json_t *doc, size_t *bytes);
void metrics_first_token(struct gateway *g, uint64_t ns);
void metrics_tokens(struct gateway *g, uint64_t ns, uint64_t count);
void metrics_finished(struct gateway *g, const char *reason);

char *page_make(struct gateway *g, const json_t *doc, size_t *bytes);
route_fn page_style, page_script;

/* ---- the process ----------------------------------------------------------------------------- */

#define FINISH_REASONS 4

struct gateway {
    uint32_t magic;
    struct child child;
    struct MHD_Daemon *daemon;
    struct rpc_async *engine, *control;
    char key[KEY_BYTES_MAX]; /* "": none is asked for */
    bool loopback;           /* bound to an address of this machine alone */
    bool closing; /* a connection is closed because its client left: the library's words about it */
    char cause[CAUSE_BYTES]; /* its words that are not in the log yet */
    struct door *door;
    unsigned connections; /* the library's */
    unsigned answering;   /* requests that are complete, and not answered to the end */
    uint64_t tend_due_ns;
    struct connection *oldest, *newest; /* in the order in which they began to rest */
    struct quota quota;                 /* bytes in buffers */
    struct stream streams[STREAMS_MAX];

    /* of the model, once the supervisor has told */
    bool known;
    char model_name[128], arch[32];
    struct model_chat chat;
    int64_t started; /* wall clock, for /v1/models */

    /* of the engine */
    char state[24];
    uint64_t state_ns, status_due_ns;
    bool asking_status, asking_model, asking_stats, asking_map;
    struct exchange *waiting; /* for documents */

    uint64_t refused_count, refused_said, log_due_ns;
    uint32_t log_lines; /* since log_due_ns was set */
    struct gateway_histogram first_token, inter_token;
    uint64_t finished[FINISH_REASONS];
};

#endif
