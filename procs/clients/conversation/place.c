/* SPDX-License-Identifier: Apache-2.0 */
/* Places the grammar of an answer after its reasoning. */
#include "procs/clients/conversation/conversation.h"

int conversation_place_grammar(const struct answer_form *form, const struct chat_prompt *prompt,
                               struct grammar_source *grammar, struct error *error)
{
    if (grammar->kind == GRAMMAR_NONE)
        return 0;
    if (form->channels)
        return error_set(error, ERR_BAD_INPUT,
                         "answers of this model are messages with headers, for which --json-schema "
                         "and --grammar have no form; use the API (response_format)");
    if (!form->reasoning.open || !form->reasoning.close)
        return 0;
    grammar->close = form->reasoning.close;
    if (answer_front(form, prompt->text, prompt->bytes) == 0)
        grammar->open = form->reasoning.open;
    return 0;
}
