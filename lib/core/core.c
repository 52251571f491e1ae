/* SPDX-License-Identifier: Apache-2.0 */
/* Creation of the core, the list of steps, and a forward pass. */
#include "lib/core/internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "lib/exact/elementary.h"
#include "lib/model/limits.h"
#include "lib/tensor/tensor_type.h"

/* ---- steps ----------------------------------------------------------------------------------- */

static void layer_starts(struct core *c)
{
    if (c->source.layer_starts)
        c->source.layer_starts(c->source.self, &c->step);
    if (c->source.layer_inputs)
        c->source.layer_inputs(c->source.self, &c->step, c->x, c->hp.hidden, c->hp.hidden);
    if (c->hp.router_first && model_layer_has_experts(c->model, c->step.layer)) {
        core_route_first(c);
        if (c->source.gate_inputs)
            c->source.gate_inputs(c->source.self, &c->step, c->x, c->hp.hidden, c->hp.hidden);
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
    if (c->source.gate_inputs && !c->hp.router_first)
        c->source.gate_inputs(c->source.self, &c->step, core_gate_input(c, 0), c->hp.hidden,
                              c->hp.hidden);
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
    for (uint32_t layer = 0; layer < c->hp.layers; layer++) {
        const struct layer_parts *parts = &c->model->layer[layer];
        c->steps[c->step_count++] = (struct core_step){mixer_steps[parts->mixer], layer};
        c->steps[c->step_count++] = (struct core_step){ffn_steps[parts->ffn], layer};
        c->two_ffn_parts |= parts->ffn == FFN_DENSE_AND_EXPERTS;
    }
}

/* ---- creation -------------------------------------------------------------------------------- */

static int allocate_scratch(struct core *c, const struct core_config *config, struct error *error)
{
    uint32_t chunk = config->chunk;
    size_t bytes = core_scratch_layout(c, chunk, NULL);
    while (config->scratch_limit && bytes > config->scratch_limit && chunk > 1) {
        chunk = (chunk + 1) / 2;
        bytes = core_scratch_layout(c, chunk, NULL);
    }
    c->scratch = aligned_alloc(64, bytes);
    if (!c->scratch)
        return error_set(error, ERR_NO_MEMORY, "out of memory (%zu bytes of scratch for %u rows)",
                         bytes, chunk);
    memset(c->scratch, 0, bytes); /* fault the pages in now, not in the first token */
    core_scratch_layout(c, chunk, c->scratch);
    for (uint32_t i = 0; i < c->hp.hidden; i++) {
        c->ones[i] = 1.0f;
        c->roots[i] = 1.0f / sqrtf((float)c->hp.hidden);
    }
    c->chunk = chunk;
    c->scratch_bytes = bytes;
    return 0;
}

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

struct core *core_create(const struct core_config *config, struct error *error)
{
    const struct model_hparams *hp = &config->model->hparams;
    sl_assert(config->chunk >= 1 && config->ops && config->prefill_order);
    if (check_sizes(config->model, error) != 0)
        return NULL;
    struct core *c = calloc(1, sizeof *c);
    float *vectors = NULL;
    if (c) {
        *c = (struct core){.magic = CORE_MAGIC, .model = config->model, .hp = *hp};
        c->layer = calloc(hp->layers, sizeof *c->layer);
        c->thread = calloc(config->threads, sizeof *c->thread);
        c->steps = calloc(2 * (size_t)hp->layers, sizeof *c->steps);
        vectors = malloc(core_vector_floats(config->model) * sizeof *vectors);
    }
    if (!c || !c->layer || !c->thread || !c->steps || !vectors) {
        error_set(error, ERR_NO_MEMORY, "out of memory (model core)");
        free(vectors);
        core_destroy(c);
        return NULL;
    }
    c->ops = config->ops;
    c->source = config->source;
    c->prefill_order = config->prefill_order;
    c->threads = config->threads;
    c->residual = hp->residual_scale != 0 ? hp->residual_scale : 1.0f;
    c->vectors = vectors;
    core_bind(c, config, vectors);
    make_steps(c);
    c->pool = NULL;
    if (allocate_scratch(c, config, error) == 0)
        c->pool = pool_create(config->threads, config->nice, error);
    if (!c->pool) {
        core_destroy(c);
        return NULL;
    }
    return c;
}

void core_destroy(struct core *c)
{
    if (!c)
        return;
    OBJ_CHECK(c, CORE_MAGIC);
    pool_destroy(c->pool);
    free(c->vectors);
    free(c->layer);
    free(c->steps);
    free(c->thread);
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

void core_make_forms(const struct core *c, const struct form_rows *f, uint32_t row, uint32_t forms)
{
    const float *x = form_floats(f, row);
    for (int i = FORM_F32 + 1; i < FORM__COUNT; i++)
        if (forms & (1u << i))
            c->ops->activation(kernel_form_type((enum kernel_form)i), x, f->k,
                               f->base[i] + row * f->stride[i]);
}

void core_apply_norm(const struct kernel_ops *ops, const struct model_hparams *h, const float *x,
                     const float *weight, const float *bias, uint32_t n, float *y)
{
    if (h->norm == NORM_LAYER) {
        kernel_center(x, n, y);
        x = y;
    }
    ops->rms_norm(x, weight, n, h->rms_eps, y);
    if (bias)
        ops->axpy(1.0f, bias, n, y);
}

void core_norm(const struct core *c, const float *x, const float *weight, const float *bias,
               uint32_t n, float *y)
{
    core_apply_norm(c->ops, &c->hp, x, weight, bias, n, y);
}

void core_apply_activation(const struct kernel_ops *ops, const struct model_hparams *h,
                           const float *gate, const float *up, uint32_t n, float *y)
{
    switch ((enum ffn_activation)h->activation) {
    case ACTIVATION_SILU: ops->silu_mul(gate, up, n, y); return;
    case ACTIVATION_SWIGLU_CLAMPED: ops->swiglu_clamped(gate, up, n, y); return;
    case ACTIVATION_GELU: ops->gelu_mul(gate, up, n, y); return;
    case ACTIVATION_RELU: kernel_relu_mul(gate, up, n, y); return;
    case ACTIVATION__COUNT: break;
    }
    sl_panic("activation %u is in no table", h->activation);
}

void core_activate(const struct core *c, const float *gate, const float *up, uint32_t n, float *y)
{
    core_apply_activation(c->ops, &c->hp, gate, up, n, y);
}

void core_run_rows(struct core *c, uint32_t rows, pool_fn *fn)
{
    if (c->threads == 1 || rows < 2 * c->threads)
        fn(c, 0, 1);
    else
        pool_run(c->pool, fn, c);
}

void core_product(const struct core *c, const struct kernel_matrix *w, const float *scale,
                  uint32_t n_begin, uint32_t n_end, const void *x, size_t x_stride, uint32_t rows,
                  float *y, size_t y_stride)
{
    c->ops->matmul(w, n_begin, n_end, x, x_stride, rows, y, y_stride);
    if (!scale)
        return;
    for (uint32_t r = 0; r < rows; r++)
        for (uint32_t j = n_begin; j < n_end; j++)
            y[r * y_stride + j] *= *scale;
}

static void embed_row(struct core *c, uint32_t r)
{
    c->ops->row_to_f32(&c->embedding, c->row[r].token, core_x(c, r));
    for (uint32_t i = 0; c->hp.embedding_scale != 0 && i < c->hp.hidden; i++)
        core_x(c, r)[i] *= c->hp.embedding_scale;
}

/* The rows begin as the embeddings of their tokens, or as c->resumed. */
static void begin_rows(void *arg, uint32_t thread, uint32_t threads)
{
    struct core *c = arg;
    uint32_t begin, end;
    pool_share(c->step.rows, 1, thread, threads, &begin, &end);
    for (uint32_t r = begin; r < end; r++) {
        if (c->resumed)
            memcpy(core_x(c, r), c->resumed + (size_t)r * c->hp.hidden,
                   c->hp.hidden * sizeof(float));
        else
            embed_row(c, r);
        for (uint32_t table = 0; table < LAYER_KIND__COUNT; table++)
            if (c->ropes[table].dims != 0)
                kernel_rope_table(&c->ropes[table], c->row[r].position, core_angles(c, table, r));
    }
}

/* Layers [first, first + count) of the rows in c->row. */
static int run_layers(struct core *c, const struct core_sequence *sequences,
                      uint32_t sequence_count, uint32_t rows, uint32_t first, uint32_t count,
                      struct error *error)
{
    c->sequences = sequences;
    c->sequence_count = sequence_count;
    c->step = (struct expert_step){.sequence = sequences[c->row[0].sequence].sequence,
                                   .position = c->row[0].position,
                                   .rows = rows};
    core_run_rows(c, rows, begin_rows);
    uint32_t per_layer = c->step_count / c->hp.layers;
    for (uint32_t i = first * per_layer; i < (first + count) * per_layer; i++) {
        c->step.layer = c->steps[i].layer;
        if (c->steps[i].run(c, error) != 0)
            return -1;
    }
    return 0;
}

static void take_rows(struct core *c, const struct core_pass *pass)
{
    sl_assert(pass->rows >= 1 && pass->rows <= c->chunk);
    for (uint32_t r = 0; r < pass->rows; r++)
        sl_assert(pass->row[r].token < c->hp.vocab && pass->row[r].sequence < pass->sequence_count);
    memcpy(c->row, pass->row, pass->rows * sizeof *c->row);
}

int core_pass(struct core *c, const struct core_pass *pass, struct error *error)
{
    OBJ_CHECK(c, CORE_MAGIC);
    take_rows(c, pass);
    return run_layers(c, pass->sequences, pass->sequence_count, pass->rows, 0, c->hp.layers, error);
}

int core_pass_layers(struct core *c, const struct core_pass *pass, uint32_t first, uint32_t count,
                     float *x, struct error *error)
{
    OBJ_CHECK(c, CORE_MAGIC);
    sl_assert(first + count <= c->hp.layers);
    take_rows(c, pass);
    c->resumed = first > 0 ? x : NULL;
    int status =
        run_layers(c, pass->sequences, pass->sequence_count, pass->rows, first, count, error);
    c->resumed = NULL;
    if (status == 0 && count > 0)
        memcpy(x, c->x, (size_t)pass->rows * c->hp.hidden * sizeof *x);
    return status;
}

int core_forward(struct core *c, const struct core_sequence *sequence, const uint32_t *tokens,
                 uint32_t position, uint32_t rows, struct error *error)
{
    OBJ_CHECK(c, CORE_MAGIC);
    sl_assert(rows >= 1 && rows <= c->chunk);
    for (uint32_t r = 0; r < rows; r++) {
        sl_assert(tokens[r] < c->hp.vocab);
        c->row[r] = (struct core_row){.position = position + r, .token = tokens[r]};
    }
    return run_layers(c, sequence, 1, rows, 0, c->hp.layers, error);
}

static void output_norm_rows(struct core *c)
{
    for (uint32_t r = 0; r < c->output_count; r++) {
        core_norm(c, core_x(c, c->output_row + r), c->output_norm, c->output_norm_bias,
                  c->hp.hidden, form_floats(&c->last, r));
        core_make_forms(c, &c->last, r, c->output_forms);
    }
}

static void output_columns(void *arg, uint32_t thread, uint32_t threads)
{
    struct core *c = arg;
    uint32_t begin, end;
    pool_share(c->output.n, COLUMN_UNIT, thread, threads, &begin, &end);
    if (begin == end)
        return;
    core_product(c, &c->output, c->output_scale, begin, end, form_row(&c->last, c->output.type, 0),
                 form_stride(&c->last, c->output.type), c->output_count, c->logits, c->hp.vocab);
    for (uint32_t r = 0; r < c->output_count; r++) {
        float *logits = c->logits + (size_t)r * c->hp.vocab;
        if (c->output_bias)
            c->ops->axpy(1.0f, c->output_bias + begin, end - begin, logits + begin);
        for (uint32_t i = begin; c->hp.logit_divisor != 0 && i < end; i++)
            logits[i] /= c->hp.logit_divisor;
        if (c->hp.logit_cap != 0)
            c->ops->soft_cap(c->hp.logit_cap, logits + begin, end - begin, logits + begin);
    }
}

float *core_output(struct core *c, uint32_t row, uint32_t rows)
{
    OBJ_CHECK(c, CORE_MAGIC);
    sl_assert(rows >= 1 && rows <= c->output_rows && row + rows <= c->step.rows);
    c->output_row = row;
    c->output_count = rows;
    output_norm_rows(c);
    core_run_columns(c, c->output.n, c->output.k, rows, output_columns);
    return c->logits;
}

static double log_sum_exp(const float *x, uint32_t n)
{
    float max = x[0];
    for (uint32_t i = 1; i < n; i++)
        max = x[i] > max ? x[i] : max;
    double sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += exact_exp((double)x[i] - (double)max);
    return (double)max + exact_log(sum);
}

float core_log_probability(const float *logits, uint32_t vocab, uint32_t token)
{
    return (float)((double)logits[token] - log_sum_exp(logits, vocab));
}

static void score_rows(void *arg, uint32_t thread, uint32_t threads)
{
    struct core *c = arg;
    uint32_t begin, end;
    pool_share(c->output_count, 1, thread, threads, &begin, &end);
    for (uint32_t r = begin; r < end; r++)
        c->scores[r] =
            core_log_probability(c->logits + (size_t)r * c->hp.vocab, c->hp.vocab, c->targets[r]);
}

void core_score(struct core *c, uint32_t row, uint32_t rows, const uint32_t *targets, float *out)
{
    for (uint32_t done = 0; done < rows;) {
        uint32_t n = rows - done < c->output_rows ? rows - done : c->output_rows;
        core_alive(c, 0); /* slow with a large vocabulary */
        core_output(c, row + done, n);
        c->targets = targets + done;
        c->scores = out + done;
        pool_run(c->pool, score_rows, c);
        done += n;
    }
}
