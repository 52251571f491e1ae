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
/* The rule `text`, which arguments use: a text without the mark behind it; and those that it needs,
 * one for each beginning of the mark. */
void calls_put_texts(FILE *out, const struct answer_call *f);

#endif
