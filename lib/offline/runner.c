/* SPDX-License-Identifier: Apache-2.0 */
/* A core over a model: mapped, it never waits for weights; within a budget, for slots. */
#include <stdlib.h>
#include <string.h>

#include "lib/base/assert.h"
#include "lib/base/clock.h"
#include "lib/offline/internal.h"
#include "lib/tensor/precision.h"
#include "lib/tensor/tensor_type.h"

#define RUNNER_MAGIC 0x52554e4fu

/* Forms that rows choose: a precision each, or none. */
#define FORM_SKIP ((uint32_t)PRECISION__COUNT)
#define FORMS     (PRECISION__COUNT + 1)

/* Keys, values and state of a sequence. */
struct kept {
    void **side[KV_SIDE__COUNT]; /* per layer, `context` positions */
    void *state;                 /* recurrent */
};

struct offline_runner {
    uint32_t magic;
    struct offline_model *model;
    struct offline_hooks hooks;
    enum quant_method method;
    enum precision dense;
    struct core *core;
    bool one_layer; /* keys and values are those of the current layer */
    uint32_t sequences;
    struct kept *kept; /* [sequences] */
    struct core_sequence *sequence;
    /* within a budget */
    uint32_t worker, share; /* of all runners at work */
    uint8_t **slot;     /* [experts][FORMS] of the current layer: where it is; NULL: not pinned */
    uint8_t *stage;     /* made at the first use */
    uint64_t seen;      /* of slots_wait */
    uint64_t waited_ns; /* for experts, and making them */
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
    const struct offline_runner *r = of(self);
    if (r->hooks.pin_limit)
        return r->hooks.pin_limit;
    return r->model->slots ? slots_bytes(r->model->slots) / r->share : UINT64_MAX;
}

static bool source_resident(void *self, uint32_t layer, uint32_t expert)
{
    const struct offline_runner *r = of(self);
    const struct offline_hooks *h = &r->hooks;
    if (h->resident)
        return h->resident(h->arg, layer, expert);
    uint32_t number = layer * r->model->index->hparams.experts + expert;
    return !r->model->slots || slots_ready(r->model->slots, number, 0);
}

/* ---- experts in slots ---- */

static void form_of(const struct offline_runner *r, const struct expert_step *step,
                    const struct expert_item *item, struct offline_form *f)
{
    offline_form(r->model, step->layer, item->expert, item->precision, r->method, f);
}

static uint8_t **slot_of(const struct offline_runner *r, const struct expert_item *item)
{
    return &r->slot[(size_t)item->expert * FORMS + item->form];
}

/* Pins the item if it fits, without waiting; a form that must be made only with `make`. False: an
 * expert could not be read. */
static bool advance(struct offline_runner *r, const struct expert_step *step,
                    struct expert_item *item, bool make)
{
    struct slots *slots = r->model->slots;
    struct offline_form f;
    form_of(r, step, item, &f);
    uint8_t **at = slot_of(r, item);
    bool pinned = *at != NULL, ready = slots_ready(slots, f.slot.expert, f.slot.form);
    if (!pinned && !ready && f.slot.entry == ENTRY_NONE && !make)
        return true;
    if (!pinned) {
        uint8_t *got = NULL;
        enum slots_found found = slots_pin(slots, &f.slot, &got);
        ready = found == SLOTS_READY;
        if (found == SLOTS_MAKE) {
            r->stage = r->stage ? r->stage : offline_stage(r->model);
            struct error why;
            ready = offline_form_make(r->model, &f, got, r->stage, &why) == 0;
            slots_made(slots, &f.slot, ready ? NULL : &why);
        }
        if (found == SLOTS_FAILED)
            return false;
        *at = got;
    }
    if (!ready)
        return true;
    offline_form_matrices(&f, *at, item->matrix);
    item->state = ITEM_READY;
    return true;
}

static void pin_in_slots(struct offline_runner *r, const struct expert_step *step,
                         struct expert_item *item)
{
    item->state = ITEM_WAITED;
    sl_assert(!*slot_of(r, item));
    (void)advance(r, step, item, false); /* a failure is reported by wait */
}

/* Advances the waited items; true if one is ready. With `make`, until one is. */
static bool advance_all(struct offline_runner *r, const struct expert_step *step,
                        struct expert_item **items, uint32_t count, bool make)
{
    bool any = false;
    for (uint32_t i = 0; i < count && !(make && any); i++) {
        if (items[i]->state == ITEM_WAITED)
            (void)advance(r, step, items[i], make);
        any |= items[i]->state == ITEM_READY;
    }
    return any;
}

static int source_wait(void *self, const struct expert_step *step, struct expert_item **items,
                       uint32_t count, struct error *error)
{
    struct offline_runner *r = of(self);
    if (!r->model->slots)
        return error_set(error, ERR_FAILED, "internal error: a mapped model has no pending loads");
    uint64_t start = clock_now_ns();
    int status = 0;
    while (status == 0 && !advance_all(r, step, items, count, false) &&
           !advance_all(r, step, items, count, true))
        status = slots_wait(r->model->slots, &r->seen, error);
    r->waited_ns += clock_now_ns() - start;
    return status;
}

static int precision_of(const struct offline_hooks *h, const struct expert_step *step,
                        const struct expert_item *item)
{
    if (h->serve_row)
        return item->form == FORM_SKIP ? OFFLINE_SKIP : (int)item->form;
    return h->serve ? h->serve(h->arg, step, item) : PRECISION_NATIVE;
}

static uint32_t source_form(void *self, const struct expert_step *step, uint32_t row,
                            const struct route *route, float weight_before)
{
    const struct offline_hooks *h = &of(self)->hooks;
    int precision = h->serve_row(h->arg, step, row, route, weight_before);
    return precision == OFFLINE_SKIP ? FORM_SKIP : (uint32_t)precision;
}

static void source_pin(void *self, const struct expert_step *step, struct expert_item **items,
                       uint32_t count)
{
    struct offline_runner *r = of(self);
    if (r->model->slots)
        slots_at(r->model->slots, r->worker, step->layer);
    for (uint32_t i = 0; i < count; i++) {
        sl_assert(items[i]->state == ITEM_QUEUED);
        int precision = precision_of(&r->hooks, step, items[i]);
        if (precision == OFFLINE_SKIP) {
            items[i]->state = ITEM_SKIPPED;
            continue;
        }
        items[i]->precision = (enum precision)precision;
        if (r->model->slots) {
            pin_in_slots(r, step, items[i]);
            continue;
        }
        offline_matrices(r->model, step->layer, items[i]->expert, items[i]->precision, r->method,
                         items[i]->matrix);
        items[i]->state = ITEM_READY;
    }
}

static void source_unpin(void *self, const struct expert_step *step, struct expert_item *item)
{
    struct offline_runner *r = of(self);
    struct offline_form f;
    if (!r->model->slots || !*slot_of(r, item))
        return;
    form_of(r, step, item, &f);
    slots_unpin(r->model->slots, f.slot.expert, f.slot.form);
    *slot_of(r, item) = NULL;
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
                          const struct model_router *rule)
{
    of(self)->hooks.logits(of(self)->hooks.arg, step, logits, rule);
}

static void source_reroute(void *self, const struct expert_step *step, const float *logits,
                           const struct model_router *rule, struct route *routes)
{
    of(self)->hooks.reroute(of(self)->hooks.arg, step, logits, rule, routes);
}

static bool source_reroutes(void *self)
{
    return of(self)->hooks.reroute != NULL;
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
                                   .form = h->serve_row ? source_form : NULL,
                                   .mask = h->mask ? source_mask : NULL,
                                   .choice = h->choice ? source_choice : NULL,
                                   .routed = h->routed ? source_routed : NULL,
                                   .layer_inputs = h->layer_inputs ? source_layer_inputs : NULL,
                                   .gate_inputs = h->gate_inputs ? source_gate_inputs : NULL,
                                   .gate_input = h->gate_input ? source_gate_input : NULL,
                                   .logits = h->logits ? source_logits : NULL,
                                   .reroutes = source_reroutes,
                                   .reroute = source_reroute};
}

/* Keys or values: of every layer, or one for the largest, which all layers use in turn. */
static bool allocate_side(struct offline_runner *r, struct kept *k, uint32_t side,
                          enum kv_type type, uint32_t context)
{
    const struct model_hparams *hp = &r->model->index->hparams;
    size_t most = 1;
    void **of_layer = k->side[side] = calloc(hp->layers, sizeof *of_layer);
    if (!of_layer)
        return false;
    for (uint32_t i = 0; i < hp->layers; i++) {
        size_t bytes = (size_t)model_kv_bytes(hp, i, side, type, context);
        most = bytes > most ? bytes : most;
        if (!r->one_layer && !(of_layer[i] = calloc(bytes, 1)))
            return false;
    }
    void *shared = r->one_layer ? calloc(most, 1) : NULL;
    for (uint32_t i = 0; r->one_layer && i < hp->layers; i++)
        of_layer[i] = shared;
    return !r->one_layer || shared;
}

static bool allocate_kept(struct offline_runner *r, struct kept *k, enum kv_type type,
                          uint32_t context)
{
    for (uint32_t side = 0; side < KV_SIDE__COUNT; side++)
        if (!allocate_side(r, k, side, type, context))
            return false;
    k->state = calloc(1, (size_t)model_state_bytes(&r->model->index->hparams) + 1);
    return k->state != NULL;
}

static int allocate_kv(struct offline_runner *r, enum kv_type type, uint32_t context,
                       struct error *error)
{
    r->kept = calloc(r->sequences, sizeof *r->kept);
    r->sequence = calloc(r->sequences, sizeof *r->sequence);
    r->slot = calloc((size_t)r->model->index->hparams.experts * FORMS + 1, sizeof *r->slot);
    bool good = r->kept && r->sequence && r->slot;
    for (uint32_t i = 0; good && i < r->sequences; i++)
        good = allocate_kept(r, &r->kept[i], type, context);
    return good ? 0
                : error_set(error, ERR_NO_MEMORY, "out of memory (context of %u tokens)", context);
}

static void set_sequences(struct offline_runner *r, const struct offline_runner_config *config)
{
    for (uint32_t i = 0; i < r->sequences; i++) {
        const struct kept *k = &r->kept[i];
        r->sequence[i] = (struct core_sequence){.sequence = i + 1,
                                                .kv_type = config->kv_type,
                                                .keys = k->side[KV_SIDE_KEYS],
                                                .values = k->side[KV_SIDE_VALUES],
                                                .index = k->side[KV_SIDE_INDEX],
                                                .state = k->state,
                                                .next_state = k->state,
                                                .renormalise_skips = config->renormalise_skips};
    }
}

static void free_kept(const struct offline_runner *r, const struct kept *k)
{
    uint32_t layers = r->one_layer ? 1 : r->model->index->hparams.layers;
    for (uint32_t side = 0; side < KV_SIDE__COUNT; side++) {
        for (uint32_t i = 0; k->side[side] && i < layers; i++)
            free(k->side[side][i]);
        free(k->side[side]);
    }
    free(k->state);
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
    *r = (struct offline_runner){.magic = RUNNER_MAGIC,
                                 .model = m,
                                 .method = config->method,
                                 .dense = config->dense,
                                 .one_layer = config->one_layer,
                                 .sequences = config->sequences ? config->sequences : 1,
                                 .worker = config->worker,
                                 .share = config->share ? config->share : 1};
    if (config->hooks)
        r->hooks = *config->hooks;
    bool serves = r->hooks.serve || r->hooks.serve_row;
    enum tensor_type types[PRECISION__COUNT - 1];
    for (int t = 0; t < PRECISION__COUNT - 1; t++)
        types[t] = offline_type((enum precision)(t + 1), config->method);
    struct core_config core = {.model = offline_index_at(m, config->dense),
                               .ops = config->ops ? config->ops : m->ops,
                               .source = source_of(r),
                               .expert_types = serves ? types : NULL,
                               .expert_type_count = serves ? PRECISION__COUNT - 1 : 0,
                               .forms = r->hooks.serve_row ? FORMS : 1,
                               .threads = config->threads,
                               .chunk = config->chunk,
                               .positions = config->context,
                               .scratch_limit = config->scratch_limit,
                               .output_bytes = config->output_bytes,
                               .prefill_order = prefill_order_of(PREFILL_ORDER_POPULARITY)};
    if (allocate_kv(r, config->kv_type, config->context, error) == 0)
        r->core = core_create(&core, error);
    if (!r->core) {
        offline_runner_destroy(r);
        return NULL;
    }
    set_sequences(r, config);
    return r;
}

void offline_runner_destroy(struct offline_runner *r)
{
    if (!r)
        return;
    OBJ_CHECK(r, RUNNER_MAGIC);
    core_destroy(r->core);
    if (r->model->slots)
        slots_at(r->model->slots, r->worker, UINT32_MAX);
    for (uint32_t i = 0; r->kept && i < r->sequences; i++)
        free_kept(r, &r->kept[i]);
    free(r->kept);
    free(r->sequence);
    free(r->slot);
    free(r->stage);
    r->magic = 0;
    free(r);
}

struct core *offline_core(struct offline_runner *r)
{
    return r->core;
}

const struct core_sequence *offline_sequence(const struct offline_runner *r)
{
    return r->sequence;
}

const struct core_sequence *offline_sequences(const struct offline_runner *r)
{
    return r->sequence;
}

uint64_t offline_waited_ns(const struct offline_runner *r)
{
    return r->waited_ns;
}
