/* SPDX-License-Identifier: Apache-2.0 */
/* Interface of pack to lib/quant: maps precisions to tensor types, converts rows. */
#include "lib/base/assert.h"
#include "lib/quant/quant.h"
#include "lib/tensor/precision.h"
#include "lib/tensor/tensor_type.h"
#include "procs/tools/pack/pack.h"

static const uint32_t precision_bits[PRECISION__COUNT] = {
    [PRECISION_INT8] = 8, [PRECISION_INT4] = 4, [PRECISION_INT2] = 2};

int quantise_type(enum precision precision, enum quant_method wanted, uint32_t from, uint32_t k,
                  uint32_t *type, enum quant_method *method, struct error *error)
{
    uint64_t bytes;
    *type = from;
    *method = quant_method_of(precision, wanted);
    if (precision == PRECISION_NATIVE)
        return 0;
    *type = quant_type_for(precision_bits[precision], *method);
    if (!tensor_type_row_bytes(*type, k, &bytes))
        return error_set(error, ERR_BAD_INPUT,
                         "rows of %u elements cannot be quantised to %s: not a multiple of %u", k,
                         precision_name(precision), tensor_type_info(*type)->block_elems);
    return 0;
}

void quantise_load(uint32_t type, const void *src, uint64_t row_bytes, uint32_t k, uint32_t n,
                   float *dst)
{
    struct kernel_matrix m = {
        .data = src, .row_bytes = row_bytes, .k = k, .n = n, .type = (enum tensor_type)type};
    quant_dequantise(&m, 0, n, dst);
}

int quantise_rows(uint32_t type, const float *src, uint32_t k, uint32_t n, void *dst,
                  struct error *error)
{
    sl_assert(type >= TENSOR_TYPE_OWN_FIRST);
    if (quant_rows((enum tensor_type)type, src, k, n, dst, NULL))
        return error_set(error, ERR_BAD_INPUT,
                         "a weight is not finite or is too large to quantise");
    return 0;
}
