/* Text that a terminal marks as pasted: ESC [ 200 ~ text ESC [ 201 ~. Pure.
 *
 * A pasted text is one input, whatever lines it has: their ends are part of it, the last ones not.
 * What else a terminal would obey is left out: it came from somewhere else. */
#ifndef SLUICE_CLIENTS_REPL_PASTE_H
#define SLUICE_CLIENTS_REPL_PASTE_H

#include <stdbool.h>
#include <stddef.h>
#include <wchar.h>

#define PASTE_ON    "\033[?2004h" /* the terminal marks what is pasted */
#define PASTE_OFF   "\033[?2004l"
#define PASTE_START "\\e[200~" /* as libedit writes keys */
#define PASTE_OUT   7          /* characters that one may let out, with their end */

struct paste {
    size_t met;   /* of the mark of its end */
    size_t lines; /* ends of lines that nothing has followed yet; they have been let out */
};

/* Takes the next character of it; fills out, 0 at its end. True: that was the end. */
bool paste_take(struct paste *p, wchar_t c, wchar_t out[PASTE_OUT]);

#endif
