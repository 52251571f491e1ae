/* SPDX-License-Identifier: Apache-2.0 */
/* How many values a text of JSON has at most: known before it is parsed, since a parsed tree takes up to 50 times the
 * memory of its text. */
#ifndef SLUICE_JSON_COUNT_H
#define SLUICE_JSON_COUNT_H

#include <stddef.h>

/* An upper bound; of a text that is no JSON, too. */
size_t json_count_values(const char *text, size_t bytes);

#endif
