/* Bodies of completion requests from strangers. Input: one byte chooses the kind of request and the
 * family of the conversation, the rest is the body. What is taken keeps its bounds, and the search
 * for stops tells the same text however it is cut. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/assert.h"
#include "procs/gateway/request.h"

#define PROMPT_MAX 4096

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Whole, or character by character with what is held back carried along. */
static void try_stops(const struct api_request *r, const char *text, size_t bytes)
{
    bool hit = false, hit_whole;
    char *told = malloc(bytes + 1), *held = malloc(bytes + 1);
    sl_assert(told && held);
    size_t told_bytes = 0, held_bytes = 0;
    size_t whole = api_stop_scan(r, text, bytes, &hit_whole);
    sl_assert(whole <= bytes);
    for (size_t i = 0; i < bytes && !hit; i++) {
        held[held_bytes++] = text[i];
        size_t n = api_stop_scan(r, held, held_bytes, &hit);
        sl_assert(n <= held_bytes && (hit || held_bytes - n < API_STOP_BYTES_MAX));
        memcpy(told + told_bytes, held, n);
        told_bytes += n;
        memmove(held, held + n, held_bytes - n);
        held_bytes -= n;
    }
    /* The earliest stop in the text need not be the first that is complete, but both begin where
     * nothing was told. */
    sl_assert(hit == hit_whole && memcmp(told, text, told_bytes) == 0);
    sl_assert(hit ? told_bytes >= whole : told_bytes == whole);
    free(told);
    free(held);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct api_request request;
    struct error error;
    char param[API_PARAM_BYTES];
    if (size == 0 || size > 1u << 16)
        return 0;
    enum api_kind kind = data[0] & 1 ? API_CHAT : API_COMPLETION;
    struct model_chat chat = {
        .family = (data[0] >> 1) % CHAT__COUNT, .bos_first = 1, .bos = "<s>", .eos = "</s>"};
    struct api_limits limits = {PROMPT_MAX, &chat};
    const char *body = (const char *)data + 1;
    if (api_request_parse(kind, body, size - 1, &limits, &request, param, &error) == 0) {
        sl_assert((request.prompt != NULL) != (request.ids != NULL));
        sl_assert(request.prompt_bytes <= PROMPT_MAX && request.ids_count <= API_IDS_MAX);
        sl_assert(request.max_tokens >= 0 && request.max_tokens <= ENGINE_TOKENS_MAX);
        if (request.prompt)
            try_stops(&request, request.prompt, request.prompt_bytes);
    } else {
        sl_assert(error.code != ERR_NONE && strlen(param) < API_PARAM_BYTES);
    }
    api_request_free(&request);
    return 0;
}
