/* SPDX-License-Identifier: Apache-2.0 */
/* Template of attention over the vector primitives of vec.h; included once per instruction set. One
 * head at a time: running maximum m, sum of exponentials l and weighted values acc of a segment of
 * keys, rescaled for each tile. */
#define KEYS_AT_ONCE                                                                               \
    (8 /                                                                                           \
     HALVES) /* keys are often a power of two bytes apart: more would compete for one set of   \
                    the cache */
#define TILE_VECTORS (KERNEL_KEY_TILE / VL)

struct head {
    const float *q;
    const uint16_t *k, *v; /* of this kv head, at position 0 */
    size_t stride;
    uint32_t size;
    float scale;
    /* of the keys of the segment so far */
    float m, l;
    float acc[KERNEL_HEAD_SIZE_MAX];
};

/* Dot products of q and the KEYS_AT_ONCE keys from `first` on; from `end` on, the last key
 * again. */
static ALWAYS_INLINE void key_products(const struct head *h, uint32_t first, uint32_t end, vf *sum)
{
    const uint16_t *key[KEYS_AT_ONCE];
    vf acc[KEYS_AT_ONCE][HALVES];
    UNROLL for (uint32_t i = 0; i < KEYS_AT_ONCE; i++)
    {
        uint32_t at = first + i < end ? first + i : end - 1;
        key[i] = h->k + at * h->stride;
        UNROLL for (int half = 0; half < HALVES; half++) acc[i][half] = vf_set1(0);
    }
    uint32_t d = 0;
    for (; d + 16 <= h->size; d += 16) {
        UNROLL for (int half = 0; half < HALVES; half++)
        {
            vf q = vf_load(h->q + d + half * VL);
            UNROLL for (int i = 0; i < KEYS_AT_ONCE; i++) acc[i][half] =
                vf_fma(q, vh_load(key[i] + d + half * VL), acc[i][half]);
        }
    }
    UNROLL for (int half = 0; half < HALVES; half++)
    {
        uint32_t at = d + (uint32_t)half * VL, n = at < h->size ? h->size - at : 0;
        n = n < VL ? n : VL;
        if (n == 0)
            break;
        vf q = vf_load_n(h->q + at, n);
        UNROLL for (int i = 0; i < KEYS_AT_ONCE; i++) acc[i][half] =
            vf_fma_n(q, vh_load_n(key[i] + at, n), acc[i][half], n);
    }
    UNROLL for (int i = 0; i < KEYS_AT_ONCE; i++) sum[i] = vf_join_halves(acc[i]);
}

/* Scores of the keys [first, end), padded with -inf to whole vectors; returns their number. */
static uint32_t tile_scores(const struct head *h, uint32_t first, uint32_t end, float *score)
{
    uint32_t vectors = (end - first + VL - 1) / VL;
    for (uint32_t g = 0; g < vectors; g++) {
        vf sum[VL];
        UNROLL for (uint32_t i = 0; i < VL; i += KEYS_AT_ONCE)
            key_products(h, first + g * VL + i, end, sum + i);
        vf_store(score + g * VL, vf_mul(vf_sum_rows(sum), vf_set1(h->scale)));
    }
    for (uint32_t i = end - first; i < vectors * VL; i++)
        score[i] = -INFINITY;
    return vectors;
}

/* acc = acc * old + sum over keys of p * value, for `width` vectors from element d on. */
static ALWAYS_INLINE void add_values(struct head *h, uint32_t first, uint32_t end, const float *p,
                                     float old, uint32_t d, const int width)
{
    vf acc[8];
    UNROLL for (int i = 0; i < width; i++) acc[i] =
        vf_mul(vf_load(h->acc + d + i * VL), vf_set1(old));
    const uint16_t *v = h->v + first * h->stride + d;
    for (uint32_t key = first; key < end; key++, v += h->stride) {
        vf weight = vf_set1(p[key - first]);
        UNROLL for (int i = 0; i < width; i++) acc[i] = vf_fma(weight, vh_load(v + i * VL), acc[i]);
    }
    UNROLL for (int i = 0; i < width; i++) vf_store(h->acc + d + i * VL, acc[i]);
}

static void add_values_end(struct head *h, uint32_t first, uint32_t end, const float *p, float old,
                           uint32_t d)
{
    uint32_t n = h->size - d;
    vf acc = vf_mul(vf_load_n(h->acc + d, n), vf_set1(old));
    const uint16_t *v = h->v + first * h->stride + d;
    for (uint32_t key = first; key < end; key++, v += h->stride)
        acc = vf_fma(vf_set1(p[key - first]), vh_load_n(v, n), acc);
    vf_store_n(h->acc + d, acc, n);
}

static void tile_values(struct head *h, uint32_t first, uint32_t end, const float *p, float old)
{
    uint32_t d = 0;
    for (; d + 8 * VL <= h->size; d += 8 * VL)
        add_values(h, first, end, p, old, d, 8);
    for (; d + 4 * VL <= h->size; d += 4 * VL)
        add_values(h, first, end, p, old, d, 4);
    for (; d + VL <= h->size; d += VL)
        add_values(h, first, end, p, old, d, 1);
    if (d < h->size)
        add_values_end(h, first, end, p, old, d);
}

static void add_tile(struct head *h, uint32_t at, uint32_t end)
{
    float p[KERNEL_KEY_TILE];
    uint32_t vectors = tile_scores(h, at, end, p);
    vf top = vf_set1(h->m), sum[HALVES];
    UNROLL for (int half = 0; half < HALVES; half++) sum[half] = vf_set1(0);
    for (uint32_t i = 0; i < vectors; i++)
        top = vf_max(top, vf_load(p + i * VL));
    float max = vf_max_lane(top);
    for (uint32_t i = 0; i < vectors; i += HALVES) {
        UNROLL for (uint32_t half = 0; half < HALVES; half++)
        {
            if (i + half >= vectors)
                break;
            vf e = vf_exp(vf_sub(vf_load(p + (i + half) * VL), vf_set1(max)));
            vf_store(p + (i + half) * VL, e);
            sum[half] = vf_add(sum[half], e);
        }
    }
    float old = vf_first(vf_exp(vf_set1(h->m - max)));
    tile_values(h, at, end, p, old);
    h->l = fmaf(h->l, old, vf_sum16(sum));
    h->m = max;
}

/* Joins the running softmax of a segment to that of all segments before it. */
static void merge_segment(struct head *all, const struct head *s)
{
    float max = s->m > all->m ? s->m : all->m;
    float a = vf_first(vf_exp(vf_set1(all->m - max))), b = vf_first(vf_exp(vf_set1(s->m - max)));
    FOR_VECTORS(i, lanes, s->size)
    {
        vf old = vf_mul(vf_load_n(all->acc + i, lanes), vf_set1(a));
        vf_store_n(all->acc + i, vf_fma(vf_load_n(s->acc + i, lanes), vf_set1(b), old), lanes);
    }
    all->l = fmaf(s->l, b, all->l * a);
    all->m = max;
}

static void head_attention(struct head *h, uint32_t positions, float *out)
{
    struct head all = {0};
    for (uint32_t at = 0; at < positions; at += KERNEL_KEY_SEGMENT) {
        uint32_t end = positions - at < KERNEL_KEY_SEGMENT ? positions : at + KERNEL_KEY_SEGMENT;
        h->m = -INFINITY;
        h->l = 0;
        memset(h->acc, 0, h->size * sizeof *h->acc);
        for (uint32_t tile = at; tile < end; tile += KERNEL_KEY_TILE)
            add_tile(h, tile, end - tile < KERNEL_KEY_TILE ? end : tile + KERNEL_KEY_TILE);
        if (at > 0)
            merge_segment(&all, h);
        else if (end < positions)
            all = *h;
    }
    const struct head *last = positions > KERNEL_KEY_SEGMENT ? &all : h;
    vf scale = vf_set1(last->l);
    FOR_VECTORS(i, lanes, h->size)
    vf_store_n(out + i, vf_div(vf_load_n(last->acc + i, lanes), scale), lanes);
}

static void simd_attention(const struct kernel_attention *a)
{
    sl_assert(a->head_size <= KERNEL_HEAD_SIZE_MAX && a->positions > 0);
    uint32_t group = a->heads / a->kv_heads;
    struct head h = {
        .stride = (size_t)a->kv_heads * a->head_size, .size = a->head_size, .scale = a->scale};
    for (uint32_t i = a->head_begin; i < a->head_end; i++) {
        size_t kv = (size_t)(i / group) * a->head_size, own = (size_t)i * a->head_size;
        h.q = a->q + own;
        h.k = a->k + kv;
        h.v = a->v + kv;
        head_attention(&h, a->positions, a->out + own);
    }
}
