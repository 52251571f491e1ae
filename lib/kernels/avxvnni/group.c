/* SPDX-License-Identifier: Apache-2.0 */
/* Products with sluice's own types: the primitives of simd/group.h in AVX-VNNI. */
#include "lib/kernels/avx2/group_vec.h"

#define SIDES     1
#define TILE      6   /* rows of a tile: 6 sums, 6 float sums, 1 weight, 1 activation */
#define CHUNK     16  /* groups of a panel: 8 KiB of codes */
#define ROW_BLOCK 120 /* rows whose activations stay in the L2 cache over all panels */
#define CODE_BIAS 0   /* codes are used unchanged */

/* Dot product of a group of codes and a group of activations: the sum of the lanes. */
static ALWAYS_INLINE vi group_dot(const uint32_t bits, const uint8_t *p, const int8_t *x)
{
    vi w[2];
    load_codes(bits, p, w);
    vi dot = _mm256_dpbusd_avx_epi32(_mm256_setzero_si256(), w[0],
                                     _mm256_loadu_si256((const vi *)(const void *)x));
    return _mm256_dpbusd_avx_epi32(dot, w[1],
                                   _mm256_loadu_si256((const vi *)(const void *)(x + 32)));
}

/* Unpacks part number `part` of packed codes, for sum_add. */
static ALWAYS_INLINE vi vi_codes(const uint32_t bits, vi v, const uint32_t part)
{
    return codes_of(bits, v, part);
}

struct sum {
    vi dot;
};

static ALWAYS_INLINE struct sum sum_zero(void)
{
    return (struct sum){_mm256_setzero_si256()};
}

/* Adds word i of a group: four codes of every output times four activations. */
static ALWAYS_INLINE void sum_add(const uint32_t bits, const int i, struct sum *s, vi w, vi v)
{
    (void)bits;
    (void)i;
    s->dot = _mm256_dpbusd_avx_epi32(s->dot, w, v);
}

#include "lib/kernels/simd/group.h"

void avxvnni_group_matmul(const struct kernel_matrix *w, uint32_t n_begin, uint32_t n_end,
                          const void *x, size_t x_stride, uint32_t rows, float *y, size_t y_stride)
{
    group_matmul(w, n_begin, n_end, x, x_stride, rows, y, y_stride);
}
