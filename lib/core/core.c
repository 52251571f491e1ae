/* SPDX-License-Identifier: Apache-2.0 */
/* Creation of the core, the list of steps, and a forward pass. */
#include "lib/core/internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "lib/device/host/host.h"
#include "lib/model/limits.h"
#include "lib/tensor/tensor_type.h"

/* ---- steps ----------------------------------------------------------------------------------- */

static void publish_gate_inputs(struct core *c)
{
    c->source.gate_inputs(c->source.self, &c->step,
                          core_fetch_rows(c, core_gate_input(c), c->step.rows), c->hp.hidden,
                          c->hp.hidden);
}

static void layer_starts(struct core *c)
{
    core_take_sequences(c);
    c->step.routes = NULL;
    if (c->alone.on) {
        if (c->hp.router_first && model_layer_has_experts(c->model, c->step.layer))
            core_route_first(c);
        return;
    }
    if (c->source.layer_starts)
        c->source.layer_starts(c->source.self, &c->step);
    if (c->source.layer_inputs)
        c->source.layer_inputs(c->source.self, &c->step, core_fetch_rows(c, c->x, c->step.rows),
                               c->hp.hidden, c->hp.hidden);
    if (c->hp.router_first && model_layer_has_experts(c->model, c->step.layer)) {
        core_route_first(c);
        if (c->source.gate_inputs)
            publish_gate_inputs(c);
        core_experts_open(c); /* they are loaded during attention */
    }
}

static int attention_step(struct core *c, struct error *error)
{
    (void)error;
    layer_starts(c);
    core_attention(c);
    return 0;
}

static int mla_step(struct core *c, struct error *error)
{
    (void)error;
    layer_starts(c);
    core_mla(c);
    return 0;
}

static int deltanet_step(struct core *c, struct error *error)
{
    (void)error;
    layer_starts(c);
    core_deltanet(c);
    return 0;
}

static int shortconv_step(struct core *c, struct error *error)
{
    (void)error;
    layer_starts(c);
    core_shortconv(c);
    return 0;
}

static int experts_step(struct core *c, struct error *error)
{
    c->into = c->x;
    core_experts_gate(c);
    if (c->alone.on) {
        core_alone_experts(c);
        return 0;
    }
    if (c->source.gate_inputs && !c->hp.router_first)
        publish_gate_inputs(c);
    return core_experts(c, error);
}

static int dense_step(struct core *c, struct error *error)
{
    (void)error;
    c->into = c->x;
    core_dense_layer(c);
    return 0;
}

static int dense_and_experts_step(struct core *c, struct error *error)
{
    if (experts_step(c, error) != 0)
        return -1;
    core_join_parts(c);
    return 0;
}

/* What computes each part of a layer. */
static step_fn *const mixer_steps[] = {[MIXER_ATTENTION] = attention_step,
                                       [MIXER_DELTANET] = deltanet_step,
                                       [MIXER_SHORTCONV] = shortconv_step,
                                       [MIXER_MLA] = mla_step};
static step_fn *const ffn_steps[] = {[FFN_DENSE] = dense_step,
                                     [FFN_EXPERTS] = experts_step,
                                     [FFN_DENSE_AND_EXPERTS] = dense_and_experts_step};
_Static_assert(ARRAY_LEN(mixer_steps) == MIXER__COUNT, "a step for every mixer");
_Static_assert(ARRAY_LEN(ffn_steps) == FFN__COUNT, "a step for every feed-forward part");

static void make_steps(struct core *c)
{
    for (uint32_t layer = c->first; layer < c->end; layer++) {
        const struct layer_parts *parts = &c->model->layer[layer];
        c->steps[c->step_count++] = (struct core_step){mixer_steps[parts->mixer], layer};
        c->steps[c->step_count++] = (struct core_step){ffn_steps[parts->ffn], layer};
        c->two_ffn_parts |= parts->ffn == FFN_DENSE_AND_EXPERTS;
    }
}

/* ---- creation -------------------------------------------------------------------------------- */

static void alive(void *self)
{
    const struct core *c = self;
    c->source.alive(c->source.self);
}

static int make_constants(struct core *c, struct error *error)
{
    uint32_t n = c->hp.hidden;
    float *same = malloc(n * sizeof *same);
    if (!same)
        return error_set(error, ERR_NO_MEMORY, "out of memory (model core)");
    for (uint32_t i = 0; i < n; i++)
        same[i] = 1.0f;
    c->device->ops->write(c->device, c->ones, same, n * sizeof *same);
    for (uint32_t i = 0; i < n; i++)
        same[i] = 1.0f / sqrtf((float)n);
    c->device->ops->write(c->device, c->roots, same, n * sizeof *same);
    free(same);
    return 0;
}

static int allocate_scratch(struct core *c, const struct core_config *config, struct error *error)
{
    uint32_t chunk = config->chunk;
    struct core_bytes bytes = core_scratch_layout(c, chunk, NULL);
    while (config->scratch_limit && bytes.device + bytes.host > config->scratch_limit &&
           chunk > 1) {
        chunk = (chunk + 1) / 2;
        bytes = core_scratch_layout(c, chunk, NULL);
    }
    c->scratch = aligned_alloc(64, bytes.host);
    if (!c->scratch)
        return error_set(error, ERR_NO_MEMORY, "out of memory (%zu bytes of scratch for %u rows)",
                         bytes.host, chunk);
    if (c->device->ops->allocate(c->device, bytes.device, &c->memory, error) != 0)
        return -1;
    memset(c->scratch, 0, bytes.host); /* fault the pages in now, not in the first token */
    c->device->ops->clear(c->device, &(struct op_clear){.bytes = bytes.device, .y = c->memory});
    struct core_bytes used =
        core_scratch_layout(c, chunk, &(struct core_memory){c->memory, c->scratch});
    sl_assert(used.device == bytes.device && used.host == bytes.host);
    c->chunk = chunk;
    c->scratch_bytes = bytes.device + bytes.host;
    return make_constants(c, error);
}

_Static_assert(MODEL_ROW_MAX <= KERNEL_K_MAX, "kernels have buffers for the longest row");

static int check_sizes(const struct model_index *m, struct error *error)
{
    for (uint32_t layer = 0; layer < m->hparams.layers; layer++) {
        const struct layer_attention *a = &m->layer[layer].attention;
        if (a->key_size > KERNEL_HEAD_SIZE_MAX || a->value_size > KERNEL_VALUE_SIZE_MAX)
            return error_set(error, ERR_BAD_INPUT, "unsupported head size %u, %u (maximum %u, %u)",
                             a->key_size, a->value_size, KERNEL_HEAD_SIZE_MAX,
                             KERNEL_VALUE_SIZE_MAX);
    }
    return 0;
}

static struct core *allocate_core(const struct core_config *config)
{
    uint32_t layers = config->model->hparams.layers;
    struct core *c = calloc(1, sizeof *c);
    if (!c)
        return NULL;
    c->magic = CORE_MAGIC;
    c->model = config->model;
    c->hp = config->model->hparams;
    c->source = config->source;
    c->first = config->first_layer;
    c->end = config->layers ? c->first + config->layers : layers;
    sl_assert(c->first < c->end && c->end <= layers);
    c->prefill_order = config->prefill_order;
    c->output_bytes = config->output_bytes;
    c->residual = c->hp.residual_scale != 0 ? c->hp.residual_scale : 1.0f;
    c->layer = calloc(layers, sizeof *c->layer);
    c->steps = calloc(2 * (size_t)layers, sizeof *c->steps);
    if (!c->layer || !c->steps) {
        core_destroy(c);
        return NULL;
    }
    return c;
}

static int open_device(struct core *c, const struct core_config *config, struct error *error)
{
    c->device = config->device;
    if (!c->device) {
        c->device = host_device(config->ops, config->threads, config->nice, error);
        c->owns_device = true;
    }
    if (!c->device)
        return -1;
    device_enter(c->device);
    c->device->alive = c->source.alive ? alive : NULL;
    c->device->alive_self = c;
    return c->device->ops->allocate(c->device, core_vector_floats(c) * sizeof(float), &c->vectors,
                                    error);
}

struct core *core_create(const struct core_config *config, struct error *error)
{
    sl_assert(config->chunk >= 1 && (config->ops || config->device) && config->prefill_order);
    if (check_sizes(config->model, error) != 0)
        return NULL;
    struct core *c = allocate_core(config);
    if (!c) {
        error_set(error, ERR_NO_MEMORY, "out of memory (model core)");
        return NULL;
    }
    if (open_device(c, config, error) == 0 && core_bind(c, config, error) == 0) {
        make_steps(c);
        if (allocate_scratch(c, config, error) == 0)
            return c;
    }
    core_destroy(c);
    return NULL;
}

void core_destroy(struct core *c)
{
    if (!c)
        return;
    OBJ_CHECK(c, CORE_MAGIC);
    if (c->device) {
        device_enter(c->device);
        device_wait(c->device);
        c->device->ops->release(c->device, c->vectors);
        c->device->ops->release(c->device, c->memory);
        c->device->alive = NULL;
    }
    if (c->device && c->owns_device)
        c->device->ops->destroy(c->device);
    free(c->layer);
    free(c->steps);
    free(c->scratch);
    c->magic = 0;
    free(c);
}

void core_prefill_order(struct core *c, prefill_order_fn order)
{
    OBJ_CHECK(c, CORE_MAGIC);
    sl_assert(order);
    c->prefill_order = order;
}

uint32_t core_chunk(const struct core *c)
{
    return c->chunk;
}

size_t core_scratch_bytes(const struct core *c)
{
    return c->scratch_bytes;
}

uint32_t core_output_rows(const struct core *c)
{
    return c->output_rows;
}

void core_apply_norm(const struct kernel_ops *ops, const struct model_hparams *h, const float *x,
                     const float *weight, const float *bias, uint32_t n, float *y)
{
    host_norm(ops, (enum norm_kind)h->norm, h->rms_eps, x, weight, bias, n, y);
}

void core_apply_activation(const struct kernel_ops *ops, const struct model_hparams *h,
                           const float *gate, const float *up, uint32_t n, float *y)
{
    host_activate(ops, (enum ffn_activation)h->activation, gate, up, n, y);
}

/* ---- a pass ---------------------------------------------------------------------------------- */

void core_embed(struct core *c)
{
    const struct op_embed embed = {.rows = c->step.rows,
                                   .row = c->row,
                                   .w = c->embedding,
                                   .factor = c->hp.embedding_scale,
                                   .x = c->x};
    c->device->ops->embed(c->device, &embed);
}

/* The rows begin as the embeddings of their tokens, or as c->resumed. */
static void begin_rows(struct core *c)
{
    if (c->resumed)
        c->device->ops->write(c->device, c->x, c->resumed,
                              (size_t)c->step.rows * c->hp.hidden * sizeof(float));
    else
        core_embed(c);
}

void core_compute_angles(struct core *c)
{
    uint32_t rows = c->step.rows;
    for (uint32_t table = 0; table < LAYER_KIND__COUNT; table++) {
        bool factors = c->rope_has_factors[table];
        if (c->ropes[table].dims == 0)
            continue;
        const struct op_angles angles = {.rows = rows,
                                         .row = c->row,
                                         .rope = c->ropes[table],
                                         .factors =
                                             factors ? c->rope_factors : (struct device_at){0},
                                         .stride = c->rope_size,
                                         .y = core_angles(c, table)};
        c->device->ops->angles(c->device, &angles);
    }
}

/* Positions that the keys of a sequence have after this pass, or that a ring has. */
static uint32_t positions_of(const struct core *c, uint32_t sequence, uint32_t ring)
{
    uint32_t end = 0;
    for (uint32_t r = 0; r < c->step.rows && ring == 0; r++)
        if (c->row[r].sequence == sequence)
            end = c->row[r].position + 1;
    return ring > 0 ? ring : end;
}

/* The first row of the sequence in this pass is its first, or it has none. */
static bool begins(const struct core *c, uint32_t sequence)
{
    uint32_t row = 0;
    while (row < c->step.rows && c->row[row].sequence != sequence)
        row++;
    return row == c->step.rows || c->row[row].position == 0;
}

/* Keys or values of the current layer. The number of bytes matters where the device is not the host. */
static struct device_at share_side(struct core *c, uint32_t sequence, enum kv_side side,
                                   uint32_t ring)
{
    const struct core_sequence *s = &c->sequences[sequence];
    uint32_t layer = c->step.layer, positions = 0;
    void *const *all = side == KV_SIDE_KEYS ? s->keys : s->values;
    if (!c->device->is_host)
        positions = positions_of(c, sequence, ring);
    return device_share(c->device, all[layer],
                        (size_t)model_kv_bytes(&c->hp, layer, side, s->kv_type, positions));
}

static void share_state(struct core *c, uint32_t sequence)
{
    const struct core_sequence *s = &c->sequences[sequence];
    size_t floats = (size_t)model_state_floats(&c->hp);
    size_t at = core_layer_now(c)->state_number * floats;
    c->at[sequence].next_state =
        device_share(c->device, (float *)s->next_state + at, floats * sizeof(float));
    if (!begins(c, sequence))
        c->at[sequence].state =
            device_share(c->device, (const float *)s->state + at, floats * sizeof(float));
}

void core_take_sequences(struct core *c)
{
    const struct layer_attention *a = &core_layer_now(c)->attention;
    for (uint32_t i = 0; i < c->sequence_count; i++) {
        const struct core_sequence *s = &c->sequences[i];
        uint32_t ring = a->window > 0 ? s->ring : 0;
        c->at[i] = (struct device_sequence){.kv_type = s->kv_type,
                                            .ring = ring,
                                            .layer = c->step.layer,
                                            .content = c->sequence_count == 1 ? s->content : 0};
        if (core_layer_now(c)->conv.address) {
            share_state(c, i);
            continue;
        }
        c->at[i].keys = share_side(c, i, KV_SIDE_KEYS, ring);
        if (!a->values_in_keys)
            c->at[i].values = share_side(c, i, KV_SIDE_VALUES, ring);
    }
}

/* Layers [first, first + count) of a pass. */
static int run_steps(struct core *c, uint32_t first, uint32_t count, struct error *error)
{
    begin_rows(c);
    core_finite_begin(c);
    if (!c->resumed && core_finite_embeddings(c, error) != 0)
        return -1;
    core_compute_angles(c);
    uint32_t per_layer = c->step_count / (c->end - c->first),
             begin = (first - c->first) * per_layer;
    for (uint32_t i = begin; i < begin + count * per_layer; i++) {
        c->step.layer = c->steps[i].layer;
        if (c->steps[i].run(c, error) != 0)
            return -1;
        bool ends = (i - begin) % per_layer == per_layer - 1;
        if (ends && core_finite_layer(c, error) != 0)
            return -1;
    }
    return 0;
}

/* The same of the rows that take_rows took. */
static int run_layers(struct core *c, uint32_t first, uint32_t count, struct error *error)
{
    sl_assert(first >= c->first && first + count <= c->end && (first == 0 || c->resumed));
    device_enter(c->device);
    if (c->sequence_count == 1 && c->sequences->content > 0)
        device_begin(c->device, c->sequences->content, c->row[0].position, c->step.rows);
    c->alone.output = false;
    bool alone =
        count == c->hp.layers && !c->finds_layer && core_is_alone(c); /* a core of a part: never */
    int status = alone ? core_run_alone(c, error) : run_steps(c, first, count, error);
    if (status == 0 && !alone)
        core_fill_device(c);
    device_wait(c->device); /* keys, values and states are in host memory */
    return status;
}

static void begin_pass(struct core *c, const struct core_sequence *sequences, uint32_t count,
                       uint32_t number)
{
    sl_assert(count <= DEVICE_SEQUENCES_MAX);
    c->sequences = sequences;
    c->sequence_count = count;
    c->step = (struct expert_step){.pass = number ? number : ++c->passes, .row = c->source_row};
}

static void take_row(struct core *c, const struct core_row *row)
{
    uint32_t r = c->step.rows++;
    sl_assert(r < c->chunk && row->token < c->hp.vocab && row->sequence < c->sequence_count);
    bool continues = r > 0 && c->row[r - 1].sequence == row->sequence;
    c->row[r] = (struct device_row){
        .sequence = row->sequence, .position = row->position, .token = row->token};
    c->source_row[r] =
        (struct expert_row){.sequence = c->sequences[row->sequence].sequence,
                            .position = row->position,
                            .first = continues ? c->source_row[r - 1].first : row->position,
                            .prefill = row->prefill};
    c->step.prefill |= row->prefill;
    c->step.decode |= !row->prefill;
}

static void take_rows(struct core *c, const struct core_pass *pass)
{
    uint32_t decoding = 0;
    sl_assert(pass->rows >= 1);
    begin_pass(c, pass->sequences, pass->sequence_count, pass->number);
    for (uint32_t r = 0; r < pass->rows; r++) {
        take_row(c, &pass->row[r]);
        decoding += !pass->row[r].prefill;
    }
    sl_assert(decoding <= DECODE_ROWS_MAX);
}

int core_pass(struct core *c, const struct core_pass *pass, struct error *error)
{
    OBJ_CHECK(c, CORE_MAGIC);
    take_rows(c, pass);
    return run_layers(c, 0, c->hp.layers, error);
}

uint32_t core_pass_number(const struct core *c)
{
    return c->step.pass;
}

/* out NULL: the rows stay on the device. */
static int pass_layers(struct core *c, const struct core_pass *pass, uint32_t first, uint32_t count,
                       const float *in, float *out, struct error *error)
{
    OBJ_CHECK(c, CORE_MAGIC);
    take_rows(c, pass);
    c->resumed = first > 0 ? in : NULL;
    int status = run_layers(c, first, count, error);
    c->resumed = NULL;
    if (status == 0 && out)
        c->device->ops->read(c->device, c->x, out, (size_t)pass->rows * c->hp.hidden * sizeof *out);
    return status;
}

int core_pass_layers(struct core *c, const struct core_pass *pass, uint32_t first, uint32_t count,
                     float *x, struct error *error)
{
    return pass_layers(c, pass, first, count, x, count > 0 ? x : NULL, error);
}

int core_pass_part(struct core *c, const struct core_pass *pass, const float *x_in, float *x_out,
                   struct error *error)
{
    return pass_layers(c, pass, c->first, c->end - c->first, x_in,
                       c->end < c->hp.layers ? x_out : NULL, error);
}

int core_forward(struct core *c, const struct core_sequence *sequence, const uint32_t *tokens,
                 uint32_t position, uint32_t rows, struct error *error)
{
    OBJ_CHECK(c, CORE_MAGIC);
    bool prefill = core_rows_prefill(rows);
    sl_assert(rows >= 1);
    begin_pass(c, sequence, 1, 0);
    for (uint32_t r = 0; r < rows; r++)
        take_row(c, &(struct core_row){
                        .position = position + r, .token = tokens[r], .prefill = prefill});
    return run_layers(c, 0, c->hp.layers, error);
}

/* Logits of rows [row, row + rows), on the device. */
void core_compute_logits(struct core *c, uint32_t row, uint32_t rows)
{
    sl_assert(rows >= 1 && rows <= c->output_rows && row + rows <= c->step.rows);
    const struct op_norm norm = {.rows = rows,
                                 .kind = (enum norm_kind)c->hp.norm,
                                 .eps = c->hp.rms_eps,
                                 .x = device_floats_at(c->x, (uint64_t)row * c->hp.hidden),
                                 .weight = c->output_norm,
                                 .bias = c->output_norm_bias,
                                 .forms = c->output_forms,
                                 .y = c->last};
    const struct op_logits logits = {.rows = rows,
                                     .x = c->last,
                                     .w = c->output,
                                     .scale = c->output_scale,
                                     .bias = c->output_bias,
                                     .divisor = c->hp.logit_divisor,
                                     .cap = c->hp.logit_cap,
                                     .y = c->logits.at};
    c->device->ops->norm(c->device, &norm);
    c->device->ops->logits(c->device, &logits);
}

float *core_output(struct core *c, uint32_t row, uint32_t rows)
{
    OBJ_CHECK(c, CORE_MAGIC);
    device_enter(c->device);
    if (!c->alone.output)
        core_compute_logits(c, row, rows);
    return device_fetch(c->device, &c->logits, (size_t)rows * c->hp.vocab * sizeof(float));
}

float core_log_probability(const float *logits, uint32_t vocab, uint32_t token)
{
    return host_log_probability(logits, vocab, token);
}

void core_score(struct core *c, uint32_t row, uint32_t rows, const uint32_t *targets, float *out)
{
    OBJ_CHECK(c, CORE_MAGIC);
    device_enter(c->device);
    for (uint32_t done = 0; done < rows;) {
        uint32_t n = rows - done < c->output_rows ? rows - done : c->output_rows;
        if (c->source.alive) /* slow with a large vocabulary */
            c->source.alive(c->source.self);
        core_compute_logits(c, row + done, n);
        const struct op_score score = {.rows = n,
                                       .vocab = c->hp.vocab,
                                       .logits = c->logits.at,
                                       .token = targets + done,
                                       .y = c->scores.at};
        c->device->ops->score(c->device, &score);
        memcpy(out + done, device_fetch(c->device, &c->scores, n * sizeof *out), n * sizeof *out);
        done += n;
    }
}
