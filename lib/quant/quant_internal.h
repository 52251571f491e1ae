/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of lib/quant. */
#ifndef SLUICE_QUANT_QUANT_INTERNAL_H
#define SLUICE_QUANT_QUANT_INTERNAL_H

#include "lib/quant/quant.h"

#define QUANT_GROUP 64 /* elements per group and per block of the own types */

/* A linear grid: values scale * (code - zero), code 0 .. 2^bits - 1. */
struct quant_grid {
    float scale, zero;
};

/* The nearest code of every weight. */
void quant_codes(struct quant_grid grid, uint32_t bits, const float *w, uint32_t count,
                 uint8_t *code);

/* Sum of |w - scale * (code - zero)|^power with the nearest codes. */
double quant_error(struct quant_grid grid, uint32_t bits, const float *w, uint32_t count,
                   double power);

/* One alternation of hqq.c. */
struct quant_hqq_step {
    uint32_t bits;
    float power, beta;
    bool move_scale;
};

/* lanes.h: the inner loops, one table per instruction set. Counts are multiples of 8. */
struct quant_lanes {
    double (*error)(struct quant_grid grid, uint32_t bits, const float *w, uint32_t count,
                    double power);
    struct quant_grid (*hqq_step)(struct quant_grid grid, const struct quant_hqq_step *step,
                                  const float *w, uint32_t count);
};

extern const struct quant_lanes quant_lanes_generic, quant_lanes_avx2;

/* The fastest table that this CPU supports. */
const struct quant_lanes *quant_lanes_here(void);

/* Rounded to F16 and converted back. */
struct quant_grid quant_grid_f16(struct quant_grid grid);
uint16_t quant_f16(float x);

/* channel.c: the grid of a row, in F16 values. */
struct quant_grid quant_channel_grid(uint32_t bits, const float *w, uint32_t count,
                                     const struct quant_settings *s);
/* hqq.c: the grid of a group of `count` <= QUANT_HQQ_MAX, in F16 values. */
#define QUANT_HQQ_MAX 256
struct quant_grid quant_hqq_grid(uint32_t bits, const float *w, uint32_t count,
                                 const struct quant_settings *s);

#endif
