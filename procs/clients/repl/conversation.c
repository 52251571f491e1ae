/* SPDX-License-Identifier: Apache-2.0 */
#include "procs/clients/repl/conversation.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ipc/engine/engine_client.h"
#include "lib/file/replace.h"
#include "procs/clients/common/options.h"

#define FORMAT         "sluice conversation 1"
#define FILE_BYTES_MAX (8u << 20) /* JSON may encode a byte as six: \u0001 */

static size_t turn_bytes(const struct turn *turn)
{
    return strlen(turn->prompt) + strlen(turn->response) + 2;
}

static void forget_oldest(struct conversation *t)
{
    t->bytes -= turn_bytes(&t->turns[0]);
    free(t->turns[0].prompt);
    free(t->turns[0].response);
    memmove(&t->turns[0], &t->turns[1], --t->count * sizeof t->turns[0]);
    t->first -= t->first > 0;
}

int conversation_add(struct conversation *t, const char *prompt, const char *response)
{
    struct turn *grown = realloc(t->turns, (t->count + 1) * sizeof *grown);
    struct turn turn = {strdup(prompt), strdup(response)};
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

char *conversation_text(struct conversation *t, const char *prompt)
{
    size_t prompt_bytes = strlen(prompt), bytes = skip_excess(t, prompt_bytes, SIZE_MAX);
    char *out = malloc(bytes + prompt_bytes + 1), *at = out;
    for (size_t i = t->first; out && i < t->count; i++) {
        at = stpcpy(at, t->turns[i].prompt);
        at = stpcpy(at, t->turns[i].response);
        *at++ = '\n';
    }
    if (out)
        strcpy(at, prompt);
    return out;
}

int conversation_chat(struct conversation *t, const struct model_chat *chat, const char *prompt,
                      struct chat_prompt *out, struct error *error)
{
    size_t count = 0;
    skip_excess(t, strlen(prompt), (CHAT_MESSAGES_MAX - 1) / 2);
    size_t turns = t->count - t->first;
    struct chat_message *m = malloc((2 * turns + 1) * sizeof *m);
    if (!m)
        return error_set(error, ERR_NO_MEMORY, "out of memory (conversation)");
    for (size_t i = t->first; i < t->count; i++) {
        const struct turn *turn = &t->turns[i];
        m[count++] = (struct chat_message){CHAT_USER, turn->prompt, strlen(turn->prompt)};
        m[count++] = (struct chat_message){CHAT_ASSISTANT, turn->response, strlen(turn->response)};
    }
    m[count++] = (struct chat_message){CHAT_USER, prompt, strlen(prompt)};
    int status = -1;
    size_t skip = 0;
    for (; skip <= turns && status != 0; skip++)
        status =
            chat_render(chat, m + 2 * skip, count - 2 * skip, ENGINE_PROMPT_BYTES_MAX, out, error);
    free(m);
    if (status == 0)
        t->first += skip - 1;
    return status;
}

char *conversation_take_last(struct conversation *t)
{
    if (t->count == 0)
        return NULL;
    struct turn *last = &t->turns[--t->count];
    t->first = t->first < t->count ? t->first : t->count;
    t->bytes -= turn_bytes(last);
    free(last->response);
    return last->prompt;
}

static json_t *conversation_json(const struct conversation *t, json_t *settings)
{
    json_t *turns = json_array();
    for (size_t i = 0; i < t->count; i++)
        json_array_append_new(turns, json_pack("{s:s, s:s}", "prompt", t->turns[i].prompt, "answer",
                                               t->turns[i].response));
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
        const char *prompt = json_string_value(json_object_get(turn, "prompt"));
        const char *response = json_string_value(json_object_get(turn, "answer"));
        if (!prompt || !response || strlen(prompt) > CONVERSATION_PROMPT_MAX)
            return error_set(error, ERR_BAD_INPUT,
                             "%.200s: turn %zu has no valid prompt and answer", path, i);
        if (conversation_add(t, prompt, response) != 0)
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
    json_t *object = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, NULL);
    free(text);
    const char *format = json_string_value(json_object_get(object, "format"));
    json_t *turns = json_object_get(object, "turns"), *set = json_object_get(object, "settings");
    int result;
    if (!format || strcmp(format, FORMAT) != 0 || !json_is_array(turns) || !json_is_object(set))
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
