/* SPDX-License-Identifier: Apache-2.0 */
/* Says what is done with experts of a token that are not on the GPU (docs/gpu.md). The text is the
 * same with any of them. */
#ifndef SLUICE_POLICY_GPU_POLICY_H
#define SLUICE_POLICY_GPU_POLICY_H

#include <stdbool.h>
#include <stdint.h>

#include "lib/policy/choice.h"

/* In the order in which equal ones are preferred. */
#define GPU_POLICY_LIST(X)                                                                         \
    X(GPU_CENTRIC, "gpu-centric")                                                                  \
    X(GPU_COOPERATIVE, "cooperative")                                                              \
    X(GPU_PREFETCH, "prefetch")

enum gpu_policy { GPU_POLICY_LIST(CHOICE_ID) GPU_POLICY__COUNT };

/* GPU_POLICY__COUNT: there is none of that name. */
enum gpu_policy gpu_policy_find(const char *name);
/* That of --gpu-policy: auto, GPU_POLICY__COUNT, is gpu-centric in deterministic runs, which do not
 * depend on times. */
enum gpu_policy gpu_policy_of(const char *name, bool deterministic);
const char *gpu_policy_name(enum gpu_policy policy);

#endif
