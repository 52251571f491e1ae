/* SPDX-License-Identifier: Apache-2.0 */
/* Questions about a prompt that compute answers at once, such as the number of its tokens: the body
 * is read as that of a completion, and no sequence begins. */
#include <string.h>

#include "lib/base/assert.h"
#include "procs/engine/gateway/serve/serve.h"

static struct ask *new_ask(struct exchange *x, struct error *error)
{
    struct gateway *g = x->gateway;
    for (size_t i = 0; i < ASKS_MAX; i++)
        if (!g->asks[i].exchange) {
            g->asks[i] = (struct ask){.magic = ASK_MAGIC, .exchange = x};
            x->ask = &g->asks[i];
            return x->ask;
        }
    error_set(error, ERR_BUSY, "%d questions are in progress; retry later", ASKS_MAX);
    return NULL;
}

void ask_forget(struct exchange *x)
{
    struct ask *a = x->ask;
    if (!a)
        return;
    OBJ_CHECK(a, ASK_MAGIC);
    rpc_async_forget(x->gateway->engine, a->ticket);
    api_request_free(&a->request);
    quota_give(&x->http->quota, a->buffered, true);
    x->ask = NULL;
    *a = (struct ask){.exchange = NULL};
}

static void respond(struct exchange *x, const json_t *reply)
{
    json_t *body = x->dialect->reply(&x->ask->request, reply);
    char *text = body ? json_dumps(body, JSON_COMPACT) : NULL;
    json_decref(body);
    ask_forget(x);
    exchange_counted(x, text, text ? strlen(text) : 0);
}

static void refuse(struct exchange *x, const struct error *error, const char *param)
{
    ask_forget(x);
    exchange_error(x, error, param);
}

static void on_answered(void *arg, json_t *reply, const struct error *error)
{
    struct ask *a = arg;
    OBJ_CHECK(a, ASK_MAGIC);
    a->ticket = 0;
    if (error)
        refuse(a->exchange, error, NULL);
    else
        respond(a->exchange, reply);
}

static int call(struct ask *a, const char *question, struct error *error)
{
    struct engine_submit prompt;
    stream_put_prompt(&a->request, &prompt);
    json_t *request = engine_count_request(&prompt, error);
    if (!request)
        return -1;
    a->ticket = rpc_async_call(a->exchange->gateway->engine, question, request, ENGINE_SUBMIT_MS,
                               on_answered, a, error);
    return a->ticket ? 0 : -1;
}

static bool needs_compute(const struct ask *a)
{
    return a->exchange->dialect->question && !a->request.nothing;
}

static int start(struct exchange *x, char param[API_PARAM_BYTES], struct error *error)
{
    if (stream_may_start(x->gateway, error) != 0)
        return -1;
    struct ask *a = new_ask(x, error);
    if (!a)
        return -1;
    struct api_limits limits = stream_limits(x->gateway);
    int rc = api_request_parse(x->dialect, x->body.data ? x->body.data : "", x->body.bytes, &limits,
                               &a->request, param, error);
    a->buffered = buffer_detach(&x->body);
    return rc != 0 || !needs_compute(a) ? rc : call(a, x->dialect->question, error);
}

void ask_start(struct exchange *x)
{
    struct error error;
    char param[API_PARAM_BYTES] = "";
    sl_assert(x->dialect->parse && x->dialect->reply);
    if (start(x, param, &error) != 0)
        refuse(x, &error, param);
    else if (!needs_compute(x->ask))
        respond(x, NULL);
}

void asks_refuse(struct gateway *g, const struct error *error)
{
    for (size_t i = 0; i < ASKS_MAX; i++)
        if (g->asks[i].exchange)
            refuse(g->asks[i].exchange, error, NULL);
}
