/* SPDX-License-Identifier: Apache-2.0 */
/* Messages with the roles that the template takes (shape.c): what it would lose or reject of the
 * system and the developer becomes a message of another role, or a part of one beside it. */
#include <stdlib.h>
#include <string.h>

#include "lib/json/text.h"
#include "lib/model/chat/format.h"

#define BETWEEN "\n\n"

struct fitting {
    const struct chat_shape *shape;
    json_t *out;
    struct error *error;
    bool first;  /* only messages of the system came yet */
    bool turned; /* the last one of `out` is the user's and has what was the system's */
};

static int no_memory(const struct fitting *f)
{
    return error_set(f->error, ERR_NO_MEMORY, "out of memory (message)");
}

static bool has_role(const json_t *message, const char *role)
{
    return json_text_is(json_object_get(message, "role"), role);
}

static int set_role(const struct fitting *f, json_t *message, const char *role)
{
    return json_object_set_new(message, "role", json_string(role)) == 0 ? 0 : no_memory(f);
}

/* Both contents become that of `to`, which is one of the two messages. */
static int join(const struct fitting *f, json_t *to, const json_t *first, const json_t *second)
{
    json_t *a = json_object_get(first, "content"), *b = json_object_get(second, "content");
    size_t n = json_string_length(a), m = json_string_length(b), gap = strlen(BETWEEN);
    if (n == 0 || m == 0)
        return json_object_set(to, "content", n == 0 ? b : a) == 0 ? 0 : no_memory(f);
    char *text = malloc(n + gap + m);
    if (!text)
        return no_memory(f);
    memcpy(text, json_string_value(a), n);
    memcpy(text + n, BETWEEN, gap);
    memcpy(text + n + gap, json_string_value(b), m);
    json_t *joined = json_stringn_nocheck(text, n + gap + m);
    free(text);
    return json_object_set_new(to, "content", joined) == 0 ? 0 : no_memory(f);
}

static int append(const struct fitting *f, json_t *message)
{
    return json_array_append(f->out, message) == 0 ? 0 : no_memory(f);
}

/* The message of the client's user stays, with its other members. */
static int join_users(struct fitting *f, json_t *last, json_t *message, bool turned)
{
    json_t *to = turned ? last : message;
    int rc = join(f, to, last, message);
    f->turned = true;
    return rc != 0 || to == last ||
                   json_array_set(f->out, json_array_size(f->out) - 1, message) == 0
               ? rc
               : no_memory(f);
}

/* turned: it was the system's. */
static int add_user(struct fitting *f, json_t *message, bool turned, bool joins)
{
    json_t *last = json_array_get(f->out, json_array_size(f->out) - 1);
    if (joins && turned && has_role(last, "tool")) /* whose turn is the user's, too */
        return join(f, last, last, message);
    if (joins && (turned || f->turned) && has_role(last, "user"))
        return join_users(f, last, message, turned);
    f->turned = turned;
    return append(f, message);
}

static int add_first_system(struct fitting *f, json_t *message)
{
    json_t *last = json_array_get(f->out, json_array_size(f->out) - 1);
    if (f->shape->no_system)
        return set_role(f, message, "user") == 0 ? add_user(f, message, true, true) : -1;
    return f->shape->one_system && last ? join(f, last, last, message) : append(f, message);
}

static int add(struct fitting *f, json_t *message)
{
    const struct chat_shape *shape = f->shape;
    bool joins = shape->no_system || shape->later == CHAT_LATER_JOINED;
    if (shape->no_developer && has_role(message, "developer") &&
        set_role(f, message, "system") != 0)
        return -1;
    bool system = has_role(message, "system") || has_role(message, "developer");
    f->first = f->first && system;
    if (f->first)
        return add_first_system(f, message);
    if (system && shape->later != CHAT_LATER_KEPT)
        return set_role(f, message, "user") == 0 ? add_user(f, message, true, joins) : -1;
    if (has_role(message, "user"))
        return add_user(f, message, false, joins);
    f->turned = false;
    return append(f, message);
}

json_t *chat_fit_roles(json_t *messages, const struct chat_shape *shape, struct error *error)
{
    struct fitting f = {.shape = shape, .error = error, .first = true};
    if (!messages || !(shape->no_developer || shape->no_system || shape->one_system ||
                       shape->later != CHAT_LATER_KEPT))
        return messages;
    f.out = json_array();
    int rc = f.out ? 0 : no_memory(&f);
    for (size_t i = 0; i < json_array_size(messages) && rc == 0; i++)
        rc = add(&f, json_array_get(messages, i));
    json_decref(messages);
    if (rc == 0)
        return f.out;
    json_decref(f.out);
    return NULL;
}
