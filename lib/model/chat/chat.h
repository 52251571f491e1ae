/* Conversations as text: which family's form a model's chat template has (chat.tbl.h), and a list
 * of messages in that form. A model without a template, or with an unknown one, gets plain text:
 * "User: ...", "Assistant: ...". Pure. */
#ifndef SLUICE_MODEL_CHAT_CHAT_H
#define SLUICE_MODEL_CHAT_CHAT_H

#include <stddef.h>
#include <stdint.h>

#include "lib/base/error.h"

#define CHAT_TOKEN_BYTES  48
#define CHAT_MESSAGES_MAX 1024

enum chat_family {
    CHAT_PLAIN,
#define CHAT(name, ...) CHAT_##name,
#include "lib/model/chat/chat.tbl.h"
    CHAT__COUNT
};

/* Chat form, as stored in the model segment. */
struct model_chat {
    uint32_t family;    /* enum chat_family */
    uint32_t bos_first; /* 1: a conversation begins with bos; 0: the tokenizer adds it, or not */
    char bos[CHAT_TOKEN_BYTES]; /* as written in the vocabulary; "": there is none */
    char eos[CHAT_TOKEN_BYTES];
};

enum chat_role { CHAT_SYSTEM, CHAT_USER, CHAT_ASSISTANT, CHAT_ROLE__COUNT };

struct chat_message {
    enum chat_role role;
    const char *text; /* borrowed; no NUL inside */
    size_t bytes;
};

/* The family a template belongs to; CHAT_PLAIN when it is none of the table's. */
enum chat_family chat_recognise(const char *text, size_t bytes);

const char *chat_name(enum chat_family family);
enum chat_family chat_find(const char *name); /* unknown words are CHAT_PLAIN */

/* Chat form, as described in JSON by chat_name() and the vocabulary. */
void chat_describe(struct model_chat *chat, const char *name, const char *bos, const char *eos,
                   uint32_t bos_first);

/* The prompt that asks for the next answer: newly allocated, NUL-terminated (caller frees). -1 with
 * ERR_BAD_INPUT: no messages, too many, a prompt of more than max bytes, a message that holds a
 * control mark of the family, or a system message that has no place: families that write it into
 * the next user's message need one. */
int chat_render(const struct model_chat *chat, const struct chat_message *messages, size_t count,
                size_t max, char **text, size_t *bytes, struct error *error);

#endif
