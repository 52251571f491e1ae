/* SPDX-License-Identifier: Apache-2.0 */
/* Stop texts: texts that end a response. */
#ifndef SLUICE_SAMPLING_STOPS_H
#define SLUICE_SAMPLING_STOPS_H

#include <stddef.h>
#include <stdint.h>

#include "lib/base/error.h"

#define STOP_TEXTS_MAX      8
#define STOP_TEXT_BYTES_MAX 128 /* per text */

/* The stop texts of a request; they are not part of the response. Fixed size: also used in shared
 * memory. */
struct stop_texts {
    uint32_t count;
    uint8_t bytes[STOP_TEXTS_MAX];
    char text[STOP_TEXTS_MAX][STOP_TEXT_BYTES_MAX]; /* not NUL-terminated */
};

/* Adds a text of 1 to STOP_TEXT_BYTES_MAX bytes of UTF-8. -1 with ERR_BAD_INPUT. */
int stop_texts_add(struct stop_texts *stops, const char *text, size_t bytes, struct error *error);

#endif
