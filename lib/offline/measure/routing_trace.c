/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/offline/measure/routing_trace.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/assert.h"
#include "lib/policy/prediction/prediction.h"
#include "lib/tensor/precision.h"
#include "lib/tensor/tensor_type.h"

struct routing { /* of one window */
    const struct model_hparams *h;
    struct route *route; /* [layers][window][top_k] */
    uint32_t window;
    /* predictions; ahead = 0: none, all of these NULL */
    uint32_t ahead, list;           /* layers ahead; predictions per list */
    struct prediction *predictions; /* [layers][window][ahead][list], by source layer */
    const struct kernel_ops *ops;
    float *router, *logit_bias;          /* [layers][experts][hidden], [layers][experts] */
    const float *bias[MODEL_LAYERS_MAX]; /* of the router; NULL: none */
    float *logits, *scratch;
};

static void take(void *arg, const struct expert_step *step, const struct route *routes)
{
    struct routing *r = arg;
    uint32_t k = r->h->experts_used;
    sl_assert(step->position + step->rows <= r->window);
    memcpy(r->route + ((size_t)step->layer * r->window + step->position) * k, routes,
           (size_t)step->rows * k * sizeof *routes);
}

/* ---- predictions ---- */

static struct prediction *predictions_of(const struct routing *r, uint32_t layer, uint32_t at,
                                         uint32_t ahead)
{
    return r->predictions + (((size_t)layer * r->window + at) * r->ahead + ahead) * r->list;
}

static void predict_row(struct routing *r, uint32_t target, const float *x, struct prediction *out)
{
    const struct model_hparams *h = r->h;
    const struct kernel_matrix router = {.data =
                                             r->router + (size_t)target * h->experts * h->hidden,
                                         .row_bytes = h->hidden * sizeof(float),
                                         .k = h->hidden,
                                         .n = h->experts,
                                         .type = TENSOR_F32};
    r->ops->matmul(&router, 0, h->experts, x, h->hidden * sizeof(float), 1, r->logits, h->experts);
    r->ops->axpy(1.0f, r->logit_bias + (size_t)target * h->experts, h->experts, r->logits);
    struct model_router rule = model_router_of(h, r->bias[target]);
    struct prediction_input in = {.layer = target,
                                  .experts = h->experts,
                                  .top_k = h->experts_used,
                                  .want = r->list,
                                  .logits = r->logits,
                                  .router = &rule,
                                  .scratch = r->scratch};
    uint32_t n = prediction_run(prediction_method_of(PREDICTION_NEXT_LAYER), &in, out);
    sl_assert(n == r->list);
}

static void predict_next(void *arg, const struct expert_step *step, const float *x, size_t stride,
                         uint32_t n)
{
    struct routing *r = arg;
    (void)n;
    for (uint32_t row = 0; row < step->rows; row++)
        for (uint32_t a = 0; a < r->ahead && step->layer + 1 + a < r->h->layers; a++)
            predict_row(r, step->layer + 1 + a, x + row * stride,
                        predictions_of(r, step->layer, step->position + row, a));
}

/* False: out of memory. */
static bool make_guesser(struct routing *r, const struct offline_model *m, uint32_t ahead)
{
    const struct model_hparams *h = r->h;
    uint32_t above = h->experts - 1 - (uint32_t)(0.75 * (h->experts - 1)); /* size of Fate's list */
    if (ahead == 0)
        return true;
    r->ahead = ahead;
    r->list = above > h->experts_used ? above : h->experts_used;
    r->ops = kernel_ops_select(NULL);
    r->predictions =
        calloc((size_t)h->layers * r->window * ahead * r->list, sizeof *r->predictions);
    r->router = calloc((size_t)h->layers * h->experts * h->hidden, sizeof *r->router);
    r->logit_bias = calloc((size_t)h->layers * h->experts, sizeof *r->logit_bias);
    r->logits = calloc(h->experts, sizeof *r->logits);
    r->scratch = calloc(PREDICTION_SCRATCH(h->experts), sizeof *r->scratch);
    if (!r->predictions || !r->router || !r->logit_bias || !r->logits || !r->scratch)
        return false;
    for (uint32_t l = h->dense_layers; l < h->layers; l++) {
        uint32_t bias = model_entry_dense(offline_index(m), l, DENSE_ROUTER_BIAS);
        r->bias[l] = bias != ENTRY_NONE ? offline_dense(m, bias) : NULL;
        offline_logit_bias(m, l, r->logit_bias + (size_t)l * h->experts);
        for (uint32_t e = 0; e < h->experts; e++)
            offline_router_row(m, l, e, r->router + ((size_t)l * h->experts + e) * h->hidden);
    }
    return true;
}

static void free_routing(struct routing *r)
{
    free(r->route);
    free(r->predictions);
    free(r->router);
    free(r->logit_bias);
    free(r->logits);
    free(r->scratch);
}

/* ---- records ---- */

static struct trace_record *emit(struct trace *t, enum trace_kind kind, uint32_t sequence,
                                 uint32_t position, uint32_t tokens)
{
    struct trace_record *r = &t->records[t->count++];
    *r = (struct trace_record){
        .kind = (uint8_t)kind, .sequence = sequence, .position = position, .tokens = tokens};
    return r;
}

/* After the experts of the source layer, as the predictor runs concurrently with them. */
static void emit_predictions(struct trace *t, const struct routing *r, uint32_t sequence,
                             uint32_t at, uint32_t layer)
{
    for (uint32_t a = 0; a < r->ahead && layer + 1 + a < r->h->layers; a++)
        for (uint32_t i = 0; i < r->list; i++) {
            const struct prediction *prediction = predictions_of(r, layer, at, a) + i;
            struct trace_record *record = emit(t, TRACE_PREDICTED, sequence, at, 1);
            record->layer = (uint16_t)(layer + 1 + a);
            record->from_layer = (uint16_t)layer;
            record->expert = (uint16_t)prediction->expert;
            record->weight = prediction->probability;
            record->before = prediction->weight_before;
        }
}

static void emit_window(struct trace *t, const struct routing *r, uint32_t sequence)
{
    uint32_t k = r->h->experts_used;
    emit(t, TRACE_SEQUENCE_START, sequence, 0, 0);
    for (uint32_t at = 0; at < r->window; at++) {
        for (uint32_t layer = r->h->dense_layers; layer < r->h->layers; layer++) {
            for (uint32_t rank = 0; rank < k; rank++) {
                const struct route *x = &r->route[((size_t)layer * r->window + at) * k + rank];
                struct trace_record *record = emit(t, TRACE_EXPERT, sequence, at, 1);
                record->layer = (uint16_t)layer;
                record->expert = (uint16_t)x->expert;
                record->rank = (uint8_t)rank;
                record->weight = x->weight;
            }
            emit_predictions(t, r, sequence, at, layer);
        }
        emit(t, TRACE_TOKEN_END, sequence, at, 1);
    }
    emit(t, TRACE_SEQUENCE_END, sequence, r->window, 0);
}

static void describe(const struct offline_model *m, enum quant_method method,
                     struct trace_header *h)
{
    const struct model_hparams *hp = &offline_index(m)->hparams;
    uint32_t layer = model_expert_layer(offline_index(m), 0);
    trace_header_init(h);
    h->layers = hp->layers;
    h->dense_layers = hp->dense_layers;
    h->experts = hp->experts;
    h->top_k = hp->experts_used;
    h->precision_mask = (1u << PRECISION__COUNT) - 1;
    for (enum precision t = PRECISION_NATIVE; t < PRECISION__COUNT; t++)
        h->precision_bytes[t] = offline_expert_bytes(m, layer, 0, t, method);
}

static int route_text(struct offline_model *m, const struct offline_text *text, struct routing *r,
                      uint32_t threads, struct trace *out, struct error *error)
{
    struct offline_hooks hooks = {
        .arg = r, .routed = take, .gate_inputs = r->ahead ? predict_next : NULL};
    struct offline_runner_config config = {
        .threads = threads, .chunk = text->window, .context = text->window, .hooks = &hooks};
    struct offline_runner *runner = offline_runner_create(m, &config, error);
    int status = runner ? 0 : -1;
    for (uint32_t w = 0; w < text->windows && status == 0; w++) {
        status = core_forward(offline_core(runner), offline_sequence(runner),
                              offline_window(text, w), 0, text->window, error);
        if (status == 0)
            emit_window(out, r, w + 1);
    }
    offline_runner_destroy(runner);
    return status;
}

int offline_trace_predicted(struct offline_model *m, const struct offline_text *text,
                            enum quant_method method, uint32_t ahead, uint32_t threads,
                            struct trace *out, struct error *error)
{
    const struct model_hparams *h = &offline_index(m)->hparams;
    struct routing r = {.h = h, .window = text->window};
    *out = (struct trace){0};
    describe(m, method, &out->header);
    bool guessing = make_guesser(&r, m, ahead);
    size_t token = (size_t)h->layers * (h->experts_used + (size_t)r.ahead * r.list);
    r.route = calloc((size_t)h->layers * h->experts_used * text->window, sizeof *r.route);
    out->records = calloc(text->windows * ((token + 1) * text->window + 2), sizeof *out->records);
    int status = guessing && r.route && out->records
                     ? route_text(m, text, &r, threads, out, error)
                     : error_set(error, ERR_NO_MEMORY, "out of memory (trace of the text)");
    free_routing(&r);
    if (status != 0)
        trace_free(out);
    return status;
}

int offline_trace(struct offline_model *m, const struct offline_text *text,
                  enum quant_method method, struct trace *out, struct error *error)
{
    return offline_trace_predicted(m, text, method, 0, 1, out, error);
}
