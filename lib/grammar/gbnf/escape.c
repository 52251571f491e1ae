/* SPDX-License-Identifier: Apache-2.0 */
/* Characters, escapes and classes of GBNF and of regular expressions. */
#include "lib/grammar/gbnf/escape.h"

#include <string.h>

uint32_t cursor_character(struct cursor *c)
{
    uint8_t lead = (uint8_t)*c->at++;
    unsigned more = lead < 0xC0 ? 0 : lead < 0xE0 ? 1 : lead < 0xF0 ? 2 : 3;
    uint32_t value = more == 0 ? lead : lead & (0x3Fu >> more);
    while (more-- > 0 && c->at < c->end)
        value = value << 6 | ((uint8_t)*c->at++ & 0x3F);
    return value;
}

static int hex_digit(int c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

bool cursor_hex(struct cursor *c, unsigned digits, uint32_t *value)
{
    *value = 0;
    for (; digits > 0; digits--, c->at++) {
        int digit = hex_digit(cursor_peek(c));
        if (cursor_peek(c) < 0 || digit < 0)
            return false;
        *value = *value << 4 | (uint32_t)digit;
    }
    return true;
}

bool cursor_escaped(struct cursor *c, uint32_t *value)
{
    static const char names[] = "nrt\\\"[]-^", values[] = "\n\r\t\\\"[]-^";
    if (*c->at != '\\') {
        *value = cursor_character(c);
        return true;
    }
    c->at++;
    int name = cursor_peek(c);
    if (name < 0)
        return false;
    c->at++;
    if (name == 'x' || name == 'u' || name == 'U')
        return cursor_hex(c, name == 'x' ? 2 : name == 'u' ? 4 : 8, value);
    const char *known = name ? strchr(names, name) : NULL;
    if (known)
        *value = (uint8_t)values[known - names];
    return known != NULL;
}

size_t utf8_encode(uint32_t c, char bytes[4])
{
    if (c > CODEPOINT_MAX || (c >= 0xD800 && c <= 0xDFFF))
        return 0;
    if (c < 0x80) {
        bytes[0] = (char)c;
        return 1;
    }
    size_t n = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (size_t i = n - 1; i > 0; i--, c >>= 6)
        bytes[i] = (char)(0x80 | (c & 0x3F));
    bytes[0] = (char)(c | (n == 2 ? 0xC0 : n == 3 ? 0xE0 : 0xF0));
    return n;
}

static const char *class_item(struct cursor *c, struct char_range *range)
{
    if (!cursor_escaped(c, &range->first))
        return "an escape that a class does not have";
    range->last = range->first;
    if (c->end - c->at >= 2 && c->at[0] == '-' && c->at[1] != ']') {
        c->at++;
        if (!cursor_escaped(c, &range->last))
            return "an escape that a class does not have";
    }
    if (range->last < range->first || range->last > CODEPOINT_MAX)
        return "a range of a class ends before it begins, or is beyond Unicode";
    return NULL;
}

size_t class_read(struct cursor *c, struct char_range ranges[CLASS_RANGES_MAX], bool *negated,
                  const char **why)
{
    size_t count = 0;
    c->at++;
    *negated = cursor_peek(c) == '^';
    c->at += *negated;
    while (cursor_peek(c) != ']') {
        if (cursor_peek(c) < 0)
            *why = "a class has no closing bracket";
        else if (count == CLASS_RANGES_MAX)
            *why = "a class has too many ranges";
        else
            *why = class_item(c, &ranges[count]);
        if (*why)
            return 0;
        count++;
    }
    c->at++;
    return count;
}
