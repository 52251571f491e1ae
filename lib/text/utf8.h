/* UTF-8 of text that is sent or shown piece by piece. */
#ifndef SLUICE_TEXT_UTF8_H
#define SLUICE_TEXT_UTF8_H

#include <stddef.h>

/* Length of the longest prefix of `text` that ends at a character boundary: what may be shown now.
 * Bytes that can never become valid UTF-8 count as complete (they are shown as U+FFFD). */
size_t utf8_complete_prefix(const char *text, size_t bytes);

/* Copies `text`, replacing invalid sequences by U+FFFD. Returns the bytes written, without the NUL
 * that it appends: at most 3 * bytes. `out` holds 3 * bytes + 1. */
size_t utf8_sanitise(const char *text, size_t bytes, char *out);

#endif
