/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: the record of a tuning. Any bytes give one that can be written and read again, or an
 * error. */
#include <stdlib.h>
#include <string.h>

#include "lib/base/assert.h"
#include "lib/tunings/tunings.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct tuning t, again;
    struct error error = {0};
    if (tuning_parse((const char *)data, size, &t, &error) != 0) {
        sl_assert(error.code != ERR_NONE && !strchr(error.text, '\n'));
        return 0;
    }
    sl_assert(t.model[0] == '/' && t.max_loss > 0 && !t.plan[0] == !t.store[0]);
    char *text = tuning_format(&t, &error);
    sl_assert(text && tuning_parse(text, strlen(text), &again, &error) == 0);
    sl_assert(memcmp(&t, &again, sizeof t) == 0);
    free(text);
    return 0;
}
