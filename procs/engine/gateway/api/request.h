/* SPDX-License-Identifier: Apache-2.0 */
/* A completion request, in no API's words: what the engine is to do, and how the answer is split. A
 * dialect (dialect.h) makes it from a body, which is untrusted. Pure; fuzzed. */
#ifndef SLUICE_ENGINE_GATEWAY_API_REQUEST_H
#define SLUICE_ENGINE_GATEWAY_API_REQUEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ipc/engine/engine_client.h"
#include "lib/model/chat/format.h"
#include "procs/engine/gateway/api/dialect.h"
#include "procs/engine/gateway/api/stored.h"

#define API_IDS_MAX     8192 /* of a prompt given as token ids */
#define API_ANSWERS_MAX 64   /* to one request */
/* Values in one body, with those in `arguments` of tool calls: a parsed tree takes up to 50 times
 * the memory of its text. */
#define API_VALUES_MAX          12288
#define API_TOOL_NAME_BYTES_MAX 256 /* the grammar and the answer repeat it */

/* Whether a request is a side request (side.c): a title, tags. By what its messages say, then by
 * how long its answer may be. */
enum api_side { API_SIDE_NO, API_SIDE_IF_SHORT, API_SIDE_MARKED };
#define API_SIDE_TOKENS 100 /* at most, where nothing was answered before */

struct api_request {
    char *prompt; /* malloc'ed, NUL-terminated; NULL: ids */
    size_t prompt_bytes;
    struct text_ranges special; /* of the prompt: where control tokens are parsed; malloc'ed */
    uint32_t *ids;              /* malloc'ed */
    size_t ids_count;
    int64_t max_tokens; /* ENGINE_TOKENS_MAX: what the context leaves */
    bool stream, ignore_eos, logprobs, cache_prompt;
    unsigned answers; /* how many the client gets */
    unsigned
        tries; /* how many are computed for that; the most probable ones are chosen. 0 while the
                     * body is read: as many as `answers` */
    enum api_side side; /* api_is_side */
    unsigned wants;     /* what else the client wants of the answer: flags of the dialect */
    struct sampling sampling;
    struct stop_texts stops;
    struct answer_form answer; /* what is split off the text of the answer; its types are these */
    struct chat_types *types;  /* of the arguments of calls; owned, may be NULL */
    size_t types_bytes;
    json_t *tool_names; /* of the dialect, by the names that the model writes; owned; NULL: none */
    size_t tool_names_bytes;
    /* What the answer keeps to (lib/grammar/grammar.h); its text is grammar_text, malloc'ed. */
    struct grammar_source grammar;
    char *grammar_text;
    json_t *grammar_lines; /* what lines of the grammar are of (calls_write); owned; NULL: none */
    bool grammar_optional; /* an answer without it is better than none */
    unsigned left_out;     /* schemas, by api_leave_out */
    struct sampler_bias *bias; /* malloc'ed */
    size_t bias_count;
    unsigned top_logprobs; /* alternatives of each token that are wanted, too */
    bool scored;        /* the answer begins with the prompt's tokens and their log-probabilities */
    bool store;         /* the response is to be stored (stored.h), with */
    char *conversation; /* what led to it, in the form of the dialect; malloc'ed; NULL: nothing */
    char previous[STORED_ID_BYTES]; /* the stored response that this one continues; "": none */
    bool inside;                    /* the answer begins with reasoning */
    char *front;   /* of the answer: what the template wrote of it, a mark of reasoning; malloc'ed,
                    NULL: nothing */
    bool nothing;  /* is to be computed: there is no prompt, and the answer is empty */
    bool one_call; /* the answer has at most one call of a tool, and ends with it */
};

struct api_limits {
    size_t prompt_bytes;
    const struct chat_format *chat;
    void (*beat)(void *arg); /* of a rendering (lib/model/chat/format.h) */
    void *beat_arg;
    /* Told the name of each field that is ignored because the dialect does not have it; NULL:
     * nobody is told. */
    void (*ignored)(void *arg, const char *name);
    void *ignored_arg;
    struct stored *stored; /* responses that requests can continue; NULL: none */
};

/* What a dialect reads. */
struct api_body {
    const json_t *json; /* an object */
    size_t values;      /* in it */
    const struct api_limits *limits;
};

/* Who owns a request, until when: the caller of api_request_parse, until api_request_free, which
 * ends it in any state, any number of times. Of the body nothing is kept. In the gateway the owner
 * is the completion, from the start of its stream to stream_free; the prompt goes earlier, by
 * api_request_submitted, once the call that carries it is made. All else stays as long as the
 * stream: its answer is split with `answer` and `types`. */

/* 0, or -1 with ERR_BAD_INPUT (or ERR_NO_MEMORY) and the name of the field in `param` ("": none).
 * *out is freed by api_request_free in any case. */
int api_request_parse(const struct dialect *dialect, const char *text, size_t bytes,
                      const struct api_limits *limits, struct api_request *out,
                      char param[API_PARAM_BYTES], struct error *error);
void api_request_submitted(struct api_request *r);
/* The answer has no grammar. */
void api_drop_grammar(struct api_request *r);
/* Memory of what tells its errors. */
size_t api_lines_bytes(const struct api_request *r);
void api_request_free(struct api_request *r);

/* What a client demands of an answer; borrowed. */
struct answer_shape {
    const json_t *schema;  /* of its text, an object; NULL: any text */
    bool object;           /* its text is a JSON object */
    bool no_calls;         /* the tools are not for this answer */
    bool call_needed;      /* the answer is a call of a tool, */
    const char *call_name; /* of this one; NULL: of any */
    bool strict;           /* calls keep to the schemas of their tools, or the request fails */
    const json_t *allowed; /* the tools that may be called, an array of the client; NULL: all */
};

/* A conversation, as a dialect gives it to the model's template: JSON in the form of
 * lib/model/chat/format.h, borrowed. */
struct api_conversation {
    const json_t *messages;  /* api_render checks their number */
    const json_t *tools;     /* that the answer may call; NULL: none */
    const json_t *variables; /* of the template; NULL: none */
    bool continues;          /* the answer continues the last message, the assistant's */
    bool no_generation_prompt;
    bool unsplit; /* the answer is one text: reasoning and calls stay in it */
    struct answer_shape shape;
};

/* render.c: the prompt of a conversation, and how its answer is split. 0, or -1 with ERR_BAD_INPUT
 * or ERR_NO_MEMORY. The limits are checked here, for every dialect: 1 to CHAT_MESSAGES_MAX
 * messages, API_VALUES_MAX values, names of tools of API_TOOL_NAME_BYTES_MAX bytes, and
 * ENGINE_RANGES_MAX pieces that the template writes. */
int api_render(const struct api_body *body, const struct api_conversation *c,
               struct api_request *out, struct error *error);
/* side.c: what the messages and tools say; messages may have any form. Whether a request is one. */
enum api_side api_side_of(const struct api_conversation *c);
bool api_is_side(const struct api_request *r);

/* constraints/constrain.c: what the answer keeps to, after its reasoning. inside: it begins with
 * that. Schemas that need not be enforced and cannot be are left out, which limits->ignored (limits
 * may be NULL) is told. -1 with ERR_BAD_INPUT: the model's form of calls cannot be enforced, or the
 * call is of no tool. */
int api_constrain(const struct answer_form *form, const struct api_conversation *c, bool inside,
                  const struct api_limits *limits, struct api_request *r, struct error *error);
/* The same of a prompt that is no conversation: from the beginning of the answer. */
int api_constrain_text(const struct answer_shape *shape, struct api_request *r,
                       struct error *error);
/* The answer keeps to a text of the client. */
int api_grammar(struct api_request *out, enum grammar_kind kind, const char *text, size_t bytes,
                struct error *error);
int api_grammar_of_schema(struct api_request *out, const json_t *schema, struct error *error);
/* constraints/refused.c: an error of the engine about a grammar, told of the tool that it is about.
 * False: it is another one. */
bool api_explain(const struct api_request *r, struct error *error);
/* Whether an error is about a grammar. */
bool api_is_of_grammar(const struct error *error);
/* Leaves the schema out of the grammar that an error of the engine is about: that argument, or that
 * call, may have any values. `what` gets what that is called. False: the error is about no schema,
 * or too many were left out; the grammar is as before. */
#define API_LEFT_OUT_BYTES 80
#define API_LEFT_OUT_ALL   "schemas of all tools"
bool api_leave_out(struct api_request *r, const struct error *error, char what[API_LEFT_OUT_BYTES]);
void api_name_left_out(const char *tool, char what[API_LEFT_OUT_BYTES]);

/* Whether an answer can continue the last message: it is the assistant's, without calls. */
bool api_can_continue(const json_t *messages);

/* family.c: the prompt where the model has no template that can be executed. messages: 1 to
 * CHAT_MESSAGES_MAX. */
int api_render_family(const struct api_limits *limits, const json_t *messages, bool continues,
                      struct chat_prompt *prompt, struct error *error);

/* The name of a model: its file name without directory and extension, at most cap - 1 bytes, cut
 * between two characters. */
void api_model_name(const char *path, char *out, size_t cap);

#endif
