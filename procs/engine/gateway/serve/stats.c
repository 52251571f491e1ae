/* SPDX-License-Identifier: Apache-2.0 */
/* Snapshots of the supervisor and of compute: fetched on request, one fetch for all requests that
 * wait meanwhile. /health responds at once, from the last reply. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/assert.h"
#include "lib/base/bytes.h"
#include "lib/json/lookup.h"
#include "procs/engine/gateway/serve/serve.h"

#define STATUS_EVERY_NS  (500 * NS_PER_MS)
#define STATUS_SOON_NS   (50 * NS_PER_MS) /* while the engine is not ready */
#define STATUS_MS        2000
#define SILENCE_NS       (3 * NS_PER_S) /* without a reply of the supervisor */
#define STATS_TIMEOUT_MS 5000
#define LIMIT_EVERY_NS   (500 * NS_PER_MS) /* a shorter time says too little */

static char *stats_make(const struct gateway *g, const json_t *doc, size_t *bytes)
{
    char *text = json_dumps(doc, JSON_COMPACT);
    (void)g;
    *bytes = text ? strlen(text) : 0;
    return text;
}

static char *make_metrics(const struct gateway *g, const json_t *doc, size_t *bytes)
{
    return metrics_make(&g->metrics, g->model.name, doc, bytes);
}

static char *make_page(const struct gateway *g, const json_t *doc, size_t *bytes)
{
    (void)g;
    return page_make(doc, bytes);
}

static const struct doc_view views[] = {
    {SNAPSHOT_STATS, "application/json", stats_make},
    {SNAPSHOT_MAP, "application/json", stats_make},
    {SNAPSHOT_REQUESTS, "application/json", stats_make},
    {SNAPSHOT_STATS, "text/plain; version=0.0.4; charset=utf-8", make_metrics},
    {SNAPSHOT_STATS, "text/html; charset=utf-8", make_page},
};
enum { VIEW_STATS, VIEW_MAP, VIEW_REQUESTS, VIEW_METRICS, VIEW_PAGE };

void stats_forget(struct exchange *x)
{
    for (struct exchange **at = &x->gateway->waiting; *at; at = &(*at)->next)
        if (*at == x) {
            *at = x->next;
            return;
        }
}

static struct shared *view_made(struct gateway *g, const struct doc_view *view, const json_t *doc)
{
    size_t bytes = 0;
    char *text = view->make(g, doc, &bytes);
    return shared_new(&g->http, view->type, text, bytes);
}

/* Responds to all requests that wait for a snapshot; requests for the same view share the bytes. */
static void arrived(struct gateway *g, enum snapshot snapshot, json_t *doc,
                    const struct error *error)
{
    struct exchange *x = g->waiting, *next;
    struct shared *made[ARRAY_LEN(views)] = {NULL};
    bool tried[ARRAY_LEN(views)] = {false};
    g->waiting = NULL;
    g->pending[snapshot] = false;
    counter_add(g->child.process, CTR_GATEWAY_stats_fetches, 1);
    json_object_del(doc, "v"); /* the envelope of the call */
    json_object_del(doc, "id");
    json_object_del(doc, "ok");
    for (; x; x = next) {
        next = x->next;
        if (x->view->snapshot != snapshot) {
            x->next = g->waiting;
            g->waiting = x;
        } else if (error) {
            exchange_error(x, error, NULL);
        } else {
            size_t i = (size_t)(x->view - views);
            if (!tried[i])
                made[i] = view_made(g, x->view, doc);
            tried[i] = true;
            exchange_shared(x, made[i]);
        }
    }
    for (size_t i = 0; i < ARRAY_LEN(views); i++)
        shared_release(made[i]);
}

/* Adds to a snapshot what limits the speed. A mark that is not old enough stays, so that many
 * clients together have what one of them would have. */
static void add_limit(struct gateway *g, json_t *stats)
{
    struct limit_mark now;
    struct limit_facts facts;
    char text[96];
    uint64_t now_ns = clock_now_ns(), taken_ns = now_ns - g->mark_ns;
    if (g->mark_ns == 0 || taken_ns >= LIMIT_EVERY_NS) {
        limit_mark(stats, &now);
        if (g->mark_ns != 0) {
            limit_between(&g->mark, &now, (double)taken_ns / (double)NS_PER_S, &facts);
            enum limit limit = limit_now(&facts);
            json_decref(g->limit);
            g->limit = json_pack("{s:s, s:s}", "name", limit_name(limit), "text",
                                 limit_text(&facts, limit, text, sizeof text));
        }
        g->mark = now;
        g->mark_ns = now_ns;
    }
    if (g->limit)
        json_object_set(stats, "limit", g->limit);
}

static void on_stats(void *arg, json_t *doc, const struct error *error)
{
    struct gateway *g = arg;
    OBJ_CHECK(g, GATEWAY_MAGIC);
    if (!error)
        add_limit(g, doc);
    arrived(g, SNAPSHOT_STATS, doc, error);
}

static void on_map(void *arg, json_t *doc, const struct error *error)
{
    struct gateway *g = arg;
    OBJ_CHECK(g, GATEWAY_MAGIC);
    arrived(g, SNAPSHOT_MAP, doc, error);
}

static void on_requests(void *arg, json_t *doc, const struct error *error)
{
    struct gateway *g = arg;
    OBJ_CHECK(g, GATEWAY_MAGIC);
    arrived(g, SNAPSHOT_REQUESTS, doc, error);
}

static uint64_t fetch(struct gateway *g, enum snapshot snapshot, struct error *error)
{
    static const struct {
        const char *op;
        rpc_async_done *done;
    } calls[] = {[SNAPSHOT_STATS] = {"stats", on_stats},
                 [SNAPSHOT_MAP] = {"map", on_map},
                 [SNAPSHOT_REQUESTS] = {"status", on_requests}};
    struct rpc_async *of = snapshot == SNAPSHOT_REQUESTS ? g->engine : g->control;
    return rpc_async_call(of, calls[snapshot].op, NULL, STATS_TIMEOUT_MS, calls[snapshot].done, g,
                          error);
}

static void wait_for(struct exchange *x, const struct doc_view *view)
{
    struct gateway *g = x->gateway;
    struct error error;
    if (!g->pending[view->snapshot] && !fetch(g, view->snapshot, &error)) {
        exchange_error(x, &error, NULL);
        return;
    }
    g->pending[view->snapshot] = true;
    x->view = view;
    x->next = g->waiting;
    g->waiting = x;
}

void stats_all(struct exchange *x)
{
    wait_for(x, &views[VIEW_STATS]);
}

void stats_map(struct exchange *x)
{
    wait_for(x, &views[VIEW_MAP]);
}

void stats_requests(struct exchange *x)
{
    wait_for(x, &views[VIEW_REQUESTS]);
}

void stats_page(struct exchange *x)
{
    wait_for(x, &views[VIEW_PAGE]);
}

void stats_metrics(struct exchange *x)
{
    wait_for(x, &views[VIEW_METRICS]);
}

/* "restarting" is healthy: running requests continue, new ones wait. "failing" is not. */
void stats_health(struct exchange *x)
{
    const struct gateway *g = x->gateway;
    bool fresh = g->state[0] && clock_now_ns() - g->state_ns < SILENCE_NS;
    const char *state = fresh ? g->state : "unknown";
    bool ready = strcmp(state, "ready") == 0, well = ready || strcmp(state, "restarting") == 0;
    struct error error = g->fault;
    procs_check(g->child.procs.head, &error);
    well = well && error.code == ERR_NONE;
    const char *reason = error.code ? error.text : NULL;
    exchange_json(x, well ? MHD_HTTP_OK : MHD_HTTP_SERVICE_UNAVAILABLE,
                  json_pack("{s:s, s:s, s:I, s:s*, s:s*}", "status", well ? "ok" : "unavailable",
                            "state", state, "oom_kills", (json_int_t)g->oom_kills, "code",
                            reason ? error_name(error.code) : NULL, "reason", reason));
}

void stats_describe(struct exchange *x)
{
    const struct gateway *g = x->gateway;
    sl_assert(g->http.accepts && x->dialect->describe);
    exchange_json(x, MHD_HTTP_OK, x->dialect->describe(&g->model));
}

/* The model by its name. */
void stats_model(struct exchange *x)
{
    const struct gateway *g = x->gateway;
    struct error error;
    if (strcmp(x->rest, g->model.name) == 0) {
        stats_describe(x);
        return;
    }
    error_set(&error, ERR_NOT_FOUND, "there is no model of that name; there is '%s'",
              g->model.name);
    exchange_error(x, &error, NULL);
}

/* What the API has and the engine has not. */
void stats_unsupported(struct exchange *x)
{
    exchange_status_error(x, MHD_HTTP_NOT_IMPLEMENTED,
                          "the engine makes no embeddings, and has the model that it was started "
                          "with");
}

/* ---- polling for the gateway itself ---------------------------------------------------------- */

static void on_status(void *arg, json_t *reply, const struct error *error)
{
    struct gateway *g = arg;
    OBJ_CHECK(g, GATEWAY_MAGIC);
    g->status_pending = false;
    if (error)
        return; /* it becomes stale */
    snprintf(g->state, sizeof g->state, "%s", lookup_text(reply, "state"));
    g->oom_kills = lookup_u64(reply, "oom_kills");
    g->state_ns = clock_now_ns();
    g->fault = (struct error){.code = ERR_NONE};
    if (json_object_get(reply, "fault"))
        error_set(&g->fault, error_from_name(lookup_text(reply, "fault.code")), "%s",
                  lookup_text(reply, "fault.text"));
}

static void on_chat(void *arg, json_t *reply, const struct error *error)
{
    struct gateway *g = arg;
    struct error why = {.code = ERR_NONE};
    OBJ_CHECK(g, GATEWAY_MAGIC);
    g->model_pending = false;
    if (error)
        return;
    if (chat_format_read(&g->chat, reply, &why) != 0 && g->chat.program)
        log_warn("%s: conversations with tools are rejected", why.text);
    else if (why.code != ERR_NONE)
        log_warn("%s: conversations have the form of the family '%s'", why.text,
                 chat_name((enum chat_family)g->chat.model.family));
    g->model.tools = g->chat.program && (g->chat.answer.call.open || g->chat.answer.channels);
    g->model.thinking = g->chat.answer.reasoning.open || g->chat.answer.channels;
    g->model.gap = g->chat.model.gap[0][0];
    g->http.accepts = true;
}

/* alias: the name that the model shall have; "": that of its file. */
static void read_model(struct api_model *m, const json_t *stats, const char *alias)
{
    _Static_assert(sizeof m->name == PARAM_ALIAS_BYTES, "an alias is a name");
    if (alias[0])
        snprintf(m->name, sizeof m->name, "%.127s", alias);
    else
        api_model_name(lookup_text(stats, "model.path"), m->name, sizeof m->name);
    snprintf(m->arch, sizeof m->arch, "%s", lookup_text(stats, "model.arch"));
    snprintf(m->type, sizeof m->type, "%s", lookup_text(stats, "model.type"));
    m->parameters = lookup_u64(stats, "model.parameters");
    m->bytes = lookup_u64(stats, "model.dense_bytes") + lookup_u64(stats, "model.expert_bytes");
    m->context = lookup_u64(stats, "model.context");
}

static void on_model(void *arg, json_t *reply, const struct error *error)
{
    struct gateway *g = arg;
    struct error ignored; /* the next tick retries */
    OBJ_CHECK(g, GATEWAY_MAGIC);
    g->model_pending = false;
    if (error)
        return;
    read_model(&g->model, reply, g->child.params->alias);
    g->model.slots = g->child.params->parallel;
    g->model_pending =
        rpc_async_call(g->control, "chat", NULL, STATUS_MS, on_chat, g, &ignored) != 0;
}

void stats_tick(struct gateway *g, uint64_t now_ns)
{
    struct error error;
    if (now_ns < g->status_due_ns)
        return;
    bool ready = strcmp(g->state, "ready") == 0;
    g->status_due_ns = now_ns + (ready ? STATUS_EVERY_NS : STATUS_SOON_NS);
    if (!g->status_pending)
        g->status_pending =
            rpc_async_call(g->control, "status", NULL, STATUS_MS, on_status, g, &error) != 0;
    if (!g->http.accepts && !g->model_pending)
        g->model_pending =
            rpc_async_call(g->control, "stats", NULL, STATUS_MS, on_model, g, &error) != 0;
}
