/* SPDX-License-Identifier: Apache-2.0 */
/* Passes an answer to its dialect: in parts while it arrives, or whole at its end. */
#include "procs/engine/gateway/api/completion.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/assert.h"

const struct framing framing_events = {"text/event-stream", "data: ", "\n\n", true};
const struct framing framing_lines = {"application/x-ndjson", "", "\n", false};

bool completion_is_over(const struct completion *c)
{
    return c->request.one_call && c->calls > 0;
}

bool completion_splits(const struct completion *c)
{
    return c->request.answer.reasoning.open || c->request.answer.call.open;
}

/* ---- output ---------------------------------------------------------------------------------- */

/* Without space the completion is incomplete from then on. */
static void append(struct completion *c, const char *data, size_t bytes)
{
    if (c->failed || !buffer_add(c->quota, &c->out, data, bytes))
        c->failed = true;
    else
        c->written = true;
}

void completion_put(struct completion *c, const char *text)
{
    append(c, text, strlen(text));
}

void completion_event(struct completion *c, const char *name, json_t *object)
{
    const struct framing *f = c->dialect->framing;
    char *text = object ? json_dumps(object, JSON_COMPACT) : NULL;
    size_t bytes = text ? strlen(text) : 0, names = name ? strlen("event: \n") + strlen(name) : 0;
    json_decref(object);
    sl_assert(!name || f->named);
    if (!text ||
        !buffer_reserve(c->quota, &c->out, names + strlen(f->before) + bytes + strlen(f->after)))
        c->failed = true;
    if (name) {
        completion_put(c, "event: ");
        completion_put(c, name);
        completion_put(c, "\n");
    }
    completion_put(c, f->before);
    append(c, text, bytes);
    completion_put(c, f->after);
    free(text);
}

json_t *completion_arguments(const char *arguments)
{
    json_t *value = json_loads(arguments, JSON_ALLOW_NUL, NULL);
    if (json_is_object(value))
        return value;
    json_decref(value);
    return json_pack("{s:s}", "arguments", arguments);
}

/* ---- streamed -------------------------------------------------------------------------------- */

static void send_piece(void *arg, const struct answer_piece *p)
{
    struct completion *c = arg;
    OBJ_CHECK(c, COMPLETION_MAGIC);
    if (completion_is_over(c))
        return;
    if (!c->request.stream) { /* the text is kept; one_call: it is read for the first call only */
        c->calls += p->part == ANSWER_CALL;
        return;
    }
    if (p->part != ANSWER_CALL) {
        c->dialect->text(c, p, NULL);
        return;
    }
    c->dialect->call(c, p);
    c->calls++;
}

void completion_open(struct completion *c)
{
    c->magic = COMPLETION_MAGIC;
    if (completion_splits(c))
        answer_open(&c->answer, &c->request.answer, c->request.inside, send_piece, c);
}

void completion_free(struct completion *c)
{
    answer_close(&c->answer); /* which uses the request */
    api_request_free(&c->request);
    buffer_free(c->quota, &c->out);
    buffer_free(c->quota, &c->tokens);
    buffer_free(c->quota, &c->kept);
    buffer_free(c->quota, &c->done);
}

static void split(struct completion *c, const char *text, size_t bytes, bool end)
{
    if (answer_take(&c->answer, text, bytes, end) != 0)
        c->failed = true;
}

static void send_text(struct completion *c, const char *text, size_t bytes, bool with_tokens)
{
    struct answer_piece p = {.part = ANSWER_CONTENT, .text = text, .bytes = bytes};
    with_tokens = with_tokens && c->request.logprobs;
    if (bytes > 0 || (with_tokens && c->tokens.bytes > 0))
        c->dialect->text(c, &p, with_tokens ? &c->tokens : NULL);
    if (with_tokens)
        buffer_mark_sent(&c->tokens, buffer_unsent(&c->tokens), 0);
}

void completion_text(struct completion *c, const char *text, size_t bytes, bool with_tokens)
{
    bool splits = completion_splits(c) && (c->request.stream || c->request.one_call);
    if (!c->request.stream)
        append(c, text, bytes);
    if (splits)
        split(c, text, bytes, false);
    else if (c->request.stream)
        send_text(c, text, bytes, with_tokens);
}

void completion_begin(struct completion *c)
{
    const char *front = c->request.front;
    if (c->request.stream && c->dialect->begin)
        c->dialect->begin(c);
    if (front)
        completion_text(c, front, strlen(front), false);
}

void completion_progress(struct completion *c, const struct engine_progress *p)
{
    bool failed = c->failed;
    if (c->dialect->progress)
        c->dialect->progress(c, p);
    c->failed = failed;
}

void completion_keep_alive(struct completion *c)
{
    bool failed = c->failed;
    c->dialect->keep_alive(c);
    c->failed = failed;
}

static void set_finish(struct completion *c, enum finish finish)
{
    bool called = c->calls > 0 && (finish != FINISH_LENGTH || c->request.one_call);
    c->finish = called ? FINISH_CALLS : finish;
}

void completion_end(struct completion *c, enum finish finish, const json_t *stats)
{
    c->stats = stats;
    if (c->request.stream && completion_splits(c))
        split(c, "", 0, true);
    set_finish(c, finish);
    if (c->request.stream)
        c->dialect->end(c);
}

void completion_fail(struct completion *c, unsigned status, const struct error *error)
{
    for (int i = 0; i < 2; i++) {
        c->failed = false;
        c->dialect->fail(c, status, error);
        if (!c->failed)
            return;
        buffer_drop_events(&c->out, c->dialect->framing->after);
    }
    c->broken = true;
}

/* ---- whole ----------------------------------------------------------------------------------- */

struct gathered {
    FILE *text[2]; /* ANSWER_REASONING, ANSWER_CONTENT */
    json_t *calls;
    bool one_call; /* nothing follows a call */
    bool failed;   /* a call is missing: no memory */
};

static void keep_piece(void *arg, const struct answer_piece *p)
{
    struct gathered *g = arg;
    if (g->one_call && json_array_size(g->calls) > 0)
        return;
    if (p->part == ANSWER_CALL)
        g->failed |=
            json_array_append_new(g->calls, json_pack("{s:s, s:s, s:s*}", "name", p->name,
                                                      "arguments", p->arguments, "id", p->id)) != 0;
    else if (g->text[p->part])
        fwrite(p->text, 1, p->bytes, g->text[p->part]);
}

/* The whole text in parts. text[]: malloc'ed. False: no memory. */
static bool gather(const struct completion *c, json_t *calls, char *text[2], size_t bytes[2])
{
    struct answer all;
    struct gathered g = {.calls = calls, .one_call = c->request.one_call};
    for (int i = 0; i < 2; i++)
        g.text[i] = open_memstream(&text[i], &bytes[i]);
    answer_open(&all, &c->request.answer, c->request.inside, keep_piece, &g);
    bool fine = answer_take(&all, c->out.data ? c->out.data : "", c->out.bytes, true) == 0;
    answer_close(&all);
    fine &= calls && !g.failed;
    for (int i = 0; i < 2; i++) {
        fine &= g.text[i] && !ferror(g.text[i]);
        fine &= g.text[i] && fclose(g.text[i]) == 0;
    }
    return fine;
}

static char *write_whole(struct completion *c, const struct completion_parts *parts, size_t *bytes)
{
    char *text = NULL;
    FILE *out = open_memstream(&text, bytes);
    if (!out)
        return NULL;
    int rc = c->dialect->whole(c, parts, out);
    bool fine = rc == 0 && !ferror(out);
    if (fclose(out) == 0 && fine)
        return text;
    free(text);
    return NULL;
}

char *completion_whole(struct completion *c, size_t *bytes)
{
    char *text[2] = {NULL, NULL};
    size_t lengths[2] = {0, 0};
    json_t *calls = json_array();
    /* without memory the text stays whole */
    bool split = completion_splits(c) && gather(c, calls, text, lengths);
    struct completion_parts parts = {.text = {"", c->out.data ? c->out.data : ""},
                                     .bytes = {0, c->out.bytes}};
    if (split)
        parts = (struct completion_parts){{text[0], text[1]}, {lengths[0], lengths[1]}, calls};
    c->calls = split ? (unsigned)json_array_size(calls) : 0;
    set_finish(c, c->finish);
    char *whole = write_whole(c, &parts, bytes);
    json_decref(calls);
    free(text[0]);
    free(text[1]);
    return whole;
}
