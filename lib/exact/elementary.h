/* SPDX-License-Identifier: Apache-2.0 */
/* exp, log, sin and cos with the same bits everywhere: sequences of +, -, * and / in double, which
 * IEEE 754 rounds correctly, instead of functions of the C library, whose results differ between
 * libraries. Used by everything that decides logits and tokens (lib/kernels/ARITHMETIC.md); tests
 * compare them with the C library. */
#ifndef SLUICE_EXACT_ELEMENTARY_H
#define SLUICE_EXACT_ELEMENTARY_H

/* Within 1 ulp (2^-52 relative); subnormal results within their last bit. */
double exact_exp(double x);

/* Natural logarithm of x >= 0, within 2 ulp. */
double exact_log(double x);

/* log(1 + exp(x)): x above 20, exp(x) below -20, where the difference is below that of float. */
double exact_softplus(double x);

/* Within 2^-51 absolute for |x| <= 2^20; beyond, the error grows with |x|, but the bits are still
 * the same everywhere. */
void exact_sin_cos(double x, double *sine, double *cosine);

#endif
