/* SPDX-License-Identifier: Apache-2.0 */
/* Explains errors of the engine that refuses a grammar: which tool one is about; and leaves the
 * schema out of the grammar that cannot be enforced. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "procs/engine/gateway/api/request.h"

#define LEFT_OUT_MAX 16 /* of one request: the engine compiles its grammar again for each */

/* The line that an error is about, and where its own words begin. 0: it is about none. */
static unsigned line_of(const struct error *error, int *words)
{
    unsigned line = 0;
    *words = 0;
    return sscanf(error->text, "GBNF, line %u: %n", &line, words) == 1 && *words > 0 ? line : 0;
}

bool api_explain(const struct api_request *r, struct error *error)
{
    int n;
    struct error own = *error;
    unsigned line = error->code == ERR_BAD_INPUT && r->grammar_lines ? line_of(&own, &n) : 0;
    if (line == 0)
        return false;
    const char *why = own.text + n, *root = strstr(why, "at $");
    const json_t *of = json_array_get(r->grammar_lines, line - 1);
    const char *tool = json_string_value(json_is_array(of) ? json_array_get(of, 0) : of);
    const char *key = json_string_value(json_array_get(of, 1)); /* NULL: of any name */
    if (json_is_array(of) && root)
        error_set(error, own.code, "tool '%.60s': %.*s.%s%.60s%.250s", tool, (int)(root - why) + 4,
                  why, key ? "properties." : "", key ? key : "additionalProperties", root + 4);
    else if (tool)
        error_set(error, own.code, "tool '%.60s': %.300s", tool, why);
    else
        error_set(error, own.code, "%.350s", why);
    return true;
}

bool api_is_of_grammar(const struct error *error)
{
    static const char gbnf[] = "GBNF", grammar[] = "grammar: ";
    return error->code == ERR_BAD_INPUT && (strncmp(error->text, gbnf, sizeof gbnf - 1) == 0 ||
                                            strncmp(error->text, grammar, sizeof grammar - 1) == 0);
}

/* ---- schemas that are left out --------------------------------------------------------------- */

void api_name_left_out(const char *tool, char what[API_LEFT_OUT_BYTES])
{
    snprintf(what, API_LEFT_OUT_BYTES, "schema of %.60s", tool);
}

/* A line of the text; NULL: it has fewer. */
static char *find_line(char *text, unsigned line)
{
    while (text && --line > 0) {
        text = strchr(text, '\n');
        text += text != NULL;
    }
    return text;
}

/* Behind a literal or a class, whose first character stands here. */
static char *skip_quoted(char *at)
{
    char close = *at == '[' ? ']' : '"';
    for (at++; *at && *at != '\n' && *at != close; at++)
        at += *at == '\\' && at[1];
    return at + (*at == close);
}

/* The schema in a rule, which has at most one; NULL: none. */
static char *find_schema(char *at)
{
    while (*at && *at != '\n' && *at != '%')
        at = *at == '"' || *at == '[' ? skip_quoted(at) : at + 1;
    return *at == '%' ? strchr(at, '{') : NULL;
}

/* Behind an object of JSON. */
static char *skip_object(char *at)
{
    unsigned depth = 0;
    do {
        depth += *at == '{';
        depth -= *at == '}';
        at = *at == '"' ? skip_quoted(at) : at + 1;
    } while (depth > 0 && *at && *at != '\n');
    return at;
}

/* False: the schema is this one already, or there is no memory. */
static bool replace(struct api_request *r, char *schema, const char *by)
{
    size_t at = (size_t)(schema - r->grammar_text);
    size_t old = (size_t)(skip_object(schema) - schema), now = strlen(by);
    if (old == now && memcmp(schema, by, now) == 0)
        return false;
    char *text = malloc(r->grammar.bytes - old + now + 1);
    if (!text)
        return false;
    memcpy(text, r->grammar_text, at);
    memcpy(text + at, by, now);
    memcpy(text + at + now, schema + old, r->grammar.bytes - at - old + 1);
    free(r->grammar_text);
    r->grammar_text = text;
    r->grammar.text = text;
    r->grammar.bytes += now - old;
    return true;
}

bool api_leave_out(struct api_request *r, const struct error *error, char what[API_LEFT_OUT_BYTES])
{
    int n;
    unsigned line = line_of(error, &n);
    const json_t *of = line > 0 ? json_array_get(r->grammar_lines, line - 1) : NULL;
    const char *tool = json_string_value(json_is_array(of) ? json_array_get(of, 0) : of);
    char *rule = tool && r->grammar_text ? find_line(r->grammar_text, line) : NULL,
         *schema = rule ? find_schema(rule) : NULL;
    if (!schema || r->left_out == LEFT_OUT_MAX ||
        !replace(r, schema, json_is_array(of) ? "{}" : "{\"type\":\"object\"}"))
        return false;
    r->left_out++;
    api_name_left_out(tool, what);
    return true;
}
