/* SPDX-License-Identifier: Apache-2.0 */
/* Template, included by attention.h: scores of the queries of a block with a tile of keys, and
 * their weights. */

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

/* ---- products of many queries: lanes are keys ---- */

/* Transposes keys from `first` on, as F32: element d is row (d % 16) * steps + d / 16 of
 * KEYS_TOGETHER positions, so that what the definition sums in one lane is adjacent. */
static ALWAYS_INLINE void transpose_keys(const enum kv_type type, struct query_block *b,
                                         const struct tile_rows *t, uint32_t first)
{
    _Alignas(64) float part[VL][16];
    const uint8_t *row[VL];
    for (int i = 0; i < VL; i++)
        row[i] = (const uint8_t *)part[i];
    const uint32_t steps = (b->size + 15) / 16;
    for (uint32_t v = 0; v < KEYS_TOGETHER; v += VL)
        for (uint32_t step = 0; step < steps; step++) {
            const uint32_t d = step * 16;
            UNROLL for (uint32_t i = 0; i < VL; i++) UNROLL for (int h = 0; h < HALVES; h++)
            {
                uint32_t at = d + (uint32_t)h * VL, n = at < b->size ? b->size - at : 0;
                vf_store(part[i] + h * VL, n >= VL ? row_load(type, t, first + v + i, d, h)
                                                   : row_load_n(type, t, first + v + i, at, n));
            }
            UNROLL for (uint32_t g = 0; g < 4; g++)
            {
                vq word[4];
                vq_transpose(row, (size_t)g * 16, word);
                UNROLL for (uint32_t w = 0; w < 4; w++) vq_store(
                    b->turned.keys + (size_t)((g * 4 + w) * steps + step) * KEYS_TOGETHER + v,
                    word[w]);
            }
        }
}

static ALWAYS_INLINE void add_products(vf sum[MANY_QUERIES][KEY_VECTORS], const float *x,
                                       const float *k)
{
    vf e[MANY_QUERIES];
    UNROLL for (int i = 0; i < MANY_QUERIES; i++) e[i] = vf_set1(x[i]);
    UNROLL for (int v = 0; v < KEY_VECTORS; v++)
    {
        vf key = vf_load(k + v * VL);
        UNROLL for (int i = 0; i < MANY_QUERIES; i++) sum[i][v] = vf_fma(e[i], key, sum[i][v]);
    }
}

/* Scores of the register tile from `query` on with the transposed keys, which are those from
 * `first` on. Of the definition's 16 lanes, two sums that it adds are added as soon as both are
 * there: the numbers of the lanes, with their bits reversed, count up. */
static void scores_by_lane(struct query_block *b, uint32_t query, uint32_t first)
{
    vf waiting[4][MANY_QUERIES][KEY_VECTORS], sum[MANY_QUERIES][KEY_VECTORS];
    const uint32_t all = (b->size + 15) / 16;
    const float *turned = b->turned.queries + (size_t)query * 16 * all;
    for (uint32_t n = 0, count = 0; n < 16; n++) {
        const uint32_t lane = (n & 1) << 3 | (n & 2) << 1 | (n & 4) >> 1 | n >> 3;
        const uint32_t steps = lane < b->size ? (b->size - lane + 15) / 16 : 0;
        const float *x = turned + (size_t)lane * all * MANY_QUERIES;
        const float *k = b->turned.keys + (size_t)lane * all * KEYS_TOGETHER;
        UNROLL for (int i = 0; i < MANY_QUERIES; i++) UNROLL for (int v = 0; v < KEY_VECTORS; v++)
            sum[i][v] = vf_set1(0);
        uint32_t step = 0;
        for (; step + 8 <= steps; step += 8, x += 8 * MANY_QUERIES, k += 8 * KEYS_TOGETHER)
            UNROLL for (int j = 0; j < 8; j++)
                add_products(sum, x + j * MANY_QUERIES, k + j * KEYS_TOGETHER);
        for (; step < steps; step++, x += MANY_QUERIES, k += KEYS_TOGETHER)
            add_products(sum, x, k);
        for (uint32_t pairs = n; pairs & 1; pairs >>= 1) {
            count--;
            UNROLL for (int i = 0; i < MANY_QUERIES; i++)
                UNROLL for (int v = 0; v < KEY_VECTORS; v++) sum[i][v] =
                    vf_add(waiting[count][i][v], sum[i][v]);
        }
        if (n < 15) {
            UNROLL for (int i = 0; i < MANY_QUERIES; i++)
                UNROLL for (int v = 0; v < KEY_VECTORS; v++) waiting[count][i][v] = sum[i][v];
            count++;
        }
    }
    const vf scale = vf_set1(b->scale);
    UNROLL for (int i = 0; i < MANY_QUERIES; i++) UNROLL for (int v = 0; v < KEY_VECTORS; v++)
        vf_store(b->p[query + (uint32_t)i] + first + v * VL, vf_mul(sum[i][v], scale));
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

/* Scores of keys that a query does not attend to, up to `end`: their weight is 0, as exp(-150) is
 * below all floats. */
static void mask_scores(const struct query *q, uint32_t end)
{
    for (uint32_t i = 0; i < q->first; i++)
        q->p[i] = -INFINITY;
    for (uint32_t i = q->keys; i < end; i++)
        q->p[i] = -INFINITY;
}

/* The softmax of queries moves on by a tile: scores become weights. No query has more keys than the
 * last. */
static ALWAYS_INLINE void weights_of(const int queries, struct query *const q[], float cap)
{
    const uint32_t vectors = (q[queries - 1]->keys + VL - 1) / VL;
    vf top[TILE_QUERIES], sum[TILE_QUERIES][HALVES];
    float *p[TILE_QUERIES], max[TILE_QUERIES], old[VL] = {0};
    for (int i = 0; i < queries; i++) {
        p[i] = q[i]->p;
        if (cap != 0)
            cap_scores(p[i], vectors, cap);
        mask_scores(q[i], vectors * VL);
        top[i] = vf_set1(q[i]->m);
    }
    for (uint32_t v = 0; v < vectors * VL; v += VL)
        UNROLL for (int i = 0; i < queries; i++) top[i] = vf_max(top[i], vf_load(p[i] + v));
    UNROLL for (int i = 0; i < queries; i++)
    {
        max[i] = vf_max_lane(top[i]);
        old[i] = q[i]->m - max[i];
        UNROLL for (int half = 0; half < HALVES; half++) sum[i][half] = vf_set1(0);
    }
    for (uint32_t v = 0; v < vectors; v += HALVES)
        UNROLL for (uint32_t half = 0; half < HALVES; half++)
        {
            if (v + half >= vectors)
                break;
            UNROLL for (int i = 0; i < queries; i++)
            {
                float *at = p[i] + (v + half) * VL;
                vf e = vf_exp(vf_sub(vf_load(at), vf_set1(max[i])));
                vf_store(at, e);
                sum[i][half] = vf_add(sum[i][half], e);
            }
        }
    if (queries > 1)
        vf_store(old, vf_exp(vf_load(old)));
    else /* a load of what was just stored in parts waits */
        old[0] = vf_first(vf_exp(vf_set1(old[0])));
    UNROLL for (int i = 0; i < queries; i++)
    {
        q[i]->old = old[i];
        q[i]->l = fmaf(q[i]->l, old[i], vf_sum16(sum[i]));
        q[i]->m = max[i];
    }
}

static void tile_weights(struct query *q, float cap)
{
    weights_of(1, &q, cap);
}

/* The first `n` queries of a register tile. */
static void tiles_weights(struct query *const q[TILE_QUERIES], uint32_t n, float cap)
{
    if (n == TILE_QUERIES)
        weights_of(TILE_QUERIES, q, cap);
    else
        for (uint32_t i = 0; i < n; i++)
            tile_weights(q[i], cap);
}

/* Scores of many queries. The register tiles are those of `turned`, so they may have queries
 * outside [first, end), whose scores are not used. */
static ALWAYS_INLINE void scores_of_many(const enum kv_type type, struct query_block *b,
                                         uint32_t first, uint32_t end, const struct tile_rows *t)
{
    uint32_t keys = b->query[end - 1].keys, begin = first / MANY_QUERIES * MANY_QUERIES;
    uint32_t count = (end - begin + MANY_QUERIES - 1) / MANY_QUERIES;
    for (uint32_t key = 0; key < keys; key += KEYS_TOGETHER) {
        transpose_keys(type, b, t, key);
        for (uint32_t i = begin; i < end; i += MANY_QUERIES) {
            uint32_t last = i + MANY_QUERIES < end ? i + MANY_QUERIES - 1 : end - 1;
            if (b->query[last].keys > key)
                scores_by_lane(b, i, key);
            prefetch_part(t, key / KEYS_TOGETHER * count + (i - begin) / MANY_QUERIES,
                          TILE_KEYS / KEYS_TOGETHER * count);
        }
    }
}

static ALWAYS_INLINE void scores_of_tile(const enum kv_type type, struct query_block *b,
                                         uint32_t first, uint32_t end, const struct tile_rows *t)
{
    struct query *q[TILE_QUERIES];
    uint32_t steps = (end - first + TILE_QUERIES - 1) / TILE_QUERIES;
    const bool many = !kv_is_quantised(type) && b->turns && end - first >= TURNED_FROM;
    if (many)
        scores_of_many(type, b, first, end, t);
    for (uint32_t step = 0; step < steps; step++, first += TILE_QUERIES) {
        uint32_t n = pick(b, first, end, TILE_QUERIES, q);
        if (!many) {
            tile_scores(type, TILE_QUERIES, (const struct query *const *)q, t, b, q[n - 1]->keys);
            prefetch_part(t, step, steps);
        }
        tiles_weights(q, n, b->cap);
    }
}
