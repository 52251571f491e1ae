/* SPDX-License-Identifier: Apache-2.0 */
/* Both kernels of quantised types share this: their arguments, the activations of a piece, and the
 * terms of a unit. */
#ifndef SLUICE_CUDA_PRODUCTS_UNIT_CUH
#define SLUICE_CUDA_PRODUCTS_UNIT_CUH

#include "lib/cuda/products/jobs.cuh"
#include "lib/cuda/weights/unpack.cuh"

struct product_args {
    gpu_products p;
    table16 table;
};

INLINE product_args args_of_job(const product_args &all)
{
    return {of_job(all.p), all.table};
}

INLINE const uint8_t *input_row(const product_args &a, uint32_t row)
{
    return row_of_input(a.p, row);
}

/* The activations of a piece of 32 elements. */
struct piece_input {
    int4 first, last; /* 16 bytes each */
};

/* Where they are. */
template <class T> INLINE const uint8_t *half_of(const uint8_t *x, uint32_t piece, uint32_t half)
{
    if (T::form == FORM_Q8 || T::form == FORM_Q4)
        return x + act_half(piece, half);
    return x + (size_t)piece * QK + half * 16;
}

template <class T> INLINE piece_input input_of(const uint8_t *x, uint32_t piece)
{
    return {load_as<int4>(half_of<T>(x, piece, 0)), load_as<int4>(half_of<T>(x, piece, 1))};
}

/* The sums of 16 activations each, where minimums need them. */
template <class T> INLINE void sums_of(const uint8_t *x, uint32_t k, uint32_t piece, int32_t sum[2])
{
    if (!T::MINIMUMS)
        return;
    uint32_t both = load_as<uint32_t>(x + super_sum_offset(k) + (size_t)piece * 4);
    sum[0] = (int16_t)(both & 0xffffu);
    sum[1] = (int16_t)(both >> 16);
}

INLINE int32_t dot_16(const int32_t *code, const int4 &x)
{
    return __dp4a(code[3], x.w,
                  __dp4a(code[2], x.z, __dp4a(code[1], x.y, __dp4a(code[0], x.x, 0))));
}

/* dx, and of groups the sum of the activations, of a unit. */
template <class T> INLINE unit_scales input_scales(const uint8_t *x, uint32_t k, uint32_t unit)
{
    if (T::form == FORM_SUPER)
        return {load_as<float>(x + super_scale_offset(k) + (size_t)unit * 4), 0};
    if (T::form == FORM_GROUP)
        return {load_as<float>(x + group_scale_offset(k) + (size_t)unit * 4),
                load_as<float>(x + group_sum_offset(k) + (size_t)unit * 4)};
    return {load_as<float>(x + act_scale_offset(k) + (size_t)unit * 4), 0};
}

/* Converts an integer of less than 2^22 either way. Conversion instructions have a fraction of the
 * rate of additions. */
INLINE float float_of_small(int32_t v)
{
    return float_of(0x4b400000u + (uint32_t)v) - 12582912.0f;
}

/* The sum with the term of a unit. Of 64 elements or less, the integer is below 64 * 255 * 127. */
template <class T>
INLINE float add_term(float sum, int32_t dot, int32_t low, const unit_scales &w,
                      const unit_scales &x)
{
    if (T::form == FORM_GROUP) {
        int32_t exact = dot + T::OFFSET * (int32_t)x.other;
        float term = fmaf(-w.other, x.other, float_of_small(exact));
        return fmaf(T::HEAD == 0 ? term * w.d : term, x.d, sum);
    }
    float term = (T::PIECES == 1 ? float_of_small(dot) : (float)dot) * w.d;
    if (T::MINIMUMS)
        term = fmaf(-w.other, (float)low, term);
    return fmaf(term, x.d, sum);
}

/* The factor of the whole row: of types of groups whose rows have one scale. */
template <class T> INLINE float finish(float sum, const row_unit &any)
{
    if (T::form != FORM_GROUP)
        return sum;
    return sum * (T::HEAD != 0 ? load_half(head_of<T>(any)) : 1.0f);
}

#endif
