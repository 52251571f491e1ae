/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: the file of measured rates. Any bytes give rates that can be written and read again,
 * or an error. */
#include <stdlib.h>
#include <string.h>

#include "lib/base/assert.h"
#include "lib/rates/rates.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct rates r, again;
    struct error error = {0};
    if (rates_parse((const char *)data, size, &r, &error) != 0) {
        sl_assert(error.code != ERR_NONE && !strchr(error.text, '\n'));
        sl_assert(r.cpus == 0 && r.gpus == 0);
        return 0;
    }
    for (uint32_t i = 0; i < r.cpus; i++)
        sl_assert(cost_cpu_known(&r.cpu[i].rate));
    for (uint32_t i = 0; i < r.gpus; i++)
        sl_assert(cost_gpu_known(&r.gpu[i].rate));
    char *text = rates_format(&r, &error);
    sl_assert(text && rates_parse(text, strlen(text), &again, &error) == 0);
    sl_assert(memcmp(&r, &again, sizeof r) == 0);
    free(text);
    return 0;
}
