/* SPDX-License-Identifier: Apache-2.0 */
/* Spells texts and names: those of JSON with quotes and escapes, which Python reads, too; those of
 * Gemma 4 between two marks and without escapes, and names of members as they are. */
#include <string.h>

#include "lib/base/bytes.h"
#include "lib/grammar/schema/compiler.h"

#define MARK               "<|\"|>"
#define ARGUMENT_BYTES_MAX 128 /* of its name; calls/python.c reads no longer one */

expr_id schema_null(struct compiler *c)
{
    expr_id e = expr_string(&c->pool, "null");
    return c->gemma || c->python ? expr_choice(&c->pool, e, expr_string(&c->pool, "None")) : e;
}

expr_id schema_boolean(struct compiler *c, bool value)
{
    expr_id e = expr_string(&c->pool, value ? "true" : "false");
    return c->python ? expr_choice(&c->pool, e, expr_string(&c->pool, value ? "True" : "False"))
                     : e;
}

/* The mark may be a control token. */
expr_id schema_quote(struct compiler *c)
{
    static const char border = (char)GRAMMAR_CONTROL_BYTE;
    if (!c->gemma)
        return expr_string(&c->pool, "\"");
    expr_id text = expr_string(&c->pool, MARK), side = expr_text(&c->pool, &border, 1);
    expr_id token = expr_sequence(&c->pool, expr_sequence(&c->pool, side, text), side);
    return expr_choice(&c->pool, token, text);
}

/* ---- names ---- */

static bool needs_quotes(const char *name)
{
    size_t n = strlen(name);
    if (n == 0 || name[0] == ' ' || name[n - 1] == ' ')
        return true;
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)name[i] < ' ' || strchr(":,{}[]<>\"", name[i]))
            return true;
    return false;
}

expr_id schema_key(struct compiler *c, const char *name)
{
    if (c->gemma) {
        if (needs_quotes(name))
            return schema_fail(c, NULL,
                               "a name that this model could not write, as it writes names "
                               "without quotes; rename it");
        return expr_string(&c->pool, name);
    }
    json_t *key = json_string(name);
    expr_id e = schema_value(c, key);
    uint32_t first = c->pool.words_count;
    if (c->python && key && schema_add_single_quoted(c, key))
        e = expr_choice(&c->pool, e, expr_words(&c->pool, first, 1));
    json_decref(key);
    return e;
}

expr_id schema_single_quoted(struct compiler *c, uint32_t min, uint32_t max)
{
    static const struct char_range special[] = {{0, 0x1f}, {'\'', '\''}, {'\\', '\\'}};
    static const struct char_range names[] = {{'"', '"'},   {'\'', '\''}, {'/', '/'},
                                              {'\\', '\\'}, {'b', 'b'},   {'f', 'f'},
                                              {'n', 'n'},   {'r', 'r'},   {'t', 't'}};
    expr_id name = expr_class(&c->pool, names, ARRAY_LEN(names), false);
    expr_id escape = expr_sequence(&c->pool, expr_string(&c->pool, "\\"), name);
    expr_id one = expr_class(&c->pool, special, ARRAY_LEN(special), true);
    expr_id all = expr_repeat(&c->pool, expr_choice(&c->pool, one, escape), min, max);
    expr_id quote = expr_string(&c->pool, "'");
    return expr_sequence(&c->pool, expr_sequence(&c->pool, quote, all), quote);
}

bool schema_add_single_quoted(struct compiler *c, const json_t *value)
{
    char text[EXPR_WORD_BYTES_MAX];
    const char *from = json_string_value(value);
    size_t n = json_string_length(value);
    if (n + 2 > sizeof text)
        return false;
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)from[i] < ' ' || from[i] == '\'' || from[i] == '\\')
            return false;
    text[0] = text[n + 1] = '\'';
    memcpy(text + 1, from, n);
    expr_add_word(&c->pool, text, n + 2);
    return true;
}

expr_id schema_argument(struct compiler *c, const char *name)
{
    size_t n = strlen(name);
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)name[i] <= ' ' || strchr("=,;:()[]{}\"'<>", name[i]))
            n = 0;
    if (n == 0 || n > ARGUMENT_BYTES_MAX)
        return schema_fail(c, NULL,
                           "a name that this model could not write, as its calls have names "
                           "without quotes; rename it");
    return expr_string(&c->pool, name);
}

expr_id schema_other_argument(struct compiler *c)
{
    static const struct char_range letters[] = {{'A', 'Z'}, {'_', '_'}, {'a', 'z'}, {'0', '9'}};
    expr_id first = expr_class(&c->pool, letters, ARRAY_LEN(letters) - 1, false);
    expr_id rest = expr_class(&c->pool, letters, ARRAY_LEN(letters), false);
    rest = expr_repeat(&c->pool, rest, 0, ARGUMENT_BYTES_MAX - 1);
    return expr_sequence(&c->pool, first, rest);
}

/* Gemma: object.c asks for it only where no name is listed. */
expr_id schema_other_key(struct compiler *c, uint32_t first, uint32_t count)
{
    static const struct char_range marks[] = {{0, ' '},   {'"', '"'}, {',', ','}, {':', ':'},
                                              {'<', '<'}, {'>', '>'}, {'[', '['}, {']', ']'},
                                              {'{', '{'}, {'}', '}'}};
    if (c->gemma)
        return expr_repeat(&c->pool,
                           expr_class(&c->pool, marks, sizeof marks / sizeof *marks, true), 1,
                           EXPR_UNBOUNDED);
    return expr_sequence(&c->pool, expr_string(&c->pool, "\""),
                         expr_other_key(&c->pool, first, count));
}

/* ---- texts ---- */

static expr_id not(struct compiler * c, char a, char b)
{
    struct char_range but[] = {{(unsigned char)a, (unsigned char)a},
                               {(unsigned char)b, (unsigned char)b}};
    return expr_class(&c->pool, but, 2, true);
}

expr_id schema_char(struct compiler *c)
{
    return c->gemma ? not(c, MARK[0], MARK[0]) : expr_char(&c->pool);
}

/* Text without the mark, whose first character is in it only once: beginnings of the mark are
 * followed by another beginning, or by a character that neither continues it nor begins one. */
expr_id schema_chars(struct compiler *c)
{
    if (!c->gemma)
        return expr_repeat(&c->pool, expr_char(&c->pool), 0, EXPR_UNBOUNDED);
    expr_id begin = EXPR_NEVER, broken = EXPR_NEVER;
    for (size_t i = 1; i < strlen(MARK); i++) {
        expr_id part = expr_text(&c->pool, MARK, i);
        begin = expr_choice(&c->pool, begin, part);
        broken =
            expr_choice(&c->pool, broken, expr_sequence(&c->pool, part, not(c, MARK[0], MARK[i])));
    }
    expr_id begins = expr_repeat(&c->pool, begin, 0, EXPR_UNBOUNDED);
    expr_id one = expr_choice(&c->pool, schema_char(c), expr_sequence(&c->pool, begins, broken));
    return expr_sequence(&c->pool, expr_repeat(&c->pool, one, 0, EXPR_UNBOUNDED), begins);
}

expr_id schema_texts(struct compiler *c, uint32_t first, uint32_t count)
{
    for (uint32_t i = 0; i < count && c->pool.failed == ERR_NONE; i++) {
        struct word w = c->pool.words[first + i];
        if (memmem(c->pool.text + w.offset, w.bytes, MARK, strlen(MARK)))
            return schema_fail(c, NULL, "a text with " MARK ", which ends texts of this model");
    }
    expr_id e = expr_sequence(&c->pool, schema_quote(c), expr_words(&c->pool, first, count));
    return expr_sequence(&c->pool, e, schema_quote(c));
}
