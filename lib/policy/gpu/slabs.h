/* SPDX-License-Identifier: Apache-2.0 */
/* Divides the memory that a device has for experts, where they differ in size. Distinct sizes are
 * classes. The memory is slabs of one size; a slab belongs to one class at a time and has places of
 * it. The size of a slab is chosen so that no class wastes much of one. Where all experts have one
 * size, a slab is a place. */
#ifndef SLUICE_POLICY_GPU_SLABS_H
#define SLUICE_POLICY_GPU_SLABS_H

#include <stdint.h>

#include "lib/model/limits.h"
#include "lib/tensor/precision.h"

#define SLABS_CLASSES_MAX 16 /* more sizes: the nearest ones are one class */
#define SLABS_ALIGN       256

/* The size of the largest expert of each precision and layer that may come; 0: there is none. */
struct expert_sizes {
    uint32_t experts; /* of a layer */
    uint64_t bytes[PRECISION__COUNT][MODEL_LAYERS_MAX];
};

/* Sets the same size for all layers and precisions. */
void expert_sizes_fill(struct expert_sizes *sizes, uint32_t layers, uint32_t experts,
                       uint64_t bytes);
/* An expert has so many bytes: the size of its precision and layer becomes at least that. */
void expert_sizes_add(struct expert_sizes *sizes, uint32_t precision, uint32_t layer,
                      uint64_t bytes);
/* The largest size of a precision in bytes, over all layers; 0: it has no experts. */
uint64_t expert_sizes_of(const struct expert_sizes *sizes, enum precision precision);
/* The largest size of all precisions. */
uint64_t expert_sizes_largest(const struct expert_sizes *sizes);

struct slabs {
    uint64_t bytes; /* of a slab */
    uint32_t count;
    uint32_t classes; /* the one with the largest experts first */
    uint64_t class_bytes[SLABS_CLASSES_MAX];
    uint32_t places[SLABS_CLASSES_MAX]; /* of a slab of that class */
    uint32_t places_max;
    uint8_t class_of[PRECISION__COUNT][MODEL_LAYERS_MAX]; /* classes: no experts */
};

/* Divides `bytes` of memory into slabs. If all experts fit with some size of slabs, the size that
 * needs the smallest part of the memory is chosen; otherwise the one with which the class that it
 * suits worst can use the largest part. There are at least `minimum` slabs if so many of the
 * largest experts fit. Called again with count * bytes of its result, it returns the same result.
 * Pre: one size is above 0. */
struct slabs slabs_divide(const struct expert_sizes *sizes, uint64_t bytes, uint32_t minimum);

/* The number of slabs that all experts of some precisions need; precisions: a mask of
 * 1 << enum precision. */
uint32_t slabs_for(const struct slabs *s, const struct expert_sizes *sizes, unsigned precisions);
/* The number of experts of all precisions together. */
uint32_t expert_sizes_count(const struct expert_sizes *sizes);

#endif
