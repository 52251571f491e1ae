/* SPDX-License-Identifier: Apache-2.0 */
/* Places the grammar of an answer after its reasoning. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#include "procs/clients/conversation/conversation.h"

static int no_memory(struct error *error)
{
    return error_set(error, ERR_NO_MEMORY, "out of memory (grammar)");
}

/* Answers in channels: the headers and the thoughts are rules before the answer. */
static int put_headers(struct grammar_source *g, char **made, struct error *error)
{
    bool gbnf = g->kind == GRAMMAR_GBNF;
    json_t *schema = gbnf ? NULL : json_loadb(g->text, g->bytes, JSON_DECODE_ANY, NULL);
    size_t bytes = 0;
    FILE *out = open_memstream(made, &bytes);
    if (!out) {
        json_decref(schema);
        return no_memory(error);
    }
    if (gbnf)
        fprintf(out, "%.*s\n", (int)g->bytes, g->text);
    fputs(ANSWER_CHANNEL_RULES "%root answer-all\n"
                               "answer-all ::= answer-think* answer-final ",
          out);
    fputs(gbnf ? "root" : "%json ", out);
    if (json_is_object(schema))
        json_dumpf(schema, out, JSON_COMPACT);
    else if (!gbnf)
        fputs("{}", out); /* true: any JSON */
    fputs("\n", out);
    json_decref(schema);
    if (fclose(out) != 0)
        return no_memory(error);
    *g = (struct grammar_source){.kind = GRAMMAR_GBNF, .text = *made, .bytes = bytes};
    return 0;
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
