/* SPDX-License-Identifier: Apache-2.0 */
#include "ipc/engine/engine_client.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "ipc/endpoints.h"
#include "ipc/rpc/json.h"
#include "lib/base/assert.h"
#include "lib/base/bytes.h"

#define CONTROL_MS 60000 /* lowering the budget takes time */

json_t *sampling_json(const struct sampling *s)
{
    json_t *object = json_object();
    size_t count;
    const struct sampling_param *params = sampling_params(&count);
    for (size_t i = 0; object && i < count; i++) {
        const char *at = (const char *)s + params[i].offset;
        double real;
        int64_t integer;
        memcpy(&real, at, sizeof real);
        memcpy(&integer, at, sizeof integer);
        json_t *value = params[i].type == SAMPLING_double ? json_real(real) : json_integer(integer);
        if (json_object_set_new(object, params[i].name, value) != 0) {
            json_decref(object);
            return NULL;
        }
    }
    return object;
}

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

static int get_int(const json_t *body, const char *name, int64_t min, int64_t max, int64_t *out,
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

static int get_bool(const json_t *body, const char *name, bool *out, struct error *error)
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

static json_t *stops_json(const struct stop_texts *stops)
{
    json_t *array = json_array();
    for (uint32_t i = 0; array && i < stops->count; i++) {
        if (json_array_append_new(array, json_stringn(stops->text[i], stops->bytes[i])) != 0) {
            json_decref(array);
            return NULL;
        }
    }
    return array;
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

/* A range may extend beyond the prompt (text_ranges_all); it is cut there. */
static json_t *special_json(const struct engine_submit *s)
{
    json_t *array = json_array();
    for (size_t i = 0; array && i < s->special.count; i++) {
        struct text_range r = s->special.at[i];
        if (r.to > s->prompt_bytes)
            r.to = (uint32_t)s->prompt_bytes;
        if (r.from < r.to &&
            json_array_append_new(array, json_pack("[i, i]", (int)r.from, (int)r.to)) != 0) {
            json_decref(array);
            return NULL;
        }
    }
    return array;
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

void engine_submit_defaults(struct engine_submit *s)
{
    *s = (struct engine_submit){.max_tokens = 128};
    sampling_defaults(&s->sampling);
}

int engine_submit_parse(json_t *body, struct engine_submit *out, struct error *error)
{
    engine_submit_defaults(out);
    json_t *sampling = json_object_get(body, "sampling");
    if (only_known(body,
                   ",request_key,prompt,ids,max_tokens,ignore_eos,special,logprobs,"
                   "score_prompt,sampling,forced,stop,gateway,",
                   error) != 0 ||
        check_key(body, out, error) != 0 || parse_prompt(body, out, error) != 0 ||
        get_int(body, "max_tokens", 0, ENGINE_TOKENS_MAX, &out->max_tokens, error) != 0 ||
        get_int(body, "logprobs", 0, ENGINE_LOGPROBS_MAX, &out->logprobs, error) != 0 ||
        get_int(body, "gateway", 0, UINT32_MAX, &out->gateway, error) != 0 ||
        get_bool(body, "ignore_eos", &out->ignore_eos, error) != 0 ||
        parse_special(body, out, error) != 0 ||
        get_bool(body, "score_prompt", &out->score_prompt, error) != 0 ||
        parse_forced(body, out, error) != 0 || parse_stops(body, out, error) != 0)
        return -1;
    return sampling ? sampling_parse(sampling, &out->sampling, error) : 0;
}

void engine_submit_parsed_free(struct engine_submit *out)
{
    free((void *)out->prompt_ids);
    free((void *)out->forced);
    text_ranges_free(&out->special);
    out->prompt_ids = out->forced = NULL;
    out->prompt_ids_count = out->forced_count = 0;
}

static int get_sequence(const json_t *body, uint64_t *id, struct error *error)
{
    int64_t value = -1;
    if (get_int(body, "sequence", 0, INT64_MAX, &value, error) != 0)
        return -1;
    if (value < 0)
        return error_set(error, ERR_BAD_INPUT, "sequence is missing");
    *id = (uint64_t)value;
    return 0;
}

int engine_next_parse(json_t *body, uint64_t *id, uint64_t *from, unsigned *wait_ms,
                      struct error *error)
{
    int64_t first = 0, wait = 0;
    if (only_known(body, ",sequence,from,wait_ms,", error) != 0 ||
        get_sequence(body, id, error) != 0 ||
        get_int(body, "from", 0, INT64_MAX, &first, error) != 0 ||
        get_int(body, "wait_ms", 0, ENGINE_WAIT_MS_MAX, &wait, error) != 0)
        return -1;
    *from = (uint64_t)first;
    *wait_ms = (unsigned)wait;
    return 0;
}

int engine_cancel_parse(json_t *body, uint64_t *id, struct error *error)
{
    return only_known(body, ",sequence,", error) != 0 ? -1 : get_sequence(body, id, error);
}

/* Replies, server side. */

json_t *engine_submit_reply(uint64_t id, uint32_t prompt_tokens)
{
    return json_pack("{s:I, s:I}", "sequence", (json_int_t)id, "prompt_tokens",
                     (json_int_t)prompt_tokens);
}

/* Adds a value; fails for NULL (out of memory). */
static bool put(json_t *object, const char *name, json_t *value)
{
    return json_object_set_new(object, name, value) == 0;
}

static json_t *ids_json(const uint32_t *ids, size_t count)
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

json_t *engine_next_reply(const struct engine_next *next)
{
    sl_assert(next->count <= ENGINE_NEXT_IDS_MAX && next->logprobs_count <= ENGINE_NEXT_IDS_MAX &&
              next->piece_bytes_count <= next->count);
    json_t *fields = json_object();
    bool fine = fields && put(fields, "ids", ids_json(next->ids, next->count)) &&
                put(fields, "text", rpc_text_json(next->text, next->text_bytes)) &&
                put(fields, "next", json_integer((json_int_t)next->next)) &&
                put(fields, "done", json_boolean(next->done));
    if (fine && next->done && next->finish)
        fine = put(fields, "finish", json_string(next->finish));
    if (fine && next->done && next->failure.code != ERR_NONE)
        fine = put(fields, "error", rpc_error_json(&next->failure));
    if (fine && next->stats)
        fine = put(fields, "stats", json_incref(next->stats));
    if (fine && next->logprobs_count)
        fine = put(fields, "logprobs", logprobs_json(next->logprobs, next->logprobs_count));
    if (fine && next->stopped)
        fine = put(fields, "text_tokens", json_integer((json_int_t)next->text_tokens));
    if (fine && next->piece_bytes_count)
        fine = put(fields, "pieces", ids_json(next->piece_bytes, next->piece_bytes_count));
    if (fine)
        return fields;
    json_decref(fields);
    return NULL;
}

/* Client side. */

/* A unique key: 128 random bits. */
static int make_key(char key[33], struct error *error)
{
    uint64_t random[2];
    if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random)
        return error_set_errno(error, ERR_FAILED, errno, "cannot get random numbers");
    snprintf(key, 33, "%016" PRIx64 "%016" PRIx64, random[0], random[1]);
    return 0;
}

static json_t *submit_json(const struct engine_submit *s, const char *key)
{
    json_t *request = json_object();
    bool fine = request && put(request, "request_key", json_string(key)) &&
                put(request, "max_tokens", json_integer(s->max_tokens)) &&
                put(request, "ignore_eos", json_boolean(s->ignore_eos)) &&
                (s->special.count == 0 || !s->prompt || put(request, "special", special_json(s))) &&
                put(request, "logprobs", json_integer(s->logprobs)) &&
                put(request, "score_prompt", json_boolean(s->score_prompt)) &&
                put(request, "sampling", sampling_json(&s->sampling)) &&
                (s->gateway == 0 || put(request, "gateway", json_integer(s->gateway))) &&
                (s->stops.count == 0 || put(request, "stop", stops_json(&s->stops))) &&
                (s->prompt ? put(request, "prompt", json_stringn(s->prompt, s->prompt_bytes))
                           : put(request, "ids", ids_json(s->prompt_ids, s->prompt_ids_count))) &&
                (!s->forced || put(request, "forced", ids_json(s->forced, s->forced_count)));
    if (fine)
        return request;
    json_decref(request);
    return NULL;
}

json_t *engine_submit_request(const struct engine_submit *s, struct error *error)
{
    char key[33];
    json_t *request = NULL;
    sl_assert((s->prompt != NULL) != (s->prompt_ids != NULL));
    if (s->prompt && s->prompt_bytes > ENGINE_PROMPT_BYTES_MAX)
        error_set(error, ERR_BAD_INPUT, "prompt too long: %zu bytes, maximum %u", s->prompt_bytes,
                  ENGINE_PROMPT_BYTES_MAX);
    else if (s->prompt_ids_count > ENGINE_PROMPT_IDS_MAX)
        error_set(error, ERR_BAD_INPUT, "prompt too long: %zu tokens, maximum %u",
                  s->prompt_ids_count, ENGINE_PROMPT_IDS_MAX);
    else if (s->forced_count > ENGINE_PROMPT_IDS_MAX)
        error_set(error, ERR_BAD_INPUT, "too many forced tokens: %zu, maximum %u", s->forced_count,
                  ENGINE_PROMPT_IDS_MAX);
    else if (s->request_key || make_key(key, error) == 0) {
        request = submit_json(s, s->request_key ? s->request_key : key);
        if (!request)
            error_set(error, ERR_BAD_INPUT, "the prompt is not UTF-8 text");
    }
    return request;
}

int engine_submit_read(const json_t *reply, uint64_t *id, uint64_t *prompt_tokens,
                       struct error *error)
{
    int64_t tokens = 0;
    if (get_int(reply, "prompt_tokens", 0, UINT32_MAX, &tokens, error) != 0)
        return -1;
    *prompt_tokens = (uint64_t)tokens;
    return get_sequence(reply, id, error);
}

int engine_submit(struct rpc_client *c, const struct engine_submit *s, uint64_t *id,
                  struct error *error)
{
    json_t *reply, *request = engine_submit_request(s, error);
    if (!request || rpc_call(c, "submit", request, ENGINE_SUBMIT_MS, &reply, error) != 0)
        return -1;
    uint64_t prompt_tokens;
    int result = engine_submit_read(reply, id, &prompt_tokens, error);
    json_decref(reply);
    return result;
}

static const char *finish_name(const char *name)
{
    static const char *const names[] = {"length", "stop", "cancelled", "error"};
    for (size_t i = 0; name && i < ARRAY_LEN(names); i++)
        if (strcmp(names[i], name) == 0)
            return names[i];
    return "error";
}

/* Copies an array of numbers below 2^32. */
static bool read_numbers(const json_t *array, uint32_t *out, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const json_t *value = json_array_get(array, i);
        if (!json_is_integer(value) || json_integer_value(value) < 0 ||
            json_integer_value(value) > UINT32_MAX)
            return false;
        out[i] = (uint32_t)json_integer_value(value);
    }
    return true;
}

/* The arrays of a reply share one allocation: log-probabilities, then ids, then piece bytes. */
static int read_arrays(struct engine_next *next, struct error *error)
{
    const json_t *ids = json_object_get(next->reply, "ids");
    const json_t *logprobs = json_object_get(next->reply, "logprobs");
    const json_t *pieces = json_object_get(next->reply, "pieces");
    next->count = json_array_size(ids);
    next->logprobs_count = json_array_size(logprobs);
    next->piece_bytes_count = json_array_size(pieces);
    if (!json_is_array(ids) || next->count > ENGINE_NEXT_IDS_MAX ||
        next->logprobs_count > ENGINE_NEXT_IDS_MAX || next->piece_bytes_count > next->count)
        return error_set(error, ERR_FAILED, "invalid reply from the engine: no ids");
    size_t numbers = next->count + next->piece_bytes_count;
    double *reals = malloc(next->logprobs_count * sizeof *reals + numbers * sizeof(uint32_t) + 1);
    if (!reals)
        return error_set(error, ERR_NO_MEMORY, "out of memory (reply)");
    uint32_t *out = (uint32_t *)(reals + next->logprobs_count);
    next->logprobs = reals;
    next->ids = out;
    next->piece_bytes = out + next->count;
    if (!read_numbers(ids, out, next->count) ||
        !read_numbers(pieces, out + next->count, next->piece_bytes_count))
        return error_set(error, ERR_FAILED, "invalid reply from the engine: bad token id");
    for (size_t i = 0; i < next->logprobs_count; i++) {
        const json_t *value = json_array_get(logprobs, i);
        reals[i] = json_is_number(value) ? json_number_value(value) : -INFINITY;
    }
    return 0;
}

static int read_next(struct engine_next *next, uint64_t from, struct error *error)
{
    const json_t *text = json_object_get(next->reply, "text");
    const json_t *failure = json_object_get(next->reply, "error");
    int64_t position = -1, text_tokens = -1;
    if (read_arrays(next, error) != 0 ||
        get_int(next->reply, "next", 0, INT64_MAX, &position, error) != 0 ||
        get_bool(next->reply, "done", &next->done, error) != 0 ||
        get_int(next->reply, "text_tokens", 0, UINT32_MAX, &text_tokens, error) != 0)
        return -1;
    if (!json_is_string(text) || position < 0 || (uint64_t)position < from)
        return error_set(
            error, ERR_FAILED,
            "invalid reply from the engine: no text, or position below the requested one");
    next->text = json_string_value(text);
    next->text_bytes = json_string_length(text);
    next->next = (uint64_t)position;
    next->stopped = text_tokens >= 0;
    next->text_tokens = next->stopped ? (uint64_t)text_tokens : 0;
    if (next->done)
        next->finish = finish_name(json_string_value(json_object_get(next->reply, "finish")));
    if (failure)
        rpc_error_from_json(failure, &next->failure);
    next->stats = json_object_get(next->reply, "stats");
    return 0;
}

json_t *engine_next_request(uint64_t id, uint64_t from, unsigned wait_ms)
{
    return json_pack("{s:I, s:I, s:i}", "sequence", (json_int_t)id, "from", (json_int_t)from,
                     "wait_ms", (int)wait_ms);
}

int engine_next_read(json_t *reply, uint64_t from, struct engine_next *next, struct error *error)
{
    *next = (struct engine_next){.reply = reply};
    if (read_next(next, from, error) == 0)
        return 0;
    engine_next_free(next);
    return -1;
}

int engine_next(struct rpc_client *c, uint64_t id, uint64_t from, unsigned wait_ms,
                struct engine_next *next, struct error *error)
{
    json_t *reply;
    *next = (struct engine_next){0};
    if (wait_ms > ENGINE_WAIT_MS_MAX)
        wait_ms = ENGINE_WAIT_MS_MAX;
    if (rpc_call(c, "next", engine_next_request(id, from, wait_ms), wait_ms + ENGINE_NEXT_GRACE_MS,
                 &reply, error) != 0)
        return -1;
    return engine_next_read(reply, from, next, error);
}

void engine_next_free(struct engine_next *next)
{
    free((void *)next->logprobs);
    json_decref(next->reply);
    *next = (struct engine_next){0};
}

json_t *engine_cancel_request(uint64_t id)
{
    return json_pack("{s:I}", "sequence", (json_int_t)id);
}

int engine_cancel(struct rpc_client *c, uint64_t id, struct error *error)
{
    json_t *reply;
    if (rpc_call(c, "cancel", engine_cancel_request(id), ENGINE_CANCEL_MS, &reply, error) != 0)
        return -1;
    json_decref(reply);
    return 0;
}

int control_call(struct rpc_client *c, const char *op, json_t *fields, json_t **reply,
                 struct error *error)
{
    return rpc_call(c, op, fields, CONTROL_MS, reply, error);
}

static struct rpc_client *open_run(const char *run_name, enum endpoint endpoint,
                                   struct error *error)
{
    char dir[ENDPOINT_BYTES], path[ENDPOINT_BYTES];
    if (run_dir_path(run_name, dir, error) != 0 ||
        endpoint_path(dir, endpoint, 0, path, error) != 0)
        return NULL;
    enum run_state state = run_dir_state(dir);
    if (state == RUN_GONE || (state == RUN_UNKNOWN && access(path, F_OK) != 0)) {
        error_set(error, ERR_GONE,
                  "no engine named \"%s\" is running (%s); start one with: sluice run", run_name,
                  dir);
        return NULL;
    }
    return rpc_client_open(path, error);
}

struct rpc_client *engine_client_open(const char *run_name, struct error *error)
{
    return open_run(run_name, ENDPOINT_ENGINE, error);
}

struct rpc_client *control_client_open(const char *run_name, struct error *error)
{
    return open_run(run_name, ENDPOINT_CONTROL, error);
}
