/* SPDX-License-Identifier: Apache-2.0 */
/* Replaces control characters and invalid bytes of a text. */
#include "lib/text/printable.h"

#include <stdbool.h>
#include <string.h>

#include "lib/text/utf8.h"

#define REPLACEMENT "\xef\xbf\xbd" /* U+FFFD */

/* C0, DEL and C1; marks that change the order of the text around them, and ends of lines. */
static bool is_control(const unsigned char *c)
{
    return c[0] < ' ' || c[0] == 0x7f || (c[0] == 0xc2 && c[1] < 0xa0) ||
           (c[0] == 0xe2 && c[1] == 0x80 &&
            (c[2] == 0x8e || c[2] == 0x8f ||                               /* U+200E, 200F */
             (c[2] >= 0xa8 && c[2] <= 0xae))) ||                           /* U+2028 to 202E */
           (c[0] == 0xe2 && c[1] == 0x81 && c[2] >= 0xa6 && c[2] <= 0xa9); /* U+2066 to 2069 */
}

struct printable printable(const char *text, size_t bytes)
{
    struct printable w;
    size_t n = 0;
    for (size_t at = 0, used; at < bytes; at += used) {
        bool valid = utf8_next(text + at, bytes - at, &used);
        bool control = valid && is_control((const unsigned char *)text + at);
        const char *shown = !valid ? REPLACEMENT : control ? "?" : text + at;
        size_t shown_bytes = !valid ? strlen(REPLACEMENT) : control ? 1 : used;
        if (shown_bytes > sizeof w.text - 1 - n)
            break;
        memcpy(w.text + n, shown, shown_bytes);
        n += shown_bytes;
    }
    w.text[n] = 0;
    return w;
}
