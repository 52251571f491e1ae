/* SPDX-License-Identifier: Apache-2.0 */
#include "procs/tools/synth/blocks.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "lib/base/assert.h"
#include "lib/kernels/kernels.h"
#include "lib/tensor/tensor_type.h"

#define BLOCK       32u
#define Q4_0_BYTES  18u
#define Q8_0_BYTES  34u
#define SCALES      64u     /* number of different scales in a tensor */
#define Q4_0_SPREAD 4.6098f /* deviation of uniform numbers in -8 .. 7 */
#define Q8_0_SPREAD 73.609f /* of numbers in -127 .. 127 with -127 twice */

static uint16_t half(float x)
{
    uint16_t h;
    kernel_ops_of(ISA_GENERIC)->to_f16(&x, 1, &h);
    return h;
}

static void random_bytes(struct random *random, uint8_t *out, uint64_t bytes)
{
    for (uint64_t at = 0; at < bytes; at += sizeof(uint64_t)) {
        uint64_t x = random_u64(random);
        memcpy(out + at, &x, sizeof x);
    }
}

/* Sets the first two bytes of each block to one of SCALES scales within 25 % of `scale`, so that
 * blocks differ. The mean of numbers from -8 to 7 is -0.5, which would add a common direction to
 * all rows of all layers: `both_signs` makes every other scale negative, as quantisers do. */
static void put_scales(uint8_t *out, uint64_t bytes, uint32_t block_bytes, float scale,
                       bool both_signs)
{
    uint16_t scales[SCALES];
    for (uint32_t i = 0; i < SCALES; i++) {
        float sign = both_signs && i % 2 ? -1.0f : 1.0f;
        scales[i] = half(sign * scale * (0.75f + 0.5f * (float)i / (SCALES - 1)));
        sl_assert((scales[i] & 0x7fff) != 0 && (scales[i] & 0x7c00) != 0x7c00);
    }
    for (uint64_t at = 0; at < bytes; at += block_bytes)
        memcpy(out + at, &scales[out[at] % SCALES], sizeof scales[0]);
}

/* Q8_0 is symmetric: -128 does not occur. */
static void avoid_int8_min(uint8_t *out, uint64_t bytes)
{
    for (uint64_t i = 0; i < bytes; i++)
        out[i] = out[i] == 0x80 ? 0x81 : out[i];
}

/* Uses 16 random bits per number: sign, ten bits of mantissa, and five that select one of two
 * exponents so that the variance is correct: with mantissas in [1, 2) it is 7/3 * 4^exponent. */
static void random_halves(float deviation, uint8_t *out, uint64_t bytes)
{
    int exponent = (int)floorf(log2f(deviation / sqrtf(7.0f / 3.0f)));
    float low = 7.0f / 3.0f * powf(4.0f, (float)exponent);
    uint16_t above = (uint16_t)(32.0f * (deviation * deviation - low) / (3.0f * low) + 0.5f);
    uint16_t base = (uint16_t)((exponent + 15) << 10);
    sl_assert(exponent > -14 && exponent < 14 && above <= 32);
    for (uint64_t at = 0; at < bytes; at += 2) {
        uint16_t x;
        memcpy(&x, out + at, sizeof x);
        uint16_t choice = (x >> 10) & 31;
        x = (uint16_t)((x & 0x83ff) | (base + (choice < above ? 0x400 : 0)));
        memcpy(out + at, &x, sizeof x);
    }
}

static void random_floats(float deviation, struct random *random, uint8_t *out, uint64_t bytes)
{
    for (uint64_t at = 0; at < bytes; at += sizeof(float)) {
        float x = random_normal(random) * deviation;
        memcpy(out + at, &x, sizeof x);
    }
}

void blocks_random(enum tensor_type type, float deviation, struct random *random, void *out,
                   uint64_t bytes)
{
    if (type == TENSOR_F32) {
        random_floats(deviation, random, out, bytes);
        return;
    }
    random_bytes(random, out, bytes);
    switch (type) {
    case TENSOR_F16: random_halves(deviation, out, bytes); break;
    case TENSOR_Q8_0:
        avoid_int8_min(out, bytes);
        put_scales(out, bytes, Q8_0_BYTES, deviation / Q8_0_SPREAD, false);
        break;
    case TENSOR_Q4_0: put_scales(out, bytes, Q4_0_BYTES, deviation / Q4_0_SPREAD, true); break;
    default: sl_panic("type %d is not supported", (int)type);
    }
}

static float widest(const float *x)
{
    float max = 0;
    for (uint32_t i = 0; i < BLOCK; i++)
        max = fabsf(x[i]) > fabsf(max) ? x[i] : max;
    return max;
}

static void row_q8_0(const float *x, uint32_t n, uint8_t *out)
{
    for (uint32_t b = 0; b < n; b += BLOCK, out += Q8_0_BYTES) {
        float scale = fabsf(widest(x + b)) / 127.0f, inverse = scale > 0 ? 1.0f / scale : 0;
        uint16_t h = half(scale);
        memcpy(out, &h, sizeof h);
        for (uint32_t i = 0; i < BLOCK; i++)
            out[2 + i] = (uint8_t)(int8_t)lrintf(x[b + i] * inverse);
    }
}

/* The value with the largest magnitude becomes -8, so that the whole range is used (as in GGML's
 * quantiser). */
static void row_q4_0(const float *x, uint32_t n, uint8_t *out)
{
    for (uint32_t b = 0; b < n; b += BLOCK, out += Q4_0_BYTES) {
        float scale = widest(x + b) / -8.0f, inverse = scale != 0 ? 1.0f / scale : 0;
        uint16_t h = half(scale);
        memcpy(out, &h, sizeof h);
        for (uint32_t i = 0; i < BLOCK / 2; i++) {
            long low = lrintf(x[b + i] * inverse) + 8,
                 high = lrintf(x[b + i + BLOCK / 2] * inverse) + 8;
            low = low > 15 ? 15 : low;
            high = high > 15 ? 15 : high;
            out[2 + i] = (uint8_t)(low | high << 4);
        }
    }
}

void blocks_row(enum tensor_type type, const float *x, uint32_t n, void *out)
{
    switch (type) {
    case TENSOR_F32: memcpy(out, x, n * sizeof *x); break;
    case TENSOR_F16: kernel_ops_of(ISA_GENERIC)->to_f16(x, n, out); break;
    case TENSOR_Q8_0: row_q8_0(x, n, out); break;
    case TENSOR_Q4_0: row_q4_0(x, n, out); break;
    default: sl_panic("type %d is not supported", (int)type);
    }
}
