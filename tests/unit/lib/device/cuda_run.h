/* SPDX-License-Identifier: Apache-2.0 */
/* Computes what a CUDA device has to hold for a run (run.h). */
#ifndef SLUICE_TESTS_UNIT_LIB_DEVICE_CUDA_RUN_H
#define SLUICE_TESTS_UNIT_LIB_DEVICE_CUDA_RUN_H

#include <check.h>

#include "lib/device/cuda/cuda.h"
#include "tests/unit/lib/device/run.h"

/* The layers of `plan`, as an engine plans it: space for the experts that a chunk pins, and for
 * keys, values and states of at most `kv_layers` layers (0: of all). `open` makes a device of a
 * plan; it is destroyed before anything is taken of the GPU. */
static inline struct cuda_plan
cuda_run_plan_part(struct cuda_plan plan, const struct gpu_kernels *kernels,
                   const struct image *image, uint32_t chunk, uint32_t kv_layers,
                   struct device *(*open)(const struct cuda_plan *plan))
{
    struct error error;
    cuda_plan_model(&plan, kernels, image->model, image->kv_type, RUN_CONTEXT, 0, 1);
    cuda_plan_kv(&plan, image->model, image->kv_type, RUN_CONTEXT, 0,
                 kv_layers == 0 ? UINT64_MAX : plan.bytes[CUDA_KV] * kv_layers);
    if (plan.bytes[CUDA_EXPERTS] < IMAGE_PIN_SLOTS * plan.slot_bytes)
        plan.bytes[CUDA_EXPERTS] = IMAGE_PIN_SLOTS * plan.slot_bytes;
    struct device *d = open(&plan);
    struct core_config config = {.model = image->model,
                                 .device = d,
                                 .first_layer = plan.first_layer,
                                 .layers = plan.end_layer - plan.first_layer,
                                 .threads = 1,
                                 .chunk = chunk,
                                 .prefill_order = prefill_order_of(PREFILL_ORDER_POPULARITY)};
    int rc = core_device_bytes(&config, &plan.bytes[CUDA_ACTIVATIONS], &error);
    ck_assert_msg(rc == 0, "%s", error.text);
    d->ops->destroy(d);
    return plan;
}

/* All layers. */
static inline struct cuda_plan cuda_run_plan(const struct gpu_kernels *kernels,
                                             const struct image *image, uint32_t chunk,
                                             uint32_t kv_layers,
                                             struct device *(*open)(const struct cuda_plan *plan))
{
    return cuda_run_plan_part((struct cuda_plan){0}, kernels, image, chunk, kv_layers, open);
}

#endif
