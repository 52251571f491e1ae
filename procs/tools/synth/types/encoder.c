/* SPDX-License-Identifier: Apache-2.0 */
/* The inverse of the reference decoder, found by asking it: which bits of a
 * block change which element, and which code each of their patterns gives. */
#include "procs/tools/synth/types/encoder.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/assert.h"
#include "lib/tensor/half.h"
#include "lib/tensor/unpack/grids/grids.h"
#include "lib/tensor/unpack/unpack.h"
#include "procs/tools/synth/types/blocks.h"

#define BLOCK_BYTES_MAX 256
#define CODE_BITS_MAX   8

struct encoder {
    enum tensor_type type;
    uint32_t unit, block_bytes, code_bits;
    struct block_scales at;
    uint8_t start[BLOCK_BYTES_MAX];          /* no code bits; every bit of sub-scales is set */
    uint16_t bit[UNPACK_MAX][CODE_BITS_MAX]; /* of each element, in ascending order */
    uint8_t pattern[256];                    /* of the code that is nearest to the index - 128 */
    int code_min, code_max, scale, min;      /* scale and min: of every sub-block under `start` */
    float clip;                              /* largest magnitude, in root mean squares */
};

static void flip(uint8_t *block, uint32_t bit)
{
    block[bit / 8] = (uint8_t)(block[bit / 8] ^ 1u << bit % 8);
}

/* Does the bit belong to the F16 scale or minimum? */
static bool is_scale_bit(const struct encoder *e, uint32_t bit)
{
    int byte = (int)(bit / 8);
    return (byte >= e->at.d && byte < e->at.d + 2) ||
           (e->at.dmin >= 0 && byte >= e->at.dmin && byte < e->at.dmin + 2);
}

/* Sorts the bits: of sub-scales, or of the code of one element. False: a bit
 * changes several. */
static bool find_bits(struct encoder *e, unpack_fn *unpack)
{
    uint32_t count[UNPACK_MAX] = {0};
    uint8_t probe[BLOCK_BYTES_MAX] = {0};
    struct unpacked none, u;
    unpack(probe, 0, &none);
    for (uint32_t bit = 0; bit < e->block_bytes * 8; bit++) {
        if (is_scale_bit(e, bit))
            continue;
        flip(probe, bit);
        unpack(probe, 0, &u);
        flip(probe, bit);
        uint32_t changed = 0;
        for (uint32_t i = 0; i < e->unit; i++) {
            if (u.code[i] == none.code[i])
                continue;
            if (changed++ > 0 || count[i] == CODE_BITS_MAX)
                return false;
            e->bit[i][count[i]++] = (uint16_t)bit;
        }
        if (changed == 0)
            flip(e->start, bit);
    }
    e->code_bits = count[0];
    for (uint32_t i = 0; i < e->unit; i++)
        if (count[i] != count[0])
            return false;
    return true;
}

static void put_pattern(const struct encoder *e, uint32_t i, uint32_t pattern, uint8_t *block)
{
    for (uint32_t b = 0; b < e->code_bits; b++)
        if (pattern >> b & 1)
            flip(block, e->bit[i][b]);
}

/* The codes of element 0's patterns; all elements have the same. */
static void find_codes(struct encoder *e, unpack_fn *unpack)
{
    int code[256];
    struct unpacked u;
    e->code_min = INT8_MAX;
    e->code_max = INT8_MIN;
    for (uint32_t p = 0; p < 1u << e->code_bits; p++) {
        uint8_t probe[BLOCK_BYTES_MAX];
        memcpy(probe, e->start, sizeof probe);
        put_pattern(e, 0, p, probe);
        unpack(probe, 0, &u);
        code[p] = u.code[0];
        e->code_min = code[p] < e->code_min ? code[p] : e->code_min;
        e->code_max = code[p] > e->code_max ? code[p] : e->code_max;
    }
    for (int wanted = -128; wanted < 128; wanted++) {
        uint32_t best = 0;
        for (uint32_t p = 1; p < 1u << e->code_bits; p++)
            if (abs(code[p] - wanted) < abs(code[best] - wanted))
                best = p;
        e->pattern[wanted + 128] = (uint8_t)best;
    }
    e->scale = u.scale[0];
    e->min = u.min[0];
}

/* The range with about the smallest error for normal numbers, by the number of
 * levels. */
static float clip_of(uint32_t code_bits)
{
    static const float clip[] = {[1] = 0.8f, [2] = 1.5f, [3] = 2.05f, [4] = 2.5f, [5] = 3.0f};
    return code_bits < sizeof clip / sizeof clip[0] ? clip[code_bits] : 1000;
}

static bool prepare(struct encoder *e, enum tensor_type type)
{
    const struct unpack_info *info = unpack_info((uint32_t)type);
    *e = (struct encoder){.type = type, .at = blocks_scales(type)};
    if (!info)
        return type == TENSOR_F32 || type == TENSOR_F16 || type == TENSOR_BF16;
    e->unit = info->unit;
    e->block_bytes = tensor_type_info((uint32_t)type)->block_bytes;
    if (e->at.d < 0)
        return false;
    if (type == TENSOR_IQ3_S) {
        e->clip = clip_of(4);
        return true;
    }
    if (!find_bits(e, info->unpack))
        return false;
    find_codes(e, info->unpack);
    e->clip = clip_of(e->code_bits);
    return true;
}

bool encoder_has(enum tensor_type type)
{
    struct encoder e;
    return prepare(&e, type);
}

struct encoder *encoder_new(enum tensor_type type)
{
    struct encoder *e = malloc(sizeof *e);
    if (e && !prepare(e, type)) {
        free(e);
        return NULL;
    }
    return e;
}

void encoder_free(struct encoder *e)
{
    free(e);
}

/* ---- rows ---- */

static float range_of(const struct encoder *e, const float *x)
{
    float squares = 0, max = 0;
    for (uint32_t i = 0; i < e->unit; i++) {
        squares += x[i] * x[i];
        max = fabsf(x[i]) > max ? fabsf(x[i]) : max;
    }
    float clip = e->clip * sqrtf(squares / (float)e->unit);
    return max < clip ? max : clip;
}

static void put_f16(uint8_t *block, int at, float value)
{
    uint16_t h = f32_to_f16(value);
    memcpy(block + at, &h, sizeof h);
}

/* Codes from code_min to code_max cover the range; with minimums they are
 * shifted to it. */
static void encode_unit(const struct encoder *e, const float *x, uint8_t *block)
{
    bool minimums = e->at.dmin >= 0;
    float range = range_of(e, x), width = (float)(e->code_max - e->code_min);
    float reach =
        minimums ? width / 2 : (float)(e->code_max < -e->code_min ? -e->code_min : e->code_max);
    float step = range / reach, inverse = step > 0 ? 1 / step : 0;
    float shift = minimums ? width / 2 : 0;
    memcpy(block, e->start, e->block_bytes);
    put_f16(block, e->at.d, step / (float)e->scale);
    if (minimums)
        put_f16(block, e->at.dmin, range / (float)e->min);
    for (uint32_t i = 0; i < e->unit; i++) {
        float value = x[i] * inverse + shift;
        long code = e->code_bits == 1 ? (value < 0 ? -1 : 1) : lrintf(value);
        code = code < -128 ? -128 : code > 127 ? 127 : code;
        put_pattern(e, i, e->pattern[code + 128], block);
    }
}

/* IQ3_S: the point of the grid that is nearest to four magnitudes; signs apart.
 */
static uint32_t nearest_point(const float magnitude[4])
{
    float smallest = INFINITY;
    uint32_t best = 0;
    for (uint32_t p = 0; p < 512; p++) {
        float error = 0;
        for (uint32_t i = 0; i < 4; i++) {
            float gap = (float)(unpack_grid_iq3_s[p] >> 8 * i & 255) - magnitude[i];
            error += gap * gap;
        }
        best = error < smallest ? p : best;
        smallest = error < smallest ? error : smallest;
    }
    return best;
}

static void encode_iq3_s(const struct encoder *e, const float *x, uint8_t *block)
{
    float step = range_of(e, x) / 15, inverse = step > 0 ? 1 / step : 0;
    memset(block, 0, e->block_bytes);
    put_f16(block, 0, step);
    for (uint32_t g = 0; g < UNPACK_MAX / 4; g++) {
        float magnitude[4];
        for (uint32_t i = 0; i < 4; i++) {
            float value = x[4 * g + i];
            magnitude[i] = fabsf(value) * inverse;
            if (value < 0)
                block[74 + g / 2] = (uint8_t)(block[74 + g / 2] | 1u << (g % 2 * 4 + i));
        }
        uint32_t point = nearest_point(magnitude);
        block[2 + g] = (uint8_t)point;
        block[66 + g / 8] = (uint8_t)(block[66 + g / 8] | (point >> 8) << g % 8);
    }
}

static void plain_row(enum tensor_type type, const float *x, uint32_t n, uint8_t *out)
{
    if (type == TENSOR_F32)
        memcpy(out, x, n * sizeof *x);
    for (uint32_t i = 0; i < n && type != TENSOR_F32; i++) {
        uint16_t h = type == TENSOR_F16 ? f32_to_f16(x[i]) : (uint16_t)(bits_of(x[i]) >> 16);
        memcpy(out + 2 * (size_t)i, &h, sizeof h);
    }
}

void encoder_row(const struct encoder *e, const float *x, uint32_t n, void *out)
{
    uint8_t *block = out;
    if (e->unit == 0) {
        plain_row(e->type, x, n, out);
        return;
    }
    for (uint32_t i = 0; i < n; i += e->unit, block += e->block_bytes) {
        if (e->type == TENSOR_IQ3_S)
            encode_iq3_s(e, x + i, block);
        else
            encode_unit(e, x + i, block);
    }
}
