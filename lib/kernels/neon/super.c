/* SPDX-License-Identifier: Apache-2.0 */
/* Products with super-blocks of 256: NEON. */
#include "lib/kernels/neon/dots.h"
#include "lib/kernels/neon/set.h"

#include "lib/base/assert.h"
#include "lib/tensor/tensor_type.h"
#include "lib/tensor/unpack/grids/grids.h"
#include "lib/tensor/unpack/values.h"

/* acc + pairs of 16-bit products, in any lane. */
static ALWAYS_INLINE int32x4_t add_long_products(int32x4_t acc, uint8x16_t a, uint8x16_t b)
{
    return vmlal_high_s16(vmlal_s16(acc, vget_low_s16(S16(a)), vget_low_s16(S16(b))), S16(a),
                          S16(b));
}

static ALWAYS_INLINE __m256i add_scaled(__m256i acc, __m256i a, __m256i b)
{
    return (__m256i){OF_S32(add_long_products(S32(acc.lo), a.lo, b.lo)),
                     OF_S32(add_long_products(S32(acc.hi), a.hi, b.hi))};
}

#define VECTOR_PAIRS(q, x)           byte_pairs(q, x)
#define VECTOR_ADD_SCALED(acc, a, b) add_scaled(acc, a, b)
#define VECTOR_BITS(bits)            bytes_of_bits(bits)

#define PANEL_VECTORS 1 /* outputs of a panel, in vectors of 8 */
#define PANEL_ROWS    4 /* of a register tile */
#include "lib/kernels/simd/super.h"

void SET_NAME(super_matmul)(const struct kernel_matrix *w, uint32_t n_begin, uint32_t n_end,
                            const void *x, size_t x_stride, uint32_t rows, float *y,
                            size_t y_stride)
{
    super_matmul(w, n_begin, n_end, x, x_stride, rows, y, y_stride);
}
