/* SPDX-License-Identifier: Apache-2.0 */
/* Quotes a word for a shell. */
#include "lib/text/shell.h"

#include <stdbool.h>
#include <string.h>

const char *shell_word(const char *text, char *out, size_t size)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "%+,-./:=@_";
    size_t n = 0;
    bool quotes = !text[0] || text[strspn(text, plain)];
    out[0] = 0;
    if (!quotes) {
        if (strlen(text) < size)
            memcpy(out, text, strlen(text) + 1);
        return out;
    }
    if (size < sizeof "''")
        return out;
    out[n++] = '\'';
    for (; *text; text++) {
        const char *part = *text == '\'' ? "'\\''" : (const char[]){*text, 0};
        if (n + strlen(part) + 2 > size) {
            out[0] = 0;
            return out;
        }
        memcpy(out + n, part, strlen(part));
        n += strlen(part);
    }
    out[n++] = '\'';
    out[n] = 0;
    return out;
}
