/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: a plan file. Any bytes give a plan whose blob passes its own check, or an error of
 * one line. Input: the JSON up to the first NUL byte, then the tables. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/assert.h"
#include "lib/plan/plan.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

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
    free(plan);
    return 0;
}
