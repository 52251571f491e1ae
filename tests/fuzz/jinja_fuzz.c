/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: chat templates. Input: variables of the messages as JSON, a NUL, the template;
 * without a NUL, a template with fixed variables. Whatever the template does, it ends within its
 * limits: with an output whose ranges are valid, or with an error of one line. Rendered twice, it
 * gives the same. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/assert.h"
#include "lib/jinja/jinja.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct jinja_limits limits = {
    .memory_bytes = (size_t)4 << 20, .steps = 200000, .depth = 100, .output_bytes = 1 << 20};
static const char *const roles[] = {"user", "assistant", NULL};

static const char variables[] = "{\"messages\": [{\"role\": \"user\", \"content\": \" Hi <s> \"}, "
                                "{\"role\": \"assistant\", \"content\": null}],"
                                "\"s\": \"a,b \\u00e9\", \"n\": 12, \"f\": 2.5, \"l\": [3, 1, 2], "
                                "\"d\": {\"k\": \"v\", \"a\": [true, null]}}";

static void check_error(const struct error *error)
{
    sl_assert(error->code == ERR_BAD_INPUT && error->text[0] && !strchr(error->text, '\n'));
}

static void check_render(const struct jinja_template *t, const struct jinja_input *input)
{
    struct jinja_output out, again;
    struct error error = {.code = ERR_NONE};
    int result = jinja_render(t, input, &limits, &out, &error);
    if (result != 0) {
        check_error(&error);
        sl_assert(!out.text && out.written.count == 0);
        return;
    }
    sl_assert(out.bytes <= limits.output_bytes && out.text[out.bytes] == 0);
    sl_assert(text_ranges_valid(&out.written, out.bytes));
    sl_assert(jinja_render(t, input, &limits, &again, &error) == 0);
    sl_assert(again.bytes == out.bytes && memcmp(again.text, out.text, out.bytes) == 0);
    sl_assert(again.written.count == out.written.count);
    jinja_output_free(&again);
    jinja_output_free(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *text = (const char *)data, *nul = memchr(text, 0, size);
    struct error error = {.code = ERR_NONE};
    json_t *messages = nul ? json_loadb(text, (size_t)(nul - text), JSON_ALLOW_NUL, NULL) : NULL;
    if (!messages)
        messages = json_loads(variables, 0, NULL);
    json_t *own = json_pack("{ssss}", "bos_token", "<s>", "eos_token", "</s>");
    size_t skip = nul ? (size_t)(nul - text) + 1 : 0;
    struct jinja_template *t = jinja_compile(text + skip, size - skip, &limits, &error);
    struct jinja_input input = {.own = own, .messages = messages, .roles = roles};
    if (t)
        check_render(t, &input);
    else
        check_error(&error);
    jinja_template_free(t);
    json_decref(own);
    json_decref(messages);
    return 0;
}
