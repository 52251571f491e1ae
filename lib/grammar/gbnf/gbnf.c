/* SPDX-License-Identifier: Apache-2.0 */
/* GBNF: rules `name ::= ...` of literals, classes, groups, alternatives and repetitions. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "lib/grammar/gbnf/escape.h"
#include "lib/grammar/program.h"
#include "lib/text/utf8.h"

#define GROUP_DEPTH 100
#define NAME_BYTES  200

struct rule_name {
    const char *at;
    uint32_t bytes, rule, line; /* line of its definition, 0: none yet; of its first use */
    uint32_t used_line;
};

struct gbnf {
    struct expr_pool pool;
    const char *root; /* the name of the rule with which a text begins */
    size_t root_bytes;
    struct cursor c;
    struct rule_name *names; /* a table with open addresses */
    size_t room, count;
    struct error *error;
};

static int fail(struct gbnf *p, const char *what)
{
    return error_set(p->error, ERR_BAD_INPUT, "GBNF, line %u: %s", p->c.line, what);
}

/* ---- names of rules ---- */

static struct rule_name *slot_of(struct rule_name *names, size_t room, const char *at, size_t bytes)
{
    uint64_t h = 14695981039346656037u;
    for (size_t i = 0; i < bytes; i++)
        h = (h ^ (uint8_t)at[i]) * 1099511628211u;
    size_t i = (h ^ h >> 32) & (room - 1);
    while (names[i].at && (names[i].bytes != bytes || memcmp(names[i].at, at, bytes) != 0))
        i = (i + 1) & (room - 1);
    return &names[i];
}

static bool names_grow(struct gbnf *p)
{
    size_t room = p->room ? p->room * 2 : 64;
    struct rule_name *bigger = calloc(room, sizeof(*bigger));
    if (!bigger)
        return false;
    for (size_t i = 0; i < p->room; i++)
        if (p->names[i].at)
            *slot_of(bigger, room, p->names[i].at, p->names[i].bytes) = p->names[i];
    free(p->names);
    p->names = bigger;
    p->room = room;
    return true;
}

/* NULL: no memory, which the pool remembers. */
static struct rule_name *name_of(struct gbnf *p, const char *at, size_t bytes)
{
    if (p->count * 2 >= p->room && !names_grow(p)) {
        p->pool.failed = ERR_NO_MEMORY;
        return NULL;
    }
    struct rule_name *n = slot_of(p->names, p->room, at, bytes);
    if (!n->at) {
        *n = (struct rule_name){.at = at,
                                .bytes = (uint32_t)bytes,
                                .rule = expr_new_rule(&p->pool),
                                .used_line = p->c.line};
        p->count++;
    }
    return n;
}

static size_t name_bytes(const struct cursor *c)
{
    size_t n = 0;
    while (c->at + n < c->end &&
           (isalnum((unsigned char)c->at[n]) || c->at[n] == '-' || c->at[n] == '_'))
        n++;
    return n;
}

/* ---- the text ---- */

static void skip_space(struct gbnf *p, bool lines)
{
    struct cursor *c = &p->c;
    for (; c->at < c->end; c->at++) {
        if (*c->at == '#')
            while (c->at + 1 < c->end && c->at[1] != '\n')
                c->at++;
        else if (*c->at == '\n' && lines)
            c->line++;
        else if (*c->at != ' ' && *c->at != '\t' && *c->at != '\r')
            break;
    }
}

static int number(struct gbnf *p, uint32_t *value)
{
    uint64_t n = 0;
    for (; cursor_peek(&p->c) >= '0' && cursor_peek(&p->c) <= '9'; p->c.at++) {
        n = n * 10 + (uint64_t)(*p->c.at - '0');
        if (n > p->pool.limits->repeat)
            return fail(p, "a repetition has a count above the limit");
    }
    *value = (uint32_t)n;
    return 0;
}

static int literal(struct gbnf *p, expr_id *e)
{
    *e = EXPR_EMPTY;
    p->c.at++;
    while (cursor_peek(&p->c) != '"') {
        char bytes[4];
        uint32_t c;
        if (cursor_peek(&p->c) < 0 || cursor_peek(&p->c) == '\n')
            return fail(p, "a literal has no closing quote");
        if (!cursor_escaped(&p->c, &c))
            return fail(p, "an escape that GBNF does not have (\\n \\r \\t \\\\ \\\" \\[ \\] \\xHH "
                           "\\uHHHH \\UHHHHHHHH)");
        size_t n = utf8_encode(c, bytes);
        if (n == 0)
            return fail(p, "an escape that is no character");
        *e = expr_sequence(&p->pool, *e, expr_text(&p->pool, bytes, n));
    }
    p->c.at++;
    return 0;
}

/* The name of a token in its brackets at `from`: <name>, or <[NAME]>, which is [NAME]. *bytes 0: it
 * is neither. */
static const char *token_name(const char *from, size_t *bytes)
{
    bool square = from[1] == '[';
    if (!square)
        return from;
    *bytes =
        *bytes > 4 && from[*bytes - 2] == ']' && !isdigit((unsigned char)from[2]) ? *bytes - 2 : 0;
    return from + 1;
}

/* The control token whose name is a text, or that text where the vocabulary has no such token. */
static expr_id token_or_text(struct gbnf *p, expr_id text)
{
    static const char mark = (char)GRAMMAR_CONTROL_BYTE;
    expr_id border = expr_text(&p->pool, &mark, 1);
    expr_id token = expr_sequence(&p->pool, expr_sequence(&p->pool, border, text), border);
    return expr_choice(&p->pool, token, text);
}

/* <"NAME">: a name of any characters. */
static int quoted_token(struct gbnf *p, expr_id *e)
{
    p->c.at++;
    if (literal(p, e) != 0)
        return -1;
    if (cursor_peek(&p->c) != '>' || *e == EXPR_EMPTY)
        return fail(p, "a token in quotes has a name, and > behind it");
    p->c.at++;
    *e = token_or_text(p, *e);
    return 0;
}

static int control_token(struct gbnf *p, expr_id *e)
{
    const char *from = p->c.at;
    if (p->c.end - from > 1 && from[1] == '"')
        return quoted_token(p, e);
    while (p->c.at < p->c.end && *p->c.at != '>' && *p->c.at != '\n')
        p->c.at++;
    size_t bytes = (size_t)(p->c.at - from) + 1;
    const char *name = cursor_peek(&p->c) == '>' ? token_name(from, &bytes) : NULL;
    if (!name || bytes < 3)
        return fail(p, "a token is expected as <name> or <[NAME]>; numbers (<[5]>) are not "
                       "supported");
    if (bytes > GRAMMAR_MARK_BYTES_MAX)
        return fail(p, "a token has a name that is too long");
    p->c.at++;
    *e = token_or_text(p, expr_text(&p->pool, name, bytes));
    return 0;
}

/* The bytes of a JSON object at the start of a text; 0: it does not end. */
static size_t object_bytes(const char *at, const char *end)
{
    unsigned depth = 0;
    bool quoted = false;
    for (const char *c = at; c < end && *c != '\n'; c++) {
        if (quoted && *c == '\\' && c + 1 < end)
            c++;
        else if (*c == '"')
            quoted = !quoted;
        else if (!quoted && *c == '{')
            depth++;
        else if (!quoted && *c == '}' && --depth == 0)
            return (size_t)(c - at) + 1;
    }
    return 0;
}

static bool take_word(struct gbnf *p, const char *word)
{
    size_t n = strlen(word);
    if ((size_t)(p->c.end - p->c.at) < n || memcmp(p->c.at, word, n) != 0)
        return false;
    p->c.at += n;
    return true;
}

/* %json {schema}: the JSON that a schema allows; it is written in one line. %gemma {schema}: the
 * same values in the spelling of Gemma 4; %python {schema}: the arguments of a call in Python. */
static int embedded_schema(struct gbnf *p, expr_id *e)
{
    const char *end = p->c.end;
    enum schema_spelling spelling = take_word(p, "%gemma ")    ? SPELLING_GEMMA
                                    : take_word(p, "%python ") ? SPELLING_PYTHON
                                                               : SPELLING_JSON;
    if ((spelling == SPELLING_JSON && !take_word(p, "%json ")) || cursor_peek(&p->c) != '{')
        return fail(p, "%json and an object, a JSON Schema, are expected");
    const char *schema = p->c.at;
    size_t bytes = object_bytes(schema, end);
    if (bytes == 0)
        return fail(p, "the schema has no end in its line");
    struct error why = {.code = ERR_NONE};
    uint32_t rule = 0;
    p->c.at = schema + bytes;
    if (schema_rule(&p->pool, schema, bytes, spelling, &rule, &why) != 0)
        return error_set(p->error, why.code, "GBNF, line %u: %.350s", p->c.line, why.text);
    *e = expr_rule(&p->pool, rule);
    return 0;
}

static int class(struct gbnf *p, expr_id *e)
{
    struct char_range ranges[CLASS_RANGES_MAX];
    const char *why = NULL;
    bool negated;
    size_t count = class_read(&p->c, ranges, &negated, &why);
    if (why)
        return fail(p, why);
    *e = expr_class(&p->pool, ranges, count, negated);
    return 0;
}

static int alternatives(struct gbnf *p, unsigned depth, expr_id *e);

static int group(struct gbnf *p, unsigned depth, expr_id *e)
{
    p->c.at++;
    skip_space(p, true);
    if (alternatives(p, depth + 1, e) != 0)
        return -1;
    if (cursor_peek(&p->c) != ')')
        return fail(p, "a group has no closing parenthesis");
    p->c.at++;
    return 0;
}

/* 0 with *found false: no element begins here. */
static int element(struct gbnf *p, unsigned depth, expr_id *e, bool *found)
{
    int c = cursor_peek(&p->c);
    *found = true;
    if (c == '"')
        return literal(p, e);
    if (c == '[')
        return class(p, e);
    if (c == '(')
        return group(p, depth, e);
    if (c == '.') {
        p->c.at++;
        *e = expr_class(&p->pool, NULL, 0, true);
        return 0;
    }
    if (c == '<')
        return control_token(p, e);
    if (c == '%')
        return embedded_schema(p, e);
    if (c == '!')
        return fail(p, "tokens that are left out (!<...>) are not supported");
    size_t n = name_bytes(&p->c);
    *found = n > 0;
    if (n == 0)
        return 0;
    struct rule_name *name = name_of(p, p->c.at, n);
    p->c.at += n;
    *e = name ? expr_rule(&p->pool, name->rule) : EXPR_NEVER;
    return 0;
}

static int braces(struct gbnf *p, uint32_t *min, uint32_t *max)
{
    p->c.at++;
    skip_space(p, false);
    if (number(p, min) != 0)
        return -1;
    skip_space(p, false);
    *max = *min;
    if (cursor_peek(&p->c) == ',') {
        p->c.at++;
        skip_space(p, false);
        *max = EXPR_UNBOUNDED;
        if (cursor_peek(&p->c) != '}' && number(p, max) != 0)
            return -1;
        skip_space(p, false);
    }
    if (cursor_peek(&p->c) != '}' || *min > *max)
        return fail(p, "a repetition that is not {m}, {m,} or {m,n} with m at most n");
    p->c.at++;
    return 0;
}

static int repetitions(struct gbnf *p, unsigned depth, expr_id *e)
{
    for (;;) {
        uint32_t min = 0, max = EXPR_UNBOUNDED;
        skip_space(p, depth > 0);
        int c = cursor_peek(&p->c);
        if (c == '{') {
            if (braces(p, &min, &max) != 0)
                return -1;
        } else if (c == '*' || c == '+' || c == '?') {
            min = c == '+';
            max = c == '?' ? 1 : EXPR_UNBOUNDED;
            p->c.at++;
        } else {
            return 0;
        }
        *e = expr_repeat(&p->pool, *e, min, max);
    }
}

static int sequence(struct gbnf *p, unsigned depth, expr_id *e)
{
    *e = EXPR_EMPTY;
    for (;;) {
        expr_id one = EXPR_NEVER;
        bool found;
        if (element(p, depth, &one, &found) != 0)
            return -1;
        if (!found || p->pool.failed != ERR_NONE)
            return 0;
        if (repetitions(p, depth, &one) != 0)
            return -1;
        *e = expr_sequence(&p->pool, *e, one);
    }
}

/* An alternative may begin on the next line with its bar. */
static bool bar_follows(struct gbnf *p)
{
    struct cursor before = p->c;
    skip_space(p, true);
    if (cursor_peek(&p->c) == '|')
        return true;
    p->c = before;
    return false;
}

static int alternatives(struct gbnf *p, unsigned depth, expr_id *e)
{
    if (depth > GROUP_DEPTH)
        return fail(p, "groups are nested too deeply");
    if (sequence(p, depth, e) != 0)
        return -1;
    while (bar_follows(p)) {
        expr_id other;
        p->c.at++;
        skip_space(p, true);
        if (sequence(p, depth, &other) != 0)
            return -1;
        *e = expr_choice(&p->pool, *e, other);
    }
    return 0;
}

static int rule(struct gbnf *p)
{
    const char *name = p->c.at;
    size_t bytes = name_bytes(&p->c);
    if (bytes == 0 || bytes > NAME_BYTES)
        return fail(p, "a rule's name (letters, digits, - and _) is expected");
    p->c.at += bytes;
    skip_space(p, false);
    if (p->c.end - p->c.at < 3 || memcmp(p->c.at, "::=", 3) != 0)
        return fail(p, "::= is expected behind a rule's name");
    p->c.at += 3;
    struct rule_name *n = name_of(p, name, bytes);
    if (!n)
        return 0;
    if (n->line)
        return fail(p, "a rule that was defined before");
    n->line = p->c.line;
    uint32_t number = n->rule;
    skip_space(p, true);
    expr_id e;
    if (alternatives(p, 0, &e) != 0)
        return -1;
    expr_define(&p->pool, number, e);
    if (cursor_peek(&p->c) >= 0 && cursor_peek(&p->c) != '\n')
        return fail(p, "text that belongs to no rule");
    return 0;
}

static int check_names(struct gbnf *p, uint32_t *root)
{
    bool found = false;
    for (size_t i = 0; i < p->room; i++) {
        const struct rule_name *n = &p->names[i];
        if (!n->at)
            continue;
        if (!n->line)
            return error_set(p->error, ERR_BAD_INPUT, "GBNF, line %u: the rule %.*s is not defined",
                             n->used_line, n->bytes < 64 ? (int)n->bytes : 64, n->at);
        if (n->bytes == p->root_bytes && memcmp(n->at, p->root, n->bytes) == 0) {
            *root = n->rule;
            found = true;
        }
    }
    return found ? 0
                 : error_set(p->error, ERR_BAD_INPUT, "GBNF: there is no rule %.*s",
                             (int)p->root_bytes, p->root);
}

/* %root NAME: a text begins with that rule instead of `root`. */
static int other_root(struct gbnf *p)
{
    if (!take_word(p, "%root "))
        return fail(p, "%root and the name of a rule are expected");
    p->root = p->c.at;
    p->root_bytes = name_bytes(&p->c);
    p->c.at += p->root_bytes;
    return p->root_bytes > 0 && p->root_bytes <= NAME_BYTES ? 0 : fail(p, "%root has no name");
}

static int parse(struct gbnf *p, uint32_t *root)
{
    for (skip_space(p, true); p->c.at < p->c.end; skip_space(p, true)) {
        if (cursor_peek(&p->c) == '%' ? other_root(p) : rule(p))
            return -1;
        if (expr_pool_check(&p->pool, p->error) != 0)
            return -1;
    }
    return check_names(p, root);
}

/* Parses a text; *p is freed by the caller in any case. */
static int parse_text(struct gbnf *p, const char *text, size_t bytes,
                      const struct grammar_limits *l, uint32_t *root, struct error *error)
{
    *p = (struct gbnf){.c = {.at = text, .end = text + bytes, .line = 1},
                       .root = "root",
                       .root_bytes = strlen("root"),
                       .error = error};
    expr_pool_init(&p->pool, l);
    if (bytes > l->text_bytes)
        return error_set(error, ERR_BAD_INPUT, "GBNF: longer than %zu bytes", l->text_bytes);
    if (!utf8_valid(text, bytes))
        return error_set(error, ERR_BAD_INPUT, "GBNF: not UTF-8");
    return parse(p, root);
}

static void gbnf_free(struct gbnf *p)
{
    free(p->names);
    expr_pool_free(&p->pool);
}

static const struct grammar_limits standard = GRAMMAR_LIMITS_DEFAULT;

int grammar_gbnf_root(const char *text, size_t bytes, const char **name, size_t *name_bytes,
                      struct error *error)
{
    struct gbnf p;
    uint32_t root = 0;
    int rc = parse_text(&p, text, bytes, &standard, &root, error);
    *name = p.root;
    *name_bytes = p.root_bytes;
    gbnf_free(&p);
    return rc;
}

int grammar_from_gbnf(const char *text, size_t bytes, const struct grammar_limits *limits,
                      struct grammar **g, struct error *error)
{
    struct gbnf p;
    uint32_t root = 0;
    int rc = parse_text(&p, text, bytes, limits ? limits : &standard, &root, error);
    if (rc == 0)
        rc = program_make(&p.pool, root, g, error);
    gbnf_free(&p);
    return rc;
}
