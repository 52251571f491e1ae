/* SPDX-License-Identifier: Apache-2.0 */
/* Answers and errors in OpenAI's form. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ipc/rpc/json.h"
#include "lib/base/bytes.h"
#include "lib/json/lookup.h"
#include "procs/engine/gateway/api/completion.h"
#include "procs/engine/gateway/api/writer.h"
#include "procs/engine/gateway/dialects/openai/openai.h"

#define LOGPROB_MIN (-9999.0) /* the value that OpenAI uses for an impossible token */
#define ID_BYTES    (COMPLETION_ID_BYTES + 16)

static const char last_event[] = "data: [DONE]\n\n";

/* The dialect's part of a completion. */
struct state {
    bool role_sent;
};
_Static_assert(sizeof(struct state) <= COMPLETION_STATE_BYTES, "it is a part of the completion");

static bool chat(const struct completion *c)
{
    return c->dialect == &openai_chat;
}

static const char *id_of(const struct completion *c, char id[ID_BYTES])
{
    snprintf(id, ID_BYTES, "%s-%s", chat(c) ? "chatcmpl" : "cmpl", c->id);
    return id;
}

static const char *finish_reason(const struct completion *c)
{
    static const char *const names[] = {[FINISH_LENGTH] = "length",
                                        [FINISH_END] = "stop",
                                        [FINISH_STOP_TEXT] = "stop",
                                        [FINISH_CALLS] = "tool_calls"};
    return names[c->finish];
}

/* The prompt counts once, whatever the number of answers; c is the first. */
static json_t *usage(const struct completion *c)
{
    uint64_t tokens = c->new_tokens + c->other_tokens;
    return json_pack("{s:I, s:I, s:I, s:{s:I}}", "prompt_tokens", (json_int_t)c->prompt_tokens,
                     "completion_tokens", (json_int_t)tokens, "total_tokens",
                     (json_int_t)(c->prompt_tokens + tokens), "prompt_tokens_details",
                     "cached_tokens", (json_int_t)lookup_u64(c->stats, "cached_tokens"));
}

/* With the model's id if it wrote one. number: of the calls of the answer. */
static json_t *call_json(const struct completion *c, const char *id, const char *name,
                         const char *arguments, unsigned number)
{
    char own[ID_BYTES], made[ID_BYTES + 40], answer[16] = "";
    if (c->number > 0)
        snprintf(answer, sizeof answer, "_%u", c->number);
    snprintf(made, sizeof made, "call_%s%s_%u", id_of(c, own), answer, number);
    return json_pack("{s:s, s:s, s:{s:s, s:s}}", "id", id ? id : made, "type", "function",
                     "function", "name", name, "arguments", arguments);
}

/* Steals both; an array without one of its values is none. */
static json_t *added(json_t *array, json_t *value)
{
    if (json_array_append_new(array, value) == 0)
        return array;
    json_decref(array);
    return NULL;
}

/* ---- log-probabilities ----------------------------------------------------------------------- */

static json_t *logprob(const struct token *t)
{
    return isnan(t->logprob) ? json_null()
                             : json_real(t->logprob < LOGPROB_MIN ? LOGPROB_MIN : t->logprob);
}

static json_t *bytes_json(const struct token *t)
{
    json_t *array = json_array();
    for (size_t i = 0; i < t->bytes; i++)
        array = added(array, json_integer((unsigned char)t->text[i]));
    return array;
}

static json_t *alternative(const struct token *t)
{
    return json_pack("{s:o, s:o, s:o}", "token", rpc_text_json(t->text, t->bytes), "logprob",
                     logprob(t), "bytes", bytes_json(t));
}

static json_t *entry(const struct token *t)
{
    struct token all = *t, top;
    json_t *tops = json_array();
    while (token_top(&all, &top))
        tops = added(tops, alternative(&top));
    return json_pack("{s:o, s:o, s:o, s:o}", "token", rpc_text_json(t->text, t->bytes), "logprob",
                     logprob(t), "bytes", bytes_json(t), "top_logprobs", tops);
}

/* Of a completion: {"TOKEN": logprob}. Tokens with the same text count once, the most probable
 * one. */
static json_t *tops(const struct token *t)
{
    struct token all = *t, top;
    if (isnan(t->logprob))
        return json_null();
    json_t *object = json_object();
    bool fine = object != NULL;
    while (token_top(&all, &top)) {
        json_t *text = rpc_text_json(top.text, top.bytes);
        if (!json_object_get(object, json_string_value(text)))
            fine &= json_object_set_new(object, json_string_value(text), logprob(&top)) == 0;
        json_decref(text);
    }
    if (fine)
        return object;
    json_decref(object);
    return NULL;
}

static json_t *token_text(const struct token *t)
{
    return rpc_text_json(t->text, t->bytes);
}

static json_t *offset(const struct token *t)
{
    return json_integer((json_int_t)t->offset);
}

static json_t *list(const struct buffer *tokens, json_t *(*of)(const struct token *t))
{
    json_t *array = json_array();
    struct token t;
    for (size_t at = 0; tokens_next(tokens, &at, &t);)
        if (t.content)
            array = added(array, of(&t));
    return array;
}

json_t *openai_logprobs(const struct buffer *tokens)
{
    return list(tokens, entry);
}

/* Of an event. NULL: null. */
static json_t *logprobs_json(const struct completion *c, const struct buffer *tokens)
{
    if (!tokens)
        return json_null();
    if (chat(c))
        return json_pack("{s:o, s:n}", "content", list(tokens, entry), "refusal");
    json_t *alternatives = c->request.top_logprobs > 0 ? list(tokens, tops) : json_null();
    return json_pack("{s:o, s:o, s:o, s:o}", "tokens", list(tokens, token_text), "token_logprobs",
                     list(tokens, logprob), "top_logprobs", alternatives, "text_offset",
                     list(tokens, offset));
}

/* ---- events ---------------------------------------------------------------------------------- */

/* An event; steals choices. Where an event with the usage follows, the others have none. */
static json_t *event(const struct completion *c, json_t *choices)
{
    char id[ID_BYTES];
    json_t *object = json_pack("{s:s, s:s, s:I, s:s, s:o}", "id", id_of(c, id), "object",
                               chat(c) ? "chat.completion.chunk" : "text_completion", "created",
                               (json_int_t)c->created, "model", c->model, "choices", choices);
    if (object && c->request.wants & OPENAI_USAGE)
        json_object_set_new(object, "usage", json_null());
    return object;
}

/* Of a conversation; steals delta and logprobs. finish NULL: null. */
static json_t *delta_event(const struct completion *c, json_t *delta, json_t *logprobs,
                           const char *finish)
{
    return event(c, json_pack("[{s:i, s:o, s:o, s:s?}]", "index", (int)c->number, "delta", delta,
                              "logprobs", logprobs, "finish_reason", finish));
}

/* Of a text; steals text and logprobs. */
static json_t *text_event(const struct completion *c, json_t *text, json_t *logprobs,
                          const char *finish)
{
    return event(c, json_pack("[{s:i, s:o, s:o, s:s?}]", "index", (int)c->number, "text", text,
                              "logprobs", logprobs, "finish_reason", finish));
}

/* Before the first delta. */
static void send_role(struct completion *c)
{
    struct state *s = (struct state *)c->state;
    if (!s->role_sent)
        completion_event(c, NULL,
                         delta_event(c, json_pack("{s:s, s:s}", "role", "assistant", "content", ""),
                                     json_null(), NULL));
    s->role_sent = true;
}

static void send_delta(struct completion *c, const struct answer_piece *p,
                       const struct buffer *tokens)
{
    const char *member = p->part == ANSWER_CONTENT ? "content" : "reasoning_content";
    send_role(c);
    completion_event(c, NULL,
                     delta_event(c, json_pack("{s:o}", member, rpc_text_json(p->text, p->bytes)),
                                 logprobs_json(c, tokens), NULL));
}

/* A call is one event, which has its number. */
static void send_call(struct completion *c, const struct answer_piece *p)
{
    json_t *call = call_json(c, p->id, p->name, p->arguments, c->calls);
    if (call)
        json_object_set_new(call, "index", json_integer(c->calls));
    send_role(c);
    completion_event(c, NULL,
                     delta_event(c, json_pack("{s:[o]}", "tool_calls", call), json_null(), NULL));
}

static void send_text(struct completion *c, const struct answer_piece *p,
                      const struct buffer *tokens)
{
    completion_event(
        c, NULL, text_event(c, rpc_text_json(p->text, p->bytes), logprobs_json(c, tokens), NULL));
}

/* The fields of llama.cpp's server, and what else is known. */
static json_t *progress_event(const struct completion *c, const struct engine_progress *p)
{
    json_t *object = chat(c) ? delta_event(c, json_object(), json_null(), NULL)
                             : text_event(c, json_string(""), json_null(), NULL);
    json_t *progress = json_pack("{s:I, s:I, s:I, s:I, s:I}", "total", (json_int_t)p->tokens,
                                 "cache", (json_int_t)p->cached, "processed", (json_int_t)p->done,
                                 "time_ms", (json_int_t)p->time_ms, "queue", (json_int_t)p->queue);
    if (p->left_ms != UINT64_MAX)
        json_object_set_new(progress, "left_ms", json_integer((json_int_t)p->left_ms));
    json_object_set_new(object, "prompt_progress", progress);
    return object;
}

/* Clients ignore comments, but proxies do not close the connection. */
static void progress(struct completion *c, const struct engine_progress *p)
{
    char line[96], left[32] = "";
    if (c->request.wants & OPENAI_PROGRESS) {
        completion_event(c, NULL, progress_event(c, p));
        return;
    }
    if (p->left_ms != UINT64_MAX)
        snprintf(left, sizeof left, ", %" PRIu64 " s left", (p->left_ms + 999) / 1000);
    if (p->queue > 0)
        snprintf(line, sizeof line, ": queue %" PRIu64 "\n\n", p->queue);
    else
        snprintf(line, sizeof line, ": prompt %" PRIu64 "/%" PRIu64 "%s\n\n", p->done, p->tokens,
                 left);
    completion_put(c, line);
}

static void keep_alive(struct completion *c)
{
    completion_put(c, ": waiting\n\n");
}

static void end(struct completion *c)
{
    const char *finish = finish_reason(c);
    if (chat(c))
        send_role(c);
    completion_event(c, NULL,
                     chat(c) ? delta_event(c, json_object(), json_null(), finish)
                             : text_event(c, json_string(""), json_null(), finish));
}

static void close_events(struct completion *c)
{
    if (c->request.wants & OPENAI_USAGE) {
        json_t *object = event(c, json_array());
        json_object_set_new(object, "usage", usage(c));
        completion_event(c, NULL, object);
    }
    completion_put(c, last_event);
}

/* ---- errors ---------------------------------------------------------------------------------- */

static const char *error_type(unsigned status)
{
    switch (status) {
    case 401: return "authentication_error";
    case 403: return "permission_error";
    case 404: return "not_found_error";
    case 429: return "rate_limit_error";
    case 501: return "not_supported_error";
    default: return status < 500 ? "invalid_request_error" : "server_error";
    }
}

json_t *openai_error(unsigned status, const struct error *error, const char *param)
{
    json_t *text = rpc_text_json(error->text, strnlen(error->text, sizeof error->text));
    return json_pack("{s:{s:o, s:s, s:s?, s:s}}", "error", "message", text, "type",
                     error_type(status), "param", param && *param ? param : NULL, "code",
                     error_name(error->code));
}

static void fail(struct completion *c, unsigned status, const struct error *error)
{
    completion_event(c, NULL, openai_error(status, error, NULL));
    completion_put(c, last_event);
}

/* ---- whole answers --------------------------------------------------------------------------- */

static bool is_only_calls(const struct completion_parts *p)
{
    return p->bytes[ANSWER_CONTENT] == 0 && json_array_size(p->calls) > 0;
}

/* `before` ends with the bracket. */
static void put_list(struct writer *w, const char *before, const struct buffer *tokens,
                     json_t *(*of)(const struct token *t))
{
    struct token t;
    fputs(before, w->out);
    const char *between = "";
    for (size_t at = 0; !w->failed && tokens_next(tokens, &at, &t);) {
        if (!t.content)
            continue;
        writer_put(w, between, of(&t));
        between = ",";
    }
    fputs("]", w->out);
}

void openai_put_logprobs(struct writer *w, const char *before, const struct buffer *tokens)
{
    put_list(w, before, tokens, entry);
}

/* A message that has nothing but calls has no tokens of a content. */
static void put_logprobs(struct writer *w, const struct completion_parts *p)
{
    const struct completion *c = p->of;
    const struct buffer *tokens = &c->tokens;
    if (!c->request.logprobs || is_only_calls(p)) {
        fputs(",\"logprobs\":null", w->out);
    } else if (chat(c)) {
        put_list(w, ",\"logprobs\":{\"content\":[", tokens, entry);
        fputs(",\"refusal\":null}", w->out);
    } else {
        put_list(w, ",\"logprobs\":{\"tokens\":[", tokens, token_text);
        put_list(w, ",\"token_logprobs\":[", tokens, logprob);
        if (c->request.top_logprobs > 0)
            put_list(w, ",\"top_logprobs\":[", tokens, tops);
        else
            fputs(",\"top_logprobs\":null", w->out);
        put_list(w, ",\"text_offset\":[", tokens, offset);
        fputs("}", w->out);
    }
}

static json_t *message(const struct completion *c, const struct completion_parts *p)
{
    size_t count = json_array_size(p->calls), reasoning = p->bytes[ANSWER_REASONING];
    json_t *calls = json_array(), *object;
    object = json_pack("{s:s, s:o}", "role", "assistant", "content",
                       is_only_calls(p)
                           ? json_null()
                           : rpc_text_json(p->text[ANSWER_CONTENT], p->bytes[ANSWER_CONTENT]));
    for (size_t i = 0; i < count; i++) {
        const json_t *call = json_array_get(p->calls, i);
        calls = added(calls, call_json(c, json_string_value(json_object_get(call, "id")),
                                       json_string_value(json_object_get(call, "name")),
                                       json_string_value(json_object_get(call, "arguments")),
                                       (unsigned)i));
    }
    bool fine = reasoning == 0 ||
                json_object_set_new(object, "reasoning_content",
                                    rpc_text_json(p->text[ANSWER_REASONING], reasoning)) == 0;
    fine &= count == 0 || json_object_set(object, "tool_calls", calls) == 0;
    json_decref(calls);
    if (fine)
        return object;
    json_decref(object);
    return NULL;
}

static void put_choice(struct writer *w, const struct completion_parts *p)
{
    const struct completion *c = p->of;
    fprintf(w->out, "{\"index\":%u", c->number);
    if (chat(c))
        writer_put(w, ",\"message\":", message(c, p));
    else
        writer_put(w,
                   ",\"text\":", rpc_text_json(p->text[ANSWER_CONTENT], p->bytes[ANSWER_CONTENT]));
    put_logprobs(w, p);
    writer_put(w, ",\"finish_reason\":", json_string(finish_reason(c)));
    fputs("}", w->out);
}

static int whole(const struct completion *c, const struct completion_parts *p, FILE *out)
{
    struct writer w = {.out = out, .limit = c->quota->limit};
    char id[ID_BYTES];
    writer_put(&w, "{\"id\":", json_string(id_of(c, id)));
    writer_put(&w, ",\"object\":", json_string(chat(c) ? "chat.completion" : "text_completion"));
    writer_put(&w, ",\"created\":", json_integer((json_int_t)c->created));
    writer_put(&w, ",\"model\":", json_string(c->model));
    const char *before = ",\"choices\":[";
    for (; p && !w.failed; p = p->next, before = ",") {
        fputs(before, out);
        put_choice(&w, p);
    }
    writer_put(&w, "],\"usage\":", usage(c));
    fputs("}", out);
    return w.failed ? -1 : 0;
}

/* ---- the dialects ---------------------------------------------------------------------------- */

const struct dialect openai = {.error = openai_error};

const struct dialect openai_completion = {.error = openai_error,
                                          .parse = openai_completion_parse,
                                          .framing = &framing_events,
                                          .text = send_text,
                                          .progress = progress,
                                          .keep_alive = keep_alive,
                                          .end = end,
                                          .close = close_events,
                                          .fail = fail,
                                          .whole = whole};

const struct dialect openai_chat = {.error = openai_error,
                                    .parse = openai_chat_parse,
                                    .framing = &framing_events,
                                    .text = send_delta,
                                    .call = send_call,
                                    .progress = progress,
                                    .keep_alive = keep_alive,
                                    .end = end,
                                    .close = close_events,
                                    .fail = fail,
                                    .whole = whole};
