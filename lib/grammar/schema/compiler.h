/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of the compiler for JSON Schema. Its functions return expressions; after the first
 * error they return EXPR_NEVER. */
#ifndef SLUICE_GRAMMAR_SCHEMA_COMPILER_H
#define SLUICE_GRAMMAR_SCHEMA_COMPILER_H

#include <jansson.h>

#include "lib/grammar/expr.h"

#define SCHEMA_DEPTH 100 /* of schemas in each other, beside $ref */

struct schema_target { /* of a $ref */
    const json_t *schema;
    uint32_t rule;
    char *path;
};

struct compiler {
    struct expr_pool pool;
    bool gemma, python; /* the spelling */
    bool call;          /* in Python: the next object is the arguments of the call */
    const json_t *root;
    json_t *made; /* an array that owns the merged schemas */
    struct schema_target *targets;
    uint32_t targets_count, targets_room, depth, visits, any_rule;
    bool has_any, failed;
    char path[200]; /* of the schema that is compiled: $.properties.x */
    struct error *error;
};

/* Notes an error with the present path; returns EXPR_NEVER. `keyword` may be NULL. */
expr_id schema_fail(struct compiler *c, const char *keyword, const char *what);
/* Makes the path longer; the caller restores it with the length that was before. */
size_t schema_enter(struct compiler *c, const char *key, size_t index);
void schema_leave(struct compiler *c, size_t length);

expr_id schema_compile(struct compiler *c, const json_t *schema);
expr_id schema_any(struct compiler *c);
/* An expression for one value. */
expr_id schema_value(struct compiler *c, const json_t *value);
/* Its JSON as a word; a text in the other spelling without its marks. */
void schema_add_word(struct compiler *c, const json_t *value);
/* A count of a keyword; `absent` without it. */
uint32_t schema_count(struct compiler *c, const json_t *schema, const char *key, uint32_t absent);
expr_id schema_comma(struct compiler *c);
expr_id schema_colon(struct compiler *c);

/* spelling.c: texts, and what is around and in them. */
expr_id schema_null(struct compiler *c);
/* JSON's true or false, with Python's name of it where the spelling has that, too. */
expr_id schema_boolean(struct compiler *c, bool value);
expr_id schema_quote(struct compiler *c);
expr_id schema_key(struct compiler *c, const char *name);
/* In Python, a text between single quotes, of min to max characters. */
expr_id schema_single_quoted(struct compiler *c, uint32_t min, uint32_t max);
/* The same for one text, as a word; false: it would need escapes, and no word was added. */
bool schema_add_single_quoted(struct compiler *c, const json_t *value);
/* The name of an argument of a call. */
expr_id schema_argument(struct compiler *c, const char *name);
/* Any such name: asked for only where no name is listed. */
expr_id schema_other_argument(struct compiler *c);
/* One character between the quotes; any number of them. In the spelling of Gemma they are as they
 * are: where characters are counted, none begins a mark. */
expr_id schema_char(struct compiler *c);
expr_id schema_chars(struct compiler *c);
/* Words [first, first + count) as texts. */
expr_id schema_texts(struct compiler *c, uint32_t first, uint32_t count);
/* A key that is not among words [first, first + count), which have no quotes. */
expr_id schema_other_key(struct compiler *c, uint32_t first, uint32_t count);

/* A file each. */
expr_id schema_object(struct compiler *c, const json_t *schema);
expr_id schema_array(struct compiler *c, const json_t *schema);
expr_id schema_string(struct compiler *c, const json_t *schema);
expr_id schema_number(struct compiler *c, const json_t *schema, bool integer);
/* The characters between the quotes that a pattern allows, min to max of them. */
expr_id schema_pattern(struct compiler *c, const char *keyword, const char *pattern, size_t bytes,
                       uint32_t min, uint32_t max);
/* NULL after an error. Borrowed. */
const json_t *schema_merge(struct compiler *c, const json_t *a, const json_t *b);
const json_t *schema_resolve(struct compiler *c, const json_t *schema);
const json_t *schema_target(struct compiler *c, const char *ref);
/* Whether it refers to itself without a value around it. A long way back is not found here. */
bool schema_leads_back(const struct compiler *c, const json_t *target);
/* Whether a keyword says nothing of the values: it is not in keywords.tbl.h. */
bool schema_is_annotation(const char *key);
/* Whether its format says something of texts. */
bool schema_knows_format(const json_t *schema);
bool schema_disjoint(struct compiler *c, const json_t *a, const json_t *b);

#endif
