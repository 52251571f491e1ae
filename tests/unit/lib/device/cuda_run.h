/* SPDX-License-Identifier: Apache-2.0 */
/* Computes what a CUDA device has to hold for a run (run.h). */
#ifndef SLUICE_TESTS_UNIT_LIB_DEVICE_CUDA_RUN_H
#define SLUICE_TESTS_UNIT_LIB_DEVICE_CUDA_RUN_H

#include <check.h>

#include "lib/device/cuda/cuda.h"
#include "tests/unit/lib/device/run.h"

/* The layers of `layout`, as an engine plans it: space for the experts that a chunk pins, and for
 * keys, values and states of at most `kv_layers` layers (0: of all). `open` makes a device of a
 * layout; it is destroyed before anything is taken of the GPU. */
static inline struct gpu_layout
cuda_run_layout_part(struct gpu_layout layout, const struct gpu_kernels *kernels,
                     const struct image *image, uint32_t chunk, uint32_t kv_layers,
                     struct device *(*open)(const struct gpu_layout *layout))
{
    struct error error;
    gpu_layout_model(&layout, kernels, image->model, image->kv_type, RUN_CONTEXT, 0, 1);
    gpu_layout_kv(&layout, image->model, image->kv_type, RUN_CONTEXT, 0,
                  kv_layers == 0 ? UINT64_MAX : layout.bytes[CUDA_KV] * kv_layers);
    if (layout.bytes[CUDA_EXPERTS] < IMAGE_PIN_SLOTS * layout.slot_bytes)
        layout.bytes[CUDA_EXPERTS] = IMAGE_PIN_SLOTS * layout.slot_bytes;
    struct device *d = open(&layout);
    struct core_config config = {.model = image->model,
                                 .device = d,
                                 .first_layer = layout.first_layer,
                                 .layers = layout.end_layer - layout.first_layer,
                                 .threads = 1,
                                 .chunk = chunk,
                                 .positions = image->context,
                                 .prefill_order = prefill_order_of(PREFILL_ORDER_POPULARITY)};
    int rc = core_device_bytes(&config, &layout.bytes[CUDA_ACTIVATIONS], &error);
    ck_assert_msg(rc == 0, "%s", error.text);
    d->ops->destroy(d);
    return layout;
}

/* All layers. */
static inline struct gpu_layout
cuda_run_layout(const struct gpu_kernels *kernels, const struct image *image, uint32_t chunk,
                uint32_t kv_layers, struct device *(*open)(const struct gpu_layout *layout))
{
    return cuda_run_layout_part((struct gpu_layout){0}, kernels, image, chunk, kv_layers, open);
}

#endif
