/* SPDX-License-Identifier: Apache-2.0 */
/* Template of the products of queries with quantised keys: int8 dot products, whose lanes are keys.
 * Included by attention.h. */

/* Tile with `keys`: what is read of it. */
struct key_tile {
    const uint8_t *base;
    uint32_t padded; /* of a head */
};

/* Products of `queries` with `vectors` vectors of keys from `first` on: one per lane. */
static ALWAYS_INLINE void key_products(const enum kv_type type, const int queries,
                                       const int vectors,
                                       const struct key_query *const q[TILE_QUERIES],
                                       const struct key_tile *t, uint32_t first, vf sum[])
{
    const bool wide = type == KV_TYPE_Q8_0;
    UNROLL for (int i = 0; i < queries * vectors; i++) sum[i] = vf_set1(0);
    for (uint32_t b = 0; b < t->padded / QK; b++) {
        struct dots dot[KEY_SUMS];
        UNROLL for (int i = 0; i < queries; i++) UNROLL for (int j = 0; j < vectors; j++)
            dot[i * vectors + j] = dots_start(vi_set1(!wide || WIDE_CORRECTED ? q[i]->c[b] : 0));
        const uint8_t *words[KEY_SUMS];
        UNROLL for (int j = 0; j < vectors; j++) words[j] =
            t->base + kv_key_word(type, t->padded, first + (uint32_t)(j * VL), b * QK);
        UNROLL for (uint32_t w = 0; w < QK / 4; w += wide ? 1 : 2)
        {
            vq low[KEY_SUMS], high[KEY_SUMS];
            UNROLL for (int j = 0; j < vectors; j++)
            {
                vq k = vq_load(words[j] + (wide ? w : w / 2) * 4 * KEY_GROUP);
                low[j] = wide ? vq_wide(k) : vq_low_nibbles(k);
                high[j] = wide ? k : vq_high_nibbles(k);
            }
            UNROLL for (int i = 0; i < queries; i++)
            {
                int32_t word[2];
                memcpy(word, q[i]->q + b * QK + w * 4, sizeof word);
                UNROLL for (int j = 0; j < vectors; j++)
                {
                    dots_add(wide, &dot[i * vectors + j], low[j], vq_set_words(word[0]));
                    if (!wide)
                        dots_add(wide, &dot[i * vectors + j], high[j], vq_set_words(word[1]));
                }
            }
        }
        UNROLL for (int j = 0; j < vectors; j++)
        {
            vf scale =
                vh_load(t->base + kv_scale_offset(type, t->padded, b, first + (uint32_t)(j * VL)));
            UNROLL for (int i = 0; i < queries; i++)
            {
                struct dots *d = &dot[i * vectors + j];
                dots_fold(wide, d); /* codes below 16: eight vectors fit */
                sum[i * vectors + j] = vf_fma(vf_mul(vi_to_float(d->sum), scale),
                                              vf_set1(q[i]->d[b]), sum[i * vectors + j]);
            }
        }
    }
}

/* Scores of a register tile of queries with the first `keys` keys of a tile, and some more; p:
 * [TILE_KEYS] of each. */
static ALWAYS_INLINE void key_scores(const enum kv_type type, const int queries,
                                     const struct key_query *const q[TILE_QUERIES],
                                     const struct key_tile *t, float scale, uint32_t keys,
                                     float *const p[TILE_QUERIES])
{
    const int vectors = KEY_SUMS / (queries == 1 ? 2 : TILE_QUERIES);
    for (uint32_t first = 0; first < keys; first += (uint32_t)(vectors * VL)) {
        vf sum[KEY_SUMS];
        key_products(type, queries, vectors, q, t, first, sum);
        UNROLL for (int i = 0; i < queries; i++) UNROLL for (int j = 0; j < vectors; j++)
            vf_store(p[i] + first + j * VL, vf_mul(sum[i * vectors + j], vf_set1(scale)));
    }
}
