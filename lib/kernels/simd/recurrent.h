/* SPDX-License-Identifier: Apache-2.0 */
/* Template of the kernels of layers with a recurrent state; after rows.h and STORE_FAR. */

static void simd_conv(const float *const *x, const float *w, size_t stride, uint32_t taps,
                      uint32_t n, float *y)
{
    FOR_VECTORS(i, lanes, n)
    {
        vf sum = vf_set1(0);
        for (uint32_t t = 0; t < taps; t++)
            sum = vf_fma(vf_load_n(w + t * stride + i, lanes), vf_load_n(x[t] + i, lanes), sum);
        vf_store_n(y + i, sum, lanes);
    }
}

static void simd_silu(float *x, uint32_t n)
{
    vf one = vf_set1(1);
    FOR_VECTORS(i, lanes, n)
    {
        vf g = vf_load_n(x + i, lanes);
        vf_store_n(x + i, vf_div(g, vf_add(one, vf_exp(vf_sub(vf_set1(0), g)))), lanes);
    }
}

static void simd_sigmoid_mul(const float *gate, const float *x, uint32_t n, float *y)
{
    vf one = vf_set1(1);
    FOR_VECTORS(i, lanes, n)
    {
        vf g = vf_exp(vf_sub(vf_set1(0), vf_load_n(gate + i, lanes)));
        vf_store_n(y + i, vf_div(vf_load_n(x + i, lanes), vf_add(one, g)), lanes);
    }
}

static void simd_mul(const float *a, const float *b, uint32_t n, float *y)
{
    FOR_VECTORS(i, lanes, n)
    vf_store_n(y + i, vf_mul(vf_load_n(a + i, lanes), vf_load_n(b + i, lanes)), lanes);
}

/* Columns of the state that stay in registers while its rows are passed: two sums of each, of 16 or
 * 32 registers. With all columns of a head, its rows are read and written in the order of
 * memory. */
#define DELTA_VECTORS (VL / 2)
#define FEWER_VECTORS (DELTA_VECTORS > 4 ? 4 : 1) /* of values of 64 elements */

/* Columns [at, at + vectors * VL) of the state; the last vector has `tail` lanes. far: next is
 * written past the caches, whose lines would otherwise be read first. */
static ALWAYS_INLINE void step_columns(const struct kernel_delta *d, uint32_t at, uint32_t vectors,
                                       uint32_t tail, const bool far, const bool without)
{
    vf recall[DELTA_VECTORS], out[DELTA_VECTORS];
    UNROLL for (uint32_t c = 0; c < vectors; c++) recall[c] = out[c] = vf_set1(0);
    for (uint32_t i = 0; i < d->keys && !without; i++) {
        const float *row = d->state + (size_t)i * d->values + at;
        vf k = vf_set1(d->k[i]), decay = vf_set1(d->decay[i * d->decay_step]);
        UNROLL for (uint32_t c = 0; c < vectors; c++)
        {
            vf s = vf_load_n(row + c * VL, c + 1 < vectors ? VL : tail);
            recall[c] = vf_fma(k, vf_mul(s, decay), recall[c]);
        }
    }
    UNROLL for (uint32_t c = 0; c < vectors; c++)
    {
        vf v = vf_load_n(d->v + at + c * VL, c + 1 < vectors ? VL : tail);
        recall[c] = vf_mul(vf_set1(d->rate), without ? v : vf_sub(v, recall[c]));
    }
    for (uint32_t i = 0; i < d->keys; i++) {
        const float *row = d->state + (size_t)i * d->values + at;
        float *next = d->next + (size_t)i * d->values + at;
        vf k = vf_set1(d->k[i]), q = vf_set1(d->q[i]);
        vf decay = vf_set1(d->decay[i * d->decay_step]);
        UNROLL for (uint32_t c = 0; c < vectors; c++)
        {
            uint32_t lanes = c + 1 < vectors ? VL : tail;
            vf s = vf_fma(k, recall[c], vf_mul(vf_load_n(row + c * VL, lanes), decay));
            if (far)
                STORE_FAR(next + c * VL, s);
            else
                vf_store_n(next + c * VL, s, lanes);
            out[c] = vf_fma(q, s, out[c]);
        }
    }
    UNROLL for (uint32_t c = 0; c < vectors; c++)
        vf_store_n(d->out + at + c * VL, out[c], c + 1 < vectors ? VL : tail);
}

static ALWAYS_INLINE void delta_columns(const struct kernel_delta *d, uint32_t at, uint32_t vectors,
                                        uint32_t tail, const bool far)
{
    if (d->without)
        step_columns(d, at, vectors, tail, far, true);
    else
        step_columns(d, at, vectors, tail, far, false);
}

/* Of Mamba-2, heads have 64 columns. */
#define FAR_VECTORS (DELTA_VECTORS > 4 ? FEWER_VECTORS : DELTA_VECTORS)

/* The new state is another version, and its vectors are whole and aligned. It is 32 KiB and more
 * per head and not read before the next row: in a pass of one row, after all other weights and
 * states. */
static bool delta_far(const struct kernel_delta *d)
{
    return d->next != d->state && d->values % (FAR_VECTORS * VL) == 0 &&
           (uintptr_t)d->next % (VL * sizeof(float)) == 0;
}

static void simd_delta(const struct kernel_delta *d)
{
    uint32_t at = 0;
    if (delta_far(d)) {
        for (; at + DELTA_VECTORS * VL <= d->values; at += DELTA_VECTORS * VL)
            delta_columns(d, at, DELTA_VECTORS, VL, true);
        for (; at < d->values; at += FAR_VECTORS * VL)
            delta_columns(d, at, FAR_VECTORS, VL, true);
        _mm_sfence();
        return;
    }
    for (; at + DELTA_VECTORS * VL <= d->values; at += DELTA_VECTORS * VL)
        delta_columns(d, at, DELTA_VECTORS, VL, false);
    for (; at + FEWER_VECTORS * VL <= d->values; at += FEWER_VECTORS * VL)
        delta_columns(d, at, FEWER_VECTORS, VL, false);
    for (; at < d->values; at += VL)
        delta_columns(d, at, 1, d->values - at < VL ? d->values - at : VL, false);
}

/* Columns whose exponentials are computed together: one alone would wait for each step of its
 * own. */
#define SCAN_VECTORS 4

/* log(1 + e^x), as softplus_one. */
static ALWAYS_INLINE vf vf_softplus(vf x)
{
    vf e = vf_exp(vf_sub(vf_set1(0), vf_abs(x))), s = vf_div(e, vf_add(vf_set1(2), e));
    vf square = vf_mul(s, s), p = vf_set1(1.0f / 15);
    p = vf_fma(p, square, vf_set1(1.0f / 13));
    p = vf_fma(p, square, vf_set1(1.0f / 11));
    p = vf_fma(p, square, vf_set1(1.0f / 9));
    p = vf_fma(p, square, vf_set1(1.0f / 7));
    p = vf_fma(p, square, vf_set1(1.0f / 5));
    p = vf_fma(p, square, vf_set1(1.0f / 3));
    p = vf_fma(p, square, vf_set1(1));
    return vf_add(vf_max(vf_set1(0), x), vf_mul(vf_add(s, s), p)); /* NaN stays NaN */
}

/* Columns [at, at + vectors * VL) of the state; the last vector has `tail` lanes. */
static ALWAYS_INLINE void scan_columns(const struct kernel_scan *a, uint32_t at,
                                       const uint32_t vectors, uint32_t tail)
{
    vf step[SCAN_VECTORS], u[SCAN_VECTORS], out[SCAN_VECTORS];
    UNROLL for (uint32_t c = 0; c < vectors; c++)
    {
        uint32_t j = at + c * VL, lanes = c + 1 < vectors ? VL : tail;
        step[c] = vf_softplus(vf_add(vf_load_n(a->step + j, lanes), vf_load_n(a->bias + j, lanes)));
        u[c] = vf_mul(step[c], vf_load_n(a->v + j, lanes));
        out[c] = vf_set1(0);
    }
    for (uint32_t i = 0; i < a->keys; i++) {
        size_t row = (size_t)i * a->values + at;
        vf k = vf_set1(a->k[i]), q = vf_set1(a->q[i]);
        UNROLL for (uint32_t c = 0; c < vectors; c++)
        {
            uint32_t lanes = c + 1 < vectors ? VL : tail;
            vf decay = vf_exp(vf_mul(step[c], vf_load_n(a->rate + row + c * VL, lanes)));
            vf s = vf_fma(k, u[c], vf_mul(vf_load_n(a->state + row + c * VL, lanes), decay));
            vf_store_n(a->next + row + c * VL, s, lanes);
            out[c] = vf_fma(q, s, out[c]);
        }
    }
    UNROLL for (uint32_t c = 0; c < vectors; c++)
    {
        uint32_t j = at + c * VL, lanes = c + 1 < vectors ? VL : tail;
        if (a->skip)
            out[c] = vf_fma(vf_load_n(a->skip + j, lanes), vf_load_n(a->v + j, lanes), out[c]);
        vf_store_n(a->out + j, out[c], lanes);
    }
}

static void simd_scan(const struct kernel_scan *a)
{
    uint32_t at = 0;
    for (; at + SCAN_VECTORS * VL <= a->values; at += SCAN_VECTORS * VL)
        scan_columns(a, at, SCAN_VECTORS, VL);
    for (; at < a->values; at += VL)
        scan_columns(a, at, 1, a->values - at < VL ? a->values - at : VL);
}
