/* SPDX-License-Identifier: Apache-2.0 */
/* Places the grammar of an answer after its reasoning. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#include "procs/clients/conversation/conversation.h"

/* Behind the rules of the answer: of several %root the last one counts. */
static const char behind_headers[] =
    ANSWER_CHANNEL_RULES "%root answer-all\n"
                         "answer-all ::= answer-think* answer-final ";

static int no_memory(struct error *error)
{
    return error_set(error, ERR_NO_MEMORY, "out of memory (grammar)");
}

/* The text of a grammar, and behind it the rule of the answer. */
static int put_rules(const struct grammar_source *g, FILE *out, struct error *error)
{
    const char *root;
    size_t bytes;
    if (grammar_gbnf_root(g->text, g->bytes, &root, &bytes, error) != 0)
        return -1;
    fprintf(out, "%.*s\n%s%.*s\n", (int)g->bytes, g->text, behind_headers, (int)bytes, root);
    return 0;
}

/* A schema in one line; true: any JSON. */
static int put_schema(const struct grammar_source *g, FILE *out, struct error *error)
{
    json_error_t why;
    json_t *schema = json_loadb(g->text, g->bytes, JSON_DECODE_ANY, &why);
    bool good = json_is_object(schema) || json_is_true(schema);
    fprintf(out, "%s%%json ", behind_headers);
    if (json_is_object(schema))
        json_dumpf(schema, out, JSON_COMPACT);
    else
        fputs("{}", out);
    fputs("\n", out);
    if (!good)
        error_set(error, ERR_BAD_INPUT, "the JSON Schema is no object and not true: %.200s",
                  schema ? "it is another value" : why.text);
    json_decref(schema);
    return good ? 0 : -1;
}

/* Answers in channels: the headers and the thoughts are rules before the answer. */
static int put_headers(struct grammar_source *g, char **made, struct error *error)
{
    size_t bytes = 0;
    FILE *out = open_memstream(made, &bytes);
    if (!out)
        return no_memory(error);
    int rc = g->kind == GRAMMAR_GBNF ? put_rules(g, out, error) : put_schema(g, out, error);
    if (fclose(out) != 0 && rc == 0)
        rc = no_memory(error);
    if (rc == 0)
        *g = (struct grammar_source){.kind = GRAMMAR_GBNF, .text = *made, .bytes = bytes};
    return rc;
}

int conversation_place_grammar(const struct answer_form *form, const struct chat_prompt *prompt,
                               struct grammar_source *grammar, char **made, struct error *error)
{
    *made = NULL;
    if (grammar->kind == GRAMMAR_NONE)
        return 0;
    if (form->channels)
        return put_headers(grammar, made, error);
    if (!form->reasoning.open || !form->reasoning.close)
        return 0;
    grammar->close = form->reasoning.close;
    if (answer_front(form, prompt->text, prompt->bytes) == 0)
        grammar->open = form->reasoning.open;
    return 0;
}
