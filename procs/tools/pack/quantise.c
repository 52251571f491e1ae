/* The one place where pack meets the quantisers: tiers as types, rows as bytes. */
#include "lib/base/assert.h"
#include "lib/quant/quant.h"
#include "lib/tensor/tensor_type.h"
#include "lib/tensor/tier.h"
#include "procs/tools/pack/pack.h"

static const uint32_t tier_bits[TIER__COUNT] = {[TIER_INT8] = 8, [TIER_INT4] = 4, [TIER_INT2] = 2};

int quantise_type(enum tier tier, bool hqq, uint32_t from, uint32_t k, uint32_t *type,
                  enum store_method *method, struct error *error)
{
    uint64_t bytes;
    *type = from;
    *method = STORE_COPY;
    if (tier == TIER_NATIVE)
        return 0;
    *type = quant_type_for(tier_bits[tier], hqq ? QUANT_HQQ : QUANT_CHANNEL);
    *method = hqq && tier_bits[tier] < 8 ? STORE_HQQ : STORE_CHANNEL;
    if (!tensor_type_row_bytes(*type, k, &bytes))
        return error_set(error, ERR_BAD_INPUT,
                         "rows of %u elements cannot be quantised to %s (multiples of %u can)", k,
                         store_tier_name(tier), tensor_type_info(*type)->block_elems);
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
                         "a weight is not finite, or too large to be quantised");
    return 0;
}
