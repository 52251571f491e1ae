/* SPDX-License-Identifier: Apache-2.0 */
/* Conversion of rows of floats to codes, and back. */
#include "lib/quant/quant.h"

#include <math.h>
#include <string.h>

#include "lib/base/assert.h"
#include "lib/quant/quant_internal.h"
#include "lib/tensor/half.h"
#include "lib/tensor/tensor_type.h"

const struct quant_settings quant_defaults = {
    .levels = QUANT_LEVELS_EITHER,
    .channel_power = 4,
    .hqq_steps = 20,
    .hqq_power = 0.7f,
    .hqq_beta = 10.0f,
    .hqq_kappa = 1.01f,
    .hqq_scale = true,
};

enum tensor_type quant_type_for(uint32_t bits, enum quant_method method)
{
    sl_assert(bits == 8 || bits == 4 || bits == 2);
    if (bits == 8)
        return TENSOR_C8;
    if (method == QUANT_HQQ)
        return bits == 4 ? TENSOR_G4 : TENSOR_G2;
    return bits == 4 ? TENSOR_C4 : TENSOR_C2;
}

/* The same conversions as the kernels' (IEEE, to nearest even), so that reading back gives the same
 * values. */
uint16_t quant_f16(float x)
{
    return f32_to_f16(x);
}

struct quant_grid quant_grid_f16(struct quant_grid grid)
{
    return (struct quant_grid){f16_to_f32(quant_f16(grid.scale)), f16_to_f32(quant_f16(grid.zero))};
}

static uint32_t code_of(struct quant_grid grid, float inverse, float top, float w)
{
    float c = w * inverse + grid.zero;
    c = c < 0.0f ? 0.0f : c > top ? top : c;
    return (uint32_t)(c + 0.5f);
}

static float inverse_of(struct quant_grid grid)
{
    return grid.scale == 0.0f ? 0.0f : 1.0f / grid.scale;
}

void quant_codes(struct quant_grid grid, uint32_t bits, const float *w, uint32_t count,
                 uint8_t *code)
{
    float inverse = inverse_of(grid), top = (float)((1u << bits) - 1);
    for (uint32_t i = 0; i < count; i++)
        code[i] = (uint8_t)code_of(grid, inverse, top, w[i]);
}

const struct quant_lanes *quant_lanes_here(void)
{
#ifdef SLUICE_QUANT_X86
    if (__builtin_cpu_supports("avx2"))
        return &quant_lanes_avx2;
#endif
    return &quant_lanes_generic;
}

double quant_error(struct quant_grid grid, uint32_t bits, const float *w, uint32_t count,
                   double power)
{
    return quant_lanes_here()->error(grid, bits, w, count, power);
}

/* Packs the codes of 64 elements. */
static void pack_codes(uint32_t bits, const uint8_t code[QUANT_GROUP], uint8_t *dst)
{
    uint32_t bytes = bits * QUANT_GROUP / 8;
    memset(dst, 0, bytes);
    for (uint32_t shift = 0; shift < 8; shift += bits, code += bytes)
        for (uint32_t i = 0; i < bytes; i++)
            dst[i] = (uint8_t)(dst[i] | code[i] << shift);
}

static bool put_grid(struct quant_grid grid, uint8_t *dst)
{
    uint16_t h[2] = {quant_f16(grid.scale), quant_f16(grid.zero)};
    memcpy(dst, h, sizeof h);
    return isfinite(grid.scale) && isfinite(grid.zero);
}

static bool all_finite(const float *w, uint32_t k)
{
    for (uint32_t i = 0; i < k; i++)
        if (!isfinite(w[i]))
            return false;
    return true;
}

struct shape {
    uint32_t bits;
    bool groups; /* one grid per group, stored before it; else one per row */
};

static struct shape shape_of(enum tensor_type type)
{
    switch (type) {
    case TENSOR_C8: return (struct shape){8, false};
    case TENSOR_C4: return (struct shape){4, false};
    case TENSOR_C2: return (struct shape){2, false};
    case TENSOR_G4: return (struct shape){4, true};
    case TENSOR_G2: return (struct shape){2, true};
    default: sl_panic("type %d is not a quantised type", (int)type);
    }
}

static bool quant_row(struct shape shape, const float *w, uint32_t k,
                      const struct quant_settings *s, uint8_t *dst)
{
    struct quant_grid grid = {0, 0};
    uint8_t code[QUANT_GROUP];
    bool good = all_finite(w, k);
    if (good && !shape.groups) {
        grid = quant_channel_grid(shape.bits, w, k, s);
        good = put_grid(grid, dst);
        dst += 4;
    }
    for (uint32_t i = 0; i < k && good; i += QUANT_GROUP) {
        if (shape.groups) {
            grid = quant_hqq_grid(shape.bits, w + i, QUANT_GROUP, s);
            good = put_grid(grid, dst);
            dst += 4;
        }
        quant_codes(grid, shape.bits, w + i, QUANT_GROUP, code);
        pack_codes(shape.bits, code, dst);
        dst += shape.bits * QUANT_GROUP / 8;
    }
    return good;
}

int quant_rows(enum tensor_type to, const float *src, uint32_t k, uint32_t n, void *dst,
               const struct quant_settings *settings)
{
    const struct quant_settings *s = settings != NULL ? settings : &quant_defaults;
    struct shape shape = shape_of(to);
    uint64_t row_bytes;
    bool whole = tensor_type_row_bytes((uint32_t)to, k, &row_bytes);
    sl_assert(whole);
    for (uint32_t j = 0; j < n; j++)
        if (!quant_row(shape, src + (size_t)j * k, k, s, (uint8_t *)dst + j * row_bytes))
            return -1;
    return 0;
}

void quant_dequantise(const struct kernel_matrix *w, uint32_t first, uint32_t n, float *dst)
{
    /* Every instruction set unpacks to the same floats; CPU detection is slow on virtual machines
     * (30 us). */
    const struct kernel_ops *ops = kernel_ops_of(ISA_GENERIC);
    sl_assert(first <= w->n && n <= w->n - first);
    for (uint32_t j = 0; j < n; j++)
        ops->row_to_f32(w, first + j, dst + (size_t)j * w->k);
}
