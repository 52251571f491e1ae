/* SPDX-License-Identifier: Apache-2.0 */
/* Addresses of a device that are pointers of its kernels: the host, and a GPU. */
#ifndef SLUICE_DEVICE_POINTERS_H
#define SLUICE_DEVICE_POINTERS_H

#include "lib/device/device.h"

static inline void *device_pointer(struct device_at at)
{
    return (void *)(uintptr_t)at.address;
}

static inline float *device_floats(struct device_at at)
{
    return device_pointer(at);
}

static inline struct device_at device_address(const void *memory)
{
    return (struct device_at){(uintptr_t)memory};
}

static inline struct kernel_matrix device_kernel_matrix(const struct device_matrix *m)
{
    return (struct kernel_matrix){.data = device_pointer(m->data),
                                  .row_bytes = m->row_bytes,
                                  .k = m->k,
                                  .n = m->n,
                                  .type = m->type};
}

/* Rows [first, first + n) of a matrix. */
static inline struct kernel_matrix device_matrix_part(const struct device_matrix *m, uint32_t first,
                                                      uint32_t n)
{
    struct kernel_matrix part = device_kernel_matrix(m);
    part.data = (const uint8_t *)part.data + first * m->row_bytes;
    part.n = n;
    return part;
}

/* Keys and values from that position on, which is 0 or begins a chunk. */
static inline const void *device_keys_from(const struct layer_attention *a,
                                           const struct device_sequence *s, uint32_t position)
{
    uint32_t at = kernel_ring_position(s->ring, position);
    size_t bytes = kernel_kv_tile(s->kv_type, a->kv_heads, a->key_size, at, 0);
    return device_pointer(device_offset(s->keys, bytes));
}

static inline const void *device_values_from(const struct layer_attention *a,
                                             const struct device_sequence *s, uint32_t position)
{
    uint32_t at = kernel_ring_position(s->ring, position);
    size_t bytes = kernel_kv_tile(s->kv_type, a->kv_heads, a->value_size, at, 0);
    return device_pointer(device_offset(s->values, bytes));
}

#endif
