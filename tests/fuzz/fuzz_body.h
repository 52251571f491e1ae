/* SPDX-License-Identifier: Apache-2.0 */
/* Reads a body in a dialect, and checks that an accepted request is within all limits. */
#ifndef SLUICE_TESTS_FUZZ_FUZZ_BODY_H
#define SLUICE_TESTS_FUZZ_FUZZ_BODY_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/assert.h"
#include "procs/engine/gateway/api/request.h"

#define FUZZ_PROMPT_MAX 4096

/* Writes all that a template gets. */
#define FUZZ_TEMPLATE                                                                              \
    "{# <think></think><tool_call></tool_call> #}{{ tools | tojson }}{{ enable_thinking }}"        \
    "{% for m in messages %}{{ m | tojson }}{{ m.content }}{% endfor %}"

static inline void fuzz_ignored(void *arg, const char *name)
{
    (void)arg;
    sl_assert(name != NULL);
}

static inline void fuzz_body(const struct dialect *dialect, const struct chat_format *chat,
                             const char *body, size_t bytes)
{
    struct api_request request;
    struct error error;
    char param[API_PARAM_BYTES];
    struct api_limits limits = {
        .prompt_bytes = FUZZ_PROMPT_MAX, .chat = chat, .ignored = fuzz_ignored};
    if (api_request_parse(dialect, body, bytes, &limits, &request, param, &error) == 0) {
        sl_assert(request.nothing || (request.prompt != NULL) != (request.ids != NULL));
        sl_assert(request.prompt_bytes <= FUZZ_PROMPT_MAX &&
                  request.ids_count <= ENGINE_PROMPT_IDS_MAX);
        sl_assert(request.max_tokens >= 0 && request.max_tokens <= ENGINE_TOKENS_MAX);
        sl_assert(request.answers >= 1 && request.answers <= request.tries &&
                  request.tries <= API_ANSWERS_MAX);
        sl_assert(request.top_logprobs <= ENGINE_TOP_MAX &&
                  request.bias_count <= ENGINE_BIASES_MAX);
        sl_assert((request.grammar.kind != GRAMMAR_NONE) == (request.grammar_text != NULL));
        sl_assert(request.grammar.bytes <= GRAMMAR_TEXT_BYTES_MAX);
        sl_assert(request.stops.count <= STOP_TEXTS_MAX);
        sl_assert(!request.scored || (request.logprobs && !request.front));
        for (uint32_t i = 0; i < request.stops.count; i++)
            sl_assert(request.stops.bytes[i] > 0 && request.stops.bytes[i] <= STOP_TEXT_BYTES_MAX);
    } else {
        sl_assert(error.code != ERR_NONE && strlen(param) < API_PARAM_BYTES);
    }
    api_request_free(&request);
}

/* The model's template, or none. */
static inline const struct chat_format *fuzz_chat(bool with_template)
{
    static struct chat_format with, without;
    struct model_chat model = {.family = CHAT_PLAIN, .bos_first = 1, .bos = "<s>", .eos = "</s>"};
    struct error error;
    if (!with.program)
        sl_assert(chat_format_set(&with, &model, FUZZ_TEMPLATE, strlen(FUZZ_TEMPLATE), &error) ==
                  0);
    without.model = model;
    return with_template ? &with : &without;
}

#endif
