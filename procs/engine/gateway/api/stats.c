/* Documents of the supervisor: fetched when somebody wants one, once for all who wait meanwhile.
 * What must be answered at once (/health) is answered from what was heard last. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/assert.h"
#include "lib/base/bytes.h"
#include "lib/json/lookup.h"
#include "procs/engine/gateway/gateway.h"

#define STATUS_EVERY_NS (500 * NS_PER_MS)
#define STATUS_SOON_NS  (50 * NS_PER_MS) /* while the engine is not ready */
#define STATUS_MS       2000
#define SILENCE_NS      (3 * NS_PER_S) /* without a word of the supervisor */
#define DOCUMENT_MS     5000

static char *stats_make(struct gateway *g, const json_t *doc, size_t *bytes)
{
    char *text = json_dumps(doc, JSON_COMPACT);
    (void)g;
    *bytes = text ? strlen(text) : 0;
    return text;
}

static const struct doc_view views[] = {
    {"stats", "application/json", stats_make},
    {"map", "application/json", stats_make},
    {"stats", "text/plain; version=0.0.4; charset=utf-8", metrics_make},
    {"stats", "text/html; charset=utf-8", page_make},
};
enum { VIEW_STATS, VIEW_MAP, VIEW_METRICS, VIEW_PAGE };

void documents_forget(struct exchange *x)
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
    return shared_new(g, view->type, text, bytes);
}

/* Answers everybody who waits for the document of an operation: those who look at it in the same
 * way get the same bytes. */
static void arrived(struct gateway *g, const char *op, json_t *doc, const struct error *error)
{
    struct exchange *x = g->waiting, *next;
    struct shared *made[ARRAY_LEN(views)] = {NULL};
    bool tried[ARRAY_LEN(views)] = {false};
    g->waiting = NULL;
    counter_add(g->child.row, CTR_GATEWAY_documents, 1);
    json_object_del(doc, "v"); /* the envelope of the call */
    json_object_del(doc, "id");
    json_object_del(doc, "ok");
    for (; x; x = next) {
        next = x->next;
        if (strcmp(x->view->op, op) != 0) {
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

static void on_stats(void *arg, json_t *doc, const struct error *error)
{
    struct gateway *g = arg;
    OBJ_CHECK(g, GATEWAY_MAGIC);
    g->asking_stats = false;
    arrived(g, "stats", doc, error);
}

static void on_map(void *arg, json_t *doc, const struct error *error)
{
    struct gateway *g = arg;
    OBJ_CHECK(g, GATEWAY_MAGIC);
    g->asking_map = false;
    arrived(g, "map", doc, error);
}

static void wait_for(struct exchange *x, const struct doc_view *view)
{
    struct gateway *g = x->gateway;
    struct error error;
    bool map = strcmp(view->op, "map") == 0;
    bool *asking = map ? &g->asking_map : &g->asking_stats;
    if (!*asking && !rpc_async_call(g->control, view->op, NULL, DOCUMENT_MS,
                                    map ? on_map : on_stats, g, &error)) {
        exchange_error(x, &error, NULL);
        return;
    }
    *asking = true;
    x->view = view;
    x->next = g->waiting;
    g->waiting = x;
}

void documents_stats(struct exchange *x)
{
    wait_for(x, &views[VIEW_STATS]);
}

void documents_map(struct exchange *x)
{
    wait_for(x, &views[VIEW_MAP]);
}

void documents_page(struct exchange *x)
{
    wait_for(x, &views[VIEW_PAGE]);
}

void documents_metrics(struct exchange *x)
{
    wait_for(x, &views[VIEW_METRICS]);
}

/* "restarting" is well: what runs goes on, what comes waits a moment. */
void documents_health(struct exchange *x)
{
    const struct gateway *g = x->gateway;
    bool heard = g->state[0] && clock_now_ns() - g->state_ns < SILENCE_NS;
    const char *state = heard ? g->state : "unknown";
    bool ready = strcmp(state, "ready") == 0, well = ready || strcmp(state, "restarting") == 0;
    exchange_json(x, well ? MHD_HTTP_OK : MHD_HTTP_SERVICE_UNAVAILABLE,
                  json_pack("{s:s, s:s}", "status", well ? "ok" : "unavailable", "state", state));
}

void documents_models(struct exchange *x)
{
    struct error error;
    if (x->gateway->known) {
        exchange_json(x, MHD_HTTP_OK, answer_model(x->gateway));
        return;
    }
    error_set(&error, ERR_BUSY, "the engine is starting");
    exchange_error(x, &error, NULL);
}

/* ---- what the gateway itself wants to know --------------------------------------------------- */

static void on_status(void *arg, json_t *reply, const struct error *error)
{
    struct gateway *g = arg;
    OBJ_CHECK(g, GATEWAY_MAGIC);
    g->asking_status = false;
    if (error)
        return; /* it ages */
    snprintf(g->state, sizeof g->state, "%s", document_text(reply, "state"));
    g->state_ns = clock_now_ns();
}

static void on_model(void *arg, json_t *reply, const struct error *error)
{
    struct gateway *g = arg;
    OBJ_CHECK(g, GATEWAY_MAGIC);
    g->asking_model = false;
    if (error)
        return;
    api_model_name(document_text(reply, "model.path"), g->model_name, sizeof g->model_name);
    chat_describe(&g->chat, document_text(reply, "model.chat_template"),
                  document_text(reply, "model.chat_bos"), document_text(reply, "model.chat_eos"),
                  document_u64(reply, "model.chat_bos_first") != 0);
    g->known = true;
}

void documents_tend(struct gateway *g, uint64_t now_ns)
{
    struct error error;
    if (now_ns < g->status_due_ns)
        return;
    bool ready = strcmp(g->state, "ready") == 0;
    g->status_due_ns = now_ns + (ready ? STATUS_EVERY_NS : STATUS_SOON_NS);
    if (!g->asking_status)
        g->asking_status =
            rpc_async_call(g->control, "status", NULL, STATUS_MS, on_status, g, &error) != 0;
    if (!g->known && !g->asking_model)
        g->asking_model =
            rpc_async_call(g->control, "stats", NULL, STATUS_MS, on_model, g, &error) != 0;
}
