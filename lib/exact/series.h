/* SPDX-License-Identifier: Apache-2.0 */
/* Template of the series of exp and log, for a double and for vectors of doubles, whose elements
 * have the bits of the former. Before it is included, EXACT_REAL is that type, and
 * EXACT_SERIES(name) makes the names of the functions. No include guard. */

/* ln 2 as a sum; the high part has 33 bits, so that its multiples are exact. */
#define EXACT_LN2_HIGH 0x1.62e42fefp-1
#define EXACT_LN2_LOW  0x1.473de6af278edp-34
#define EXACT_LOG2_E   0x1.71547652b82fep0
#define EXACT_ROUND_BY 0x1.8p52 /* the last bit of the sum is worth 1 */
#define EXACT_SQRT_2   0x1.6a09e667f3bcdp0

/* exp(x - n ln 2), n: x / ln 2 as a whole number. */
static inline __attribute__((always_inline)) EXACT_REAL EXACT_SERIES(exp)(EXACT_REAL x,
                                                                          EXACT_REAL n)
{
    EXACT_REAL r = (x - n * EXACT_LN2_HIGH) - n * EXACT_LN2_LOW;
    EXACT_REAL r2 = r * r, r4 = r2 * r2, r8 = r4 * r4;
    EXACT_REAL a = (1.0 / 2 + r * (1.0 / 6)) + r2 * (1.0 / 24 + r * (1.0 / 120));
    EXACT_REAL b = (1.0 / 720 + r * (1.0 / 5040)) + r2 * (1.0 / 40320 + r * (1.0 / 362880));
    EXACT_REAL c =
        (1.0 / 3628800 + r * (1.0 / 39916800)) + r2 * (1.0 / 479001600 + r * (1.0 / 6227020800.0));
    return 1.0 + (r + r2 * (a + r4 * b + r8 * c));
}

/* log(m 2^n), m in [sqrt(1/2), sqrt 2]. */
static inline __attribute__((always_inline)) EXACT_REAL EXACT_SERIES(log)(EXACT_REAL m,
                                                                          EXACT_REAL n)
{
    EXACT_REAL s = (m - 1.0) / (m + 1.0), z = s * s, p = z * (1.0 / 23) + 1.0 / 21;
    p = p * z + 1.0 / 19;
    p = p * z + 1.0 / 17;
    p = p * z + 1.0 / 15;
    p = p * z + 1.0 / 13;
    p = p * z + 1.0 / 11;
    p = p * z + 1.0 / 9;
    p = p * z + 1.0 / 7;
    p = p * z + 1.0 / 5;
    p = p * z + 1.0 / 3;
    return n * EXACT_LN2_HIGH + (2.0 * s + (2.0 * s * (z * p) + n * EXACT_LN2_LOW));
}
