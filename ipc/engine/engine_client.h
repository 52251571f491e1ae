/* SPDX-License-Identifier: Apache-2.0 */
/* Client stubs: the only code that builds these requests. Engine: compute's endpoint (text).
 * Control: the supervisor's endpoint. */
#ifndef SLUICE_IPC_ENGINE_ENGINE_CLIENT_H
#define SLUICE_IPC_ENGINE_ENGINE_CLIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ipc/rpc/rpc.h"
#include "lib/grammar/grammar.h"
#include "lib/sampling/sampler.h"
#include "lib/sampling/sampling.h"
#include "lib/sampling/stops.h"
#include "lib/text/ranges.h"

/* {"temperature": ...}; NULL without memory. */
json_t *sampling_json(const struct sampling *s);

#define ENGINE_PROMPT_BYTES_MAX (512u << 10)
#define ENGINE_PROMPT_IDS_MAX   65536u
#define ENGINE_TOKENS_MAX       (1 << 24) /* max_tokens */
#define ENGINE_LOGPROBS_MAX     100
#define ENGINE_TOP_MAX          20 /* most probable tokens beside each token */
#define ENGINE_BIASES_MAX       300
#define ENGINE_BIAS_MAX         100.0  /* each from - this to this */
#define ENGINE_RANGES_MAX       32768u /* of the prompt: more than two per value of a body */
#define ENGINE_KEY_BYTES_MAX    64     /* printable ASCII */
#define ENGINE_CLIENT_BYTES_MAX 63     /* printable ASCII */
#define ENGINE_WAIT_MS_MAX      60000  /* maximum of one long poll */
#define ENGINE_MARKS_MAX        16
#define ENGINE_MARK_BYTES_MAX   64
#define ENGINE_NEXT_IDS_MAX     4096 /* tokens or log-probabilities in one reply */
#define ENGINE_NEXT_TOPS_MAX    128  /* tokens in one reply with the most probable ones */

/* Deadlines of whole calls, including a restart of compute meanwhile. */
#define ENGINE_SUBMIT_MS     30000
#define ENGINE_NEXT_GRACE_MS 15000 /* on top of the long poll itself */
#define ENGINE_CANCEL_MS     10000

struct engine_submit {
    const char *prompt; /* UTF-8 text, or NULL when prompt_ids is given */
    size_t prompt_bytes;
    const uint32_t *prompt_ids; /* borrowed */
    size_t prompt_ids_count;
    const uint32_t *forced; /* forced new tokens instead of sampled ones, or NULL; borrowed. For
                             * measurements: every engine computes the same token stream */
    size_t forced_count;    /* at most max_tokens; tokens beyond are sampled */
    int64_t max_tokens;     /* maximum new tokens */
    bool ignore_eos;
    struct text_ranges special; /* of the prompt: where the text of a control token is that token.
                                 * text_ranges_all: everywhere. Borrowed */
    bool cache_prompt; /* reuse kept keys and values, and leave its own; false: for measurements */
    bool side;         /* a title, tags: after conversations, and kept less long */
    int64_t logprobs;  /* 0: none; else record the log-probability of each chosen token */
    int64_t top_logprobs; /* also that of so many most probable tokens: 0 to ENGINE_TOP_MAX */
    bool score_prompt;    /* record the log-probabilities of the prompt's tokens, too: they are the
                        * first ones of next(), and max_tokens new ones follow. Those of a text
                        * have the text that was given: names of control tokens, no added blank */
    const char *request_key; /* unique key made by the client: a repeated submit returns the same
                              * id; NULL: made by the stub */
    int64_t
        gateway; /* incarnation of the gateway that submits it; 0: another client. It is cancelled
                              * when that process ends */
    const char *client; /* who asks, shown by top; NULL: not said. Borrowed */
    struct stop_texts stops;
    struct sampling sampling;
    /* What the answer keeps to (kind GRAMMAR_NONE: nothing); borrowed. The engine compiles it
     * before it accepts the request: what cannot be enforced is ERR_BAD_INPUT of the submit. */
    struct grammar_source grammar;
    const struct sampler_bias *bias; /* borrowed; of several for a token the last one counts */
    size_t bias_count;               /* at most ENGINE_BIASES_MAX */
};

/* Initialises a request with the defaults of all fields. */
void engine_submit_defaults(struct engine_submit *s);

/* Marks that a client looks for in the text: a control token whose name occurs in one of them has
 * its name as text. Borrowed, NUL-terminated. */
struct engine_marks {
    const char *text[ENGINE_MARKS_MAX];
    uint32_t count;
};

/* The progress of a sequence before its first token. */
struct engine_progress {
    bool known;            /* false: it generates, has ended, or the engine does not report it */
    uint64_t queue;        /* sequences that end before it starts; 0: it is computed */
    uint64_t tokens, done; /* of the prompt; those computed or kept, */
    uint64_t cached;       /* kept ones */
    uint64_t time_ms;      /* since its computation began */
    uint64_t left_ms;      /* estimate; UINT64_MAX: not known */
};

/* One of the most probable tokens at a place. */
struct engine_top {
    uint32_t id, bytes;
    double logprob;
    const char *text; /* any bytes; of a control token its name */
};

/* Result of next(). Arrays belong to `reply`, freed by engine_next_free. */
struct engine_next {
    json_t *reply;
    const uint32_t *ids; /* tokens from index `from` */
    size_t count;
    const char *text; /* their text: complete UTF-8 characters only */
    size_t text_bytes;
    uint64_t next; /* value of `from` for the next call */
    bool done;
    const char *finish;     /* "length", "stop", "cancelled", "error" when done */
    struct error failure;   /* set when finish is "error" */
    json_t *stats;          /* object when done: the statistics of generate --output json
                             * (borrowed) */
    const double *logprobs; /* of token from + i; -INFINITY where the probability was 0 */
    size_t logprobs_count;
    const uint32_t *piece_bytes; /* with log-probabilities: bytes of each token's text */
    size_t piece_bytes_count;    /* 0: not reported */
    /* With pieces: their bytes, where `text` replaced some of them; NULL: it is the text. */
    const char *raw;
    size_t raw_bytes;
    const struct engine_top
        *top;             /* those of token i: top_each of them from top[i * top_each] on, the
                                   * most probable one first */
    uint32_t top_each;    /* 0: not requested */
    bool stopped;         /* a stop sequence ended the response */
    uint64_t text_tokens; /* with `stopped`: tokens that contributed to the text */
    uint32_t stop;        /* with `stopped`: which of the stop texts */
    struct engine_progress progress;
};

/* Blocking calls; each returns 0, or -1 with *error. */
int engine_submit(struct rpc_client *c, const struct engine_submit *s, uint64_t *id,
                  struct error *error);
int engine_next(struct rpc_client *c, uint64_t id, uint64_t from, unsigned wait_ms,
                struct engine_next *next, struct error *error);
void engine_next_free(struct engine_next *next);
int engine_cancel(struct rpc_client *c, uint64_t id, struct error *error);
/* How many tokens the prompt of a submit has, and the engine's context (--ctx-size). */
int engine_count(struct rpc_client *c, const struct engine_submit *s, uint64_t *tokens,
                 uint64_t *context, struct error *error);

/* The calls above, split into request and reply for non-blocking callers (ipc/rpc/async.h).
 * Requests are new references; NULL when out of memory, for submit also with *error.
 * engine_next_read always steals the reply. */
json_t *engine_submit_request(const struct engine_submit *s, struct error *error);
int engine_submit_read(const json_t *reply, uint64_t *id, uint64_t *prompt_tokens,
                       struct error *error);
/* marks NULL: control tokens have no text. */
json_t *engine_next_request(uint64_t id, uint64_t from, unsigned wait_ms,
                            const struct engine_marks *marks);
int engine_next_read(json_t *reply, uint64_t from, struct engine_next *next, struct error *error);
json_t *engine_cancel_request(uint64_t id);
/* Also of encode and decode. */
json_t *engine_count_request(const struct engine_submit *s, struct error *error);

/* Server side (compute). Each returns 0, or -1 with ERR_BAD_INPUT. Every field is checked against
 * the tables and limits above; unknown fields are rejected. Prompt and key of a parsed submit are
 * borrowed from body, and so are grammar and marks; its ids, forced tokens, ranges and biases are
 * freed by engine_submit_parsed_free, which may be called after a failure, too. */
int engine_submit_parse(json_t *body, struct engine_submit *out, struct error *error);
void engine_submit_parsed_free(struct engine_submit *out);
int engine_next_parse(json_t *body, uint64_t *id, uint64_t *from, unsigned *wait_ms,
                      struct error *error);
/* The marks of a body that engine_next_parse took, borrowed from it. */
void engine_next_marks(const json_t *body, struct engine_marks *marks);
int engine_cancel_parse(json_t *body, uint64_t *id, struct error *error);
/* Also of encode and decode. Sets only the fields of the prompt in *out. */
int engine_count_parse(json_t *body, struct engine_submit *out, struct error *error);

/* Reply fields for rpc_reply. `reply` of next is not used; a reference to stats is added. Text
 * bytes that are not UTF-8 become U+FFFD. NULL when out of memory. */
json_t *engine_submit_reply(uint64_t id, uint32_t prompt_tokens);
json_t *engine_next_reply(const struct engine_next *next);
json_t *engine_count_reply(uint64_t tokens, uint32_t context);
/* bos: whether the first id is one that the tokenizer adds. */
json_t *engine_encode_reply(const uint32_t *ids, size_t count, bool bos);
json_t *engine_decode_reply(const char *text, size_t bytes);

/* Control calls: status, stats, budget, throttle, restart, replace, drain, stop. `fields` is
 * stolen. */
int control_call(struct rpc_client *c, const char *op, json_t *fields, json_t **reply,
                 struct error *error);

/* Opens a client of an engine by name; ERR_GONE with instructions when no engine of that name
 * runs. */
struct rpc_client *engine_client_open(const char *run_name, struct error *error);
struct rpc_client *control_client_open(const char *run_name, struct error *error);

#endif
