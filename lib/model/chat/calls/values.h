/* SPDX-License-Identifier: Apache-2.0 */
/* Arguments of calls as JSON, and the bounds that all forms of calls have. */
#ifndef SLUICE_MODEL_CHAT_CALLS_VALUES_H
#define SLUICE_MODEL_CHAT_CALLS_VALUES_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#define CALL_DEPTH_MAX      64   /* of arguments; a deeper call is content */
#define CALL_CONTAINERS_MAX 4096 /* in arguments; one takes 250 bytes */
#define CALL_VALUE_FLAGS    (JSON_REJECT_DUPLICATES | JSON_DECODE_ANY | JSON_ALLOW_NUL)

/* Whether a JSON text is beyond the bounds. */
bool call_value_too_much(const char *text, size_t bytes);
/* The value of a whole JSON text; the caller owns it. NULL: it is none, is beyond the bounds, or
 * memory is short. */
json_t *call_value_read(const char *text, size_t bytes);
/* The JSON text of a value, which the caller frees. Numbers have as few digits as give the same
 * value: 0.1, not 0.10000000000000001. NULL: memory is short. */
char *call_value_text(const json_t *value);

#endif
