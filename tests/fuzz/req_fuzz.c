/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: bodies of OpenAI's completion requests. Input: one byte chooses the endpoint and the
 * chat template, the rest is the body. Accepted requests are within all limits. */
#include "procs/engine/gateway/dialects/openai/openai.h"
#include "tests/fuzz/fuzz_body.h"

#define TEMPLATE 0xfd /* conversations with a template, and so with tools */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0 || size > 1u << 16)
        return 0;
    const struct dialect *dialect = data[0] & 1 ? &openai_chat : &openai_completion;
    if (data[0] >= 0xfe)
        dialect = data[0] & 1 ? &openai_detokenize : &openai_tokenize;
    struct chat_format chat = {.model = {.family = (data[0] >> 1) % CHAT__COUNT,
                                         .bos_first = 1,
                                         .bos = "<s>",
                                         .eos = "</s>",
                                         .gap = {"<pre>", "<suf>", "<mid>"}}};
    fuzz_body(dialect, data[0] == TEMPLATE ? fuzz_chat(true) : &chat, (const char *)data + 1,
              size - 1);
    return 0;
}
