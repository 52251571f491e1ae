/* SPDX-License-Identifier: Apache-2.0 */
/* Tensor cores on signed bytes, and what brings tiles to them. Integer sums are exact, so nothing
 * here can change a bit. Which lane has which element is that of PTX (mma.m16n8k32, ldmatrix);
 * tests/harness/cuda/matrix.c has it too, written from the manual.
 *
 * Compute capability 7.5 has m8n8k16 only, whose lanes have the same elements: registers of
 * m16n8k32 are those of four of them. So it takes the same tiles with four times the instructions,
 * and no kernel of its own. */
#ifndef SLUICE_CUDA_PRODUCTS_MMA_CUH
#define SLUICE_CUDA_PRODUCTS_MMA_CUH

#include "lib/cuda/device.cuh"

/* ---- instructions ---- */

#ifdef SLUICE_HARNESS
#define HAS_SM_80              (fibre_target >= 80)
#define mma_16_8_32(c, a, b)   harness_mma_16_8_32(c, a, b, __LINE__)
#define mma_16_8_16(c, a, b)   harness_mma_16_8_16(c, a, b, __LINE__)
#define mma_8_8_16(c, a, b)    harness_mma_8_8_16(c, a, b, __LINE__)
#define load_matrices(to, row) harness_load_matrices(to, row, __LINE__)
#define copy_16(shared, from)  fibres_copy(shared, from, 16)
#define copy_4(shared, from)   fibres_copy(shared, from, 4)
#define copies_wait()          fibres_copies_wait()
#else
INLINE uint32_t shared_address(const void *p)
{
    return (uint32_t)__cvta_generic_to_shared(p);
}

INLINE void mma_8_8_16(int32_t c[2], uint32_t a, uint32_t b)
{
    asm volatile("mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {%0, %1}, {%2}, {%3}, {%0, %1};"
                 : "+r"(c[0]), "+r"(c[1])
                 : "r"(a), "r"(b));
}

/* Loads four matrices. Lanes 8 i to 8 i + 7 have the addresses of the 8 rows of matrix i, 16 bytes
 * each. to[i] is word lane % 4 of row lane / 4 of matrix i. */
INLINE void load_matrices(uint32_t to[4], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(shared_address(row))
                 : "memory");
}

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
#define HAS_SM_80 true
INLINE void mma_16_8_32(int32_t c[4], const uint32_t a[4], const uint32_t b[2])
{
    asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, "
                 "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

INLINE void mma_16_8_16(int32_t c[4], const uint32_t a[2], uint32_t b)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5}, "
                 "{%6}, {%0, %1, %2, %3};"
                 : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(b));
}

/* To shared memory, while the thread continues. */
INLINE void copy_16(void *shared, const void *from)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(shared)),
                 "l"(__cvta_generic_to_global(from))
                 : "memory");
}

INLINE void copy_4(void *shared, const void *from)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(shared_address(shared)),
                 "l"(__cvta_generic_to_global(from))
                 : "memory");
}

/* Waits until the copies of this thread have arrived. */
INLINE void copies_wait(void)
{
    asm volatile("cp.async.wait_all;" ::: "memory");
}
#else
#define HAS_SM_80 false
INLINE void mma_16_8_32(int32_t *, const uint32_t *, const uint32_t *)
{
}

INLINE void mma_16_8_16(int32_t *, const uint32_t *, uint32_t)
{
}

INLINE void copy_16(void *shared, const void *from)
{
    *(int4 *)shared = load_as<int4>(from);
}

INLINE void copy_4(void *shared, const void *from)
{
    *(uint32_t *)shared = load_as<uint32_t>(from);
}

INLINE void copies_wait(void)
{
}
#endif
#endif

/* ---- products of a warp: c[16 x 8] += a[16 x k] b[k x 8] ---- */

INLINE void multiply_16(int32_t c[4], const uint32_t a[2], uint32_t b)
{
    if (HAS_SM_80) {
        mma_16_8_16(c, a, b);
        return;
    }
    mma_8_8_16(c, a[0], b);
    mma_8_8_16(c + 2, a[1], b);
}

INLINE void multiply_32(int32_t c[4], const uint32_t a[4], const uint32_t b[2])
{
    if (HAS_SM_80) {
        mma_16_8_32(c, a, b);
        return;
    }
    multiply_16(c, a, b[0]);
    multiply_16(c, a + 2, b[1]);
}

#endif
