/* SPDX-License-Identifier: Apache-2.0 */
/* Expressions of a language over bytes: what both parsers make, and what emit.c turns into an
 * automaton. They are numbers in a pool. When a limit is met the pool remembers it and returns
 * EXPR_NEVER, so that parsers need not ask after each call. */
#ifndef SLUICE_GRAMMAR_EXPR_H
#define SLUICE_GRAMMAR_EXPR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/error.h"
#include "lib/grammar/grammar.h"

#define EXPR_UNBOUNDED      UINT32_MAX
#define CODEPOINT_MAX       0x10FFFFu
#define EXPR_WORD_BYTES_MAX 1024

typedef uint32_t expr_id;
enum { EXPR_NEVER, EXPR_EMPTY }; /* the first two expressions of each pool */

enum expr_kind {
    EXPR_KIND_NEVER,
    EXPR_KIND_EMPTY,
    EXPR_KIND_TEXT,     /* bytes [a, a + b) of the pool's text */
    EXPR_KIND_CLASS,    /* one character of the ranges [a, a + b), in UTF-8 */
    EXPR_KIND_SEQUENCE, /* a, then b */
    EXPR_KIND_CHOICE,   /* a or b */
    EXPR_KIND_REPEAT,   /* a, min to max times */
    EXPR_KIND_RULE,     /* rule a */
    EXPR_KIND_WORDS,    /* one of the words [a, a + b) */
    EXPR_KIND_CHAR,     /* a character of a JSON string, with its escapes */
    EXPR_KIND_OTHER_KEY /* a JSON string after its first quote, unlike the words [a, a + b) */
};

struct expr {
    enum expr_kind kind;
    uint32_t a, b, min, max;
};

struct char_range {
    uint32_t first, last;
};

struct word {
    uint32_t offset, bytes; /* in the pool's text */
};

struct expr_pool {
    const struct grammar_limits *limits;
    struct expr *exprs;
    char *text;
    struct char_range *ranges;
    struct word *words;
    expr_id *rules; /* the expression of each rule */
    uint32_t exprs_count, text_count, ranges_count, words_count, rules_count;
    uint32_t exprs_room, text_room, ranges_room, words_room, rules_room;
    enum error_code failed; /* ERR_NONE; ERR_BAD_INPUT: a limit; ERR_NO_MEMORY */
};

void expr_pool_init(struct expr_pool *p, const struct grammar_limits *limits);
void expr_pool_free(struct expr_pool *p);
/* -1 with the error if a limit was met or memory was short. */
int expr_pool_check(const struct expr_pool *p, struct error *error);

expr_id expr_text(struct expr_pool *p, const char *text, size_t bytes);
expr_id expr_string(struct expr_pool *p, const char *text); /* up to its NUL */
/* Ranges may overlap and have any order. Surrogates are left out. */
expr_id expr_class(struct expr_pool *p, const struct char_range *ranges, size_t count,
                   bool negated);
expr_id expr_sequence(struct expr_pool *p, expr_id a, expr_id b);
expr_id expr_choice(struct expr_pool *p, expr_id a, expr_id b);
expr_id expr_repeat(struct expr_pool *p, expr_id a, uint32_t min, uint32_t max);
expr_id expr_optional(struct expr_pool *p, expr_id a);
expr_id expr_char(struct expr_pool *p);

/* Words are added to the pool one after the other; [first, first + count) is then an expression. */
void expr_add_word(struct expr_pool *p, const char *text, size_t bytes);
expr_id expr_words(struct expr_pool *p, uint32_t first, uint32_t count);
expr_id expr_other_key(struct expr_pool *p, uint32_t first, uint32_t count);

/* A rule gets its expression later; without one it is EXPR_NEVER. */
uint32_t expr_new_rule(struct expr_pool *p);
void expr_define(struct expr_pool *p, uint32_t rule, expr_id e);
expr_id expr_rule(struct expr_pool *p, uint32_t rule);

/* How values are written: as JSON; as Gemma 4 writes arguments of calls: keys without quotes, in
 * alphabetical order, and texts as they are between two marks; or as an object's members are
 * arguments of a call in Python: KEY=VALUE, with True, False and None beside what JSON has
 * (schema/spelling.c). */
enum schema_spelling { SPELLING_JSON, SPELLING_GEMMA, SPELLING_PYTHON };

/* schema/schema.c: a rule of the pool for the values that a schema allows. -1 with ERR_BAD_INPUT or
 * ERR_NO_MEMORY; the pool may have failed, too. */
int schema_rule(struct expr_pool *pool, const char *text, size_t bytes,
                enum schema_spelling spelling, uint32_t *rule, struct error *error);

#endif
