/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of lib/kernels: layout of prepared activation rows and of sluice's own types,
 * prefetching, and the tables of kernels. */
#ifndef SLUICE_KERNELS_INTERNAL_H
#define SLUICE_KERNELS_INTERNAL_H

#include <math.h>
#include <string.h>

#include "lib/base/assert.h"
#include "lib/kernels/kernels.h"
#include "lib/tensor/half.h"
#include "lib/tensor/tensor_type.h"
#include "lib/tensor/unpack/unpack.h"

#define ALWAYS_INLINE inline __attribute__((always_inline))
#if !defined(__OPTIMIZE__) || defined(__SANITIZE_ADDRESS__)
#define UNROLL /* gcc warns of an annotation that it ignores */
#elif defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

#define QK         32 /* elements per quantised block */
#define ACT_GROUP  4  /* blocks interleaved in a prepared activation row */
#define ACT_PAD    16 /* blocks a prepared row is padded to, with zeros */
#define GROUP_SIZE (ACT_GROUP * QK)
#define GELU_SLOPE -1.59576917f  /* -2 sqrt(2 / pi) */
#define GELU_CUBE  -0.071354814f /* GELU_SLOPE * 0.044715 */
#define PARTS      8 /* partial sums of a quantised product: block b belongs to sum b % PARTS */

/* A prepared activation row for blocks of 16 to 128 is three arrays; P: number of blocks, rounded
 * up to ACT_PAD.
 *
 *   int8  q[P * 32]  for each group of four blocks: the first 16 elements of each block, then the
 *                    last 16 of each; so a vector of first halves matches the low nibbles of four
 *                    Q4_0 blocks in their order in memory
 *   float d[P]       scale of the block
 *   int32 c[P]       sum of the block's q times -128 (Q8_0) or -8 (Q4_0): the correction of a dot
 *                    product that takes the weights as unsigned (+128, or the nibble itself)
 *
 * For NVFP4, c has two parts of P: the sums of the first halves times -16, then of the last.
 *
 * The correction is exact, so instruction sets with signed weights may ignore it. All instruction
 * sets write the same bytes. */
static inline uint32_t act_blocks(uint32_t k)
{
    return (k / QK + ACT_PAD - 1) / ACT_PAD * ACT_PAD;
}

static inline size_t act_scale_offset(uint32_t k)
{
    return (size_t)act_blocks(k) * QK;
}

static inline size_t act_corr_offset(uint32_t k)
{
    return (size_t)act_blocks(k) * (QK + sizeof(float));
}

/* Offset in q of 16 elements of block b: the first (half 0) or the last (half 1). */
static inline size_t act_half(uint32_t b, uint32_t half)
{
    return (size_t)(b / ACT_GROUP) * GROUP_SIZE + half * 16u * ACT_GROUP + (b % ACT_GROUP) * 16u;
}

static inline int32_t act_corr_factor(enum tensor_type type)
{
    enum kernel_form form = kernel_form_of(type);
    return form == FORM_Q4 ? -8 : form == FORM_HALVES ? -16 : -128;
}

/* Writes the corrections of block b; first, last: sums of q over its halves. */
static inline void act_put_corr(enum tensor_type type, uint32_t k, uint32_t b, int32_t first,
                                int32_t last, int32_t *c)
{
    bool halves = kernel_form_of(type) == FORM_HALVES;
    c[b] = act_corr_factor(type) * (halves ? first : first + last);
    if (halves)
        c[act_blocks(k) + b] = act_corr_factor(type) * last;
}

/* Where the scale of block i, of at most 16, is: byte i / per * stride + i % per * inner. per: a
 * power of two. */
struct scale_places {
    size_t stride;
    uint32_t per, inner;
    uint32_t count; /* blocks, a multiple of per */
};

/* ---- super-blocks ---- */

/* A prepared activation row for types with super-blocks of 256 is three arrays:
 *
 *   int8  q[k]        in order
 *   float d[k / 256]  scale of the super-block
 *   int16 s[k / 16]   sums of 16 elements of q */
#define SUPER 256

static inline size_t super_scale_offset(uint32_t k)
{
    return k;
}

static inline size_t super_sum_offset(uint32_t k)
{
    return k + (size_t)(k / SUPER) * sizeof(float);
}

/* ---- sluice's own types ---- */

/* A row is groups of 64 codes. Element i of a group is w = scale * (code - zero), with scale and
 * zero in F16, at the start of the row (C8, C4, C2) or of the group (G4, G2). Codes are unsigned:
 *
 *   8 bits  byte i
 *   4 bits  byte i % 32, low nibble first
 *   2 bits  byte i % 16, low bits first
 *
 * A prepared activation row for these types is three arrays:
 *
 *   int8  q[k]       in order
 *   float d[k / 64]  scale of the group
 *   float s[k / 64]  sum of the group's q (an integer)
 *
 * Products: ARITHMETIC.md. */
#define GROUP 64

struct group_type {
    uint32_t bits;
    uint32_t head;   /* bytes of a row before its first group */
    uint32_t bytes;  /* of a group */
    uint32_t before; /* bytes of a group before its codes */
};

static ALWAYS_INLINE struct group_type group_type_of(enum tensor_type type)
{
    switch (type) {
    case TENSOR_C8: return (struct group_type){8, 4, 64, 0};
    case TENSOR_C4: return (struct group_type){4, 4, 32, 0};
    case TENSOR_C2: return (struct group_type){2, 4, 16, 0};
    case TENSOR_G4: return (struct group_type){4, 0, 36, 4};
    case TENSOR_G2: return (struct group_type){2, 0, 20, 4};
    default: sl_panic("type %d has no groups", (int)type);
    }
}

static inline size_t group_scale_offset(uint32_t k)
{
    return k;
}

static inline size_t group_sum_offset(uint32_t k)
{
    return k + (size_t)(k / GROUP) * sizeof(float);
}

struct group_scale {
    float scale, zero;
};

static inline struct group_scale group_grid(const uint8_t *p)
{
    return (struct group_scale){f16_to_f32(load_u16(p)), f16_to_f32(load_u16(p + 2))};
}

/* Scale and zero of group g: the row's (C8, C4, C2) or the group's (G4, G2). */
static inline struct group_scale group_grid_of(struct group_type t, const uint8_t *row, uint32_t g)
{
    return group_grid(t.before != 0 ? row + t.head + (size_t)g * t.bytes : row);
}

/* The codes of one group, in order. */
static inline void group_codes(uint32_t bits, const uint8_t *p, uint8_t code[GROUP])
{
    uint32_t bytes = bits * GROUP / 8, mask = (1u << bits) - 1;
    for (uint32_t shift = 0; shift < 8; shift += bits, code += bytes)
        for (uint32_t i = 0; i < bytes; i++)
            code[i] = (uint8_t)(p[i] >> shift & mask);
}

/* A block with a smaller maximum becomes all zeros: its inverse scale could overflow. */
#define ACT_MIN 1e-35f

/* Prefetches the cache line `ahead` bytes after p. It may be beyond the end of the object, where no
 * pointer may point: hence integer arithmetic. */
/* A product of one row prefetches twice: far ahead into the L2 cache, which waits for more lines at
 * a time than the L1 cache does, and shortly before its use into the L1 cache. Distances:
 * docs/lab/prefetching.md. */
static inline void prefetch(const void *p, size_t ahead)
{
    __builtin_prefetch((const void *)((uintptr_t)p + ahead));
}

/* Prefetches, but not into the L1 cache. */
static inline void prefetch_far(const void *p, size_t ahead)
{
    __builtin_prefetch((const void *)((uintptr_t)p + ahead), 0, 2);
}

/* The constants of swiglu_clamped. */
#define SWIGLU_LIMIT 7.0f
#define SWIGLU_ALPHA 1.702f

/* The positions of a row that attends to those from `begin` on. */
struct chosen_row {
    const uint32_t *at;
    uint32_t count;
};

static inline struct chosen_row chosen_of(const struct kernel_chosen *c, uint32_t row,
                                          uint32_t begin)
{
    struct chosen_row list = {c->at + row * c->stride, c->count[row * c->step]};
    for (; begin > 0 && list.count > 0 && list.at[0] < begin; list.count--)
        list.at++;
    return list;
}

static inline void attention_check(const struct kernel_attention *a)
{
    sl_assert(a->key_size <= KERNEL_HEAD_SIZE_MAX && a->value_size <= KERNEL_VALUE_SIZE_MAX &&
              a->positions > 0 && (a->v || a->value_size <= a->key_size));
    sl_assert(a->ring == 0 || (a->ring % KERNEL_KEY_TILE == 0 && a->window > 0 &&
                               a->window + a->rows - 1 <= a->ring));
}

typedef void kernel_matmul_fn(const struct kernel_matrix *w, uint32_t n_begin, uint32_t n_end,
                              const void *x, size_t x_stride, uint32_t rows, float *y,
                              size_t y_stride);

/* One row of one of sluice's own types as F32; the same code for every instruction set. */
void group_row_to_f32(const struct kernel_matrix *w, uint32_t row, float *y);

kernel_matmul_fn avx2_dense_matmul, avx2_super_matmul, avx2_group_matmul;
kernel_matmul_fn avxvnni_super_matmul, avxvnni_group_matmul, avxvnni_matmul;
kernel_matmul_fn avx512_dense_matmul, avx512_super_matmul, avx512_group_matmul, avx512_matmul;
kernel_matmul_fn vbmi_matmul;
kernel_matmul_fn amx_block_matmul, amx_super_matmul; /* amx_block_fits; no halves */
kernel_matmul_fn amx_matmul;
/* Whether rows are short enough for the stack of amx_block_matmul. */
bool amx_block_fits(const struct kernel_matrix *w);

/* The product with blocks that have one scale per 32 elements or more, or NULL. */
kernel_matmul_fn *avx2_block_product(enum tensor_type type);
kernel_matmul_fn *avxvnni_block_product(enum tensor_type type);
kernel_matmul_fn *avx512_block_product(enum tensor_type type);

kernel_matmul_fn neon_dense_matmul, neon_super_matmul, neon_group_matmul;
kernel_matmul_fn dotprod_dense_matmul, dotprod_super_matmul, dotprod_group_matmul;
kernel_matmul_fn *neon_block_product(enum tensor_type type);
kernel_matmul_fn *dotprod_block_product(enum tensor_type type);

/* generic_fused_ops: the same for x86-64 processors with AVX2 and FMA. */
extern const struct kernel_ops generic_ops, generic_fused_ops, avx2_ops, avxvnni_ops, avx512_ops,
    vbmi_ops, amx_ops, neon_ops, dotprod_ops;

#endif
