/* One grid for a whole row: the scale of the least squared error that alternation finds.
 *
 * For given codes q the best scale is  sum w (q - zero) / sum (q - zero)^2 ; for a given scale the
 * best codes are the nearest. Alternating the two never makes it worse, and ends near where it
 * began: so there are several beginnings, from "the largest weight is the last level" downwards. */
#include <math.h>
#include <string.h>

#include "lib/quant/quant_internal.h"

/* Begin where the grid ends at these parts of the largest weight. */
static const float start_parts[] = {1.0f, 0.75f, 0.55f, 0.38f};

static float signed_max(const float *w, uint32_t count)
{
    float max = 0;
    for (uint32_t i = 0; i < count; i++)
        max = fabsf(w[i]) > fabsf(max) ? w[i] : max;
    return max;
}

/* Eight sums beside each other, which a compiler turns into vectors; the order of adding is fixed.
 */
#define LANES 8

static float best_scale(struct quant_grid grid, uint32_t bits, const float *w, uint32_t count)
{
    float inverse = 1.0f / grid.scale, top = (float)((1u << bits) - 1), zero = grid.zero;
    float wq[LANES] = {0}, qq[LANES] = {0};
    for (uint32_t i = 0; i < count; i += LANES) {
        for (uint32_t l = 0; l < LANES; l++) {
            float c = w[i + l] * inverse + zero;
            c = c < 0.0f ? 0.0f : c;
            c = c > top ? top : c;
            float q = (float)(int32_t)(c + 0.5f) - zero;
            wq[l] += w[i + l] * q;
            qq[l] += q * q;
        }
    }
    float sum_wq = 0, sum_qq = 0;
    for (uint32_t l = 0; l < LANES; l++) {
        sum_wq += wq[l];
        sum_qq += qq[l];
    }
    return sum_qq > 0 ? sum_wq / sum_qq : grid.scale;
}

struct best {
    struct quant_grid grid;
    double error;
};

/* Alternates from grid; keeps what is better than *best. */
static void alternate(struct quant_grid grid, uint32_t bits, const float *w, uint32_t count,
                      uint32_t steps, struct best *best)
{
    for (uint32_t i = 0; i < steps && grid.scale != 0.0f; i++) {
        float next = best_scale(grid, bits, w, count);
        bool still = fabsf(next - grid.scale) <= 1e-4f * fabsf(grid.scale);
        grid.scale = next;
        if (still)
            break;
    }
    grid = quant_grid_f16(grid);
    double error = quant_error(grid, bits, w, count, 2.0);
    if (error < best->error)
        *best = (struct best){grid, error};
}

/* All beginnings of one kind of levels; the weight of largest size goes to level 0. */
static void try_levels(float zero, float max, uint32_t bits, const float *w, uint32_t count,
                       uint32_t steps, struct best *best)
{
    size_t starts = steps == 0 ? 1 : sizeof start_parts / sizeof *start_parts;
    for (size_t i = 0; i < starts; i++) {
        struct quant_grid grid = {-max * start_parts[i] / zero, zero};
        alternate(grid, bits, w, count, steps, best);
        /* the uneven side the other way; where levels are even it changes nothing */
        if (zero != 1.5f && steps > 0) {
            grid.scale = -grid.scale;
            alternate(grid, bits, w, count, steps, best);
        }
    }
}

struct quant_grid quant_channel_grid(uint32_t bits, const float *w, uint32_t count,
                                     const struct quant_settings *s)
{
    float zero = (float)(1u << (bits - 1)), max = signed_max(w, count);
    struct best best = {{0, quant_grid_f16((struct quant_grid){0, zero}).zero}, INFINITY};
    if (max == 0.0f)
        return best.grid;
    /* 8 bits: nothing to search for; the levels -127 .. 127; level 0 is left to the last rounding
     */
    if (bits == 8)
        max *= 128.0f / 127.0f;
    if (bits != 2 || s->levels != QUANT_LEVELS_EVEN)
        try_levels(zero, max, bits, w, count, bits == 8 ? 0 : s->channel_steps, &best);
    if (bits == 2 && s->levels != QUANT_LEVELS_ZERO)
        try_levels(1.5f, max, bits, w, count, s->channel_steps, &best);
    if (best.error == INFINITY) /* no F16 scale holds it: the caller refuses the row */
        best.grid.scale = INFINITY;
    return best.grid;
}
