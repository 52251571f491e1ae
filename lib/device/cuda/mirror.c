/* SPDX-License-Identifier: Apache-2.0 */
/* Host memory on the device. Weights are copied once, experts into slots (slots.c), parts of sequences for each
 * operation, as the table of operations states what it has of them. */
#include <stdlib.h>
#include <string.h>

#include "lib/device/cuda/internal.h"

/* ---- weights ---- */

static void *known(const struct mirrors *m, const void *memory, size_t bytes)
{
    for (size_t i = 0; i < m->count; i++)
        if (m->all[i].host == memory && m->all[i].bytes >= bytes)
            return m->all[i].memory;
    return NULL;
}

static void *weights(struct cuda *c, const void *memory, size_t bytes)
{
    struct mirrors *m = &c->weights;
    void *to = known(m, memory, bytes);
    if (to)
        return to;
    if (m->count == m->space) {
        m->space = m->space * 2 + 64;
        m->all = realloc(m->all, m->space * sizeof *m->all);
        sl_assert(m->all);
    }
    to = cuda_take(&c->weights_area, bytes);
    sl_assert(to); /* the plan has all of them */
    m->all[m->count++] = (struct mirror){memory, bytes, to};
    cuda_to_device(c, to, memory, bytes);
    return to;
}

struct device_at cuda_share(struct device *d, const void *memory, size_t bytes,
                            enum device_share_kind kind, uint64_t content)
{
    struct cuda *c = cuda_of(d);
    if (!memory || bytes == 0 || kind == DEVICE_SHARE_SEQUENCE)
        return device_address(memory); /* of the host: for cuda_take_* */
    return device_address(kind == DEVICE_SHARE_LENT ? cuda_slot(c, content, memory, bytes)
                                                    : weights(c, memory, bytes));
}

/* ---- parts of sequences ---- */

/* Of the sequences of an operation. */
static void *take(struct cuda *c, size_t bytes)
{
    void *memory = cuda_take(&c->kv_area, bytes);
    sl_assert(memory); /* the plan has the longest sequence */
    return memory;
}

/* Copies each tile with positions [begin, end): all heads of a tile are next to each other. */
static void each_tile(struct cuda *c, const struct device_sequence *s, uint32_t begin, uint32_t end,
                      size_t bytes, uint8_t *host, uint8_t *memory, bool up)
{
    for (uint64_t p = begin / KV_TILE * KV_TILE; p < end; p += KV_TILE) {
        size_t at = kernel_ring_position(s->ring, (uint32_t)p) / KV_TILE * bytes;
        if (up)
            cuda_to_device(c, memory + at, host + at, bytes);
        else
            cuda_to_host(c, host + at, memory + at, bytes);
    }
}

/* A part of a sequence is copied to the host: not in its memory before the next wait. */
static void note_kept(struct cuda *c, struct device_at host)
{
    if (c->kept_count == KEPT_MAX)
        cuda_wait(c);
    c->kept[c->kept_count++] = host.address;
}

static void wait_for_kept(struct cuda *c, struct device_at host)
{
    for (uint32_t i = 0; i < c->kept_count; i++)
        if (c->kept[i] == host.address) {
            cuda_wait(c);
            return;
        }
}

struct device_at cuda_take_cache(struct cuda *c, struct device_at host,
                                 const struct device_sequence *s, struct device_span span,
                                 unsigned access, uint32_t heads, uint32_t size, uint32_t window)
{
    if (!host.address)
        return host;
    wait_for_kept(c, host);
    uint8_t *memory = take(c, device_cache_bytes(s, span.end, heads, size));
    uint32_t begin =
        access & DEVICE_READS ? kernel_attention_begin(window, span.first + 1) : span.first;
    each_tile(c, s, begin, span.end, heads * (size_t)kv_tile_bytes(s->kv_type, size),
              device_pointer(host), memory, true);
    return device_address(memory);
}

void cuda_keep_cache(struct cuda *c, struct device_at host, struct device_at memory,
                     const struct device_sequence *s, struct device_span span, unsigned access,
                     uint32_t heads, uint32_t size)
{
    if (!host.address || !(access & DEVICE_APPENDS))
        return;
    each_tile(c, s, span.first, span.end, heads * (size_t)kv_tile_bytes(s->kv_type, size),
              device_pointer(host), device_pointer(memory), false);
    note_kept(c, host);
}

struct device_at cuda_take_state(struct cuda *c, struct device_at host, unsigned access,
                                 size_t floats)
{
    if (!host.address)
        return host;
    wait_for_kept(c, host);
    void *memory = take(c, floats * sizeof(float));
    if (access & DEVICE_READS)
        cuda_to_device(c, memory, device_pointer(host), floats * sizeof(float));
    return device_address(memory);
}

void cuda_keep_state(struct cuda *c, struct device_at host, struct device_at memory,
                     unsigned access, size_t floats)
{
    if (!host.address || !(access & DEVICE_WRITES))
        return;
    cuda_to_host(c, device_pointer(host), device_pointer(memory), floats * sizeof(float));
    note_kept(c, host);
}
