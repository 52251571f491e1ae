/* SPDX-License-Identifier: Apache-2.0 */
/* F16 and BF16 in plain C: exact conversions, and unaligned loads. */
#ifndef SLUICE_TENSOR_HALF_H
#define SLUICE_TENSOR_HALF_H

#include <stdint.h>
#include <string.h>

static inline uint32_t bits_of(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

static inline float float_of(uint32_t u)
{
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

static inline uint16_t load_u16(const void *p)
{
    uint16_t u;
    memcpy(&u, p, sizeof u);
    return u;
}

static inline uint32_t load_u32(const void *p)
{
    uint32_t u;
    memcpy(&u, p, sizeof u);
    return u;
}

static inline uint64_t load_u64(const void *p)
{
    uint64_t u;
    memcpy(&u, p, sizeof u);
    return u;
}

static inline float load_f32(const void *p)
{
    return float_of(load_u32(p));
}

static inline float bf16_to_f32(uint16_t h)
{
    return float_of((uint32_t)h << 16);
}

/* Exact for every IEEE binary16 value, subnormals included; NaN becomes quiet, as in hardware.
 * Branch-free, so that the compiler can vectorise it. */
static inline float f16_to_f32(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16;
    uint32_t rest = (uint32_t)(h & 0x7fffu) << 13;
    /* read as a float, the exponent is 112 too small; the product is exact, also for subnormals */
    uint32_t value = bits_of(float_of(rest) * 0x1p112f);
    uint32_t special = rest >= 0x0f800000u ? 0x7f800000u : 0u;
    uint32_t quiet = rest > 0x0f800000u ? 0x00400000u : 0u;
    return float_of(sign | value | special | quiet);
}

/* Round to nearest even. */
static inline uint16_t f32_to_f16(float f)
{
    uint32_t u = bits_of(f);
    uint32_t sign = (u >> 16) & 0x8000u;
    uint32_t a = u & 0x7fffffffu;
    if (a > 0x7f800000u)
        return (uint16_t)(sign | 0x7e00u | ((a >> 13) & 0x3ffu));
    if (a >= 0x477ff000u) /* 65520 and above round to infinity */
        return (uint16_t)(sign | 0x7c00u);
    if (a <
        0x38800000u) /* below 2^-14: one ulp of 0.5f is one F16 subnormal step, so the sum rounds */
        return (uint16_t)(sign | (bits_of(float_of(a) + 0.5f) - 0x3f000000u));
    a += 0xfffu + ((a >> 13) & 1u);
    return (uint16_t)(sign | ((a - 0x38000000u) >> 13));
}

#endif
