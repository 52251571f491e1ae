/* SPDX-License-Identifier: Apache-2.0 */
/* Template, included by attention.h: scores of the queries of a block with a tile of keys, and their weights. */

/* ---- products with keys ---- */

/* Sums of `queries` x `keys` products, query by query. Their number in registers is what an
 * instruction set has for it. */
static ALWAYS_INLINE void products(const enum kv_type type, const int queries, const int keys,
                                   const struct query *const q[TILE_QUERIES],
                                   const struct tile_rows *t, uint32_t size, uint32_t first,
                                   vf sum[VL], const int stride)
{
    vf acc[VL][HALVES];
    UNROLL for (int i = 0; i < queries * keys; i++) UNROLL for (int h = 0; h < HALVES; h++)
        acc[i][h] = vf_set1(0);
    uint32_t d = 0;
    for (; d + 16 <= size; d += 16)
        UNROLL for (int h = 0; h < HALVES; h++)
        {
            vf x[TILE_QUERIES];
            UNROLL for (int i = 0; i < queries; i++) x[i] = vf_load(q[i]->q + d + h * VL);
            UNROLL for (int j = 0; j < keys; j++)
            {
                vf k = row_load(type, t, first + (uint32_t)j, d, h);
                UNROLL for (int i = 0; i < queries; i++) acc[i * keys + j][h] =
                    vf_fma(x[i], k, acc[i * keys + j][h]);
            }
        }
    UNROLL for (int h = 0; h < HALVES; h++)
    {
        uint32_t at = d + (uint32_t)h * VL, n = at < size ? size - at : 0;
        n = n < VL ? n : VL;
        if (n == 0)
            break;
        UNROLL for (int i = 0; i < queries; i++)
        {
            vf x = vf_load_n(q[i]->q + at, n);
            UNROLL for (int j = 0; j < keys; j++) acc[i * keys + j][h] = vf_fma_n(
                x, row_load_n(type, t, first + (uint32_t)j, at, n), acc[i * keys + j][h], n);
        }
    }
    UNROLL for (int i = 0; i < queries; i++) UNROLL for (int j = 0; j < keys; j++)
        sum[i * stride + j] = vf_join_halves(acc[i * keys + j]);
}

static ALWAYS_INLINE void scores_of_integers(const enum kv_type type, const int queries,
                                             const struct query *const q[TILE_QUERIES],
                                             const struct tile_rows *t, const struct query_block *b,
                                             uint32_t keys)
{
    const struct key_tile tile = {t->base, b->padded};
    const struct key_query *quantised[TILE_QUERIES];
    float *p[TILE_QUERIES];
    UNROLL for (int i = 0; i < queries; i++)
    {
        quantised[i] = q[i]->quantised;
        p[i] = q[i]->p;
    }
    key_scores(type, queries, quantised, &tile, b->scale, keys, p);
    if (queries == 1)
        prefetch_part(t, 0, 1);
}

/* Scores of a register tile of queries with the first `keys` keys of a tile, and some more. */
static ALWAYS_INLINE void tile_scores(const enum kv_type type, const int queries,
                                      const struct query *const q[TILE_QUERIES],
                                      const struct tile_rows *t, const struct query_block *b,
                                      uint32_t keys)
{
    if (kv_is_quantised(type)) {
        scores_of_integers(type, queries, q, t, b, keys);
        return;
    }
    enum { IN_REGISTERS = VL / HALVES };
    const int at_once = VL / queries, pass = IN_REGISTERS / queries;
    for (uint32_t first = 0; first < keys; first += (uint32_t)at_once) {
        vf sum[VL];
        UNROLL for (int j = 0; j < at_once; j += pass)
            products(type, queries, pass, q, t, b->size, first + (uint32_t)j, sum + j, at_once);
        vf score = vf_mul(vf_sum_rows(sum), vf_set1(b->scale));
        _Alignas(64) float lanes[VL];
        vf_store(queries == 1 ? q[0]->p + first : lanes, score);
        UNROLL for (int i = 0; i < queries && queries > 1; i++)
            memcpy(q[i]->p + first, lanes + i * at_once, sizeof(float) * (size_t)at_once);
        if (queries == 1)
            prefetch_part(t, first / (uint32_t)at_once, TILE_KEYS / (uint32_t)at_once);
    }
}

/* cap * tanh(score / cap) */
static void cap_scores(float *p, uint32_t vectors, float cap)
{
    vf c = vf_set1(cap), one = vf_set1(1), two = vf_set1(2);
    for (uint32_t i = 0; i < vectors * VL; i += VL) {
        vf x = vf_div(vf_load(p + i), c);
        vf e = vf_add(vf_exp(vf_add(x, x)), one);
        vf_store(p + i, vf_mul(vf_sub(one, vf_div(two, e)), c));
    }
}

/* The softmax of a query moves on by a tile: scores become weights. */
static void tile_weights(struct query *q, float cap)
{
    float *p = q->p;
    uint32_t vectors = (q->keys + VL - 1) / VL;
    if (cap != 0)
        cap_scores(p, vectors, cap);
    for (uint32_t i = 0; i < q->first; i++) /* their weight is 0: exp(-150) is below all floats */
        p[i] = -INFINITY;
    for (uint32_t i = q->keys; i < vectors * VL; i++)
        p[i] = -INFINITY;
    vf top = vf_set1(q->m), sum[HALVES];
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
    q->old = vf_first(vf_exp(vf_set1(q->m - max)));
    q->l = fmaf(q->l, q->old, vf_sum16(sum));
    q->m = max;
}
static ALWAYS_INLINE void scores_of_tile(const enum kv_type type, struct query_block *b,
                                         uint32_t first, uint32_t end, const struct tile_rows *t)
{
    struct query *q[TILE_QUERIES];
    uint32_t steps = (end - first + TILE_QUERIES - 1) / TILE_QUERIES;
    for (uint32_t step = 0; step < steps; step++, first += TILE_QUERIES) {
        uint32_t n = pick(b, first, end, q);
        tile_scores(type, TILE_QUERIES, (const struct query *const *)q, t, b, q[n - 1]->keys);
        prefetch_part(t, step, steps);
        for (uint32_t i = 0; i < n; i++)
            tile_weights(q[i], b->cap);
    }
}
