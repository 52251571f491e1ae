/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: a recording of another engine, as chunks and as tokens. What is accepted is a trace
 * that passes its checks. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "lib/trace/import/import.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct trace_import how = {.experts = 0};
    struct trace t;
    struct error error;
    if (size < 1 || size > 1u << 16)
        return 0;
    /* The first byte: the settings. */
    how.prompt = (enum trace_import_prompt)(data[0] % 3);
    how.experts = data[0] & 4 ? 64 : 0;
    how.dense = data[0] >> 3 & 3;
    how.expert_bytes = data[0] & 32 ? 0 : 1000;
    if (trace_import((const char *)data + 1, size - 1, &how, &t, &error) != 0)
        return 0;
    if (trace_check(&t.header, t.records, t.count, &error) != 0)
        abort();
    trace_free(&t);
    return 0;
}
