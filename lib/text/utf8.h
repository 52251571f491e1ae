/* SPDX-License-Identifier: Apache-2.0 */
/* UTF-8 of text that is sent or displayed in pieces. */
#ifndef SLUICE_TEXT_UTF8_H
#define SLUICE_TEXT_UTF8_H

#include <stdbool.h>
#include <stddef.h>

/* Length of the longest prefix of `text` that ends at a character boundary. Bytes that can never
 * become valid UTF-8 count as complete (they are replaced by U+FFFD). */
size_t utf8_complete_prefix(const char *text, size_t bytes);

/* Whether a character is at the start of `text`, which has at least one byte. *used: its bytes, or
 * those that one U+FFFD replaces, as utf8_sanitise does. */
bool utf8_next(const char *text, size_t bytes, size_t *used);

bool utf8_valid(const char *text, size_t bytes);

/* Copies `text`; each invalid sequence becomes U+FFFD. Appends a NUL. Returns the bytes written
 * without it, at most 3 * bytes. `out` has 3 * bytes + 1. */
size_t utf8_sanitise(const char *text, size_t bytes, char *out);

#endif
