/* SPDX-License-Identifier: Apache-2.0 */
/* Template of the generic kernels: included by table.h. */
/* Scalars of the generic kernels: the sums of lanes and partial sums, exp and rounding, as
 * ARITHMETIC.md defines them. */

#define LANES 16 /* of sums of float products */

static inline float sum_lanes(const float s[LANES])
{
    float t[LANES / 2];
    UNROLL for (int i = 0; i < 8; i++) t[i] = s[i] + s[i + 8];
    UNROLL for (int i = 0; i < 4; i++) t[i] += t[i + 4];
    return (t[0] + t[2]) + (t[1] + t[3]);
}

static inline float sum_parts(const float s[PARTS])
{
    return ((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7]));
}

/* exp(x) = 2^n * e^r, |r| <= ln 2 / 2, e^r by its Taylor series up to r^7. */
static float exp_one(float x)
{
    if (x != x)
        return x;
    x = x < -150.0f ? -150.0f : x > 89.0f ? 89.0f : x;
    /* the last bit of the sum is worth 1, so adding and subtracting rounds to an integer */
    float n = (x * 1.44269504f + 12582912.0f) - 12582912.0f;
    float r = fmaf(n, 2.12194440e-4f, fmaf(n, -0.693359375f, x));
    float p = 1.0f / 5040;
    p = fmaf(p, r, 1.0f / 720);
    p = fmaf(p, r, 1.0f / 120);
    p = fmaf(p, r, 1.0f / 24);
    p = fmaf(p, r, 1.0f / 6);
    p = fmaf(p, r, 0.5f);
    p = fmaf(p, r, 1.0f);
    p = fmaf(p, r, 1.0f);
    /* two factors: where the result is subnormal or inf, 2^n alone exceeds the exponent's range */
    int32_t e = (int32_t)n, half = e / 2;
    return p * float_of((uint32_t)(half + 127) << 23) * float_of((uint32_t)(e - half + 127) << 23);
}

/* log(1 + e^x) = max(x, 0) + log(1 + e), e = e^-|x|; the logarithm is 2 atanh(e / (2 + e)), by its
 * series up to the 15th power. */
static float softplus_one(float x)
{
    float e = exp_one(0.0f - fabsf(x)), s = e / (2.0f + e), square = s * s;
    float p = 1.0f / 15;
    p = fmaf(p, square, 1.0f / 13);
    p = fmaf(p, square, 1.0f / 11);
    p = fmaf(p, square, 1.0f / 9);
    p = fmaf(p, square, 1.0f / 7);
    p = fmaf(p, square, 1.0f / 5);
    p = fmaf(p, square, 1.0f / 3);
    p = fmaf(p, square, 1.0f);
    return (0.0f > x ? 0.0f : x) + (s + s) * p; /* NaN stays NaN */
}

static int32_t round_to_i8(float v)
{
    v = v > 127.0f ? 127.0f : v < -127.0f ? -127.0f : v;
    return v != v ? 0 : (int32_t)((v + 12582912.0f) - 12582912.0f);
}
