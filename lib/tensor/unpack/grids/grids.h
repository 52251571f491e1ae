/* SPDX-License-Identifier: Apache-2.0 */
/* The grids of the IQ types: elements as bytes, the first in the low byte. IQ1: -1, 0, 1 as two's
 * complement. */
#ifndef SLUICE_TENSOR_UNPACK_GRIDS_GRIDS_H
#define SLUICE_TENSOR_UNPACK_GRIDS_GRIDS_H

#include <stdint.h>

extern const uint64_t unpack_grid_iq1[2048];
extern const uint64_t unpack_grid_iq2_xxs[256], unpack_grid_iq2_xs[512], unpack_grid_iq2_s[1024];
extern const uint32_t unpack_grid_iq3_xxs[256], unpack_grid_iq3_s[512];

#endif
