/* Rows of weights as they lie in a file: random ones, made as fast as memory takes them, and given
 * ones. */
#ifndef SLUICE_TOOLS_SYNTH_BLOCKS_H
#define SLUICE_TOOLS_SYNTH_BLOCKS_H

#include <stdint.h>

#include "lib/base/random.h"
#include "lib/tensor/tensor_type.h"

/* Fills `bytes` (whole rows) with random weights of that standard deviation and mean about 0. Every
 * scale is finite and not 0. type: F32, F16, Q8_0 or Q4_0. out has room for 8 bytes more. */
void blocks_random(enum tensor_type type, float deviation, struct random *random, void *out,
                   uint64_t bytes);

/* One row of n floats in that type, rounded to nearest. */
void blocks_row(enum tensor_type type, const float *x, uint32_t n, void *out);

#endif
