/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of the KV cache: quantised once, when they are appended. */
#include "lib/kernels/kv_layout.h"

/* One row as codes in order, one byte each, with the scales of its blocks. */
struct codes {
    uint8_t code[KERNEL_HEAD_SIZE_MAX];
    uint16_t scale[KERNEL_HEAD_SIZE_MAX / QK];
};

static void to_q8(const struct kernel_ops *ops, const float *x, uint32_t padded, struct codes *out)
{
    _Alignas(64) uint8_t act[KEY_QUERY_BYTES];
    struct key_query row;
    ops->activation(TENSOR_Q8_0, x, padded, act);
    key_query_from(act, padded, &row);
    memcpy(out->code, row.q, padded);
    for (uint32_t b = 0; b < padded / QK; b++)
        out->scale[b] = f32_to_f16(row.d[b]);
}

/* The scale makes the element of the largest magnitude -8. */
static void to_q4(const float *x, uint32_t padded, struct codes *out)
{
    for (uint32_t b = 0; b < padded / QK; b++, x += QK) {
        float low = 0, high = 0;
        for (uint32_t i = 0; i < QK; i++) {
            low = x[i] < low ? x[i] : low;
            high = x[i] > high ? x[i] : high;
        }
        float m = high > -low ? high : low;
        bool zero = fabsf(m) < ACT_MIN;
        float inverse = zero ? 0.0f : -8.0f / m;
        out->scale[b] = f32_to_f16(zero ? 0.0f : m / -8.0f);
        for (uint32_t i = 0; i < QK; i++) {
            float t = x[i] * inverse + 8.5f;
            t = t < 15.0f ? t : 15.0f; /* not below 0.5; 15 for NaN */
            out->code[b * QK + i] = (uint8_t)(int32_t)t;
        }
    }
}

static void put_key(enum kv_type type, const struct codes *row, uint32_t padded, uint8_t *tile,
                    uint32_t position)
{
    uint32_t step = 4 * kv_per_byte(type);
    for (uint32_t e = 0; e < padded; e += step) {
        uint8_t word[4];
        for (uint32_t i = 0; i < 4; i++)
            word[i] = type == KV_TYPE_Q4_0 ? (uint8_t)(row->code[e + i] | row->code[e + 4 + i] << 4)
                                           : row->code[e + i];
        memcpy(tile + kv_key_word(type, padded, position, e), word, sizeof word);
    }
}

static void put_value(enum kv_type type, const struct codes *row, uint32_t padded, uint8_t *tile,
                      uint32_t position)
{
    uint8_t *to = tile + kv_value_row(type, padded, position);
    if (type == KV_TYPE_Q8_0) {
        memcpy(to, row->code, padded);
        return;
    }
    for (uint32_t b = 0; b < padded / QK; b++, to += QK / 2)
        for (uint32_t i = 0; i < QK / 2; i++)
            to[i] = (uint8_t)(row->code[b * QK + i] | row->code[b * QK + QK / 2 + i] << 4);
}

void kernel_kv_store(const struct kernel_ops *ops, enum kv_type type, enum kv_side side,
                     const float *x, uint32_t head_size, void *tile, uint32_t position)
{
    uint32_t padded = kv_padded(head_size);
    sl_assert(head_size <= (kv_is_quantised(type) ? KERNEL_HEAD_SIZE_MAX : KERNEL_WIDE_KEY_MAX) &&
              position < KERNEL_KEY_TILE);
    if (type == KV_TYPE_F16) {
        ops->to_f16(x, head_size, (uint16_t *)tile + (size_t)position * head_size);
        return;
    }
    if (type == KV_TYPE_F32) {
        memcpy((float *)tile + (size_t)position * head_size, x, head_size * sizeof *x);
        return;
    }
    struct codes row;
    float whole[KERNEL_HEAD_SIZE_MAX];
    if (padded != head_size) {
        memset(whole, 0, sizeof whole);
        memcpy(whole, x, head_size * sizeof *x);
        x = whole;
    }
    if (type == KV_TYPE_Q4_0)
        to_q4(x, padded, &row);
    else
        to_q8(ops, x, padded, &row);
    if (side == KV_SIDE_KEYS)
        put_key(type, &row, padded, tile, position);
    else
        put_value(type, &row, padded, tile, position);
    for (uint32_t b = 0; b < padded / QK; b++)
        memcpy((uint8_t *)tile + kv_scale_offset(type, padded, b, position), &row.scale[b], 2);
}
