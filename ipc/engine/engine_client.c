/* SPDX-License-Identifier: Apache-2.0 */
/* Makes and parses the requests and replies of the engine's calls, for both ends. */
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
#include "ipc/engine/internal.h"
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

void engine_submit_defaults(struct engine_submit *s)
{
    *s = (struct engine_submit){.max_tokens = 128, .cache_prompt = true};
    sampling_defaults(&s->sampling);
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

static bool put_prompt(json_t *request, const struct engine_submit *s)
{
    return s->prompt ? engine_json_put(request, "prompt", json_stringn(s->prompt, s->prompt_bytes))
                     : engine_json_put(request, "ids",
                                       engine_json_ids(s->prompt_ids, s->prompt_ids_count));
}

static json_t *submit_json(const struct engine_submit *s, const char *key)
{
    json_t *request = json_object();
    bool fine =
        request && engine_json_put(request, "request_key", json_string(key)) &&
        engine_json_put(request, "max_tokens", json_integer(s->max_tokens)) &&
        engine_json_put(request, "ignore_eos", json_boolean(s->ignore_eos)) &&
        (s->special.count == 0 || !s->prompt ||
         engine_json_put(request, "special", special_json(s))) &&
        engine_json_put(request, "logprobs", json_integer(s->logprobs)) &&
        engine_json_put(request, "score_prompt", json_boolean(s->score_prompt)) &&
        engine_json_put(request, "cache_prompt", json_boolean(s->cache_prompt)) &&
        (!s->side || engine_json_put(request, "side", json_true())) &&
        engine_json_put(request, "sampling", sampling_json(&s->sampling)) &&
        (s->gateway == 0 || engine_json_put(request, "gateway", json_integer(s->gateway))) &&
        (!s->client || engine_json_put(request, "client", json_string(s->client))) &&
        (s->stops.count == 0 || engine_json_put(request, "stop", stops_json(&s->stops))) &&
        (s->top_logprobs == 0 ||
         engine_json_put(request, "top_logprobs", json_integer(s->top_logprobs))) &&
        (s->grammar.kind == GRAMMAR_NONE ||
         engine_json_put(request, "grammar", engine_grammar_json(&s->grammar))) &&
        (s->bias_count == 0 ||
         engine_json_put(request, "logit_bias", engine_bias_json(s->bias, s->bias_count))) &&
        put_prompt(request, s) &&
        (!s->forced ||
         engine_json_put(request, "forced", engine_json_ids(s->forced, s->forced_count)));
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
            error_set(error, ERR_BAD_INPUT, "the prompt%s is not UTF-8 text",
                      s->grammar.kind != GRAMMAR_NONE ? " or the grammar" : "");
    }
    return request;
}

int engine_submit_read(const json_t *reply, uint64_t *id, uint64_t *prompt_tokens,
                       struct error *error)
{
    int64_t tokens = 0;
    if (engine_json_int(reply, "prompt_tokens", 0, UINT32_MAX, &tokens, error) != 0)
        return -1;
    *prompt_tokens = (uint64_t)tokens;
    return engine_json_sequence(reply, id, error);
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

static int hex_digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

bool engine_read_hex(const json_t *text, char *out)
{
    const char *hex = json_string_value(text);
    for (size_t i = 0; i + 1 < json_string_length(text); i += 2) {
        int high = hex_digit(hex[i]), low = hex_digit(hex[i + 1]);
        if (high < 0 || low < 0)
            return false;
        out[i / 2] = (char)(high << 4 | low);
    }
    return true;
}

/* The arrays of a reply share one allocation: log-probabilities, then ids, then piece bytes, then
 * bytes of pieces. */
static int read_arrays(struct engine_next *next, struct error *error)
{
    const json_t *ids = json_object_get(next->reply, "ids");
    const json_t *logprobs = json_object_get(next->reply, "logprobs");
    const json_t *pieces = json_object_get(next->reply, "pieces");
    const json_t *raw = json_object_get(next->reply, "raw");
    next->count = json_array_size(ids);
    next->logprobs_count = json_array_size(logprobs);
    next->piece_bytes_count = json_array_size(pieces);
    if (!json_is_array(ids) || next->count > ENGINE_NEXT_IDS_MAX ||
        next->logprobs_count > ENGINE_NEXT_IDS_MAX || next->piece_bytes_count > next->count)
        return error_set(error, ERR_FAILED, "invalid reply from the engine: no ids");
    size_t numbers = next->count + next->piece_bytes_count;
    next->raw_bytes = json_string_length(raw) / 2;
    double *reals = malloc(next->logprobs_count * sizeof *reals + numbers * sizeof(uint32_t) +
                           next->raw_bytes + 1);
    if (!reals)
        return error_set(error, ERR_NO_MEMORY, "out of memory (reply)");
    uint32_t *out = (uint32_t *)(reals + next->logprobs_count);
    next->logprobs = reals;
    next->ids = out;
    next->piece_bytes = out + next->count;
    next->raw = raw ? (char *)(out + numbers) : NULL;
    if (!read_numbers(ids, out, next->count) ||
        !read_numbers(pieces, out + next->count, next->piece_bytes_count) ||
        (raw && !engine_read_hex(raw, (char *)(out + numbers))))
        return error_set(error, ERR_FAILED, "invalid reply from the engine: bad token id");
    for (size_t i = 0; i < next->logprobs_count; i++) {
        const json_t *value = json_array_get(logprobs, i);
        reals[i] = json_is_number(value) ? json_number_value(value) : -INFINITY;
    }
    return 0;
}

static int read_progress(struct engine_next *next, struct error *error)
{
    struct engine_progress *p = &next->progress;
    const json_t *object = json_object_get(next->reply, "progress");
    int64_t queue = 0, tokens = 0, done = 0, cached = 0, time_ms = 0, left_ms = -1;
    if (!object)
        return 0;
    if (!json_is_object(object) ||
        engine_json_int(object, "queue", 0, UINT32_MAX, &queue, error) != 0 ||
        engine_json_int(object, "tokens", 0, UINT32_MAX, &tokens, error) != 0 ||
        engine_json_int(object, "done", 0, tokens, &done, error) != 0 ||
        engine_json_int(object, "cached", 0, tokens, &cached, error) != 0 ||
        engine_json_int(object, "time_ms", 0, INT64_MAX, &time_ms, error) != 0 ||
        engine_json_int(object, "left_ms", 0, INT64_MAX, &left_ms, error) != 0)
        return error_set(error, ERR_FAILED, "invalid reply from the engine: progress");
    *p = (struct engine_progress){.known = true,
                                  .queue = (uint64_t)queue,
                                  .tokens = (uint64_t)tokens,
                                  .done = (uint64_t)done,
                                  .cached = (uint64_t)cached,
                                  .time_ms = (uint64_t)time_ms,
                                  .left_ms = left_ms < 0 ? UINT64_MAX : (uint64_t)left_ms};
    return 0;
}

static int read_next(struct engine_next *next, uint64_t from, struct error *error)
{
    const json_t *text = json_object_get(next->reply, "text");
    const json_t *failure = json_object_get(next->reply, "error");
    int64_t position = -1, text_tokens = -1, stop = 0;
    if (read_arrays(next, error) != 0 || engine_top_read(next, error) != 0 ||
        read_progress(next, error) != 0 ||
        engine_json_int(next->reply, "next", 0, INT64_MAX, &position, error) != 0 ||
        engine_json_bool(next->reply, "done", &next->done, error) != 0 ||
        engine_json_int(next->reply, "text_tokens", 0, UINT32_MAX, &text_tokens, error) != 0 ||
        engine_json_int(next->reply, "stop", 0, STOP_TEXTS_MAX, &stop, error) != 0)
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
    next->stop = (uint32_t)stop;
    if (next->done)
        next->finish = finish_name(json_string_value(json_object_get(next->reply, "finish")));
    if (failure)
        rpc_error_from_json(failure, &next->failure);
    next->stats = json_object_get(next->reply, "stats");
    return 0;
}

json_t *engine_next_request(uint64_t id, uint64_t from, unsigned wait_ms,
                            const struct engine_marks *marks)
{
    json_t *request = json_pack("{s:I, s:I, s:i}", "sequence", (json_int_t)id, "from",
                                (json_int_t)from, "wait_ms", (int)wait_ms);
    json_t *texts = marks ? json_array() : NULL;
    bool fine = request && (!marks || texts);
    for (uint32_t i = 0; fine && marks && i < marks->count; i++)
        fine = json_array_append_new(texts, json_string(marks->text[i])) == 0;
    if (fine && (!marks || engine_json_put(request, "marks", json_incref(texts)))) {
        json_decref(texts);
        return request;
    }
    json_decref(texts);
    json_decref(request);
    return NULL;
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
    if (rpc_call(c, "next", engine_next_request(id, from, wait_ms, NULL),
                 wait_ms + ENGINE_NEXT_GRACE_MS, &reply, error) != 0)
        return -1;
    return engine_next_read(reply, from, next, error);
}

void engine_next_free(struct engine_next *next)
{
    free((void *)next->logprobs);
    free((void *)next->top);
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

json_t *engine_count_request(const struct engine_submit *s, struct error *error)
{
    json_t *request = json_object();
    if (request &&
        (s->special.count == 0 || !s->prompt ||
         engine_json_put(request, "special", special_json(s))) &&
        put_prompt(request, s))
        return request;
    json_decref(request);
    error_set(error, ERR_NO_MEMORY, "out of memory (prompt)");
    return NULL;
}

int engine_count(struct rpc_client *c, const struct engine_submit *s, uint64_t *tokens,
                 uint64_t *context, struct error *error)
{
    json_t *reply, *request = engine_count_request(s, error);
    int64_t counted = -1, size = -1;
    if (!request || rpc_call(c, "count", request, ENGINE_SUBMIT_MS, &reply, error) != 0)
        return -1;
    int rc = engine_json_int(reply, "tokens", 0, INT64_MAX, &counted, error);
    if (rc == 0)
        rc = engine_json_int(reply, "context", 1, UINT32_MAX, &size, error);
    json_decref(reply);
    if (rc == 0 && (counted < 0 || size < 0))
        rc = error_set(error, ERR_FAILED, "invalid reply from the engine: no number of tokens");
    *tokens = (uint64_t)counted;
    *context = (uint64_t)size;
    return rc;
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
                  "no engine named \"%s\" is running (%s); start one with: sluice run -m FILE",
                  run_name, dir);
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
