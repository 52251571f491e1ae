/* SPDX-License-Identifier: Apache-2.0 */
/* Computes how much memory of a GPU a model needs, by part. Pure arithmetic: no GPU is needed. */
#ifndef SLUICE_DEVICE_CUDA_LAYOUT_H
#define SLUICE_DEVICE_CUDA_LAYOUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/cuda/cuda.h"
#include "lib/model/index/model_index.h"
#include "lib/policy/gpu/places.h"
#include "lib/policy/gpu/slabs.h"
#include "lib/policy/residency/residency.h"
#include "lib/tensor/kv_type.h"

/* X(ID, name, text) */
#define CUDA_PARTS(X)                                                                              \
    X(CONTEXT, "context", "what the driver has for a process")                                     \
    X(WEIGHTS, "weights", "dense weights, and memory in which weights arrive")                     \
    X(ACTIVATIONS, "activations", "vectors, rows of a pass, and the workspace of operations")      \
    X(KV, "kv", "keys, values and states")                                                         \
    X(EXPERTS, "experts", "slabs of slots for experts")

enum cuda_part {
#define X(id, name, text) CUDA_##id,
    CUDA_PARTS(X)
#undef X
        CUDA_PART__COUNT
};

/* The part of the dense weights where rows arrive that get another layout. */
#define CUDA_STAGING_BYTES PLACES_PIECE

struct gpu_layout {
    uint32_t number;                 /* of the GPU */
    uint32_t first_layer, end_layer; /* it has the layers [first_layer, end_layer) */
    uint64_t bytes[CUDA_PART__COUNT];
    uint32_t positions; /* of the longest sequence */
    uint32_t
        kv_layers; /* so many of its layers, from the first on, have their keys, values and states
                    * there from pass to pass */
    uint32_t layers, experts, top_k; /* of the model */
    struct expert_sizes sizes;       /* of its layers */
    uint64_t slot_bytes;             /* of the largest expert; 0: no slots */
    enum eviction eviction;
};

const char *cuda_part_name(enum cuda_part part);
uint64_t gpu_layout_bytes(const struct gpu_layout *layout);

/* Weights and keys of the layout's layers (end_layer 0: all of the model); the minimum of experts.
 * kernels: the sizes of rows. sequences: of a pass. The other parts are the caller's. */
void gpu_layout_model(struct gpu_layout *layout, const struct gpu_kernels *kernels,
                      const struct model_index *model, enum kv_type kv_type, uint32_t context,
                      uint32_t ring, uint32_t sequences);

/* Keys, values and states of as many layers as `bytes` have space for, from the first on; of the
 * others those of one operation, which are the minimum that gpu_layout_model has. A pass of one
 * sequence. */
void gpu_layout_kv(struct gpu_layout *layout, const struct model_index *model, enum kv_type kv_type,
                   uint32_t context, uint32_t ring, uint64_t bytes);

/* sizes and slot_bytes, which gpu_layout_model has done. Of the layout's layers. */
void gpu_layout_sizes(struct gpu_layout *layout, const struct gpu_kernels *kernels,
                      const struct model_index *model);

/* The bytes that the layout uses of so many for experts: all of its experts do not need more. Below
 * the minimum: as given. */
uint64_t gpu_layout_experts(const struct gpu_layout *layout, uint64_t bytes);
/* Every expert of its layers has a slot, at each of these precisions: 1 << enum precision, or
 * all. */
#define CUDA_PRECISIONS_ALL (~0u)
bool gpu_layout_holds(const struct gpu_layout *layout, unsigned precisions);
/* Precisions that its experts have, and of which every one has a slot: 1 << enum precision. */
unsigned gpu_layout_precisions(const struct gpu_layout *layout);
/* Memory for all experts of its layers at their best precision. */
uint64_t gpu_layout_experts_best(const struct gpu_layout *layout);
/* Experts that can be in use at once, whatever their sizes; 0: no slots. */
uint32_t gpu_layout_lent_max(const struct gpu_layout *layout);
/* Numbers of slots, of any size: each has a record and an event. */
uint32_t gpu_layout_places(const struct gpu_layout *layout);
/* Experts that have a slot at once, if they have the largest size; all, if it holds all. */
uint32_t gpu_layout_slots(const struct gpu_layout *layout);

#endif
