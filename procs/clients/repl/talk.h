/* What was said: prompts and answers, the oldest forgotten when it becomes too much. */
#ifndef SLUICE_CLIENTS_REPL_TALK_H
#define SLUICE_CLIENTS_REPL_TALK_H

#include <jansson.h>
#include <stddef.h>

#include "lib/base/error.h"
#include "lib/model/chat/chat.h"

#define TALK_BYTES_MAX   (1u << 20) /* of all prompts and answers */
#define TALK_PROMPT_MAX  (64u << 10)
#define TALK_CONTEXT_MAX (64u << 10)

struct turn {
    char *prompt, *response;
};

struct talk {
    struct turn *turns;
    size_t count, bytes;
};

/* Copies both. Forgets the oldest turns beyond TALK_BYTES_MAX. -1: no memory. */
int talk_add(struct talk *t, const char *prompt, const char *response);
void talk_clear(struct talk *t);

/* The text to be continued: at most `context` bytes of what was said, begun after a line's end
 * where there is one and never inside a character, then the prompt. Newly allocated; NULL: no
 * memory. */
char *talk_text(const struct talk *t, const char *prompt, size_t context);

/* The same as a conversation in the form of the model's family: of the turns the newest whole ones
 * of at most `context` bytes together, and none older than one the form refuses, so that a mark in
 * an old answer does not end the talk. Newly allocated; NULL with *error. */
char *talk_chat(const struct talk *t, const struct model_chat *chat, const char *prompt,
                size_t context, struct error *error);

/* Takes the last turn away and gives its prompt (caller frees); NULL: nothing was said. */
char *talk_take_last(struct talk *t);

/* A file of one JSON object: {"format": ..., "turns": [{"prompt", "answer"}], "settings": {}}.
 * Written beside it and renamed. Reading checks everything; *t and *settings (new reference) are
 * set only when all of it is right. */
int talk_save(const struct talk *t, json_t *settings, const char *path, struct error *error);
int talk_load(struct talk *t, json_t **settings, const char *path, struct error *error);

#endif
