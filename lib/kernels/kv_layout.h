/* SPDX-License-Identifier: Apache-2.0 */
/* A tile of quantised keys or values of one head: codes, then scales. P: the head size, rounded up
 * to blocks of 32; a position writes its own bytes only.
 *
 *   keys      of each 16 positions, of each 4 elements: 4 bytes per position, int8 (Q8_0); or of
 *             each 8 elements: 4 bytes per position, low nibbles elements 0 to 3, high ones 4 to 7
 *             (Q4_0). So a vector holds one word of 16 keys, and a dot product needs no sum over
 *             its lanes
 *   values    rows of P int8 (Q8_0); of P / 2 bytes, per block 16 bytes, low nibbles its elements 0
 *             to 15, high ones 16 to 31 (Q4_0)
 *   scales    F16 [P / 32][64 positions]
 *
 * An element is scale * code (Q8_0), scale * (code - 8) (Q4_0). */
#ifndef SLUICE_KERNELS_KV_LAYOUT_H
#define SLUICE_KERNELS_KV_LAYOUT_H

#include "lib/kernels/internal.h"

#define KEY_GROUP 16 /* positions whose words lie together */

static inline uint32_t kv_padded(uint32_t head_size)
{
    return (head_size + QK - 1) / QK * QK;
}

static ALWAYS_INLINE bool kv_is_quantised(enum kv_type type)
{
    return type == KV_TYPE_Q8_0 || type == KV_TYPE_Q4_0;
}

/* Elements of a row per byte: 1 or 2. */
static ALWAYS_INLINE uint32_t kv_per_byte(enum kv_type type)
{
    return type == KV_TYPE_Q4_0 ? 2 : 1;
}

/* Offset of the word with element e (a multiple of 4) of a key. */
static ALWAYS_INLINE size_t kv_key_word(enum kv_type type, uint32_t padded, uint32_t position,
                                        uint32_t e)
{
    uint32_t per = kv_per_byte(type);
    return (size_t)(position / KEY_GROUP) * KEY_GROUP * padded / per +
           (size_t)(e / (4 * per)) * KEY_GROUP * 4 + position % KEY_GROUP * 4u;
}

static ALWAYS_INLINE size_t kv_value_row(enum kv_type type, uint32_t padded, uint32_t position)
{
    return (size_t)position * padded / kv_per_byte(type);
}

static ALWAYS_INLINE size_t kv_scale_offset(enum kv_type type, uint32_t padded, uint32_t block,
                                            uint32_t position)
{
    return (size_t)KV_TILE * padded / kv_per_byte(type) + 2 * ((size_t)block * KV_TILE + position);
}

/* The codes of the first `padded_values` elements of the keys [first, end) of a tile, in the layout
 * of values: rows of the same codes. */
static inline void kv_values_of_keys(enum kv_type type, const uint8_t *tile, uint32_t padded,
                                     uint32_t padded_values, uint32_t first, uint32_t end,
                                     uint8_t *out)
{
    for (uint32_t position = first; position < end; position++) {
        uint8_t *to = out + kv_value_row(type, padded_values, position);
        const uint8_t *from = tile + kv_key_word(type, padded, position, 0);
        for (uint32_t e = 0; type == KV_TYPE_Q8_0 && e < padded_values; e += 4)
            memcpy(to + e, from + (size_t)e * KEY_GROUP, 4);
        for (uint32_t e = 0; type == KV_TYPE_Q4_0 && e < padded_values; e += QK, to += QK / 2) {
            uint32_t word[4];
            for (uint32_t i = 0; i < 4; i++)
                memcpy(&word[i], from + (size_t)(e / 8 + i) * KEY_GROUP * 4, 4);
            for (uint32_t i = 0; i < 2; i++) {
                const uint32_t low = 0x0f0f0f0fu;
                uint32_t codes[2] = {(word[i] & low) | (word[i + 2] & low) << 4,
                                     (word[i] >> 4 & low) | (word[i + 2] & ~low)};
                memcpy(to + (size_t)i * 8, codes, 8);
            }
        }
    }
}

/* Elements of keys and values that are neither quantised nor listed, which no kernel copies: more
 * than KERNEL_HEAD_SIZE_MAX and KERNEL_VALUE_SIZE_MAX. */
#define KERNEL_WIDE_KEY_MAX   1088
#define KERNEL_WIDE_VALUE_MAX 1024

/* attention_check, of such heads, too. */
static inline void attention_check_wide(const struct kernel_attention *a)
{
    struct kernel_attention checked = *a;
    if (!kv_is_quantised(a->kv_type) && !a->chosen.count && a->key_size <= KERNEL_WIDE_KEY_MAX &&
        a->value_size <= KERNEL_WIDE_VALUE_MAX) {
        checked.key_size = a->key_size < KERNEL_HEAD_SIZE_MAX ? a->key_size : KERNEL_HEAD_SIZE_MAX;
        checked.value_size =
            a->value_size < KERNEL_VALUE_SIZE_MAX ? a->value_size : KERNEL_VALUE_SIZE_MAX;
    }
    attention_check(&checked);
}

/* A query for products with quantised keys: int8 per block of 32, in order. */
struct key_query {
    int8_t q[KERNEL_HEAD_SIZE_MAX];
    float d[KERNEL_HEAD_SIZE_MAX / QK];
    int32_t c[KERNEL_HEAD_SIZE_MAX / QK]; /* the correction of unsigned codes (internal.h) */
};

/* Rows of a prepared activation of a head, and the head filled up with zeros. */
#define KEY_QUERY_BYTES ((KERNEL_HEAD_SIZE_MAX / QK + ACT_PAD - 1) / ACT_PAD * ACT_PAD * (QK + 8))

static inline enum tensor_type kv_activation_type(enum kv_type type)
{
    return type == KV_TYPE_Q4_0 ? TENSOR_Q4_0 : TENSOR_Q8_0;
}

/* The query from its prepared activation. */
static inline void key_query_from(const uint8_t *act, uint32_t padded, struct key_query *out)
{
    for (uint32_t b = 0; b < padded / QK; b++) {
        memcpy(out->q + (size_t)b * QK, act + act_half(b, 0), QK / 2);
        memcpy(out->q + (size_t)b * QK + QK / 2, act + act_half(b, 1), QK / 2);
    }
    memcpy(out->d, act + act_scale_offset(padded), padded / QK * sizeof *out->d);
    memcpy(out->c, act + act_corr_offset(padded), padded / QK * sizeof *out->c);
}

#endif
