/* SPDX-License-Identifier: Apache-2.0 */
/* Half-quadratic quantisation of one group: Badri & Shaji, "Half-Quadratic Quantization of Large
 * Machine Learning Models", 2023 (https://mobiusml.github.io/hqq_blog/).
 *
 * Minimises  sum |w - s (q - z)|^p,  p < 1,  so that few weights have large errors and most small
 * ones. With an extra variable e for the error:
 *     min over z, e of  sum |e|^p + (beta / 2) sum (e - (w - s (q - z)))^2
 * Two steps alternate, and beta grows by the factor kappa each time:
 *     e = shrink(w - s (q - z)),   shrink(x) = sign(x) max(0, |x| - |x|^(p-1) / beta)
 *     z = mean(q - (w - e) / s),   q = nearest codes of w
 * Errors are in units of s, so that beta means the same for every group. With hqq_scale the scale
 * follows: least squares of w - e over the codes, then the zero again. A step is kept only if it
 * reduces the norm. */
#include <math.h>

#include "lib/quant/quant_internal.h"

struct best {
    struct quant_grid grid;
    double error;
};

static bool keep(struct quant_grid grid, uint32_t bits, const float *w, uint32_t count,
                 double power, struct best *best)
{
    struct quant_grid stored = quant_grid_f16(grid);
    if (!isfinite(stored.scale) || !isfinite(stored.zero) || stored.scale == 0.0f)
        return false;
    double error = quant_error(stored, bits, w, count, power);
    if (!(error < best->error))
        return false;
    *best = (struct best){stored, error};
    return true;
}

static void solve(struct quant_grid grid, uint32_t bits, const float *w, uint32_t count,
                  const struct quant_settings *s, bool move_scale, struct best *best)
{
    struct quant_hqq_step step = {bits, s->hqq_power, s->hqq_beta, move_scale};
    uint32_t worse = 0;
    for (uint32_t i = 0; i < s->hqq_steps && worse < 3; i++, step.beta *= s->hqq_kappa) {
        grid = quant_lanes_here()->hqq_step(grid, &step, w, count);
        if (!isfinite(grid.zero) || !(grid.scale > 0.0f))
            return;
        worse = keep(grid, bits, w, count, (double)s->hqq_power, best) ? 0 : worse + 1;
    }
}

struct quant_grid quant_hqq_grid(uint32_t bits, const float *w, uint32_t count,
                                 const struct quant_settings *s)
{
    float low = w[0], high = w[0], top = (float)((1u << bits) - 1);
    for (uint32_t i = 1; i < count; i++) {
        low = w[i] < low ? w[i] : low;
        high = w[i] > high ? w[i] : high;
    }
    if (low == high) /* constant group: s * (0 - z), z = -1 or 1; scale 0 for zeros */
        return quant_grid_f16((struct quant_grid){fabsf(low), low > 0 ? -1.0f : 1.0f});
    struct quant_grid first = {(high - low) / top, 0};
    first.zero = -low / first.scale;
    struct best best = {quant_grid_f16(first), INFINITY};
    keep(first, bits, w, count, (double)s->hqq_power, &best);
    solve(first, bits, w, count, s, false, &best);
    if (s->hqq_scale && best.grid.scale > 0.0f)
        solve(best.grid, bits, w, count, s, true, &best);
    return best.grid;
}
