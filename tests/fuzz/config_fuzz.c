/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: a configuration file, and the list of devices in it. Any bytes give parameters
 * within their limits, or an error of one line. Accepted values are read back unchanged. */
#include <stdlib.h>
#include <string.h>

#include "config/params.h"
#include "config/storage.h"
#include "tests/fuzz/fuzz_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void is_one_line(const struct error *error)
{
    sl_assert(error->code != ERR_NONE && error->text[0] && !strchr(error->text, '\n'));
}

static void take_storage(const struct params *p)
{
    struct error error = {0};
    uint32_t count = storage_count(p);
    for (uint32_t i = 0; i <= count && i < 64; i++) {
        struct params own;
        struct storage_paths paths;
        if (storage_take(p, i, &own, &paths, &error) != 0) {
            is_one_line(&error);
            continue;
        }
        sl_assert(memchr(paths.path, 0, sizeof paths.path));
        sl_assert(memchr(paths.mirror, 0, sizeof paths.mirror));
        sl_assert(storage_read_bytes(&own, 1u << 20) <= storage_flight_bytes(&own, 1u << 20));
    }
}

/* What params_get prints is accepted by params_set, and gives the same text. */
static void again(const char *name, const char *value, const char *def, const char *help, void *arg)
{
    struct params copy;
    struct error error = {0};
    char text[PARAM_TEXT_BYTES + 64];
    (void)def;
    (void)help;
    (void)arg;
    params_defaults(&copy);
    sl_assert(params_set(&copy, name, value, &error) == 0);
    sl_assert(params_get(&copy, name, text, sizeof text) && strcmp(text, value) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_file f = fuzz_file_open(data, size);
    struct params p;
    struct error error = {0};
    params_defaults(&p);
    if (params_load(&p, f.path, &error) != 0) {
        is_one_line(&error);
    } else {
        params_each(&p, again, NULL);
        take_storage(&p);
    }
    fuzz_file_close(&f);
    return 0;
}
