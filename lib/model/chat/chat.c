/* SPDX-License-Identifier: Apache-2.0 */
/* Recognises the family of a template, and renders conversations in its format. */
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
    const char *text_marks; /* no message may contain them; separated by spaces */
};

static const struct form forms[] = {
    [CHAT_PLAIN] = {.name = "plain",
                    .no_system = "",
                    .before = {"", "User: ", "Assistant: "},
                    .after = {"\n", "\n", "\n"},
                    .generation_prompt = "Assistant:",
                    .system = INLINE,
                    .text_marks = ""}, /* it writes no control tokens */
#define CHAT(id, name, mark, other, none, before_s, after_s, before_u, after_u, before_a, after_a, \
             generation_prompt, position, text_marks)                                              \
    [CHAT_##id] = {name,                                                                           \
                   {mark, other},                                                                  \
                   none,                                                                           \
                   {before_s, before_u, before_a},                                                 \
                   {after_s, after_u, after_a},                                                    \
                   generation_prompt,                                                              \
                   position,                                                                       \
                   text_marks},
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
    struct chat_prompt prompt; /* text NULL: count only */
    bool no_memory;
};

/* Text of a message. */
static void put(struct writer *w, const char *text, size_t bytes)
{
    if (w->prompt.text)
        memcpy(w->prompt.text + w->prompt.bytes, text, bytes);
    w->prompt.bytes += bytes;
}

/* Text of the template. */
static void put_written(struct writer *w, const char *text, size_t bytes)
{
    size_t from = w->prompt.bytes;
    put(w, text, bytes);
    if (w->prompt.text && text_ranges_add(&w->prompt.written, from, w->prompt.bytes) != 0)
        w->no_memory = true;
}

static void put_form_bytes(struct writer *w, const char *text, size_t bytes)
{
    for (const char *end = text + bytes; text < end; text++) {
        if (*text == CHAT_BOS[0])
            put_written(w, w->chat->bos, strlen(w->chat->bos));
        else if (*text == CHAT_EOS[0])
            put_written(w, w->chat->eos, strlen(w->chat->eos));
        else
            put_written(w, text, 1);
    }
}

static void put_form(struct writer *w, const char *text)
{
    put_form_bytes(w, text, strlen(text));
}

/* An answer that begins with a blank brings the one of the form: its tokens stay those that the
 * model generated after the generation prompt. */
static void put_before(struct writer *w, const struct form *f, const struct chat_message *m)
{
    const char *before = f->before[m->role];
    size_t n = strlen(before);
    bool brings = m->role == CHAT_ASSISTANT && m->bytes > 0 && m->text[0] == ' ';
    put_form_bytes(w, before, n > 0 && before[n - 1] == ' ' && brings ? n - 1 : n);
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
            put_form(w, "\n\n");
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
        put_form(w, CHAT_BOS);
    if (m[0].role != CHAT_SYSTEM && f->no_system[0]) {
        put_form(w, f->before[CHAT_SYSTEM]);
        put_form(w, f->no_system);
        put_form(w, f->after[CHAT_SYSTEM]);
    }
    for (size_t i = 0; i < count; i++) {
        if (m[i].role == CHAT_SYSTEM && f->system == FIRST_USER)
            continue;
        put_before(w, f, &m[i]);
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

/* Control tokens are harmless in a message: they are encoded as text. Marks that are text anyway
 * are not. */
int chat_reject_marks(enum chat_family family, const char *text, size_t bytes, struct error *error)
{
    for (const char *mark = forms[family].text_marks; *mark;) {
        size_t n = strcspn(mark, " ");
        if (memmem(text, bytes, mark, n))
            return error_set(error, ERR_BAD_INPUT,
                             "a message holds '%.*s', which the chat template of this model writes "
                             "as ordinary text",
                             (int)n, mark);
        mark += n + (mark[n] == ' ');
    }
    return 0;
}

static int check_messages(const struct form *f, const struct chat_message *m, size_t count,
                          struct error *error)
{
    bool waits = false;
    for (size_t i = 0; i < count; i++) {
        if (chat_reject_marks((enum chat_family)(f - forms), m[i].text, m[i].bytes, error) != 0)
            return -1;
        waits = m[i].role == CHAT_SYSTEM || (waits && m[i].role != CHAT_USER);
    }
    if (waits && f->system == FIRST_USER)
        return error_set(error, ERR_BAD_INPUT,
                         "this model takes a system message only before a user's message");
    return 0;
}

void chat_prompt_free(struct chat_prompt *p)
{
    free(p->text);
    text_ranges_free(&p->written);
    *p = (struct chat_prompt){0};
}

/* The last place of a text; NULL: nowhere. */
static char *find_last(char *text, size_t bytes, const char *what, size_t n)
{
    for (char *at = text + bytes - (n <= bytes ? n : bytes); at >= text && n <= bytes; at--)
        if (memcmp(at, what, n) == 0)
            return at;
    return NULL;
}

int chat_prompt_cut(struct chat_prompt *p, struct error *error)
{
    size_t n = strlen(CHAT_CONTINUES) - 1; /* without its blank */
    struct text_ranges *w = &p->written;
    char *at = find_last(p->text, p->bytes, CHAT_CONTINUES, n);
    if (!at) {
        chat_prompt_free(p);
        return error_set(error, ERR_BAD_INPUT,
                         "the model's chat template does not write the last message, so that it "
                         "cannot be continued; with \"continue_final_message\": false the answer "
                         "is a new message");
    }
    bool keeps = at[n] == CHAT_CONTINUES[n];
    p->bytes = (size_t)(at - p->text);
    while (!keeps && p->bytes > 0 && memchr(" \t\r\n", p->text[p->bytes - 1], 4))
        p->bytes--;
    p->text[p->bytes] = 0;
    while (w->count > 0 && w->at[w->count - 1].from >= p->bytes)
        w->count--;
    if (w->count > 0 && w->at[w->count - 1].to > p->bytes)
        w->at[w->count - 1].to = (uint32_t)p->bytes;
    return 0;
}

int chat_render(const struct model_chat *chat, const struct chat_message *messages, size_t count,
                size_t max, struct chat_prompt *prompt, struct error *error)
{
    sl_assert(chat->family < CHAT__COUNT);
    const struct form *f = &forms[chat->family];
    *prompt = (struct chat_prompt){0};
    if (count == 0 || count > CHAT_MESSAGES_MAX)
        return error_set(error, ERR_BAD_INPUT, "a conversation has 1 to %d messages",
                         CHAT_MESSAGES_MAX);
    if (check_messages(f, messages, count, error) != 0)
        return -1;
    struct writer w = {.chat = chat};
    render(&w, f, messages, count);
    size_t counted = w.prompt.bytes;
    if (counted > max)
        return error_set(error, ERR_BAD_INPUT, "the conversation has %zu bytes; the maximum is %zu",
                         counted, max);
    w.prompt = (struct chat_prompt){.text = malloc(counted + 1)};
    if (!w.prompt.text)
        return error_set(error, ERR_NO_MEMORY, "out of memory (prompt)");
    render(&w, f, messages, count);
    sl_assert(w.prompt.bytes == counted);
    w.prompt.text[counted] = 0;
    if (w.no_memory) {
        chat_prompt_free(&w.prompt);
        return error_set(error, ERR_NO_MEMORY, "out of memory (prompt)");
    }
    *prompt = w.prompt;
    return 0;
}
