/* SPDX-License-Identifier: Apache-2.0 */
/* Copies blocks of a slot: parts of all regions, one after another. */
#include "shm/kv/blocks.h"

#include <string.h>

#include "lib/base/assert.h"
#include "shm/kv/regions.h"

static uint32_t ring_tiles(const struct kv_head *h, uint32_t tokens)
{
    return ((tokens < h->ring ? tokens : h->ring) + KV_TILE - 1) / KV_TILE;
}

static uint64_t bytes_of(const struct kv_head *h, bool rings, uint32_t tiles)
{
    uint64_t bytes = 0;
    for (uint32_t region = 0; region < kv_region_count(h); region++)
        bytes +=
            kv_region_is_ring(h, region) == rings ? tiles * kv_region_tile_bytes(h, region) : 0;
    return bytes;
}

uint64_t kv_tile_block_bytes(const struct kv_head *h)
{
    return bytes_of(h, false, 1);
}

uint64_t kv_ring_block_bytes(const struct kv_head *h, uint32_t tokens)
{
    return bytes_of(h, true, ring_tiles(h, tokens));
}

/* Of each region, `tiles` tiles from `tile` on are in the block; those from `end` on are left. */
struct block {
    bool rings;
    uint32_t tile, tiles, end;
};

static void copy(const struct kv *kv, uint32_t slot, const struct block *b, uint64_t at,
                 uint64_t bytes, char *buffer, bool to_slot)
{
    const struct kv_head *h = kv->head;
    uint64_t start = 0;
    for (uint32_t region = 0; region < kv_region_count(h); region++) {
        if (kv_region_is_ring(h, region) != b->rings)
            continue;
        uint64_t tile = kv_region_tile_bytes(h, region), size = b->tiles * tile;
        uint64_t room = b->end > b->tile ? (b->end - b->tile) * tile : 0;
        char *rows = kv_region_at(kv, slot, region);
        uint64_t from = at > start ? at : start;
        uint64_t to = at + bytes < start + size ? at + bytes : start + size;
        uint64_t limit = start + (room < size ? room : size);
        to = to < limit ? to : limit;
        if (from < to) {
            char *in_slot = rows + b->tile * tile + (from - start), *in = buffer + (from - at);
            memcpy(to_slot ? in_slot : in, to_slot ? in : in_slot, to - from);
        }
        start += size;
    }
}

void kv_tile_block_copy(const struct kv *kv, uint32_t slot, uint32_t tile, uint64_t at,
                        uint64_t bytes, void *buffer, bool to_slot)
{
    const struct block b = {.tile = tile, .tiles = 1, .end = tile + 1};
    sl_assert(tile * KV_TILE < atomic_load(&kv->head->slot[slot].allocated));
    copy(kv, slot, &b, at, bytes, buffer, to_slot);
}

void kv_ring_block_copy(const struct kv *kv, uint32_t slot, uint32_t tokens, uint64_t at,
                        uint64_t bytes, void *buffer, bool to_slot)
{
    uint32_t allocated = atomic_load(&kv->head->slot[slot].allocated);
    const struct block b = {.rings = true,
                            .tiles = ring_tiles(kv->head, tokens),
                            .end = ring_tiles(kv->head, allocated)};
    copy(kv, slot, &b, at, bytes, buffer, to_slot);
}
