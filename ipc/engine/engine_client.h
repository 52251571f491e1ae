/* Client stubs: nobody else builds these requests by hand.
 * Engine = compute's endpoint (text), control = supervisor's endpoint. */
#ifndef SLUICE_IPC_ENGINE_ENGINE_CLIENT_H
#define SLUICE_IPC_ENGINE_ENGINE_CLIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ipc/rpc/rpc.h"
#include "lib/sampling/sampling.h"
#include "lib/sampling/stops.h"

/* {"temperature": ...}; NULL without memory. */
json_t *sampling_json(const struct sampling *s);

#define ENGINE_PROMPT_BYTES_MAX (512u << 10)
#define ENGINE_PROMPT_IDS_MAX   65536u
#define ENGINE_TOKENS_MAX       (1 << 24) /* max_tokens */
#define ENGINE_LOGPROBS_MAX     100
#define ENGINE_KEY_BYTES_MAX    64    /* printable ASCII */
#define ENGINE_WAIT_MS_MAX      60000 /* one long poll */
#define ENGINE_NEXT_IDS_MAX     4096  /* tokens or log-probabilities in one reply */

/* Deadlines of whole calls, a restart of compute within them included. */
#define ENGINE_SUBMIT_MS     30000
#define ENGINE_NEXT_GRACE_MS 15000 /* on top of the long poll itself */
#define ENGINE_CANCEL_MS     10000

struct engine_submit {
    const char *prompt; /* UTF-8 text, or NULL when prompt_ids is given */
    size_t prompt_bytes;
    const uint32_t *prompt_ids; /* borrowed */
    size_t prompt_ids_count;
    const uint32_t *forced; /* new tokens given instead of sampled, or NULL; borrowed. For
                               measuring: every engine computes the same token stream */
    size_t forced_count;    /* at most max_tokens; what goes beyond is sampled */
    int64_t max_tokens;     /* new tokens at most */
    bool ignore_eos;
    bool parse_special; /* control tokens written in the prompt count as such */
    int64_t logprobs;   /* 0: none; else the log-probability of each chosen token is recorded */
    bool score_prompt;  /* eval: record log-probabilities of the prompt's own tokens, sample nothing
                         */
    const char *request_key; /* client-made unique key: submitting it again returns the same id;
                                NULL lets the stub make one */
    struct stop_texts stops;
    struct sampling sampling;
};

/* Fresh request with the defaults of every field. */
void engine_submit_defaults(struct engine_submit *s);

/* What next() tells about a sequence. Arrays belong to `reply`, freed by engine_next_free. */
struct engine_next {
    json_t *reply;
    const uint32_t *ids; /* tokens from index `from` */
    size_t count;
    const char *text; /* their text: whole UTF-8 characters only */
    size_t text_bytes;
    uint64_t next; /* ask from here next time */
    bool done;
    const char *finish;     /* "length", "stop", "cancelled", "error" when done */
    struct error failure;   /* set when finish is "error" */
    json_t *stats;          /* object when done: the figures of generate --output json (borrowed) */
    const double *logprobs; /* of token from + i; -INFINITY where the token was impossible */
    size_t logprobs_count;
    const uint32_t *piece_bytes; /* with log-probabilities: bytes of each token's text */
    size_t piece_bytes_count;    /* 0: not told */
    bool stopped;                /* a text of `stop` ended the answer, and */
    uint64_t text_tokens;        /* so many of all its tokens have a part in the text */
};

/* Each returns 0 or -1 with *error. */
int engine_submit(struct rpc_client *c, const struct engine_submit *s, uint64_t *id,
                  struct error *error);
int engine_next(struct rpc_client *c, uint64_t id, uint64_t from, unsigned wait_ms,
                struct engine_next *next, struct error *error);
void engine_next_free(struct engine_next *next);
int engine_cancel(struct rpc_client *c, uint64_t id, struct error *error);

/* The same calls in halves, for a caller that does not wait (ipc/rpc/async.h). Requests are new
 * references; NULL without memory, for submit also with *error. read of next steals the reply,
 * whatever comes of it. */
json_t *engine_submit_request(const struct engine_submit *s, struct error *error);
int engine_submit_read(const json_t *reply, uint64_t *id, uint64_t *prompt_tokens,
                       struct error *error);
json_t *engine_next_request(uint64_t id, uint64_t from, unsigned wait_ms);
int engine_next_read(json_t *reply, uint64_t from, struct engine_next *next, struct error *error);
json_t *engine_cancel_request(uint64_t id);

/* The answering side (compute): the same JSON from the other end. Each returns 0 or -1 with
 * ERR_BAD_INPUT. Every field is checked against the tables and limits above; unknown fields are
 * refused. The prompt and key of a parsed submit are borrowed from body, its ids and forced
 * tokens are freed by engine_submit_parsed_free (which may be called after a failure, too). */
int engine_submit_parse(json_t *body, struct engine_submit *out, struct error *error);
void engine_submit_parsed_free(struct engine_submit *out);
int engine_next_parse(json_t *body, uint64_t *id, uint64_t *from, unsigned *wait_ms,
                      struct error *error);
int engine_cancel_parse(json_t *body, uint64_t *id, struct error *error);

/* Reply fields for rpc_reply. `reply` of next is not used; stats gets a reference of its own. Bytes
 * of the text that are not UTF-8 become U+FFFD. NULL without memory. */
json_t *engine_submit_reply(uint64_t id, uint32_t prompt_tokens);
json_t *engine_next_reply(const struct engine_next *next);

/* Control calls: status, stats, budget, throttle, restart, replace, drain, stop. `fields` is
 * stolen. */
int control_call(struct rpc_client *c, const char *op, json_t *fields, json_t **reply,
                 struct error *error);

/* Opens the clients of a run by its name; ERR_GONE with a helpful line when no engine of that name
 * runs. */
struct rpc_client *engine_client_open(const char *run_name, struct error *error);
struct rpc_client *control_client_open(const char *run_name, struct error *error);

#endif
