/* SPDX-License-Identifier: Apache-2.0 */
/* Regular expressions as JSON Schema has them (ECMA 262), of which the parts are supported that are
 * regular: no look-around, no references back, no word boundaries. A character stands in a JSON
 * string, so some are written with an escape, of which there is one spelling here. */
#include <stdlib.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "lib/grammar/gbnf/escape.h"
#include "lib/grammar/schema/compiler.h"

#define GROUP_DEPTH 50

/* A part of the pattern, and how many characters it has. */
struct piece {
    expr_id e;
    uint64_t min, max; /* max: EXPR_UNBOUNDED and above are the same */
    expr_id one;       /* the only thing that is repeated min to max times: a character; or 0 */
};

struct pattern {
    struct compiler *c;
    struct cursor at;
    const char *keyword;
    bool failed;
};

static void fail(struct pattern *p, const char *what)
{
    p->failed = true;
    schema_fail(p->c, p->keyword, what);
}

/* ---- characters ---- */

static const struct char_range digit[] = {{'0', '9'}};
static const struct char_range word[] = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
/* ECMA 262 and other dialects differ a little: a space is one in all of them, and what is no space
 * is one in none. */
static const struct char_range space[] = {{9, 13},          {32, 32},         {0xA0, 0xA0},
                                          {0x1680, 0x1680}, {0x2000, 0x200A}, {0x2028, 0x2029},
                                          {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000}};
static const struct char_range no_space[] = {{9, 13},          {28, 32},         {0x85, 0x85},
                                             {0xA0, 0xA0},     {0x1680, 0x1680}, {0x2000, 0x200A},
                                             {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F},
                                             {0x3000, 0x3000}, {0xFEFF, 0xFEFF}};
static const struct char_range lines[] = {{10, 10}, {13, 13}, {0x2028, 0x2029}};

/* What a JSON string writes with an escape. */
static void add_escape(struct compiler *c, uint32_t character)
{
    json_t *text = json_stringn((const char[]){(char)character}, 1);
    char *quoted = character ? json_dumps(text, JSON_ENCODE_ANY) : strdup("\"\\u0000\"");
    if (quoted)
        expr_add_word(&c->pool, quoted + 1, strlen(quoted) - 2);
    free(quoted);
    json_decref(text);
}

static bool is_escaped(uint32_t c)
{
    return c < 0x20 || c == '"' || c == '\\';
}

static expr_id in_string(struct compiler *c, const struct char_range *ranges, size_t count,
                         bool negated)
{
    static const struct char_range json[] = {{0x20, '!'}, {'#', '['}, {']', CODEPOINT_MAX}};
    static const struct char_range gemma[] = {{0, ';'}, {'=', CODEPOINT_MAX}};
    const struct char_range *plain = c->gemma ? gemma : json;
    size_t plain_count = c->gemma ? ARRAY_LEN(gemma) : ARRAY_LEN(json);
    struct char_range cut[3 * 64 + 3];
    size_t n = 0;
    expr_id all = expr_class(&c->pool, ranges, count, negated);
    if (all == EXPR_NEVER)
        return EXPR_NEVER;
    const struct expr e = c->pool.exprs[all];
    if (e.b > 64)
        return schema_fail(c, "pattern", "a class has too many ranges");
    uint32_t first = c->pool.words_count;
    for (uint32_t i = 0; i < e.b; i++) {
        struct char_range r = c->pool.ranges[e.a + i];
        for (uint32_t k = r.first; k <= r.last && k <= '\\'; k++)
            if (!c->gemma && is_escaped(k))
                add_escape(c, k);
        for (size_t k = 0; k < plain_count; k++)
            if (r.first <= plain[k].last && plain[k].first <= r.last)
                cut[n++] = (struct char_range){r.first > plain[k].first ? r.first : plain[k].first,
                                               r.last < plain[k].last ? r.last : plain[k].last};
    }
    uint32_t words = c->pool.words_count - first;
    expr_id escaped = words ? expr_words(&c->pool, first, words) : EXPR_NEVER;
    return expr_choice(&c->pool, expr_class(&c->pool, cut, n, false), escaped);
}

struct named {
    const struct char_range *ranges;
    size_t count;
    bool negated;
};

/* \d, \w, \s, in a class that is negated or not; upper case: negated. False: another letter. */
static bool named_class(int letter, bool within_negated, struct named *n)
{
    n->negated = letter < 'a';
    bool outside = n->negated || within_negated;
    switch (letter | 0x20) {
    case 'd': *n = (struct named){digit, ARRAY_LEN(digit), n->negated}; return true;
    case 'w': *n = (struct named){word, ARRAY_LEN(word), n->negated}; return true;
    case 's':
        *n = outside ? (struct named){no_space, ARRAY_LEN(no_space), n->negated}
                     : (struct named){space, ARRAY_LEN(space), n->negated};
        return true;
    default: return false;
    }
}

/* An escape that stands for one character; the backslash was read. */
static uint32_t escaped(struct pattern *p)
{
    static const char names[] = "nrtfv0", values[] = "\n\r\t\f\v";
    uint32_t value = 0;
    int c = cursor_peek(&p->at);
    const char *known = c > 0 ? strchr(names, c) : NULL;
    if (c > 0 && strchr("xu", c)) {
        p->at.at++;
        if (!cursor_hex(&p->at, c == 'x' ? 2 : 4, &value) || (value >= 0xD800 && value < 0xE000))
            fail(p, "an escape that is not supported");
        return value;
    }
    if (known || (c > 0 && strchr("^$\\.*+?()[]{}|/-\"'#@!%&,:;<=>_`~ ", c))) {
        p->at.at++;
        if (c == '0' && cursor_peek(&p->at) >= '0' && cursor_peek(&p->at) <= '9')
            fail(p, "octal escapes are not supported");
        return known ? (uint8_t)values[known - names] : (uint32_t)c;
    }
    fail(p, "an escape that is not supported (\\b, \\B, \\p, \\k, \\1 and others)");
    return 0;
}

/* *single: it is a character, which a range may begin or end with. */
static size_t class_item(struct pattern *p, bool within_negated, struct char_range *ranges,
                         size_t room, bool *single)
{
    struct named named;
    *single = true;
    if (*p->at.at == '\\') {
        p->at.at++;
        if (cursor_peek(&p->at) > 0 && named_class(cursor_peek(&p->at), within_negated, &named)) {
            if (named.negated || named.count > room)
                fail(p, "\\D, \\W and \\S within a class are not supported");
            else
                memcpy(ranges, named.ranges, named.count * sizeof(*ranges));
            p->at.at++;
            *single = false;
            return p->failed ? 0 : named.count;
        }
        ranges->first = cursor_peek(&p->at) == 'b' ? (p->at.at++, 8) : escaped(p);
    } else {
        ranges->first = cursor_character(&p->at);
    }
    ranges->last = ranges->first;
    return 1;
}

static bool dash_follows(const struct pattern *p)
{
    return p->at.end - p->at.at >= 2 && p->at.at[0] == '-' && p->at.at[1] != ']';
}

static void class_range(struct pattern *p, struct char_range *r)
{
    struct char_range end[ARRAY_LEN(no_space)];
    bool single;
    if (!dash_follows(p))
        return;
    p->at.at++;
    if (class_item(p, false, end, ARRAY_LEN(end), &single) != 1 || !single ||
        end[0].first < r->first)
        fail(p, "a range of a class that ends before it begins, or with \\d, \\w or \\s");
    else
        r->last = end[0].first;
}

static expr_id class(struct pattern *p)
{
    struct char_range ranges[64];
    size_t count = 0;
    unsigned plain = 0; /* items that begin no range: in [\d-x], `-` and x stand for themselves */
    bool single;
    p->at.at++;
    bool negated = cursor_peek(&p->at) == '^';
    p->at.at += negated;
    while (!p->failed && cursor_peek(&p->at) != ']') {
        if (cursor_peek(&p->at) < 0 || count == ARRAY_LEN(ranges)) {
            fail(p, "a class has no closing bracket, or too many ranges");
            break;
        }
        size_t n = class_item(p, negated, ranges + count, ARRAY_LEN(ranges) - count, &single);
        if (plain > 0)
            plain--;
        else if (!p->failed && single)
            class_range(p, &ranges[count]);
        else if (dash_follows(p))
            plain = 2;
        count += n;
    }
    if (p->failed)
        return EXPR_NEVER;
    p->at.at++;
    return in_string(p->c, ranges, count, negated);
}

/* ---- the syntax ---- */

static struct piece alternatives(struct pattern *p, unsigned depth);

static struct piece single(expr_id e)
{
    return (struct piece){.e = e, .min = 1, .max = 1, .one = e};
}

static struct piece group(struct pattern *p, unsigned depth)
{
    p->at.at++;
    if (cursor_peek(&p->at) == '?') {
        if (p->at.end - p->at.at < 2 || p->at.at[1] != ':') {
            fail(p, "look-around and named groups are not supported");
            return (struct piece){0};
        }
        p->at.at += 2;
    }
    struct piece in = alternatives(p, depth + 1);
    if (cursor_peek(&p->at) != ')' && !p->failed)
        fail(p, "a group has no closing parenthesis");
    p->at.at++;
    return in;
}

static struct piece atom(struct pattern *p, unsigned depth)
{
    struct named n;
    int c = cursor_peek(&p->at);
    if (c == '(')
        return group(p, depth);
    if (c == '[')
        return single(class(p));
    if (c == '.') {
        p->at.at++;
        return single(in_string(p->c, lines, ARRAY_LEN(lines), true));
    }
    if (c == '^' || c == '$')
        fail(p, "^ and $ are supported at the beginning and at the end only");
    if (c == '*' || c == '+' || c == '?' || c == '{' || c == '}' || c == ']')
        fail(p, "a repetition of nothing, or a bracket without \\");
    if (p->failed)
        return (struct piece){0};
    struct char_range r = {0};
    if (c == '\\') {
        p->at.at++;
        if (cursor_peek(&p->at) > 0 && named_class(cursor_peek(&p->at), false, &n)) {
            p->at.at++;
            return single(in_string(p->c, n.ranges, n.count, n.negated));
        }
        r.first = escaped(p);
    } else {
        r.first = cursor_character(&p->at);
    }
    r.last = r.first;
    return single(in_string(p->c, &r, 1, false));
}

static bool count(struct pattern *p, uint32_t *value)
{
    const char *from = p->at.at;
    uint64_t n = 0;
    for (; cursor_peek(&p->at) >= '0' && cursor_peek(&p->at) <= '9' && n < 1u << 30; p->at.at++)
        n = n * 10 + (uint64_t)(*p->at.at - '0');
    *value = (uint32_t)n;
    return p->at.at > from && n <= p->c->pool.limits->repeat;
}

static bool braces(struct pattern *p, uint32_t *min, uint32_t *max)
{
    p->at.at++;
    if (!count(p, min))
        return false;
    *max = *min;
    if (cursor_peek(&p->at) == ',') {
        p->at.at++;
        *max = EXPR_UNBOUNDED;
        if (cursor_peek(&p->at) != '}' && !count(p, max))
            return false;
    }
    bool closed = cursor_peek(&p->at) == '}' && *min <= *max;
    p->at.at++;
    return closed;
}

static uint64_t at_most(uint64_t value)
{
    return value < EXPR_UNBOUNDED ? value : EXPR_UNBOUNDED;
}

static struct piece repeated(struct pattern *p, struct piece a)
{
    uint32_t min = 0, max = EXPR_UNBOUNDED;
    int c = cursor_peek(&p->at);
    if (c == '{') {
        if (!braces(p, &min, &max))
            fail(p, "a repetition that is not {m}, {m,} or {m,n} within the limit");
    } else if (c == '*' || c == '+' || c == '?') {
        min = c == '+';
        max = c == '?' ? 1 : EXPR_UNBOUNDED;
        p->at.at++;
    } else {
        return a;
    }
    if (cursor_peek(&p->at) == '?') /* as few as possible: the texts are the same */
        p->at.at++;
    bool once = a.one && a.min == 1 && a.max == 1;
    return (struct piece){.e = expr_repeat(&p->c->pool, a.e, min, max),
                          .min = at_most(a.min * min),
                          .max = max && a.max ? at_most(a.max * max) : 0,
                          .one = once ? a.one : 0};
}

static struct piece sequence(struct pattern *p, unsigned depth)
{
    struct piece all = {.e = EXPR_EMPTY};
    bool first = true;
    for (; !p->failed; first = false) {
        int c = cursor_peek(&p->at);
        bool last = c == '$' && (p->at.at + 1 == p->at.end || p->at.at[1] == '|') && depth == 0;
        if (c < 0 || c == '|' || c == ')' || last)
            break;
        struct piece next = repeated(p, atom(p, depth));
        all = (struct piece){.e = expr_sequence(&p->c->pool, all.e, next.e),
                             .min = at_most(all.min + next.min),
                             .max = at_most(all.max + next.max),
                             .one = first ? next.one : 0};
    }
    return all;
}

/* Only at the top, an alternative may be found anywhere in the text. */
static struct piece alternative(struct pattern *p, unsigned depth)
{
    bool begins = depth > 0, ends = depth > 0;
    if (depth == 0 && cursor_peek(&p->at) == '^') {
        p->at.at++;
        begins = true;
    }
    struct piece a = sequence(p, depth);
    if (depth == 0 && cursor_peek(&p->at) == '$') {
        p->at.at++;
        ends = true;
    }
    expr_id any = schema_chars(p->c);
    if (!begins)
        a.e = expr_sequence(&p->c->pool, any, a.e);
    if (!ends)
        a.e = expr_sequence(&p->c->pool, a.e, any);
    if (!begins || !ends) {
        a.max = EXPR_UNBOUNDED;
        a.one = 0;
    }
    return a;
}

static struct piece alternatives(struct pattern *p, unsigned depth)
{
    if (depth > GROUP_DEPTH)
        fail(p, "groups are nested too deeply");
    if (p->failed)
        return (struct piece){0};
    struct piece all = alternative(p, depth);
    while (cursor_peek(&p->at) == '|' && !p->failed) {
        p->at.at++;
        struct piece next = alternative(p, depth);
        all = (struct piece){.e = expr_choice(&p->c->pool, all.e, next.e),
                             .min = all.min < next.min ? all.min : next.min,
                             .max = all.max > next.max ? all.max : next.max};
    }
    return all;
}

expr_id schema_pattern(struct compiler *c, const char *keyword, const char *text, size_t bytes,
                       uint32_t min, uint32_t max)
{
    struct pattern p = {.c = c, .at = {.at = text, .end = text + bytes}, .keyword = keyword};
    struct piece all = alternatives(&p, 0);
    if (!p.failed && p.at.at < p.at.end)
        fail(&p, "a parenthesis that was not opened");
    if (p.failed || c->failed)
        return EXPR_NEVER;
    if (all.min >= min && all.max <= max)
        return all.e;
    if (all.one) { /* characters of one class: their number is a counter */
        uint32_t low = all.min > min ? (uint32_t)all.min : min;
        uint32_t high = all.max < max ? (uint32_t)all.max : max;
        return expr_repeat(&c->pool, all.one, low, high);
    }
    return schema_fail(c, keyword,
                       strcmp(keyword, "format") == 0
                           ? "its texts may be shorter than minLength or longer than maxLength, "
                             "and cannot be counted; leave the length out"
                           : "its texts may be shorter than minLength or longer than maxLength; "
                             "write the length into the pattern");
}
