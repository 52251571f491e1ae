/* SPDX-License-Identifier: Apache-2.0 */
/* Fills memory with random blocks of a type. */
#include "procs/tools/synth/types/blocks.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "lib/base/assert.h"
#include "lib/base/bytes.h"
#include "lib/tensor/half.h"
#include "lib/tensor/unpack/unpack.h"

#define SCALES       64u /* number of different scales in a tensor */
#define SAMPLE       64u /* blocks that a type's spread is measured on */
#define SAMPLE_BYTES (SAMPLE * 256u)

/* Where blocks have F16 numbers. IQ1_M has its scale in the top bits of four
 * words, MXFP4 has a power of two, NVFP4 four numbers of eight bits. */
static const struct {
    enum tensor_type type;
    struct block_scales at;
} scales[] = {
    {TENSOR_Q4_0, {0, -1}},    {TENSOR_Q4_1, {0, 2}},     {TENSOR_Q5_0, {0, -1}},
    {TENSOR_Q5_1, {0, 2}},     {TENSOR_Q8_0, {0, -1}},    {TENSOR_Q2_K, {80, 82}},
    {TENSOR_Q3_K, {108, -1}},  {TENSOR_Q4_K, {0, 2}},     {TENSOR_Q5_K, {0, 2}},
    {TENSOR_Q6_K, {208, -1}},  {TENSOR_IQ2_XXS, {0, -1}}, {TENSOR_IQ2_XS, {0, -1}},
    {TENSOR_IQ3_XXS, {0, -1}}, {TENSOR_IQ1_S, {0, -1}},   {TENSOR_IQ4_NL, {0, -1}},
    {TENSOR_IQ3_S, {0, -1}},   {TENSOR_IQ2_S, {0, -1}},   {TENSOR_IQ4_XS, {0, -1}},
    {TENSOR_TQ1_0, {52, -1}},  {TENSOR_TQ2_0, {64, -1}},  {TENSOR_Q1_0, {0, -1}},
    {TENSOR_Q2_0, {0, -1}},
};

struct block_scales blocks_scales(enum tensor_type type)
{
    for (size_t i = 0; i < ARRAY_LEN(scales); i++)
        if (scales[i].type == type)
            return scales[i].at;
    return (struct block_scales){-1, -1};
}

static void random_bytes(struct random *random, uint8_t *out, uint64_t bytes)
{
    for (uint64_t at = 0; at < bytes; at += sizeof(uint64_t)) {
        uint64_t x = random_u64(random);
        memcpy(out + at, &x, sizeof x);
    }
}

/* Q8_0 is symmetric: -128 does not occur. Scales are set later. */
static void avoid_int8_min(uint8_t *out, uint64_t bytes)
{
    for (uint64_t i = 0; i < bytes; i++)
        out[i] = out[i] == 0x80 ? 0x81 : out[i];
}

/* The minimum of each sub-block becomes its scale, in six bits as these are (twelve bytes), or in
 * four: what is stored of rows has means of about 0 by sub-block. Independent ones would add up,
 * over a row, what inputs have in common, as they have after an activation whose mean is not 0. */
static void even_sub_blocks(enum tensor_type type, uint8_t *out, uint64_t bytes)
{
    uint32_t block_bytes = tensor_type_info((uint32_t)type)->block_bytes;
    for (uint8_t *b = out; b < out + bytes; b += block_bytes) {
        if (type == TENSOR_Q2_K)
            for (uint32_t i = 0; i < 16; i++)
                b[i] = (uint8_t)((b[i] & 15) * 17);
        else
            for (uint32_t i = 0; i < 4; i++) {
                b[8 + i] = b[4 + i];
                b[12 + i] = (uint8_t)((b[12 + i] & 15) * 17);
            }
    }
}

/* Random bytes of blocks, whose scales are set later. */
static void random_codes(enum tensor_type type, struct random *random, uint8_t *out, uint64_t bytes)
{
    random_bytes(random, out, bytes);
    if (type == TENSOR_Q8_0)
        avoid_int8_min(out, bytes);
    if (type == TENSOR_Q2_K || type == TENSOR_Q4_K || type == TENSOR_Q5_K)
        even_sub_blocks(type, out, bytes);
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

static void random_floats(enum tensor_type type, float deviation, struct random *random,
                          uint8_t *out, uint64_t bytes)
{
    uint64_t step = type == TENSOR_F32 ? 4 : 2;
    for (uint64_t at = 0; at < bytes; at += step) {
        uint32_t x = bits_of(random_normal(random) * deviation);
        if (type == TENSOR_BF16)
            x >>= 16;
        memcpy(out + at, &x, step);
    }
}

/* What random bytes mean under d = 1: their root mean square when dmin is
 * `minimum`, which makes their mean 0 where the type has minimums. */
struct spread {
    float rms, minimum;
    bool centred;
};

static struct spread spread_of(enum tensor_type type)
{
    const struct unpack_info *info = unpack_info((uint32_t)type);
    uint32_t block_bytes = tensor_type_info((uint32_t)type)->block_bytes;
    uint8_t sample[SAMPLE_BYTES];
    struct random random;
    double products = 0, minimums = 0, squares = 0, cross = 0, minimum_squares = 0, n = 0;
    double scale_sum = 0, largest = 0; /* of codes */
    random_seed(&random, 1, 1);
    random_codes(type, &random, sample, SAMPLE * block_bytes);
    for (uint32_t b = 0; b < SAMPLE; b++) {
        struct unpacked u;
        info->unpack(sample + b * block_bytes, 0, &u);
        for (uint32_t i = 0; i < info->unit; i++, n++) {
            double product = (double)u.scale[i / UNPACK_SUB] * u.code[i];
            double minimum = u.min[i / UNPACK_SUB];
            products += product;
            scale_sum += (double)u.scale[i / UNPACK_SUB];
            largest = u.code[i] > largest ? u.code[i] : largest;
            minimums += minimum;
            squares += product * product;
            cross += product * minimum;
            minimum_squares += minimum * minimum;
        }
    }
    /* Codes with minimums are 0 to `largest`, each as often. The sample's own mean would be off by
     * half a percent, which a row of ten thousand elements adds up. */
    double ratio = info->minimums ? largest / 2 * scale_sum / minimums : 0;
    double mean = products / n - ratio * minimums / n;
    double power = (squares - 2 * ratio * cross + ratio * ratio * minimum_squares) / n;
    return (struct spread){(float)sqrt(power), (float)ratio, fabs(mean) < 0.02 * sqrt(power)};
}

/* d is what struct unpacked has: IQ1, IQ2 and IQ3 types store a multiple of it.
 */
static float stored_scale(enum tensor_type type)
{
    switch (type) {
    case TENSOR_IQ1_S:
    case TENSOR_IQ1_M:
    case TENSOR_IQ2_XXS:
    case TENSOR_IQ2_XS:
    case TENSOR_IQ2_S: return 8;
    case TENSOR_IQ3_XXS: return 4;
    default: return 1;
    }
}

static void put_iq1_m(uint8_t *block, uint16_t d)
{
    for (uint32_t i = 0; i < 4; i++)
        block[49 + 2 * i] = (uint8_t)((block[49 + 2 * i] & 15) | (d >> 4 * i & 15) << 4);
}

/* Gives each block one of SCALES scales within 25 % of `scale`, so that blocks
 * differ. A mean that is not 0 would add a common direction to all rows of all
 * layers: then every other scale is negative, as quantisers do. */
static void put_scales(enum tensor_type type, uint8_t *out, uint64_t bytes,
                       const struct spread *spread, float scale)
{
    uint32_t block_bytes = tensor_type_info((uint32_t)type)->block_bytes;
    struct block_scales at = blocks_scales(type);
    uint16_t d[SCALES], dmin[SCALES];
    for (uint32_t i = 0; i < SCALES; i++) {
        float sign = !spread->centred && i % 2 ? -1.0f : 1.0f;
        float value = sign * scale * (0.75f + 0.5f * (float)i / (SCALES - 1));
        d[i] = f32_to_f16(value * stored_scale(type));
        dmin[i] = f32_to_f16(value * spread->minimum);
        sl_assert((d[i] & 0x7fff) != 0 && (d[i] & 0x7c00) != 0x7c00);
    }
    for (uint64_t b = 0; b < bytes; b += block_bytes) {
        uint32_t i = out[b + (at.d < 0 ? 49u : (uint32_t)at.d)] % SCALES;
        if (at.d < 0)
            put_iq1_m(out + b, d[i]);
        else
            memcpy(out + b + at.d, &d[i], sizeof d[i]);
        if (at.dmin >= 0)
            memcpy(out + b + at.dmin, &dmin[i], sizeof dmin[i]);
    }
}

/* Each block gets one of the two powers of two around the scale, so that the
 * variance is correct. */
static void put_exponents(uint8_t *out, uint64_t bytes, float scale)
{
    uint32_t block_bytes = tensor_type_info(TENSOR_MXFP4)->block_bytes;
    int exponent = (int)floorf(log2f(scale));
    float low = powf(4.0f, (float)exponent);
    uint32_t above = (uint32_t)(256.0f * (scale * scale - low) / (3.0f * low) + 0.5f);
    for (uint64_t b = 0; b < bytes; b += block_bytes)
        out[b] = (uint8_t)(exponent + 128 + (out[b] < above ? 1 : 0));
}

/* Each sub-block gets a scale within 25 % of `scale`: as UE4M3, the nearest of its positive
 * numbers. */
static void put_small_floats(uint8_t *out, uint64_t bytes, float scale)
{
    const struct unpack_info *info = unpack_info(TENSOR_NVFP4);
    uint32_t block_bytes = tensor_type_info(TENSOR_NVFP4)->block_bytes;
    uint8_t byte[SCALES];
    for (uint32_t i = 0; i < SCALES; i++) {
        float value = scale * (0.75f + 0.5f * (float)i / (SCALES - 1)), best = INFINITY;
        for (uint8_t b = 1; b < 0x7f; b++) {
            uint8_t probe[UNPACK_MAX] = {b};
            struct unpacked u;
            info->unpack(probe, 0, &u);
            if (fabsf(u.d - value) < best) {
                best = fabsf(u.d - value);
                byte[i] = b;
            }
        }
    }
    for (uint64_t b = 0; b < bytes; b += block_bytes)
        for (uint32_t s = 0; s < 4; s++)
            out[b + s] = byte[out[b + s] % SCALES];
}

void blocks_random(enum tensor_type type, float deviation, struct random *random, void *out,
                   uint64_t bytes)
{
    if (type == TENSOR_F32 || type == TENSOR_BF16) {
        random_floats(type, deviation, random, out, bytes);
        return;
    }
    if (type == TENSOR_F16) {
        random_bytes(random, out, bytes);
        random_halves(deviation, out, bytes);
        return;
    }
    random_codes(type, random, out, bytes);
    struct spread spread = spread_of(type);
    if (type == TENSOR_MXFP4)
        put_exponents(out, bytes, deviation / spread.rms);
    else if (type == TENSOR_NVFP4)
        put_small_floats(out, bytes, deviation / spread.rms);
    else
        put_scales(type, out, bytes, &spread, deviation / spread.rms);
}
