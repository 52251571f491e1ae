/* SPDX-License-Identifier: Apache-2.0 */
/* Reads calls in the syntax of Python. What is not wholly of its form is no call. */
#include "lib/model/chat/calls/python.h"

#include <ctype.h>
#include <stdint.h>
#include <stdlib.h>

#include "lib/model/chat/calls/values.h"

#define NAME_BYTES_MAX  128
#define FRONT_BYTES_MAX 256 /* looked at for the name of the first call */

struct reader {
    struct cursor c;
    unsigned depth, containers; /* that may still be */
};

/* ---- texts ---- */

static bool digits(struct cursor *c, unsigned count, unsigned base, uint32_t *value)
{
    *value = 0;
    for (unsigned i = 0; i < count; i++, c->at++) {
        if (c->at == c->end || !isxdigit((unsigned char)*c->at))
            return false;
        unsigned digit = isdigit((unsigned char)*c->at) ? (unsigned)(*c->at - '0')
                                                        : (unsigned)((*c->at | 32) - 'a' + 10);
        if (digit >= base)
            return false;
        *value = *value * base + digit;
    }
    return true;
}

/* Up to three octal digits, of which the first is there. */
static void octal(struct cursor *c, uint32_t *value)
{
    unsigned count = 1;
    while (count < 3 && cursor_left(c) > count && c->at[count] >= '0' && c->at[count] <= '7')
        count++;
    digits(c, count, 8, value);
}

/* Two halves of a character are one, as in JSON. */
static bool code(struct cursor *c, unsigned count, uint32_t *value)
{
    uint32_t low;
    if (!digits(c, count, 16, value))
        return false;
    if (*value >= 0xD800 && *value < 0xDC00 && cursor_take(c, "\\u") && digits(c, 4, 16, &low) &&
        low >= 0xDC00 && low < 0xE000)
        *value = 0x10000 + ((*value - 0xD800) << 10) + (low - 0xDC00);
    return *value <= 0x10FFFF && (*value < 0xD800 || *value > 0xDFFF);
}

static char *put(char *out, uint32_t c)
{
    if (c < 0x80) {
        *out++ = (char)c;
        return out;
    }
    unsigned more = c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
    *out++ = (char)((more == 1 ? 0xC0 : more == 2 ? 0xE0 : 0xF0) | c >> 6 * more);
    while (more-- > 0)
        *out++ = (char)(0x80 | (c >> 6 * more & 0x3F));
    return out;
}

/* Behind a backslash. What Python does not know keeps it: "\d" of a regular expression. NULL: half
 * an escape. No escape is longer than what it stands for. */
static char *escaped(struct cursor *c, char *out)
{
    static const char names[] = "nrtbfav\\'\"/", values[] = "\n\r\t\b\f\a\v\\'\"/";
    uint32_t value;
    char name = *c->at;
    const char *known = name ? strchr(names, name) : NULL;
    if (name >= '0' && name <= '7') {
        octal(c, &value);
        return put(out, value);
    }
    c->at++;
    if (known) {
        *out++ = values[known - names];
        return out;
    }
    if (name == '\n')
        return out;
    if (name == 'x' || name == 'u' || name == 'U')
        return code(c, name == 'x' ? 2 : name == 'u' ? 4 : 8, &value) ? put(out, value) : NULL;
    *out++ = '\\';
    *out++ = name;
    return out;
}

static json_t *unescaped(struct cursor raw)
{
    char *text = malloc(cursor_left(&raw) + 1), *out = text;
    while (out && raw.at < raw.end)
        if (*raw.at++ != '\\')
            *out++ = raw.at[-1];
        else
            out = escaped(&raw, out);
    json_t *value = out ? json_stringn(text, (size_t)(out - text)) : NULL;
    free(text);
    return value;
}

/* At its first quote. Templates write texts as they are, so that line feeds need no third quote. */
static json_t *read_text(struct cursor *c)
{
    char quotes[4] = {*c->at, *c->at, *c->at, 0};
    if (!cursor_take(c, quotes)) {
        quotes[1] = 0;
        cursor_take(c, quotes);
    }
    struct cursor raw = {c->at, c->at};
    while (c->at < c->end && !cursor_take(c, quotes)) {
        c->at += *c->at == '\\' && c->at + 1 < c->end ? 2 : 1;
        raw.end = c->at;
        if (c->at == c->end)
            return NULL;
    }
    return raw.at <= raw.end && c->at > raw.end ? unescaped(raw) : NULL;
}

/* ---- values ---- */

json_t *python_named(const char *text, size_t bytes)
{
    return bytes == 4 && memcmp(text, "True", 4) == 0    ? json_true()
           : bytes == 5 && memcmp(text, "False", 5) == 0 ? json_false()
           : bytes == 4 && memcmp(text, "None", 4) == 0  ? json_null()
                                                         : NULL;
}

/* A number, or a name of Python or JSON. */
static json_t *read_word(struct cursor *c)
{
    const char *from = c->at;
    while (c->at < c->end && (isalnum((unsigned char)*c->at) || (*c->at && strchr("+-.", *c->at))))
        c->at++;
    size_t n = (size_t)(c->at - from);
    json_t *value = python_named(from, n);
    return value ? value : json_loadb(from, n, JSON_DECODE_ANY, NULL);
}

static json_t *read_value(struct reader *r);

/* What is between commas, the last of which may have nothing behind it. False: no comma, and no
 * end. *more: another one follows. */
static bool next(struct cursor *c, const char *close, bool first, bool *more)
{
    cursor_skip_blanks(c);
    bool comma = !first && cursor_take(c, ",");
    cursor_skip_blanks(c);
    *more = !cursor_take(c, close);
    return first || comma || !*more;
}

static bool add_member(struct reader *r, json_t *to)
{
    struct cursor *c = &r->c;
    bool quoted = c->at < c->end && (*c->at == '"' || *c->at == '\'');
    json_t *key = quoted ? read_text(c) : NULL, *value = NULL;
    const char *name = json_string_value(key);
    size_t n = json_string_length(key);
    cursor_skip_blanks(c);
    bool good = key && cursor_take(c, ":") && !json_object_getn(to, name, n) &&
                (value = read_value(r)) && json_object_setn_new(to, name, n, value) == 0;
    json_decref(key);
    return good;
}

/* Behind its bracket. */
static json_t *read_container(struct reader *r, bool dictionary)
{
    json_t *to = dictionary ? json_object() : json_array();
    bool good = to && r->depth > 0 && r->containers > 0, more = good;
    r->depth -= good;
    r->containers -= good;
    bool entered = good;
    for (bool first = true; good && more; first = false) {
        good = next(&r->c, dictionary ? "}" : "]", first, &more);
        if (good && more)
            good = dictionary ? add_member(r, to) : json_array_append_new(to, read_value(r)) == 0;
    }
    r->depth += entered;
    if (good)
        return to;
    json_decref(to);
    return NULL;
}

static json_t *read_value(struct reader *r)
{
    cursor_skip_blanks(&r->c);
    char first = r->c.at < r->c.end ? *r->c.at : 0;
    if (first == '"' || first == '\'')
        return read_text(&r->c);
    if (first != '[' && first != '{')
        return read_word(&r->c);
    r->c.at++;
    return read_container(r, first == '{');
}

/* ---- calls ---- */

static bool in_name(char byte)
{
    return (unsigned char)byte > ' ' && !strchr("=,;:()[]{}\"'<>", byte);
}

bool python_is_name(const char *name)
{
    size_t n = 0;
    while (in_name(name[n]))
        n++;
    return name[n] == 0 && n > 0 && n <= NAME_BYTES_MAX;
}

/* A name up to the character after it, which is taken, too. 0: it is none. */
static size_t read_name(struct cursor *c, char end, const char **name)
{
    *name = c->at;
    while (c->at < c->end && in_name(*c->at))
        c->at++;
    size_t n = (size_t)(c->at - *name);
    cursor_skip_blanks(c);
    bool ends = c->at < c->end && *c->at == end;
    c->at += ends;
    return ends && n <= NAME_BYTES_MAX ? n : 0;
}

static bool add_argument(struct reader *r, json_t *arguments)
{
    const char *key;
    size_t n = read_name(&r->c, '=', &key);
    return n > 0 && !json_object_getn(arguments, key, n) &&
           json_object_setn_new(arguments, key, n, read_value(r)) == 0;
}

static json_t *read_call(struct reader *r)
{
    const char *name;
    if (r->containers == 0)
        return NULL;
    r->containers--;
    size_t n = read_name(&r->c, '(', &name);
    json_t *arguments = n > 0 ? json_object() : NULL;
    bool good = arguments != NULL, more = good;
    for (bool first = true; good && more; first = false)
        good = next(&r->c, ")", first, &more) && (!more || add_argument(r, arguments));
    if (good)
        return json_pack("{s:s%, s:o}", "name", name, n, "arguments", arguments);
    json_decref(arguments);
    return NULL;
}

json_t *python_calls(struct cursor *c)
{
    struct reader r = {*c, CALL_DEPTH_MAX, CALL_CONTAINERS_MAX};
    json_t *calls = json_array();
    bool good = calls && cursor_take(&r.c, "["), more = good;
    for (bool first = true; good && more; first = false)
        good = next(&r.c, "]", first, &more) &&
               (!more || json_array_append_new(calls, read_call(&r)) == 0);
    if (good && json_array_size(calls) > 0) {
        *c = r.c;
        return calls;
    }
    json_decref(calls);
    return NULL;
}

int python_first_name(const char *text, size_t bytes, const char **name, size_t *name_bytes)
{
    struct cursor c = {text, text + bytes};
    if (!cursor_take(&c, "["))
        return bytes == 0 ? -1 : 0;
    cursor_skip_blanks(&c);
    *name_bytes = read_name(&c, '(', name);
    if (c.at - text > FRONT_BYTES_MAX)
        return 0;
    return *name_bytes > 0 ? 1 : c.at == c.end ? -1 : 0;
}
