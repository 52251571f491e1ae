/* Precisions an expert may be stored at, best first: as in the model file, or quantised to fewer
 * bits (lib/quant/quant.h). The numbers are part of the formats of stores, plans and traces. */
#ifndef SLUICE_TENSOR_TIER_H
#define SLUICE_TENSOR_TIER_H

enum tier { TIER_NATIVE, TIER_INT8, TIER_INT4, TIER_INT2, TIER__COUNT };

#endif
