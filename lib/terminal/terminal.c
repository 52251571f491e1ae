/* SPDX-License-Identifier: Apache-2.0 */
/* Replaces control characters in untrusted text, and filters what a program writes to a
 * terminal. */
#include "lib/terminal/terminal.h"

#include <errno.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#include "lib/base/assert.h"

#define PIECE_BYTES 1024
#define REPLACEMENT "\xef\xbf\xbd" /* U+FFFD */

static size_t put(char *out, const char *text)
{
    size_t n = strlen(text);
    memcpy(out, text, n);
    return n;
}

/* Bytes of a character, from its first one; 0: no character starts with it. */
static size_t character_bytes(unsigned char first)
{
    return first < 0x80                   ? 1
           : first < 0xc2 || first > 0xf4 ? 0
           : first < 0xe0                 ? 2
           : first < 0xf0                 ? 3
                                          : 4;
}

/* A byte that does not continue a character. */
static size_t first_byte(struct terminal_filter *f, unsigned char c, char *out)
{
    size_t bytes = character_bytes(c);
    if (bytes == 0)
        return put(out, REPLACEMENT);
    if (bytes > 1) {
        f->held[f->bytes++] = c;
        return 0;
    }
    if ((c < ' ' && c != '\n' && c != '\t') || c == 0x7f) {
        out[0] = '^';
        out[1] = (char)(c ^ 0x40);
        return 2;
    }
    out[0] = (char)c;
    return 1;
}

/* Whether the byte continues the character that is held (Unicode, table 3-7). */
static bool continues(const struct terminal_filter *f, unsigned char c)
{
    unsigned char first = f->bytes == 1 ? f->held[0] : 0;
    unsigned char min = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
    unsigned char max = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
    return c >= min && c <= max;
}

static size_t next_byte(struct terminal_filter *f, unsigned char c, char *out)
{
    if (f->bytes == 0)
        return first_byte(f, c, out);
    if (!continues(f, c)) {
        f->bytes = 0;
        size_t n = put(out, REPLACEMENT);
        return n + first_byte(f, c, out + n);
    }
    f->held[f->bytes++] = c;
    size_t bytes = character_bytes(f->held[0]);
    if (f->bytes < bytes)
        return 0;
    f->bytes = 0;
    if (f->held[0] == 0xc2 && c < 0xa0)
        return put(out, REPLACEMENT);
    memcpy(out, f->held, bytes);
    return bytes;
}

size_t terminal_filter(struct terminal_filter *f, const char *text, size_t bytes, char *out)
{
    size_t n = 0;
    for (size_t i = 0; i < bytes; i++)
        n += next_byte(f, (unsigned char)text[i], out + n);
    return n;
}

/* ---- the stream ------------------------------------------------------------------------------ */

static bool write_all(const char *text, size_t bytes)
{
    while (bytes > 0) {
        ssize_t n = write(STDOUT_FILENO, text, bytes);
        if (n < 0 && errno != EINTR)
            return false;
        if (n > 0) {
            text += n;
            bytes -= (size_t)n;
        }
    }
    return true;
}

static ssize_t guarded_write(void *cookie, const char *text, size_t bytes)
{
    struct terminal_filter *f = cookie;
    char out[TERMINAL_BYTES(PIECE_BYTES)];
    for (size_t at = 0; at < bytes; at += PIECE_BYTES) {
        size_t n = bytes - at < PIECE_BYTES ? bytes - at : PIECE_BYTES;
        if (!write_all(out, terminal_filter(f, text + at, n, out)))
            return 0; /* the stream reports an error */
    }
    return (ssize_t)bytes;
}

FILE *terminal_guard(bool raw)
{
    static struct terminal_filter filter;
    FILE *terminal = stdout;
    if (raw || !isatty(STDOUT_FILENO))
        return terminal;
    FILE *guarded = fopencookie(&filter, "w", (cookie_io_functions_t){.write = guarded_write});
    if (!guarded)
        sl_panic("out of memory for standard output");
    setvbuf(guarded, NULL, _IOLBF, BUFSIZ);
    fflush(terminal);
    stdout = guarded;
    return terminal;
}
