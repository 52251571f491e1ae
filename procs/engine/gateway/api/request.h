/* SPDX-License-Identifier: Apache-2.0 */
/* Bodies of completion requests: untrusted JSON to an internal request. Pure; fuzzed.
 *
 * The fields are a table (request.tbl.h). Unknown fields, and fields that would change the response
 * but are not supported, are rejected by name; null counts as absent. */
#ifndef SLUICE_ENGINE_GATEWAY_API_REQUEST_H
#define SLUICE_ENGINE_GATEWAY_API_REQUEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ipc/engine/engine_client.h"
#include "lib/model/chat/format.h"

#define API_PARAM_BYTES 40
#define API_IDS_MAX     8192 /* of a prompt given as token ids */
/* Values in one body, with those in `arguments` of tool calls: a parsed tree takes up to 50 times
 * the memory of its text. */
#define API_VALUES_MAX         12288
#define API_COMPLETION_DEFAULT 16 /* default max_tokens of /v1/completions, as OpenAI's */

enum api_kind { API_COMPLETION, API_CHAT };

struct api_request {
    enum api_kind kind;
    char *prompt; /* malloc'ed, NUL-terminated; NULL: ids */
    size_t prompt_bytes;
    struct text_ranges special; /* of the prompt: where control tokens are parsed; malloc'ed */
    uint32_t *ids;              /* malloc'ed */
    size_t ids_count;
    int64_t max_tokens; /* ENGINE_TOKENS_MAX: what the context leaves */
    bool return_progress;
    bool stream, include_usage, ignore_eos, logprobs, cache_prompt;
    struct sampling sampling;
    struct stop_texts stops;
    struct answer_form answer; /* what is split off the text of the answer; its types are these */
    struct chat_types *types;  /* of the arguments of calls; owned, may be NULL */
    size_t types_bytes;
    bool inside; /* the answer begins with reasoning */
    char *front; /* of the answer: what the template wrote of it, a mark of reasoning; malloc'ed,
                    NULL: nothing */
};

struct api_limits {
    size_t prompt_bytes;
    const struct chat_format *chat;
    void (*beat)(void *arg); /* of a rendering (lib/model/chat/format.h) */
    void *beat_arg;
};

/* Who owns a request, until when: the caller of api_request_parse, until api_request_free, which
 * ends it in any state, any number of times. Of the body nothing is kept. In the gateway the owner
 * is the stream, from its start to stream_free; the prompt goes earlier, by api_request_submitted,
 * once the call that carries it is made. All else stays as long as the stream: its answer is split
 * with `answer` and `types`. */

/* 0, or -1 with ERR_BAD_INPUT (or ERR_NO_MEMORY) and the name of the field in `param` ("": none).
 * *out is freed by api_request_free in any case. */
int api_request_parse(enum api_kind kind, const char *text, size_t bytes,
                      const struct api_limits *limits, struct api_request *out,
                      char param[API_PARAM_BYTES], struct error *error);
void api_request_submitted(struct api_request *r);
void api_request_free(struct api_request *r);

/* family.c: at most CHAT_MESSAGES_MAX messages; continues: the answer continues the last one. */
int api_render_family(const struct api_limits *limits, const json_t *messages, bool continues,
                      struct chat_prompt *prompt, struct error *error);

/* The name of a model: its file name without directory and extension, at most cap - 1 bytes, cut
 * between two characters. */
void api_model_name(const char *path, char *out, size_t cap);

#endif
