/* SPDX-License-Identifier: Apache-2.0 */
/* Argument reduction with constants of few bits, so that their multiples are exact, then the Taylor
 * series. Compiled with -ffp-contract=off like everything here: no product is fused with a sum. */
#include "lib/exact/elementary.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

/* ln 2 and pi / 2 as sums of a few numbers; all but the last have at most 33 bits. */
#define LN2_HIGH      0x1.62e42fefp-1
#define LN2_LOW       0x1.473de6af278edp-34
#define LOG2_E        0x1.71547652b82fep0
#define HALF_PI_HIGH  0x1.921fb544p0
#define HALF_PI_MID   0x1.0b4611a6p-34
#define HALF_PI_LOW   0x1.3198a2e037073p-69
#define TWO_OVER_PI   0x1.45f306dc9c883p-1
#define ROUND_BY      0x1.8p52 /* the last bit of the sum is worth 1 */
#define EXP_OVERFLOW  710.0
#define EXP_UNDERFLOW (-746.0)

static double power_of_two(int64_t n) /* a normal number */
{
    uint64_t bits = (uint64_t)(n + 1023) << 52;
    double d;
    memcpy(&d, &bits, sizeof d);
    return d;
}

double exact_exp(double x)
{
    if (!(x > EXP_UNDERFLOW))
        return x != x ? x : 0.0;
    if (x > EXP_OVERFLOW)
        return INFINITY;
    double n = (x * LOG2_E + ROUND_BY) - ROUND_BY;
    double r = (x - n * LN2_HIGH) - n * LN2_LOW;
    double r2 = r * r, r4 = r2 * r2, r8 = r4 * r4;
    double a = (1.0 / 2 + r * (1.0 / 6)) + r2 * (1.0 / 24 + r * (1.0 / 120));
    double b = (1.0 / 720 + r * (1.0 / 5040)) + r2 * (1.0 / 40320 + r * (1.0 / 362880));
    double c =
        (1.0 / 3628800 + r * (1.0 / 39916800)) + r2 * (1.0 / 479001600 + r * (1.0 / 6227020800.0));
    double e = 1.0 + (r + r2 * (a + r4 * b + r8 * c));
    /* two factors: 2^n alone may exceed the range of the exponent */
    int64_t all = (int64_t)n, half = all / 2;
    return e * power_of_two(half) * power_of_two(all - half);
}

double exact_log(double x)
{
    if (!(x > 0))
        return x == 0 ? -INFINITY : NAN;
    if (x == INFINITY)
        return x;
    int64_t e = 0;
    if (x < 0x1p-1022) { /* subnormal */
        x *= 0x1p54;
        e = -54;
    }
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    e += (int64_t)(bits >> 52) - 1023;
    bits = (bits & 0x000fffffffffffffu) | 0x3ff0000000000000u;
    double m;
    memcpy(&m, &bits, sizeof m);
    if (m > 0x1.6a09e667f3bcdp0) { /* sqrt 2: m is in [sqrt(1/2), sqrt 2] */
        m *= 0.5;
        e++;
    }
    double s = (m - 1.0) / (m + 1.0), z = s * s, p = 1.0 / 23;
    for (int i = 21; i >= 3; i -= 2)
        p = p * z + 1.0 / i;
    double n = (double)e;
    return n * LN2_HIGH + (2.0 * s + (2.0 * s * (z * p) + n * LN2_LOW));
}

double exact_softplus(double x)
{
    return x > 20 ? x : x < -20 ? exact_exp(x) : exact_log(1 + exact_exp(x));
}

void exact_sin_cos(double x, double *sine, double *cosine)
{
    double n = (x * TWO_OVER_PI + ROUND_BY) - ROUND_BY;
    double r = ((x - n * HALF_PI_HIGH) - n * HALF_PI_MID) - n * HALF_PI_LOW;
    double z = r * r, s = 1.0, c = 1.0;
    for (int i = 16; i >= 2; i -= 2) { /* nested: 1 - z/(2*3) * (1 - z/(4*5) * (...)) */
        s = 1.0 - s * z / (double)(i * (i + 1));
        c = 1.0 - c * z / (double)((i - 1) * i);
    }
    s *= r;
    switch ((int64_t)n & 3) {
    case 0: *sine = s, *cosine = c; break;
    case 1: *sine = c, *cosine = -s; break;
    case 2: *sine = -s, *cosine = -c; break;
    default: *sine = -c, *cosine = s; break;
    }
}
