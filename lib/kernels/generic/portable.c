/* SPDX-License-Identifier: Apache-2.0 */
/* Generic kernels for any processor. */
#define GENERIC_OPS generic_ops
#include "lib/kernels/generic/table.h"
