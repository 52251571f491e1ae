/* The one place where pack meets the quantisers: tiers as types, rows as bytes. */
#include "lib/base/assert.h"
#include "lib/kernels/kernels.h"
#include "procs/pack/pack.h"

int quantise_type(enum tier tier, bool hqq, uint32_t from, uint32_t k, uint32_t *type,
                  enum store_method *method, struct error *error)
{
    (void)hqq;
    (void)k;
    if (tier != TIER_NATIVE)
        return error_set(error, ERR_BAD_INPUT, "no quantiser for tier %s", store_tier_name(tier));
    *type = from;
    *method = STORE_COPY;
    return 0;
}

uint64_t quantise_workspace(uint32_t k)
{
    return 4 * (uint64_t)k;
}

void quantise_load(uint32_t type, const void *src, uint64_t row_bytes, uint32_t k, uint32_t n,
                   float *dst)
{
    const struct kernel_ops *ops = kernel_ops_select(NULL);
    struct kernel_matrix m = {
        .data = src, .row_bytes = row_bytes, .k = k, .n = n, .type = (enum tensor_type)type};
    sl_assert(ops);
    for (uint32_t row = 0; row < n; row++)
        ops->row_to_f32(&m, row, dst + (size_t)row * k);
}

void quantise_rows(uint32_t type, const float *src, uint32_t k, uint32_t n, void *dst,
                   uint64_t row_bytes, void *workspace)
{
    (void)src;
    (void)k;
    (void)n;
    (void)dst;
    (void)row_bytes;
    (void)workspace;
    sl_panic("type %u is copied", (unsigned)type);
}
