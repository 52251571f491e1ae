/* SPDX-License-Identifier: Apache-2.0 */
/* Reads numbers and strings of the template language. */
#include "lib/jinja/syntax/literal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define NUMBER_BYTES 64

/* ---- numbers ---- */

static bool digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Copies digits of a base, and the underscores between them away. */
static size_t take_digits(const char *text, size_t bytes, size_t at, int base, char *out, size_t *n)
{
    for (; at < bytes; at++) {
        char c = text[at];
        if (c == '_')
            c = at + 1 < bytes ? text[++at] : 0;
        int value = digit(c)                             ? c - '0'
                    : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10
                                                         : 99;
        if (value >= base || *n >= NUMBER_BYTES - 8)
            return at - (at > 0 && text[at - 1] == '_');
        out[(*n)++] = c;
    }
    return at;
}

static bool float_follows(const char *text, size_t bytes, size_t at)
{
    if (at + 1 < bytes && text[at] == '.')
        return digit(text[at + 1]);
    if (at >= bytes || (text[at] | 32) != 'e')
        return false;
    at++;
    at += at < bytes && (text[at] == '+' || text[at] == '-');
    return at < bytes && digit(text[at]);
}

static double take_float(const char *text, size_t bytes, size_t *at, char *digits, size_t n)
{
    size_t p = *at;
    if (text[p] == '.') {
        digits[n++] = '.';
        p = take_digits(text, bytes, p + 1, 10, digits, &n);
    }
    if (float_follows(text, bytes, p) && (text[p] | 32) == 'e' && n < NUMBER_BYTES - 16) {
        digits[n++] = 'e';
        if (!digit(text[++p]))
            digits[n++] = text[p++];
        p = take_digits(text, bytes, p, 10, digits, &n);
    }
    digits[n] = 0;
    *at = p;
    return strtod(digits, NULL);
}

struct jvalue jliteral_number(struct jheap *h, const char *text, size_t bytes, size_t *at)
{
    char digits[NUMBER_BYTES] = "";
    size_t n = 0, p = *at;
    char prefix = text[p] == '0' && p + 1 < bytes ? text[p + 1] | 32 : 0;
    int base = prefix == 'x' ? 16 : prefix == 'o' ? 8 : prefix == 'b' ? 2 : 10;
    p = take_digits(text, bytes, p + (base == 10 ? 0 : 2), base, digits, &n);
    bool follows_dot = *at > 0 && text[*at - 1] == '.';
    if (base == 10 && !follows_dot && float_follows(text, bytes, p)) {
        *at = p;
        return jfloat(take_float(text, bytes, at, digits, n));
    }
    errno = 0;
    long long value = strtoll(digits, NULL, base);
    if (n == 0 || n >= NUMBER_BYTES - 8 || errno != 0)
        jheap_fail(h, "an integer is malformed or too large");
    *at = p;
    return jint(value);
}

/* ---- strings ---- */

/* Hexadecimal digits of an escape. */
static uint32_t take_code(struct jheap *h, const char *text, size_t end, size_t *at, unsigned count)
{
    uint32_t code = 0;
    for (; count > 0; count--, ++*at) {
        char c = *at < end ? text[*at] : 0;
        if (!digit(c) && ((c | 32) < 'a' || (c | 32) > 'f'))
            jheap_fail(h, "a string has a truncated escape");
        code = code << 4 | (uint32_t)(digit(c) ? c - '0' : (c | 32) - 'a' + 10);
    }
    if (code > 0x10ffff)
        jheap_fail(h, "a string has an escape that is no character");
    return code >= 0xd800 && code < 0xe000 ? 0xfffd : code;
}

/* The escape whose backslash is before text[*at]. */
static void take_escape(struct jheap *h, struct jbuffer *b, const char *text, size_t end,
                        size_t *at)
{
    static const char shorts[] = "n\nt\tr\r\\\\''\"\"a\ab\bf\fv\v";
    char c = text[(*at)++];
    for (size_t i = 0; i + 1 < sizeof shorts; i += 2)
        if (c == shorts[i]) {
            jbuffer_add(h, b, &shorts[i + 1], 1, JORIGIN_TEMPLATE);
            return;
        }
    if (c == '\n')
        return;
    if (c == 'x' || c == 'u' || c == 'U') {
        uint32_t code = take_code(h, text, end, at, c == 'x' ? 2 : c == 'u' ? 4 : 8);
        jbuffer_char(h, b, code, JORIGIN_TEMPLATE);
    } else if (c >= '0' && c <= '7') {
        uint32_t code = (uint32_t)(c - '0');
        for (int more = 2; more > 0 && *at < end && text[*at] >= '0' && text[*at] <= '7'; more--)
            code = code * 8 + (uint32_t)(text[(*at)++] - '0');
        jbuffer_char(h, b, code, JORIGIN_TEMPLATE);
    } else if (c == 'N') {
        jheap_fail(h, "characters by name (\\N) are not supported");
    } else {
        jbuffer_text(h, b, "\\", JORIGIN_TEMPLATE);
        jbuffer_add(h, b, &c, 1, JORIGIN_TEMPLATE);
    }
}

struct jvalue jliteral_string(struct jheap *h, const char *text, size_t bytes, size_t *at)
{
    char quote = text[*at];
    size_t from = *at + 1, end = from;
    while (end < bytes && text[end] != quote)
        end += text[end] == '\\' ? 2 : 1;
    if (end >= bytes)
        jheap_fail(h, "a string has no end");
    struct jbuffer b = {0};
    for (size_t p = from; p < end;) {
        const char *slash = memchr(text + p, '\\', end - p);
        size_t to = slash ? (size_t)(slash - text) : end;
        jbuffer_add(h, &b, text + p, to - p, JORIGIN_TEMPLATE);
        p = to + (slash != NULL);
        if (slash)
            take_escape(h, &b, text, end, &p);
    }
    *at = end + 1;
    return jstring_value(jbuffer_take(h, &b));
}
