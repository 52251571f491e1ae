/* Precisions an expert may be stored at, best first: as in the model file, or quantised to fewer
 * bits (lib/quant/quant.h). Stores, plans and traces contain these numbers. */
#ifndef SLUICE_TENSOR_PRECISION_H
#define SLUICE_TENSOR_PRECISION_H

enum precision {
    PRECISION_NATIVE,
    PRECISION_INT8,
    PRECISION_INT4,
    PRECISION_INT2,
    PRECISION__COUNT
};

/* Name in manifests, on command lines and in descriptions: native, int8, int4, int2. */
const char *precision_name(enum precision precision);
enum precision precision_find(const char *name); /* PRECISION__COUNT: unknown */

#endif
