/* SPDX-License-Identifier: Apache-2.0 */
/* Quantised checkpoints. FP8: E4M3 (1 sign, 4 exponent with bias 7, 3 fraction bits; 0x7f and 0xff are
 * not a number, there is no infinity) times the scale of their block of rows and columns. MXFP4: blocks of
 * 32 elements of E2M1 with an exponent, whose 4 bits are in another order in GGUF. */
#include <math.h>

#include "lib/base/assert.h"
#include "lib/model/hf/internal.h"
#include "lib/tensor/half.h"
#include "lib/tensor/tensor_type.h"

#define Q8_0_ELEMS 32u
#define Q8_0_BYTES 34u /* F16 scale, 32 signed bytes */

#define F16_INFINITE  0x7c00 /* exponents of infinity and of what is not a number */
#define BF16_INFINITE 0x7f80

static float e4m3_to_f32(uint8_t x)
{
    int exponent = x >> 3 & 15, fraction = x & 7;
    if ((x & 0x7f) == 0x7f)
        return (float)NAN;
    float value =
        exponent == 0 ? ldexpf((float)fraction, -9) : ldexpf((float)(8 + fraction), exponent - 10);
    return x & 0x80 ? -value : value;
}

/* Round to nearest even. */
static uint16_t f32_to_bf16(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return isnan(f) ? (uint16_t)(u >> 16 | 64) : (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

/* A block as ggml's reference makes it: d = max |x| / 127, nearest whole numbers. Returns d. Where 1 / d
 * is not finite, d is 0 as F16, and so are the numbers. */
static uint16_t put_q8_0(const float x[Q8_0_ELEMS], uint8_t *dst)
{
    float top = 0;
    for (uint32_t i = 0; i < Q8_0_ELEMS; i++)
        top = fmaxf(top, fabsf(x[i]));
    float d = top / 127, inverse = 1 / d;
    inverse = isfinite(inverse) ? inverse : 0;
    uint16_t half = f32_to_f16(d);
    memcpy(dst, &half, sizeof half);
    for (uint32_t i = 0; i < Q8_0_ELEMS; i++)
        dst[2 + i] = (uint8_t)(int8_t)lroundf(x[i] * inverse);
    return half;
}

/* A row, whose blocks have these scales. */
static bool put_row(const struct hf_tensor *t, const float value[256], const uint8_t *src,
                    const float *scales, uint8_t *dst)
{
    float part[Q8_0_ELEMS];
    bool good = true;
    for (uint64_t i = 0; i < t->source_columns; i += Q8_0_ELEMS) {
        uint64_t n = t->source_columns - i < Q8_0_ELEMS ? t->source_columns - i : Q8_0_ELEMS;
        for (uint64_t j = 0; j < n; j++) {
            part[j] = value[src[i + j]] * scales[(i + j) / t->block_columns];
            good &= isfinite(part[j]) != 0;
        }
        if (t->made_type == TENSOR_Q8_0) {
            uint16_t half = put_q8_0(part, dst + i / Q8_0_ELEMS * Q8_0_BYTES);
            good &= (half & F16_INFINITE) != F16_INFINITE;
            continue;
        }
        for (uint64_t j = 0; j < n; j++) {
            uint16_t bf16 = f32_to_bf16(part[j]);
            good &= (bf16 & BF16_INFINITE) != BF16_INFINITE; /* it may be rounded to that */
            memcpy(dst + 2 * (i + j), &bf16, sizeof bf16);
        }
    }
    return good;
}

int hf_fp8_not_finite(struct error *error)
{
    return error_set(error, ERR_BAD_INPUT, "a weight or its scale is not finite, or too large");
}

static const float *scales_of_row(const struct hf_tensor *t, const float *scales, uint64_t row)
{
    uint64_t each = (t->source_columns + t->block_columns - 1) / t->block_columns;
    return scales + row / t->block_rows * each;
}

int hf_fp8_rows(const struct hf_tensor *t, const void *src, const float *scales, uint64_t first,
                uint64_t rows, void *dst, struct error *error)
{
    float value[256];
    sl_assert(t->form == HF_FP8);
    for (int i = 0; i < 256; i++)
        value[i] = e4m3_to_f32((uint8_t)i);
    for (uint64_t r = 0; r < rows; r++)
        if (!put_row(t, value, (const uint8_t *)src + r * t->source_columns,
                     scales_of_row(t, scales, first + r), (uint8_t *)dst + r * t->made_row_bytes))
            return hf_fp8_not_finite(error);
    return 0;
}

bool hf_fp8_to_bf16(const struct hf_tensor *t, uint8_t x, const float *scales, uint64_t row,
                    uint64_t column, uint16_t *bf16)
{
    float value = e4m3_to_f32(x) * scales_of_row(t, scales, row)[column / t->block_columns];
    *bf16 = f32_to_bf16(value);
    return (*bf16 & BF16_INFINITE) != BF16_INFINITE;
}

/* Checkpoint: byte j has elements 2j (low bits) and 2j + 1. GGUF: the exponent, then byte j has elements j
 * and j + 16. */
void hf_mxfp4_row(const uint8_t *src, const uint8_t *exponents, uint64_t blocks, uint8_t *dst)
{
    for (uint64_t b = 0; b < blocks; b++, src += HF_MXFP4_BYTES, dst += 1 + HF_MXFP4_BYTES) {
        dst[0] = exponents[b];
        for (unsigned j = 0; j < HF_MXFP4_BYTES; j++) {
            unsigned low = src[j / 2] >> (j % 2 * 4) & 15;
            unsigned high = src[j / 2 + HF_MXFP4_BYTES / 2] >> (j % 2 * 4) & 15;
            dst[1 + j] = (uint8_t)(low | high << 4);
        }
    }
}
