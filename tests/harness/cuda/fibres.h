/* SPDX-License-Identifier: Apache-2.0 */
/* A block of threads of a GPU on the host: every thread is a fibre. What the CUDA model leaves open
 * is random, by a seed: which thread runs next, and how far. Threads wait for each other only where
 * the model has it, also those of a warp, so a kernel with a missing barrier gives wrong results
 * for some seed. Blocks run one after the other, from a random one on.
 *
 * The kernels are those of compute capability 8.0 or 7.5 (fibre_target), which have two ways of
 * some things.
 *
 * Errors: a barrier or a warp operation that not all of its threads reach, or reach in different
 * lines; a write beyond the block's shared memory; an asynchronous copy that is not waited for; a
 * load whose address is not aligned; sizes that no GPU accepts. */
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

/* Compute capability of the kernels: 80 (default) or 75. */
extern uint32_t fibre_target;

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
/* An operation of a whole warp: waits for its 32 lanes, and changes the registers of each. */
void fibres_together(void *registers, void (*operation)(void *const registers[32]), int line);
/* An asynchronous copy to shared memory: it is done at once, or when the thread waits for its
 * copies. */
void fibres_copy(void *to, const void *from, size_t bytes);
void fibres_copies_wait(void);
uint32_t fibres_lane(void);
/* Checks: an aligned address, and one in shared memory. */
void fibres_aligned(const void *p, size_t bytes);
void fibres_in_shared(const void *p, size_t bytes);

#ifdef __cplusplus
}
#endif

#endif
