/* SPDX-License-Identifier: Apache-2.0 */
/* Completions and snapshots of the engine: what requests over HTTP ask for.
 *
 *   submit.c, stream.c   struct stream: one completion, from a body to a sequence of compute to the
 *                        last event.
 *
 *     SUBMIT --(accepted)---------> FOLLOW --(end, error)--> ENDED --(all sent)--> free
 *       |                             |
 *       +--(disconnect)---> LEFT <----+--> free, once the cancel is sent
 *
 *     A stream whose client disconnects during submit waits for the number of its sequence, to
 *     cancel it.
 *   answers.c     several answers to one request: a stream each, of which the first leads: it has
 *                 the exchange, the prompt and, streamed, the output. The others begin in WAIT, and
 *                 an answer that is complete is DONE until all are
 *   ask.c         struct ask: a question about a prompt, such as the number of its tokens
 *   stored.c      responses that were stored
 *   slots.c       what runs, as llama.cpp's server states it
 *   stats.c       exchanges that wait for a snapshot of the engine
 *   ignored.c     what requests ask for that is ignored: counted, and one line of the log per
 * name */
#ifndef SLUICE_ENGINE_GATEWAY_SERVE_SERVE_H
#define SLUICE_ENGINE_GATEWAY_SERVE_SERVE_H

#include "ipc/rpc/async.h"
#include "ipc/rpc/json.h"
#include "lib/limit/limit.h"
#include "procs/engine/gateway/api/completion.h"
#include "procs/engine/gateway/http/http.h"
#include "procs/engine/gateway/pages/pages.h"

#define GATEWAY_MAGIC 0x47415445u
#define STREAM_MAGIC  0x5354524du
#define ASK_MAGIC     0x41534b21u
#define STREAMS_MAX   64 /* maximum of --http-streams */

/* ---- submit.c, stream.c ---------------------------------------------------------------------- */

enum stream_state {
    STREAM_FREE,
    STREAM_WAIT,
    STREAM_SUBMIT,
    STREAM_FOLLOW,
    STREAM_DONE,
    STREAM_ENDED,
    STREAM_LEFT
};

struct stream {
    uint32_t magic;
    enum stream_state state;
    struct gateway *gateway;
    struct stream *lead;       /* that of the request's first answer, often itself */
    struct exchange *exchange; /* NULL: the client disconnected; or it does not lead */
    int fd;                    /* of its connection, watched for its end */
    struct completion completion;
    bool side; /* of one that leads: the class of the request */
    uint64_t sequence, from, ticket;
    size_t prompt_buffered;  /* counted for the text of submit, while that call is in progress */
    size_t grammar_buffered; /* counted for the grammar and the ranges until the call was made */
    size_t types_buffered; /* counted for what the request keeps: of its tools, its conversation */
    json_t *stats;         /* of the engine, once the answer is complete; owned */
    uint64_t started_ns, output_ns, reply_ns, token_ns;
};

#define STREAM_STOPPING    "the engine is stopping"
#define STREAM_AHEAD_BYTES 16384 /* unsent bytes beyond which no more tokens are requested */

/* submit.c: from a body to a sequence. */
route_fn stream_start;
/* One that is free, among those of --http-streams; NULL with ERR_BUSY. */
struct stream *stream_unused(struct gateway *g, struct error *error);
/* Submits the prompt of the stream that leads, with the sampling of s. */
int stream_submit(struct stream *s, struct error *error);
/* Whether the engine takes a request now; else -1. */
int stream_may_start(const struct gateway *g, struct error *error);
/* What bodies are read with. */
struct api_limits stream_limits(struct gateway *g);
/* The prompt of a request, with the defaults of all else; borrowed. */
void stream_put_prompt(const struct api_request *r, struct engine_submit *out);
/* compute rejected it, or cannot get it. */
void stream_reject(struct stream *s, const struct error *error);

/* stream.c: what follows. */
void stream_free(struct stream *s); /* of one that leads, all of its request */
/* The response ends with an error, and no other answer is continued. */
void stream_fail(struct stream *s, const struct error *error);
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
/* Ends all streams and questions with an error. Their sequences end with the engine. */
void streams_stop(struct gateway *g);
/* Fills `fds` with streams whose connection is watched for its end; returns their number. */
nfds_t streams_poll(struct gateway *g, struct pollfd *fds, struct stream **of);

/* ---- answers.c ------------------------------------------------------------------------------- */

/* Takes the streams of all other answers to a request. ERR_BAD_INPUT: there are never so many;
 * ERR_BUSY. */
int answers_open(struct stream *lead, struct error *error);
/* Submits the next of them that waits; when none does, the prompt goes. */
void answers_submit(struct stream *lead);
/* compute has no room for it: it waits. False: it would wait forever. */
bool answers_postpone(struct stream *s, const struct error *error);
/* Whether an answer is not complete. */
bool answers_run(const struct stream *lead);
/* New tokens of all answers. */
uint64_t answers_tokens(const struct stream *lead);
/* Bytes of all answers that are not streamed, with those that did not fit. */
size_t answers_bytes(const struct stream *lead);
/* Ends all other answers, and their sequences. */
void answers_drop(struct stream *lead);
/* The answers that the client gets, once all are complete: the first one and, by `next`, the
 * rest. */
struct completion *answers_choose(struct stream *lead);

/* ---- ask.c ----------------------------------------------------------------------------------- */

#define ASKS_MAX 8 /* at once */

struct ask {
    uint32_t magic;
    struct exchange *exchange; /* NULL: it is free */
    struct api_request request;
    size_t buffered; /* counted for the prompt while the call is in progress */
    uint64_t ticket;
};

/* Answers a question of a dialect (dialect.h). */
route_fn ask_start;
void ask_forget(struct exchange *x);
/* Those that wait for compute get an error. */
void asks_refuse(struct gateway *g, const struct error *error);

/* ---- ignored.c ------------------------------------------------------------------------------- */

#define IGNORED_NAMES 64 /* more names are only counted */
#define IGNORED_BYTES 48

struct ignored {
    char name[IGNORED_NAMES][IGNORED_BYTES]; /* that are in the log */
    size_t count;
};

/* A field, or a value of one, that has no effect; of the gateway (api_limits.ignored). */
void ignored_add(void *gateway, const char *name);

/* ---- stats.c --------------------------------------------------------------------------------- */

/* Of the supervisor: all counters; residency. Of compute: the requests that it has. */
enum snapshot { SNAPSHOT_STATS, SNAPSHOT_MAP, SNAPSHOT_REQUESTS, SNAPSHOT__COUNT };

/* Converts a snapshot to text of a content type: malloc'ed; NULL when out of memory. */
struct doc_view {
    enum snapshot snapshot;
    const char *type;
    char *(*make)(const struct gateway *g, const json_t *doc, size_t *bytes);
};

route_fn stats_health, stats_all, stats_metrics, stats_page, stats_map, stats_requests,
    stats_describe, stats_model, stats_unsupported;
void stats_tick(struct gateway *g, uint64_t now_ns);
void stats_forget(struct exchange *x);

/* ---- stored.c -------------------------------------------------------------------------------- */

/* A response that was stored, by its id: is fetched; is deleted. */
route_fn stored_get, stored_remove;

/* ---- slots.c --------------------------------------------------------------------------------- */

route_fn slots_get;

/* ---- the process ----------------------------------------------------------------------------- */

struct gateway {
    uint32_t magic;
    struct child child;
    struct http http;
    struct metrics metrics;
    struct rpc_async *engine, *control;
    uint64_t tick_due_ns;
    struct stream streams[STREAMS_MAX];
    struct ask asks[ASKS_MAX];
    struct ignored ignored;
    struct stored stored;

    /* of the model, once the supervisor has sent it; then h->accepts */
    struct api_model model;
    struct chat_format chat;

    /* of the engine */
    char state[24];
    struct error fault; /* of the engine, for which all sequences fail; ERR_NONE: none */
    uint64_t oom_kills; /* of the engine's processes */
    uint64_t state_ns, status_due_ns;
    bool status_pending, model_pending, pending[SNAPSHOT__COUNT];
    struct exchange *waiting; /* for snapshots */

    /* What limits the speed: between the snapshot of mark_ns and the newest one; NULL: not yet
     * known. */
    struct limit_mark mark;
    uint64_t mark_ns;
    json_t *limit;
};

#endif
