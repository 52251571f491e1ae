/* SPDX-License-Identifier: Apache-2.0 */
/* Splits a template into text and tokens of its tags. */
#include "lib/jinja/syntax/lexer.h"

#include <string.h>

#include "lib/base/bytes.h"
#include "lib/jinja/syntax/literal.h"

#define NAME_SLOTS 256
#define NESTED_MAX 256 /* brackets */

struct jname_entry {
    const struct jstring *name;
    struct jname_entry *next;
};

struct jnames {
    struct jname_entry *slots[NAME_SLOTS];
};

struct lexer {
    struct jheap *h;
    const char *text; /* NUL after it */
    size_t bytes, at;
    uint32_t line;
    size_t line_at; /* newlines before it are counted */
    bool line_starts;
    struct jtokens out;
    char closes[NESTED_MAX]; /* brackets that are open, by what closes them */
    size_t nested;
};

const struct jstring *jname(struct jheap *h, struct jnames *names, const char *text, size_t bytes)
{
    size_t hash = bytes;
    h->steps += bytes / 16;
    for (size_t i = 0; i < bytes; i++)
        hash = hash * 31 + (unsigned char)text[i];
    struct jname_entry **slot = &names->slots[hash % NAME_SLOTS];
    size_t seen = 0;
    for (struct jname_entry *e = *slot; e; e = e->next) {
        h->steps += ++seen % 16 == 0; /* a client may choose names that collide */
        if (e->name->bytes == bytes && memcmp(e->name->text, text, bytes) == 0)
            return e->name;
    }
    struct jname_entry *e = jheap_get(h, sizeof *e);
    e->name = jstring_of(h, text, bytes, JORIGIN_TEMPLATE);
    e->next = *slot;
    *slot = e;
    return e->name;
}

struct jnames *jnames_copy(struct jheap *h, const struct jnames *names)
{
    struct jnames *copy = jheap_get(h, sizeof *copy);
    *copy = *names; /* entries are added before the shared ones */
    return copy;
}

static void count_lines(struct lexer *x)
{
    for (; x->line_at < x->at; x->line_at++)
        x->line += x->text[x->line_at] == '\n';
    x->h->line = x->line;
}

static struct jtoken *add_token(struct lexer *x, enum jtoken_kind kind)
{
    struct jtokens *out = &x->out;
    out->at = jheap_grow(x->h, out->at, out->count, &out->capacity, sizeof *out->at);
    struct jtoken *t = &out->at[out->count++];
    count_lines(x);
    *t = (struct jtoken){.kind = (uint8_t)kind, .line = x->line};
    return t;
}

static bool starts(const struct lexer *x, size_t at, const char *text)
{
    size_t n = strlen(text);
    return n <= x->bytes - at && memcmp(x->text + at, text, n) == 0;
}

static size_t skip_blanks(const struct lexer *x, size_t at)
{
    for (size_t next = at; at < x->bytes; at = next)
        if (!jchar_blank(jchar_next(x->text, x->bytes, &next)))
            break;
    return at;
}

/* ---- text outside of tags ---- */

/* The part of text[from, to) that stays before a tag with this sign. */
static size_t strip_before(const struct lexer *x, size_t from, size_t to, char sign, bool variable)
{
    struct jstring data = {.text = x->text + from, .bytes = to - from};
    if (sign == '-')
        return from + jstring_strip(x->h, &data, NULL, JSTRIP_RIGHT)->bytes;
    if (sign == '+' || variable)
        return to;
    size_t line = to;
    while (line > from && x->text[line - 1] != '\n')
        line--;
    bool at_start = line > from || x->line_starts;
    return at_start && line < to && skip_blanks(x, line) >= to ? line : to;
}

static void add_data(struct lexer *x, size_t from, size_t to)
{
    if (from < to)
        add_token(x, JTOKEN_DATA)->value =
            jstring_value(jstring_of(x->h, x->text + from, to - from, JORIGIN_TEMPLATE));
}

/* Length of the end of a tag at `at`: with the white space that it removes. 0: none is there. */
static size_t tag_end(const struct lexer *x, size_t at, const char *end, bool trims)
{
    char first = x->text[at];
    bool sign = (first == '-' || (first == '+' && trims)) && starts(x, at + 1, end);
    if (!sign && !starts(x, at, end))
        return 0;
    size_t after = at + sign + strlen(end);
    if (sign && first == '-')
        after = skip_blanks(x, after);
    else if (!sign && trims && x->text[after] == '\n')
        after++;
    return after - at;
}

static void move_to(struct lexer *x, size_t at)
{
    x->at = at;
    x->line_starts = at > 0 && x->text[at - 1] == '\n';
}

static void lex_comment(struct lexer *x)
{
    for (size_t at = x->at; at < x->bytes; at++) {
        size_t n = x->text[at] == '#' || x->text[at] == '-' || x->text[at] == '+'
                       ? tag_end(x, at, "#}", true)
                       : 0;
        if (n > 0) {
            move_to(x, at + n);
            return;
        }
    }
    jheap_fail(x->h, "missing end of a comment");
}

/* "{%- WORD -%}" at `at`: its length, or 0; *sign: the one before the word. */
static size_t word_tag(const struct lexer *x, size_t at, const char *word, bool trims, char *sign)
{
    size_t p = at + 2;
    if (!starts(x, at, "{%"))
        return 0;
    *sign = x->text[p] == '-' || x->text[p] == '+' ? x->text[p] : 0;
    p = skip_blanks(x, p + (*sign != 0));
    if (!starts(x, p, word))
        return 0;
    p = skip_blanks(x, p + strlen(word));
    size_t n = 0;
    if (trims)
        n = tag_end(x, p, "%}", true);
    else if (starts(x, p, "-%}"))
        n = skip_blanks(x, p + 3) - p;
    else if (starts(x, p, "%}"))
        n = 2;
    return n > 0 ? p + n - at : 0;
}

static void lex_raw(struct lexer *x, size_t begin)
{
    size_t from = begin;
    char sign = 0;
    move_to(x, begin);
    for (size_t at = begin; at < x->bytes; at++) {
        size_t n = x->text[at] == '{' ? word_tag(x, at, "endraw", true, &sign) : 0;
        if (n > 0) {
            add_data(x, from, strip_before(x, from, at, sign, false));
            move_to(x, at + n);
            return;
        }
    }
    jheap_fail(x->h, "missing end of a raw block");
}

/* ---- tags ---- */

static bool name_char(unsigned char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c >= 0x80;
}

static void lex_name(struct lexer *x)
{
    size_t from = x->at;
    while (x->at < x->bytes && (name_char((unsigned char)x->text[x->at]) ||
                                (x->text[x->at] >= '0' && x->text[x->at] <= '9')))
        x->at++;
    struct jtoken *t = add_token(x, JTOKEN_NAME);
    t->value = jstring_value(jname(x->h, x->out.names, x->text + from, x->at - from));
}

static void nest(struct lexer *x, char c)
{
    if (c == '(' || c == '[' || c == '{') {
        if (x->nested == NESTED_MAX)
            jheap_fail(x->h, "nested too deeply");
        x->closes[x->nested++] = c == '(' ? ')' : c == '[' ? ']' : '}';
    } else if (c == ')' || c == ']' || c == '}') {
        if (x->nested == 0 || x->closes[--x->nested] != c)
            jheap_fail(x->h, "unexpected '%c'", c);
    }
}

static void lex_operator(struct lexer *x)
{
    static const char *const texts[] = {
#define X(name, text) text,
        JOPERATORS(X)
#undef X
    };
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        if (!starts(x, x->at, texts[i]))
            continue;
        nest(x, texts[i][0]);
        x->at += strlen(texts[i]);
        add_token(x, JTOKEN_OPERATOR)->op = (uint8_t)(i + 1);
        return;
    }
    jheap_fail(x->h, "unexpected character '%c'", x->text[x->at]);
}

static void lex_tag(struct lexer *x, bool variable)
{
    const char *end = variable ? "}}" : "%}";
    for (;;) {
        x->at = skip_blanks(x, x->at);
        jheap_step(x->h);
        count_lines(x);
        if (x->at >= x->bytes)
            jheap_fail(x->h, "unexpected end of the template");
        size_t n = x->nested == 0 ? tag_end(x, x->at, end, !variable) : 0;
        unsigned char c = (unsigned char)x->text[x->at];
        if (n > 0) {
            add_token(x, variable ? JTOKEN_VARIABLE_END : JTOKEN_BLOCK_END);
            move_to(x, x->at + n);
            return;
        }
        if (c >= '0' && c <= '9')
            add_token(x, JTOKEN_CONST)->value = jliteral_number(x->h, x->text, x->bytes, &x->at);
        else if (name_char(c))
            lex_name(x);
        else if (c == '\'' || c == '"')
            add_token(x, JTOKEN_CONST)->value = jliteral_string(x->h, x->text, x->bytes, &x->at);
        else
            lex_operator(x);
    }
}

/* The next tag, and the text before it. False: the text was the last. */
static bool lex_part(struct lexer *x)
{
    size_t from = x->at, at = from;
    for (; at < x->bytes; at++)
        if (x->text[at] == '{' && strchr("%{#", x->text[at + 1]) && x->text[at + 1])
            break;
    if (at >= x->bytes) {
        add_data(x, from, x->bytes);
        return false;
    }
    char kind = x->text[at + 1], sign = x->text[at + 2];
    size_t raw = word_tag(x, at, "raw", false, &sign);
    add_data(x, from, strip_before(x, from, at, sign, kind == '{'));
    move_to(x, at + 2 + (sign == '-' || sign == '+'));
    count_lines(x);
    if (raw > 0) {
        lex_raw(x, at + raw);
    } else if (kind == '#') {
        lex_comment(x);
    } else {
        add_token(x, kind == '{' ? JTOKEN_VARIABLE : JTOKEN_BLOCK);
        lex_tag(x, kind == '{');
    }
    return true;
}

/* Newlines as "\n", without the last one. */
static void take_source(struct lexer *x, const char *source, size_t bytes)
{
    char *copy = jheap_get(x->h, bytes + 1);
    for (size_t i = 0; i < bytes; i++) {
        if (source[i] == '\n' && i > 0 && source[i - 1] == '\r')
            continue;
        copy[x->bytes++] = source[i] == '\r' ? '\n' : source[i];
    }
    if (x->bytes > 0 && copy[x->bytes - 1] == '\n')
        copy[--x->bytes] = 0;
    x->text = copy;
}

struct jtokens jlex(struct jheap *h, const char *source, size_t bytes)
{
    struct lexer x = {.h = h, .line = 1, .line_starts = true};
    take_source(&x, source, bytes);
    x.out.names = jheap_get(h, sizeof *x.out.names);
    while (lex_part(&x))
        ;
    x.at = x.bytes;
    add_token(&x, JTOKEN_END);
    return x.out;
}
