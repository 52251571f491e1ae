/* SPDX-License-Identifier: Apache-2.0 */
/* A block of threads of a GPU on the host: every thread is a fibre. What the CUDA model leaves open is random, by
 * a seed: which thread runs next, and how far. Threads wait for each other only where the model has it, also
 * those of a warp, so a kernel with a missing barrier gives wrong results for some seed. Blocks
 * run one after the other, from a random one on.
 *
 * Errors: a barrier or a warp operation that not all of its threads reach, or reach in different lines; a write
 * beyond the block's shared memory; a load whose address is not aligned; sizes that no GPU accepts. */
#ifndef SLUICE_TESTS_HARNESS_CUDA_FIBRES_H
#define SLUICE_TESTS_HARNESS_CUDA_FIBRES_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct fibre_index {
    uint32_t x, y, z;
};

/* The thread that runs, and the sizes of its launch. */
extern struct fibre_index fibre_thread, fibre_block, fibre_block_size, fibre_grid_size;

/* Every later launch depends on it. */
void fibres_seed(uint32_t seed);
uint32_t fibres_draw(uint32_t below); /* a random number */

/* Runs thread(arg) for every thread of the grid. 0, or -1: fibres_error() is the reason. */
int fibres_run(struct fibre_index grid, struct fibre_index block, size_t shared_bytes,
               void (*thread)(const void *arg), const void *arg);

/* Of the last launch; NULL: none. */
const char *fibres_error(void);

/* ---- called by threads ---- */

/* The block's shared memory, 64-byte aligned; at first it has bytes 0xff. */
uint8_t *fibres_shared(void);
void fibres_barrier(int line);
/* Waits for the lanes of the mask, and returns the value of lane `from`. */
uint64_t fibres_exchange(uint32_t lanes, uint64_t value, uint32_t from, int line);
uint32_t fibres_lane(void);
void fibres_aligned(const void *p, size_t bytes);

#ifdef __cplusplus
}
#endif

#endif
