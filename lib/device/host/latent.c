/* SPDX-License-Identifier: Apache-2.0 */
/* Multi-head latent attention of one layer (MLA, DeepSeek-V2, DeepSeek-AI 2024, section 2.1). A
 * token has one latent c and one rotated key for all heads:
 *   c | k_pe = W_kv_a x;  c = norm(c);  k_pe = norm(k_pe) in some models (dots3-note; transformers'
 *   Dots3NoteTextAttention), and is rotated, if the layer has angles
 *   q = W_q x, or W_q_b norm(W_q_a x);  of each head: q_nope | q_pe, which is rotated
 * The published form makes a key (W_k c | k_pe) and a value W_v c of each head from it. Here the
 * matrices are absorbed by queries and results, so that the heads share the keys (c | k_pe) and the
 * values c, as query heads of one key head do:
 *   score = (W_k^T q_nope) . c + q_pe . k_pe;  out = W_v (sum of weights * c)
 * W_k^T and W_v are stored that way, one matrix per head.
 *
 * Threads divide the heads, and blocks of rows. The queries of a block, at most MLA_QUERIES, are
 * heads of one row or rows of one head, and never leave the thread's scratch. */
#include <string.h>

#include "lib/device/host/internal.h"

/* Queries between two reports: twice what kernels read a latent of 512 for
 * (lib/kernels/simd/attention/query.h). */
#define LATENT_TOGETHER 48
/* Rows of a block whose rows have lists of positions: heads of a row share what its list names. */
#define LISTED_ROWS 4

/* Norms, rotation of the key, and the row of the cache. */
static void latent_rows(void *arg, uint32_t thread, uint32_t threads)
{
    const struct host_run *run = arg;
    const struct op_latent_store *a = run->a;
    const struct device_latent *m = &a->shape;
    const struct kernel_ops *kernels = run->h->kernels;
    uint32_t begin, end, key = m->key;
    pool_share(a->rows, 1, thread, threads, &begin, &end);
    for (uint32_t r = begin; r < end; r++) {
        const struct device_sequence *s = &a->sequence[a->row[r].sequence];
        uint32_t position = kernel_ring_position(s->ring, a->row[r].position);
        float *kv = device_floats(a->kv) + (size_t)r * key;
        if (m->q_rank > 0) {
            float *q = rows_floats(&a->query, r);
            kernels->rms_norm(q, device_floats(a->q_norm), m->q_rank, m->eps, q);
            host_make_forms(run->h, &a->query, r, a->query_forms);
        }
        kernels->rms_norm(kv, device_floats(a->kv_norm), m->rank, m->eps, kv);
        if (a->k_norm.address)
            kernels->rms_norm(kv + m->rank, device_floats(a->k_norm), m->rope, m->eps,
                              kv + m->rank);
        if (a->angles.address)
            kernel_rope_pairs(kv + m->rank, m->rope,
                              device_floats(a->angles) + r * a->angle_stride);
        host_note(run->h, kv, key);
        kernel_kv_store(kernels, s->kv_type, KV_SIDE_KEYS, kv, key,
                        (uint8_t *)device_pointer(s->keys) +
                            kernel_kv_tile(s->kv_type, 1, key, position, 0),
                        position % KERNEL_KEY_TILE);
    }
}

void host_op_latent_store(struct device *d, const struct op_latent_store *a)
{
    host_run_rows(host_of(d), a->rows, latent_rows, a);
}

/* Heads [head, head + heads) of the rows [row, row + rows). A query is [row][head]. */
struct block {
    struct host *h;
    const struct op_latent_attention *a;
    const struct device_latent *m;
    struct latent_scratch *t;
    uint32_t row, rows, head, heads;
};

static void queries(const struct block *b)
{
    const struct device_latent *m = b->m;
    uint32_t size = m->nope + m->rope, n = b->heads * size;
    const struct device_rows *x = &b->a->x;
    struct kernel_matrix w = device_matrix_part(&b->a->q, b->head * size, n);
    host_product(b->h, &w, device_floats(b->a->q_scale), 0, n, rows_row(x, w.type, b->row),
                 rows_stride(x, w.type), b->rows, b->t->q, n);
}

/* Queries for the latents and the rotated keys. */
static void absorb_keys(const struct block *b)
{
    const struct device_latent *m = b->m;
    const struct device_matrix *w = &b->a->k_b;
    uint32_t size = m->nope + m->rope, key = m->key;
    enum kernel_form form = kernel_form_of(w->type);
    uint8_t *made = device_pointer(b->t->nope.base[form]);
    size_t stride = b->t->nope.stride[form];
    for (uint32_t i = 0; i < b->rows * b->heads; i++) {
        float *q = b->t->q + (size_t)i * size;
        if (b->a->angles.address)
            kernel_rope_pairs(q + m->nope, m->rope,
                              device_floats(b->a->angles) +
                                  (b->row + i / b->heads) * b->a->angle_stride);
        host_note(b->h, q, size);
        memcpy(b->t->key_q + (size_t)i * key + m->rank, q + m->nope, m->rope * sizeof *q);
        if (form != FORM_F32)
            b->h->kernels->activation(w->type, q, m->nope, made + i * stride);
    }
    const uint8_t *x = form == FORM_F32 ? (const uint8_t *)b->t->q : made;
    stride = form == FORM_F32 ? size * sizeof(float) : stride;
    for (uint32_t j = 0; j < b->heads; j++) {
        struct kernel_matrix head = device_matrix_part(w, (b->head + j) * m->rank, m->rank);
        host_product(b->h, &head, NULL, 0, m->rank, x + j * stride, b->heads * stride, b->rows,
                     b->t->key_q + (size_t)j * key, (size_t)b->heads * key);
    }
    host_note(b->h, b->t->key_q, (size_t)b->rows * b->heads * key);
}

/* Positions that attention of a row is over, at most. */
static uint64_t positions_of(const struct op_latent_attention *a, const struct device_row *row)
{
    uint64_t positions = host_positions(&a->chosen, row), window = a->shape.window;
    return window > 0 && window < positions ? window : positions;
}

/* The weighted sums of latents. */
static void attend(const struct block *b)
{
    const struct device_latent *m = b->m;
    uint32_t key = m->key;
    float scale;
    for (uint32_t r = 0, n; r < b->rows; r += n) {
        const struct device_row *row = b->a->row + b->row + r;
        const struct device_sequence *sequence = &b->a->sequence[row->sequence];
        uint64_t each = positions_of(b->a, row) * (key + m->rank) * b->heads;
        uint32_t together = b->heads < LATENT_TOGETHER ? LATENT_TOGETHER / b->heads : 1;
        n = device_scaled_run(&m->scale, row,
                              smaller(b->rows - r, host_attend_rows(b->h, each, together)), &scale);
        struct kernel_attention attention = {
            .q = b->t->key_q + (size_t)r * b->heads * key,
            .k = device_pointer(sequence->keys),
            .kv_type = sequence->kv_type,
            .out = rows_floats(&b->t->latent, r * b->heads),
            .q_stride = (size_t)b->heads * key,
            .out_stride = (size_t)b->heads * m->rank,
            .rows = n,
            .heads = b->heads,
            .kv_heads = 1,
            .key_size = key,
            .value_size = m->rank,
            .head_end = b->heads,
            .positions = row->position + 1,
            .window = m->window,
            .ring = sequence->ring,
            /* v: NULL, the values are in the keys */
            .scale = scale,
            .sinks = b->a->sinks.address ? device_floats(b->a->sinks) + b->head : NULL,
            .chosen = host_chosen(&b->a->chosen, b->row + r, 0),
        };
        b->h->kernels->attention(&attention);
        host_attended(b->h, b->a->rows, each * n);
    }
}

static void values(const struct block *b)
{
    const struct device_latent *m = b->m;
    const struct device_matrix *w = &b->a->v_b;
    const struct device_rows *x = &b->t->latent;
    for (uint32_t i = 0; i < b->rows * b->heads; i++)
        host_make_forms(b->h, x, i, host_form_bit(w->type));
    for (uint32_t j = 0; j < b->heads; j++) {
        struct kernel_matrix head = device_matrix_part(w, (b->head + j) * m->value, m->value);
        host_product(b->h, &head, NULL, 0, m->value, rows_row(x, w->type, j),
                     b->heads * rows_stride(x, w->type), b->rows,
                     rows_floats(&b->a->mix, b->row) + (size_t)(b->head + j) * m->value,
                     b->a->mix.stride[FORM_F32] / sizeof(float));
    }
}

/* Multiplications of a row and a head with the cache. */
static uint64_t head_work(const struct op_latent_attention *a)
{
    return positions_of(a, a->row + a->rows - 1) * (a->shape.key + a->shape.rank);
}

static bool listed(const struct op_latent_attention *a)
{
    return a->chosen.count.address != 0;
}

/* Rows of a block, for which another thread may have to wait; and into how many blocks that divides
 * the rows. */
static uint32_t block_rows(const struct host *h, const struct op_latent_attention *a)
{
    uint32_t rows = smaller(a->rows, listed(a) ? LISTED_ROWS : MLA_QUERIES);
    return host_portable(h) ? smaller(rows, host_step_rows(h, head_work(a) / STEPS_PER_PART))
                            : rows;
}

static uint32_t row_blocks(const struct host *h, const struct op_latent_attention *a)
{
    return (a->rows + block_rows(h, a) - 1) / block_rows(h, a);
}

/* Heads of a block that has all rows. */
static uint32_t heads_at_once(const struct host *h, const struct op_latent_attention *a)
{
    uint32_t heads = MLA_QUERIES / block_rows(h, a);
    return host_portable(h) ? smaller(heads, host_step_rows(h, head_work(a) * a->rows)) : heads;
}

static void attend_block(struct block *b)
{
    queries(b);
    absorb_keys(b);
    attend(b);
    values(b);
}

/* Parts are heads, and of these blocks of rows if there are several; with lists, blocks of rows,
 * and of these heads. */
static void head_blocks(void *arg, uint32_t part, uint32_t parts)
{
    const struct host_run *run = arg;
    const struct op_latent_attention *a = run->a;
    struct block b = {.h = run->h, .a = a, .m = &a->shape, .t = &run->h->thread[pool_me()].latent};
    uint32_t begin, end, blocks = row_blocks(run->h, a), rows = block_rows(run->h, a);
    device_rows_set(&b.t->nope, a->shape.nope); /* layers differ; there is space for the largest */
    device_rows_set(&b.t->latent, a->shape.rank);
    pool_share(a->shape.heads * blocks, 1, part, parts, &begin, &end);
    uint32_t heads = heads_at_once(run->h, a);
    for (uint32_t u = begin; u < end; u += b.heads) {
        uint32_t all = a->shape.heads;
        b.head = listed(a) ? u % all : u / blocks;
        b.heads = blocks == 1 || listed(a) ? smaller(heads, smaller(end - u, all - b.head)) : 1;
        b.row = (listed(a) ? u / all : u % blocks) * rows;
        b.rows = smaller(rows, a->rows - b.row);
        attend_block(&b);
    }
}

/* A part reads the whole cache, so a single row has one part per thread; of portable kernels that
 * would take too long. */
static uint32_t latent_parts(const struct host *h, const struct op_latent_attention *a)
{
    const struct device_latent *m = &a->shape;
    uint64_t per_head = ((uint64_t)m->rank * (m->nope + m->value) + head_work(a)) * a->rows;
    bool divide = a->rows > 1 || host_portable(h);
    uint32_t parts = divide ? pool_parts(h->pool, per_head * m->heads) : h->threads;
    return smaller(parts, m->heads * row_blocks(h, a));
}

void host_op_latent_attention(struct device *d, const struct op_latent_attention *a)
{
    struct host *h = host_of(d);
    struct op_latent_attention all = *a;
    sl_assert(a->chosen.lists <= 1);
    if (host_attends_all(&a->chosen, a->row, a->rows))
        all.chosen = (struct device_chosen){.stride = 0};
    host_run_parts(h, latent_parts(h, &all), head_blocks, &all);
}
