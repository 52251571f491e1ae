/* SPDX-License-Identifier: Apache-2.0 */
/* Says what is done with experts of a token that are not on the GPU (docs/gpu.md). Every policy
 * gives the same text. */
#ifndef SLUICE_POLICY_GPU_POLICY_H
#define SLUICE_POLICY_GPU_POLICY_H

#include <stdbool.h>
#include <stdint.h>

#include "lib/policy/choice.h"

/* In the order of preference among policies that are equally fast. */
#define GPU_POLICY_LIST(X)                                                                         \
    X(GPU_CENTRIC, "gpu-centric")                                                                  \
    X(GPU_COOPERATIVE, "cooperative")                                                              \
    X(GPU_PREFETCH, "prefetch")

enum gpu_policy { GPU_POLICY_LIST(CHOICE_ID) GPU_POLICY__COUNT };

/* The policy of that name; GPU_POLICY__COUNT: none has it. */
enum gpu_policy gpu_policy_find(const char *name);
/* The policy for a value of --gpu-policy. auto gives GPU_POLICY__COUNT, but in deterministic runs
 * gpu-centric, because these must not depend on times. */
enum gpu_policy gpu_policy_of(const char *name, bool deterministic);
const char *gpu_policy_name(enum gpu_policy policy);

#endif
