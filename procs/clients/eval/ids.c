/* SPDX-License-Identifier: Apache-2.0 */
/* Reads token ids from a file, and writes ids and losses as JSON. */
#include "procs/clients/eval/ids.h"

#include <stdlib.h>

#include "lib/base/bytes.h"
#include "lib/json/json_file.h"

#define FILE_BYTES_MAX (256 * MIB)

static int take(const char *path, const json_t *array, uint32_t **ids, size_t *count,
                struct error *error)
{
    *count = json_array_size(array);
    if (*count == 0)
        return error_set(error, ERR_BAD_INPUT, "%.200s: 'ids' is not an array of token ids", path);
    *ids = malloc(*count * sizeof **ids);
    if (!*ids)
        return error_set(error, ERR_NO_MEMORY, "out of memory (%zu ids)", *count);
    for (size_t i = 0; i < *count; i++) {
        const json_t *id = json_array_get(array, i);
        json_int_t value = json_integer_value(id);
        if (!json_is_integer(id) || value < 0 || value > INT32_MAX)
            return error_set(error, ERR_BAD_INPUT, "%.200s: element %zu of 'ids' is no token id",
                             path, i);
        (*ids)[i] = (uint32_t)value;
    }
    return 0;
}

int ids_read(const char *path, uint32_t **ids, size_t *count, struct error *error)
{
    json_t *doc = json_file(path, FILE_BYTES_MAX, error);
    if (!doc)
        return -1;
    int status = take(path, json_object_get(doc, "ids"), ids, count, error);
    json_decref(doc);
    return status;
}

json_t *ids_json(const uint32_t *ids, size_t count)
{
    json_t *array = json_array();
    for (size_t i = 0; i < count; i++)
        json_array_append_new(array, json_integer(ids[i]));
    return array;
}

json_t *ids_losses_json(const double *nll, size_t count)
{
    json_t *array = json_array();
    for (size_t i = 0; i < count; i++)
        json_array_append_new(array, json_real(nll[i]));
    return array;
}
