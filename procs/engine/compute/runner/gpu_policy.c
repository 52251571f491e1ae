/* SPDX-License-Identifier: Apache-2.0 */
/* --gpu-policy: the one that is given, or, with auto, the one that is fastest here
 * (lib/policy/gpu/trial.h). */
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

/* auto: if all experts have slots, hardly any is missing. */
static uint32_t allowed(const struct gpus *gpus, const struct child *child)
{
    enum gpu_policy given = gpu_policy_of(child->params->gpu_policy, child->params->deterministic);
    bool hold = true;
    for (uint32_t i = 0; i < gpus->count; i++)
        hold &= cuda_holds_all(gpus->device[i]);
    if (given != GPU_POLICY__COUNT)
        return 1u << given;
    return hold ? 1u << GPU_CENTRIC : (1u << GPU_POLICY__COUNT) - 1;
}

static void set(struct gpus *gpus)
{
    for (uint32_t i = 0; i < gpus->count; i++)
        cuda_policy(gpus->device[i], gpus->trial.policy == GPU_COOPERATIVE,
                    gpus->trial.policy == GPU_PREFETCH);
}

int gpu_policy_open(struct gpus *gpus, const struct child *child, const struct kernel_ops *ops,
                    uint32_t threads, struct error *error)
{
    uint32_t policies = allowed(gpus, child);
    for (uint32_t i = 0; policies >> GPU_COOPERATIVE & 1 && i < gpus->count; i++) {
        struct device *host = host_device(ops, threads, (int)child->params->nice, error);
        if (!host)
            return -1;
        cuda_cooperate(gpus->device[i], host);
    }
    gpu_trial_open(&gpus->trial, policies);
    set(gpus);
    counter_set(child->process, CTR_COMPUTE_gpu_policy, (uint64_t)gpus->trial.policy);
    return 0;
}

void gpu_sequence(const struct gpus *gpus)
{
    for (uint32_t i = 0; i < gpus->count; i++)
        cuda_sequence(gpus->device[i]);
}

/* What matters here, of all GPUs. */
static struct places_counts counts_of(const struct gpus *gpus)
{
    struct places_counts sum = {0};
    for (uint32_t i = 0; i < gpus->count; i++) {
        struct places_counts one = cuda_slot_counts(gpus->device[i]);
        sum.hits += one.hits;
        sum.uploaded += one.uploaded;
        sum.on_host += one.on_host;
    }
    return sum;
}

static void report(const struct gpus *gpus, const struct child *child)
{
    const struct gpu_trial *t = &gpus->trial;
    char times[128];
    size_t n = 0;
    for (int i = 0; i < GPU_POLICY__COUNT; i++) {
        counter_set(child->process, counters[i].token_ns, (uint64_t)t->token_ns[i]);
        n += (size_t)snprintf(times + n, sizeof times - n, "%s%s %.0f us", n ? ", " : "",
                              gpu_policy_name((enum gpu_policy)i), t->token_ns[i] / 1e3);
    }
    counter_set(child->process, CTR_COMPUTE_gpu_trials, t->trials);
    log_info("GPU: policy %s; a token with %s", gpu_policy_name(t->policy), times);
}

void gpu_policy_pass(struct gpus *gpus, const struct child *child, uint32_t rows, uint64_t ns)
{
    struct gpu_trial *t = &gpus->trial;
    if (gpus->count == 0)
        return;
    const struct places_counts last = gpus->counted, now = counts_of(gpus);
    const enum gpu_policy had = t->policy;
    const uint32_t trials = t->trials;
    gpus->counted = now;
    if (rows != 1) {
        gpu_trial_other(t);
        return;
    }
    uint64_t hits = now.hits - last.hits;
    gpu_trial_token(t, &(struct gpu_trial_token){.ns = ns,
                                                 .uses = hits + now.uploaded - last.uploaded +
                                                         now.on_host - last.on_host,
                                                 .hits = hits});
    counter_set(child->process, counters[had].tokens, t->tokens[had]);
    if (t->trials != trials)
        report(gpus, child);
    if (t->policy == had)
        return;
    set(gpus);
    counter_set(child->process, CTR_COMPUTE_gpu_policy, (uint64_t)t->policy);
}
