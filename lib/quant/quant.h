/* SPDX-License-Identifier: Apache-2.0 */
/* Quantisation to sluice's own types: the lower precisions of experts.
 *
 * Every weight of a row of k (a multiple of 64) elements becomes  scale * (code - zero),  scale and
 * zero F16, code unsigned of 8, 4 or 2 bits.
 *
 * C8, C4, C2  one scale and zero per row (channel-wise linear, EdgeMoE, Yi et al. 2023, §3.2):
 *             row = { f16 scale, f16 zero, codes of 64, codes of 64, ... }
 * G4, G2      one scale and zero per 64 elements, chosen by half-quadratic quantisation (HQQ,
 *             Badri & Shaji 2023, https://mobiusml.github.io/hqq_blog/; used by Fate):
 *             row = { f16 scale, f16 zero, codes of 64 } for every 64 elements
 *
 * Codes of 64 elements:
 *   8 bits  element i in byte i
 *   4 bits  element i in byte i % 32, i < 32 in the low nibble
 *   2 bits  element i in byte i % 16, i < 16 in the lowest two bits and so on upwards
 *
 * Pure functions: nothing is allocated, results depend on the arguments only. A caller may divide
 * rows over threads in any way; the bytes are the same. */
#ifndef SLUICE_QUANT_QUANT_H
#define SLUICE_QUANT_QUANT_H

#include <stdbool.h>
#include <stdint.h>

#include "lib/kernels/kernels.h"
#include "lib/tensor/quant_method.h"
#include "lib/tensor/tensor_type.h"

/* The two grids of C2. ZERO: {-2, -1, 0, 1} (zero 2), contains 0 and is asymmetric; a negative
 * scale mirrors it. EVEN: {-1.5, -0.5, 0.5, 1.5} (zero 1.5), symmetric, without 0. */
enum quant_levels { QUANT_LEVELS_EITHER, QUANT_LEVELS_ZERO, QUANT_LEVELS_EVEN };

/* Settings of the search. quant_defaults: chosen by measurement (README.md of this directory). */
struct quant_settings {
    enum quant_levels levels; /* C2; EITHER: the one with the smaller error, per row */
    uint32_t
        channel_power;  /* power of the errors in the search for a scale: 2, 3, 4; 0: no search */
    uint32_t hqq_steps; /* alternations of codes and zero */
    float hqq_power;    /* p of the norm the solver minimises, 0 < p <= 2 */
    float hqq_beta;     /* initial penalty, for errors in units of the scale */
    float hqq_kappa;    /* growth of the penalty per step */
    bool hqq_scale;     /* optimise the scale too, after the zero has converged */
};

extern const struct quant_settings quant_defaults;

/* The type of `bits` (8, 4, 2) by a method. Eight bits are always channel-wise. */
enum tensor_type quant_type_for(uint32_t bits, enum quant_method method);

/* Quantises `n` contiguous rows of k floats to rows of type `to` (C8 .. G2) at dst,
 * tensor_type_row_bytes apart. settings: NULL for quant_defaults. Returns 0, or -1 when a weight is
 * not finite or too large for an F16 scale (the rows are then unspecified). */
int quant_rows(enum tensor_type to, const float *src, uint32_t k, uint32_t n, void *dst,
               const struct quant_settings *settings);

/* Rows first .. first + n - 1 of a matrix of any type as F32, contiguous at dst. */
void quant_dequantise(const struct kernel_matrix *w, uint32_t first, uint32_t n, float *dst);

#endif
