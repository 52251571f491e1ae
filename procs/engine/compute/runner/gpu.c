/* SPDX-License-Identifier: Apache-2.0 */
/* Opens the GPUs of the supervisor's layout, and drops those that keep failing. */
#include "procs/engine/compute/runner/gpu.h"

#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "lib/base/assert.h"
#include "lib/base/bytes.h"
#include "lib/base/log.h"
#include "lib/cuda/module.h"
#include "lib/device/cuda/cuda.h"

/* GPUs of which one fails again when compute was restarted are not used any more. */
#define CRASHES_MAX 2

static const struct procs_gpus *gpus_of(const struct child *child)
{
    return &child->procs.head->gpus;
}

/* The first calls of the driver in this process, with the sandbox in effect: a driver may need more
 * than that permits. */
static int select_gpu(const struct child *child, const struct gpu_kernels *kernels, uint32_t number,
                      struct error *error)
{
    int status = kernels->select((int)number);
    if (status == 0)
        return 0;
    uint32_t parts = atomic_load_explicit(&child->process->sandbox, memory_order_relaxed);
    return error_set(error, ERR_FAILED, "GPU %u cannot be used: %s (%d)%s", number,
                     kernels->text(status), status,
                     parts != 0 ? "; --sandbox off shows whether the sandbox is the cause" : "");
}

/* With the context of this process: what the layout has left of it must be there. */
static int check_memory(struct child *child, const struct gpu_kernels *kernels,
                        const struct gpu_layout *layout, struct error *error)
{
    size_t unused, total;
    char have[16], want[16];
    int status = kernels->memory(&unused, &total);
    if (status != 0)
        return error_set(error, ERR_FAILED, "the GPU's memory is not known: %s (%d)",
                         kernels->text(status), status);
    uint64_t needed = gpu_layout_bytes(layout) - layout->bytes[CUDA_CONTEXT];
    counter_add(child->process, CTR_COMPUTE_gpu_others_bytes, total - unused);
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
    if (atomic_load(&child->process->crashes) < CRASHES_MAX)
        return 0;
    shared_text_get(&child->process->crash_reason, why);
    return strncmp(why, CUDA_FAILURE, strlen(CUDA_FAILURE)) != 0
               ? 0
               : error_set(error, ERR_FAILED, "compute ended %u times, the last time with '%s'",
                           atomic_load(&child->process->crashes), why);
}

static struct device *open_device(struct child *child, const struct gpu_kernels *kernels,
                                  uint32_t i, const struct kernel_ops *ops, struct error *error)
{
    const struct procs_gpus *all = gpus_of(child);
    const struct procs_gpu *g = &all->gpu[i];
    struct gpu_layout layout = {.number = g->number,
                                .first_layer = g->first_layer,
                                .end_layer = g->end_layer,
                                .positions = all->positions,
                                .kv_layers = g->kv_layers,
                                .layers = all->layers,
                                .experts = all->experts,
                                .top_k = all->top_k};
    memcpy(layout.bytes, g->bytes, sizeof layout.bytes);
    gpu_layout_sizes(&layout, kernels, child->model);
    bool known = places_eviction_find(child->params->gpu_eviction, &layout.eviction);
    sl_assert(known); /* the supervisor checked it */
    if (select_gpu(child, kernels, g->number, error) != 0 ||
        check_memory(child, kernels, &layout, error) != 0)
        return NULL;
    return cuda_device(kernels, ops, &layout, error);
}

/* One that cannot be opened: then none is used. */
static int open_devices(struct gpus *gpus, struct child *child, const struct kernel_ops *ops,
                        uint32_t threads, struct error *error)
{
    gpus->kernels = gpu_module_open(gpus_of(child)->module, error);
    if (!gpus->kernels)
        return -1;
    counter_set(child->process, CTR_COMPUTE_gpu_others_bytes, 0);
    while (gpus->count < gpus_of(child)->count) {
        struct device *d = open_device(child, gpus->kernels, gpus->count, ops, error);
        if (!d)
            return -1;
        gpus->device[gpus->count++] = d;
    }
    if (gpu_policy_open(gpus, child, ops, threads, error) != 0)
        return -1;
    for (uint32_t i = 0; i < gpus->count; i++)
        if (cuda_reserve(gpus->device[i], error) != 0)
            return -1;
    return 0;
}

static void close_devices(struct gpus *gpus)
{
    while (gpus->count > 0) {
        struct device *d = gpus->device[--gpus->count];
        d->ops->destroy(d);
    }
}

/* Before the driver begins, so that it compiles kernels for a GPU that the module has no code for
 * now, not after readiness, when a process that does not report progress is ended; its compiler may
 * need more than the small stacks of the engine. */
static void prepare_driver(void)
{
    struct rlimit limit;
    setenv("CUDA_MODULE_LOADING", "EAGER", 0);
    if (getrlimit(RLIMIT_STACK, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_STACK, &limit);
    }
}

struct gpus gpus_open(struct child *child, const struct kernel_ops *ops, uint32_t threads)
{
    struct gpus gpus = {0};
    struct error error;
    if (gpus_of(child)->count == 0)
        return gpus;
    prepare_driver();
    if (check_crashes(child, &error) != 0 ||
        open_devices(&gpus, child, ops, threads, &error) != 0) {
        if (child->incarnation == 1 && gpus_of(child)->required)
            log_fatal(2, "%s", error.text); /* ends the start, where 1 would be another try */
        log_warn("the GPU is lost, continuing on the CPU: %s", error.text); /* with the same text */
        close_devices(&gpus);
    }
    counter_set(child->process, CTR_COMPUTE_gpu_lost, gpus.count == 0);
    return gpus;
}

uint32_t gpus_parts(const struct gpus *gpus, const struct child *child, size_t scratch_limit,
                    struct chain_part parts[CHAIN_PARTS_MAX])
{
    uint32_t count = 0, end = 0, layers = child->model->hparams.layers;
    for (; count < gpus->count; count++) {
        const struct procs_gpu *g = &gpus_of(child)->gpu[count];
        parts[count] = (struct chain_part){.device = gpus->device[count],
                                           .layers = g->end_layer - g->first_layer};
        end = g->end_layer;
    }
    if (end < layers)
        parts[count++] =
            (struct chain_part){.layers = layers - end, .scratch_limit = scratch_limit};
    return count;
}

/* ---- counters: of all GPUs together ---- */

static struct places_counts slots_of(struct child *child, uint32_t i, const struct device *gpu)
{
    struct procs_gpu *shown = &child->procs.head->gpus.gpu[i];
    atomic_store_explicit(&shown->slots, cuda_slots(gpu), memory_order_relaxed);
    atomic_store_explicit(&shown->slots_used, cuda_slots_used(gpu), memory_order_relaxed);
    return cuda_slot_counts(gpu);
}

void gpus_count(const struct gpus *g, struct child *child)
{
    uint64_t sum[CTR_COMPUTE__COUNT] = {0};
    if (g->count == 0)
        return;
    for (uint32_t i = 0; i < g->count; i++) {
        const struct device *gpu = g->device[i];
        struct cuda_copied copied = cuda_copied(gpu);
        struct places_counts slots = slots_of(child, i, gpu);
        const struct {
            int counter;
            uint64_t value;
        } all[] = {{CTR_COMPUTE_gpu_weights_bytes, cuda_bytes(gpu, CUDA_WEIGHTS)},
                   {CTR_COMPUTE_gpu_activations_bytes, cuda_bytes(gpu, CUDA_ACTIVATIONS)},
                   {CTR_COMPUTE_gpu_kv_bytes, cuda_bytes(gpu, CUDA_KV)},
                   {CTR_COMPUTE_gpu_experts_bytes, cuda_bytes(gpu, CUDA_EXPERTS)},
                   {CTR_COMPUTE_gpu_expert_hits, slots.hits},
                   {CTR_COMPUTE_gpu_expert_uploads, slots.uploaded},
                   {CTR_COMPUTE_gpu_expert_evictions, slots.evicted},
                   {CTR_COMPUTE_gpu_expert_on_cpu, slots.on_host},
                   {CTR_COMPUTE_gpu_expert_background, slots.background},
                   {CTR_COMPUTE_gpu_prefetches, slots.ahead},
                   {CTR_COMPUTE_gpu_prefetches_timely, slots.timely},
                   {CTR_COMPUTE_gpu_prefetches_late, slots.late},
                   {CTR_COMPUTE_gpu_prefetches_unused, slots.unused},
                   {CTR_COMPUTE_gpu_expert_filled, slots.filled},
                   {CTR_COMPUTE_gpu_graph_launches, cuda_graph_launches(gpu)},
                   {CTR_COMPUTE_gpu_busy_ns, cuda_busy_ns(gpu)},
                   {CTR_COMPUTE_gpu_uploaded_bytes, copied.to_device},
                   {CTR_COMPUTE_gpu_downloaded_bytes, copied.to_host},
                   {CTR_COMPUTE_gpu_kv_uploaded_bytes, copied.kv_to_device},
                   {CTR_COMPUTE_gpu_kv_downloaded_bytes, copied.kv_to_host}};
        for (size_t k = 0; k < ARRAY_LEN(all); k++) {
            sum[all[k].counter] += all[k].value;
            if (i + 1 == g->count)
                counter_set(child->process, all[k].counter, sum[all[k].counter]);
        }
    }
}
