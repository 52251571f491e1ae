/* SPDX-License-Identifier: Apache-2.0 */
/* Host memory on the device. Weights are copied once; experts until the next wait, whose copies are reused
 * then; parts of sequences for each operation, as the table of operations states what it has of them. */
#include <stdlib.h>
#include <string.h>

#include "lib/device/cuda/internal.h"

/* ---- weights and experts ---- */

static struct mirror *new_mirror(struct cuda *c, size_t bytes)
{
    if (c->mirrors == c->mirror_space) {
        c->mirror_space = c->mirror_space * 2 + 64;
        c->mirror = realloc(c->mirror, c->mirror_space * sizeof *c->mirror);
        sl_assert(c->mirror);
    }
    struct mirror *m = &c->mirror[c->mirrors];
    *m = (struct mirror){.bytes = bytes};
    cuda_check(c->k->allocate(bytes, &m->memory), "an allocation for weights");
    c->mirrors++;
    return m;
}

/* A free one that is large enough, but not several times as large. */
static struct mirror *free_mirror(struct cuda *c, size_t bytes)
{
    for (size_t i = 0; i < c->mirrors; i++) {
        struct mirror *m = &c->mirror[i];
        if (m->lent && !m->in_use && m->bytes >= bytes && m->bytes / 2 <= bytes)
            return m;
    }
    return new_mirror(c, bytes);
}

static struct mirror *known(struct cuda *c, const void *memory, size_t bytes, bool lent)
{
    for (size_t i = 0; i < c->mirrors; i++) {
        struct mirror *m = &c->mirror[i];
        if (m->host == memory && m->lent == lent && (!lent || m->in_use) && m->bytes >= bytes)
            return m;
    }
    return NULL;
}

struct device_at cuda_share(struct device *d, const void *memory, size_t bytes,
                            enum device_share_kind kind)
{
    struct cuda *c = cuda_of(d);
    bool lent = kind == DEVICE_SHARE_LENT;
    if (!memory || bytes == 0 || kind == DEVICE_SHARE_SEQUENCE)
        return device_address(memory); /* of the host: for cuda_take_* */
    struct mirror *m = known(c, memory, bytes, lent);
    if (!m) {
        m = lent ? free_mirror(c, bytes) : new_mirror(c, bytes);
        m->host = memory;
        m->lent = lent;
        m->in_use = true;
        cuda_to_device(c, m->memory, memory, bytes);
    }
    return device_address(m->memory);
}

void cuda_end_lent(struct cuda *c)
{
    for (size_t i = 0; i < c->mirrors; i++)
        if (c->mirror[i].lent)
            c->mirror[i].in_use = false;
}

void cuda_free_mirrors(struct cuda *c)
{
    for (size_t i = 0; i < c->mirrors; i++)
        c->k->release(c->mirror[i].memory);
    free(c->mirror);
}

/* ---- parts of sequences ---- */

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
    uint8_t *memory = cuda_scratch(c, device_cache_bytes(s, span.end, heads, size));
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
    void *memory = access & DEVICE_READS
                       ? cuda_upload(c, device_pointer(host), floats * sizeof(float))
                       : cuda_scratch(c, floats * sizeof(float));
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
