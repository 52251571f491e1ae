/* SPDX-License-Identifier: Apache-2.0 */
/* golden_jinja CASES: renders the chat templates of a JSON file, an array of {"template", "own",
 * "messages", "now": [year, month, day, hour, minute, second]}; prints an array of {"text", "own":
 * [[from, to], ...]} (bytes that the template wrote) or {"error"}. chat_templates.py makes the
 * cases and compares. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/jinja/jinja.h"

static const char *const roles[] = {"system", "user", "assistant", "tool", NULL};

static struct tm time_of(const json_t *now)
{
    int part[6];
    for (size_t i = 0; i < 6; i++)
        part[i] = (int)json_integer_value(json_array_get(now, i));
    struct tm t = {.tm_year = part[0] - 1900,
                   .tm_mon = part[1] - 1,
                   .tm_mday = part[2],
                   .tm_hour = part[3],
                   .tm_min = part[4],
                   .tm_sec = part[5]};
    timegm(&t); /* fills in the day of the week */
    return t;
}

static json_t *rendered(const struct jinja_template *t, const struct jinja_input *input)
{
    static const struct jinja_limits limits = JINJA_LIMITS_DEFAULT;
    struct error error = {0};
    struct jinja_output out;
    if (jinja_render(t, input, &limits, &out, &error) != 0)
        return json_pack("{ss}", "error", error.text);
    json_t *own = json_array();
    for (size_t i = 0; i < out.written.count; i++)
        json_array_append_new(
            own, json_pack("[ii]", (int)out.written.at[i].from, (int)out.written.at[i].to));
    json_t *result = json_pack("{so}", "own", own);
    json_object_set_new(result, "text", json_stringn_nocheck(out.text, out.bytes));
    jinja_output_free(&out);
    return result;
}

static json_t *run_case(const json_t *c)
{
    static const struct jinja_limits limits = JINJA_LIMITS_DEFAULT;
    struct error error = {0};
    const json_t *text = json_object_get(c, "template");
    struct jinja_template *t =
        jinja_compile(json_string_value(text), json_string_length(text), &limits, &error);
    if (!t)
        return json_pack("{ss}", "error", error.text);
    struct jinja_input input = {.own = json_object_get(c, "own"),
                                .messages = json_object_get(c, "messages"),
                                .roles = roles,
                                .now = time_of(json_object_get(c, "now"))};
    json_t *result = rendered(t, &input);
    jinja_template_free(t);
    return result;
}

int main(int argc, char **argv)
{
    json_error_t why;
    json_t *cases = argc == 2 ? json_load_file(argv[1], JSON_ALLOW_NUL, &why) : NULL;
    if (!json_is_array(cases)) {
        fprintf(stderr, "usage: golden_jinja CASES.json\n");
        return 2;
    }
    json_t *results = json_array(), *c;
    size_t i;
    json_array_foreach(cases, i, c) json_array_append_new(results, run_case(c));
    json_dumpf(results, stdout, JSON_COMPACT | JSON_ENSURE_ASCII);
    json_decref(results);
    json_decref(cases);
    return 0;
}
