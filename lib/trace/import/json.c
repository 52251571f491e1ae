/* SPDX-License-Identifier: Apache-2.0 */
/* The JSON formats: a line per token (warp), per layer of a pass (TierInfer), or one object
 * (stratamoe). */
#include <string.h>

#include "lib/json/reader.h"
#include "lib/trace/import/internal.h"

#define VALUES_MAX ((uint64_t)1 << 26)

struct reader {
    struct recording *r;
    uint64_t line;
    bool one_row; /* no layer had more in pass 0 of TierInfer */
};

static int bad(const struct reader *j, const char *what, struct error *error)
{
    return error_set(error, ERR_BAD_INPUT, "%s %llu: %s", j->line > 0 ? "line" : "token",
                     (unsigned long long)j->line, what);
}

static bool whole(const json_t *value, uint64_t limit, uint32_t *out)
{
    json_int_t x = json_integer_value(value);
    if (!json_is_integer(value) || x < 0 || (uint64_t)x >= limit)
        return false;
    *out = (uint32_t)x;
    return true;
}

/* The experts of one layer for one token. */
static int take_ids(struct reader *j, struct use use, const json_t *ids, struct error *error)
{
    size_t k = json_array_size(ids);
    if (!json_is_array(ids) || k == 0 || k > MODEL_TOP_K_MAX)
        return bad(j, "no list of experts", error);
    use.weight = 1.0f / (float)k;
    for (size_t i = 0; i < k; i++) {
        uint32_t expert;
        if (!whole(json_array_get(ids, i), MODEL_EXPERTS_MAX, &expert))
            return bad(j, "not the number of an expert", error);
        for (size_t other = 0; other < i; other++)
            if (json_integer_value(json_array_get(ids, other)) == (json_int_t)expert)
                return bad(j, "an expert twice in a layer", error);
        use.slot = (uint16_t)i;
        use.expert = (uint16_t)expert;
        if (recording_add(j->r, &use, error) != 0)
            return -1;
    }
    return 0;
}

/* The layers of a decoded token. */
static int take_token(struct reader *j, uint32_t token, const json_t *layers, struct error *error)
{
    size_t n = json_array_size(layers);
    uint32_t dense = j->r->how->dense;
    if (n == 0 || n + dense > MODEL_LAYERS_MAX)
        return bad(j, "no list of layers", error);
    for (size_t l = 0; l < n; l++) {
        struct use use = {.step = token, .layer = (uint16_t)(l + dense), .decoded = true};
        if (take_ids(j, use, json_array_get(layers, l), error) != 0)
            return -1;
    }
    return 0;
}

/* Rows are counted from the last one: a layer with fewer of them has the last tokens. */
static int take_pass(struct reader *j, const json_t *o, struct error *error)
{
    const json_t *rows = json_object_get(o, "experts");
    size_t n = json_array_size(rows);
    uint32_t pass, layer;
    if (recording_names_layers(j->r, error) != 0)
        return -1;
    if (!whole(json_object_get(o, "decode"), MODEL_CONTEXT_MAX, &pass) ||
        !whole(json_object_get(o, "layer"), MODEL_LAYERS_MAX, &layer) || n == 0 ||
        n > MODEL_CONTEXT_MAX)
        return bad(j, "no pass, layer and experts", error);
    j->one_row = j->one_row && (pass > 0 || n == 1);
    for (size_t i = 0; i < n; i++) {
        struct use use = {.turn = pass,
                          .step = (uint32_t)(MODEL_CONTEXT_MAX - n + i),
                          .layer = (uint16_t)layer,
                          .decoded = pass > 0};
        if (take_ids(j, use, json_array_get(rows, i), error) != 0)
            return -1;
    }
    return 0;
}

static int take_whole(struct reader *j, const json_t *o, struct error *error)
{
    const json_t *tokens = json_object_get(o, "selections");
    size_t n = json_array_size(tokens);
    struct recording *r = j->r;
    j->line = 0;
    if (n == 0 || n > MODEL_CONTEXT_MAX ||
        !whole(json_object_get(o, "expertsPerLayer"), MODEL_EXPERTS_MAX + 1, &r->experts) ||
        !whole(json_object_get(o, "topK"), MODEL_TOP_K_MAX + 1, &r->top_k))
        return error_set(error, ERR_BAD_INPUT, "no selections, expertsPerLayer and topK");
    for (size_t i = 0; i < n; i++) {
        if (take_token(j, (uint32_t)i, json_array_get(tokens, i), error) != 0)
            return -1;
    }
    return 0;
}

static int take_object(struct reader *j, const json_t *o, struct error *error)
{
    if (json_object_get(o, "selections"))
        return take_whole(j, o, error);
    if (json_object_get(o, "decode"))
        return take_pass(j, o, error);
    if (json_object_get(o, "layers") && j->line <= MODEL_CONTEXT_MAX)
        return take_token(j, (uint32_t)j->line - 1, json_object_get(o, "layers"), error);
    return bad(j, "neither selections, nor layers, nor a pass", error);
}

/* The document in `text`, for json_decref. NULL with *error. */
static json_t *parse(const char *text, size_t bytes, struct error *error)
{
    const struct json_limits limits = {
        .bytes = TRACE_IMPORT_BYTES_MAX, .string = 1 << 16, .values = VALUES_MAX, .depth = 8};
    struct json_reader *r = json_reader_text_of(text, bytes, &limits, error);
    json_t *o = r ? json_read_value(r) : NULL;
    if (r && json_reader_end(r, error) != 0) {
        json_decref(o);
        o = NULL;
    }
    json_reader_close(r);
    return o;
}

/* A prompt of one token cannot be told from a decoded one. */
static void name_single(const struct reader *j)
{
    for (uint64_t i = 0; j->one_row && i < j->r->count; i++)
        j->r->use[i].decoded = true;
}

static bool is_blank(const char *line, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        if (line[i] != ' ' && line[i] != '\t' && line[i] != '\r')
            return false;
    return true;
}

static int take_line(struct reader *j, const char *line, size_t bytes, struct error *error)
{
    struct error wrong;
    json_t *o;
    j->line++;
    if (is_blank(line, bytes))
        return 0;
    if (!(o = parse(line, bytes, &wrong)))
        return bad(j, wrong.text, error);
    int status = take_object(j, o, error);
    json_decref(o);
    return status;
}

static int take_lines(struct reader *j, const char *text, size_t bytes, struct error *error)
{
    for (const char *at = text, *end = text + bytes; at < end;) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        size_t n = (size_t)((stop ? stop : end) - at);
        if (take_line(j, at, n, error) != 0)
            return -1;
        at += n + 1;
    }
    name_single(j);
    return 0;
}

int import_json(struct recording *r, const char *text, size_t bytes, struct error *error)
{
    struct reader j = {.r = r, .one_row = true};
    struct error ignored;
    const char *stop = memchr(text, '\n', bytes);
    json_t *o = parse(text, stop ? (size_t)(stop - text) : bytes, &ignored);
    bool lines = json_is_object(o);
    json_decref(o);
    if (lines)
        return take_lines(&j, text, bytes, error);
    if (!(o = parse(text, bytes, error)))
        return -1;
    int status = take_object(&j, o, error);
    json_decref(o);
    return status;
}
