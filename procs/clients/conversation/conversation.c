/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps the turns of a conversation, renders them as a prompt, and saves and loads them. */
#include "procs/clients/conversation/conversation.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ipc/engine/engine_client.h"
#include "lib/file/replace.h"
#include "lib/json/text.h"
#include "procs/clients/common/options.h"

#define FORMAT         "sluice conversation 1"
#define FILE_BYTES_MAX (8u << 20) /* JSON may encode a byte as six: \u0001 */

static size_t turn_bytes(const struct turn *turn)
{
    return strlen(turn->prompt) + turn->response_bytes + 2;
}

static void forget_oldest(struct conversation *t)
{
    t->bytes -= turn_bytes(&t->turns[0]);
    free(t->turns[0].prompt);
    free(t->turns[0].response);
    memmove(&t->turns[0], &t->turns[1], --t->count * sizeof t->turns[0]);
    t->first -= t->first > 0;
}

static char *copy(const char *text, size_t bytes)
{
    char *out = malloc(bytes + 1);
    if (out) {
        memcpy(out, text, bytes);
        out[bytes] = 0;
    }
    return out;
}

int conversation_add(struct conversation *t, const char *prompt, const char *response,
                     size_t response_bytes)
{
    struct turn *grown = realloc(t->turns, (t->count + 1) * sizeof *grown);
    struct turn turn = {strdup(prompt), copy(response, response_bytes), response_bytes};
    if (grown)
        t->turns = grown;
    if (!grown || !turn.prompt || !turn.response) {
        free(turn.prompt);
        free(turn.response);
        return -1;
    }
    t->turns[t->count++] = turn;
    t->bytes += turn_bytes(&turn);
    while (t->bytes > CONVERSATION_BYTES_MAX && t->count > 1)
        forget_oldest(t);
    return 0;
}

void conversation_clear(struct conversation *t)
{
    for (size_t i = 0; i < t->count; i++) {
        free(t->turns[i].prompt);
        free(t->turns[i].response);
    }
    free(t->turns);
    memset(t, 0, sizeof *t);
}

/* Skips turns until the rest and the prompt fit a request. Returns their bytes. */
static size_t skip_excess(struct conversation *t, size_t prompt_bytes, size_t turns_max)
{
    size_t bytes = 0, from = t->count, turns = 0;
    while (from > t->first && turns++ < turns_max &&
           bytes + turn_bytes(&t->turns[from - 1]) + prompt_bytes < ENGINE_PROMPT_BYTES_MAX)
        bytes += turn_bytes(&t->turns[--from]);
    t->first = from;
    return bytes;
}

char *conversation_text(struct conversation *t, const char *prompt, size_t *bytes)
{
    size_t prompt_bytes = strlen(prompt), turns = skip_excess(t, prompt_bytes, SIZE_MAX);
    char *out = malloc(turns + prompt_bytes + 1), *at = out;
    if (!out)
        return NULL;
    for (size_t i = t->first; i < t->count; i++) {
        at = stpcpy(at, t->turns[i].prompt);
        at = mempcpy(at, t->turns[i].response, t->turns[i].response_bytes);
        *at++ = '\n';
    }
    *bytes = (size_t)(stpcpy(at, prompt) - out);
    return out;
}

/* The system message, the turns from number `from` on, the prompt: as JSON for the model's own
 * template. */
static json_t *messages_json(const struct conversation *t, const struct conversation_form *form,
                             size_t from, const char *prompt)
{
    json_t *all = json_array();
    int failed = form->system ? json_array_append_new(all, json_pack("{s:s, s:s}", "role", "system",
                                                                     "content", form->system))
                              : 0;
    for (size_t i = from; i < t->count; i++) {
        failed |= json_array_append_new(
            all, json_pack("{s:s, s:s}", "role", "user", "content", t->turns[i].prompt));
        failed |=
            json_array_append_new(all, json_pack("{s:s, s:s%}", "role", "assistant", "content",
                                                 t->turns[i].response, t->turns[i].response_bytes));
    }
    failed |=
        json_array_append_new(all, json_pack("{s:s, s:s}", "role", "user", "content", prompt));
    if (!failed)
        return all;
    json_decref(all);
    return NULL;
}

static int render_template(const struct conversation *t, const struct conversation_form *form,
                           size_t from, const char *prompt, struct chat_prompt *out,
                           struct error *error)
{
    json_t *utf8 = json_string(prompt);
    *out = (struct chat_prompt){0};
    if (!utf8)
        return error_set(error, ERR_BAD_INPUT, "the prompt is not UTF-8");
    json_decref(utf8);
    json_t *messages = messages_json(t, form, from, prompt);
    struct chat_conversation c = {
        .messages = messages, .variables = form->variables, .now = time(NULL)};
    int status = messages ? chat_format_render(form->chat, &c, ENGINE_PROMPT_BYTES_MAX, out, error)
                          : error_set(error, ERR_NO_MEMORY, "out of memory (conversation)");
    json_decref(messages);
    return status;
}

static struct chat_message message(enum chat_role role, const char *text)
{
    return (struct chat_message){role, text, strlen(text)};
}

/* In the form of the model's family. */
static int render_family(const struct conversation *t, const struct conversation_form *form,
                         size_t from, const char *prompt, struct chat_prompt *out,
                         struct error *error)
{
    size_t count = 0;
    struct chat_message *m = malloc((2 * (t->count - from) + 2) * sizeof *m);
    if (!m)
        return error_set(error, ERR_NO_MEMORY, "out of memory (conversation)");
    if (form->system)
        m[count++] = message(CHAT_SYSTEM, form->system);
    for (size_t i = from; i < t->count; i++) {
        m[count++] = message(CHAT_USER, t->turns[i].prompt);
        m[count++] =
            (struct chat_message){CHAT_ASSISTANT, t->turns[i].response, t->turns[i].response_bytes};
    }
    m[count++] = message(CHAT_USER, prompt);
    int status = chat_render(&form->chat->model, m, count, ENGINE_PROMPT_BYTES_MAX, out, error);
    free(m);
    return status;
}

/* If the turns from number `from` on cannot be rendered, nor can more of them: the first that can
 * is searched by halving, between what failed and the prompt alone. */
int conversation_chat(struct conversation *t, const struct conversation_form *form,
                      const char *prompt, struct chat_prompt *out, struct error *error)
{
    struct error why;
    struct chat_prompt shorter;
    skip_excess(t, strlen(prompt) + (form->system ? strlen(form->system) : 0),
                (CHAT_MESSAGES_MAX - 2) / 2);
    int (*render)(const struct conversation *, const struct conversation_form *, size_t,
                  const char *, struct chat_prompt *, struct error *) =
        form->chat->program ? render_template : render_family;
    size_t failed = t->first, good = t->count;
    if (render(t, form, failed, prompt, out, error) == 0)
        return 0;
    if (failed == good || render(t, form, good, prompt, out, &why) != 0)
        return -1;
    while (good - failed > 1) {
        size_t middle = failed + (good - failed) / 2;
        if (render(t, form, middle, prompt, &shorter, &why) != 0) {
            failed = middle;
            continue;
        }
        chat_prompt_free(out);
        *out = shorter;
        good = middle;
    }
    t->first = good;
    return 0;
}

bool conversation_take_last(struct conversation *t, struct turn *turn)
{
    if (t->count == 0)
        return false;
    *turn = t->turns[--t->count];
    t->first = t->first < t->count ? t->first : t->count;
    t->bytes -= turn_bytes(turn);
    return true;
}

static json_t *conversation_json(const struct conversation *t, json_t *settings)
{
    json_t *turns = json_array();
    for (size_t i = 0; i < t->count; i++)
        json_array_append_new(turns,
                              json_pack("{s:s, s:s%}", "prompt", t->turns[i].prompt, "answer",
                                        t->turns[i].response, t->turns[i].response_bytes));
    return json_pack("{s:s, s:o, s:O}", "format", FORMAT, "turns", turns, "settings", settings);
}

int conversation_save(const struct conversation *t, json_t *settings, const char *path,
                      bool overwrite, struct error *error)
{
    char temporary[PATH_MAX];
    if (snprintf(temporary, sizeof temporary, "%s.%d", path, (int)getpid()) >=
        (int)sizeof temporary)
        return error_set(error, ERR_BAD_INPUT, "path too long");
    json_t *object = conversation_json(t, settings);
    if (!object)
        return error_set(error, ERR_NO_MEMORY, "out of memory (conversation)");
    int fd = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    FILE *file = fd >= 0 ? fdopen(fd, "w") : NULL;
    bool fine = file && json_dumpf(object, file, JSON_INDENT(2)) == 0 && fputc('\n', file) != EOF;
    if (file)
        fine &= fclose(file) == 0;
    int why = fine ? file_replace(temporary, path, overwrite) : errno;
    json_decref(object);
    if (why == 0)
        return 0;
    if (fd >= 0)
        unlink(temporary);
    if (why == EEXIST && !overwrite)
        return error_set(error, ERR_BAD_INPUT,
                         "%.200s exists already; /save --force FILE overwrites it", path);
    return error_set_errno(error, ERR_BAD_INPUT, why, "cannot write %.200s", path);
}

static int take_turns(struct conversation *t, const json_t *turns, const char *path,
                      struct error *error)
{
    size_t count = json_array_size(turns);
    for (size_t i = 0; i < count; i++) {
        const json_t *turn = json_array_get(turns, i);
        const json_t *prompt = json_object_get(turn, "prompt");
        const json_t *response = json_object_get(turn, "answer");
        if (!json_text_is_plain(prompt) || !json_is_string(response) ||
            json_string_length(prompt) > CONVERSATION_PROMPT_MAX)
            return error_set(error, ERR_BAD_INPUT,
                             "%.200s: turn %zu has no valid prompt and answer", path, i);
        if (conversation_add(t, json_string_value(prompt), json_string_value(response),
                             json_string_length(response)) != 0)
            return error_set(error, ERR_NO_MEMORY, "out of memory (conversation)");
    }
    return 0;
}

int conversation_load(struct conversation *t, json_t **settings, const char *path,
                      struct error *error)
{
    char *text = NULL;
    size_t bytes = 0;
    struct conversation loaded = {0};
    if (option_file(path, FILE_BYTES_MAX, &text, &bytes, error) != 0)
        return -1;
    json_t *object = json_loadb(text, bytes, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL);
    free(text);
    const json_t *format = json_object_get(object, "format");
    json_t *turns = json_object_get(object, "turns"), *set = json_object_get(object, "settings");
    int result;
    if (!json_text_is(format, FORMAT) || !json_is_array(turns) || !json_is_object(set))
        result =
            error_set(error, ERR_BAD_INPUT, "%.200s is not a conversation written by /save", path);
    else
        result = take_turns(&loaded, turns, path, error);
    if (result == 0) {
        conversation_clear(t);
        *t = loaded;
        *settings = json_incref(set);
    } else {
        conversation_clear(&loaded);
    }
    json_decref(object);
    return result;
}
