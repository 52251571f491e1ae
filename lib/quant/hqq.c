/* Half-quadratic quantisation of one group: Badri & Shaji, "Half-Quadratic Quantization of Large
 * Machine Learning Models", 2023 (https://mobiusml.github.io/hqq_blog/).
 *
 * Minimised is  sum |w - s (q - z)|^p, p < 1: an error that lets a few weights be far off so that
 * most are near. An extra variable e for the error makes it min over z, e of  sum |e|^p + (beta /
 * 2) sum (e - (w - s (q - z)))^2 and the two parts alternate, beta growing by kappa each time: e =
 * shrink(w - s (q - z)),  shrink(x) = sign(x) max(0, |x| - |x|^(p-1) / beta) z = mean(q - (w - e) /
 * s),  q = nearest codes of w Errors are taken in units of s, so that beta means the same for every
 * group. With hqq_scale the scale moves next: the least squares of w - e over the codes, then the
 * zero again. Only what makes the norm smaller is kept. */
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

static float shrink(float x, float power, float beta)
{
    float size = fabsf(x);
    if (size < 1e-8f)
        return 0.0f;
    if (power <= 1.0f && size < 1.0f && size * beta <= 1.0f) /* size^(p-1) >= 1: nothing is left */
        return 0.0f;
    float left = size - powf(size, power - 1.0f) / beta;
    return left > 0.0f ? copysignf(left, x) : 0.0f;
}

/* One step: codes, errors, then the zero and, when wanted, the scale of what remains of w. */
static struct quant_grid step(struct quant_grid grid, uint32_t bits, const float *w, uint32_t count,
                              float power, float beta, bool move_scale)
{
    uint8_t code[QUANT_HQQ_MAX];
    float rest[QUANT_HQQ_MAX], inverse = 1.0f / grid.scale;
    float sum_q = 0, sum_r = 0, sum_qr = 0, sum_qq = 0, n = (float)count;
    quant_codes(grid, bits, w, count, code);
    for (uint32_t i = 0; i < count; i++) {
        float q = (float)code[i];
        float e = shrink(w[i] * inverse - (q - grid.zero), power, beta);
        rest[i] = w[i] * inverse - e;
        sum_q += q;
        sum_r += rest[i];
    }
    float mean_q = sum_q / n, mean_r = sum_r / n;
    if (!move_scale)
        return (struct quant_grid){grid.scale, mean_q - mean_r};
    for (uint32_t i = 0; i < count; i++) {
        float q = (float)code[i] - mean_q;
        sum_qr += q * (rest[i] - mean_r);
        sum_qq += q * q;
    }
    float factor = sum_qq > 0 && sum_qr > 0 ? sum_qr / sum_qq : 1.0f;
    return (struct quant_grid){grid.scale * factor, mean_q - mean_r / factor};
}

static void solve(struct quant_grid grid, uint32_t bits, const float *w, uint32_t count,
                  const struct quant_settings *s, bool move_scale, struct best *best)
{
    float beta = s->hqq_beta;
    uint32_t worse = 0;
    for (uint32_t i = 0; i < s->hqq_steps && worse < 3; i++, beta *= s->hqq_kappa) {
        grid = step(grid, bits, w, count, s->hqq_power, beta, move_scale);
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
    if (low == high) /* one value: s * (0 - z) with z = -1 or 1; zero itself is a scale of zero */
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
