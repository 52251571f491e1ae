/* SPDX-License-Identifier: Apache-2.0 */
/* The inner loops for any CPU. */
#define LANES_OF quant_lanes_generic
#include "lib/quant/lanes.h"
