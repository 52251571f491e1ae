/* SPDX-License-Identifier: Apache-2.0 */
/* Answers and errors in Ollama's form. Each line of a stream is an answer of its own; the last one
 * has the figures. */
#include <stdio.h>
#include <string.h>

#include "ipc/rpc/json.h"
#include "lib/json/lookup.h"
#include "procs/engine/gateway/api/completion.h"
#include "procs/engine/gateway/api/writer.h"
#include "procs/engine/gateway/dialects/ollama/ollama.h"
#include "procs/engine/gateway/dialects/openai/openai.h"

#define NS_PER_MS 1e6

static bool chat(const struct completion *c)
{
    return c->dialect == &ollama_chat;
}

static json_t *head(const struct completion *c)
{
    return json_pack("{s:s, s:o}", "model", c->model, "created_at", ollama_time(c->created));
}

/* NULL tokens: not requested. Steals the line. */
static json_t *with_logprobs(json_t *line, const struct buffer *tokens)
{
    if (!tokens || json_object_set_new(line, "logprobs", openai_logprobs(tokens)) == 0)
        return line;
    json_decref(line);
    return NULL;
}

/* What the model wrote; steals all, NULL: none. A conversation has it in a message. */
static json_t *with_text(const struct completion *c, json_t *text, json_t *thinking, json_t *calls)
{
    json_t *line = head(c);
    json_t *message = chat(c) ? json_pack("{s:s, s:o, s:o*, s:o*}", "role", "assistant", "content",
                                          text, "thinking", thinking, "tool_calls", calls)
                              : json_pack("{s:o, s:o*}", "response", text, "thinking", thinking);
    if (chat(c) ? json_object_set_new(line, "message", message) == 0
                : json_object_update_new(line, message) == 0)
        return line;
    json_decref(line);
    return NULL;
}

/* ---- figures --------------------------------------------------------------------------------- */

static double real(const json_t *stats, const char *name)
{
    return json_number_value(json_object_get(stats, name));
}

static const char *done_reason(const struct completion *c)
{
    if (c->request.nothing)
        return c->request.wants & OLLAMA_UNLOAD ? "unload" : "load";
    return c->finish == FINISH_LENGTH ? "length" : "stop";
}

/* Times are in nanoseconds. */
static json_t *figures(const struct completion *c)
{
    double queue_ms = real(c->stats, "queue_ms"), first_ms = real(c->stats, "ttft_ms"),
           rate = real(c->stats, "decode_tps"), tokens = real(c->stats, "tokens");
    double eval_ms = rate > 0 && tokens > 1 ? (tokens - 1) / rate * 1000 : 0;
    return json_pack("{s:b, s:s, s:I, s:I, s:I, s:I, s:I, s:I}", "done", 1, "done_reason",
                     done_reason(c), "total_duration",
                     (json_int_t)((first_ms + eval_ms) * NS_PER_MS), "load_duration", (json_int_t)0,
                     "prompt_eval_count", (json_int_t)c->prompt_tokens, "prompt_eval_duration",
                     (json_int_t)((first_ms - queue_ms) * NS_PER_MS), "eval_count",
                     (json_int_t)c->new_tokens, "eval_duration", (json_int_t)(eval_ms * NS_PER_MS));
}

/* Steals the line. */
static json_t *last(const struct completion *c, json_t *line)
{
    if (json_object_update_new(line, figures(c)) == 0)
        return line;
    json_decref(line);
    return NULL;
}

/* ---- calls ----------------------------------------------------------------------------------- */

static json_t *call_json(const char *name, const char *arguments)
{
    return json_pack("{s:{s:s, s:o}}", "function", "name", name, "arguments",
                     completion_arguments(arguments));
}

static json_t *calls_json(const json_t *calls)
{
    json_t *out = json_array();
    for (size_t i = 0; i < json_array_size(calls); i++) {
        const json_t *call = json_array_get(calls, i);
        json_t *made = call_json(json_string_value(json_object_get(call, "name")),
                                 json_string_value(json_object_get(call, "arguments")));
        if (json_array_append_new(out, made) != 0) {
            json_decref(out);
            return NULL;
        }
    }
    return out;
}

/* ---- lines ----------------------------------------------------------------------------------- */

/* Steals the line. */
static void send(struct completion *c, json_t *line)
{
    if (json_object_set_new(line, "done", json_false()) != 0) {
        json_decref(line);
        line = NULL;
    }
    completion_event(c, NULL, line);
}

static void text(struct completion *c, const struct answer_piece *p, const struct buffer *tokens)
{
    json_t *piece = rpc_text_json(p->text, p->bytes);
    json_t *line = p->part == ANSWER_CONTENT ? with_text(c, piece, NULL, NULL)
                                             : with_text(c, json_string(""), piece, NULL);
    send(c, with_logprobs(line, tokens));
}

static void call(struct completion *c, const struct answer_piece *p)
{
    send(c,
         with_text(c, json_string(""), NULL, json_pack("[o]", call_json(p->name, p->arguments))));
}

static void keep_alive(struct completion *c)
{
    send(c, with_text(c, json_string(""), NULL, NULL));
}

static void progress(struct completion *c, const struct engine_progress *p)
{
    (void)p; /* the API has no member for it */
    keep_alive(c);
}

static void end(struct completion *c)
{
    completion_event(c, NULL, last(c, with_text(c, json_string(""), NULL, NULL)));
}

json_t *ollama_error(unsigned status, const struct error *error, const char *param)
{
    (void)status, (void)param; /* the message names the field */
    return json_pack("{s:o}", "error",
                     rpc_text_json(error->text, strnlen(error->text, sizeof error->text)));
}

static void fail(struct completion *c, unsigned status, const struct error *error)
{
    completion_event(c, NULL, ollama_error(status, error, NULL));
}

/* ---- whole answers --------------------------------------------------------------------------- */

static int whole(const struct completion *c, const struct completion_parts *p, FILE *out)
{
    struct writer w = {.out = out, .limit = c->quota->limit};
    size_t reasoning = p->bytes[ANSWER_REASONING];
    json_t *thinking = reasoning > 0 ? rpc_text_json(p->text[ANSWER_REASONING], reasoning) : NULL;
    json_t *calls = json_array_size(p->calls) > 0 ? calls_json(p->calls) : NULL;
    json_t *content = rpc_text_json(p->text[ANSWER_CONTENT], p->bytes[ANSWER_CONTENT]);
    json_t *line = with_text(c, content, thinking, calls);
    writer_members(&w, "{", line);
    if (c->request.logprobs)
        openai_put_logprobs(&w, ",\"logprobs\":[", &c->tokens);
    writer_members(&w, ",", figures(c));
    fputs("}\n", out);
    return w.failed ? -1 : 0;
}

/* ---- the dialects ---------------------------------------------------------------------------- */

const struct dialect ollama = {.error = ollama_error};

const struct dialect ollama_chat = {.error = ollama_error,
                                    .parse = ollama_chat_parse,
                                    .framing = &framing_lines,
                                    .text = text,
                                    .call = call,
                                    .progress = progress,
                                    .keep_alive = keep_alive,
                                    .end = end,
                                    .fail = fail,
                                    .whole = whole};

/* It has no tools, so that `call` is never used. */
const struct dialect ollama_generate = {.error = ollama_error,
                                        .parse = ollama_generate_parse,
                                        .framing = &framing_lines,
                                        .text = text,
                                        .call = call,
                                        .progress = progress,
                                        .keep_alive = keep_alive,
                                        .end = end,
                                        .fail = fail,
                                        .whole = whole};
