/* SPDX-License-Identifier: Apache-2.0 */
/* The GPUs of compute (--gpu): opened as the supervisor planned them. */
#ifndef SLUICE_ENGINE_COMPUTE_RUNNER_GPU_H
#define SLUICE_ENGINE_COMPUTE_RUNNER_GPU_H

#include "lib/core/chain/chain.h"
#include "lib/cuda/cuda.h"
#include "lib/device/device.h"
#include "lib/policy/gpu/places.h"
#include "lib/policy/gpu/trial.h"
#include "procs/engine/child/child.h"

struct gpus {
    const struct gpu_kernels *kernels;
    uint32_t count; /* 0: compute is on the CPU */
    struct device *device[PROCS_GPUS_MAX];
    struct gpu_trial trial; /* --gpu-policy, of all */
    struct places_counts counted;
};

_Static_assert(PROCS_GPUS_MAX < CHAIN_PARTS_MAX, "all of them, and the CPU");

/* At the first start, GPUs that cannot be opened are fatal. Later they are lost, and so are those
 * whose failures end compute again and again: then compute is on the CPU. */
/* ops, threads: of the CPU, where it computes, too (--gpu-policy). */
struct gpus gpus_open(struct child *child, const struct kernel_ops *ops, uint32_t threads);
/* The layers of each, then those of the CPU, if it has some; scratch_limit is of these. Their
 * number. */
uint32_t gpus_parts(const struct gpus *gpus, const struct child *child, size_t scratch_limit,
                    struct chain_part parts[CHAIN_PARTS_MAX]);
/* Counters: after the core was made, and after each pass. */
void gpus_count(const struct gpus *gpus, struct child *child);

/* gpu_policy.c. Before the devices have memory: what --gpu-policy needs. -1 with *error. */
int gpu_policy_open(struct gpus *gpus, const struct child *child, const struct kernel_ops *ops,
                    uint32_t threads, struct error *error);
/* Another sequence begins. */
void gpu_sequence(const struct gpus *gpus);
/* A pass of so many rows ended, which took so long. */
void gpu_policy_pass(struct gpus *gpus, const struct child *child, uint32_t rows, uint64_t ns);

#endif
