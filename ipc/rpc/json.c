/* SPDX-License-Identifier: Apache-2.0 */
/* Parses and makes the JSON of remote calls, and notices when jansson had no memory for a part of
 * it. */
#include "ipc/rpc/json.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "ipc/rpc/rpc.h"
#include "lib/json/count.h"
#include "lib/text/utf8.h"

/* jansson ignores some failed allocations: it drops a byte of a text, or reports wrong syntax. So
 * they are counted, and what was made meanwhile is not used. */
static _Thread_local unsigned failed_allocations;

static void *allocate(size_t bytes)
{
    void *at = malloc(bytes);
    failed_allocations += at == NULL;
    return at;
}

static void count_allocations(void)
{
    json_set_alloc_funcs(allocate, free);
}

static void watch_allocations(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, count_allocations);
    failed_allocations = 0;
}

/* A second time, if memory was short: a reply that is not understood is lost. *memory: there was
 * enough. */
static json_t *load(const void *text, size_t bytes, bool *memory, json_error_t *why)
{
    json_t *json = NULL;
    *memory = false;
    for (int i = 0; i < 2 && !*memory; i++) {
        json_decref(json);
        watch_allocations();
        json = json_loadb(text, bytes, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, why);
        *memory = failed_allocations == 0;
    }
    return json;
}

int rpc_json_parse(const void *text, size_t bytes, size_t max, json_t **object, struct error *error)
{
    if (bytes > max)
        return error_set(error, ERR_BAD_INPUT, "JSON too large: %zu bytes, maximum %zu", bytes,
                         max);
    if (json_extent_of(text, bytes).depth > RPC_DEPTH_MAX)
        return error_set(error, ERR_BAD_INPUT, "JSON nested deeper than %d", RPC_DEPTH_MAX);
    json_error_t why;
    bool memory;
    json_t *json = load(text, bytes, &memory, &why);
    if (!memory) {
        json_decref(json);
        return error_set(error, ERR_NO_MEMORY, "out of memory (JSON of %zu bytes)", bytes);
    }
    if (!json)
        return error_set(error, ERR_BAD_INPUT, "invalid JSON at byte %d: %.160s", why.position,
                         why.text);
    if (!json_is_object(json)) {
        json_decref(json);
        return error_set(error, ERR_BAD_INPUT, "not a JSON object");
    }
    *object = json;
    return 0;
}

static bool made_of(const char *text, size_t n, const char *alphabet)
{
    return strspn(text, alphabet) == n;
}

static bool id_ok(const json_t *id)
{
    return json_is_string(id) && json_string_length(id) == RPC_ID_BYTES &&
           made_of(json_string_value(id), RPC_ID_BYTES, "0123456789abcdef");
}

static bool op_ok(const json_t *op)
{
    size_t n = json_string_length(op);
    return json_is_string(op) && n > 0 && n <= RPC_OP_MAX &&
           made_of(json_string_value(op), n, "abcdefghijklmnopqrstuvwxyz0123456789_");
}

static bool version_ok(const json_t *version)
{
    return json_is_integer(version) && json_integer_value(version) == RPC_VERSION;
}

int rpc_request_parse(const void *text, size_t bytes, json_t **body, struct error *error)
{
    json_t *json;
    const char *why = NULL;
    if (rpc_json_parse(text, bytes, RPC_BYTES_MAX, &json, error) != 0)
        return -1;
    if (!version_ok(json_object_get(json, "v")))
        why = "\"v\" must be 1";
    else if (!id_ok(json_object_get(json, "id")))
        why = "\"id\" must be 16 hex digits";
    else if (!op_ok(json_object_get(json, "op")))
        why = "\"op\" must be a short lower-case word";
    if (why) {
        json_decref(json);
        return error_set(error, ERR_BAD_INPUT, "invalid request: %s", why);
    }
    *body = json;
    return 0;
}

int rpc_reply_parse(const void *text, size_t bytes, const char *id, json_t **reply, bool *broken,
                    struct error *error)
{
    json_t *json;
    *broken = true;
    if (rpc_json_parse(text, bytes, RPC_BYTES_MAX, &json, error) != 0) {
        *broken = error->code != ERR_NO_MEMORY; /* waiting for another reply would be in vain */
        return -1;
    }
    const json_t *got = json_object_get(json, "id"), *ok = json_object_get(json, "ok");
    bool shaped = version_ok(json_object_get(json, "v")) && id_ok(got) && json_is_boolean(ok);
    /* A request without a valid id gets a reply with id zeros, which also belongs to this call. */
    bool mine = shaped && (strcmp(json_string_value(got), id) == 0 ||
                           (json_is_false(ok) && strcmp(json_string_value(got), RPC_NO_ID) == 0));
    if (!mine) {
        json_decref(json);
        return error_set(error, ERR_FAILED, "invalid reply: not to this call");
    }
    *broken = false;
    if (json_is_true(ok)) {
        *reply = json;
        return 0;
    }
    rpc_error_from_json(json_object_get(json, "error"), error);
    json_decref(json);
    return -1;
}

char *rpc_json_encode(const json_t *object, size_t *bytes)
{
    watch_allocations();
    char *text = json_dumps(object, JSON_COMPACT);
    *bytes = text && failed_allocations == 0 ? strlen(text) : 0;
    if (*bytes <= RPC_BYTES_MAX && failed_allocations == 0)
        return text;
    free(text);
    return NULL;
}

json_t *rpc_error_json(const struct error *error)
{
    json_t *text = rpc_text_json(error->text, strnlen(error->text, sizeof error->text));
    return json_pack("{s:s, s:o}", "code", error_name(error->code), "text", text);
}

json_t *rpc_error_object(const char *id, const struct error *error)
{
    return json_pack("{s:i, s:s, s:b, s:o}", "v", RPC_VERSION, "id", id, "ok", 0, "error",
                     rpc_error_json(error));
}

void rpc_error_from_json(const json_t *json, struct error *error)
{
    const char *code = json_string_value(json_object_get(json, "code"));
    const char *text = json_string_value(json_object_get(json, "text"));
    enum error_code known = code ? error_from_name(code) : ERR_FAILED;
    error_set(error, known == ERR_NONE ? ERR_FAILED : known, "%s",
              text && text[0] ? text : "error without a message");
}

json_t *rpc_text_json(const char *text, size_t bytes)
{
    char *valid = malloc(3 * bytes + 1);
    if (!valid)
        return NULL;
    json_t *json = json_stringn_nocheck(valid, utf8_sanitise(text, bytes, valid));
    free(valid);
    return json;
}
