/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a text through the core on a device, and hashes the results. */
#include "tests/unit/lib/device/run.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "lib/base/assert.h"

#define CONTEXT    RUN_CONTEXT
#define TOKENS_MAX CONTEXT

/* A pointer as this run has it. */
static void *pointer(const struct run *r, const void *memory)
{
    return r->device ? tagged(memory) : (void *)memory;
}

static void note(struct run *r, const void *data, size_t bytes)
{
    XXH64_update(r->hash, data, bytes);
}

static void note_rows(struct run *r, const float *x, uint32_t rows, size_t stride, uint32_t n)
{
    for (uint32_t i = 0; i < rows; i++)
        note(r, x + i * stride, n * sizeof *x);
}

static const void *dense(void *self, uint32_t entry)
{
    struct run *r = self;
    return r->file.dense(r->file.self, entry);
}

static uint64_t pin_limit(void *self)
{
    struct run *r = self;
    return r->file.pin_limit(r->file.self);
}

static bool resident(void *self, uint32_t layer, uint32_t expert)
{
    struct run *r = self;
    return r->file.resident(r->file.self, layer, expert);
}

static void pin(void *self, const struct expert_step *step, struct expert_item **items,
                uint32_t count)
{
    struct run *r = self;
    r->file.pin(r->file.self, step, items, count);
}

static bool pin_ready(void *self, const struct expert_step *step, struct expert_item *item)
{
    struct run *r = self;
    return r->file.pin_ready(r->file.self, step, item);
}

static int wait(void *self, const struct expert_step *step, struct expert_item **items,
                uint32_t count, struct error *error)
{
    struct run *r = self;
    return r->file.wait(r->file.self, step, items, count, error);
}

static void unpin(void *self, const struct expert_step *step, struct expert_item *item)
{
    struct run *r = self;
    r->early += r->device && r->pending && r->pending(r->device) > 0;
    r->file.unpin(r->file.self, step, item);
}

/* All experts but one, which varies. */
static bool mask(void *self, const struct expert_step *step, bool *allowed)
{
    const struct run *r = self;
    const struct model_hparams *hp = &r->image->model->hparams;
    if (!r->masked || hp->experts == hp->experts_used)
        return false;
    for (uint32_t i = 0; i < hp->experts; i++)
        allowed[i] = i != (step->row->position + step->layer) % hp->experts;
    return true;
}

static void choice(void *self, const struct expert_step *step, const float *importance)
{
    struct run *r = self;
    (void)step;
    note(r, importance, r->image->model->hparams.experts * sizeof *importance);
}

static void gate_input(void *self, const struct expert_step *step, const float *x, uint32_t n)
{
    (void)step;
    note(self, x, n * sizeof *x);
}

static void logits(void *self, const struct expert_step *step, const float *z,
                   const struct model_router *rule)
{
    (void)step;
    note(self, z, rule->experts * sizeof *z);
    if (rule->bias)
        note(self, rule->bias, rule->experts * sizeof *rule->bias);
}

static void next_counts(void *self, const struct expert_step *step, const float *next,
                        uint32_t experts)
{
    (void)step;
    note(self, next, (size_t)2 * experts * sizeof *next);
}

static void rows_of(void *self, const struct expert_step *step, const float *x, size_t stride,
                    uint32_t n)
{
    note_rows(self, x, step->rows, stride, n);
}

static void routed(void *self, const struct expert_step *step, const struct route *routes)
{
    struct run *r = self;
    note(r, routes, (size_t)step->rows * r->image->model->hparams.experts_used * sizeof *routes);
}

static bool native(void *self, enum precision *precision)
{
    (void)self;
    *precision = PRECISION_NATIVE;
    return true;
}

/* Of a token that the device computes alone only the routes and the logits are known. */
static struct weights_source source_of(struct run *r)
{
    struct weights_source s = {.self = r,
                               .dense = dense,
                               .pin_limit = pin_limit,
                               .resident = resident,
                               .pin = pin,
                               .pin_ready = pin_ready,
                               .wait = wait,
                               .unpin = unpin,
                               .mask = mask,
                               .routed = routed};
    if (r->alone) {
        s.whole_on_device = native;
        s.used = routed;
        return s;
    }
    s.choice = choice;
    s.gate_input = gate_input;
    s.logits = logits;
    s.next_counts = next_counts;
    s.layer_inputs = s.gate_inputs = rows_of;
    return s;
}

static void open_core(struct run *r)
{
    struct error error;
    struct core_config config = {.model = r->image->model,
                                 .device = r->device,
                                 .ops = kernel_ops_select("auto"),
                                 .source = source_of(r),
                                 .threads = 2,
                                 .chunk = r->chunk,
                                 .positions = r->image->context,
                                 .prefill_order = prefill_order_of(PREFILL_ORDER_POPULARITY)};
    r->file = image_source_on(r->image, r->device);
    r->core = NULL;
    r->chain = NULL;
    if (r->part_count > 0)
        r->chain = chain_create(&config, r->parts, r->part_count, &error);
    else
        r->core = core_create(&config, &error);
    ck_assert_msg(r->core || r->chain, "%s", error.text);
}

static void forward(struct run *r, const struct core_sequence *sequence, const uint32_t *tokens,
                    uint32_t at, uint32_t rows)
{
    struct error error;
    int rc = r->chain ? chain_forward(r->chain, sequence, tokens, at, rows, &error)
                      : core_forward(r->core, sequence, tokens, at, rows, &error);
    ck_assert_msg(rc == 0, "%s", error.text);
}

/* Logits of all rows of a pass. */
static void note_output(struct run *r, uint32_t rows)
{
    uint32_t vocab = r->image->model->hparams.vocab;
    for (uint32_t row = 0; row < rows; row++)
        note(r, r->chain ? chain_output(r->chain, row, 1) : core_output(r->core, row, 1),
             vocab * sizeof(float));
}

/* A chunk in two halves of its layers. */
static void run_layers(struct run *r, const struct core_sequence *sequence, const uint32_t *tokens,
                       uint32_t at)
{
    struct core *core = r->core;
    const struct model_hparams *hp = &r->image->model->hparams;
    struct core_row row[RUN_CHUNK];
    struct error error;
    struct core_pass pass = {
        .sequences = sequence, .sequence_count = 1, .row = row, .rows = r->chunk};
    float *x = calloc((size_t)r->chunk * model_residual_floats(hp), sizeof *x);
    uint32_t half = hp->layers / 2;
    if (model_index_of(hp, half) == INDEX_BEFORE) /* it needs the choice of the layer before it */
        half++;
    for (uint32_t i = 0; i < r->chunk; i++)
        row[i] = (struct core_row){
            .position = at + i, .token = tokens[at + i], .prefill = core_rows_prefill(r->chunk)};
    ck_assert(x && core_pass_layers(core, &pass, 0, half, x, &error) == 0);
    note(r, x, (size_t)r->chunk * model_residual_floats(hp) * sizeof *x);
    ck_assert(core_pass_layers(core, &pass, half, hp->layers - half, x, &error) == 0);
    free(x);
}

static void run_text(struct run *r, const struct core_sequence *sequence)
{
    uint32_t tokens[TOKENS_MAX + 1], count = 3 * r->chunk + r->single,
                                     vocab = r->image->model->hparams.vocab;
    float scores[RUN_CHUNK];
    for (uint32_t i = 0; i <= count; i++)
        tokens[i] = i * 7919 % vocab;
    for (uint32_t at = 0, n; at < count; at += n) {
        n = at < 3 * r->chunk ? r->chunk : 1;
        if (at == r->chunk && r->core)
            run_layers(r, sequence, tokens, at);
        else
            forward(r, sequence, tokens + at, at, n);
        note_output(r, n);
        if (r->chain)
            chain_score(r->chain, 0, n, tokens + at + 1, scores);
        else
            core_score(r->core, 0, n, tokens + at + 1, scores);
        note(r, scores, n * sizeof *scores);
    }
}

/* What the host has of the sequence after the text. */
static void note_sequence(struct run *r, const struct core_sequence *s)
{
    const struct model_hparams *hp = &r->image->model->hparams;
    enum kv_type type = r->image->kv_type;
    note(r, r->image->state, (size_t)model_state_bytes(hp));
    for (uint32_t i = 0; i < hp->layers; i++) {
        note(r, s->keys[i], (size_t)model_kv_bytes(hp, i, KV_SIDE_KEYS, type, CONTEXT));
        note(r, s->values[i], (size_t)model_kv_bytes(hp, i, KV_SIDE_VALUES, type, CONTEXT));
        note(r, s->index[i], (size_t)model_kv_bytes(hp, i, KV_SIDE_INDEX, type, CONTEXT));
    }
}

/* Keys, values and states of an earlier run must not serve this one. */
static void forget_sequence(const struct image *image, const struct core_sequence *s)
{
    const struct model_hparams *hp = &image->model->hparams;
    enum kv_type type = image->kv_type;
    memset(image->state, 0xff, (size_t)model_state_bytes(hp));
    for (uint32_t i = 0; i < hp->layers; i++) {
        memset(s->keys[i], 0xff, (size_t)model_kv_bytes(hp, i, KV_SIDE_KEYS, type, CONTEXT));
        memset(s->values[i], 0xff, (size_t)model_kv_bytes(hp, i, KV_SIDE_VALUES, type, CONTEXT));
        memset(s->index[i], 0xff, (size_t)model_kv_bytes(hp, i, KV_SIDE_INDEX, type, CONTEXT));
    }
}

uint64_t run_hash(struct run *r)
{
    const struct model_hparams *hp = &r->image->model->hparams;
    struct core_sequence sequence = image_sequence(r->image);
    void *keys[MODEL_LAYERS_MAX], *values[MODEL_LAYERS_MAX], *index[MODEL_LAYERS_MAX];
    forget_sequence(r->image, &sequence);
    for (uint32_t i = 0; i < hp->layers; i++) {
        keys[i] = pointer(r, sequence.keys[i]);
        values[i] = pointer(r, sequence.values[i]);
        index[i] = pointer(r, sequence.index[i]);
    }
    sequence.content = r->content;
    sequence.keys = keys;
    sequence.values = values;
    sequence.index = index;
    sequence.state = sequence.next_state = pointer(r, r->image->state);
    r->hash = XXH64_createState();
    ck_assert_ptr_nonnull(r->hash);
    XXH64_reset(r->hash, 0);
    open_core(r);
    run_text(r, &sequence);
    core_destroy(r->core);
    chain_destroy(r->chain);
    sequence = image_sequence(r->image);
    note_sequence(r, &sequence);
    uint64_t hash = XXH64_digest(r->hash);
    XXH64_freeState(r->hash);
    ck_assert_msg(r->early == 0, "%u experts were given back early", r->early);
    return hash;
}
