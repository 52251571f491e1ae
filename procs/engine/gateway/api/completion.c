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

/* Where events go, or the text. */
static struct buffer *output(struct completion *c)
{
    return c->first && c->request.stream ? &c->first->out : &c->out;
}

void completion_does_not_fit(struct completion *c, size_t bytes)
{
    c->failed = true;
    c->missing_bytes += bytes;
}

size_t completion_bytes(const struct completion *c)
{
    return c->out.bytes + c->tokens.bytes + c->missing_bytes;
}

/* Without space the completion is incomplete from then on. */
static void append(struct completion *c, const char *data, size_t bytes)
{
    if (!c->failed && buffer_add(c->quota, output(c), data, bytes))
        c->written = true;
    else
        completion_does_not_fit(c, bytes);
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
        !buffer_reserve(c->quota, output(c), names + strlen(f->before) + bytes + strlen(f->after)))
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

/* With the tokens of the piece; those that are no longer needed are dropped. */
static void send_part(struct completion *c, const struct answer_piece *p)
{
    size_t end = 0, first = tokens_mark(&c->tokens, &end, p);
    struct buffer own = {.data = first < end ? c->tokens.data + first : NULL, .bytes = end - first};
    c->dialect->text(c, p, own.data ? &own : NULL);
    buffer_mark_sent(&c->tokens, end, 0);
}

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
        send_part(c, p);
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

void completion_open_other(struct completion *c, struct completion *first, unsigned number)
{
    *c = (struct completion){.dialect = first->dialect,
                             .request = first->request,
                             .created = first->created,
                             .model = first->model,
                             .quota = first->quota,
                             .number = number,
                             .first = first};
    memcpy(c->id, first->id, sizeof c->id);
    completion_open(c);
}

void completion_free(struct completion *c)
{
    answer_close(&c->answer); /* which uses the request */
    if (!c->first)
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
    if (!c->request.stream)
        return;
    c->dialect->end(c);
    struct completion *first = c->first ? c->first : c;
    if (!c->others && c->dialect->close)
        c->dialect->close(first);
    c->failed |= first->failed;
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
    struct buffer *tokens; /* of the answer; */
    size_t marked;         /* these are marked */
    FILE *text[2];         /* ANSWER_REASONING, ANSWER_CONTENT */
    json_t *calls;
    bool one_call; /* nothing follows a call */
    bool failed;   /* a call is missing: no memory */
};

static void keep_piece(void *arg, const struct answer_piece *p)
{
    struct gathered *g = arg;
    if (g->one_call && json_array_size(g->calls) > 0)
        return;
    if (p->part != ANSWER_CALL)
        tokens_mark(g->tokens, &g->marked, p);
    if (p->part == ANSWER_CALL)
        g->failed |=
            json_array_append_new(g->calls, json_pack("{s:s, s:s, s:s*}", "name", p->name,
                                                      "arguments", p->arguments, "id", p->id)) != 0;
    else if (g->text[p->part])
        fwrite(p->text, 1, p->bytes, g->text[p->part]);
}

/* One answer of a response that is not streamed. */
struct whole {
    struct completion_parts parts;
    char *text[2]; /* malloc'ed, as are the parts then */
    json_t *calls;
};

/* The whole text in parts. False: no memory. */
static bool gather(struct completion *c, struct whole *a)
{
    struct answer all;
    struct gathered g = {.tokens = &c->tokens, .calls = a->calls, .one_call = c->request.one_call};
    size_t bytes[2] = {0, 0};
    for (int i = 0; i < 2; i++)
        g.text[i] = open_memstream(&a->text[i], &bytes[i]);
    answer_open(&all, &c->request.answer, c->request.inside, keep_piece, &g);
    bool fine = answer_take(&all, c->out.data ? c->out.data : "", c->out.bytes, true) == 0;
    answer_close(&all);
    fine &= a->calls && !g.failed;
    for (int i = 0; i < 2; i++) {
        fine &= g.text[i] && !ferror(g.text[i]);
        fine &= g.text[i] && fclose(g.text[i]) == 0;
    }
    if (fine)
        a->parts = (struct completion_parts){
            c, {a->text[0], a->text[1]}, {bytes[0], bytes[1]}, a->calls, NULL};
    return fine;
}

/* Without memory the text stays whole. */
static void read_whole(struct completion *c, struct whole *a)
{
    a->calls = json_array();
    a->parts = (struct completion_parts){
        .of = c, .text = {"", c->out.data ? c->out.data : ""}, .bytes = {0, c->out.bytes}};
    bool split = completion_splits(c) && gather(c, a);
    c->calls = split ? (unsigned)json_array_size(a->calls) : 0;
    set_finish(c, c->finish);
}

static char *write_whole(struct completion *c, const struct completion_parts *parts, size_t *bytes)
{
    char *text = NULL;
    FILE *out = open_memstream(&text, bytes);
    if (!out)
        return NULL;
    int rc = c->dialect->whole(c, parts, out);
    bool fine = rc == 0 && !ferror(out);
    fine &= fclose(out) == 0;
    bool too_long = *bytes > c->quota->limit; /* the last bytes, too */
    if (fine && !too_long)
        return text;
    c->too_long |= too_long;
    free(text);
    return NULL;
}

char *completion_whole(struct completion *c, size_t *bytes)
{
    size_t count = 0;
    for (const struct completion *one = c; one; one = one->next)
        count++;
    struct whole *all = calloc(count, sizeof *all);
    if (!all)
        return NULL;
    struct completion *one = c;
    for (size_t i = 0; i < count; i++, one = one->next) {
        read_whole(one, &all[i]);
        if (i > 0)
            all[i - 1].parts.next = &all[i].parts;
    }
    char *text = write_whole(c, &all[0].parts, bytes);
    for (size_t i = 0; i < count; i++) {
        json_decref(all[i].calls);
        free(all[i].text[0]);
        free(all[i].text[1]);
    }
    free(all);
    return text;
}
