/* SPDX-License-Identifier: Apache-2.0 */
/* Takes a bracketed paste out of the bytes of a terminal. */
#include "procs/clients/repl/paste.h"

static const wchar_t end[] = L"\033[201~";
#define END_CHARS (sizeof end / sizeof end[0] - 1)

/* Converts a pasted character; 0: dropped. */
static wchar_t taken(wchar_t c)
{
    if (c == L'\r') /* terminals send line ends as CR */
        return L'\n';
    if ((c < L' ' && c != L'\n' && c != L'\t') || (c >= 0x7f && c < 0xa0))
        return 0;
    return c;
}

static void emit(struct paste *p, wchar_t c, wchar_t out[PASTE_OUT], size_t *count)
{
    c = taken(c);
    if (c == 0)
        return;
    p->lines = c == L'\n' ? p->lines + 1 : 0;
    out[(*count)++] = c;
}

bool paste_take(struct paste *p, wchar_t c, wchar_t out[PASTE_OUT])
{
    size_t count = 0, met = p->met;
    out[0] = 0;
    if (c == end[met]) {
        p->met++;
        return p->met == END_CHARS;
    }
    p->met = 0;
    for (size_t i = 0; i < met; i++) /* not the end mark: emit the characters matched so far */
        emit(p, end[i], out, &count);
    if (c == end[0])
        p->met = 1;
    else
        emit(p, c, out, &count);
    out[count] = 0;
    return false;
}
