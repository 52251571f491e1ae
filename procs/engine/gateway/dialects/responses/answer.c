/* SPDX-License-Identifier: Apache-2.0 */
/* Responses, whole and as events. An output consists of items: reasoning, a message, calls. An item
 * is the same in the event that ends it and in the last event, ids included, so that its JSON is
 * kept in `done` of the completion, and the text of the open item in `kept`. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ipc/rpc/json.h"
#include "lib/json/lookup.h"
#include "procs/engine/gateway/api/completion.h"
#include "procs/engine/gateway/api/writer.h"
#include "procs/engine/gateway/dialects/openai/openai.h"
#include "procs/engine/gateway/dialects/responses/responses.h"

/* The dialect's part of a completion. */
struct state {
    unsigned sent;  /* events */
    unsigned items; /* ended ones: the index of the next */
    bool open;      /* an item of `part` */
    enum answer_part part;
};
_Static_assert(sizeof(struct state) <= COMPLETION_STATE_BYTES, "it is a part of the completion");

static struct state *state_of(struct completion *c)
{
    return (struct state *)c->state;
}

/* ---- items ----------------------------------------------------------------------------------- */

/* Steals both; an object without one of its members is none. */
static json_t *with(json_t *object, const char *name, json_t *value)
{
    if (json_object_set_new(object, name, value) == 0)
        return object;
    json_decref(object);
    return NULL;
}

static json_t *item_id(const struct completion *c, const char *kind, unsigned number)
{
    return json_sprintf("%s_%s%u", kind, c->id, number);
}

static const struct buffer no_tokens;

/* A part of a message without its log-probabilities; steals the text. */
static json_t *part_head(json_t *text)
{
    return json_pack("{s:s, s:o, s:[]}", "type", "output_text", "text", text, "annotations");
}

/* A part of an item; steals the text. Log-probabilities are where a text is first: in the deltas,
 * or in a response that is not streamed. */
static json_t *part_of(enum answer_part part, json_t *text)
{
    if (part == ANSWER_REASONING)
        return json_pack("{s:s, s:o}", "type", "reasoning_text", "text", text);
    return with(part_head(text), "logprobs", json_array());
}

/* Without its content. */
static json_t *message_head(const struct completion *c, unsigned n, const char *status)
{
    return json_pack("{s:o, s:s, s:s, s:s}", "id", item_id(c, "msg", n), "type", "message",
                     "status", status, "role", "assistant");
}

/* All steal the content, an array. */
static json_t *message_item(const struct completion *c, unsigned n, const char *status,
                            json_t *content)
{
    return with(message_head(c, n, status), "content", content);
}

static json_t *reasoning_item(const struct completion *c, unsigned n, const char *status,
                              json_t *content)
{
    return json_pack("{s:o, s:s, s:s, s:[], s:o}", "id", item_id(c, "rs", n), "type", "reasoning",
                     "status", status, "summary", "content", content);
}

/* With its name and namespace as the client knows them. */
static json_t *call_item(const struct completion *c, unsigned n, const char *status,
                         const char *own_id, const char *name, const char *arguments)
{
    const json_t *pair = json_object_get(c->request.tool_names, name);
    const char *space = json_string_value(json_array_get(pair, 0));
    if (pair)
        name = json_string_value(json_array_get(pair, 1));
    json_t *id = own_id ? json_string(own_id) : json_sprintf("call_%s%u", c->id, n);
    return json_pack("{s:o, s:s, s:s, s:o, s:s*, s:s, s:s}", "id", item_id(c, "fc", n), "type",
                     "function_call", "status", status, "call_id", id, "namespace", space, "name",
                     name, "arguments", arguments);
}

static json_t *text_item(const struct completion *c, unsigned n, enum answer_part part,
                         const char *text, size_t bytes)
{
    json_t *content = json_pack("[o]", part_of(part, rpc_text_json(text, bytes)));
    return part == ANSWER_REASONING ? reasoning_item(c, n, "completed", content)
                                    : message_item(c, n, "completed", content);
}

/* ---- the response ---------------------------------------------------------------------------- */

static json_t *usage(const struct completion *c)
{
    return json_pack("{s:I, s:{s:I}, s:I, s:{s:i}, s:I}", "input_tokens",
                     (json_int_t)c->prompt_tokens, "input_tokens_details", "cached_tokens",
                     (json_int_t)lookup_u64(c->stats, "cached_tokens"), "output_tokens",
                     (json_int_t)c->new_tokens, "output_tokens_details", "reasoning_tokens", 0,
                     "total_tokens", (json_int_t)(c->prompt_tokens + c->new_tokens));
}

/* The members before the output. */
static json_t *response_head(const struct completion *c, const char *status)
{
    return json_pack("{s:o, s:s, s:I, s:s, s:s}", "id", json_sprintf("resp_%s", c->id), "object",
                     "response", "created_at", (json_int_t)c->created, "status", status, "model",
                     c->model);
}

/* Those behind it; steals the error; NULL: none. */
static json_t *response_tail(const struct completion *c, const char *status, json_t *error)
{
    bool ended = strcmp(status, "in_progress") != 0, cut = strcmp(status, "incomplete") == 0;
    const struct sampling *s = &c->request.sampling;
    const int64_t max_tokens = c->request.max_tokens;
    return json_pack(
        "{s:o, s:o?, s:o?, s:n, s:o, s:s?, s:b, s:s, s:[], s:f, s:f, s:b, s:s, s:{}, s:{s:n, s:n}, "
        "s:{s:{s:s}}}",
        "usage", ended ? usage(c) : json_null(), "error", error, "incomplete_details",
        cut ? json_pack("{s:s}", "reason", "max_output_tokens") : NULL, "instructions",
        "max_output_tokens",
        max_tokens < ENGINE_TOKENS_MAX ? json_integer((json_int_t)max_tokens) : json_null(),
        "previous_response_id", c->request.previous[0] ? c->request.previous : NULL,
        "parallel_tool_calls", !c->request.one_call, "tool_choice", "auto", "tools", "temperature",
        s->temperature, "top_p", s->top_p, "store", c->request.conversation != NULL, "truncation",
        "disabled", "metadata", "reasoning", "effort", "summary", "text", "format", "type", "text");
}

/* Steals the output and the error; NULL: none. */
static json_t *response(const struct completion *c, const char *status, json_t *output,
                        json_t *error)
{
    json_t *object = with(response_head(c, status), "output", output),
           *tail = response_tail(c, status, error);
    bool fine = json_object_update(object, tail) == 0;
    json_decref(tail);
    if (fine)
        return object;
    json_decref(object);
    return NULL;
}

static const char *final_status(const struct completion *c)
{
    return c->finish == FINISH_LENGTH ? "incomplete" : "completed";
}

/* ---- events ---------------------------------------------------------------------------------- */

/* An event whose name is also its type; steals `rest`, an object with its other members. One that
 * does not fit has no number. */
static void send(struct completion *c, const char *name, json_t *rest)
{
    json_t *event =
        json_pack("{s:s, s:i}", "type", name, "sequence_number", (int)state_of(c)->sent);
    if (json_object_update(event, rest) != 0) {
        json_decref(event);
        event = NULL;
    }
    json_decref(rest);
    completion_event(c, name, event);
    state_of(c)->sent += !c->failed;
}

static void send_response(struct completion *c, const char *name, json_t *object)
{
    send(c, name, json_pack("{s:o}", "response", object));
}

/* An event of an item begins or ends it; steals the item. */
static void send_item(struct completion *c, const char *name, json_t *item)
{
    send(c, name, json_pack("{s:i, s:o}", "output_index", (int)state_of(c)->items, "item", item));
}

/* Steals the item, whose JSON is kept. */
static void end_item(struct completion *c, json_t *item)
{
    char *text = item ? json_dumps(item, JSON_COMPACT) : NULL;
    bool kept = text && buffer_add(c->quota, &c->done, c->done.bytes > 0 ? "," : "[", 1) &&
                buffer_add(c->quota, &c->done, text, strlen(text));
    free(text);
    c->failed |= !kept;
    send_item(c, "response.output_item.done", item);
    state_of(c)->items++;
}

/* The place of a text: its item. steals the value of `member`. */
static json_t *at(struct completion *c, const char *kind, const char *member, json_t *value)
{
    unsigned n = state_of(c)->items;
    return json_pack("{s:o, s:i, s:i, s:o}", "item_id", item_id(c, kind, n), "output_index", (int)n,
                     "content_index", 0, member, value);
}

/* What the ids of its items begin with. */
static const char *kind_of(enum answer_part part)
{
    return part == ANSWER_REASONING ? "rs" : "msg";
}

static json_t *kept_text(const struct completion *c)
{
    return rpc_text_json(c->kept.data ? c->kept.data : "", c->kept.bytes);
}

/* Text of the open item; the tokens are those of this piece. */
static void send_text(struct completion *c, const char *kind, const char *member, json_t *text,
                      const struct buffer *tokens)
{
    enum answer_part part = state_of(c)->part;
    bool content = part == ANSWER_CONTENT;
    char name[48];
    snprintf(name, sizeof name, "response.%s_text.%s", content ? "output" : "reasoning", kind);
    json_t *rest = at(c, kind_of(part), member, text);
    send(c, name, content ? with(rest, "logprobs", openai_logprobs(tokens)) : rest);
}

static void close_item(struct completion *c)
{
    struct state *s = state_of(c);
    if (!s->open)
        return;
    send_text(c, "done", "text", kept_text(c), &no_tokens);
    send(c, "response.content_part.done",
         at(c, kind_of(s->part), "part", part_of(s->part, kept_text(c))));
    end_item(c, text_item(c, s->items, s->part, c->kept.data ? c->kept.data : "", c->kept.bytes));
    buffer_free(c->quota, &c->kept);
    s->open = false;
}

static void open_item(struct completion *c, enum answer_part part)
{
    struct state *s = state_of(c);
    if (s->open && s->part == part)
        return;
    close_item(c);
    s->open = true;
    s->part = part;
    send_item(c, "response.output_item.added",
              part == ANSWER_REASONING ? reasoning_item(c, s->items, "in_progress", json_array())
                                       : message_item(c, s->items, "in_progress", json_array()));
    send(c, "response.content_part.added",
         at(c, kind_of(part), "part", part_of(part, json_string(""))));
}

static void text(struct completion *c, const struct answer_piece *p, const struct buffer *tokens)
{
    open_item(c, p->part);
    c->failed |= !buffer_add(c->quota, &c->kept, p->text, p->bytes);
    send_text(c, "delta", "delta", rpc_text_json(p->text, p->bytes), tokens ? tokens : &no_tokens);
}

static void call(struct completion *c, const struct answer_piece *p)
{
    static const char *const names[][2] = {{"response.function_call_arguments.delta", "delta"},
                                           {"response.function_call_arguments.done", "arguments"}};
    close_item(c);
    unsigned n = state_of(c)->items;
    send_item(c, "response.output_item.added", call_item(c, n, "in_progress", p->id, p->name, ""));
    for (size_t i = 0; i < 2; i++)
        send(c, names[i][0],
             json_pack("{s:o, s:i, s:s}", "item_id", item_id(c, "fc", n), "output_index", (int)n,
                       names[i][1], p->arguments));
    end_item(c, call_item(c, n, "completed", p->id, p->name, p->arguments));
}

/* Of the items that are kept. NULL: no memory. */
static json_t *output(struct completion *c)
{
    if (c->done.bytes == 0)
        return json_array();
    if (!buffer_add(c->quota, &c->done, "]", 1))
        return NULL;
    json_t *items = json_loadb(c->done.data, c->done.bytes, JSON_ALLOW_NUL, NULL);
    c->done.bytes--;
    return items;
}

/* Clients wait for the next event, and a comment is none. The response of response.in_progress
 * replaces what some of them gathered, so that it has all items, and there is none while one is
 * open. */
static void keep_alive(struct completion *c)
{
    if (state_of(c)->open)
        send_text(c, "delta", "delta", json_string(""), &no_tokens);
    else
        send_response(c, "response.in_progress", response(c, "in_progress", output(c), NULL));
}

static void progress(struct completion *c, const struct engine_progress *p)
{
    (void)p; /* the API has no member for it */
    keep_alive(c);
}

static void begin(struct completion *c)
{
    send_response(c, "response.created", response(c, "in_progress", json_array(), NULL));
    keep_alive(c);
}

static void end(struct completion *c)
{
    const char *status = final_status(c);
    close_item(c);
    json_t *object = response(c, status, output(c), NULL);
    if (object && !c->failed)
        responses_store(c, object);
    send_response(c, c->finish == FINISH_LENGTH ? "response.incomplete" : "response.completed",
                  object);
}

static void fail(struct completion *c, unsigned status, const struct error *error)
{
    (void)status;
    send_response(
        c, "response.failed",
        response(c, "failed", json_array(),
                 json_pack("{s:s, s:o}", "code", error_name(error->code), "message",
                           rpc_text_json(error->text, strnlen(error->text, sizeof error->text)))));
}

/* ---- whole answers --------------------------------------------------------------------------- */

static json_t *call_of(const struct completion *c, unsigned n, const json_t *call)
{
    return call_item(c, n, "completed", json_string_value(json_object_get(call, "id")),
                     json_string_value(json_object_get(call, "name")),
                     json_string_value(json_object_get(call, "arguments")));
}

/* The output without log-probabilities. */
static json_t *all_items(const struct completion *c, const struct completion_parts *p)
{
    json_t *out = json_array();
    unsigned n = 0;
    bool fine = out != NULL;
    for (enum answer_part part = ANSWER_REASONING; part <= ANSWER_CONTENT; part++)
        if (p->bytes[part] > 0)
            fine &= json_array_append_new(
                        out, text_item(c, n++, part, p->text[part], p->bytes[part])) == 0;
    for (size_t i = 0; i < json_array_size(p->calls); i++)
        fine &= json_array_append_new(out, call_of(c, n++, json_array_get(p->calls, i))) == 0;
    if (fine)
        return out;
    json_decref(out);
    return NULL;
}

/* Clients ask for log-probabilities of a response, not of those that it continues. */
static void store(const struct completion *c, const struct completion_parts *p)
{
    json_t *object = c->stored && c->request.conversation
                         ? response(c, final_status(c), all_items(c, p), NULL)
                         : NULL;
    if (object)
        responses_store(c, object);
    json_decref(object);
}

static void put_message(struct writer *w, const struct completion_parts *p, unsigned n)
{
    const struct completion *c = p->of;
    writer_members(w, "{", message_head(c, n, "completed"));
    writer_members(w, ",\"content\":[{",
                   part_head(rpc_text_json(p->text[ANSWER_CONTENT], p->bytes[ANSWER_CONTENT])));
    openai_put_logprobs(w, ",\"logprobs\":[", &c->tokens);
    fputs("}]}", w->out);
}

static void put_output(struct writer *w, const struct completion_parts *p)
{
    const struct completion *c = p->of;
    unsigned n = 0;
    fputs(",\"output\":[", w->out);
    if (p->bytes[ANSWER_REASONING] > 0)
        writer_put(w, "",
                   text_item(c, n++, ANSWER_REASONING, p->text[ANSWER_REASONING],
                             p->bytes[ANSWER_REASONING]));
    if (p->bytes[ANSWER_CONTENT] > 0) {
        fputs(n > 0 ? "," : "", w->out);
        put_message(w, p, n++);
    }
    for (size_t i = 0; i < json_array_size(p->calls); i++, n++)
        writer_put(w, n > 0 ? "," : "", call_of(c, n, json_array_get(p->calls, i)));
    fputs("],", w->out);
}

static int whole(const struct completion *c, const struct completion_parts *p, FILE *out)
{
    struct writer w = {.out = out, .limit = c->quota->limit};
    writer_members(&w, "{", response_head(c, final_status(c)));
    put_output(&w, p);
    writer_members(&w, "", response_tail(c, final_status(c), NULL));
    fputs("}", out);
    if (!w.failed)
        store(c, p);
    return w.failed ? -1 : 0;
}

/* Of a response that was deleted; r names it. */
static json_t *deleted(const struct api_request *r, const json_t *reply)
{
    (void)reply;
    return json_pack("{s:s, s:s, s:b}", "id", r->previous, "object", "response", "deleted", 1);
}

const struct dialect responses = {.error = openai_error,
                                  .parse = responses_parse,
                                  .framing = &framing_events,
                                  .begin = begin,
                                  .text = text,
                                  .call = call,
                                  .progress = progress,
                                  .keep_alive = keep_alive,
                                  .end = end,
                                  .fail = fail,
                                  .whole = whole};

const struct dialect responses_stored = {.error = openai_error, .reply = deleted};
