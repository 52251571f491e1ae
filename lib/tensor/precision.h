/* SPDX-License-Identifier: Apache-2.0 */
/* Precisions an expert may be stored at, best first: as in the model file, or quantised to fewer
 * bits (lib/quant/quant.h). Stores, plans and traces contain these numbers. */
#ifndef SLUICE_TENSOR_PRECISION_H
#define SLUICE_TENSOR_PRECISION_H

#include <stdbool.h>

#include "lib/base/error.h"

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

/* Precisions of dense weights that `sluice pack` writes: a mask of 1 << enum precision. */
#define PRECISION_DENSE (1u << PRECISION_NATIVE | 1u << PRECISION_INT8 | 1u << PRECISION_INT4)

/* The value of option `what`: one of PRECISION_DENSE. `given` not NULL: "auto" is allowed too, and
 * sets *given to false, the others to true. -1 with ERR_BAD_INPUT. */
int precision_dense_option(const char *what, const char *value, enum precision *dense, bool *given,
                           struct error *error);

#endif
