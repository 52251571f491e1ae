/* SPDX-License-Identifier: Apache-2.0 */
/* Words of a shell's command line, for commands that a user copies from a message. */
#ifndef SLUICE_TEXT_SHELL_H
#define SLUICE_TEXT_SHELL_H

#include <stddef.h>

/* Bytes that are enough for any text of n bytes: a quote needs four. */
#define SHELL_WORD_BYTES(n) (4 * (n) + 3)

/* Writes `text` to `out` such that a POSIX shell reads it as one word: as it is if all of its
 * characters are known to be plain, else between quotes. Returns out; "" if it does not fit into
 * `size` bytes, at least 1. */
const char *shell_word(const char *text, char *out, size_t size);

#endif
