/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of a matrix as F32, by the same unpack step as the products: a thread per piece of 32
 * elements. */
#include "lib/cuda/weights/unpack.cuh"

#define EMBED_THREADS 128

struct embed_args {
    const uint8_t *w;
    const uint32_t *token;
    float *y;
    size_t row_bytes, y_stride;
    uint32_t k;
    table16 table;
};

INLINE int32_t byte_of(const int32_t *code, uint32_t i)
{
    return (int8_t)(code[i / 4] >> 8 * (i % 4));
}

/* The definition of an element: ARITHMETIC.md, F32 of a quantised element. */
template <class T> INLINE float element(const piece &p, uint32_t i, const unit_scales &d)
{
    int32_t code = byte_of(p.code, i);
    if (T::form == FORM_GROUP)
        return d.d * ((float)(code + T::OFFSET) - d.other);
    float product = d.d * (float)(T::SCALED ? p.scale[i / 16] : 1) * (float)code;
    return T::MINIMUMS ? product - d.other * (float)p.min[i / 16] : product - 0.0f;
}

template <class T> __global__ void __launch_bounds__(EMBED_THREADS) embed(embed_args a)
{
    uint32_t at = blockIdx.x * EMBED_THREADS + threadIdx.x;
    if (at >= a.k / QK)
        return;
    const uint8_t *row = a.w + (size_t)a.token[blockIdx.y] * a.row_bytes;
    const row_unit unit = {row, at / T::PIECES, a.k / (QK * T::PIECES)};
    float *y = a.y + blockIdx.y * a.y_stride + (size_t)at * QK;
    piece p;
    T::piece_of(unit, at % T::PIECES, a.table, &p);
    unit_scales d = T::scales(unit);
#pragma unroll
    for (uint32_t i = 0; i < QK; i++)
        y[i] = element<T>(p, i, d);
}

template <int BITS, bool BRAIN>
__global__ void __launch_bounds__(EMBED_THREADS) embed_dense(embed_args a)
{
    uint32_t i = blockIdx.x * EMBED_THREADS + threadIdx.x;
    if (i >= a.k)
        return;
    const uint8_t *p = a.w + (size_t)a.token[blockIdx.y] * a.row_bytes + (size_t)i * (BITS / 8);
    float v = BITS == 32 ? load_as<float>(p)
              : BRAIN    ? bf16_to_f32(load_as<uint16_t>(p))
                         : load_half(p);
    a.y[blockIdx.y * a.y_stride + i] = v;
}

extern "C" int gpu_rows_to_f32(const struct kernel_matrix *w, const uint32_t *token, uint32_t rows,
                               float *y, size_t y_stride, void *stream)
{
    if (!gpu_matrix_fits(w) || !rows_fit(rows))
        return GPU_UNSUPPORTED;
    if (w->k == 0 || rows == 0)
        return 0;
    embed_args a = {(const uint8_t *)w->data, token, y, w->row_bytes, y_stride, w->k, {}};
    dim3 dense(divide_up(w->k, EMBED_THREADS), rows),
        pieces(divide_up(w->k / QK, EMBED_THREADS), rows);
    switch (w->type) {
    case TENSOR_F32:
        return LAUNCH((embed_dense<32, false>), dense, dim3(EMBED_THREADS), 0, stream, a);
    case TENSOR_F16:
        return LAUNCH((embed_dense<16, false>), dense, dim3(EMBED_THREADS), 0, stream, a);
    case TENSOR_BF16:
        return LAUNCH((embed_dense<16, true>), dense, dim3(EMBED_THREADS), 0, stream, a);
#define EMBED_CASE(type, unpack, values)                                                           \
    case TENSOR_##type:                                                                            \
        a.table = table_of(values);                                                                \
        return LAUNCH((embed<unpack>), pieces, dim3(EMBED_THREADS), 0, stream, a);
        BLOCK_TYPES(EMBED_CASE)
        SUPER_TYPES(EMBED_CASE)
        GROUP_TYPES(EMBED_CASE)
    default: return GPU_UNSUPPORTED;
    }
}
