/* SPDX-License-Identifier: Apache-2.0 */
/* JSON of both sides: the grammar and the biases of a submit, and the most probable tokens in the
 * reply of next. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ipc/engine/engine_client.h"
#include "ipc/engine/internal.h"
#include "lib/base/assert.h"
#include "lib/base/bytes.h"

static const char *const kinds[] = {[GRAMMAR_JSON_SCHEMA] = "json_schema", [GRAMMAR_GBNF] = "gbnf"};

static bool put_mark(json_t *object, const char *name, const char *mark)
{
    return !mark || engine_json_put(object, name, json_string(mark));
}

json_t *engine_grammar_json(const struct grammar_source *g)
{
    json_t *object = json_object();
    sl_assert(g->kind == GRAMMAR_JSON_SCHEMA || g->kind == GRAMMAR_GBNF);
    if (object && engine_json_put(object, "kind", json_string(kinds[g->kind])) &&
        engine_json_put(object, "text", json_stringn(g->text, g->bytes)) &&
        put_mark(object, "open", g->open) && put_mark(object, "close", g->close) &&
        put_mark(object, "trigger", g->trigger))
        return object;
    json_decref(object);
    return NULL;
}

json_t *engine_bias_json(const struct sampler_bias *bias, size_t count)
{
    json_t *array = json_array();
    for (size_t i = 0; array && i < count; i++)
        if (json_array_append_new(
                array, json_pack("[I, f]", (json_int_t)bias[i].id, (double)bias[i].bias)) != 0) {
            json_decref(array);
            return NULL;
        }
    return array;
}

/* ---- requests, server side ---- */

static int parse_kind(const json_t *value, struct grammar_source *g, struct error *error)
{
    const char *name = json_string_value(value);
    for (size_t i = GRAMMAR_JSON_SCHEMA; name && i < ARRAY_LEN(kinds); i++)
        if (strcmp(kinds[i], name) == 0) {
            g->kind = (enum grammar_kind)i;
            return 0;
        }
    return error_set(error, ERR_BAD_INPUT, "grammar.kind must be json_schema or gbnf");
}

static int parse_text(const json_t *value, struct grammar_source *g, struct error *error)
{
    g->text = json_string_value(value);
    g->bytes = json_string_length(value);
    if (!g->text || g->bytes == 0 || g->bytes > GRAMMAR_TEXT_BYTES_MAX)
        return error_set(error, ERR_BAD_INPUT, "grammar.text must be a text of 1 to %u bytes",
                         GRAMMAR_TEXT_BYTES_MAX);
    return 0;
}

static int parse_mark(const json_t *value, const char *name, const char **out, struct error *error)
{
    *out = json_string_value(value);
    size_t bytes = json_string_length(value);
    if (!*out || bytes == 0 || bytes > GRAMMAR_MARK_BYTES_MAX || strlen(*out) != bytes)
        return error_set(error, ERR_BAD_INPUT, "grammar.%s must be a text of 1 to %d bytes", name,
                         GRAMMAR_MARK_BYTES_MAX);
    return 0;
}

static int parse_member(const char *name, const json_t *value, struct grammar_source *g,
                        struct error *error)
{
    if (strcmp(name, "kind") == 0)
        return parse_kind(value, g, error);
    if (strcmp(name, "text") == 0)
        return parse_text(value, g, error);
    if (strcmp(name, "open") == 0)
        return parse_mark(value, name, &g->open, error);
    if (strcmp(name, "close") == 0)
        return parse_mark(value, name, &g->close, error);
    if (strcmp(name, "trigger") == 0)
        return parse_mark(value, name, &g->trigger, error);
    return error_set(error, ERR_BAD_INPUT, "unknown field \"grammar.%.40s\"", name);
}

static int parse_grammar(json_t *object, struct engine_submit *out, struct error *error)
{
    struct grammar_source *g = &out->grammar;
    const char *name;
    json_t *value;
    if (!json_is_object(object))
        return error_set(error, ERR_BAD_INPUT, "grammar must be an object");
    json_object_foreach(object, name, value)
    {
        if (parse_member(name, value, g, error) != 0)
            return -1;
    }
    if (g->kind == GRAMMAR_NONE || !g->text)
        return error_set(error, ERR_BAD_INPUT, "grammar must have kind and text");
    if (g->open && !g->close)
        return error_set(error, ERR_BAD_INPUT, "grammar.open needs grammar.close");
    if (out->forced)
        return error_set(error, ERR_BAD_INPUT, "grammar does not go with forced");
    return 0;
}

static int parse_bias(const json_t *array, struct engine_submit *out, struct error *error)
{
    size_t count = json_array_size(array);
    if (!json_is_array(array) || count > ENGINE_BIASES_MAX)
        return error_set(error, ERR_BAD_INPUT,
                         "logit_bias must be an array of at most %d pairs [id, bias]",
                         ENGINE_BIASES_MAX);
    struct sampler_bias *bias = calloc(count + 1, sizeof *bias);
    if (!bias)
        return error_set(error, ERR_NO_MEMORY, "out of memory (%zu biases)", count);
    out->bias = bias;
    for (size_t i = 0; i < count; i++) {
        const json_t *pair = json_array_get(array, i), *id = json_array_get(pair, 0);
        double value = json_number_value(json_array_get(pair, 1));
        if (json_array_size(pair) != 2 || !json_is_integer(id) || json_integer_value(id) < 0 ||
            json_integer_value(id) > INT32_MAX || !json_is_number(json_array_get(pair, 1)) ||
            !(value >= -ENGINE_BIAS_MAX && value <= ENGINE_BIAS_MAX))
            return error_set(error, ERR_BAD_INPUT,
                             "logit_bias[%zu] is not [id, bias] with a bias from -%g to %g", i,
                             ENGINE_BIAS_MAX, ENGINE_BIAS_MAX);
        bias[out->bias_count++] =
            (struct sampler_bias){(uint32_t)json_integer_value(id), (float)value};
    }
    return 0;
}

int engine_constraints_parse(const json_t *body, struct engine_submit *out, struct error *error)
{
    json_t *grammar = json_object_get(body, "grammar");
    const json_t *bias = json_object_get(body, "logit_bias");
    return (grammar && parse_grammar(grammar, out, error) != 0) ||
                   (bias && parse_bias(bias, out, error) != 0)
               ? -1
               : 0;
}

/* ---- the most probable tokens ---- */

static json_t *one_top_json(const struct engine_top *t)
{
    json_t *text = engine_json_hex(t->text, t->bytes);
    json_t *logprob = isfinite(t->logprob) ? json_real(t->logprob) : json_null();
    return json_pack("[I, o, o]", (json_int_t)t->id, logprob, text);
}

json_t *engine_top_json(const struct engine_next *next)
{
    json_t *all = json_array();
    for (size_t i = 0; all && i < next->count; i++) {
        json_t *list = json_array();
        bool fine = json_array_append_new(all, list) == 0;
        for (uint32_t j = 0; fine && j < next->top_each; j++)
            fine =
                json_array_append_new(list, one_top_json(&next->top[i * next->top_each + j])) == 0;
        if (!fine) {
            json_decref(all);
            return NULL;
        }
    }
    return all;
}

/* The shape of the member: lists of equal length, and the bytes of all texts. */
static bool measure_top(const json_t *all, size_t count, size_t *each, size_t *text_bytes)
{
    *each = json_array_size(json_array_get(all, 0));
    *text_bytes = 0;
    if (json_array_size(all) != count || *each > ENGINE_TOP_MAX)
        return false;
    for (size_t i = 0; i < count; i++) {
        const json_t *list = json_array_get(all, i);
        if (json_array_size(list) != *each)
            return false;
        for (size_t j = 0; j < *each; j++)
            *text_bytes += json_string_length(json_array_get(json_array_get(list, j), 2)) / 2;
    }
    return true;
}

static bool read_one_top(const json_t *entry, struct engine_top *out, char **text)
{
    const json_t *id = json_array_get(entry, 0), *logprob = json_array_get(entry, 1);
    if (!json_is_integer(id) || json_integer_value(id) < 0 || json_integer_value(id) > UINT32_MAX)
        return false;
    *out = (struct engine_top){.id = (uint32_t)json_integer_value(id),
                               .logprob = json_is_number(logprob) ? json_number_value(logprob)
                                                                  : -(double)INFINITY,
                               .text = *text,
                               .bytes = (uint32_t)json_string_length(json_array_get(entry, 2)) / 2};
    if (!engine_read_hex(json_array_get(entry, 2), *text))
        return false;
    *text += out->bytes;
    return true;
}

int engine_top_read(struct engine_next *next, struct error *error)
{
    const json_t *all = json_object_get(next->reply, "top");
    size_t each, text_bytes;
    if (!all || next->count == 0)
        return 0;
    if (!measure_top(all, next->count, &each, &text_bytes))
        return error_set(error, ERR_FAILED, "invalid reply from the engine: top");
    struct engine_top *top = malloc(next->count * each * sizeof *top + text_bytes + 1);
    if (!top)
        return error_set(error, ERR_NO_MEMORY, "out of memory (reply)");
    next->top = top;
    next->top_each = (uint32_t)each;
    char *text = (char *)(top + next->count * each);
    for (size_t i = 0; i < next->count * each; i++)
        if (!read_one_top(json_array_get(json_array_get(all, i / each), i % each), &top[i], &text))
            return error_set(error, ERR_FAILED, "invalid reply from the engine: top");
    return 0;
}
