/* SPDX-License-Identifier: Apache-2.0 */
/* A conversation in the form of the model's family (lib/model/chat/chat.h), where it has no
 * template that can be executed. */
#include <stdlib.h>
#include <string.h>

#include "lib/base/assert.h"
#include "lib/base/bytes.h"
#include "lib/json/text.h"
#include "procs/engine/gateway/api/request.h"

struct conversation {
    struct chat_message messages[CHAT_MESSAGES_MAX];
    json_t *texts[CHAT_MESSAGES_MAX];
    char *marked;            /* the text of the message that the answer continues, */
    size_t count, continued; /* which is number `continued` */
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
    for (size_t i = 0; i < ARRAY_LEN(roles); i++)
        if (json_text_is(json_object_get(message, "role"), roles[i].name)) {
            *role = roles[i].role;
            return 0;
        }
    return error_set(c->error, ERR_BAD_INPUT,
                     "'messages': a role must be system, developer, user or assistant");
}

/* Of the message that the answer continues. */
static int mark_end(struct conversation *c, struct chat_message *m)
{
    c->marked = malloc(m->bytes + sizeof CHAT_CONTINUES);
    if (!c->marked)
        return error_set(c->error, ERR_NO_MEMORY, "out of memory (message)");
    memcpy(c->marked, m->text, m->bytes);
    memcpy(c->marked + m->bytes, CHAT_CONTINUES, sizeof CHAT_CONTINUES);
    m->text = c->marked;
    m->bytes += sizeof CHAT_CONTINUES - 1;
    return 0;
}

static int read_message(const json_t *message, struct conversation *c)
{
    struct chat_message *m = &c->messages[c->count];
    if (!json_is_object(message))
        return error_set(c->error, ERR_BAD_INPUT, "'messages' must be an array of objects");
    if (read_role(c, message, &m->role) != 0)
        return -1;
    json_t *text = c->texts[c->count] = chat_text(json_object_get(message, "content"), c->error);
    if (!text)
        return -1;
    m->text = json_string_value(text);
    m->bytes = json_string_length(text);
    if (c->continued == c->count && mark_end(c, m) != 0)
        return -1;
    c->count++;
    return 0;
}

int api_render_family(const struct api_limits *limits, const json_t *messages, bool continues,
                      struct chat_prompt *prompt, struct error *error)
{
    size_t n = json_array_size(messages);
    sl_assert(n > 0 && n <= CHAT_MESSAGES_MAX);
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
        json_decref(c->texts[i]);
    free(c->marked);
    free(c);
    return rc == 0 && continues ? chat_prompt_cut(prompt, error) : rc;
}
