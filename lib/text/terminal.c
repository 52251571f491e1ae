/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/text/terminal.h"

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

/* A byte that starts a character. */
static size_t first_byte(struct terminal_filter *f, unsigned char c, char *out)
{
    f->left = c < 0xc2 || c > 0xf4 ? 0 : c < 0xe0 ? 1 : c < 0xf0 ? 2 : 3;
    f->c2 = c == 0xc2;
    if (f->c2)
        return 0;
    if ((c < ' ' && c != '\n' && c != '\t') || c == 0x7f) {
        out[0] = '^';
        out[1] = (char)(c ^ 0x40);
        return 2;
    }
    if (c >= 0x80 && f->left == 0)
        return put(out, REPLACEMENT);
    out[0] = (char)c;
    return 1;
}

static size_t next_byte(struct terminal_filter *f, unsigned char c, char *out)
{
    bool continues = c >= 0x80 && c < 0xc0;
    size_t n = 0;
    if (f->c2) {
        f->c2 = false;
        f->left = 0;
        if (continues && c < 0xa0)
            return put(out, REPLACEMENT);
        if (continues) {
            out[0] = '\xc2';
            out[1] = (char)c;
            return 2;
        }
        n = put(out, REPLACEMENT);
    } else if (f->left > 0 && continues) {
        f->left--;
        out[0] = (char)c;
        return 1;
    }
    return n + first_byte(f, c, out + n);
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
