/* SPDX-License-Identifier: Apache-2.0 */
/* The reference decoder of GGUF's quantised tensor types: every type in one form. Element i of a
 * unit (a block, or the part of a block that has one float scale) is
 *
 *   w[i] = d * scale[i / 16] * code[i] - dmin * min[i / 16]
 *
 * with small integers code, scale and min. It holds exactly for all types: what a format defines as
 * a fraction (IQ1: grid +- 1/8; IQ2, IQ3: scale + 1/2; MXFP4: halves) is doubled often enough to be
 * an integer, and d is divided by the same power of two. A type without sub-scales has scale 1, a
 * type whose minimum is a float has min -1 and the minimum as dmin.
 *
 * As F32, d * scale * code and dmin * min are exact and their difference is rounded once, so every
 * order of these operations gives the same bits. Not exact: products beyond the range of F32 (MXFP4
 * with an exponent byte of 253 or more) become infinite.
 *
 * Scales that are no finite numbers: an F16 scale that is NaN or infinite makes d or dmin NaN or
 * infinite, and elements NaN or infinite as IEEE arithmetic has it. E8M0 (MXFP4) 255 is 2^128, as
 * in ggml and not NaN as in the OCP standard; UE4M3 (NVFP4) 0x7f is 0, its sign bit is ignored. */
#ifndef SLUICE_TENSOR_UNPACK_UNPACK_H
#define SLUICE_TENSOR_UNPACK_UNPACK_H

#include <stdbool.h>
#include <stdint.h>

#include "lib/tensor/tensor_type.h"

#define UNPACK_MAX 256 /* elements of the largest unit */
#define UNPACK_SUB 16  /* elements of the smallest sub-block */

struct unpacked {
    float d, dmin;
    int16_t
        scale[UNPACK_MAX / UNPACK_SUB]; /* per 16 elements, also of types with sub-blocks of 32 */
    int16_t min[UNPACK_MAX / UNPACK_SUB];
    _Alignas(64) int8_t code[UNPACK_MAX];
};

/* Fills what the type's unit has: entries beyond it are unspecified. part: which unit of the
 * block. */
typedef void unpack_fn(const uint8_t *block, uint32_t part, struct unpacked *u);

struct unpack_info {
    uint32_t unit, sub;
    bool minimums;
    int16_t code_max, scale_max, min_max;
    unpack_fn *unpack;
};

/* NULL: not a quantised type of GGUF. */
const struct unpack_info *unpack_info(uint32_t type);

/* Element i of a unit. */
static inline float unpacked_element(const struct unpacked *u, uint32_t i)
{
    float product = u->d * (float)u->scale[i / UNPACK_SUB] * (float)u->code[i];
    return product - u->dmin * (float)u->min[i / UNPACK_SUB];
}

/* elems elements of a row of such a type, from its first, as F32. elems is a multiple of the type's
 * block. */
void unpack_row(uint32_t type, const void *row, uint64_t elems, float *y);

#endif
