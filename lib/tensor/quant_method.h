/* SPDX-License-Identifier: Apache-2.0 */
/* Names how the weights of a precision are made from those of the source (lib/quant). Manifests of
 * stores have the names; plans have the numbers: append only. */
#ifndef SLUICE_TENSOR_QUANT_METHOD_H
#define SLUICE_TENSOR_QUANT_METHOD_H

#include "lib/base/error.h"
#include "lib/tensor/precision.h"

/* X(NAME, name in manifests and on command lines) */
#define QUANT_METHODS(X)                                                                           \
    X(COPY, "copy")       /* the bytes of the source, row by row */                                \
    X(CHANNEL, "channel") /* linear, one grid per row */                                           \
    X(HQQ, "hqq")         /* half-quadratic, one grid per group */

enum quant_method {
#define X(id, name) QUANT_##id,
    QUANT_METHODS(X)
#undef X
        QUANT_METHOD__COUNT
};

/* The method of pack, plan and eval unless another is requested: the lower loss at int4 and int2
 * (lib/quant/README.md). */
#define QUANT_METHOD_DEFAULT QUANT_CHANNEL

/* The method that a precision has where `wanted` is requested: native is a copy, int8 is always
 * channel-wise. */
enum quant_method quant_method_of(enum precision precision, enum quant_method wanted);

const char *quant_method_name(enum quant_method method);
enum quant_method quant_method_find(const char *name); /* QUANT_METHOD__COUNT: unknown */

/* The value of option `what`: a method that quantises, so not copy. -1 with ERR_BAD_INPUT. */
int quant_method_option(const char *what, const char *value, enum quant_method *method,
                        struct error *error);

#endif
