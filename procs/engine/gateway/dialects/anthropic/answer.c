/* SPDX-License-Identifier: Apache-2.0 */
/* Answers and errors in Anthropic's form. An answer consists of blocks, one after the other:
 * thinking, text, uses of tools. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ipc/rpc/json.h"
#include "lib/json/lookup.h"
#include "procs/engine/gateway/api/completion.h"
#include "procs/engine/gateway/api/writer.h"
#include "procs/engine/gateway/dialects/anthropic/anthropic.h"

#define ID_BYTES (COMPLETION_ID_BYTES + 16)

/* The dialect's part of a completion. */
struct state {
    bool open; /* a block of `part` */
    enum answer_part part;
    unsigned blocks; /* those that were closed */
};
_Static_assert(sizeof(struct state) <= COMPLETION_STATE_BYTES, "it is a part of the completion");

static struct state *state_of(struct completion *c)
{
    return (struct state *)c->state;
}

static const char *stop_reason(const struct completion *c)
{
    static const char *const names[] = {[FINISH_LENGTH] = "max_tokens",
                                        [FINISH_END] = "end_turn",
                                        [FINISH_STOP_TEXT] = "stop_sequence",
                                        [FINISH_CALLS] = "tool_use"};
    return names[c->finish];
}

static json_t *stop_sequence(const struct completion *c)
{
    const struct stop_texts *stops = &c->request.stops;
    return c->finish == FINISH_STOP_TEXT && c->stop < stops->count
               ? rpc_text_json(stops->text[c->stop], stops->bytes[c->stop])
               : json_null();
}

/* Tokens that were read from what is kept do not count as input. */
static json_t *usage(const struct completion *c)
{
    uint64_t kept = lookup_u64(c->stats, "cached_tokens");
    uint64_t computed = c->prompt_tokens > kept ? c->prompt_tokens - kept : 0;
    return json_pack("{s:I, s:i, s:I, s:I}", "input_tokens", (json_int_t)computed,
                     "cache_creation_input_tokens", 0, "cache_read_input_tokens", (json_int_t)kept,
                     "output_tokens", (json_int_t)c->new_tokens);
}

/* The id of a call: the model's if it wrote one. */
static json_t *call_id(const struct completion *c, const char *own, unsigned number)
{
    return own ? json_string(own) : json_sprintf("toolu_%s_%u", c->id, number);
}

/* ---- events ---------------------------------------------------------------------------------- */

/* An event whose name is also its type; steals `rest`, an object with its other members. */
static void send(struct completion *c, const char *name, json_t *rest)
{
    json_t *event = json_pack("{s:s}", "type", name);
    if (json_object_update(event, rest) != 0) {
        json_decref(event);
        event = NULL;
    }
    json_decref(rest);
    completion_event(c, name, event);
}

static void begin(struct completion *c)
{
    send(c, "message_start",
         json_pack("{s:{s:o, s:s, s:s, s:s, s:[], s:n, s:n, s:o}}", "message", "id",
                   json_sprintf("msg_%s", c->id), "type", "message", "role", "assistant", "model",
                   c->model, "content", "stop_reason", "stop_sequence", "usage", usage(c)));
}

/* Steals the block. */
static void start_block(struct completion *c, json_t *block)
{
    send(c, "content_block_start",
         json_pack("{s:i, s:o}", "index", (int)state_of(c)->blocks, "content_block", block));
}

/* Steals the value. */
static void send_delta(struct completion *c, const char *type, const char *member, json_t *value)
{
    send(c, "content_block_delta",
         json_pack("{s:i, s:{s:s, s:o}}", "index", (int)state_of(c)->blocks, "delta", "type", type,
                   member, value));
}

static void end_block(struct completion *c)
{
    struct state *s = state_of(c);
    send(c, "content_block_stop", json_pack("{s:i}", "index", (int)s->blocks));
    s->blocks++;
    s->open = false;
}

/* A block of thinking ends with its signature, which is empty here: nobody checks it. */
static void close_block(struct completion *c)
{
    struct state *s = state_of(c);
    if (!s->open)
        return;
    if (s->part == ANSWER_REASONING)
        send_delta(c, "signature_delta", "signature", json_string(""));
    end_block(c);
}

static void open_block(struct completion *c, enum answer_part part)
{
    struct state *s = state_of(c);
    if (s->open && s->part == part)
        return;
    close_block(c);
    start_block(c, part == ANSWER_REASONING ? json_pack("{s:s, s:s, s:s}", "type", "thinking",
                                                        "thinking", "", "signature", "")
                                            : json_pack("{s:s, s:s}", "type", "text", "text", ""));
    s->open = true;
    s->part = part;
}

static void text(struct completion *c, const struct answer_piece *p, const struct buffer *tokens)
{
    (void)tokens; /* the API has no log-probabilities */
    bool thinks = p->part == ANSWER_REASONING;
    open_block(c, p->part);
    send_delta(c, thinks ? "thinking_delta" : "text_delta", thinks ? "thinking" : "text",
               rpc_text_json(p->text, p->bytes));
}

/* The text that the model wrote, if it is an object. */
static json_t *arguments_text(const char *arguments)
{
    json_t *object = completion_arguments(arguments);
    bool same = !json_object_get(object, "arguments");
    char *text = object && !same ? json_dumps(object, JSON_COMPACT) : NULL;
    json_t *value = text ? json_string(text) : object && same ? json_string(arguments) : NULL;
    free(text);
    json_decref(object);
    return value;
}

static void call(struct completion *c, const struct answer_piece *p)
{
    close_block(c);
    start_block(c, json_pack("{s:s, s:o, s:s, s:{}}", "type", "tool_use", "id",
                             call_id(c, p->id, c->calls), "name", p->name, "input"));
    send_delta(c, "input_json_delta", "partial_json", arguments_text(p->arguments));
    end_block(c);
}

static void keep_alive(struct completion *c)
{
    completion_event(c, "ping", json_pack("{s:s}", "type", "ping"));
}

static void progress(struct completion *c, const struct engine_progress *p)
{
    (void)p; /* an SDK counts events, and the API has none for this */
    keep_alive(c);
}

static void end(struct completion *c)
{
    close_block(c);
    send(c, "message_delta",
         json_pack("{s:{s:s, s:o}, s:o}", "delta", "stop_reason", stop_reason(c), "stop_sequence",
                   stop_sequence(c), "usage", usage(c)));
    send(c, "message_stop", json_object());
}

/* ---- errors ---------------------------------------------------------------------------------- */

static const char *error_type(unsigned status)
{
    switch (status) {
    case 401: return "authentication_error";
    case 403: return "permission_error";
    case 404: return "not_found_error";
    case 413: return "request_too_large";
    case 429: return "rate_limit_error";
    case 503: return "overloaded_error";
    case 504: return "timeout_error";
    default: return status < 500 ? "invalid_request_error" : "api_error";
    }
}

/* The message names the field, as the API has no member for it. */
static json_t *error_json(unsigned status, const struct error *error, const char *param)
{
    (void)param;
    json_t *message = rpc_text_json(error->text, strnlen(error->text, sizeof error->text));
    return json_pack("{s:s, s:{s:s, s:o}}", "type", "error", "error", "type", error_type(status),
                     "message", message);
}

static void fail(struct completion *c, unsigned status, const struct error *error)
{
    completion_event(c, "error", error_json(status, error, NULL));
}

/* ---- whole answers --------------------------------------------------------------------------- */

static json_t *tool_use(const struct completion *c, const json_t *call, unsigned number)
{
    const char *arguments = json_string_value(json_object_get(call, "arguments"));
    return json_pack("{s:s, s:o, s:O, s:o}", "type", "tool_use", "id",
                     call_id(c, json_string_value(json_object_get(call, "id")), number), "name",
                     json_object_get(call, "name"), "input", completion_arguments(arguments));
}

static void put_content(struct writer *w, const struct completion *c,
                        const struct completion_parts *p)
{
    const char *before = ",\"content\":[";
    size_t calls = json_array_size(p->calls), reasoning = p->bytes[ANSWER_REASONING],
           content = p->bytes[ANSWER_CONTENT];
    if (reasoning > 0) {
        writer_put(w, before,
                   json_pack("{s:s, s:o, s:s}", "type", "thinking", "thinking",
                             rpc_text_json(p->text[ANSWER_REASONING], reasoning), "signature", ""));
        before = ",";
    }
    if (content > 0) {
        writer_put(w, before,
                   json_pack("{s:s, s:o}", "type", "text", "text",
                             rpc_text_json(p->text[ANSWER_CONTENT], content)));
        before = ",";
    }
    for (size_t i = 0; i < calls; i++) {
        writer_put(w, before, tool_use(c, json_array_get(p->calls, i), (unsigned)i));
        before = ",";
    }
    fputs(before[1] ? ",\"content\":[]" : "]", w->out);
}

static int whole(const struct completion *c, const struct completion_parts *p, FILE *out)
{
    struct writer w = {.out = out, .limit = c->quota->limit};
    writer_put(&w, "{\"id\":", json_sprintf("msg_%s", c->id));
    fputs(",\"type\":\"message\",\"role\":\"assistant\"", out);
    writer_put(&w, ",\"model\":", json_string(c->model));
    put_content(&w, c, p);
    writer_put(&w, ",\"stop_reason\":", json_string(stop_reason(c)));
    writer_put(&w, ",\"stop_sequence\":", stop_sequence(c));
    writer_put(&w, ",\"usage\":", usage(c));
    fputs("}", out);
    return w.failed ? -1 : 0;
}

/* ---- the dialects ---------------------------------------------------------------------------- */

static json_t *counted(const struct api_request *r, const json_t *reply)
{
    (void)r;
    return json_pack("{s:I}", "input_tokens", (json_int_t)lookup_u64(reply, "tokens"));
}

const struct dialect anthropic_count = {
    .error = error_json, .parse = anthropic_parse_count, .question = "count", .reply = counted};

const struct dialect anthropic_messages = {.error = error_json,
                                           .parse = anthropic_parse,
                                           .framing = &framing_events,
                                           .begin = begin,
                                           .text = text,
                                           .call = call,
                                           .progress = progress,
                                           .keep_alive = keep_alive,
                                           .end = end,
                                           .fail = fail,
                                           .whole = whole};
