/* SPDX-License-Identifier: Apache-2.0 */
/* Grid of a row: of a few scales, from "the largest weight is the last level" downwards, the one
 * with the smallest sum of |error|^power. A larger power preserves the largest weights, which
 * matters more than the mean error (README.md of this directory). */
#include <math.h>

#include "lib/base/bytes.h"
#include "lib/quant/quant_internal.h"

/* End of the grid, relative to the largest weight. */
static const float parts[] = {1.0f, 0.92f, 0.84f, 0.76f, 0.68f, 0.6f, 0.52f, 0.45f, 0.38f, 0.32f};

static float signed_max(const float *w, uint32_t count)
{
    float max = 0;
    for (uint32_t i = 0; i < count; i++)
        max = fabsf(w[i]) > fabsf(max) ? w[i] : max;
    return max;
}

struct best {
    struct quant_grid grid;
    double error;
};

static void try_grid(struct quant_grid grid, uint32_t bits, const float *w, uint32_t count,
                     uint32_t power, struct best *best)
{
    grid = quant_grid_f16(grid);
    double error = quant_error(grid, bits, w, count, (double)power);
    if (error < best->error)
        *best = (struct best){grid, error};
}

/* All scales for one kind of levels; the weight of largest magnitude maps to level 0. */
static void try_levels(float zero, float max, uint32_t bits, const float *w, uint32_t count,
                       uint32_t power, struct best *best)
{
    size_t tries = power == 0 ? 1 : ARRAY_LEN(parts);
    for (size_t i = 0; i < tries; i++) {
        struct quant_grid grid = {-max * parts[i] / zero, zero};
        try_grid(grid, bits, w, count, power == 0 ? 2 : power, best);
    }
}

struct quant_grid quant_channel_grid(uint32_t bits, const float *w, uint32_t count,
                                     const struct quant_settings *s)
{
    float zero = (float)(1u << (bits - 1)), max = signed_max(w, count);
    struct best best = {{0, zero}, INFINITY};
    if (max == 0.0f)
        return best.grid;
    /* 8 bits: no search; levels -127 .. 127, level 0 only by rounding */
    if (bits == 8)
        max *= 128.0f / 127.0f;
    if (bits != 2 || s->levels != QUANT_LEVELS_EVEN)
        try_levels(zero, max, bits, w, count, bits == 8 ? 0 : s->channel_power, &best);
    if (bits == 2 && s->levels != QUANT_LEVELS_ZERO)
        try_levels(1.5f, max, bits, w, count, s->channel_power, &best);
    if (best.error == INFINITY) /* no F16 scale fits: the caller rejects the row */
        best.grid.scale = INFINITY;
    return best.grid;
}
