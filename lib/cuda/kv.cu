/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of the KV cache, quantised when they are appended (lib/kernels/kv.c): a warp per block of 32
 * elements of a head. The bytes are those of lib/kernels/kv_layout.h. */
#include "lib/cuda/device.cuh"

struct kv_args {
    gpu_kv_store s;
    size_t tile_bytes;
};

INLINE float min_of_warp(float v)
{
    return -max_of_warp(-v);
}

/* One code per lane, as an unsigned byte, and the scale. */
INLINE uint32_t code_q8(float x, uint16_t *scale)
{
    float max = max_of_warp(fmaxf(0.0f, fabsf(x))); /* 0 if all are NaN */
    bool zero = max < ACT_MIN;
    float inverse = zero ? 0.0f : 127.0f / max;
    *scale = float_to_half(zero ? 0.0f : max / 127.0f);
    return (uint32_t)round_to_i8(x * inverse) & 255u;
}

INLINE uint32_t code_q4(float x, uint16_t *scale)
{
    float low = fminf(0.0f, min_of_warp(x)), high = fmaxf(0.0f, max_of_warp(x));
    float m = high > -low ? high : low;
    bool zero = fabsf(m) < ACT_MIN;
    float inverse = zero ? 0.0f : -8.0f / m;
    *scale = float_to_half(zero ? 0.0f : m / -8.0f);
    float t = x * inverse + 8.5f;
    return (uint32_t)(int32_t)(t < 15.0f ? t : 15.0f);
}

INLINE void put_codes(const gpu_kv_store &s, uint8_t *tile, uint32_t padded, uint32_t position,
                      uint32_t e, uint32_t code)
{
    bool keys = s.side == KV_SIDE_KEYS;
    if (s.type == KV_TYPE_Q8_0) {
        if (keys)
            tile[kv_key_word(s.type, padded, position, e / 4 * 4) + e % 4] = (uint8_t)code;
        else
            tile[kv_value_row(s.type, padded, position) + e] = (uint8_t)code;
        return;
    }
    /* The partner of a nibble is 4 elements away in keys, 16 in values. */
    uint32_t near = __shfl_xor_sync(ALL, code, 4), far = __shfl_xor_sync(ALL, code, 16);
    if (keys && e % 8 < 4)
        tile[kv_key_word(s.type, padded, position, e / 8 * 8) + e % 4] =
            (uint8_t)(code | near << 4);
    if (!keys && e % QK < QK / 2)
        tile[kv_value_row(s.type, padded, position) + e / QK * (QK / 2) + e % QK] =
            (uint8_t)(code | far << 4);
}

/* Block x of head y of row z. */
__global__ void __launch_bounds__(WARP) kv_rows(kv_args a)
{
    const gpu_kv_store &s = a.s;
    uint32_t padded = kv_padded(s.head_size), e = blockIdx.x * QK + threadIdx.x;
    uint32_t at = kernel_ring_position(s.ring, (s.at ? *s.at : s.position) + blockIdx.z);
    uint8_t *tile =
        (uint8_t *)s.tiles + ((size_t)(at / KV_TILE) * s.kv_heads + blockIdx.y) * a.tile_bytes;
    uint32_t position = at % KV_TILE;
    const float *head = s.x + blockIdx.z * s.x_stride + (size_t)blockIdx.y * s.head_size;
    float x = e < s.head_size ? head[e] : 0;
    if (s.copy && e < s.head_size)
        s.copy[(size_t)blockIdx.y * s.head_size + e] = x;
    if (!kv_is_quantised(s.type)) {
        size_t i = (size_t)position * s.head_size + e;
        if (e < s.head_size && s.type == KV_TYPE_F16)
            ((uint16_t *)(void *)tile)[i] = float_to_half(x);
        else if (e < s.head_size)
            ((float *)(void *)tile)[i] = x;
        return;
    }
    uint16_t scale;
    uint32_t code = s.type == KV_TYPE_Q8_0 ? code_q8(x, &scale) : code_q4(x, &scale);
    put_codes(s, tile, padded, position, e, code);
    if (threadIdx.x == 0)
        *(uint16_t *)(void *)(tile + kv_scale_offset(s.type, padded, blockIdx.x, position)) = scale;
}

extern "C" int gpu_kv_store_rows(const struct gpu_kv_store *s, void *stream)
{
    if ((uint32_t)s->type >= KV_TYPE__COUNT || s->head_size > KERNEL_HEAD_SIZE_MAX ||
        !count_fits((uint64_t)s->position + s->rows) || !rows_fit(s->kv_heads) ||
        !rows_fit(s->rows) || s->ring % KV_TILE != 0 || (s->ring != 0 && s->rows > s->ring) ||
        ((s->at || s->copy) && s->rows > 1))
        return GPU_UNSUPPORTED;
    if (s->rows == 0 || s->kv_heads == 0 || s->head_size == 0)
        return 0;
    kv_args a = {*s, (size_t)kv_tile_bytes(s->type, s->head_size)};
    return LAUNCH(kv_rows, dim3(divide_up(s->head_size, QK), s->kv_heads, s->rows), dim3(WARP), 0,
                  stream, a);
}
