/* SPDX-License-Identifier: Apache-2.0 */
/* Creation of the core, and the order of a forward pass. */
#include "lib/core/internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "lib/exact/elementary.h"
#include "lib/model/limits.h"
#include "lib/tensor/tensor_type.h"

static const struct model_tensor *tensor_of(const struct core *c, uint32_t entry, uint32_t extent)
{
    return &model_index_tensors(
        c->model)[model_index_entries(c->model)[entry].extent[extent].tensor];
}

static struct kernel_matrix matrix_of(const struct model_tensor *t, const void *data)
{
    return (struct kernel_matrix){.data = data,
                                  .row_bytes = t->row_bytes,
                                  .k = (uint32_t)t->ne[0],
                                  .n = (uint32_t)t->ne[1],
                                  .type = (enum tensor_type)t->type};
}

static struct kernel_matrix dense_matrix(struct core *c, uint32_t layer, enum dense_role role)
{
    uint32_t entry = model_entry_dense(c->model, layer, role);
    sl_assert(entry != ENTRY_NONE);
    return matrix_of(tensor_of(c, entry, 0), c->source.dense(c->source.self, entry));
}

/* Vectors of a layer and their fields. A model has those that its architecture names. */
static const struct {
    enum dense_role role;
    size_t field; /* offset of a const float * in struct core_layer */
} layer_vectors[] = {
    {DENSE_ATTN_NORM, offsetof(struct core_layer, attn_norm)},
    {DENSE_FFN_NORM, offsetof(struct core_layer, ffn_norm)},
    {DENSE_ATTN_Q_NORM, offsetof(struct core_layer, q_norm)},
    {DENSE_ATTN_K_NORM, offsetof(struct core_layer, k_norm)},
    {DENSE_ATTN_Q_BIAS, offsetof(struct core_layer, q_bias)},
    {DENSE_ATTN_K_BIAS, offsetof(struct core_layer, k_bias)},
    {DENSE_ATTN_V_BIAS, offsetof(struct core_layer, v_bias)},
    {DENSE_ATTN_Q_SCALE, offsetof(struct core_layer, q_scale)},
    {DENSE_ATTN_K_SCALE, offsetof(struct core_layer, k_scale)},
    {DENSE_ATTN_V_SCALE, offsetof(struct core_layer, v_scale)},
    {DENSE_ATTN_OUT_SCALE, offsetof(struct core_layer, out_scale)},
    {DENSE_SHARED_GATE_SCALE, offsetof(struct core_layer, shared_scale[EXPERT_GATE])},
    {DENSE_SHARED_UP_SCALE, offsetof(struct core_layer, shared_scale[EXPERT_UP])},
    {DENSE_SHARED_DOWN_SCALE, offsetof(struct core_layer, shared_scale[EXPERT_DOWN])},
    {DENSE_EXPERT_GATE_SCALES, offsetof(struct core_layer, expert_scales[EXPERT_GATE])},
    {DENSE_EXPERT_UP_SCALES, offsetof(struct core_layer, expert_scales[EXPERT_UP])},
    {DENSE_EXPERT_DOWN_SCALES, offsetof(struct core_layer, expert_scales[EXPERT_DOWN])},
};

/* Vectors are copied: they are small, used everywhere, and unaligned in the file. */
static const float *dense_vector(struct core *c, uint32_t layer, enum dense_role role, float **at)
{
    if (model_entry_dense(c->model, layer, role) == ENTRY_NONE)
        return NULL;
    struct kernel_matrix m = dense_matrix(c, layer, role);
    float *copy = *at;
    c->ops->row_to_f32(&m, 0, copy);
    *at += m.k;
    return copy;
}

static size_t vector_floats(const struct model_index *model)
{
    /* of the whole model: output norm, rope factors and the output's scale */
    size_t floats = model->hparams.hidden + model->hparams.head_size / 2 + 1;
    for (uint32_t layer = 0; layer < model->hparams.layers; layer++)
        for (size_t i = 0; i < ARRAY_LEN(layer_vectors); i++) {
            uint32_t entry = model_entry_dense(model, layer, layer_vectors[i].role);
            if (entry != ENTRY_NONE)
                floats +=
                    model_index_tensors(model)[model_index_entries(model)[entry].extent[0].tensor]
                        .ne[0];
        }
    return floats;
}

/* Experts of a layer may differ in type and in page alignment. */
static void bind_experts(struct core *c, uint32_t layer)
{
    struct core_layer *l = &c->layer[layer];
    for (uint32_t i = c->model->dense_count; i < c->model->entry_count; i++) {
        const struct model_entry *e = &model_index_entries(c->model)[i];
        if (e->layer != layer)
            continue;
        if (e->slot_bytes > c->expert_slot_bytes[layer])
            c->expert_slot_bytes[layer] = e->slot_bytes;
        l->expert_forms |= 1u << kernel_form_of((enum tensor_type)e->matrix[EXPERT_GATE].type) |
                           1u << kernel_form_of((enum tensor_type)e->matrix[EXPERT_UP].type);
        l->inner_forms |= 1u << kernel_form_of((enum tensor_type)e->matrix[EXPERT_DOWN].type);
    }
}

static void bind_more_types(struct core *c, const struct core_config *config)
{
    uint32_t forms = 0;
    for (size_t i = 0; i < config->expert_type_count; i++)
        forms |= 1u << kernel_form_of(config->expert_types[i]);
    for (uint32_t i = 0; i < c->hp.layers; i++) {
        c->layer[i].expert_forms |= forms;
        c->layer[i].inner_forms |= forms;
        c->layer[i].gate_forms |= forms;
    }
}

static void bind_shared(struct core *c, uint32_t i)
{
    static const enum dense_role roles[EXPERT__COUNT] = {DENSE_SHARED_GATE, DENSE_SHARED_UP,
                                                         DENSE_SHARED_DOWN};
    struct core_layer *l = &c->layer[i];
    for (int m = 0; m < EXPERT__COUNT; m++)
        l->shared[m] = dense_matrix(c, i, roles[m]);
    l->shared_router = dense_matrix(c, i, DENSE_SHARED_ROUTER);
    l->gate_forms |= form_bit(&l->shared_router) | form_bit(&l->shared[EXPERT_GATE]) |
                     form_bit(&l->shared[EXPERT_UP]);
    l->shared_forms = form_bit(&l->shared[EXPERT_DOWN]);
}

static void bind_layer(struct core *c, uint32_t i, float **vectors)
{
    struct core_layer *l = &c->layer[i];
    for (size_t v = 0; v < ARRAY_LEN(layer_vectors); v++) {
        const float *vector = dense_vector(c, i, layer_vectors[v].role, vectors);
        memcpy((char *)l + layer_vectors[v].field, &vector, sizeof vector);
    }
    sl_assert(c->hp.qk_norm != QK_NORM_ROW ||
              (!l->q_bias && !l->k_bias)); /* the order of bias and norm is undefined */
    l->q = dense_matrix(c, i, DENSE_ATTN_Q);
    l->k = dense_matrix(c, i, DENSE_ATTN_K);
    l->v = dense_matrix(c, i, DENSE_ATTN_V);
    l->out = dense_matrix(c, i, DENSE_ATTN_OUT);
    l->router = dense_matrix(c, i, DENSE_ROUTER);
    bind_experts(c, i);
    if (c->hp.shared_inner > 0)
        bind_shared(c, i);
    l->in_forms = form_bit(&l->q) | form_bit(&l->k) | form_bit(&l->v);
    l->mix_forms = form_bit(&l->out);
    l->gate_forms |= form_bit(&l->router) | l->expert_forms;
}

static void bind_weights(struct core *c, float *vectors)
{
    uint32_t globals = c->hp.layers;
    for (uint32_t i = 0; i < c->hp.layers; i++)
        bind_layer(c, i, &vectors);
    c->embedding = dense_matrix(c, globals, DENSE_TOKEN_EMBD);
    c->output = model_entry_dense(c->model, globals, DENSE_OUTPUT) == ENTRY_NONE
                    ? c->embedding
                    : dense_matrix(c, globals, DENSE_OUTPUT);
    c->output_norm = dense_vector(c, globals, DENSE_OUTPUT_NORM, &vectors);
    c->rope_factors = dense_vector(c, globals, DENSE_ROPE_FREQS, &vectors);
    c->output_scale = dense_vector(c, globals, DENSE_OUTPUT_SCALE, &vectors);
    c->output_forms = form_bit(&c->output);
}

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
    c->chunk = chunk;
    c->scratch_bytes = bytes;
    return 0;
}

struct core *core_create(const struct core_config *config, struct error *error)
{
    const struct model_hparams *hp = &config->model->hparams;
    sl_assert(config->chunk >= 1 && config->ops && config->prefill_order);
    if (hp->head_size > KERNEL_HEAD_SIZE_MAX) {
        error_set(error, ERR_BAD_INPUT, "unsupported head size %u (maximum %u)", hp->head_size,
                  KERNEL_HEAD_SIZE_MAX);
        return NULL;
    }
    struct core *c = calloc(1, sizeof *c);
    float *vectors = NULL;
    if (c) {
        *c = (struct core){.magic = CORE_MAGIC, .model = config->model, .hp = *hp};
        c->layer = calloc(hp->layers, sizeof *c->layer);
        c->thread = calloc(config->threads, sizeof *c->thread);
        vectors = malloc(vector_floats(config->model) * sizeof *vectors);
    }
    if (!c || !c->layer || !c->thread || !vectors) {
        error_set(error, ERR_NO_MEMORY, "out of memory (model core)");
        free(vectors);
        core_destroy(c);
        return NULL;
    }
    c->ops = config->ops;
    c->source = config->source;
    c->prefill_order = config->prefill_order;
    c->threads = config->threads;
    c->q_size = hp->heads * hp->head_size;
    c->kv_size = hp->kv_heads * hp->head_size;
    c->group = hp->heads / hp->kv_heads;
    bind_weights(c, vectors);
    bind_more_types(c, config);
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
    if (c->layer)
        free((void *)(uintptr_t)c->layer[0].attn_norm); /* start of the allocation of all vectors */
    free(c->layer);
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

static void embed_rows(void *arg, uint32_t thread, uint32_t threads)
{
    struct core *c = arg;
    uint32_t begin, end;
    pool_share(c->step.rows, 1, thread, threads, &begin, &end);
    for (uint32_t r = begin; r < end; r++) {
        c->ops->row_to_f32(&c->embedding, c->tokens[r], core_x(c, r));
        kernel_rope_table(c->step.position + r, c->hp.head_size, (double)c->hp.rope_theta,
                          c->rope_factors, c->rope + (size_t)r * c->hp.head_size);
    }
}

int core_forward(struct core *c, const struct core_sequence *sequence, const uint32_t *tokens,
                 uint32_t position, uint32_t rows, struct error *error)
{
    OBJ_CHECK(c, CORE_MAGIC);
    sl_assert(rows >= 1 && rows <= c->chunk);
    for (uint32_t r = 0; r < rows; r++)
        sl_assert(tokens[r] < c->hp.vocab);
    c->sequence = *sequence;
    c->tokens = tokens;
    c->step =
        (struct expert_step){.sequence = sequence->sequence, .position = position, .rows = rows};
    core_run_rows(c, rows, embed_rows);
    for (c->step.layer = 0; c->step.layer < c->hp.layers; c->step.layer++) {
        if (c->source.layer_starts)
            c->source.layer_starts(c->source.self, &c->step);
        if (c->source.layer_inputs)
            c->source.layer_inputs(c->source.self, &c->step, c->x, c->hp.hidden, c->hp.hidden);
        core_attention(c);
        core_experts_gate(c);
        if (c->source.gate_inputs)
            c->source.gate_inputs(c->source.self, &c->step, form_floats(&c->in, 0),
                                  c->in.stride[FORM_F32] / sizeof(float), c->hp.hidden);
        if (core_experts(c, error) != 0)
            return -1;
    }
    return 0;
}

static void output_norm_rows(struct core *c)
{
    for (uint32_t r = 0; r < c->output_count; r++) {
        c->ops->rms_norm(core_x(c, c->output_row + r), c->output_norm, c->hp.hidden, c->hp.rms_eps,
                         form_floats(&c->last, r));
        core_make_forms(c, &c->last, r, c->output_forms);
    }
}

static void output_columns(void *arg, uint32_t thread, uint32_t threads)
{
    struct core *c = arg;
    uint32_t begin, end;
    pool_share(c->output.n, COLUMN_UNIT, thread, threads, &begin, &end);
    if (begin < end)
        core_product(c, &c->output, c->output_scale, begin, end,
                     form_row(&c->last, c->output.type, 0), form_stride(&c->last, c->output.type),
                     c->output_count, c->logits, c->hp.vocab);
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
