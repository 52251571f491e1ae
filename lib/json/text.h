/* SPDX-License-Identifier: Apache-2.0 */
/* Texts of JSON may contain NUL: what strcmp takes for equal may be longer. */
#ifndef SLUICE_JSON_TEXT_H
#define SLUICE_JSON_TEXT_H

#include <jansson.h>
#include <stdbool.h>

/* Whether a value (NULL: none) is this text, all of it. */
bool json_text_is(const json_t *value, const char *text);

/* Whether it is a text that a C string can hold: without NUL. */
bool json_text_is_plain(const json_t *value);

#endif
