/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files that write calls of tools as GBNF. */
#ifndef SLUICE_ENGINE_GATEWAY_API_CONSTRAINTS_WRITING_H
#define SLUICE_ENGINE_GATEWAY_API_CONSTRAINTS_WRITING_H

#include "procs/engine/gateway/api/constraints/calls.h"

struct writing {
    const struct calls *c;
    FILE *out;      /* the rules of the tools */
    FILE *rules;    /* those of arguments, which come behind all tools */
    json_t *lines;  /* calls_write's */
    size_t tool;    /* the one that is written */
    size_t count;   /* rules of arguments */
    unsigned depth; /* of values in tags */
};

/* ---- calls.c ---- */

/* A literal, behind a blank. */
void calls_put_quoted(FILE *out, const char *text, size_t bytes);
/* The JSON that a schema allows. Steals it. */
void calls_put_schema(FILE *out, json_t *schema);
/* 0, or -1 with ERR_BAD_INPUT: the text has become too long. */
int calls_check_size(const struct writing *w, struct error *error);
int calls_no_memory(struct error *error); /* -1, with the error */

/* ---- arguments.c: of models that write them one by one ---- */

/* In the order of the properties, as in objects; without properties, any. 0, or -1 with
 * ERR_BAD_INPUT (a schema cannot be enforced) or ERR_NO_MEMORY. */
int calls_put_arguments(struct writing *w, const char *tool, const json_t *parameters,
                        struct error *error);

/* Which one a value is, or is within. */
struct argument {
    const char *tool, *key;   /* key NULL: of any name */
    const json_t *parameters; /* of the tool: references lead into them */
};

/* The JSON of an argument, or of a part of one, by a rule of its own. Errors as above. */
int calls_put_json(struct writing *w, const struct argument *of, const json_t *schema,
                   struct error *error);
/* Python's name of a value, which models write whose templates print arguments with str(); NULL: it
 * has none, or the form is another one. */
const char *calls_python_name(const struct answer_call *f, const json_t *value);

/* ---- texts.c: of arguments that are texts ---- */

/* The rule `text`, which arguments use: a text without the mark behind it; and those that it needs,
 * one for each beginning of the mark. */
void calls_put_texts(FILE *out, const struct answer_call *f);
/* The texts that a schema allows, which may take texts. Errors as above. */
int calls_put_text(struct writing *w, const struct argument *of, const json_t *schema,
                   struct error *error);
/* How often what was written may come: {min,max}, by two keywords of the schema. A maximum above
 * what grammars count is not enforced, which strict does not permit. Errors as above. */
int calls_put_counts(struct writing *w, const struct argument *of, const json_t *schema,
                     const char *min_key, const char *max_key, struct error *error);
/* Whether a schema allows texts, by the rule of the reader of answers; whether nothing else. */
bool calls_takes_text(const struct argument *of, const json_t *schema);
bool calls_is_text(const struct argument *of, const json_t *schema);
/* Whether calls say of each value if it is a text. */
bool calls_says_type(const struct answer_call *f);
/* Whether a keyword says nothing of the values. */
bool calls_is_note(const char *key);

#endif
