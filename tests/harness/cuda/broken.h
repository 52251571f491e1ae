/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels with one defect each, for the test of the harness. */
#ifndef SLUICE_TESTS_HARNESS_CUDA_BROKEN_H
#define SLUICE_TESTS_HARNESS_CUDA_BROKEN_H

#include <stdint.h>

enum broken {
    BROKEN_NOT,        /* correct: reverses 128 numbers through shared memory */
    BROKEN_NO_BARRIER, /* without its barrier: wrong numbers */
    BROKEN_EARLY,      /* reads numbers that are copied asynchronously before it waited for them:
                   * wrong */
    BROKEN_HALF_AT_BARRIER, /* one warp of four comes to a barrier */
    BROKEN_TWO_BARRIERS,    /* threads are at barriers in different lines */
    BROKEN_HALF_EXCHANGE,   /* half a warp exchanges with a mask of all */
    BROKEN_HALF_PRODUCT,    /* half a warp multiplies matrices */
    BROKEN_LOAD_BEYOND,     /* rows of matrices after the shared memory */
    BROKEN_COPY_LEFT,       /* threads end before their asynchronous copies */
    BROKEN_BEYOND_SHARED,   /* a write after the shared memory */
    BROKEN_UNALIGNED,       /* a load of four bytes at an odd address */
    BROKEN__COUNT
};

/* 0, or the status of the launch. */
int broken_run(enum broken kind, const uint32_t *in, uint32_t *out);

#endif
