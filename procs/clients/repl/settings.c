/* SPDX-License-Identifier: Apache-2.0 */
/* Settings of /set: the sampling parameters, the rows of settings.tbl.h, and the stop sequences. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "lib/json/text.h"
#include "lib/model/limits.h"
#include "lib/text/suggest.h"
#include "procs/clients/common/options.h"
#include "procs/clients/repl/repl.h"

static const char *const names[] = {
#define X(type, field, json, def, min, max, help) json,
    SAMPLING_PARAMS(X)
#undef X
#define SETTING(name, kind, field, min, max, help) #name,
#include "procs/clients/repl/settings.tbl.h"
        "stop",
};

/* Aliases known from other tools. */
static const char *full_name(const char *name)
{
    if (strcmp(name, "temp") == 0)
        return "temperature";
    return strcmp(name, "tokens") == 0 ? "num_predict" : name;
}

const char *settings_name(size_t i)
{
    return i < ARRAY_LEN(names) ? names[i] : NULL;
}

static int set_NUMBER(const char *name, int64_t *field, int64_t min, int64_t max, const char *text,
                      struct error *error)
{
    return option_i64(name, text, min, max, field, error);
}

static int set_SWITCH(const char *name, bool *field, int64_t min, int64_t max, const char *text,
                      struct error *error)
{
    (void)min;
    (void)max;
    bool on = strcmp(text, "on") == 0;
    if (!on && strcmp(text, "off") != 0)
        return error_set(error, ERR_BAD_INPUT, "%s: '%.40s' must be on or off", name, text);
    *field = on;
    return 0;
}

static const char *const ternary_names[TERNARY__COUNT] = {"auto", "on", "off"};

static int set_TERNARY(const char *name, enum ternary *field, int64_t min, int64_t max,
                       const char *text, struct error *error)
{
    (void)min;
    (void)max;
    for (int i = 0; i < TERNARY__COUNT; i++)
        if (strcmp(ternary_names[i], text) == 0) {
            *field = (enum ternary)i;
            return 0;
        }
    return error_set(error, ERR_BAD_INPUT, "%s: '%.40s' must be auto, on or off", name, text);
}

/* Frees the former text. */
static int set_TEXT(const char *name, char **field, int64_t min, int64_t max, const char *text,
                    struct error *error)
{
    (void)min;
    json_t *utf8 = json_string(text);
    json_decref(utf8);
    if (!utf8 || strlen(text) > (size_t)max)
        return error_set(error, ERR_BAD_INPUT, "%s: must be UTF-8 of at most %" PRId64 " bytes",
                         name, max);
    char *copy = *text ? strdup(text) : NULL;
    if (*text && !copy)
        return error_set(error, ERR_NO_MEMORY, "out of memory (%s)", name);
    free(*field);
    *field = copy;
    return 0;
}

static int unknown(const char *name, struct error *error)
{
    struct suggest s;
    char hint[SUGGEST_HINT_BYTES];
    suggest_start(&s, name, strlen(name));
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        suggest_name(&s, names[i]);
    suggest_hint(&s, "", hint);
    for (char *c = hint; *c; c++)
        *c = *c == '-' ? '_' : *c; /* as settings are written */
    return error_set(error, ERR_BAD_INPUT, "unknown setting '%.40s'%s (see /show)", name, hint);
}

static bool known(const char *name)
{
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        if (strcmp(names[i], name) == 0)
            return true;
    return false;
}

static int set_one(struct repl *r, const char *name, const char *text, struct error *error)
{
#define SETTING(id, kind, field, min, max, help)                                                   \
    if (strcmp(name, #id) == 0)                                                                    \
        return set_##kind(name, &r->field, min, max, text, error);
#include "procs/clients/repl/settings.tbl.h"
    if (!sampling_known(name))
        return unknown(name, error);
    return sampling_set(&r->submit.sampling, name, text, error);
}

/* Next word of a line, unquoted in place; "..." may contain blanks and the C escapes \n \t \"
 * \\. */
static char *next_word(char **rest, size_t *bytes)
{
    char *from = *rest + strspn(*rest, " \t"), *to = from, *word = from;
    if (!*from)
        return NULL;
    bool quoted = *from == '"';
    from += quoted;
    while (*from && (quoted ? *from != '"' : *from != ' ' && *from != '\t')) {
        char c = *from++;
        if (quoted && c == '\\' && *from) {
            c = *from++;
            c = c == 'n' ? '\n' : c == 't' ? '\t' : c;
        }
        *to++ = c;
    }
    *rest = *from ? from + 1 : from;
    *bytes = (size_t)(to - word);
    *to = 0;
    return word;
}

static int set_stops(struct repl *r, char *rest, struct error *error)
{
    struct stop_texts stops = {0};
    size_t bytes;
    for (char *text; (text = next_word(&rest, &bytes));)
        if (stop_texts_add(&stops, text, bytes, error) != 0)
            return -1;
    r->submit.stops = stops;
    return 0;
}

/* A text with blanks: quoted as a word, or the rest as it is. */
static const char *rest_of_line(char *rest)
{
    size_t bytes;
    char *from = rest + strspn(rest, " \t"), *word = from;
    return *from == '"' ? next_word(&word, &bytes) : from;
}

int settings_system(struct repl *r, char *text, struct error *error)
{
    return set_one(r, "system", rest_of_line(text), error);
}

int settings_set(struct repl *r, char *arguments, struct error *error)
{
    size_t bytes;
    const char *name = next_word(&arguments, &bytes);
    if (name && strcmp(name, "parameter") == 0) /* as in ollama */
        name = next_word(&arguments, &bytes);
    if (name && strcmp(name, "stop") == 0)
        return set_stops(r, arguments, error);
    if (name && strcmp(name, "system") == 0)
        return settings_system(r, arguments, error);
    const char *value = name ? next_word(&arguments, &bytes) : NULL;
    if (value && next_word(&arguments, &bytes))
        return error_set(error, ERR_BAD_INPUT, "usage: /set NAME VALUE (see /show)");
    if (value)
        return set_one(r, full_name(name), value, error);
    if (name && !known(full_name(name)))
        return unknown(name, error);
    settings_show(r, name ? full_name(name) : NULL, stdout);
    return 0;
}

int settings_option(struct repl *r, const char *name, const char *value, struct error *error)
{
    return set_one(r, name, value, error);
}

static void show_NUMBER(FILE *out, const char *name, int64_t value, const char *help)
{
    fprintf(out, "  %-17s %-10" PRId64 " %s\n", name, value, help);
}

static void show_SWITCH(FILE *out, const char *name, bool on, const char *help)
{
    fprintf(out, "  %-17s %-10s %s\n", name, on ? "on" : "off", help);
}

static void show_TERNARY(FILE *out, const char *name, enum ternary value, const char *help)
{
    fprintf(out, "  %-17s %-10s %s\n", name, ternary_names[value], help);
}

/* Characters that end a line or a quoted word are escaped. */
static void show_quoted(FILE *out, const char *text, size_t bytes)
{
    fputc('"', out);
    for (size_t i = 0; i < bytes; i++) {
        char c = text[i];
        if (c == '\n' || c == '\t')
            fputs(c == '\n' ? "\\n" : "\\t", out);
        else
            fprintf(out, "%s%c", c == '"' || c == '\\' ? "\\" : "", c);
    }
    fputc('"', out);
}

static void show_TEXT(FILE *out, const char *name, const char *text, const char *help)
{
    if (!text) {
        fprintf(out, "  %-17s %-10s %s\n", name, "none", help);
        return;
    }
    fprintf(out, "  %-17s ", name);
    show_quoted(out, text, strlen(text));
    fputc('\n', out);
}

static void show_stops(FILE *out, const struct stop_texts *stops)
{
    fprintf(out, "  %-17s", "stop");
    for (uint32_t i = 0; i < stops->count; i++) {
        fputc(' ', out);
        show_quoted(out, stops->text[i], stops->bytes[i]);
    }
    fprintf(out, "%s\n", stops->count ? "" : " none       texts that end a response");
}

void settings_show(const struct repl *r, const char *name, FILE *out)
{
    sampling_show(out, &r->submit.sampling, name);
#define SETTING(id, kind, field, min, max, help)                                                   \
    if (!name || strcmp(name, #id) == 0)                                                           \
        show_##kind(out, #id, r->field, help);
#include "procs/clients/repl/settings.tbl.h"
    if (!name || strcmp(name, "stop") == 0)
        show_stops(out, &r->submit.stops);
}

static json_t *json_NUMBER(int64_t value)
{
    return json_integer(value);
}

static json_t *json_SWITCH(bool on)
{
    return json_string(on ? "on" : "off");
}

static json_t *json_TERNARY(enum ternary value)
{
    return json_string(ternary_names[value]);
}

static json_t *json_TEXT(const char *text)
{
    return json_string(text ? text : "");
}

json_t *settings_json(const struct repl *r)
{
    json_t *object = sampling_json(&r->submit.sampling), *stops = json_array();
#define SETTING(name, kind, field, min, max, help)                                                 \
    json_object_set_new(object, #name, json_##kind(r->field));
#include "procs/clients/repl/settings.tbl.h"
    for (uint32_t i = 0; i < r->submit.stops.count; i++)
        json_array_append_new(stops,
                              json_stringn(r->submit.stops.text[i], r->submit.stops.bytes[i]));
    json_object_set_new(object, "stop", stops);
    return object;
}

static int take_stops(struct repl *r, const json_t *array, struct error *error)
{
    struct stop_texts stops = {0};
    for (size_t i = 0; i < json_array_size(array); i++) {
        const json_t *text = json_array_get(array, i);
        if (!json_is_string(text))
            return error_set(error, ERR_BAD_INPUT, "\"stop\" must be a list of strings");
        if (stop_texts_add(&stops, json_string_value(text), json_string_length(text), error) != 0)
            return -1;
    }
    r->submit.stops = stops;
    return 0;
}

static int take_all(struct repl *r, const json_t *settings, struct error *error)
{
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)settings, name, value)
    {
        char number[64];
        const char *text = json_string_value(value);
        if (strcmp(name, "stop") == 0) {
            if (take_stops(r, value, error) != 0)
                return -1;
            continue;
        }
        if (text && !json_text_is_plain(value))
            return error_set(error, ERR_BAD_INPUT, "\"%.40s\" must be a text without NUL", name);
        if (json_is_integer(value))
            snprintf(number, sizeof number, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
        else
            snprintf(number, sizeof number, "%.17g", json_number_value(value));
        if (set_one(r, name, text ? text : number, error) != 0)
            return -1;
    }
    return 0;
}

int settings_take(struct repl *r, const json_t *settings, struct error *error)
{
    struct repl probe = *r; /* a shallow copy: of its pointers only that of the text is used */
    probe.system = NULL;
    if (take_all(&probe, settings, error) != 0) {
        free(probe.system);
        return -1;
    }
    if (json_object_get(settings, "system")) { /* older files have none, and change nothing */
        free(r->system);
        r->system = probe.system;
    }
    r->thinking = probe.thinking;
    r->submit = probe.submit;
    r->context = probe.context;
    r->chat = probe.chat;
    r->special = probe.special;
    return 0;
}
