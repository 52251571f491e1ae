/* SPDX-License-Identifier: Apache-2.0 */
/* The main thread of compute: the rpc server, requests and responses, controls, heartbeat. It
 * admits requests; the runner (runner/runner.h) computes them. */
#ifndef SLUICE_ENGINE_COMPUTE_MAIN_COMPUTE_H
#define SLUICE_ENGINE_COMPUTE_MAIN_COMPUTE_H

#include <stdbool.h>
#include <stdint.h>

#include "ipc/engine/engine_client.h"
#include "ipc/rpc/rpc.h"
#include "lib/model/tokenizer/tokenizer.h"
#include "procs/engine/child/child.h"
#include "procs/engine/compute/constraints/grammars.h"
#include "procs/engine/compute/runner/runner.h"
#include "procs/engine/compute/runner/stops.h"

#define COMPUTE_MAGIC 0x434d5055u

#define RPC_CONTEXTS 256
/* A reply also ends when this is full. The longest token piece that inspect accepts fits. */
#define RESPONSE_TEXT_BYTES (64u << 10)

struct pending { /* a next() that waits for tokens */
    struct rpc_request *request;
    uint64_t id, from, deadline_ns;
};

struct response { /* buffers of the current reply */
    uint32_t ids[ENGINE_NEXT_IDS_MAX];
    double logprobs[ENGINE_NEXT_IDS_MAX];
    uint32_t piece_bytes[ENGINE_NEXT_IDS_MAX];
    struct engine_top top[ENGINE_NEXT_TOPS_MAX * ENGINE_TOP_MAX];
    char text[RESPONSE_TEXT_BYTES];
};

struct compute {
    uint32_t magic;
    struct child child;
    struct tokenizer *tokenizer;
    struct rpc_server *rpc;
    struct runner runner;
    struct grammars grammars;
    struct pending pending[RPC_CONTEXTS];
    uint32_t pending_count;
    uint64_t rejected; /* requests; the server counts malformed ones itself */
    struct response response;
};

/* requests.c */
/* Handles the calls that have arrived. */
void requests_take(struct compute *c);
void requests_tick(struct compute *c, uint64_t now_ns); /* idle requests, gauges */
struct kv_request *request_find(struct compute *c, uint64_t id, uint32_t *number);

/* extras.c: what only few requests have. At submit, memory for it in the row, and the compiled
 * grammar; -1 with *error. Then the grammars of a predecessor's sequences: without one, the runner
 * ends its sequence. */
int extras_put(struct compute *c, uint32_t number, const struct engine_submit *s,
               struct error *error);
void extras_compile_again(struct compute *c);

/* The tokens [first, end) of a sequence are those of the text that the client gave as the prompt;
 * `at` is the place of the first token of `log`. All 0: there are none. ends: tokens that end
 * answers are text like others, because they do not end this one. */
struct client_text {
    uint32_t at, first, end;
    bool ends;
};

/* response_text.c: fills ids and text of the first tokens of `log` (count of them); returns how
 * many can be sent now. Tokens in the middle of a character are held back unless the sequence
 * ended. The text ends at `cut` (its token counted in `log`); ids do not. marks: of the call
 * (engine_client.h); outside them, control tokens and ends have no text. Tokens of `prompt` have
 * the text that the client wrote: names of control tokens, and no blank that the tokenizer added.
 * Where prompt->at is above prompt->first, the token before `log` is read, too. */
size_t response_gather(struct response *a, const struct tokenizer *tokenizer,
                       const _Atomic uint32_t *log, uint32_t count, bool ended, struct stop_cut cut,
                       const struct engine_marks *marks, const struct client_text *prompt,
                       size_t *text_bytes);

/* responses.c */
void responses_add(struct compute *c, struct rpc_request *request);
void responses_tick(struct compute *c, uint64_t now_ns);

/* progress.c: of a sequence that has not generated yet. */
struct engine_progress progress_of(const struct compute *c, const struct kv_request *q,
                                   uint64_t now_ns);

/* Every sequence that has not ended, in the order of their arrival: a new array. */
json_t *progress_of_all(const struct compute *c, uint64_t now_ns);
/* prefixes.c: the fields of a reply; `clear`: begins to remove them all. */
json_t *prefixes_reply(struct compute *c, bool clear);

/* stats.c */
json_t *stats_json(const struct compute *c, uint32_t number);

static inline bool kv_state_ended(uint32_t state)
{
    return state == KV_DONE || state == KV_FAILED || state == KV_CANCELLED;
}

/* prompt.c: the tokens of a submit; the caller frees p->ids. */
struct prompt {
    uint32_t *ids;
    size_t count;
};
int prompt_encode(const struct compute *c, const struct engine_submit *s, struct prompt *p,
                  struct error *error);
/* The same, and the prompt must fit the context. */
int prompt_make(const struct compute *c, const struct engine_submit *s, struct prompt *p,
                struct error *error);

#endif
