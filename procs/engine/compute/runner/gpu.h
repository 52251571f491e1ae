/* SPDX-License-Identifier: Apache-2.0 */
/* The GPU of compute (--gpu): opened as the supervisor planned it. */
#ifndef SLUICE_ENGINE_COMPUTE_RUNNER_GPU_H
#define SLUICE_ENGINE_COMPUTE_RUNNER_GPU_H

#include "lib/cuda/cuda.h"
#include "lib/device/device.h"
#include "lib/policy/gpu/trial.h"
#include "lib/policy/residency/places.h"
#include "procs/engine/child/child.h"

struct gpu {
    const struct gpu_kernels *kernels;
    struct device *device;  /* NULL: compute is on the CPU */
    struct gpu_trial trial; /* --gpu-policy */
    struct places_counts counted;
};

/* At the first start, a GPU that cannot be opened is fatal. Later it is lost, and so is one whose failures end compute
 * again and again: then compute is on the CPU. */
/* ops, threads: of the CPU, where it computes, too (--gpu-policy). */
struct gpu gpu_open(struct child *child, const struct kernel_ops *ops, uint32_t threads);
/* In another thread that submits operations, before the first. */
void gpu_enter(const struct gpu *gpu, const struct child *child);
/* Counters of the GPU: after the core was made, and after each pass. */
void gpu_count(const struct gpu *gpu, const struct child *child);

/* gpu_policy.c. Before the device has memory: what --gpu-policy needs. -1 with *error. */
int gpu_policy_open(struct gpu *gpu, const struct child *child, const struct kernel_ops *ops,
                    uint32_t threads, struct error *error);
/* Another sequence begins. */
void gpu_sequence(const struct gpu *gpu);
/* A pass of so many rows ended, which took so long. */
void gpu_policy_pass(struct gpu *gpu, const struct child *child, uint32_t rows, uint64_t ns);

/* Bytes of experts, in slots of the arena, that the GPU has space for together; 0: no GPU. */
uint64_t gpu_experts_limit(const struct gpu *gpu, const struct child *child);

#endif
