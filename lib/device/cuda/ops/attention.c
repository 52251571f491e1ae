/* SPDX-License-Identifier: Apache-2.0 */
/* Attention of a layer, and MLA, in the steps of lib/device/host/attention.c and latent.c. Heads of
 * a row lie next to each other, so those of all rows are equally far apart: one launch has all of
 * them. */
#include "lib/device/cuda/internal.h"

/* Queries, or keys, of all rows. */
struct heads {
    float *x; /* [row][head][size] */
    uint32_t heads, size;
    struct device_at bias, norm;
};

static void add_bias(struct cuda *c, const struct op_attention *a, float *x, uint32_t n,
                     struct device_at bias)
{
    if (bias.address)
        cuda_axpy(c, 1.0f, device_floats(bias), 0, n, a->rows, x, n);
    if (a->heads.clamp != 0)
        cuda_point(c, GPU_CLAMP,
                   (struct gpu_rows){.a = x,
                                     .y = x,
                                     .a_stride = n,
                                     .y_stride = n,
                                     .n = n,
                                     .rows = a->rows,
                                     .value = a->heads.clamp});
}

static void head_norm(struct cuda *c, const struct op_attention *a, const struct heads *h)
{
    cuda_rms(c, h->x, h->size, h->norm, h->size, a->heads.eps, a->rows * h->heads, h->x, h->size);
}

/* Bias, norm and rotation. */
static void finish_heads(struct cuda *c, const struct op_attention *a, const struct heads *h)
{
    struct gpu_rope rope = {.x = h->x,
                            .cos_sin = device_floats(a->angles),
                            .x_stride = (size_t)h->heads * h->size,
                            .head_stride = h->size,
                            .table_stride = a->angle_stride,
                            .n = a->shape.rope_dims,
                            .heads = h->heads,
                            .rows = a->rows,
                            .pairs = a->heads.rope_kind == ROPE_PAIRS};
    add_bias(c, a, h->x, h->heads * h->size, h->bias);
    if (a->heads.qk_norm == QK_NORM_HEAD && h->norm.address)
        head_norm(c, a, h);
    cuda_check(c, c->k->rope(&rope, c->stream), "a rotation");
    if (a->heads.qk_norm == QK_NORM_HEAD_AFTER)
        head_norm(c, a, h);
}

/* On the device, and on the host after the next wait. */
static void store(struct cuda *c, uint32_t sequence, enum kv_side side, const float *x,
                  uint32_t heads, uint32_t size, uint32_t position, uint32_t rows)
{
    const struct device_sequence *s = &c->taken[sequence], *given = &c->given[sequence];
    struct gpu_kv_store g = {.x = x,
                             .tiles = device_pointer(side == KV_SIDE_KEYS ? s->keys : s->values),
                             .type = s->kv_type,
                             .side = side,
                             .x_stride = (size_t)heads * size,
                             .head_size = size,
                             .kv_heads = heads,
                             .position = position,
                             .ring = s->ring,
                             .rows = rows};
    if (cuda_in_token(c)) {
        cuda_token_store(c, side == KV_SIDE_KEYS ? PART_keys : PART_values, given, &g);
        return;
    }
    cuda_check(c, c->k->kv_store(&g, c->stream), "keys and values");
    cuda_keep_rows(c, side == KV_SIDE_KEYS ? given->keys : given->values, &g);
}

static struct kernel_attention rows_of(const struct kernel_attention *a, uint32_t first, uint32_t n)
{
    struct kernel_attention part = *a;
    part.q += first * a->q_stride;
    part.out += first * a->out_stride;
    part.positions += first;
    part.rows = n;
    return part;
}

/* In as many launches as the workspace needs. */
static void attend(struct cuda *c, const struct kernel_attention *a)
{
    if (cuda_in_token(c)) {
        cuda_token_attend(c, a);
        return;
    }
    for (uint32_t at = 0, n; at < a->rows; at += n) {
        n = a->rows - at;
        struct kernel_attention part = rows_of(a, at, n);
        while (n > 1 && c->k->attention_workspace(&part) > c->attend_bytes) {
            n = (n + 1) / 2;
            part = rows_of(a, at, n);
        }
        sl_assert(c->k->attention_workspace(&part) <= c->attend_bytes);
        cuda_check(c, c->k->attention(&part, c->attend, c->stream), "attention");
    }
}

/* Rows [row, row + rows): consecutive positions of one sequence, with one scale, in one chunk. */
static void attend_run(struct cuda *c, const struct op_attention *a, uint32_t row, uint32_t rows,
                       float scale)
{
    const struct layer_attention *h = &a->shape;
    const struct device_sequence *s = &a->sequence[a->row[row].sequence];
    size_t q = (size_t)h->heads * h->key_size, k = (size_t)h->kv_heads * h->key_size,
           v = (size_t)h->kv_heads * h->value_size;
    uint32_t position = a->row[row].position, begin = device_chunk_begin(h, position);
    struct kernel_attention attention = {.q = device_floats(a->q) + row * q,
                                         .k = device_keys_from(h, s, begin),
                                         .v = device_values_from(h, s, begin),
                                         .kv_type = s->kv_type,
                                         .out = device_floats(a->mix.base[FORM_F32]) +
                                                row * cuda_stride(&a->mix),
                                         .q_stride = q,
                                         .out_stride = cuda_stride(&a->mix),
                                         .rows = rows,
                                         .heads = h->heads,
                                         .kv_heads = h->kv_heads,
                                         .key_size = h->key_size,
                                         .value_size = h->value_size,
                                         .head_end = h->heads,
                                         .positions = position - begin + 1,
                                         .window = h->chunks ? 0 : h->window,
                                         .ring = h->chunks ? 0 : s->ring,
                                         .scale = scale,
                                         .cap = a->heads.cap,
                                         .sinks = device_floats(a->sinks)};
    uint32_t number = a->row[row].sequence;
    store(c, number, KV_SIDE_KEYS, device_floats(a->k) + row * k, h->kv_heads, h->key_size,
          position, rows);
    store(c, number, KV_SIDE_VALUES, device_floats(a->v) + row * v, h->kv_heads, h->value_size,
          position, rows);
    attend(c, &attention);
}

static void project(struct cuda *c, const struct op_attention *a)
{
    const struct layer_attention *h = &a->shape;
    uint32_t size = h->key_size, q = h->heads * size;
    float *gated = device_floats(a->gated);
    cuda_product_rows(c, &a->w_q, a->q_scale, &a->x, a->rows, gated ? gated : device_floats(a->q),
                      a->w_q.n);
    cuda_product_rows(c, &a->w_k, a->k_scale, &a->x, a->rows, device_floats(a->k), a->w_k.n);
    if (a->w_v.data.address)
        cuda_product_rows(c, &a->w_v, a->v_scale, &a->x, a->rows, device_floats(a->v), a->w_v.n);
    if (a->heads.qk_norm == QK_NORM_ROW) {
        uint32_t k = h->kv_heads * size;
        sl_assert(!gated);
        cuda_rms(c, device_floats(a->q), q, a->q_norm, q, a->heads.eps, a->rows,
                 device_floats(a->q), q);
        cuda_rms(c, device_floats(a->k), k, a->k_norm, k, a->heads.eps, a->rows,
                 device_floats(a->k), k);
    }
    if (!a->w_v.data.address)
        cuda_copy(c, device_floats(a->k), size, h->value_size, a->rows * h->kv_heads,
                  device_floats(a->v), h->value_size);
    if (gated)
        cuda_copy(c, gated, 2 * (size_t)size, size, a->rows * h->heads, device_floats(a->q), size);
}

void cuda_op_attention(struct cuda *c, const struct op_attention *a)
{
    const struct layer_attention *h = &a->shape;
    uint32_t values = h->value_size;
    sl_assert(!a->chosen.count.address);
    float *v = device_floats(a->v);
    const struct heads q = {device_floats(a->q), h->heads, h->key_size, a->q_bias, a->q_norm};
    const struct heads k = {device_floats(a->k), h->kv_heads, h->key_size, a->k_bias, a->k_norm};
    project(c, a);
    add_bias(c, a, v, h->kv_heads * values, a->v_bias);
    finish_heads(c, a, &k);
    finish_heads(c, a, &q);
    if (a->heads.v_norm)
        cuda_rms(c, v, values, a->ones, values, a->heads.eps, a->rows * h->kv_heads, v, values);
    for (uint32_t r = 0, n; r < a->rows; r += n) {
        float scale;
        n = device_chunk_rows(h, a->row[r].position, a->rows - r);
        n = device_scaled_run(&a->heads.scale, a->row + r, n, &scale);
        attend_run(c, a, r, n, scale);
    }
}

/* ---- MLA ---- */

static void rotate_pairs(struct cuda *c, float *x, size_t stride, size_t head_stride,
                         const struct device_latent *m, uint32_t heads, uint32_t rows,
                         struct device_at angles, size_t angle_stride)
{
    struct gpu_rope rope = {.x = x,
                            .cos_sin = device_floats(angles),
                            .x_stride = stride,
                            .head_stride = head_stride,
                            .table_stride = angle_stride,
                            .n = m->rope,
                            .heads = heads,
                            .rows = rows,
                            .pairs = true};
    if (angles.address)
        cuda_check(c, c->k->rope(&rope, c->stream), "a rotation");
}

void cuda_op_latent_store(struct cuda *c, const struct op_latent_store *a)
{
    const struct device_latent *m = &a->shape;
    float *kv = device_floats(a->kv);
    sl_assert(m->window == 0 && !a->k_norm.address);
    if (m->q_rank > 0) {
        float *q = device_floats(a->query.base[FORM_F32]);
        cuda_rms(c, q, cuda_stride(&a->query), a->q_norm, m->q_rank, m->eps, a->rows, q,
                 cuda_stride(&a->query));
        cuda_forms(c, &a->query, a->rows, a->query_forms);
    }
    cuda_rms(c, kv, m->key, a->kv_norm, m->rank, m->eps, a->rows, kv, m->key);
    rotate_pairs(c, kv + m->rank, m->key, 0, m, 1, a->rows, a->angles, a->angle_stride);
    for (uint32_t r = 0, n; r < a->rows; r += n) {
        n = device_run_of(a->row + r, a->rows - r);
        store(c, a->row[r].sequence, KV_SIDE_KEYS, kv + (size_t)r * m->key, 1, m->key,
              a->row[r].position, n);
    }
}

/* Products of each head with its own matrix, of those below each other in w: x and y are
 * [row][head]. */
static void head_products(struct cuda *c, const struct device_matrix *w, uint32_t heads, uint32_t n,
                          const void *x, size_t x_stride, uint32_t rows, float *y, size_t y_step,
                          size_t y_stride)
{
    for (uint32_t h = 0; h < heads; h++) {
        struct kernel_matrix part = device_matrix_part(w, h * n, n);
        cuda_product(c, &part, (struct device_at){0}, (const uint8_t *)x + h * x_stride,
                     heads * x_stride, rows, y + h * y_step, y_stride);
    }
}

/* The queries for latents and rotated keys: [row][head][key]. */
static float *latent_queries(struct cuda *c, const struct op_latent_attention *a)
{
    const struct device_latent *m = &a->shape;
    uint32_t size = m->nope + m->rope, all = a->rows * m->heads;
    float *q = cuda_scratch_floats(c, (size_t)all * size);
    float *key_q = cuda_scratch_floats(c, (size_t)all * m->key);
    const void *x;
    cuda_product_rows(c, &a->q, a->q_scale, &a->x, a->rows, q, (size_t)m->heads * size);
    rotate_pairs(c, q + m->nope, (size_t)m->heads * size, size, m, m->heads, a->rows, a->angles,
                 a->angle_stride);
    size_t stride = cuda_prepare(c, a->k_b.type, q, size, m->nope, all, &x);
    head_products(c, &a->k_b, m->heads, m->rank, x, stride, a->rows, key_q, m->key,
                  (size_t)m->heads * m->key);
    cuda_copy(c, q + m->nope, size, m->rope, all, key_q + m->rank, m->key);
    return key_q;
}

void cuda_op_latent_attention(struct cuda *c, const struct op_latent_attention *a)
{
    const struct device_latent *m = &a->shape;
    const float *q = latent_queries(c, a);
    uint32_t all = a->rows * m->heads;
    float *sums = cuda_scratch_floats(c, (size_t)all * m->rank);
    const void *x;
    float scale;
    sl_assert(!a->chosen.count.address && !a->sinks.address);
    for (uint32_t r = 0, n; r < a->rows; r += n) {
        const struct device_sequence *s = &a->sequence[a->row[r].sequence];
        n = device_scaled_run(&m->scale, a->row + r, a->rows - r, &scale);
        struct kernel_attention attention = {.q = q + (size_t)r * m->heads * m->key,
                                             .k = device_pointer(s->keys),
                                             .kv_type = s->kv_type,
                                             .out = sums + (size_t)r * m->heads * m->rank,
                                             .q_stride = (size_t)m->heads * m->key,
                                             .out_stride = (size_t)m->heads * m->rank,
                                             .rows = n,
                                             .heads = m->heads,
                                             .kv_heads = 1,
                                             .key_size = m->key,
                                             .value_size = m->rank,
                                             .head_end = m->heads,
                                             .positions = a->row[r].position + 1,
                                             .scale = scale};
        attend(c, &attention);
    }
    size_t stride = cuda_prepare(c, a->v_b.type, sums, m->rank, m->rank, all, &x);
    head_products(c, &a->v_b, m->heads, m->value, x, stride, a->rows,
                  device_floats(a->mix.base[FORM_F32]), m->value, cuda_stride(&a->mix));
}

#define NO_CHOICE(name)                                                                            \
    void cuda_op_##name(struct cuda *c, const struct op_##name *a)                                 \
    {                                                                                              \
        (void)c, (void)a;                                                                          \
        sl_panic("a choice of positions on a GPU");                                                \
    }
NO_CHOICE(index_heads)
NO_CHOICE(index_store)
NO_CHOICE(index_pool)
NO_CHOICE(index_scores)
NO_CHOICE(choose_positions)
