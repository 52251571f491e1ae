/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: a plan file. Any bytes give a plan whose blob passes its own check, or an error of
 * one line. Input: the JSON up to the first NUL byte, then the tables. The input's last bytes also
 * change a valid blob, which every process that maps it checks again. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/assert.h"
#include "lib/plan/plan.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Changes one byte of the blob, or a word of its header, per group of four input bytes. */
static void check_changed(struct plan *plan, const uint8_t *data, size_t size)
{
    uint64_t bytes = plan->bytes;
    uint8_t *blob = malloc(bytes);
    sl_assert(blob);
    for (size_t i = 0; i + 4 <= size && i < 64; i += 4) {
        struct error error = {0};
        uint64_t at = (uint64_t)(data[i] | data[i + 1] << 8 | (data[i + 2] & 0x7f) << 16);
        memcpy(blob, plan, bytes);
        if (data[i + 2] & 0x80) /* the header, the shape and the first arrays are at the start */
            at %= sizeof(struct plan) < bytes ? sizeof(struct plan) : bytes;
        blob[at % bytes] = data[i + 3];
        if (plan_check((const struct plan *)(const void *)blob, bytes, &error) != 0)
            sl_assert(error.code != ERR_NONE && error.text[0] && !strchr(error.text, '\n'));
    }
    free(blob);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct error error = {0};
    const uint8_t *end = size ? memchr(data, 0, size) : NULL;
    size_t text = end ? (size_t)(end - data) : size, rest = end ? size - text - 1 : 0;
    struct plan *plan = plan_parse((const char *)data, text, end ? end + 1 : NULL, rest, &error);
    if (!plan) {
        sl_assert(error.code != ERR_NONE && error.text[0] && !strchr(error.text, '\n'));
        return 0;
    }
    sl_assert(plan_check(plan, plan->bytes, &error) == 0);
    check_changed(plan, data + (size > 64 ? size - 64 : 0), size > 64 ? 64 : size);
    free(plan);
    return 0;
}
