/* Conversation history: prompts and responses; the oldest are dropped beyond a limit. */
#ifndef SLUICE_CLIENTS_REPL_TALK_H
#define SLUICE_CLIENTS_REPL_TALK_H

#include <jansson.h>
#include <stddef.h>

#include "lib/base/error.h"
#include "lib/model/chat/chat.h"

#define TALK_BYTES_MAX   (1u << 20) /* all prompts and responses */
#define TALK_PROMPT_MAX  (64u << 10)
#define TALK_CONTEXT_MAX (64u << 10)

struct turn {
    char *prompt, *response;
};

struct talk {
    struct turn *turns;
    size_t count, bytes;
};

/* Adds a turn (copies both strings) and drops the oldest turns beyond TALK_BYTES_MAX. -1: out of
 * memory. */
int talk_add(struct talk *t, const char *prompt, const char *response);
void talk_clear(struct talk *t);

/* Prompt as plain text to be continued: at most `context` bytes of the history, starting after a
 * line end if there is one and never inside a UTF-8 character, then the prompt. Caller frees; NULL:
 * out of memory. */
char *talk_text(const struct talk *t, const char *prompt, size_t context);

/* Prompt in the chat template of the model's family: the newest whole turns of at most `context`
 * bytes together, then the prompt. A turn that the template rejects (it contains a control token)
 * and all older ones are left out, so that one bad response does not block the conversation. Caller
 * frees; NULL with *error. */
char *talk_chat(const struct talk *t, const struct model_chat *chat, const char *prompt,
                size_t context, struct error *error);

/* Removes the last turn and returns its prompt (caller frees); NULL: no turns. */
char *talk_take_last(struct talk *t);

/* Save and load a file with one JSON object: {"format": ..., "turns": [{"prompt", "answer"}],
 * "settings": {}}. Saving writes a temporary file and renames it. Loading checks everything; *t and
 * *settings (new reference) are set only on success. */
int talk_save(const struct talk *t, json_t *settings, const char *path, struct error *error);
int talk_load(struct talk *t, json_t **settings, const char *path, struct error *error);

#endif
