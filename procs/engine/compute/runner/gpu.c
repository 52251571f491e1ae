/* SPDX-License-Identifier: Apache-2.0 */
#include "procs/engine/compute/runner/gpu.h"

#include <string.h>

#include "lib/base/assert.h"
#include "lib/base/bytes.h"
#include "lib/base/log.h"
#include "lib/cuda/module.h"
#include "lib/device/cuda/cuda.h"

/* A GPU that fails again when compute was restarted is not used any more. */
#define CRASHES_MAX 2

static const struct procs_gpu *plan_of(const struct child *child)
{
    return &child->procs.head->gpu;
}

static int select_gpu(const struct gpu_kernels *kernels, uint32_t number, struct error *error)
{
    int status = kernels->select((int)number);
    return status == 0 ? 0
                       : error_set(error, ERR_FAILED, "GPU %u cannot be used: %s (%d)", number,
                                   kernels->text(status), status);
}

/* With the context of this process: what the plan has left of it must be there. */
static int check_memory(struct child *child, const struct gpu_kernels *kernels,
                        const struct cuda_plan *plan, struct error *error)
{
    size_t unused, total;
    char have[16], want[16];
    int status = kernels->memory(&unused, &total);
    if (status != 0)
        return error_set(error, ERR_FAILED, "the GPU's memory is not known: %s (%d)",
                         kernels->text(status), status);
    uint64_t needed = cuda_plan_bytes(plan) - plan->bytes[CUDA_CONTEXT];
    counter_set(child->row, CTR_COMPUTE_gpu_others_bytes, total - unused);
    if (unused >= needed)
        return 0;
    return error_set(error, ERR_NO_MEMORY,
                     "the GPU has %s unused, its plan needs %s: lower --gpu-budget",
                     bytes_format(unused, have), bytes_format(needed, want));
}

/* The last process did not end well because of the GPU, and it was not the first. */
static int check_crashes(const struct child *child, struct error *error)
{
    char why[SHARED_TEXT_BYTES];
    if (atomic_load(&child->row->crashes) < CRASHES_MAX)
        return 0;
    shared_text_get(&child->row->crash_reason, why);
    return strncmp(why, CUDA_FAILURE, strlen(CUDA_FAILURE)) != 0
               ? 0
               : error_set(error, ERR_FAILED, "compute ended %u times, the last time with '%s'",
                           atomic_load(&child->row->crashes), why);
}

/* Its device stays NULL if there is an error. */
static void open_device(struct gpu *gpu, struct child *child, const struct kernel_ops *ops,
                        uint32_t threads, struct error *error)
{
    const struct procs_gpu *g = plan_of(child);
    struct cuda_plan plan = {.number = g->number,
                             .positions = g->positions,
                             .kv_layers = g->kv_layers,
                             .layers = g->layers,
                             .experts = g->experts,
                             .top_k = g->top_k,
                             .slot_bytes = g->slot_bytes};
    memcpy(plan.bytes, g->bytes, sizeof plan.bytes);
    bool known = places_eviction_find(child->params->gpu_eviction, &plan.eviction);
    sl_assert(known); /* the supervisor checked it */
    if (select_gpu(gpu->kernels, g->number, error) != 0 ||
        check_memory(child, gpu->kernels, &plan, error) != 0)
        return;
    gpu->device = cuda_device(gpu->kernels, ops, &plan, error);
    if (gpu->device && (gpu_policy_open(gpu, child, ops, threads, error) != 0 ||
                        cuda_reserve(gpu->device, error) != 0)) {
        gpu->device->ops->destroy(gpu->device);
        gpu->device = NULL;
    }
}

struct gpu gpu_open(struct child *child, const struct kernel_ops *ops, uint32_t threads)
{
    struct gpu gpu = {0};
    struct error error;
    if (!plan_of(child)->on)
        return gpu;
    if (check_crashes(child, &error) == 0 &&
        (gpu.kernels = gpu_module_open(plan_of(child)->module, &error)) != NULL)
        open_device(&gpu, child, ops, threads, &error);
    if (!gpu.device && child->incarnation == 1 && plan_of(child)->required)
        log_fatal(1, "%s", error.text);
    if (!gpu.device) /* the text is the same on the CPU */
        log_warn("the GPU is lost, continuing on the CPU: %s", error.text);
    counter_set(child->row, CTR_COMPUTE_gpu_lost, gpu.device == NULL);
    return gpu;
}

void gpu_enter(const struct gpu *gpu, const struct child *child)
{
    struct error error;
    if (gpu->device && select_gpu(gpu->kernels, plan_of(child)->number, &error) != 0)
        log_fatal(1, CUDA_FAILURE "%s", error.text);
}

void gpu_count(const struct gpu *g, const struct child *child)
{
    const struct device *gpu = g->device;
    if (!gpu)
        return;
    struct cuda_copied copied = cuda_copied(gpu);
    counter_set(child->row, CTR_COMPUTE_gpu_weights_bytes, cuda_bytes(gpu, CUDA_WEIGHTS));
    counter_set(child->row, CTR_COMPUTE_gpu_activations_bytes, cuda_bytes(gpu, CUDA_ACTIVATIONS));
    counter_set(child->row, CTR_COMPUTE_gpu_kv_bytes, cuda_bytes(gpu, CUDA_KV));
    counter_set(child->row, CTR_COMPUTE_gpu_experts_bytes, cuda_bytes(gpu, CUDA_EXPERTS));
    struct places_counts slots = cuda_slot_counts(gpu);
    counter_set(child->row, CTR_COMPUTE_gpu_expert_hits, slots.hits);
    counter_set(child->row, CTR_COMPUTE_gpu_expert_uploads, slots.uploaded);
    counter_set(child->row, CTR_COMPUTE_gpu_expert_evictions, slots.evicted);
    counter_set(child->row, CTR_COMPUTE_gpu_expert_on_cpu, slots.on_host);
    counter_set(child->row, CTR_COMPUTE_gpu_expert_background, slots.behind);
    counter_set(child->row, CTR_COMPUTE_gpu_prefetches, slots.ahead);
    counter_set(child->row, CTR_COMPUTE_gpu_prefetches_timely, slots.timely);
    counter_set(child->row, CTR_COMPUTE_gpu_prefetches_late, slots.late);
    counter_set(child->row, CTR_COMPUTE_gpu_prefetches_unused, slots.unused);
    counter_set(child->row, CTR_COMPUTE_gpu_busy_ns, cuda_busy_ns(gpu));
    counter_set(child->row, CTR_COMPUTE_gpu_uploaded_bytes, copied.to_device);
    counter_set(child->row, CTR_COMPUTE_gpu_downloaded_bytes, copied.to_host);
    counter_set(child->row, CTR_COMPUTE_gpu_kv_uploaded_bytes, copied.kv_to_device);
    counter_set(child->row, CTR_COMPUTE_gpu_kv_downloaded_bytes, copied.kv_to_host);
}

uint64_t gpu_experts_limit(const struct gpu *gpu, const struct child *child)
{
    const struct procs_gpu *g = plan_of(child);
    const struct cuda_plan plan = {.bytes[CUDA_EXPERTS] = g->bytes[CUDA_EXPERTS],
                                   .slot_bytes = g->slot_bytes};
    return gpu->device ? cuda_plan_experts(&plan, child->model) : 0;
}
