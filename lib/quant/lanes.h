/* SPDX-License-Identifier: Apache-2.0 */
/* Inner loops of the searches; included once per instruction set. They use vectors of eight lanes,
 * which the compiler maps to the set. Contraction is off and every operation rounds alike, so
 * results do not depend on the set. LANES_OF: name of the table defined here. */
#include <math.h>
#include <string.h>

#include "lib/base/assert.h"
#include "lib/quant/quant_internal.h"

#define LANES  8
#define INLINE static inline __attribute__((always_inline))

typedef float vf __attribute__((vector_size(4 * LANES)));
typedef int32_t vi __attribute__((vector_size(4 * LANES)));

INLINE vf vf_load(const float *p)
{
    vf v;
    memcpy(&v, p, sizeof v);
    return v;
}

INLINE vf vf_where(vi mask, vf yes, vf no)
{
    return (vf)((mask & (vi)yes) | (~mask & (vi)no));
}

INLINE vf vf_all(float x)
{
    return (vf){x, x, x, x, x, x, x, x};
}

INLINE vf vf_size(vf x)
{
    return (vf)((vi)x & 0x7fffffff);
}

INLINE float vf_sum(vf v)
{
    float all = 0;
    for (int l = 0; l < LANES; l++)
        all += v[l];
    return all;
}

/* log2 of positive floats, error at most 3e-7; zero gives -127. The polynomials of both functions
 * interpolate at Chebyshev nodes. */
INLINE vf vf_log2(vf x)
{
    vf e = __builtin_convertvector(((vi)x >> 23) - 127, vf);
    vf t = (vf)(((vi)x & 0x7fffff) | 0x3f800000) - 1.0f, p = t * -0.0120770203f + 0.0627484336f;
    p = p * t - 0.1541520064f;
    p = p * t + 0.2551763492f;
    p = p * t - 0.3530963534f;
    p = p * t + 0.4800124608f;
    p = p * t - 0.7213067574f;
    p = p * t + 1.4426947246f;
    return p * t + e;
}

/* 2^y for -126 <= y <= 127, relative error at most 1e-7. */
INLINE vf vf_exp2(vf y)
{
    vi exponent = __builtin_convertvector(y + 127.5f, vi);
    vf f = y + 127.0f - __builtin_convertvector(exponent, vf);
    vf p = f * 0.0013390864f + 0.0096760319f;
    p = p * f + 0.0555035711f;
    p = p * f + 0.2402210749f;
    p = p * f + 0.6931471880f;
    p = p * f + 1.0000000755f;
    return p * (vf)(exponent << 23);
}

INLINE vf vf_power(vf x, float power)
{
    vf y = vf_log2(x) * power;
    y = vf_where(y > -126.0f, y, vf_all(-126.0f));
    return vf_exp2(vf_where(y < 127.0f, y, vf_all(127.0f)));
}

/* A grid, prepared for coding. */
struct grid {
    float scale, zero, inverse, top;
};

INLINE struct grid grid_of(struct quant_grid g, uint32_t bits)
{
    float inverse = g.scale == 0.0f ? 0.0f : 1.0f / g.scale;
    return (struct grid){g.scale, g.zero, inverse, (float)((1u << bits) - 1)};
}

/* The nearest codes, as floats; NaN becomes 0. */
INLINE vf codes_of(struct grid g, vf w)
{
    vf c = w * g.inverse + g.zero;
    c = vf_where(c > 0.0f, c, vf_all(0));
    c = vf_where(c < g.top, c, vf_all(g.top));
    return __builtin_convertvector(__builtin_convertvector(c + 0.5f, vi), vf);
}

INLINE vf error_at(struct grid g, const float *w)
{
    vf v = vf_load(w);
    return v - (codes_of(g, v) - g.zero) * g.scale;
}

INLINE vf vf_root(vf x)
{
    for (int l = 0; l < LANES; l++)
        x[l] = sqrtf(x[l]);
    return x;
}

static double error_of(struct quant_grid grid, uint32_t bits, const float *w, uint32_t count,
                       double power)
{
    struct grid g = grid_of(grid, bits);
    vf sum = {0};
    sl_assert(count % LANES == 0);
    for (uint32_t i = 0; i < count; i += LANES) {
        vf e = error_at(g, w + i);
        if (power < 2.0) {
            sum += vf_power(vf_size(e), (float)power);
            continue;
        }
        e *= e;
        sum += power == 4 ? e * e : power == 3 ? e * vf_root(e) : e;
    }
    return (double)vf_sum(sum);
}

/* sign(x) max(0, |x| - |x|^(p-1) / beta); each: 1 / beta */
INLINE vf shrink(vf x, float power, float each)
{
    vf size = vf_size(x), left = size - vf_power(size, power - 1.0f) * each;
    vi some = (size > 1e-8f) & (left > 0.0f);
    return (vf)((vi)left & some) * vf_where(x < 0.0f, vf_all(-1), vf_all(1));
}

/* One alternation: codes and errors; then the zero and, if wanted, the scale of the weights minus
 * their errors, all in units of the scale. */
static struct quant_grid hqq_step(struct quant_grid grid, const struct quant_hqq_step *s,
                                  const float *w, uint32_t count)
{
    vf q[QUANT_HQQ_MAX / LANES], rest[QUANT_HQQ_MAX / LANES], sum_q = {0}, sum_r = {0};
    vf sum_qr = {0}, sum_qq = {0};
    struct grid g = grid_of(grid, s->bits);
    uint32_t vectors = count / LANES;
    sl_assert(count % LANES == 0 && count <= QUANT_HQQ_MAX);
    for (uint32_t i = 0; i < vectors; i++) {
        vf v = vf_load(w + (size_t)i * LANES), x = v * g.inverse;
        q[i] = codes_of(g, v);
        rest[i] = x - shrink(x - (q[i] - g.zero), s->power, 1.0f / s->beta);
        sum_q += q[i];
        sum_r += rest[i];
    }
    float mean_q = vf_sum(sum_q) / (float)count, mean_r = vf_sum(sum_r) / (float)count;
    if (!s->move_scale)
        return (struct quant_grid){grid.scale, mean_q - mean_r};
    for (uint32_t i = 0; i < vectors; i++) {
        vf d = q[i] - mean_q;
        sum_qr += d * (rest[i] - mean_r);
        sum_qq += d * d;
    }
    float qr = vf_sum(sum_qr), qq = vf_sum(sum_qq);
    float factor = qq > 0 && qr > 0 ? qr / qq : 1.0f;
    return (struct quant_grid){grid.scale * factor, mean_q - mean_r / factor};
}

const struct quant_lanes LANES_OF = {.error = error_of, .hqq_step = hqq_step};
