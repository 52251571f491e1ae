/* SPDX-License-Identifier: Apache-2.0 */
/* Recognises side requests: titles, tags and other short requests that programs send beside a
 * conversation. They are scheduled behind conversations, and their prefixes are given up first. */
#include <ctype.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "lib/json/text.h"
#include "procs/engine/gateway/api/request.h"

static const char *const beginnings[] = {
#define BEGINS(text) text,
#include "procs/engine/gateway/api/classes/side.tbl.h"
};

static bool begins_with(const char *text, const char *lower)
{
    while (*lower && tolower((unsigned char)*text) == *lower) {
        text++;
        lower++;
    }
    return *lower == 0;
}

static bool is_instruction(const char *text)
{
    while (isspace((unsigned char)*text))
        text++;
    for (size_t i = 0; i < ARRAY_LEN(beginnings); i++)
        if (begins_with(text, beginnings[i]))
            return true;
    return false;
}

/* A text, or the first of the parts that are texts. */
static bool content_is_instruction(const json_t *content)
{
    const json_t *text = content;
    for (size_t i = 0; i < json_array_size(content) && !json_is_string(text); i++)
        text = json_object_get(json_array_get(content, i), "text");
    return json_is_string(text) && is_instruction(json_string_value(text));
}

static bool has_role(const json_t *message, const char *role)
{
    return json_text_is(json_object_get(message, "role"), role);
}

/* The last message, or a system prompt. */
static bool is_marked(const json_t *messages)
{
    size_t n = json_array_size(messages);
    for (size_t i = 0; i < n; i++) {
        const json_t *message = json_array_get(messages, i);
        bool asks = i + 1 == n || has_role(message, "system") || has_role(message, "developer");
        if (asks && content_is_instruction(json_object_get(message, "content")))
            return true;
    }
    return false;
}

static bool was_answered(const json_t *messages)
{
    for (size_t i = 0; i < json_array_size(messages); i++)
        if (has_role(json_array_get(messages, i), "assistant"))
            return true;
    return false;
}

enum api_side api_side_of(const struct api_conversation *c)
{
    if (is_marked(c->messages))
        return API_SIDE_MARKED;
    bool first = !was_answered(c->messages) && json_array_size(c->tools) == 0;
    return first ? API_SIDE_IF_SHORT : API_SIDE_NO;
}

bool api_is_side(const struct api_request *r)
{
    return r->side == API_SIDE_MARKED ||
           (r->side == API_SIDE_IF_SHORT && r->max_tokens <= API_SIDE_TOKENS);
}
