/* SPDX-License-Identifier: Apache-2.0 */
/* Random blocks in file format, generated at memory speed. */
#ifndef SLUICE_TOOLS_SYNTH_BLOCKS_H
#define SLUICE_TOOLS_SYNTH_BLOCKS_H

#include <stdint.h>

#include "lib/base/random.h"
#include "lib/tensor/tensor_type.h"

/* Fills `bytes` (whole rows) with random weights of that standard deviation and
 * a mean of about 0. Scales are finite and not 0. type: every type of GGUF. out
 * must have 8 bytes more. */
void blocks_random(enum tensor_type type, float deviation, struct random *random, void *out,
                   uint64_t bytes);

/* The places of a block's F16 scale and minimum; -1: it has none there. */
struct block_scales {
    int d, dmin;
};
struct block_scales blocks_scales(enum tensor_type type);

#endif
