/* SPDX-License-Identifier: Apache-2.0 */
/* States what runs, as llama.cpp's server does: a slot for each sequence that may run at once.
 * There is no text of any request in it. */
#include "procs/engine/gateway/serve/serve.h"

static json_t *params_of(const struct api_request *r)
{
    const struct sampling *s = &r->sampling;
    return json_pack("{s:I, s:b, s:f, s:I, s:f, s:f, s:f, s:f, s:f, s:I}", "n_predict",
                     (json_int_t)(r->max_tokens < ENGINE_TOKENS_MAX ? r->max_tokens : -1), "stream",
                     r->stream, "temperature", s->temperature, "top_k", (json_int_t)s->top_k,
                     "top_p", s->top_p, "min_p", s->min_p, "presence_penalty", s->presence_penalty,
                     "frequency_penalty", s->frequency_penalty, "repeat_penalty", s->repeat_penalty,
                     "seed", (json_int_t)s->seed);
}

static json_t *next_token(const struct stream *s)
{
    int64_t max = s->completion.request.max_tokens, done = (int64_t)s->completion.new_tokens;
    return json_pack("[{s:b, s:I, s:I}]", "has_next_token", 1, "n_decoded", (json_int_t)done,
                     "n_remain", (json_int_t)(max < ENGINE_TOKENS_MAX ? max - done : -1));
}

/* s NULL: nothing runs there. */
static json_t *slot(const struct gateway *g, size_t number, const struct stream *s)
{
    json_t *object =
        json_pack("{s:I, s:I, s:b, s:b}", "id", (json_int_t)number, "n_ctx",
                  (json_int_t)g->model.context, "speculative", 0, "is_processing", s != NULL);
    if (!object || !s)
        return object;
    json_t *more =
        json_pack("{s:I, s:I, s:o, s:o}", "id_task", (json_int_t)s->sequence, "n_prompt_tokens",
                  (json_int_t)s->lead->completion.prompt_tokens, "params",
                  params_of(&s->completion.request), "next_token", next_token(s));
    json_object_update(object, more);
    json_decref(more);
    return object;
}

void slots_get(struct exchange *x)
{
    const struct gateway *g = x->gateway;
    const char *wants =
        MHD_lookup_connection_value(x->connection, MHD_GET_ARGUMENT_KIND, "fail_on_no_slot");
    uint64_t count = g->child.params->parallel, running = 0;
    json_t *all = json_array();
    for (size_t i = 0; i < STREAMS_MAX; i++)
        if (g->streams[i].state == STREAM_FOLLOW)
            json_array_append_new(all, slot(g, running++, &g->streams[i]));
    if (wants && running >= count) {
        json_decref(all);
        exchange_status_error(x, MHD_HTTP_SERVICE_UNAVAILABLE, "no slot is free");
        return;
    }
    for (uint64_t i = running; i < count; i++)
        json_array_append_new(all, slot(g, i, NULL));
    exchange_json(x, MHD_HTTP_OK, all);
}
