/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of weights in file format: random ones, generated at memory speed, and given ones. */
#ifndef SLUICE_TOOLS_SYNTH_BLOCKS_H
#define SLUICE_TOOLS_SYNTH_BLOCKS_H

#include <stdint.h>

#include "lib/base/random.h"
#include "lib/tensor/tensor_type.h"

/* Fills `bytes` (whole rows) with random weights of that standard deviation and a mean of about 0.
 * Scales are finite and not 0. type: F32, F16, Q8_0 or Q4_0. out must have 8 bytes more. */
void blocks_random(enum tensor_type type, float deviation, struct random *random, void *out,
                   uint64_t bytes);

/* Converts a row of n floats to that type, rounded to nearest. */
void blocks_row(enum tensor_type type, const float *x, uint32_t n, void *out);

#endif
