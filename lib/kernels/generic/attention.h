/* SPDX-License-Identifier: Apache-2.0 */
/* Template of the generic kernels: included by table.h. */
/* Attention in plain C. */

/* A running softmax over keys: the maximum m, the sum of exponentials l, the weighted values. */
struct softmax {
    float m, l;
    float acc[KERNEL_HEAD_SIZE_MAX];
};

static void halves_to_f32(const uint16_t *restrict h, uint32_t n, float *restrict y)
{
    uint32_t i = 0;
    for (; i + 8 <= n; i += 8)
        UNROLL for (uint32_t l = 0; l < 8; l++) y[i + l] = f16_to_f32(h[i + l]);
    for (; i < n; i++)
        y[i] = f16_to_f32(h[i]);
}

static void add_value(float p, const float *restrict v, uint32_t n, float *restrict acc)
{
    for (uint32_t d = 0; d < n; d++)
        acc[d] = fmaf(p, v[d], acc[d]);
}

/* Adds up to KERNEL_KEY_TILE keys from position `at` on. */
static void add_tile(const struct kernel_attention *a, const float *q, uint32_t kv_head,
                     uint32_t at, uint32_t count, struct softmax *s)
{
    size_t size = a->head_size, first = kernel_kv_at(a->kv_heads, a->head_size, at, kv_head);
    float p[KERNEL_KEY_TILE], top = s->m, lanes[LANES] = {0}, row[KERNEL_HEAD_SIZE_MAX];
    for (uint32_t i = 0; i < count; i++) {
        float sums[LANES] = {0};
        halves_to_f32(a->k + first + i * size, a->head_size, row);
        lanes_add(q, row, a->head_size, sums);
        p[i] = sum_lanes(sums) * a->scale;
        top = p[i] > top ? p[i] : top;
    }
    float old = exp_one(s->m - top);
    for (uint32_t d = 0; d < size; d++)
        s->acc[d] *= old;
    for (uint32_t i = 0; i < count; i++) {
        halves_to_f32(a->v + first + i * size, a->head_size, row);
        p[i] = exp_one(p[i] - top);
        lanes[i % LANES] += p[i];
        add_value(p[i], row, a->head_size, s->acc);
    }
    s->l = fmaf(s->l, old, sum_lanes(lanes));
    s->m = top;
}

static void merge(struct softmax *all, const struct softmax *s, uint32_t n)
{
    float top = s->m > all->m ? s->m : all->m;
    float a = exp_one(all->m - top), b = exp_one(s->m - top);
    for (uint32_t d = 0; d < n; d++)
        all->acc[d] = fmaf(s->acc[d], b, all->acc[d] * a);
    all->l = fmaf(s->l, b, all->l * a);
    all->m = top;
}

static void head_attention(const struct kernel_attention *a, uint32_t head, uint32_t row)
{
    const float *q = a->q + row * a->q_stride + (size_t)head * a->head_size;
    float *out = a->out + row * a->out_stride + (size_t)head * a->head_size;
    uint32_t kv_head = head / (a->heads / a->kv_heads), positions = a->positions + row;
    struct softmax all = {0};
    for (uint32_t at = 0; at < positions;) {
        uint32_t left = positions - at;
        uint32_t end = at + (left < KERNEL_KEY_SEGMENT ? left : KERNEL_KEY_SEGMENT);
        struct softmax s = {.m = -INFINITY};
        bool first = at == 0;
        for (; at < end; at += KERNEL_KEY_TILE)
            add_tile(a, q, kv_head, at, end - at < KERNEL_KEY_TILE ? end - at : KERNEL_KEY_TILE,
                     &s);
        at = end;
        if (first)
            all = s;
        else
            merge(&all, &s, a->head_size);
    }
    for (uint32_t d = 0; d < a->head_size; d++)
        out[d] = all.acc[d] / all.l;
}

static void generic_attention(const struct kernel_attention *a)
{
    sl_assert(a->head_size <= KERNEL_HEAD_SIZE_MAX && a->positions > 0);
    for (uint32_t row = 0; row < a->rows; row++)
        for (uint32_t head = a->head_begin; head < a->head_end; head++)
            head_attention(a, head, row);
}
