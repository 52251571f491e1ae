/* SPDX-License-Identifier: Apache-2.0 */
/* The answer of a conversation in parts (lib/model/chat/answer.h): as events while it arrives, or as one
 * message at its end. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/assert.h"
#include "procs/engine/gateway/gateway.h"

bool parts_wanted(const struct stream *s)
{
    return s->request.answer.reasoning.open || s->request.answer.call.open;
}

/* A call in OpenAI's form, with the model's id if it wrote one; in an event also with its
 * number. */
static json_t *call_json(struct stream *s, const struct answer_piece *p, bool numbered)
{
    char id[STREAM_ID_BYTES + 24];
    snprintf(id, sizeof id, "call_%s_%u", s->id, s->calls);
    json_t *call = json_pack("{s:s, s:s, s:{s:s, s:s}}", "id", p->id ? p->id : id, "type",
                             "function", "function", "name", p->name, "arguments", p->arguments);
    if (call && numbered)
        json_object_set_new(call, "index", json_integer(s->calls));
    s->calls++;
    return call;
}

static void send_piece(void *arg, const struct answer_piece *p)
{
    struct stream *s = arg;
    OBJ_CHECK(s, STREAM_MAGIC);
    if (p->part == ANSWER_CALL)
        stream_delta(s, json_pack("{s:[o]}", "tool_calls", call_json(s, p, true)));
    else
        stream_delta(s,
                     json_pack("{s:o}", p->part == ANSWER_CONTENT ? "content" : "reasoning_content",
                               rpc_text_json(p->text, p->bytes)));
}

void parts_open(struct stream *s)
{
    if (parts_wanted(s))
        answer_open(&s->answer, &s->request.answer, s->request.inside, send_piece, s);
}

void parts_free(struct stream *s)
{
    answer_close(&s->answer);
    json_decref(s->message);
    s->message = NULL;
}

void parts_take(struct stream *s, const char *text, size_t bytes, bool end)
{
    if (answer_take(&s->answer, text, bytes, end) != 0)
        s->failed = true;
}

/* ---- one message ---- */

struct message {
    struct stream *stream;
    FILE *text[2]; /* ANSWER_REASONING, ANSWER_CONTENT */
    json_t *calls;
    bool failed; /* a call is missing: no memory */
};

static void keep_piece(void *arg, const struct answer_piece *p)
{
    struct message *m = arg;
    if (p->part == ANSWER_CALL)
        m->failed |= json_array_append_new(m->calls, call_json(m->stream, p, false)) != 0;
    else if (m->text[p->part])
        fwrite(p->text, 1, p->bytes, m->text[p->part]);
}

void parts_message(struct stream *s)
{
    char *text[2] = {NULL, NULL};
    size_t bytes[2] = {0, 0};
    struct answer all;
    struct message m = {.stream = s, .calls = json_array()};
    for (int i = 0; i < 2; i++)
        m.text[i] = open_memstream(&text[i], &bytes[i]);
    answer_open(&all, &s->request.answer, s->request.inside, keep_piece, &m);
    bool fine = answer_take(&all, s->out.data ? s->out.data : "", s->out.bytes, true) == 0;
    answer_close(&all);
    fine &= !m.failed;
    for (int i = 0; i < 2; i++) {
        fine &= m.text[i] && !ferror(m.text[i]);
        fine &= m.text[i] && fclose(m.text[i]) == 0;
    }
    bool none = fine && bytes[ANSWER_CONTENT] == 0 && json_array_size(m.calls) > 0;
    json_t *content =
        none ? json_null()
             : rpc_text_json(fine ? text[ANSWER_CONTENT] : "", fine ? bytes[ANSWER_CONTENT] : 0);
    s->message = fine ? json_pack("{s:s, s:o}", "role", "assistant", "content", content) : NULL;
    if (!fine)
        json_decref(content);
    if (s->message && bytes[ANSWER_REASONING] > 0)
        json_object_set_new(s->message, "reasoning_content",
                            rpc_text_json(text[ANSWER_REASONING], bytes[ANSWER_REASONING]));
    if (s->message && json_array_size(m.calls) > 0)
        json_object_set(s->message, "tool_calls", m.calls);
    if (!s->message) /* without memory the text stays whole */
        s->calls = 0;
    json_decref(m.calls);
    free(text[0]);
    free(text[1]);
}
