/* SPDX-License-Identifier: Apache-2.0 */
/* Multi-head latent attention of one layer (MLA, DeepSeek-V2, DeepSeek-AI 2024, section 2.1). A token
 * has one latent c and one rotated key for all heads:
 *   c | k_pe = W_kv_a x;  c = norm(c);  k_pe is rotated
 *   q = W_q x, or W_q_b norm(W_q_a x);  of each head: q_nope | q_pe, which is rotated
 * The published form makes a key (W_k c | k_pe) and a value W_v c of each head from it. Here the
 * matrices are absorbed by queries and results, so that the heads share the keys (c | k_pe) and the
 * values c, as query heads of one key head do:
 *   score = (W_k^T q_nope) . c + q_pe . k_pe;  out = W_v (sum of weights * c)
 * W_k^T and W_v are stored that way, one matrix per head.
 *
 * Threads divide the heads. The queries of a block, at most MLA_QUERIES, are heads of one row or
 * rows of one head, and never leave the thread's scratch. */
#include "lib/core/internal.h"

#include <string.h>

static uint32_t smaller(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* Rows [first, first + n) of a matrix. */
static struct kernel_matrix part_of(const struct kernel_matrix *w, uint32_t first, uint32_t n)
{
    struct kernel_matrix part = *w;
    part.data = (const uint8_t *)w->data + first * w->row_bytes;
    part.n = n;
    return part;
}

/* W_q_a, if there is one, and W_kv_a as one range of columns. */
static void project_columns(void *arg, uint32_t thread, uint32_t threads)
{
    struct core *c = arg;
    const struct core_layer *l = core_layer_now(c);
    const struct kernel_matrix *w[2] = {&l->q_a, &l->kv_a};
    float *y[2] = {c->mla.q_rank > 0 ? form_floats(&c->mla.query, 0) : NULL, c->k};
    uint32_t begin, end, base = 0;
    pool_share(l->q_a.n + l->kv_a.n, COLUMN_UNIT, thread, threads, &begin, &end);
    for (int i = 0; i < 2; base += w[i++]->n) {
        uint32_t b = begin > base ? begin - base : 0, e = end > base ? end - base : 0;
        e = smaller(e, w[i]->n);
        if (b < e)
            core_product(c, w[i], NULL, b, e, form_row(&c->in, w[i]->type, 0),
                         form_stride(&c->in, w[i]->type), c->step.rows, y[i], w[i]->n);
    }
}

/* Norms, rotation of the key, and the row of the cache. */
static void latent_rows(void *arg, uint32_t thread, uint32_t threads)
{
    struct core *c = arg;
    const struct core_layer *l = core_layer_now(c);
    const struct core_mla *m = &c->mla;
    uint32_t begin, end, key = m->key;
    pool_share(c->step.rows, 1, thread, threads, &begin, &end);
    for (uint32_t r = begin; r < end; r++) {
        const struct core_sequence *sequence = core_sequence_of(c, r);
        uint32_t position = c->row[r].position;
        float *kv = c->k + (size_t)r * key;
        if (m->q_rank > 0) {
            float *q = form_floats(&m->query, r);
            c->ops->rms_norm(q, l->q_a_norm, m->q_rank, c->hp.rms_eps, q);
            core_make_forms(c, &m->query, r, l->query_forms);
        }
        c->ops->rms_norm(kv, l->kv_a_norm, m->rank, c->hp.rms_eps, kv);
        kernel_rope_pairs(kv + m->rank, m->rope, core_angles(c, l->attention.rope_table, r));
        kernel_kv_store(c->ops, sequence->kv_type, KV_KEYS, kv, key,
                        (uint8_t *)sequence->keys[c->step.layer] +
                            kernel_kv_tile(sequence->kv_type, 1, key, position, 0),
                        position % KERNEL_KEY_TILE);
    }
}

/* ---- heads ---- */

/* Heads [head, head + heads) of the rows [row, row + rows). A query is [row][head]. */
struct block {
    struct core *c;
    const struct core_layer *l;
    const struct core_mla *m;
    struct mla_thread *t;
    uint32_t row, rows, head, heads;
};

static void queries(const struct block *b)
{
    const struct core_mla *m = b->m;
    uint32_t size = m->nope + m->rope, n = b->heads * size;
    const struct form_rows *x = m->q_rank > 0 ? &m->query : &b->c->in;
    struct kernel_matrix w = part_of(&b->l->q, b->head * size, n);
    core_product(b->c, &w, b->l->q_scale, 0, n, form_row(x, w.type, b->row), form_stride(x, w.type),
                 b->rows, b->t->q, n);
}

/* Queries for the latents and the rotated keys. */
static void absorb_keys(const struct block *b)
{
    const struct core_mla *m = b->m;
    const struct kernel_matrix *w = &b->l->k_b;
    uint32_t size = m->nope + m->rope, key = m->key;
    enum kernel_form form = kernel_form_of(w->type);
    for (uint32_t i = 0; i < b->rows * b->heads; i++) {
        float *q = b->t->q + (size_t)i * size;
        kernel_rope_pairs(q + m->nope, m->rope,
                          core_angles(b->c, b->l->attention.rope_table, b->row + i / b->heads));
        memcpy(b->t->key_q + (size_t)i * key + m->rank, q + m->nope, m->rope * sizeof *q);
        if (form != FORM_F32)
            b->c->ops->activation(w->type, q, m->nope,
                                  b->t->nope.base[form] + i * b->t->nope.stride[form]);
    }
    const uint8_t *x = form == FORM_F32 ? (const uint8_t *)b->t->q : b->t->nope.base[form];
    size_t stride = form == FORM_F32 ? size * sizeof(float) : b->t->nope.stride[form];
    for (uint32_t j = 0; j < b->heads; j++) {
        struct kernel_matrix head = part_of(w, (b->head + j) * m->rank, m->rank);
        core_product(b->c, &head, NULL, 0, m->rank, x + j * stride, b->heads * stride, b->rows,
                     b->t->key_q + (size_t)j * key, (size_t)b->heads * key);
    }
}

/* The weighted sums of latents. */
static void attend(const struct block *b)
{
    const struct core_mla *m = b->m;
    uint32_t key = m->key;
    for (uint32_t r = 0, n; r < b->rows; r += n) {
        n = core_run_of(b->c, b->row + r, b->rows - r);
        const struct core_sequence *sequence = core_sequence_of(b->c, b->row + r);
        struct kernel_attention a = {
            .q = b->t->key_q + (size_t)r * b->heads * key,
            .k = sequence->keys[b->c->step.layer],
            .kv_type = sequence->kv_type,
            .out = form_floats(&b->t->latent, r * b->heads),
            .q_stride = (size_t)b->heads * key,
            .out_stride = (size_t)b->heads * m->rank,
            .rows = n,
            .heads = b->heads,
            .kv_heads = 1,
            .key_size = key,
            .value_size = m->rank,
            .head_end = b->heads,
            .positions = b->c->row[b->row + r].position + 1,
            /* v: NULL, the values are in the keys */
            .scale = b->l->scale,
        };
        b->c->ops->attention(&a);
    }
}

static void values(const struct block *b)
{
    const struct core_mla *m = b->m;
    const struct kernel_matrix *w = &b->l->v_b;
    const struct form_rows *x = &b->t->latent;
    for (uint32_t i = 0; i < b->rows * b->heads; i++)
        core_make_forms(b->c, x, i, form_bit(w));
    for (uint32_t j = 0; j < b->heads; j++) {
        struct kernel_matrix head = part_of(w, (b->head + j) * m->value, m->value);
        core_product(b->c, &head, NULL, 0, m->value, form_row(x, w->type, j),
                     b->heads * form_stride(x, w->type), b->rows,
                     form_floats(&b->c->mix, b->row) + (size_t)(b->head + j) * m->value,
                     b->c->mix.stride[FORM_F32] / sizeof(float));
    }
}

static void whole_heads(void *arg, uint32_t part, uint32_t parts)
{
    struct core *c = arg;
    struct block b = {.c = c, .l = core_layer_now(c), .m = &c->mla, .t = &c->thread[pool_me()].mla};
    uint32_t begin, end, rows = c->step.rows;
    pool_share(c->hp.heads, 1, part, parts, &begin, &end);
    uint32_t block_rows = smaller(rows, MLA_QUERIES), block_heads = MLA_QUERIES / block_rows;
    for (b.head = begin; b.head < end; b.head += b.heads) {
        b.heads = smaller(block_heads, end - b.head);
        for (b.row = 0; b.row < rows; b.row += b.rows) {
            b.rows = smaller(block_rows, rows - b.row);
            queries(&b);
            absorb_keys(&b);
            attend(&b);
            values(&b);
            core_alive(c, part);
        }
    }
}

/* A part reads the whole cache, so a single row has one part per thread. */
static uint32_t head_parts(const struct core *c)
{
    const struct core_mla *m = &c->mla;
    uint64_t per_head = (uint64_t)m->rank * (m->nope + m->value) * c->step.rows;
    uint32_t parts = c->step.rows == 1 ? c->threads : pool_parts(c->pool, per_head * c->hp.heads);
    return smaller(parts, c->hp.heads);
}

void core_mla(struct core *c)
{
    const struct core_layer *l = core_layer_now(c);
    uint32_t rows = c->step.rows;
    form_rows_set(&c->mix, l->mix_size);
    core_attention_norm(c);
    core_run_columns(c, l->q_a.n + l->kv_a.n, c->hp.hidden, rows, project_columns);
    core_run_rows(c, rows, latent_rows);
    pool_run_parts(c->pool, head_parts(c), whole_heads, c);
    core_attention_output(c);
}
