/* SPDX-License-Identifier: Apache-2.0 */
/* Conversation history: prompts and responses; the oldest are dropped beyond a limit. */
#ifndef SLUICE_CLIENTS_CONVERSATION_CONVERSATION_H
#define SLUICE_CLIENTS_CONVERSATION_CONVERSATION_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "lib/base/error.h"
#include "lib/grammar/grammar.h"
#include "lib/model/chat/format.h"

#define CONVERSATION_BYTES_MAX  (1u << 20) /* all prompts and responses */
#define CONVERSATION_PROMPT_MAX (64u << 10)

struct turn {
    char *prompt, *response; /* NUL-terminated; a response may have NUL inside */
    size_t response_bytes;
};

struct conversation {
    struct turn *turns;
    size_t count, bytes;
    size_t first; /* turns before it are no longer sent: they do not fit the context */
};

/* Adds a turn (copies both texts) and drops the oldest turns beyond CONVERSATION_BYTES_MAX. -1:
 * out of memory. */
int conversation_add(struct conversation *t, const char *prompt, const char *response,
                     size_t response_bytes);
void conversation_clear(struct conversation *t);

/* Prompt as plain text to be continued: the turns from `first` on, then the prompt. Caller frees;
 * NULL: out of memory. */
char *conversation_text(struct conversation *t, const char *prompt, size_t *bytes);

/* How a conversation is rendered. All borrowed. */
struct conversation_form {
    const struct chat_format *chat;
    const char *system;      /* the system message; NULL: none */
    const json_t *variables; /* of the template; NULL: none */
};

/* Prompt in the model's chat format: the system message, the turns from `first` on, the prompt. A
 * turn that the template rejects (it contains one of its text marks) and all older ones are left
 * out (`first`), so that one bad response does not block the conversation. Caller frees *out; -1
 * with *error. */
int conversation_chat(struct conversation *t, const struct conversation_form *form,
                      const char *prompt, struct chat_prompt *out, struct error *error);

/* The grammar is that of the answer to `prompt`, not of the reasoning before it. The marks are
 * borrowed from the form. *made, which the caller frees, is the text of the grammar where it is
 * another one, else NULL. -1 with ERR_NO_MEMORY, or ERR_BAD_INPUT: it is no grammar. */
int conversation_place_grammar(const struct answer_form *form, const struct chat_prompt *prompt,
                               struct grammar_source *grammar, char **made, struct error *error);

/* Removes the last turn into *turn (the caller frees both texts). False: there is none. */
bool conversation_take_last(struct conversation *t, struct turn *turn);

/* Save and load a file with one JSON object: {"format": ..., "turns": [{"prompt", "answer"}],
 * "settings": {}}. Saving writes a temporary file and renames it. Loading checks everything; *t and
 * *settings (new reference) are set only on success. */
int conversation_save(const struct conversation *t, json_t *settings, const char *path,
                      bool overwrite, struct error *error);
int conversation_load(struct conversation *t, json_t **settings, const char *path,
                      struct error *error);

#endif
