/* SPDX-License-Identifier: Apache-2.0 */
/* Template of the generic kernels: included by table.h. */
/* Attention in plain C. */

/* A running softmax over keys: the maximum m, the sum of exponentials l, the weighted values. */
struct softmax {
    float m, l;
    float acc[KERNEL_WIDE_VALUE_MAX];
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

static float kv_scale(enum kv_type type, const uint8_t *tile, uint32_t padded, uint32_t block,
                      uint32_t position)
{
    return f16_to_f32(load_u16(tile + kv_scale_offset(type, padded, block, position)));
}

/* Code of an element: byte i of p, signed, or its nibble. */
static int32_t kv_code(enum kv_type type, const uint8_t *p, uint32_t i, bool high)
{
    return type == KV_TYPE_Q4_0 ? (p[i] >> (high ? 4 : 0) & 15) - 8 : (int8_t)p[i];
}

/* Product of a prepared query with a quantised key. */
static float key_product(enum kv_type type, const struct key_query *q, const uint8_t *tile,
                         uint32_t padded, uint32_t position)
{
    float sum = 0;
    for (uint32_t b = 0; b < padded / QK; b++) {
        int32_t dot = 0;
        for (uint32_t e = b * QK; e < (b + 1) * QK; e += 4) {
            const uint8_t *word = tile + kv_key_word(type, padded, position, e);
            for (uint32_t i = 0; i < 4; i++)
                dot += kv_code(type, word, i, e / 4 % 2 != 0) * q->q[e + i];
        }
        sum = fmaf((float)dot * kv_scale(type, tile, padded, b, position), q->d[b], sum);
    }
    return sum;
}

/* A row of keys or values in F16 or F32, or of values in any type, as F32. */
static void kv_row(enum kv_type type, const uint8_t *tile, uint32_t size, uint32_t position,
                   float *row)
{
    uint32_t padded = kv_padded(size);
    const uint8_t *codes = tile + kv_value_row(type, padded, position);
    switch (type) {
    case KV_TYPE_F16:
        halves_to_f32((const uint16_t *)(const void *)tile + (size_t)position * size, size, row);
        return;
    case KV_TYPE_F32:
        memcpy(row, tile + (size_t)position * size * sizeof *row, size * sizeof *row);
        return;
    default:
        for (uint32_t e = 0; e < size; e++) {
            uint32_t byte = type == KV_TYPE_Q4_0 ? e / QK * QK / 2 + e % (QK / 2) : e;
            row[e] = kv_scale(type, tile, padded, e / QK, position) *
                     (float)kv_code(type, codes, byte, e / (QK / 2) % 2 != 0);
        }
    }
}

/* The first `size` elements of a key as F32; `row` has space for the whole key in F16 or F32. */
static void key_row(enum kv_type type, const uint8_t *tile, uint32_t key_size, uint32_t size,
                    uint32_t position, float *row)
{
    uint32_t padded = kv_padded(key_size);
    if (!kv_is_quantised(type)) {
        kv_row(type, tile, key_size, position, row);
        return;
    }
    for (uint32_t e = 0; e < size; e++) {
        const uint8_t *word = tile + kv_key_word(type, padded, position, e / 4 * 4);
        row[e] = kv_scale(type, tile, padded, e / QK, position) *
                 (float)kv_code(type, word, e % 4, e / 4 % 2 != 0);
    }
}

/* One query head. */
struct head_query {
    const float *q;
    struct key_query quantised; /* if the keys are */
};

static float product(const struct kernel_attention *a, const struct head_query *q,
                     const uint8_t *keys, uint32_t position)
{
    float sums[LANES] = {0}, row[KERNEL_WIDE_KEY_MAX];
    if (kv_is_quantised(a->kv_type))
        return a->scale *
               key_product(a->kv_type, &q->quantised, keys, kv_padded(a->key_size), position);
    kv_row(a->kv_type, keys, a->key_size, position, row);
    lanes_add(q->q, row, a->key_size, sums);
    return sum_lanes(sums) * a->scale;
}

static float score(const struct kernel_attention *a, const struct head_query *q,
                   const uint8_t *keys, uint32_t position)
{
    float x = product(a, q, keys, position);
    if (a->cap == 0)
        return x;
    x = x / a->cap;
    return (1.0f - 2.0f / (exp_one(x + x) + 1.0f)) * a->cap;
}

/* Keys of a tile, ascending: [first, end), or a list of positions, whose tile begins at `at`. */
struct tile_keys {
    uint32_t first, end, at;
    const uint32_t *list; /* NULL: none */
};

static uint32_t key_of(const struct tile_keys *t, uint32_t i)
{
    return t->list ? t->list[i] - t->at : i;
}

/* Adds keys of the tile that begins at position `at`. */
static void add_tile(const struct kernel_attention *a, const struct head_query *q, uint32_t kv_head,
                     const struct tile_keys *t, struct softmax *s)
{
    uint32_t at = kernel_ring_position(a->ring, t->at), first = t->first, end = t->end;
    const uint8_t *keys =
        (const uint8_t *)a->k + kernel_kv_tile(a->kv_type, a->kv_heads, a->key_size, at, kv_head);
    size_t values = kernel_kv_tile(a->kv_type, a->kv_heads, a->value_size, at, kv_head);
    float p[KERNEL_KEY_TILE], top = s->m, lanes[LANES] = {0}, row[KERNEL_WIDE_KEY_MAX];
    for (uint32_t i = first; i < end; i++) {
        p[i] = score(a, q, keys, key_of(t, i));
        top = p[i] > top ? p[i] : top;
    }
    float old = exp_one(s->m - top);
    for (uint32_t d = 0; d < a->value_size; d++)
        s->acc[d] *= old;
    for (uint32_t i = first; i < end; i++) {
        uint32_t key = key_of(t, i);
        if (a->v)
            kv_row(a->kv_type, (const uint8_t *)a->v + values, a->value_size, key, row);
        else
            key_row(a->kv_type, keys, a->key_size, a->value_size, key, row);
        p[i] = exp_one(p[i] - top);
        lanes[key % LANES] += p[i];
        add_value(p[i], row, a->value_size, s->acc);
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

static void quantise_query(const struct kernel_attention *a, struct head_query *q)
{
    _Alignas(64) uint8_t act[KEY_QUERY_BYTES];
    float whole[KERNEL_HEAD_SIZE_MAX] = {0};
    uint32_t padded = kv_padded(a->key_size);
    memcpy(whole, q->q, a->key_size * sizeof *whole);
    generic_activation(kv_activation_type(a->kv_type), whole, padded, act);
    key_query_from(act, padded, &q->quantised);
}

static void add_sink(float sink, struct softmax *all, uint32_t n)
{
    float top = sink > all->m ? sink : all->m;
    float a = exp_one(all->m - top), b = exp_one(sink - top);
    for (uint32_t d = 0; d < n; d++)
        all->acc[d] *= a;
    all->l = all->l * a + b;
}

/* The keys of a row, tile by tile. */
struct row_keys {
    uint32_t begin, positions;
    struct chosen_row chosen;
    bool listed;
};

/* The keys of the next tile, NULL list or not; false: there are none. */
static bool next_tile(struct row_keys *r, struct tile_keys *t)
{
    const uint32_t *list = r->chosen.at, count = r->chosen.count;
    uint32_t begin = r->listed && count > 0 ? list[0] : r->begin;
    if (r->listed ? count == 0 : begin >= r->positions)
        return false;
    *t = (struct tile_keys){.at = begin / KERNEL_KEY_TILE * KERNEL_KEY_TILE};
    uint32_t next = t->at + KERNEL_KEY_TILE;
    if (!r->listed) {
        t->first = begin - t->at;
        t->end = (r->positions < next ? r->positions : next) - t->at;
        r->begin = next;
        return true;
    }
    t->list = list;
    while (t->end < count && list[t->end] < next)
        t->end++;
    r->chosen = (struct chosen_row){list + t->end, count - t->end};
    return true;
}

static void head_attention(const struct kernel_attention *a, uint32_t head, uint32_t row)
{
    struct head_query q = {.q = a->q + row * a->q_stride + (size_t)head * a->key_size};
    float *out = a->out + row * a->out_stride + (size_t)head * a->value_size;
    uint32_t kv_head = head / (a->heads / a->kv_heads), positions = a->positions + row;
    struct row_keys keys = {.begin = kernel_attention_begin(a->window, positions),
                            .positions = positions,
                            .listed = a->chosen.count != NULL};
    struct softmax all = {0}, s = {.m = -INFINITY};
    struct tile_keys tile, next = {0};
    bool first = true;
    if (keys.listed)
        keys.chosen = chosen_of(&a->chosen, row, keys.begin);
    if (kv_is_quantised(a->kv_type))
        quantise_query(a, &q);
    for (bool more = next_tile(&keys, &next); more;) {
        tile = next;
        add_tile(a, &q, kv_head, &tile, &s);
        more = next_tile(&keys, &next);
        if (more && next.at / KERNEL_KEY_SEGMENT == tile.at / KERNEL_KEY_SEGMENT)
            continue;
        if (first)
            all = s;
        else
            merge(&all, &s, a->value_size);
        first = false;
        s = (struct softmax){.m = -INFINITY};
    }
    if (first) { /* no positions */
        memset(out, 0, a->value_size * sizeof *out);
        return;
    }
    if (a->sinks)
        add_sink(a->sinks[head], &all, a->value_size);
    for (uint32_t d = 0; d < a->value_size; d++)
        out[d] = all.acc[d] / all.l;
}

static void generic_attention(const struct kernel_attention *a)
{
    attention_check_wide(a);
    for (uint32_t row = 0; row < a->rows; row++)
        for (uint32_t head = a->head_begin; head < a->head_end; head++)
            head_attention(a, head, row);
}
