/* SPDX-License-Identifier: Apache-2.0 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "procs/tools/doctor/doctor.h"

void findings_open(struct findings *f)
{
    f->root = json_pack("{s:[]}", "lines");
}

void findings_close(struct findings *f)
{
    json_decref(f->root);
    f->root = NULL;
}

void finding_quiet(struct findings *f, const char *section, const char *name, json_t *value)
{
    json_t *object = json_object_get(f->root, section);
    if (!object) {
        object = json_object();
        json_object_set_new(f->root, section, object);
    }
    json_object_set_new(object, name, value);
}

static json_t *as_text(const json_t *value, const char *text)
{
    char number[64];
    if (text)
        return json_string(text);
    if (json_is_string(value))
        return json_string(json_string_value(value));
    if (json_is_boolean(value))
        return json_string(json_is_true(value) ? "yes" : "no");
    if (json_is_integer(value))
        snprintf(number, sizeof number, "%lld", (long long)json_integer_value(value));
    else
        snprintf(number, sizeof number, "%.1f", json_number_value(value));
    return json_string(number);
}

void finding(struct findings *f, const char *section, const char *name, json_t *value,
             const char *text, const char *meaning, ...)
{
    char line[400];
    va_list args;
    va_start(args, meaning);
    vsnprintf(line, sizeof line, meaning, args);
    va_end(args);
    json_t *shown = as_text(value, text);
    finding_quiet(f, section, name, value);
    json_array_append_new(json_object_get(f->root, "lines"),
                          json_pack("{s:s, s:s, s:o, s:s}", "section", section, "name", name,
                                    "value", shown, "meaning", line));
}

static const char *text_of(const json_t *line, const char *key)
{
    const char *text = json_string_value(json_object_get(line, key));
    return text ? text : "";
}

void findings_print(const struct findings *f, bool json)
{
    const char *section = "";
    size_t i;
    json_t *line;
    if (json) {
        json_dumpf(f->root, stdout, JSON_INDENT(2));
        printf("\n");
        return;
    }
    json_array_foreach(json_object_get(f->root, "lines"), i, line)
    {
        if (strcmp(section, text_of(line, "section")) != 0)
            printf("%s%s\n", i ? "\n" : "", text_of(line, "section"));
        section = text_of(line, "section");
        printf("  %-26s %-26s %s\n", text_of(line, "name"), text_of(line, "value"),
               text_of(line, "meaning"));
    }
}
