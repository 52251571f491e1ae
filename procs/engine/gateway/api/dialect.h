/* SPDX-License-Identifier: Apache-2.0 */
/* A dialect: one API that clients speak. It reads requests, and writes answers and errors.
 *
 * The rest of the gateway knows requests (request.h), what an answer consists of (completion.h)
 * and errors, but no word of an API; a dialect knows neither connections nor the engine. A row
 * of routes.tbl.h names the dialect of a path. Where an API has several endpoints for
 * completions, each is a dialect, and they share functions. Dialects are pure, and their parsers
 * are fuzzed.
 *
 * An answer that is streamed is this sequence of calls:
 *
 *   begin, then any of (text, call, progress, keep_alive), then end or fail
 *
 * `fail` may also come at any time instead of the rest. A text has one part of the answer,
 * reasoning or content, and arrives in many pieces; a call of a tool is one piece. An answer
 * that is not streamed is one call of `whole`. */
#ifndef SLUICE_ENGINE_GATEWAY_API_DIALECT_H
#define SLUICE_ENGINE_GATEWAY_API_DIALECT_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "lib/base/error.h"

#define API_PARAM_BYTES 40

struct answer_piece;
struct api_body;
struct api_request;
struct buffer;
struct completion;
struct completion_parts;
struct engine_progress;

/* How events are separated, and the type of a response that consists of them. */
struct framing {
    const char *type;
    const char *before, *after; /* an event; `after` is in no event */
    bool named;                 /* an event may have a name */
};
extern const struct framing framing_events; /* server-sent events */
extern const struct framing framing_lines;  /* a JSON object per line */

/* What is known of the model that the engine serves. */
struct api_model {
    char name[128];
    char arch[32];
    char type[16];              /* of most of its tensors' bytes, such as Q4_K */
    uint64_t bytes, parameters; /* of all tensors */
    uint64_t context;           /* of the engine, in tokens */
    uint64_t slots;             /* sequences that run at once */
    bool tools, thinking;       /* its template has calls of tools; reasoning */
    bool gap;                   /* its vocabulary has tokens for a suffix */
    int64_t started;            /* wall clock, seconds */
};

struct dialect {
    /* The body of a response that is an error. param: the field that is wrong; NULL or "": none.
     * A new reference, NULL without memory, like all of them. */
    json_t *(*error)(unsigned status, const struct error *error, const char *param);
    /* What a path states of the model that the engine serves, such as a list of models. NULL:
     * nothing. */
    json_t *(*describe)(const struct api_model *model);

    /* The rest is of requests with a body. A dialect without `parse` has none. */

    /* Numbers in a body, besides the API_VALUES_MAX values of any body (request.h): they take less
     * memory than texts, arrays and objects. */
    size_t ids_max;

    /* Reads a body, a JSON object. 0, or -1 with ERR_BAD_INPUT or ERR_NO_MEMORY, and the name of
     * the field in `param` ("": none). *out has its defaults, and is freed by the caller in any
     * case. */
    int (*parse)(const struct api_body *body, struct api_request *out, char param[API_PARAM_BYTES],
                 struct error *error);

    /* Of an endpoint that asks about a prompt, instead of a completion: the call of compute that
     * takes the prompt, such as "count"; NULL: none, the answer is in the request. */
    const char *question;
    /* Its response. reply: of compute; NULL without a call. NULL: the dialect has completions. */
    json_t *(*reply)(const struct api_request *r, const json_t *reply);

    /* Of completions. */
    const struct framing *framing;
    /* The engine has taken the request: its prompt has c->prompt_tokens. NULL: nothing is sent. */
    void (*begin)(struct completion *c);
    /* Text of a part. tokens: those that it consists of (completion.h), NULL: not requested. */
    void (*text)(struct completion *c, const struct answer_piece *p, const struct buffer *tokens);
    /* A call of a tool; c->calls were before it. */
    void (*call)(struct completion *c, const struct answer_piece *p);
    /* Before the first token. Dropping it is harmless. NULL: nothing is sent. */
    void (*progress)(struct completion *c, const struct engine_progress *p);
    /* Nothing was sent for some seconds. Dropping it is harmless. */
    void (*keep_alive)(struct completion *c);
    /* The answer is complete; why it ended is c->finish. */
    void (*end)(struct completion *c);
    /* All answers of the request are complete; c is the first. NULL: nothing is sent. */
    void (*close)(struct completion *c);
    /* The answer is incomplete. It never looks complete. */
    void (*fail)(struct completion *c, unsigned status, const struct error *error);

    /* Writes the body of a response that is not streamed. c is the first answer, and parts->next
     * has the others, where the dialect's requests ask for several. -1 without memory, or when it
     * is longer than the limit of the completion's quota. */
    int (*whole)(const struct completion *c, const struct completion_parts *parts, FILE *out);
};

#endif
