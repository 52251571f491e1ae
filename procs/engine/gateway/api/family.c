/* SPDX-License-Identifier: Apache-2.0 */
/* A conversation in the form of the model's family (lib/model/chat/chat.h), where it has no template that can be executed. */
#include <stdlib.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "procs/engine/gateway/api/request.h"

struct conversation {
    struct chat_message messages[CHAT_MESSAGES_MAX];
    char *joined[CHAT_MESSAGES_MAX]; /* of messages in several parts */
    size_t count, continued;         /* continued: the message that the answer continues */
    struct error *error;
};

static int read_role(struct conversation *c, const json_t *message, enum chat_role *role)
{
    static const struct {
        const char *name;
        enum chat_role role;
    } roles[] = {{"system", CHAT_SYSTEM},
                 {"developer", CHAT_SYSTEM},
                 {"user", CHAT_USER},
                 {"assistant", CHAT_ASSISTANT}};
    const char *name = json_string_value(json_object_get(message, "role"));
    for (size_t i = 0; name && i < ARRAY_LEN(roles); i++)
        if (strcmp(roles[i].name, name) == 0) {
            *role = roles[i].role;
            return 0;
        }
    return error_set(c->error, ERR_BAD_INPUT,
                     "'messages': a role must be system, developer, user or assistant");
}

static int join_parts(const json_t *parts, struct conversation *c, struct chat_message *m)
{
    size_t bytes = 0, at = 0;
    for (size_t i = 0; i < json_array_size(parts); i++) {
        const json_t *part = json_array_get(parts, i), *text = json_object_get(part, "text");
        const char *type = json_string_value(json_object_get(part, "type"));
        if (!type || strcmp(type, "text") != 0 || !json_is_string(text))
            return error_set(c->error, ERR_BAD_INPUT,
                             "'messages': parts of a message must be texts");
        bytes += json_string_length(text);
    }
    char *joined = malloc(bytes + 1);
    if (!joined)
        return error_set(c->error, ERR_NO_MEMORY, "out of memory (message)");
    c->joined[c->count] = joined;
    for (size_t i = 0; i < json_array_size(parts); i++) {
        const json_t *text = json_object_get(json_array_get(parts, i), "text");
        memcpy(joined + at, json_string_value(text), json_string_length(text));
        at += json_string_length(text);
    }
    m->text = joined;
    m->bytes = bytes;
    return 0;
}

/* Of the message that the answer continues. */
static int mark_end(struct conversation *c, struct chat_message *m)
{
    char *marked = malloc(m->bytes + sizeof CHAT_CONTINUES);
    if (!marked)
        return error_set(c->error, ERR_NO_MEMORY, "out of memory (message)");
    memcpy(marked, m->text, m->bytes);
    memcpy(marked + m->bytes, CHAT_CONTINUES, sizeof CHAT_CONTINUES);
    free(c->joined[c->count]);
    m->text = c->joined[c->count] = marked;
    m->bytes += sizeof CHAT_CONTINUES - 1;
    return 0;
}

static int read_message(const json_t *message, struct conversation *c)
{
    struct chat_message *m = &c->messages[c->count];
    const json_t *content = json_object_get(message, "content");
    if (!json_is_object(message))
        return error_set(c->error, ERR_BAD_INPUT, "'messages' must be an array of objects");
    if (read_role(c, message, &m->role) != 0)
        return -1;
    if (json_is_string(content)) {
        m->text = json_string_value(content);
        m->bytes = json_string_length(content);
    } else if (!json_is_array(content)) {
        return error_set(c->error, ERR_BAD_INPUT, "'messages': a content must be text");
    } else if (join_parts(content, c, m) != 0) {
        return -1;
    }
    if (c->continued == c->count && mark_end(c, m) != 0)
        return -1;
    c->count++;
    return 0;
}

int api_render_family(const struct api_limits *limits, const json_t *messages, bool continues,
                      struct chat_prompt *prompt, struct error *error)
{
    size_t n = json_array_size(messages);
    struct conversation *c = calloc(1, sizeof *c);
    if (!c)
        return error_set(error, ERR_NO_MEMORY, "out of memory (messages)");
    int rc = 0;
    c->error = error;
    c->continued = continues ? n - 1 : n;
    for (size_t i = 0; i < n && rc == 0; i++)
        rc = read_message(json_array_get(messages, i), c);
    if (rc == 0)
        rc = chat_render(&limits->chat->model, c->messages, c->count, limits->prompt_bytes, prompt,
                         error);
    for (size_t i = 0; i < n; i++)
        free(c->joined[i]);
    free(c);
    return rc == 0 && continues ? chat_prompt_cut(prompt, error) : rc;
}
