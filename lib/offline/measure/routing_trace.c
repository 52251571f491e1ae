/* SPDX-License-Identifier: Apache-2.0 */
/* Records the routing of a text, layer by layer, in the order of a decode. */
#include "lib/offline/measure/routing_trace.h"

#include <float.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/assert.h"
#include "lib/offline/measure/evaluate.h"
#include "lib/policy/access/resident_first.h"
#include "lib/policy/prediction/prediction.h"
#include "lib/router/row.h"
#include "lib/tensor/precision.h"

/* The records of a window are in a fixed order and number, so that every layer fills in its own:
 * windows go through the model layer by layer, on all threads. */
struct routing {
    const struct model_hparams *h;
    const struct offline_text *text;
    struct trace *trace;
    uint32_t ahead, list; /* layers for which lists are made, 0: none; predictions of a list */
    uint32_t candidates;  /* of each access: for routing resident-first; 0: none */
    struct offline_model *model;
    struct tracer *worker[OFFLINE_WORKERS_MAX];
};

struct tracer { /* one worker */
    struct routing *all;
    uint32_t window;
    struct router_row *router; /* these are for predictions, else NULL */
    float *logits, *scratch;
    struct prediction *predictions; /* [list] */
    struct resident_first_work work;
};

/* ---- positions of records ---- */

/* Lists of predictions after a layer. */
static uint32_t lists_of(const struct routing *r, uint32_t layer)
{
    uint32_t lists = 0;
    while (lists < r->ahead && (layer = hparams_next_experts(r->h, layer + 1)) < r->h->layers)
        lists++;
    return lists;
}

/* Of a token, before the given layer. */
static uint64_t records_before(const struct routing *r, uint32_t layer)
{
    uint64_t n = 0;
    for (uint32_t l = hparams_next_experts(r->h, 0); l < layer;
         l = hparams_next_experts(r->h, l + 1))
        n += r->candidates + r->h->experts_used + (uint64_t)lists_of(r, l) * r->list;
    return n;
}

static uint64_t records_of_window(const struct routing *r)
{
    return 2 + r->text->window * (records_before(r, r->h->layers) + 1);
}

/* The first record of a layer of a token; layer = layers: the end of the token. */
static struct trace_record *records_at(const struct routing *r, uint32_t window, uint32_t at,
                                       uint32_t layer)
{
    return r->trace->records + window * records_of_window(r) + 1 +
           at * (records_before(r, r->h->layers) + 1) + records_before(r, layer);
}

static struct trace_record record(enum trace_kind kind, uint32_t window, uint32_t position,
                                  uint32_t tokens)
{
    return (struct trace_record){
        .kind = (uint8_t)kind, .sequence = window + 1, .position = position, .tokens = tokens};
}

/* ---- hooks ---- */

static void take(void *arg, const struct expert_step *step, const struct route *routes)
{
    const struct tracer *w = arg;
    const struct routing *r = w->all;
    uint32_t k = r->h->experts_used;
    sl_assert(step->row->position + step->rows <= r->text->window);
    for (uint32_t row = 0; row < step->rows; row++) {
        struct trace_record *out =
            records_at(r, w->window, step->row[row].position, step->layer) + r->candidates;
        for (uint32_t rank = 0; rank < k; rank++) {
            const struct route *x = &routes[(size_t)row * k + rank];
            out[rank] = record(TRACE_EXPERT, w->window, step->row[row].position, 1);
            out[rank].layer = (uint16_t)step->layer;
            out[rank].expert = (uint16_t)x->expert;
            out[rank].rank = (uint8_t)rank;
            out[rank].weight = x->weight;
        }
    }
}

/* w->predictions becomes r->list of them. There are fewer where a table names the experts: the last
 * one again, which is not loaded twice. */
static void predict_row(const struct tracer *w, uint32_t target, const float *x, uint32_t token)
{
    const struct routing *r = w->all;
    const struct model_hparams *h = r->h;
    struct model_router rule;
    bool known = router_row_logits(w->router, target, x, token, w->logits, &rule);
    sl_assert(known);
    struct prediction_input in = {.layer = target,
                                  .experts = h->experts,
                                  .top_k = h->experts_used,
                                  .want = r->list,
                                  .logits = w->logits,
                                  .router = &rule,
                                  .scratch = w->scratch};
    uint32_t n = prediction_run(prediction_method_of(PREDICTION_NEXT_LAYER), &in, w->predictions);
    sl_assert(n > 0 && n <= r->list);
    for (; n < r->list; n++)
        w->predictions[n] = w->predictions[n - 1];
}

/* Those that a token could be routed to, best first. There are fewer than wanted where a row uses
 * some groups only: the first one again, which cannot be chosen twice. */
static void list_candidates(const struct tracer *w, const struct expert_step *step, uint32_t row,
                            const float *x, struct trace_record *out)
{
    const struct routing *r = w->all;
    struct model_router rule;
    struct route exact[MODEL_TOP_K_MAX];
    struct routing_candidate *c = w->work.candidate;
    float *scratch = w->work.scratch;
    bool known =
        router_row_logits(w->router, step->layer, x, step->row[row].token, w->logits, &rule);
    sl_assert(known);
    routing_exact(&rule, w->logits, scratch, exact);
    uint32_t count = resident_first_candidates(&rule, w->logits, exact, FLT_MAX, scratch, c);
    routing_shares(&rule, w->logits, scratch);
    for (uint32_t i = 0; i < r->candidates; i++) {
        uint32_t expert = c[i < count ? i : 0].expert;
        out[i] = record(TRACE_CANDIDATE, w->window, step->row[row].position, 1);
        out[i].layer = (uint16_t)step->layer;
        out[i].expert = (uint16_t)expert;
        out[i].rank = (uint8_t)(i < UINT8_MAX ? i : UINT8_MAX);
        out[i].weight = scratch[expert];
        out[i].before = i < count ? c[i].margin : -FLT_MAX;
    }
}

/* After the experts of the source layer, as the predictor runs concurrently with them. */
static void predict_next(void *arg, const struct expert_step *step, const float *x, size_t stride,
                         uint32_t n)
{
    const struct tracer *w = arg;
    const struct routing *r = w->all;
    (void)n;
    for (uint32_t row = 0; row < step->rows; row++) {
        uint32_t at = step->row[row].position;
        struct trace_record *out = records_at(r, w->window, at, step->layer);
        uint32_t target = step->layer;
        list_candidates(w, step, row, x + row * stride, out);
        out += r->candidates + r->h->experts_used;
        for (uint32_t a = 0; a < lists_of(r, step->layer); a++) {
            target = hparams_next_experts(r->h, target + 1);
            predict_row(w, target, x + row * stride, step->row[row].token);
            for (uint32_t i = 0; i < r->list; i++, out++) {
                *out = record(TRACE_PREDICTED, w->window, at, 1);
                out->layer = (uint16_t)target;
                out->from_layer = (uint16_t)step->layer;
                out->expert = (uint16_t)w->predictions[i].expert;
                out->weight = w->predictions[i].probability;
                out->before = w->predictions[i].weight_before;
            }
        }
    }
}

static void worker_hooks(void *arg, uint32_t worker, struct offline_hooks *hooks)
{
    struct routing *r = arg;
    sl_assert(worker < OFFLINE_WORKERS_MAX && !r->worker[worker]);
    struct tracer *w = r->worker[worker] = calloc(1, sizeof *w);
    bool good = w;
    if (w && r->ahead > 0) {
        w->router = offline_router(r->model, kernel_ops_select(NULL));
        w->logits = calloc(r->h->experts, sizeof *w->logits);
        w->scratch = calloc(PREDICTION_SCRATCH(r->h->experts), sizeof *w->scratch);
        w->predictions = calloc(r->list, sizeof *w->predictions);
        good = resident_first_work_create(&w->work, r->h->experts) && w->router && w->logits &&
               w->scratch && w->predictions;
    }
    if (!good)
        log_fatal(1, "out of memory (trace of the text)");
    w->all = r;
    *hooks = (struct offline_hooks){
        .arg = w, .routed = take, .gate_inputs = r->ahead ? predict_next : NULL};
}

static void worker_starts(void *arg, uint32_t worker, uint32_t window)
{
    const struct routing *r = arg;
    r->worker[worker]->window = window;
}

/* ---- the text ---- */

static uint32_t list_of(const struct model_hparams *h)
{
    uint32_t above = h->experts - 1 - (uint32_t)(0.75 * (h->experts - 1)); /* size of Fate's list */
    return above > h->experts_used ? above : h->experts_used;
}

static void free_routing(struct routing *r)
{
    for (int i = 0; i < OFFLINE_WORKERS_MAX; i++) {
        if (!r->worker[i])
            continue;
        router_row_destroy(r->worker[i]->router);
        free(r->worker[i]->logits);
        free(r->worker[i]->scratch);
        free(r->worker[i]->predictions);
        resident_first_work_free(&r->worker[i]->work);
        free(r->worker[i]);
    }
}

/* The records that are not of a layer. */
static void frame_window(const struct routing *r, uint32_t window)
{
    uint32_t tokens = r->text->window;
    struct trace_record *first = r->trace->records + window * records_of_window(r);
    *first = record(TRACE_SEQUENCE_START, window, 0, 0);
    for (uint32_t at = 0; at < tokens; at++)
        *records_at(r, window, at, r->h->layers) = record(TRACE_TOKEN_END, window, at, 1);
    first[records_of_window(r) - 1] = record(TRACE_SEQUENCE_END, window, tokens, 0);
}

static void describe(const struct offline_model *m, enum quant_method method,
                     struct trace_header *h)
{
    const struct model_hparams *hp = &offline_index(m)->hparams;
    uint32_t layer = model_expert_layer(offline_index(m), 0);
    trace_header_init(h);
    h->layers = hp->layers;
    h->expert_layers = hparams_layers_with_experts(hp);
    h->experts = hp->experts;
    h->top_k = hp->experts_used;
    h->table_layers = hp->table_layers;
    h->precision_mask = (1u << PRECISION__COUNT) - 1;
    for (enum precision t = PRECISION_NATIVE; t < PRECISION__COUNT; t++)
        h->precision_bytes[t] = offline_expert_bytes(m, layer, 0, t, method);
}

static int route_text(struct offline_model *m, struct routing *r, uint32_t threads,
                      struct error *error)
{
    struct offline_evaluation e = {.model = m,
                                   .text = r->text,
                                   .threads = threads,
                                   .unscored = true,
                                   .hooks = worker_hooks,
                                   .starts = worker_starts,
                                   .arg = r};
    struct offline_losses losses;
    if (offline_evaluate(&e, &losses, error) != 0)
        return -1;
    offline_losses_free(&losses);
    for (uint32_t w = 0; w < r->text->windows; w++)
        frame_window(r, w);
    return 0;
}

int offline_trace_predicted(struct offline_model *m, const struct offline_text *text,
                            enum quant_method method, uint32_t ahead, uint32_t threads,
                            struct trace *out, struct error *error)
{
    const struct model_hparams *h = &offline_index(m)->hparams;
    struct routing r = {.h = h,
                        .text = text,
                        .trace = out,
                        .ahead = ahead,
                        .list = ahead ? list_of(h) : 0,
                        .candidates =
                            ahead ? resident_first_recorded(h->experts, h->experts_used) : 0,
                        .model = m};
    *out = (struct trace){0};
    describe(m, method, &out->header);
    out->count = text->windows * records_of_window(&r);
    if (offline_reserve(m, out->count * sizeof *out->records, "accesses of the text", error) != 0)
        return -1;
    out->records = calloc(out->count, sizeof *out->records);
    int status = out->records
                     ? route_text(m, &r, threads, error)
                     : error_set(error, ERR_NO_MEMORY, "out of memory (trace of the text)");
    free_routing(&r);
    if (status != 0)
        trace_free(out);
    return status;
}

int offline_trace(struct offline_model *m, const struct offline_text *text,
                  enum quant_method method, uint32_t threads, struct trace *out,
                  struct error *error)
{
    return offline_trace_predicted(m, text, method, 0, threads, out, error);
}
