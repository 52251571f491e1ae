/* SPDX-License-Identifier: Apache-2.0 */
/* The inner loops with AVX2; without FMA, so that the results equal those of any CPU. */
#define LANES_OF quant_lanes_avx2
#include "lib/quant/lanes.h"
