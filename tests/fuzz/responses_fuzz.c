/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: bodies of requests for responses. Input: one byte chooses whether the model has a
 * chat template, the rest is the body. Accepted requests are within all limits. */
#include "procs/engine/gateway/dialects/responses/responses.h"
#include "tests/fuzz/fuzz_body.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0 || size > 1u << 16)
        return 0;
    fuzz_body(&responses, fuzz_chat(data[0] & 2), (const char *)data + 1, size - 1);
    return 0;
}
