/* SPDX-License-Identifier: Apache-2.0 */
/* Compiles the generic kernels for x86-64 processors with AVX2 and FMA: fmaf in software is an
 * order of magnitude slower. */
#define GENERIC_OPS generic_fused_ops
#include "lib/kernels/generic/table.h"
