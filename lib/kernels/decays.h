/* SPDX-License-Identifier: Apache-2.0 */
/* Decays of Kimi delta attention (ARITHMETIC.md). */
#ifndef SLUICE_KERNELS_DECAYS_H
#define SLUICE_KERNELS_DECAYS_H

#include <stdint.h>

#include "lib/kernels/isa.h"

/* y[i] = exp(-rate * softplus(x)), or with a bound below 0 exp(bound * sigmoid(rate * x)), in
 * double; x is the binary32 sum a[i] + bias[i]. */
struct kernel_decays {
    const float *a, *bias;
    uint32_t n;
    double rate, bound; /* rate >= 0 */
    float *y;
};

/* isa: a set that the processor has. Same bits with each. */
void kernel_decay(enum kernel_isa isa, const struct kernel_decays *d);

#endif
