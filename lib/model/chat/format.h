/* SPDX-License-Identifier: Apache-2.0 */
/* The chat format of a running model: its own template where the interpreter takes it (lib/jinja),
 * else its family (chat.h). */
#ifndef SLUICE_MODEL_CHAT_FORMAT_H
#define SLUICE_MODEL_CHAT_FORMAT_H

#include <jansson.h>
#include <stdbool.h>
#include <time.h>

#include "lib/base/error.h"
#include "lib/model/chat/answer.h"
#include "lib/model/chat/chat.h"

#define CHAT_TEMPLATE_BYTES_MAX ((size_t)256 << 10) /* named by a message of model_index.c */

struct jinja_template;

/* What a template takes as `reasoning_effort`. */
struct chat_effort {
    unsigned accepted;    /* bits of the names that it takes; 0: it takes any, or does not use it */
    const char *on, *off; /* the names that turn reasoning on and off; NULL: none does */
};

/* What becomes of a message of the system that is not among the first ones, where the template
 * loses, moves or rejects it. It stays in its place, so that a kept prefix before it is valid. */
enum chat_later {
    CHAT_LATER_KEPT,
    CHAT_LATER_USER,   /* a message of the user */
    CHAT_LATER_JOINED, /* a part of the user's messages beside it, which have to alternate */
};

/* The shape in which a template takes messages, found by trying (shape.c). */
struct chat_shape {
    bool null_content;   /* a content that is null stays null; else "" */
    bool empty_is_null;  /* and so is "", with which the template leaves out the calls */
    bool text_arguments; /* `arguments` as text: the template appends them; else as an object */
    bool short_ids;      /* ids of calls have nine letters and digits */
    struct chat_effort effort;
    bool thinking_parts;    /* reasoning is a part of the content, of type `thinking` */
    const char *thoughts;   /* the member that has the reasoning; NULL: `reasoning_content` */
    bool thoughts_or_words; /* beside which a message with calls has no content */
    bool no_developer;      /* the role `developer` becomes `system` */
    bool no_system;         /* a first message of the system becomes a part of the user's */
    bool one_system;        /* of the first messages, those of the system become one */
    enum chat_later later;
};

struct chat_format {
    struct model_chat model;
    struct jinja_template *program; /* NULL: rendered as the family */
    struct answer_form answer;      /* marks of answers that the template has */
    struct chat_shape shape;
    /* For conversations with tools, where the model has a template of its own for them; NULL: the
     * one above. */
    struct jinja_template *tools_program;
    struct answer_form tools_answer;
    struct chat_shape tools_shape;
    /* Why that template was rejected, if it was: conversations with tools fail with this error. */
    struct error tools_error;
};

/* Sets the template of a model; text NULL: the model has none. The former template is freed. 0, or
 * -1 with the reason in `why` if the text is no template or larger than CHAT_TEMPLATE_BYTES_MAX;
 * then the format is that of the family. */
int chat_format_set(struct chat_format *f, const struct model_chat *model, const char *text,
                    size_t bytes, struct error *why);
/* Sets the template for conversations with tools, after chat_format_set, if the model has one of
 * its own for them. A rejected one is not replaced by the other template, because that may leave
 * out the tools; text NULL counts as rejected. */
int chat_format_set_tools(struct chat_format *f, const char *text, size_t bytes, struct error *why);
void chat_format_free(struct chat_format *f);

/* Sets both templates from a reply to the supervisor's call `chat`. -1: one of them is rejected. */
int chat_format_read(struct chat_format *f, const json_t *reply, struct error *why);

/* The memory in bytes that a template of so many bytes takes at most (one that needs more is
 * rejected), and that the rendering of a prompt of at most max bytes takes in addition. Processes
 * reserve it. */
size_t chat_format_bytes(size_t template_bytes);
size_t chat_render_bytes(size_t max);

/* The messages of a client, JSON as in OpenAI's API. */
struct chat_conversation {
    const json_t *messages;
    const json_t *tools;     /* an array; NULL: none */
    const json_t *variables; /* an object, `chat_template_kwargs`; NULL: none */
    time_t now;              /* the template's date is that of UTC */
    void (*beat)(void *arg); /* called every few milliseconds of the rendering; NULL: none */
    void *beat_arg;
    bool continues; /* the answer continues the last message, which is the assistant's */
    bool no_generation_prompt;
};

/* ---- messages.c: what a template gets ---- */

/* The roles that messages may have, NULL-terminated. */
extern const char *const chat_roles[];
/* A content as one text: the content itself, or the texts of its parts. A new reference; NULL with
 * ERR_BAD_INPUT or ERR_NO_MEMORY. */
json_t *chat_text(const json_t *content, struct error *error);
/* A copy of the messages of a client, in which each content is one text or null, calls have their
 * arguments in the template's shape, and roles are those that it takes. continues: CHAT_CONTINUES
 * is appended to the last content. A new reference; NULL with ERR_BAD_INPUT or ERR_NO_MEMORY. */
json_t *chat_messages(const json_t *messages, bool continues, const struct chat_shape *shape,
                      enum chat_family family, struct error *error);
/* roles.c: the messages (NULL: there are none), whose reference is taken, with roles that the
 * template takes. A new reference; NULL with ERR_NO_MEMORY. */
json_t *chat_fit_roles(json_t *messages, const struct chat_shape *shape, struct error *error);

/* Finds the shape of a compiled template by rendering short conversations. */
struct chat_shape chat_shape_of(const struct jinja_template *program,
                                const struct model_chat *model, const char *text, size_t bytes);

/* Finds out what a compiled template takes as `reasoning_effort`. */
struct chat_effort chat_effort_of(const struct jinja_template *program,
                                  const struct model_chat *model, const struct answer_form *answer,
                                  const char *text, size_t bytes);
/* Replaces a `reasoning_effort` that the template rejects by the nearest one that it takes, and
 * sets one where `enable_thinking` asks for or against reasoning that only it turns on or off. 0,
 * or -1: memory is short. */
int chat_effort_fit(const struct chat_effort *e, json_t *variables);

/* The marks of the answer to a conversation with these tools (an array; NULL: none). */
const struct answer_form *chat_format_answer(const struct chat_format *f, const json_t *tools);

/* Renders the prompt for the next response through the model's template (f->program is not NULL),
 * with tools through that for tools; caller frees. A message has a role of system, developer, user,
 * assistant, tool; its content is a text or an array of texts, which are joined; null counts as "",
 * and `arguments` of a tool call as text are parsed, unless the template's shape is another one. A
 * variable cannot replace messages, tools, tokens or add_generation_prompt. Where the tokenizer
 * adds BOS, the one that the template writes first is left out. 0, or -1 with ERR_NO_MEMORY, or
 * ERR_BAD_INPUT: a message is malformed, the template raised an exception or exceeds a limit, or
 * the prompt has more than max bytes. */
int chat_format_render(const struct chat_format *f, const struct chat_conversation *c, size_t max,
                       struct chat_prompt *prompt, struct error *error);

#endif
