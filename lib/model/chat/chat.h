/* SPDX-License-Identifier: Apache-2.0 */
/* Chat templates: recognises the family of a model's template (chat.tbl.h), and renders a list of
 * messages in the family's format. A model without a template, or with an unknown one, gets plain
 * text: "User: ...", "Assistant: ...". Pure functions. */
#ifndef SLUICE_MODEL_CHAT_CHAT_H
#define SLUICE_MODEL_CHAT_CHAT_H

#include <stddef.h>
#include <stdint.h>

#include "lib/base/error.h"
#include "lib/text/ranges.h"

#define CHAT_TOKEN_BYTES  48
#define CHAT_GAP_TOKENS   3
#define CHAT_MESSAGES_MAX 1024

enum chat_family {
    CHAT_PLAIN,
#define CHAT(name, ...) CHAT_##name,
#include "lib/model/chat/chat.tbl.h"
    CHAT__COUNT
};

/* Chat format of a model, as stored in the model segment. */
struct model_chat {
    uint32_t family;    /* enum chat_family */
    uint32_t bos_first; /* 1: the prompt starts with bos; 0: the tokenizer adds it, or none */
    uint32_t bos_added; /* 1: the tokenizer adds it */
    char bos[CHAT_TOKEN_BYTES]; /* as written in the vocabulary; "": none */
    char eos[CHAT_TOKEN_BYTES];
    /* Of prompts with a gap: before what precedes it, before what follows it, and before what the
     * model writes. All of them, or "": the model has none. */
    char gap[CHAT_GAP_TOKENS][CHAT_TOKEN_BYTES];
};

enum chat_role { CHAT_SYSTEM, CHAT_USER, CHAT_ASSISTANT, CHAT_ROLE__COUNT };

struct chat_message {
    enum chat_role role;
    const char *text; /* borrowed; may have NUL inside */
    size_t bytes;
};

/* The family of a template; CHAT_PLAIN if it is not in the table. */
enum chat_family chat_recognise(const char *text, size_t bytes);

/* The name of a family; it is static. */
const char *chat_name(enum chat_family family);
/* The family of that name; CHAT_PLAIN if there is none. */
enum chat_family chat_find(const char *name);

/* Fills `chat` from values of JSON: a name as chat_name gives it, and the tokens as text. */
void chat_describe(struct model_chat *chat, const char *name, const char *bos, const char *eos,
                   uint32_t bos_first);

/* Rejects a message with a mark that the family's template writes as ordinary text, because the
 * model could not distinguish it from the template's. 0, or -1 with ERR_BAD_INPUT. */
int chat_reject_marks(enum chat_family family, const char *text, size_t bytes, struct error *error);

/* A prompt. Its bytes are those of messages, and those that the template wrote: only in the latter
 * the text of a control token is that token (tokenizer_encode), so that no message can forge one. A
 * template that is not a row of the table renders to this, too. */
struct chat_prompt {
    char *text; /* malloc'ed, NUL-terminated */
    size_t bytes;
    struct text_ranges written; /* by the template */
};
void chat_prompt_free(struct chat_prompt *p);

/* Makes a prompt that continues its last message. The caller has appended CHAT_CONTINUES to the
 * text of the message; this cuts the prompt before it. Where the template does not write blanks at
 * the end of a message, which shows by the missing tab at the end of the mark, the blanks before
 * the mark are cut, too. 0, or -1 with ERR_BAD_INPUT if the template did not write the mark; the
 * prompt is freed then. */
#define CHAT_CONTINUES "(here the answer continues)\t"
int chat_prompt_cut(struct chat_prompt *p, struct error *error);

/* Renders the prompt for the next response; the caller calls chat_prompt_free. 0, or -1 with
 * ERR_NO_MEMORY or ERR_BAD_INPUT: no messages, too many, a prompt of more than max bytes, a message
 * with a mark that the family's template writes as ordinary text, or a system message without a
 * later user message in a family that puts it there. */
int chat_render(const struct model_chat *chat, const struct chat_message *messages, size_t count,
                size_t max, struct chat_prompt *prompt, struct error *error);

#endif
