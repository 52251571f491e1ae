/* SPDX-License-Identifier: Apache-2.0 */
/* The calls of the engine, server side: requests are parsed, replies are made. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ipc/engine/engine_client.h"
#include "ipc/engine/internal.h"
#include "ipc/rpc/json.h"
#include "lib/base/assert.h"

static int sampling_parse(json_t *object, struct sampling *s, struct error *error)
{
    const char *name;
    json_t *value;
    if (!json_is_object(object))
        return error_set(error, ERR_BAD_INPUT, "sampling must be an object");
    json_object_foreach(object, name, value)
    {
        const struct sampling_param *p = sampling_param_named(name);
        if (!p || strcmp(p->name, name) != 0)
            return error_set(error, ERR_BAD_INPUT, "unknown sampling parameter \"%.40s\"", name);
        if (p->type == SAMPLING_double ? !json_is_number(value) : !json_is_integer(value))
            return error_set(error, ERR_BAD_INPUT, "%s must be %s", p->name,
                             p->type == SAMPLING_double ? "a number" : "an integer");
        if ((p->type == SAMPLING_double
                 ? sampling_set_real(s, p, json_number_value(value), error)
                 : sampling_set_int(s, p, json_integer_value(value), error)) != 0)
            return -1;
    }
    return 0;
}

/* Fields of requests. */

int engine_json_int(const json_t *body, const char *name, int64_t min, int64_t max, int64_t *out,
                    struct error *error)
{
    const json_t *value = json_object_get(body, name);
    if (!value)
        return 0; /* the default stays */
    if (!json_is_integer(value))
        return error_set(error, ERR_BAD_INPUT, "%s must be an integer", name);
    if (json_integer_value(value) < min || json_integer_value(value) > max)
        return error_set(error, ERR_BAD_INPUT, "%s must be from %" PRId64 " to %" PRId64, name, min,
                         max);
    *out = json_integer_value(value);
    return 0;
}

int engine_json_bool(const json_t *body, const char *name, bool *out, struct error *error)
{
    const json_t *value = json_object_get(body, name);
    if (!value)
        return 0;
    if (!json_is_boolean(value))
        return error_set(error, ERR_BAD_INPUT, "%s must be true or false", name);
    *out = json_is_true(value);
    return 0;
}

/* Rejects a field that is neither in `known` (each followed by a comma) nor of the envelope. */
static int only_known(json_t *body, const char *known, struct error *error)
{
    const char *name;
    json_t *value;
    json_object_foreach(body, name, value)
    {
        char wanted[64];
        int n = snprintf(wanted, sizeof wanted, ",%s,", name);
        if (n >= (int)sizeof wanted || strchr(name, ',') ||
            (!strstr(",v,id,op,", wanted) && !strstr(known, wanted)))
            return error_set(error, ERR_BAD_INPUT, "unknown field \"%.40s\"", name);
    }
    return 0;
}

static bool key_ok(const char *key, size_t bytes)
{
    if (bytes == 0 || bytes > ENGINE_KEY_BYTES_MAX)
        return false;
    for (size_t i = 0; i < bytes; i++)
        if (key[i] < 0x21 || key[i] > 0x7e)
            return false;
    return true;
}

static int check_key(const json_t *body, struct engine_submit *out, struct error *error)
{
    const json_t *key = json_object_get(body, "request_key");
    if (!json_is_string(key) || !key_ok(json_string_value(key), json_string_length(key)))
        return error_set(error, ERR_BAD_INPUT, "request_key must be 1 to %d printable characters",
                         ENGINE_KEY_BYTES_MAX);
    out->request_key = json_string_value(key);
    return 0;
}

/* An array of token ids, newly allocated. */
static int parse_ids(const json_t *array, const char *name, const uint32_t **out, size_t *out_count,
                     struct error *error)
{
    size_t count = json_array_size(array);
    if (!json_is_array(array) || count == 0 || count > ENGINE_PROMPT_IDS_MAX)
        return error_set(error, ERR_BAD_INPUT, "%s must be an array of 1 to %u token ids", name,
                         ENGINE_PROMPT_IDS_MAX);
    uint32_t *ids = malloc(count * sizeof *ids);
    if (!ids)
        return error_set(error, ERR_NO_MEMORY, "out of memory (%zu token ids)", count);
    *out = ids;
    *out_count = count;
    for (size_t i = 0; i < count; i++) {
        const json_t *id = json_array_get(array, i);
        if (!json_is_integer(id) || json_integer_value(id) < 0 ||
            json_integer_value(id) > INT32_MAX)
            return error_set(error, ERR_BAD_INPUT, "%s[%zu] is not a token id", name, i);
        ids[i] = (uint32_t)json_integer_value(id);
    }
    return 0;
}

static int parse_client(const json_t *body, struct engine_submit *out, struct error *error)
{
    const json_t *client = json_object_get(body, "client");
    const char *text = json_string_value(client);
    if (!client)
        return 0;
    if (!text || strlen(text) != json_string_length(client) ||
        strlen(text) > ENGINE_CLIENT_BYTES_MAX)
        return error_set(error, ERR_BAD_INPUT, "client must be a text of at most %d bytes",
                         ENGINE_CLIENT_BYTES_MAX);
    for (const char *c = text; *c; c++)
        if (*c < ' ' || *c > '~')
            return error_set(error, ERR_BAD_INPUT, "client must be printable ASCII");
    out->client = text;
    return 0;
}

static int parse_stops(const json_t *body, struct engine_submit *out, struct error *error)
{
    const json_t *stops = json_object_get(body, "stop");
    if (!stops)
        return 0;
    if (!json_is_array(stops))
        return error_set(error, ERR_BAD_INPUT, "stop must be an array of texts");
    for (size_t i = 0; i < json_array_size(stops); i++) {
        const json_t *text = json_array_get(stops, i);
        if (!json_is_string(text))
            return error_set(error, ERR_BAD_INPUT, "stop[%zu] is not a text", i);
        if (stop_texts_add(&out->stops, json_string_value(text), json_string_length(text), error) !=
            0)
            return -1;
    }
    return 0;
}

static int parse_prompt(const json_t *body, struct engine_submit *out, struct error *error)
{
    const json_t *prompt = json_object_get(body, "prompt"), *ids = json_object_get(body, "ids");
    if (!prompt == !ids)
        return error_set(error, ERR_BAD_INPUT, "exactly one of prompt and ids must be given");
    if (ids)
        return parse_ids(ids, "ids", &out->prompt_ids, &out->prompt_ids_count, error);
    if (!json_is_string(prompt))
        return error_set(error, ERR_BAD_INPUT, "prompt must be a string");
    out->prompt = json_string_value(prompt);
    out->prompt_bytes = json_string_length(prompt);
    if (out->prompt_bytes > ENGINE_PROMPT_BYTES_MAX)
        return error_set(error, ERR_BAD_INPUT, "prompt too long: %zu bytes, maximum %u",
                         out->prompt_bytes, ENGINE_PROMPT_BYTES_MAX);
    return 0;
}

/* Ranges of the prompt, [[from, to], ...]. */
static int parse_special(const json_t *body, struct engine_submit *out, struct error *error)
{
    const json_t *ranges = json_object_get(body, "special");
    size_t count = json_array_size(ranges);
    if (!ranges)
        return 0;
    if (!json_is_array(ranges) || count > ENGINE_RANGES_MAX || !out->prompt)
        return error_set(error, ERR_BAD_INPUT,
                         "special must be an array of at most %u ranges of the prompt's text",
                         ENGINE_RANGES_MAX);
    if (count == 0)
        return 0;
    out->special.at = calloc(count, sizeof *out->special.at);
    if (!out->special.at)
        return error_set(error, ERR_NO_MEMORY, "out of memory (%zu ranges)", count);
    for (size_t i = 0; i < count; i++) {
        const json_t *range = json_array_get(ranges, i), *from = json_array_get(range, 0),
                     *to = json_array_get(range, 1);
        if (json_array_size(range) != 2 || !json_is_integer(from) || !json_is_integer(to) ||
            json_integer_value(from) < 0 || json_integer_value(from) > ENGINE_PROMPT_BYTES_MAX ||
            json_integer_value(to) < 0 || json_integer_value(to) > ENGINE_PROMPT_BYTES_MAX)
            return error_set(error, ERR_BAD_INPUT, "special[%zu] is not [from, to]", i);
        out->special.at[out->special.count++] = (struct text_range){
            (uint32_t)json_integer_value(from), (uint32_t)json_integer_value(to)};
    }
    if (!text_ranges_valid(&out->special, out->prompt_bytes))
        return error_set(error, ERR_BAD_INPUT,
                         "special must have ascending, separate ranges of the prompt's bytes");
    return 0;
}

/* Forced tokens: all of them must be used as new tokens. */
static int parse_forced(const json_t *body, struct engine_submit *out, struct error *error)
{
    const json_t *forced = json_object_get(body, "forced");
    if (!forced)
        return 0;
    if (parse_ids(forced, "forced", &out->forced, &out->forced_count, error) != 0)
        return -1;
    if (out->score_prompt)
        return error_set(error, ERR_BAD_INPUT, "forced and score_prompt are mutually exclusive");
    if ((int64_t)out->forced_count > out->max_tokens)
        return error_set(error, ERR_BAD_INPUT, "%zu forced tokens, but max_tokens is %" PRId64,
                         out->forced_count, out->max_tokens);
    return 0;
}

int engine_submit_parse(json_t *body, struct engine_submit *out, struct error *error)
{
    engine_submit_defaults(out);
    json_t *sampling = json_object_get(body, "sampling");
    if (only_known(body,
                   ",request_key,prompt,ids,max_tokens,ignore_eos,special,logprobs,"
                   "score_prompt,sampling,forced,stop,gateway,cache_prompt,client,grammar,"
                   "logit_bias,top_logprobs,side,",
                   error) != 0 ||
        check_key(body, out, error) != 0 || parse_client(body, out, error) != 0 ||
        parse_prompt(body, out, error) != 0 ||
        engine_json_int(body, "max_tokens", 0, ENGINE_TOKENS_MAX, &out->max_tokens, error) != 0 ||
        engine_json_int(body, "logprobs", 0, ENGINE_LOGPROBS_MAX, &out->logprobs, error) != 0 ||
        engine_json_int(body, "top_logprobs", 0, ENGINE_TOP_MAX, &out->top_logprobs, error) != 0 ||
        engine_json_int(body, "gateway", 0, UINT32_MAX, &out->gateway, error) != 0 ||
        engine_json_bool(body, "ignore_eos", &out->ignore_eos, error) != 0 ||
        parse_special(body, out, error) != 0 ||
        engine_json_bool(body, "score_prompt", &out->score_prompt, error) != 0 ||
        engine_json_bool(body, "cache_prompt", &out->cache_prompt, error) != 0 ||
        engine_json_bool(body, "side", &out->side, error) != 0 ||
        parse_forced(body, out, error) != 0 || parse_stops(body, out, error) != 0 ||
        engine_constraints_parse(body, out, error) != 0)
        return -1;
    return sampling ? sampling_parse(sampling, &out->sampling, error) : 0;
}

void engine_submit_parsed_free(struct engine_submit *out)
{
    free((void *)out->prompt_ids);
    free((void *)out->forced);
    free((void *)out->bias);
    text_ranges_free(&out->special);
    out->prompt_ids = out->forced = NULL;
    out->bias = NULL;
    out->prompt_ids_count = out->forced_count = out->bias_count = 0;
}

int engine_json_sequence(const json_t *body, uint64_t *id, struct error *error)
{
    int64_t value = -1;
    if (engine_json_int(body, "sequence", 0, INT64_MAX, &value, error) != 0)
        return -1;
    if (value < 0)
        return error_set(error, ERR_BAD_INPUT, "sequence is missing");
    *id = (uint64_t)value;
    return 0;
}

static int check_marks(const json_t *body, struct error *error)
{
    const json_t *marks = json_object_get(body, "marks");
    if (!marks)
        return 0;
    if (!json_is_array(marks) || json_array_size(marks) > ENGINE_MARKS_MAX)
        return error_set(error, ERR_BAD_INPUT, "marks must be an array of at most %d texts",
                         ENGINE_MARKS_MAX);
    for (size_t i = 0; i < json_array_size(marks); i++) {
        size_t bytes = json_string_length(json_array_get(marks, i));
        if (bytes == 0 || bytes > ENGINE_MARK_BYTES_MAX) /* 0: no text, too */
            return error_set(error, ERR_BAD_INPUT, "marks[%zu] is not a text of 1 to %d bytes", i,
                             ENGINE_MARK_BYTES_MAX);
    }
    return 0;
}

void engine_next_marks(const json_t *body, struct engine_marks *marks)
{
    const json_t *all = json_object_get(body, "marks");
    sl_assert(json_array_size(all) <= ENGINE_MARKS_MAX);
    marks->count = (uint32_t)json_array_size(all);
    for (uint32_t i = 0; i < marks->count; i++)
        marks->text[i] = json_string_value(json_array_get(all, i));
}

int engine_next_parse(json_t *body, uint64_t *id, uint64_t *from, unsigned *wait_ms,
                      struct error *error)
{
    int64_t first = 0, wait = 0;
    if (only_known(body, ",sequence,from,wait_ms,marks,", error) != 0 ||
        check_marks(body, error) != 0 || engine_json_sequence(body, id, error) != 0 ||
        engine_json_int(body, "from", 0, INT64_MAX, &first, error) != 0 ||
        engine_json_int(body, "wait_ms", 0, ENGINE_WAIT_MS_MAX, &wait, error) != 0)
        return -1;
    *from = (uint64_t)first;
    *wait_ms = (unsigned)wait;
    return 0;
}

int engine_cancel_parse(json_t *body, uint64_t *id, struct error *error)
{
    return only_known(body, ",sequence,", error) != 0 ? -1 : engine_json_sequence(body, id, error);
}

int engine_count_parse(json_t *body, struct engine_submit *out, struct error *error)
{
    engine_submit_defaults(out);
    return only_known(body, ",prompt,ids,special,", error) != 0 ||
                   parse_prompt(body, out, error) != 0 || parse_special(body, out, error) != 0
               ? -1
               : 0;
}

/* Replies, server side. */

json_t *engine_count_reply(uint64_t tokens, uint32_t context)
{
    return json_pack("{s:I, s:I}", "tokens", (json_int_t)tokens, "context", (json_int_t)context);
}

json_t *engine_encode_reply(const uint32_t *ids, size_t count, bool bos)
{
    return json_pack("{s:o, s:b}", "ids", engine_json_ids(ids, count), "bos", bos);
}

json_t *engine_decode_reply(const char *text, size_t bytes)
{
    return json_pack("{s:o}", "text", rpc_text_json(text, bytes));
}

json_t *engine_submit_reply(uint64_t id, uint32_t prompt_tokens)
{
    return json_pack("{s:I, s:I}", "sequence", (json_int_t)id, "prompt_tokens",
                     (json_int_t)prompt_tokens);
}

bool engine_json_put(json_t *object, const char *name, json_t *value)
{
    return json_object_set_new(object, name, value) == 0;
}

json_t *engine_json_ids(const uint32_t *ids, size_t count)
{
    json_t *array = json_array();
    for (size_t i = 0; array && i < count; i++) {
        if (json_array_append_new(array, json_integer(ids[i])) != 0) {
            json_decref(array);
            return NULL;
        }
    }
    return array;
}

static json_t *logprobs_json(const double *values, size_t count)
{
    json_t *array = json_array();
    for (size_t i = 0; array && i < count; i++) {
        /* JSON has no infinity: null represents it. */
        if (json_array_append_new(array,
                                  isfinite(values[i]) ? json_real(values[i]) : json_null()) != 0) {
            json_decref(array);
            return NULL;
        }
    }
    return array;
}

json_t *engine_json_hex(const char *bytes, size_t count)
{
    static const char digits[] = "0123456789abcdef";
    char *hex = malloc(2 * count + 1);
    for (size_t i = 0; hex && i < count; i++) {
        unsigned char byte = (unsigned char)bytes[i];
        hex[2 * i] = digits[byte >> 4];
        hex[2 * i + 1] = digits[byte & 15];
    }
    json_t *text = hex ? json_stringn(hex, 2 * count) : NULL;
    free(hex);
    return text;
}

/* The bytes of the pieces as they are, where the text has replaced some of them; NULL: it has not,
 * or out of memory. */
static json_t *raw_json(const struct engine_next *next, const json_t *text)
{
    if (json_string_length(text) == next->text_bytes &&
        memcmp(json_string_value(text), next->text, next->text_bytes) == 0)
        return NULL;
    return engine_json_hex(next->text, next->text_bytes);
}

static json_t *progress_json(const struct engine_progress *p)
{
    json_t *object = json_pack("{s:I, s:I, s:I, s:I, s:I}", "queue", (json_int_t)p->queue, "tokens",
                               (json_int_t)p->tokens, "done", (json_int_t)p->done, "cached",
                               (json_int_t)p->cached, "time_ms", (json_int_t)p->time_ms);
    if (object && p->left_ms != UINT64_MAX)
        json_object_set_new(object, "left_ms", json_integer((json_int_t)p->left_ms));
    return object;
}

json_t *engine_next_reply(const struct engine_next *next)
{
    sl_assert(next->count <= ENGINE_NEXT_IDS_MAX && next->logprobs_count <= ENGINE_NEXT_IDS_MAX &&
              next->piece_bytes_count <= next->count);
    json_t *fields = json_object();
    bool fine = fields && engine_json_put(fields, "ids", engine_json_ids(next->ids, next->count)) &&
                engine_json_put(fields, "text", rpc_text_json(next->text, next->text_bytes)) &&
                engine_json_put(fields, "next", json_integer((json_int_t)next->next)) &&
                engine_json_put(fields, "done", json_boolean(next->done));
    if (fine && next->done && next->finish)
        fine = engine_json_put(fields, "finish", json_string(next->finish));
    if (fine && next->done && next->failure.code != ERR_NONE)
        fine = engine_json_put(fields, "error", rpc_error_json(&next->failure));
    if (fine && next->stats)
        fine = engine_json_put(fields, "stats", json_incref(next->stats));
    if (fine && next->logprobs_count)
        fine = engine_json_put(fields, "logprobs",
                               logprobs_json(next->logprobs, next->logprobs_count));
    if (fine && next->progress.known)
        fine = engine_json_put(fields, "progress", progress_json(&next->progress));
    if (fine && next->stopped)
        fine =
            engine_json_put(fields, "text_tokens", json_integer((json_int_t)next->text_tokens)) &&
            engine_json_put(fields, "stop", json_integer(next->stop));
    if (fine && next->piece_bytes_count)
        fine = engine_json_put(fields, "pieces",
                               engine_json_ids(next->piece_bytes, next->piece_bytes_count));
    if (fine && next->top_each)
        fine = engine_json_put(fields, "top", engine_top_json(next));
    json_t *raw =
        fine && next->piece_bytes_count ? raw_json(next, json_object_get(fields, "text")) : NULL;
    if (raw)
        fine = engine_json_put(fields, "raw", raw);
    if (fine)
        return fields;
    json_decref(fields);
    return NULL;
}
