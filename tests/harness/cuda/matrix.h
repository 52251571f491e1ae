/* SPDX-License-Identifier: Apache-2.0 */
/* Instructions on matrices that a warp has in its registers, on all 32 lanes at once
 * (fibres_together). Which lane has which element is written from the manual of PTX, "Warp-Level
 * Matrix Instructions", and nothing of the kernels. */
#ifndef SLUICE_TESTS_HARNESS_CUDA_MATRIX_H
#define SLUICE_TESTS_HARNESS_CUDA_MATRIX_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Registers of a lane. m8n8k16 uses the first of a and b and two of c, m16n8k16 two of a and one of
 * b. */
struct matrix_registers {
    uint32_t a[4], b[2];
    int32_t c[4];
};

/* mma.sync.aligned.mMnNkK.row.col.s32.s8.s8.s32, c being d, too. */
void matrix_m16n8k32(void *const lanes[32]);
void matrix_m16n8k16(void *const lanes[32]);
void matrix_m8n8k16(void *const lanes[32]);

struct matrix_loads {
    const void *row; /* of 16 bytes in shared memory */
    uint32_t to[4];
};

/* ldmatrix.sync.aligned.m8n8.x4.shared.b16 */
void matrix_load(void *const lanes[32]);

#ifdef __cplusplus
}
#endif

#endif
