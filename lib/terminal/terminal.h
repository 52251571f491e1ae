/* SPDX-License-Identifier: Apache-2.0 */
/* Untrusted text on a terminal. A control character in the text of a model or in the metadata of a
 * file could move the cursor, change the title, or make the terminal type on its own. */
#ifndef SLUICE_TERMINAL_TERMINAL_H
#define SLUICE_TERMINAL_TERMINAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/* The start of a character whose other bytes are to come, in a text that is filtered in pieces;
 * initially zero. */
struct terminal_filter {
    unsigned char held[4], bytes;
};

#define TERMINAL_BYTES(bytes) (3 * (bytes) + 3) /* of the output, at most */

/* Copies text and makes control characters visible: ^[ for U+001B (as cat -v), U+FFFD for U+0080 to
 * U+009F and for each maximal subpart of invalid UTF-8. Line ends and tabs stay. A character is
 * written when its last byte is there. Returns the bytes written, valid UTF-8. */
size_t terminal_filter(struct terminal_filter *f, const char *text, size_t bytes, char *out);

/* If standard output is a terminal and raw is false, replaces `stdout` by a stream with the filter
 * above, line-buffered. Returns the stream to the terminal itself, for control sequences of our own
 * (flush `stdout` before). To be called once. */
FILE *terminal_guard(bool raw);

#endif
