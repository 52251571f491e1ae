/* SPDX-License-Identifier: Apache-2.0 */
/* Bracketed paste: text between ESC [ 200 ~ and ESC [ 201 ~. Pure functions.
 *
 * A paste is one input, whatever lines it has: line ends inside are kept, trailing ones are not.
 * Other control characters are dropped because the text is untrusted. */
#ifndef SLUICE_CLIENTS_REPL_PASTE_H
#define SLUICE_CLIENTS_REPL_PASTE_H

#include <stdbool.h>
#include <stddef.h>
#include <wchar.h>

#define PASTE_ON    "\033[?2004h" /* enables bracketed paste */
#define PASTE_OFF   "\033[?2004l"
#define PASTE_START "\\e[200~" /* in libedit's key notation */
#define PASTE_OUT                                                                                  \
    7 /* maximum characters emitted per character read, with the
                                * terminator */

struct paste {
    size_t met;   /* matched characters of the end mark */
    size_t lines; /* trailing line ends, already emitted */
};

/* Processes the next character of a paste and writes the characters to insert to out
 * (0-terminated). True: the paste has ended. */
bool paste_take(struct paste *p, wchar_t c, wchar_t out[PASTE_OUT]);

#endif
