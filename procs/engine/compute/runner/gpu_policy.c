/* SPDX-License-Identifier: Apache-2.0 */
/* --gpu-policy: the one that is given, or, with auto, the one that is fastest here (lib/policy/gpu/trial.h). */
#include <stdio.h>

#include "lib/base/log.h"
#include "lib/device/cuda/cuda.h"
#include "lib/device/host/host.h"
#include "procs/engine/compute/runner/gpu.h"

static const struct {
    unsigned tokens, token_ns;
} counters[] = {
    [GPU_CENTRIC] = {CTR_COMPUTE_gpu_centric_tokens, CTR_COMPUTE_gpu_centric_token_ns},
    [GPU_COOPERATIVE] = {CTR_COMPUTE_gpu_cooperative_tokens, CTR_COMPUTE_gpu_cooperative_token_ns},
    [GPU_PREFETCH] = {CTR_COMPUTE_gpu_prefetch_tokens, CTR_COMPUTE_gpu_prefetch_token_ns}};

_Static_assert(sizeof counters / sizeof *counters == GPU_POLICY__COUNT, "counters of each policy");

/* auto: if all experts have slots, hardly any is missing; deterministic runs do not depend on times. */
static uint32_t allowed(const struct child *child)
{
    const struct procs_gpu *g = &child->procs.head->gpu;
    enum gpu_policy given = gpu_policy_find(child->params->gpu_policy);
    uint64_t all = child->model->entry_count - child->model->dense_count;
    if (given != GPU_POLICY__COUNT)
        return 1u << given;
    if (child->params->deterministic || g->bytes[CUDA_EXPERTS] >= all * g->slot_bytes)
        return 1u << GPU_CENTRIC;
    return (1u << GPU_POLICY__COUNT) - 1;
}

static void set(struct gpu *gpu)
{
    cuda_policy(gpu->device, gpu->trial.policy == GPU_COOPERATIVE,
                gpu->trial.policy == GPU_PREFETCH);
}

int gpu_policy_open(struct gpu *gpu, const struct child *child, const struct kernel_ops *ops,
                    uint32_t threads, struct error *error)
{
    uint32_t policies = allowed(child);
    if (policies >> GPU_COOPERATIVE & 1) {
        struct device *host = host_device(ops, threads, (int)child->params->nice, error);
        if (!host)
            return -1;
        cuda_cooperate(gpu->device, host);
    }
    gpu_trial_open(&gpu->trial, policies);
    set(gpu);
    counter_set(child->row, CTR_COMPUTE_gpu_policy, (uint64_t)gpu->trial.policy);
    return 0;
}

void gpu_sequence(const struct gpu *gpu)
{
    if (gpu->device)
        cuda_sequence(gpu->device);
}

static void report(const struct gpu *gpu, const struct child *child)
{
    const struct gpu_trial *t = &gpu->trial;
    char times[128];
    size_t n = 0;
    for (int i = 0; i < GPU_POLICY__COUNT; i++) {
        counter_set(child->row, counters[i].token_ns, (uint64_t)t->token_ns[i]);
        n += (size_t)snprintf(times + n, sizeof times - n, "%s%s %.0f us", n ? ", " : "",
                              gpu_policy_name((enum gpu_policy)i), t->token_ns[i] / 1e3);
    }
    counter_set(child->row, CTR_COMPUTE_gpu_trials, t->trials);
    log_info("GPU: policy %s; a token with %s", gpu_policy_name(t->policy), times);
}

void gpu_policy_pass(struct gpu *gpu, const struct child *child, uint32_t rows, uint64_t ns)
{
    struct gpu_trial *t = &gpu->trial;
    if (!gpu->device)
        return;
    const struct places_counts last = gpu->counted, now = cuda_slot_counts(gpu->device);
    const enum gpu_policy had = t->policy;
    const uint32_t trials = t->trials;
    gpu->counted = now;
    if (rows != 1) {
        gpu_trial_other(t);
        return;
    }
    uint64_t hits = now.hits - last.hits;
    gpu_trial_token(t, &(struct gpu_trial_token){.ns = ns,
                                                 .uses = hits + now.uploaded - last.uploaded +
                                                         now.on_host - last.on_host,
                                                 .hits = hits});
    counter_set(child->row, counters[had].tokens, t->tokens[had]);
    if (t->trials != trials)
        report(gpu, child);
    if (t->policy == had)
        return;
    set(gpu);
    counter_set(child->row, CTR_COMPUTE_gpu_policy, (uint64_t)t->policy);
}
