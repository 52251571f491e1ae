/* The inner loops with AVX2; not fused, so that the results are those of any processor. */
#define LANES_OF quant_lanes_avx2
#include "lib/quant/lanes.h"
