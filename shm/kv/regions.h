/* SPDX-License-Identifier: Apache-2.0 */
/* Regions of a slot: of every layer one of keys, then one of values; then of every layer one of the
 * indexer's keys, which is empty where the layer has none. For the files of this directory. */
#ifndef SLUICE_SHM_KV_REGIONS_H
#define SLUICE_SHM_KV_REGIONS_H

#include "shm/kv/kv.h"

static inline uint32_t kv_region_count(const struct kv_head *h)
{
    return 3 * h->layers;
}

static inline uint32_t kv_index_region(const struct kv_head *h, uint32_t layer)
{
    return 2 * h->layers + layer;
}

static inline bool kv_region_is_index(const struct kv_head *h, uint32_t region)
{
    return region >= 2 * h->layers;
}

/* A layer with a window keeps the last positions only. */
static inline bool kv_region_is_ring(const struct kv_head *h, uint32_t region)
{
    return h->ring > 0 && !kv_region_is_index(h, region) &&
           h->layer_kind[region / 2] == LAYER_WINDOW;
}

static inline uint64_t kv_index_tile_bytes(const struct kv_head *h, uint32_t layer)
{
    uint32_t size = h->layer_indexed[layer];
    return size == 0 ? 0 : h->index_tile_bytes[(size - 1) % 2];
}

static inline uint64_t kv_region_tile_bytes(const struct kv_head *h, uint32_t region)
{
    if (kv_region_is_index(h, region))
        return kv_index_tile_bytes(h, region - 2 * h->layers);
    return h->tile_bytes[h->layer_kind[region / 2]][region % 2];
}

/* Memory of `tokens` positions of a region; of the regions before this one. */
uint64_t kv_region_bytes(const struct kv_head *h, uint32_t region, uint64_t tokens);
uint64_t kv_regions_bytes(const struct kv_head *h, uint32_t regions, uint64_t tokens);

/* Of the region of a slot in the segment. */
uint64_t kv_region_offset(const struct kv *kv, uint32_t slot, uint32_t region);

/* The first position of that region. */
void *kv_region_at(const struct kv *kv, uint32_t slot, uint32_t region);

/* Frees memory of the segment; what can no longer be accounted for ends the process. */
void kv_punch(const struct kv *kv, uint64_t offset, uint64_t bytes);
/* -1 with *error: segment_allocate returned rc for `bytes` of `what`. */
int kv_no_space(uint64_t bytes, const char *what, int rc, struct error *error);

#endif
