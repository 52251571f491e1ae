/* SPDX-License-Identifier: Apache-2.0 */
/* Attention of one layer. If the key heads divide evenly among the threads, each thread computes
 * its heads completely - q, k, v, norms, rotation, cache rows, attention - without a barrier,
 * because no head reads the keys of another. Otherwise, and if the norm of q and k spans all heads,
 * the same steps run as three phases. */
#include "lib/core/internal.h"

#include <string.h>

/* Queries of a call of the kernel, where there are as many. */
#define ATTEND_QUERIES 32

static void norm_rows(void *arg, uint32_t thread, uint32_t threads)
{
    struct core *c = arg;
    struct core_layer *l = core_layer_now(c);
    uint32_t begin, end;
    pool_share(c->step.rows, 1, thread, threads, &begin, &end);
    for (uint32_t r = begin; r < end; r++) {
        core_norm(c, core_x(c, r), l->attn_norm, l->attn_norm_bias, c->hp.hidden,
                  form_floats(&c->in, r));
        core_make_forms(c, &c->in, r, l->in_forms);
    }
}

/* Where the product with the matrix of q goes. */
static float *projected_q(const struct core *c)
{
    return c->hp.gated_attention ? c->gated_q : c->q;
}

static void project(struct core *c, const struct kernel_matrix *w, const float *scale,
                    uint32_t begin, uint32_t end, float *y)
{
    if (begin < end && w->data)
        core_product(c, w, scale, begin, end, form_row(&c->in, w->type, 0),
                     form_stride(&c->in, w->type), c->step.rows, y, w->n);
}

/* What follows the projection of a head. */
static void add_bias(const struct core *c, float *head, const float *bias, uint32_t number,
                     uint32_t size)
{
    if (bias)
        c->ops->axpy(1.0f, bias + (size_t)number * size, size, head);
    if (c->hp.clamp_qkv != 0)
        kernel_clamp(head, size, c->hp.clamp_qkv);
}

/* With a gate, the rows of q are those of a head, then those of its gate: moves the former together. */
static void split_gates(struct core *c, uint32_t row, uint32_t head_begin, uint32_t head_end)
{
    const struct core_layer *l = core_layer_now(c);
    uint32_t size = l->attention.key_size;
    for (uint32_t h = head_begin; h < head_end; h++)
        memcpy(c->q + (size_t)row * l->q_size + (size_t)h * size,
               c->gated_q + (size_t)row * l->q.n + (size_t)2 * h * size, size * sizeof *c->q);
}

/* One head in place: rotation, and its RMSNorm if it has one. */
static void finish_head(struct core *c, float *head, const float *weight, uint32_t row)
{
    const struct layer_attention *a = &core_layer_now(c)->attention;
    const float *cos_sin = core_angles(c, a->rope_table, row);
    if (c->hp.qk_norm == QK_NORM_HEAD && weight)
        c->ops->rms_norm(head, weight, a->key_size, c->hp.rms_eps, head);
    if (c->hp.rope_kind == ROPE_PAIRS)
        kernel_rope_pairs(head, a->rope_dims, cos_sin);
    else if (a->rope_dims != 0)
        c->ops->rope(head, a->rope_dims, cos_sin);
    if (c->hp.qk_norm == QK_NORM_HEAD_AFTER)
        c->ops->rms_norm(head, weight, a->key_size, c->hp.rms_eps, head);
}

/* Of keys and values of this layer; 0: none. */
static uint32_t ring_of(const struct core *c, uint32_t row)
{
    bool window = c->layer[c->step.layer].attention.window > 0;
    return window ? core_sequence_of(c, row)->ring : 0;
}

/* Bias, norm, rotation and cache row of key head g and its query heads, one token row. */
static void finish_group(struct core *c, uint32_t row, uint32_t g)
{
    struct core_layer *l = core_layer_now(c);
    const struct layer_attention *a = &l->attention;
    uint32_t size = a->key_size, values = a->value_size;
    float *k = c->k + (size_t)row * l->k_size + (size_t)g * size;
    float *v = c->v + (size_t)row * l->v_size + (size_t)g * values;
    const struct core_sequence *sequence = core_sequence_of(c, row);
    uint32_t position = kernel_ring_position(ring_of(c, row), c->row[row].position);
    uint32_t in_tile = position % KERNEL_KEY_TILE;
    enum kv_type type = sequence->kv_type;
    uint8_t *keys = (uint8_t *)sequence->keys[c->step.layer] +
                    kernel_kv_tile(type, a->kv_heads, size, position, g);
    uint8_t *rows = (uint8_t *)sequence->values[c->step.layer] +
                    kernel_kv_tile(type, a->kv_heads, values, position, g);
    if (!l->v.data)
        memcpy(v, k, values * sizeof *v);
    add_bias(c, k, l->k_bias, g, size);
    add_bias(c, v, l->v_bias, g, values);
    finish_head(c, k, l->k_norm, row);
    if (c->hp.v_norm)
        c->ops->rms_norm(v, c->ones, values, c->hp.rms_eps, v);
    kernel_kv_store(c->ops, type, KV_KEYS, k, size, keys, in_tile);
    kernel_kv_store(c->ops, type, KV_VALUES, v, values, rows, in_tile);
    float *q = c->q + (size_t)row * l->q_size;
    if (c->hp.gated_attention)
        split_gates(c, row, g * l->group, (g + 1) * l->group);
    for (uint32_t h = g * l->group; h < (g + 1) * l->group; h++) {
        add_bias(c, q + (size_t)h * size, l->q_bias, h, size);
        finish_head(c, q + (size_t)h * size, l->q_norm, row);
    }
}

/* Rows [row, row + rows): consecutive positions of one sequence. */
static void attend_run(struct core *c, uint32_t row, uint32_t rows, uint32_t head_begin,
                       uint32_t head_end)
{
    const struct core_layer *l = core_layer_now(c);
    struct kernel_attention a = {
        .q = c->q + (size_t)row * l->q_size,
        .k = core_sequence_of(c, row)->keys[c->step.layer],
        .v = core_sequence_of(c, row)->values[c->step.layer],
        .kv_type = core_sequence_of(c, row)->kv_type,
        .out = form_floats(&c->mix, row),
        .q_stride = l->q_size,
        .out_stride = c->mix.stride[FORM_F32] / sizeof(float),
        .rows = rows,
        .heads = l->attention.heads,
        .kv_heads = l->attention.kv_heads,
        .key_size = l->attention.key_size,
        .value_size = l->attention.value_size,
        .head_begin = head_begin,
        .head_end = head_end,
        .positions = c->row[row].position + 1,
        .window = l->attention.window,
        .ring = ring_of(c, row),
        .scale = l->scale,
        .cap = c->hp.score_cap,
        .sinks = l->sinks,
    };
    c->ops->attention(&a);
}

/* Rows [row, row + rows). */
static void attend(struct core *c, uint32_t row, uint32_t rows, uint32_t head_begin,
                   uint32_t head_end)
{
    for (uint32_t r = row, n; r < row + rows; r += n) {
        n = core_run_of(c, r, row + rows - r);
        attend_run(c, r, n, head_begin, head_end);
    }
}

static uint32_t smaller(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* Rows of a call: as many queries as read a key together, and soon a report of progress. */
static uint32_t attend_block(uint32_t group)
{
    return group < ATTEND_QUERIES ? ATTEND_QUERIES / group : 1;
}

/* Key heads [g0, g1). A single row in one call, which reads their keys in the order of memory. */
static void attend_groups(struct core *c, uint32_t g0, uint32_t g1, uint32_t thread)
{
    uint32_t group = core_layer_now(c)->group, rows = c->step.rows, block = attend_block(group);
    if (rows == 1 && g0 < g1)
        attend(c, 0, 1, g0 * group, g1 * group);
    for (uint32_t g = g0; g < g1 && rows > 1; g++)
        for (uint32_t r = 0; r < rows; r += block) {
            attend(c, r, smaller(block, rows - r), g * group, (g + 1) * group);
            core_alive(c, thread);
        }
}

static void whole_groups(void *arg, uint32_t thread, uint32_t threads)
{
    struct core *c = arg;
    struct core_layer *l = core_layer_now(c);
    uint32_t g0, g1, size = l->attention.key_size, values = l->attention.value_size;
    pool_share(l->attention.kv_heads, 1, thread, threads, &g0, &g1);
    uint32_t rows = l->q.n / l->attention.kv_heads; /* of a group */
    project(c, &l->q, l->q_scale, g0 * rows, g1 * rows, projected_q(c));
    project(c, &l->k, l->k_scale, g0 * size, g1 * size, c->k);
    project(c, &l->v, l->v_scale, g0 * values, g1 * values, c->v);
    for (uint32_t r = 0; r < c->step.rows; r++)
        for (uint32_t g = g0; g < g1; g++)
            finish_group(c, r, g);
    attend_groups(c, g0, g1, thread);
}

/* The three projections as one range of columns. */
static void project_columns(void *arg, uint32_t thread, uint32_t threads)
{
    struct core *c = arg;
    struct core_layer *l = core_layer_now(c);
    const struct kernel_matrix *w[3] = {&l->q, &l->k, &l->v};
    const float *scale[3] = {l->q_scale, l->k_scale, l->v_scale};
    float *y[3] = {projected_q(c), c->k, c->v};
    uint32_t begin, end, base = 0;
    pool_share(l->q.n + l->k_size + l->v_size, COLUMN_UNIT, thread, threads, &begin, &end);
    for (int i = 0; i < 3; base += w[i++]->n) {
        uint32_t b = begin > base ? begin - base : 0;
        uint32_t e = end > base ? end - base : 0;
        project(c, w[i], scale[i], b, e < w[i]->n ? e : w[i]->n, y[i]);
    }
}

static void finish_groups(void *arg, uint32_t thread, uint32_t threads)
{
    struct core *c = arg;
    uint32_t begin, end, groups = core_layer_now(c)->attention.kv_heads;
    pool_share(c->step.rows * groups, 1, thread, threads, &begin, &end);
    for (uint32_t u = begin; u < end; u++)
        finish_group(c, u / groups, u % groups);
}

/* If the norm spans all heads, a row is one piece of work. */
static void finish_rows(void *arg, uint32_t thread, uint32_t threads)
{
    struct core *c = arg;
    struct core_layer *l = core_layer_now(c);
    uint32_t begin, end;
    pool_share(c->step.rows, 1, thread, threads, &begin, &end);
    for (uint32_t r = begin; r < end; r++) {
        float *q = c->q + (size_t)r * l->q_size, *k = c->k + (size_t)r * l->k_size;
        c->ops->rms_norm(q, l->q_norm, l->q_size, c->hp.rms_eps, q);
        c->ops->rms_norm(k, l->k_norm, l->k_size, c->hp.rms_eps, k);
        for (uint32_t g = 0; g < l->attention.kv_heads; g++)
            finish_group(c, r, g);
    }
}

/* Later rows have more keys, so blocks of rows are assigned round-robin. */
static void attend_rows(void *arg, uint32_t thread, uint32_t threads)
{
    struct core *c = arg;
    const struct core_layer *l = core_layer_now(c);
    const struct layer_attention *a = &l->attention;
    bool by_head = c->step.rows * a->kv_heads < 2 * threads;
    uint32_t parts = by_head ? a->heads : a->kv_heads;
    uint32_t heads = by_head ? 1 : l->group, block = by_head ? 1 : attend_block(l->group);
    uint32_t blocks = (c->step.rows + block - 1) / block;
    for (uint32_t u = thread; u < blocks * parts; u += threads) {
        uint32_t row = u / parts * block;
        attend(c, row, smaller(block, c->step.rows - row), u % parts * heads,
               (u % parts + 1) * heads);
        core_alive(c, thread);
    }
}

/* The output of each head times the sigmoid of its gate. */
static void gate_row(struct core *c, uint32_t row)
{
    const struct core_layer *l = core_layer_now(c);
    const struct layer_attention *a = &l->attention;
    const float *gate = c->gated_q + (size_t)row * l->q.n + a->key_size;
    float *out = form_floats(&c->mix, row);
    for (uint32_t h = 0; h < a->heads; h++, gate += 2 * (size_t)a->key_size, out += a->value_size)
        c->ops->sigmoid_mul(gate, out, a->value_size, out);
}

static void mix_forms_rows(void *arg, uint32_t thread, uint32_t threads)
{
    struct core *c = arg;
    uint32_t begin, end;
    pool_share(c->step.rows, 1, thread, threads, &begin, &end);
    for (uint32_t r = begin; r < end; r++) {
        if (c->hp.gated_attention && core_layer_now(c)->q.data)
            gate_row(c, r);
        core_make_forms(c, &c->mix, r, core_layer_now(c)->mix_forms);
    }
}

static void output_columns(void *arg, uint32_t thread, uint32_t threads)
{
    struct core *c = arg;
    const struct core_layer *l = core_layer_now(c);
    const struct kernel_matrix *w = &l->out;
    uint32_t begin, end;
    pool_share(w->n, COLUMN_UNIT, thread, threads, &begin, &end);
    if (begin == end)
        return;
    core_product(c, w, l->out_scale, begin, end, form_row(&c->mix, w->type, 0),
                 form_stride(&c->mix, w->type), c->step.rows, c->y, w->n);
    for (uint32_t r = 0; r < c->step.rows; r++) {
        float *y = c->y + (size_t)r * w->n;
        if (l->out_bias)
            c->ops->axpy(1.0f, l->out_bias + begin, end - begin, y + begin);
        if (!l->attn_post_norm)
            c->ops->axpy(c->residual, y + begin, end - begin, core_x(c, r) + begin);
    }
}

/* The result's own norm, which spans the outputs of all threads; then it is added. */
static void post_norm_rows(void *arg, uint32_t thread, uint32_t threads)
{
    struct core *c = arg;
    uint32_t begin, end, hidden = c->hp.hidden;
    pool_share(c->step.rows, 1, thread, threads, &begin, &end);
    for (uint32_t r = begin; r < end; r++) {
        float *y = c->y + (size_t)r * hidden;
        c->ops->rms_norm(y, core_layer_now(c)->attn_post_norm, hidden, c->hp.rms_eps, y);
        c->ops->axpy(c->residual, y, hidden, core_x(c, r));
    }
}

/* Number of parts among which the key heads divide evenly. A row with many keys has few parts: a
 * part reads what is adjacent in memory. */
static uint32_t even_parts(const struct core *c, uint32_t outputs)
{
    uint32_t parts = pool_parts(c->pool, (uint64_t)outputs * c->hp.hidden * c->step.rows);
    if (c->step.rows == 1 && c->step.position >= KERNEL_KEY_SEGMENT)
        parts = smaller(parts, 2 * c->threads);
    while (c->layer[c->step.layer].attention.kv_heads % parts != 0)
        parts -= c->threads; /* ends at c->threads */
    return parts;
}

void core_mixer_input(struct core *c)
{
    form_rows_set(&c->mix, core_layer_now(c)->mix_size);
    core_run_rows(c, c->step.rows, norm_rows);
}

void core_attention_norm(struct core *c)
{
    core_run_rows(c, c->step.rows, norm_rows);
}

void core_attention_output(struct core *c)
{
    const struct core_layer *l = core_layer_now(c);
    core_run_rows(c, c->step.rows, mix_forms_rows);
    core_run_columns(c, c->hp.hidden, l->mix_size, c->step.rows, output_columns);
    if (l->attn_post_norm)
        core_run_rows(c, c->step.rows, post_norm_rows);
}

void core_attention(struct core *c)
{
    const struct core_layer *l = core_layer_now(c);
    uint32_t rows = c->step.rows, outputs = l->q.n + l->k_size + l->v_size;
    uint32_t kv_heads = l->attention.kv_heads;
    core_mixer_input(c);
    if (c->hp.qk_norm != QK_NORM_ROW && kv_heads % c->threads == 0) {
        pool_run_parts(c->pool, even_parts(c, outputs), whole_groups, c);
    } else {
        core_run_columns(c, outputs, c->hp.hidden, rows, project_columns);
        if (c->hp.qk_norm == QK_NORM_ROW)
            core_run_rows(c, rows, finish_rows);
        else
            core_run_rows(c, rows * kv_heads, finish_groups);
        pool_run(c->pool, attend_rows, c);
    }
    core_attention_output(c);
}
