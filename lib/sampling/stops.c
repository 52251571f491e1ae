/* SPDX-License-Identifier: Apache-2.0 */
/* Adds a text to the list of stop texts. */
#include "lib/sampling/stops.h"

#include <string.h>

int stop_texts_add(struct stop_texts *stops, const char *text, size_t bytes, struct error *error)
{
    if (stops->count == STOP_TEXTS_MAX)
        return error_set(error, ERR_BAD_INPUT, "at most %d stop texts are allowed", STOP_TEXTS_MAX);
    if (bytes == 0 || bytes > STOP_TEXT_BYTES_MAX)
        return error_set(error, ERR_BAD_INPUT, "a stop text must have 1 to %d bytes",
                         STOP_TEXT_BYTES_MAX);
    memcpy(stops->text[stops->count], text, bytes);
    stops->bytes[stops->count++] = (uint8_t)bytes;
    return 0;
}
