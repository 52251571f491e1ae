#include "lib/offline/routing_trace.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/assert.h"

struct routing { /* of one window */
    const struct model_hparams *h;
    struct route *route; /* [layers][window][top_k] */
    uint32_t window;
};

static void take(void *arg, const struct expert_step *step, const struct route *routes)
{
    struct routing *r = arg;
    uint32_t k = r->h->experts_used;
    sl_assert(step->position + step->rows <= r->window);
    memcpy(r->route + ((size_t)step->layer * r->window + step->position) * k, routes,
           (size_t)step->rows * k * sizeof *routes);
}

static struct trace_record *emit(struct trace *t, enum trace_kind kind, uint32_t sequence,
                                 uint32_t position, uint32_t tokens)
{
    struct trace_record *r = &t->records[t->count++];
    *r = (struct trace_record){
        .kind = (uint8_t)kind, .sequence = sequence, .position = position, .tokens = tokens};
    return r;
}

static void emit_window(struct trace *t, const struct routing *r, uint32_t sequence)
{
    uint32_t k = r->h->experts_used;
    emit(t, TRACE_SEQUENCE_BEGIN, sequence, 0, 0);
    for (uint32_t at = 0; at < r->window; at++) {
        for (uint32_t layer = 0; layer < r->h->layers; layer++)
            for (uint32_t rank = 0; rank < k; rank++) {
                const struct route *x = &r->route[((size_t)layer * r->window + at) * k + rank];
                struct trace_record *record = emit(t, TRACE_EXPERT, sequence, at, 1);
                record->layer = (uint16_t)layer;
                record->expert = (uint16_t)x->expert;
                record->rank = (uint8_t)rank;
                record->weight = x->weight;
            }
        emit(t, TRACE_TOKEN_END, sequence, at, 1);
    }
    emit(t, TRACE_SEQUENCE_END, sequence, r->window, 0);
}

static void describe(const struct offline_model *m, enum quant_method method,
                     struct trace_header *h)
{
    const struct model_hparams *hp = &offline_index(m)->hparams;
    trace_header_init(h);
    h->layers = hp->layers;
    h->experts = hp->experts;
    h->top_k = hp->experts_used;
    h->tier_mask = (1u << TIER__COUNT) - 1;
    for (enum tier t = TIER_NATIVE; t < TIER__COUNT; t++)
        h->tier_bytes[t] = offline_expert_bytes(m, 0, 0, t, method);
}

static int route_text(struct offline_model *m, const struct offline_text *text, struct routing *r,
                      struct trace *out, struct error *error)
{
    struct offline_hooks hooks = {.arg = r, .routed = take};
    struct offline_runner_config config = {
        .threads = 1, .chunk = text->window, .context = text->window, .hooks = &hooks};
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

int offline_trace(struct offline_model *m, const struct offline_text *text,
                  enum quant_method method, struct trace *out, struct error *error)
{
    const struct model_hparams *h = &offline_index(m)->hparams;
    size_t token = (size_t)h->layers * h->experts_used;
    struct routing r = {.h = h, .window = text->window};
    *out = (struct trace){0};
    describe(m, method, &out->header);
    r.route = calloc(token * text->window, sizeof *r.route);
    out->records = calloc(text->windows * ((token + 1) * text->window + 2), sizeof *out->records);
    int status = r.route && out->records
                     ? route_text(m, text, &r, out, error)
                     : error_set(error, ERR_NO_MEMORY, "no memory for a trace of the text");
    free(r.route);
    if (status != 0)
        trace_free(out);
    return status;
}
