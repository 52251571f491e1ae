/* SPDX-License-Identifier: Apache-2.0 */
/* Argument reduction with constants of few bits, so that their multiples are exact, then the Taylor
 * series. Compiled with -ffp-contract=off like everything here: no product is fused with a sum. */
#include "lib/exact/elementary.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

#define EXACT_REAL         double
#define EXACT_SERIES(name) series_##name
#include "lib/exact/series.h"

/* pi / 2 as a sum of a few numbers; all but the last have at most 33 bits. */
#define HALF_PI_HIGH  0x1.921fb544p0
#define HALF_PI_MID   0x1.0b4611a6p-34
#define HALF_PI_LOW   0x1.3198a2e037073p-69
#define TWO_OVER_PI   0x1.45f306dc9c883p-1
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
    double n = (x * EXACT_LOG2_E + EXACT_ROUND_BY) - EXACT_ROUND_BY;
    double e = series_exp(x, n);
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
    if (m > EXACT_SQRT_2) { /* then m is in [sqrt(1/2), sqrt 2] */
        m *= 0.5;
        e++;
    }
    return series_log(m, (double)e);
}

double exact_softplus(double x)
{
    return x > 20 ? x : x < -20 ? exact_exp(x) : exact_log(1 + exact_exp(x));
}

void exact_sin_cos(double x, double *sine, double *cosine)
{
    double n = (x * TWO_OVER_PI + EXACT_ROUND_BY) - EXACT_ROUND_BY;
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
