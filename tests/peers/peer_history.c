/* SPDX-License-Identifier: Apache-2.0 */
/* peer_history CASES: renders conversations as clients send them through chat templates, as the
 * gateway does; an array of {"template", "messages", "tools", "now", "continues"}. Prints an array
 * of {"text"} or {"error"}. chat_history.py makes the cases and compares. */
#include <stdio.h>
#include <string.h>

#include "lib/model/chat/format.h"

#define PROMPT_MAX ((size_t)512 << 10)

static json_t *failed(const struct error *error)
{
    return json_pack("{ss}", "error", error->text);
}

static json_t *run_case(const json_t *c)
{
    struct model_chat model = {.family = CHAT_PLAIN, .bos = "<s>", .eos = "</s>"};
    struct chat_format format = {0};
    struct chat_prompt prompt;
    struct error error;
    const json_t *text = json_object_get(c, "template");
    if (chat_format_set(&format, &model, json_string_value(text), json_string_length(text),
                        &error) != 0)
        return failed(&error);
    struct chat_conversation conversation = {
        .messages = json_object_get(c, "messages"),
        .tools = json_object_get(c, "tools"),
        .now = (time_t)json_integer_value(json_object_get(c, "now")),
        .continues = json_is_true(json_object_get(c, "continues"))};
    int rc = chat_format_render(&format, &conversation, PROMPT_MAX, &prompt, &error);
    chat_format_free(&format);
    if (rc != 0)
        return failed(&error);
    json_t *result = json_pack("{so}", "text", json_stringn_nocheck(prompt.text, prompt.bytes));
    chat_prompt_free(&prompt);
    return result;
}

int main(int argc, char **argv)
{
    json_t *cases = argc == 2 ? json_load_file(argv[1], JSON_ALLOW_NUL, NULL) : NULL, *c;
    json_t *results = json_array();
    size_t i;
    if (!json_is_array(cases)) {
        fprintf(stderr, "usage: peer_history CASES.json\n");
        return 2;
    }
    json_array_foreach(cases, i, c) json_array_append_new(results, run_case(c));
    json_dumpf(results, stdout, JSON_COMPACT | JSON_ENSURE_ASCII);
    json_decref(results);
    json_decref(cases);
    return 0;
}
