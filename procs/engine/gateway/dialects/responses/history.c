/* SPDX-License-Identifier: Apache-2.0 */
/* Stored conversations: the items of all requests up to a response, and its own. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/json/count.h"
#include "procs/engine/gateway/api/completion.h"
#include "procs/engine/gateway/dialects/responses/responses.h"

static json_t *no_memory(const struct taker *t)
{
    error_set(t->error, ERR_NO_MEMORY, "out of memory (items)");
    return NULL;
}

/* A new reference; NULL with an error. */
static json_t *recall(const struct taker *t, const json_t *previous, size_t *values)
{
    struct stored *stored = t->body->limits->stored;
    const char *id = json_string_value(previous);
    const struct stored_response *r = stored ? stored_find(stored, id) : NULL;
    if (!r) {
        error_set(t->error, ERR_NOT_FOUND,
                  "Previous response with id '%.60s' not found: it was not stored, or newer ones "
                  "have taken its place (--http-stored)",
                  id);
        return NULL;
    }
    *values += json_count_values(r->conversation, strlen(r->conversation));
    if (*values > API_VALUES_MAX) { /* before they take memory */
        error_set(t->error, ERR_BAD_INPUT, "the conversation has more than %d values",
                  API_VALUES_MAX);
        return NULL;
    }
    json_t *items = json_loads(r->conversation, JSON_ALLOW_NUL, NULL);
    return items ? items : no_memory(t);
}

json_t *responses_items(const struct taker *t, const json_t *previous, const json_t *input,
                        size_t *values)
{
    json_t *items = previous ? recall(t, previous, values) : json_array();
    if (!items)
        return previous ? NULL : no_memory(t);
    int rc = json_is_string(input)
                 ? json_array_append_new(items,
                                         json_pack("{s:s, s:O}", "role", "user", "content", input))
                 : json_array_extend(items, (json_t *)(uintptr_t)input);
    if (rc == 0)
        return items;
    json_decref(items);
    return no_memory(t);
}

int responses_keep(const struct taker *t, const json_t *items)
{
    t->out->conversation = json_dumps(items, JSON_COMPACT);
    return t->out->conversation
               ? 0
               : error_set(t->error, ERR_NO_MEMORY, "out of memory (conversation)");
}

/* The conversation with the items of the response. Malloc'ed; NULL: no memory. */
static char *extended(const char *conversation, const json_t *output)
{
    char *items = json_dumps(output, JSON_COMPACT), *text = NULL;
    size_t n = strlen(conversation) - 1; /* without its bracket */
    const char *between = n > 1 && json_array_size(output) > 0 ? "," : "";
    if (items && asprintf(&text, "%.*s%s%s", (int)n, conversation, between, items + 1) < 0)
        text = NULL;
    free(items);
    return text;
}

void responses_store(const struct completion *c, const json_t *response)
{
    if (!c->stored || !c->request.conversation)
        return;
    stored_put(c->stored, json_string_value(json_object_get(response, "id")),
               json_dumps(response, JSON_COMPACT),
               extended(c->request.conversation, json_object_get(response, "output")));
}
