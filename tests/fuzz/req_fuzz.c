/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: bodies of completion requests. Input: one byte chooses the dialect and the
 * chat template, the rest is the body. Accepted requests are within all limits. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/assert.h"
#include "procs/engine/gateway/api/request.h"
#include "procs/engine/gateway/dialects/openai/openai.h"

#define PROMPT_MAX 4096

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct api_request request;
    struct error error;
    char param[API_PARAM_BYTES];
    if (size == 0 || size > 1u << 16)
        return 0;
    const struct dialect *dialect = data[0] & 1 ? &openai_chat : &openai_completion;
    struct chat_format chat = {
        .model = {
            .family = (data[0] >> 1) % CHAT__COUNT, .bos_first = 1, .bos = "<s>", .eos = "</s>"}};
    struct api_limits limits = {.prompt_bytes = PROMPT_MAX, .chat = &chat};
    const char *body = (const char *)data + 1;
    if (api_request_parse(dialect, body, size - 1, &limits, &request, param, &error) == 0) {
        sl_assert((request.prompt != NULL) != (request.ids != NULL));
        sl_assert(request.prompt_bytes <= PROMPT_MAX && request.ids_count <= API_IDS_MAX);
        sl_assert(request.max_tokens >= 0 && request.max_tokens <= ENGINE_TOKENS_MAX);
        sl_assert(request.stops.count <= STOP_TEXTS_MAX);
        for (uint32_t i = 0; i < request.stops.count; i++)
            sl_assert(request.stops.bytes[i] > 0 && request.stops.bytes[i] <= STOP_TEXT_BYTES_MAX);
    } else {
        sl_assert(error.code != ERR_NONE && strlen(param) < API_PARAM_BYTES);
    }
    api_request_free(&request);
    return 0;
}
