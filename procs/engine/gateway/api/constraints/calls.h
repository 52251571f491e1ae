/* SPDX-License-Identifier: Apache-2.0 */
/* Calls of tools in the form of a model (lib/model/chat/answer.h), as GBNF (lib/grammar). Pure. */
#ifndef SLUICE_ENGINE_GATEWAY_API_CONSTRAINTS_CALLS_H
#define SLUICE_ENGINE_GATEWAY_API_CONSTRAINTS_CALLS_H

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

#include "lib/base/error.h"
#include "lib/model/chat/answer.h"

/* Control tokens that are no <name>: each mark of nested calls (MiniMax-M3) begins with the first;
 * the other is within each mark of DeepSeek V3.2. */
#define CALLS_NAMESPACE "]<]minimax[>["
#define CALLS_DSML      "｜DSML｜"

/* Which calls are written. */
struct calls {
    const struct answer_form *form;
    const json_t *tools; /* an array in OpenAI's form */
    const char *name;    /* of the only one that may be called; NULL: any */
    bool one;            /* at most one call */
    bool strict;         /* what the form cannot enforce of a schema is an error */
    /* Told of each tool whose schema cannot be written at all: its calls may have any arguments.
     * NULL: that is an error. */
    void (*left_out)(void *arg, const char *tool);
    void *left_out_arg;
};

/* Whether calls of the form can be written as a grammar. */
bool calls_have_grammar(const struct answer_form *form);
/* Writes a rule for each tool, a line each, then one for each argument that is JSON where the model
 * writes arguments one by one; then `call`, one call with its marks, `calls`, one or more of them,
 * and `more`, what follows the opening mark of the first one. `lines` (an array) gets what line
 * i + 1 is of: the name of a tool, or [that name, property], null for arguments of any name. -1
 * with ERR_BAD_INPUT: no tool has that name, a schema cannot be enforced, or they take more than
 * GRAMMAR_TEXT_BYTES_MAX; ERR_NO_MEMORY. */
int calls_write(const struct calls *c, FILE *out, json_t *lines, struct error *error);
/* A mark that calls begin with, behind which `more` is; a part of their own one where that has a
 * control token within. */
const char *calls_trigger(const struct answer_call *f);
/* A text as a sequence of GBNF, with what may be a control token as that token. */
void calls_put(FILE *out, const char *text);

#endif
