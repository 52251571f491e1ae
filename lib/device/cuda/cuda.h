/* SPDX-License-Identifier: Apache-2.0 */
/* A GPU as a device: its memory, and the kernels of lib/cuda. Submissions are in one stream, so
 * operations take effect in their order; nothing waits but `read`, `wait`, and what the README
 * lists. A failure of the driver while operations run is fatal. */
#ifndef SLUICE_DEVICE_CUDA_CUDA_H
#define SLUICE_DEVICE_CUDA_CUDA_H

#include "lib/cuda/cuda.h"
#include "lib/device/cuda/layout.h"
#include "lib/device/device.h"
#include "lib/policy/gpu/places.h"

/* How the exit message of a process begins that ends because of it. */
#define CUDA_FAILURE "GPU: "

/* kernels: of the module. The device is the layout's GPU, which a thread selects by `enter`. host:
 * kernels that store rows of keys and values on the host; NULL if it computes nothing, as in the
 * supervisor, whose program has none. layout: the memory that it may have, but for the context.
 * Calls no function of the driver. NULL with *error. Freed by ops->destroy. */
struct device *cuda_device(const struct gpu_kernels *kernels, const struct kernel_ops *host,
                           const struct gpu_layout *layout, struct error *error);

/* Takes the memory of the layout, but that of activations, which the core takes. Before anything
 * else but `computes` and `workspace`. -1 with *error. */
int cuda_reserve(struct device *d, struct error *error);

/* In passes of one row, `host` computes experts that are not there, while the GPU computes the
 * others. Before there is a core; `host` is the device's from now on. */
void cuda_cooperate(struct device *d, struct device *host);

/* In passes of one row, experts that the core predicts for the next layer are copied while this one
 * is computed. Before there is a core. */
void cuda_prefetch(struct device *d);

/* Changes what passes from now on do: between two of them, or before there is a core. cooperative:
 * after cuda_cooperate only. */
void cuda_policy(struct device *d, bool cooperative, bool prefetch);

/* Between passes: another sequence begins (--gpu-eviction). */
void cuda_sequence(struct device *d);

/* Tests: where the host reads and writes memory that was shared; without, where it was shared. */
void cuda_pointers(struct device *d, void *(*pointer)(const void *shared));

/* Bytes that it has now of a part; copied to and from the GPU so far. */
uint64_t cuda_bytes(const struct device *d, enum cuda_part part);
struct cuda_copied {
    uint64_t to_device, to_host;
    uint64_t kv_to_device, kv_to_host; /* of these, keys, values and states */
};
struct cuda_copied cuda_copied(const struct device *d);
/* Time from the first operation after a wait until the next wait had its end. */
uint64_t cuda_busy_ns(const struct device *d);
/* Tokens that it computed by a launch of a graph. */
uint64_t cuda_graph_launches(const struct device *d);
struct places_counts cuda_slot_counts(const struct device *d);
/* Every expert of its layers has one. */
bool cuda_holds_all(const struct device *d);
/* Slots that have an expert; slots as its memory is divided now (places_capacity). */
uint32_t cuda_slots_used(const struct device *d);
uint32_t cuda_slots(const struct device *d);

#endif
