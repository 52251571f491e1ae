/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/model/chat/chat.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/assert.h"
#include "lib/base/bytes.h"

/* Bytes that occur in no text of the table. */
#define CHAT_BOS "\x01"
#define CHAT_EOS "\x02"

enum system_position { INLINE, FIRST_USER };

struct form {
    const char *name, *marks[2], *no_system;
    const char *before[CHAT_ROLE__COUNT], *after[CHAT_ROLE__COUNT];
    const char *generation_prompt;
    enum system_position system;
    const char *control; /* marks that no message may contain, separated by spaces */
};

static const struct form forms[] = {
    [CHAT_PLAIN] = {.name = "plain",
                    .no_system = "",
                    .before = {"", "User: ", "Assistant: "},
                    .after = {"\n", "\n", "\n"},
                    .generation_prompt = "Assistant:",
                    .system = INLINE,
                    .control = ""}, /* no marks: its prompts are tokenized as plain text */
#define CHAT(id, name, mark, other, none, before_s, after_s, before_u, after_u, before_a, after_a, \
             generation_prompt, position, control)                                                 \
    [CHAT_##id] = {name,                                                                           \
                   {mark, other},                                                                  \
                   none,                                                                           \
                   {before_s, before_u, before_a},                                                 \
                   {after_s, after_u, after_a},                                                    \
                   generation_prompt,                                                              \
                   position,                                                                       \
                   control},
#include "lib/model/chat/chat.tbl.h"
};

enum chat_family chat_recognise(const char *text, size_t bytes)
{
    for (int f = CHAT_PLAIN + 1; f < CHAT__COUNT; f++) {
        const char *const *marks = forms[f].marks;
        if (memmem(text, bytes, marks[0], strlen(marks[0])) &&
            memmem(text, bytes, marks[1], strlen(marks[1])))
            return (enum chat_family)f;
    }
    return CHAT_PLAIN;
}

const char *chat_name(enum chat_family family)
{
    sl_assert((unsigned)family < CHAT__COUNT);
    return forms[family].name;
}

enum chat_family chat_find(const char *name)
{
    for (int f = 0; f < CHAT__COUNT; f++)
        if (strcmp(forms[f].name, name) == 0)
            return (enum chat_family)f;
    return CHAT_PLAIN;
}

void chat_describe(struct model_chat *chat, const char *name, const char *bos, const char *eos,
                   uint32_t bos_first)
{
    chat->family = chat_find(name);
    chat->bos_first = bos_first;
    snprintf(chat->bos, sizeof chat->bos, "%s", bos);
    snprintf(chat->eos, sizeof chat->eos, "%s", eos);
}

/* A prompt is rendered twice: first to count its bytes, then into a buffer of that size. */
struct writer {
    const struct model_chat *chat;
    char *out; /* NULL: count only */
    size_t bytes;
};

static void put(struct writer *w, const char *text, size_t bytes)
{
    if (w->out)
        memcpy(w->out + w->bytes, text, bytes);
    w->bytes += bytes;
}

static void put_form(struct writer *w, const char *text)
{
    for (; *text; text++) {
        if (*text == CHAT_BOS[0])
            put(w, w->chat->bos, strlen(w->chat->bos));
        else if (*text == CHAT_EOS[0])
            put(w, w->chat->eos, strlen(w->chat->eos));
        else
            put(w, text, 1);
    }
}

static void put_message(struct writer *w, const struct form *f, enum chat_role role,
                        const char *text, size_t bytes)
{
    put_form(w, f->before[role]);
    put(w, text, bytes);
    put_form(w, f->after[role]);
}

/* Writes the system messages of m[from, to) as one, at the start of the user message after them. */
static void put_deferred(struct writer *w, const struct form *f, const struct chat_message *m,
                         size_t from, size_t to)
{
    bool any = false;
    for (size_t i = from; i < to; i++) {
        if (m[i].role != CHAT_SYSTEM)
            continue;
        if (any)
            put(w, "\n\n", 2);
        else
            put_form(w, f->before[CHAT_SYSTEM]);
        put(w, m[i].text, m[i].bytes);
        any = true;
    }
    if (any)
        put_form(w, f->after[CHAT_SYSTEM]);
}

static void render(struct writer *w, const struct form *f, const struct chat_message *m,
                   size_t count)
{
    size_t deferred = 0; /* system messages from here on are pending until the next user message */
    if (w->chat->bos_first && w->chat->family != CHAT_PLAIN)
        put(w, w->chat->bos, strlen(w->chat->bos));
    if (m[0].role != CHAT_SYSTEM && f->no_system[0])
        put_message(w, f, CHAT_SYSTEM, f->no_system, strlen(f->no_system));
    for (size_t i = 0; i < count; i++) {
        if (m[i].role == CHAT_SYSTEM && f->system == FIRST_USER)
            continue;
        put_form(w, f->before[m[i].role]);
        if (m[i].role == CHAT_USER && f->system == FIRST_USER) {
            put_deferred(w, f, m, deferred, i);
            deferred = i;
        }
        put(w, m[i].text, m[i].bytes);
        put_form(w, f->after[m[i].role]);
    }
    put_form(w, f->generation_prompt);
}

/* ---- rejected messages ----------------------------------------------------------------------- */

static int reject_mark(const struct chat_message *m, const char *mark, size_t bytes,
                       struct error *error)
{
    if (bytes == 0 || !memmem(m->text, m->bytes, mark, bytes))
        return 0;
    return error_set(error, ERR_BAD_INPUT,
                     "a message holds '%.*s', which is a control mark of this model", (int)bytes,
                     mark);
}

/* The tokenizer parses control tokens, and cannot distinguish those of a message from the
 * format's. */
static int reject_marks(const struct model_chat *chat, const struct form *f,
                        const struct chat_message *m, struct error *error)
{
    for (const char *mark = f->control; *mark;) {
        size_t n = strcspn(mark, " ");
        if (reject_mark(m, mark, n, error) != 0)
            return -1;
        mark += n + (mark[n] == ' ');
    }
    return reject_mark(m, chat->bos, strlen(chat->bos), error) ||
                   reject_mark(m, chat->eos, strlen(chat->eos), error)
               ? -1
               : 0;
}

static int check_messages(const struct model_chat *chat, const struct form *f,
                          const struct chat_message *m, size_t count, struct error *error)
{
    bool waits = false;
    for (size_t i = 0; i < count; i++) {
        if (chat->family != CHAT_PLAIN && reject_marks(chat, f, &m[i], error) != 0)
            return -1;
        waits = m[i].role == CHAT_SYSTEM || (waits && m[i].role != CHAT_USER);
    }
    if (waits && f->system == FIRST_USER)
        return error_set(error, ERR_BAD_INPUT,
                         "this model takes a system message only before a user's message");
    return 0;
}

int chat_render(const struct model_chat *chat, const struct chat_message *messages, size_t count,
                size_t max, char **text, size_t *bytes, struct error *error)
{
    sl_assert(chat->family < CHAT__COUNT);
    const struct form *f = &forms[chat->family];
    if (count == 0 || count > CHAT_MESSAGES_MAX)
        return error_set(error, ERR_BAD_INPUT, "a conversation has 1 to %d messages",
                         CHAT_MESSAGES_MAX);
    if (check_messages(chat, f, messages, count, error) != 0)
        return -1;
    struct writer w = {.chat = chat};
    render(&w, f, messages, count);
    if (w.bytes > max)
        return error_set(error, ERR_BAD_INPUT,
                         "the conversation has %zu bytes; the maximum is %zu "
                         "are taken",
                         w.bytes, max);
    size_t counted = w.bytes;
    w.bytes = 0;
    w.out = malloc(counted + 1);
    if (!w.out)
        return error_set(error, ERR_NO_MEMORY, "out of memory (prompt)");
    render(&w, f, messages, count);
    sl_assert(w.bytes == counted);
    w.out[w.bytes] = 0;
    *text = w.out;
    *bytes = w.bytes;
    return 0;
}
