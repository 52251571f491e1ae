/* SPDX-License-Identifier: Apache-2.0 */
/* A core over a model in memory: it never waits for weights. */
#include <stdlib.h>
#include <string.h>

#include "lib/base/assert.h"
#include "lib/offline/internal.h"
#include "lib/tensor/precision.h"
#include "lib/tensor/tensor_type.h"

#define RUNNER_MAGIC 0x52554e4fu

struct offline_runner {
    uint32_t magic;
    struct offline_model *model;
    struct offline_hooks hooks;
    enum quant_method method;
    enum precision dense;
    struct core *core;
    void **keys, **values; /* per layer, `context` positions */
    void *state;           /* recurrent, of the sequence */
    struct core_sequence sequence;
};

static struct offline_runner *of(void *self)
{
    struct offline_runner *r = self;
    OBJ_CHECK(r, RUNNER_MAGIC);
    return r;
}

static const void *source_dense(void *self, uint32_t entry)
{
    return offline_dense_at(of(self)->model, entry, of(self)->dense);
}

static uint64_t source_pin_limit(void *self)
{
    uint64_t pin_limit = of(self)->hooks.pin_limit;
    return pin_limit ? pin_limit : UINT64_MAX;
}

static bool source_resident(void *self, uint32_t layer, uint32_t expert)
{
    const struct offline_hooks *h = &of(self)->hooks;
    return h->resident ? h->resident(h->arg, layer, expert) : true;
}

static void source_pin(void *self, const struct expert_step *step, struct expert_item **items,
                       uint32_t count)
{
    struct offline_runner *r = of(self);
    const struct offline_hooks *h = &r->hooks;
    for (uint32_t i = 0; i < count; i++) {
        sl_assert(items[i]->state == ITEM_QUEUED);
        int precision = h->serve ? h->serve(h->arg, step, items[i]) : PRECISION_NATIVE;
        if (precision == OFFLINE_SKIP) {
            items[i]->state = ITEM_SKIPPED;
            continue;
        }
        items[i]->precision = (enum precision)precision;
        offline_matrices(r->model, step->layer, items[i]->expert, items[i]->precision, r->method,
                         items[i]->matrix);
        items[i]->state = ITEM_READY;
    }
}

static int source_wait(void *self, const struct expert_step *step, struct expert_item **items,
                       uint32_t count, struct error *error)
{
    (void)self, (void)step, (void)items, (void)count;
    return error_set(error, ERR_FAILED, "internal error: an offline model has no pending loads");
}

static void source_unpin(void *self, const struct expert_step *step, struct expert_item *item)
{
    (void)self, (void)step;
    sl_assert(item->state == ITEM_READY);
}

static bool source_mask(void *self, const struct expert_step *step, bool *allowed)
{
    return of(self)->hooks.mask(of(self)->hooks.arg, step, allowed);
}

static void source_choice(void *self, const struct expert_step *step, const float *importance)
{
    of(self)->hooks.choice(of(self)->hooks.arg, step, importance);
}

static void source_routed(void *self, const struct expert_step *step, const struct route *routes)
{
    of(self)->hooks.routed(of(self)->hooks.arg, step, routes);
}

static void source_layer_inputs(void *self, const struct expert_step *step, const float *x,
                                size_t stride, uint32_t n)
{
    of(self)->hooks.layer_inputs(of(self)->hooks.arg, step, x, stride, n);
}

static void source_gate_inputs(void *self, const struct expert_step *step, const float *x,
                               size_t stride, uint32_t n)
{
    of(self)->hooks.gate_inputs(of(self)->hooks.arg, step, x, stride, n);
}

static void source_gate_input(void *self, const struct expert_step *step, const float *x,
                              uint32_t n)
{
    of(self)->hooks.gate_input(of(self)->hooks.arg, step, x, n);
}

static void source_logits(void *self, const struct expert_step *step, const float *logits,
                          uint32_t experts)
{
    of(self)->hooks.logits(of(self)->hooks.arg, step, logits, experts);
}

static struct weights_source source_of(struct offline_runner *r)
{
    const struct offline_hooks *h = &r->hooks;
    return (struct weights_source){.self = r,
                                   .dense = source_dense,
                                   .pin_limit = source_pin_limit,
                                   .resident = source_resident,
                                   .pin = source_pin,
                                   .wait = source_wait,
                                   .unpin = source_unpin,
                                   .mask = h->mask ? source_mask : NULL,
                                   .choice = h->choice ? source_choice : NULL,
                                   .routed = h->routed ? source_routed : NULL,
                                   .layer_inputs = h->layer_inputs ? source_layer_inputs : NULL,
                                   .gate_inputs = h->gate_inputs ? source_gate_inputs : NULL,
                                   .gate_input = h->gate_input ? source_gate_input : NULL,
                                   .logits = h->logits ? source_logits : NULL};
}

static int allocate_kv(struct offline_runner *r, enum kv_type type, uint32_t context,
                       struct error *error)
{
    const struct model_hparams *hp = &r->model->index->hparams;
    r->keys = calloc(hp->layers, sizeof *r->keys);
    r->values = calloc(hp->layers, sizeof *r->values);
    r->state = calloc(1, (size_t)model_state_bytes(hp) + 1);
    bool good = r->keys && r->values && r->state;
    for (uint32_t i = 0; good && i < hp->layers; i++) {
        r->keys[i] = calloc((size_t)model_kv_bytes(hp, i, KV_SIDE_KEYS, type, context), 1);
        r->values[i] = calloc((size_t)model_kv_bytes(hp, i, KV_SIDE_VALUES, type, context), 1);
        good = r->keys[i] && r->values[i];
    }
    return good ? 0
                : error_set(error, ERR_NO_MEMORY, "out of memory (context of %u tokens)", context);
}

struct offline_runner *offline_runner_create(struct offline_model *m,
                                             const struct offline_runner_config *config,
                                             struct error *error)
{
    OBJ_CHECK(m, OFFLINE_MAGIC);
    struct offline_runner *r = calloc(1, sizeof *r);
    if (!r) {
        error_set(error, ERR_NO_MEMORY, "out of memory (core)");
        return NULL;
    }
    *r = (struct offline_runner){
        .magic = RUNNER_MAGIC, .model = m, .method = config->method, .dense = config->dense};
    if (config->hooks)
        r->hooks = *config->hooks;
    enum tensor_type types[PRECISION__COUNT - 1];
    for (int t = 0; t < PRECISION__COUNT - 1; t++)
        types[t] = offline_type((enum precision)(t + 1), config->method);
    struct core_config core = {.model = offline_index_at(m, config->dense),
                               .ops = config->ops ? config->ops : m->ops,
                               .source = source_of(r),
                               .expert_types = r->hooks.serve ? types : NULL,
                               .expert_type_count = r->hooks.serve ? PRECISION__COUNT - 1 : 0,
                               .threads = config->threads,
                               .chunk = config->chunk,
                               .prefill_order = prefill_order_of(PREFILL_ORDER_POPULARITY)};
    if (allocate_kv(r, config->kv_type, config->context, error) == 0)
        r->core = core_create(&core, error);
    if (!r->core) {
        offline_runner_destroy(r);
        return NULL;
    }
    r->sequence = (struct core_sequence){.sequence = 1,
                                         .kv_type = config->kv_type,
                                         .keys = r->keys,
                                         .values = r->values,
                                         .state = r->state,
                                         .next_state = r->state,
                                         .renormalise_skips = config->renormalise_skips};
    return r;
}

void offline_runner_destroy(struct offline_runner *r)
{
    if (!r)
        return;
    OBJ_CHECK(r, RUNNER_MAGIC);
    core_destroy(r->core);
    for (uint32_t i = 0; i < r->model->index->hparams.layers; i++) {
        if (r->keys)
            free(r->keys[i]);
        if (r->values)
            free(r->values[i]);
    }
    free(r->keys);
    free(r->values);
    free(r->state);
    r->magic = 0;
    free(r);
}

struct core *offline_core(struct offline_runner *r)
{
    return r->core;
}

const struct core_sequence *offline_sequence(const struct offline_runner *r)
{
    return &r->sequence;
}
