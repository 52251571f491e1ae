/* SPDX-License-Identifier: Apache-2.0 */
/* Tiles of a window in a ring. */
#ifndef SLUICE_SHM_KV_WINDOW_H
#define SLUICE_SHM_KV_WINDOW_H

#include "shm/kv/kv.h"

/* Most tiles of a ring that the window - 1 positions before a row are in. */
static inline uint32_t kv_window_tiles(const struct kv_head *h)
{
    uint32_t tiles = (h->window + KV_TILE - 3) / KV_TILE + 1, ring = h->ring / KV_TILE;
    return tiles < ring ? tiles : ring;
}

#endif
