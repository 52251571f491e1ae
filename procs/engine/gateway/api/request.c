/* SPDX-License-Identifier: Apache-2.0 */
/* Bodies of completion requests: JSON of a bounded size, which the dialect reads. */
#include "procs/engine/gateway/api/request.h"

#include <stdlib.h>
#include <string.h>

#include "ipc/rpc/json.h"
#include "lib/json/count.h"
#include "lib/text/utf8.h"

static bool fits(const struct dialect *dialect, const struct json_extent *e)
{
    if (dialect->ids_max == 0)
        return e->values <= API_VALUES_MAX;
    return e->values <= API_VALUES_MAX + dialect->ids_max &&
           e->containers + e->texts <= API_VALUES_MAX;
}

/* The field of the body with whose name the words begin, if there is one. */
static void name_param(const json_t *body, const struct error *error, char param[API_PARAM_BYTES])
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz_";
    const char *text = error->text;
    size_t own = text[0] == '\'' ? strspn(text + 1, letters) : 0, n = own;
    if (n > 0 && text[n + 1] == '.')
        n += 1 + strspn(text + n + 2, letters);
    if (n == 0 || n >= API_PARAM_BYTES || text[n + 1] != '\'' ||
        !json_object_getn(body, text + 1, own))
        return;
    memcpy(param, text + 1, n);
    param[n] = 0;
}

int api_request_parse(const struct dialect *dialect, const char *text, size_t bytes,
                      const struct api_limits *limits, struct api_request *out,
                      char param[API_PARAM_BYTES], struct error *error)
{
    json_t *json;
    *out =
        (struct api_request){.cache_prompt = true, .max_tokens = ENGINE_TOKENS_MAX, .answers = 1};
    sampling_defaults(&out->sampling);
    param[0] = 0;
    struct json_extent e = json_extent_of(text, bytes);
    if (!fits(dialect, &e))
        return error_set(error, ERR_BAD_INPUT, "the body has more than %zu values",
                         API_VALUES_MAX + dialect->ids_max);
    if (rpc_json_parse(text, bytes, SIZE_MAX, &json, error) != 0) /* --http-body bounds it */
        return -1;
    struct api_body body = {.json = json, .values = e.values, .limits = limits};
    int rc = dialect->parse(&body, out, param, error);
    if (rc != 0)
        name_param(json, error, param);
    else
        param[0] = 0;
    if (out->tries == 0)
        out->tries = out->answers;
    json_decref(json);
    return rc;
}

#define LINE_TEXT_BYTES  100 /* jansson's, of a text */
#define LINE_ARRAY_BYTES 160 /* and of an array with its eight places */

/* The name in an argument's array is that of its tool. */
size_t api_lines_bytes(const struct api_request *r)
{
    size_t bytes = 0, i;
    const json_t *of;
    json_array_foreach(r->grammar_lines, i, of)
    {
        const json_t *name = json_is_array(of) ? json_array_get(of, 1) : of;
        bytes += (json_is_array(of) ? LINE_ARRAY_BYTES : 0) + LINE_TEXT_BYTES +
                 2 * json_string_length(name);
    }
    return bytes;
}

void api_drop_grammar(struct api_request *r)
{
    free(r->grammar_text);
    json_decref(r->grammar_lines);
    r->grammar_text = NULL;
    r->grammar_lines = NULL;
    r->grammar = (struct grammar_source){.kind = GRAMMAR_NONE};
}

void api_request_submitted(struct api_request *r)
{
    free(r->prompt);
    free(r->ids);
    free(r->grammar_text);
    free(r->bias);
    text_ranges_free(&r->special);
    r->prompt = NULL;
    r->ids = NULL;
    r->grammar_text = NULL;
    r->grammar.text = NULL;
    r->bias = NULL;
}

void api_request_free(struct api_request *r)
{
    api_request_submitted(r);
    chat_types_free(r->types);
    json_decref(r->tool_names);
    r->tool_names = NULL;
    free(r->front);
    free(r->conversation);
    r->front = r->conversation = NULL;
    json_decref(r->grammar_lines);
    r->grammar_lines = NULL;
    r->answer.types = r->types = NULL;
}

void api_model_name(const char *path, char *out, size_t cap)
{
    const char *slash = strrchr(path, '/'), *name = slash && slash[1] ? slash + 1 : path;
    size_t n = strlen(name);
    if (n > 5 && strcmp(name + n - 5, ".gguf") == 0)
        n -= 5;
    if (n > cap - 1)
        n = utf8_complete_prefix(name, cap - 1);
    memcpy(out, name, n);
    out[n] = 0;
}
