/* SPDX-License-Identifier: Apache-2.0 */
/* Windows of rings in checkpoints. A version has, for each layer with a ring, kv_window_tiles tiles
 * of keys, then those of values: the tiles that the window is in, in order of their positions. A
 * tile of the ring is copied whole; what it has of other positions is not used. If the window
 * begins and ends in the same tile of the ring, that is copied once. */
#include "shm/kv/window.h"

#include <string.h>

#include "lib/base/assert.h"
#include "shm/kv/regions.h"

struct window {
    uint32_t first, tiles; /* tiles of positions, not of the ring */
};

static struct window window_of(const struct kv_head *h, uint32_t rows)
{
    uint32_t before = rows < h->window - 1 ? rows : h->window - 1;
    if (before == 0)
        return (struct window){0};
    struct window w = {.first = (rows - before) / KV_TILE};
    w.tiles = (rows - 1) / KV_TILE - w.first + 1;
    uint32_t most = kv_window_tiles(h);
    w.tiles = w.tiles < most ? w.tiles : most;
    return w;
}

static void copy(const struct kv *kv, uint32_t slot, uint32_t rows, uint32_t state, bool save)
{
    const struct kv_head *h = kv->head;
    sl_assert(h->ring > 0);
    struct window w = window_of(h, rows);
    uint32_t most = kv_window_tiles(h), ring = h->ring / KV_TILE;
    char *at = (char *)kv_state_at(kv, state) + h->windows_offset;
    for (uint32_t region = 0; region < kv_region_count(h); region++) {
        if (!kv_region_is_ring(h, region))
            continue;
        char *rows_at = kv_region_at(kv, slot, region);
        size_t bytes = h->tile_bytes[LAYER_WINDOW][region % 2];
        for (uint32_t i = 0; i < w.tiles; i++) {
            char *tile = rows_at + (w.first + i) % ring * bytes, *version = at + i * bytes;
            memcpy(save ? version : tile, save ? tile : version, bytes);
        }
        at += most * bytes;
    }
}

void kv_windows_save(const struct kv *kv, uint32_t slot, uint32_t rows, uint32_t state)
{
    copy(kv, slot, rows, state, true);
}

void kv_windows_restore(const struct kv *kv, uint32_t slot, uint32_t rows, uint32_t state)
{
    copy(kv, slot, rows, state, false);
}

/* Of position p, the bytes are those of the last position written at p % ring. So positions from
 * end - ring on are there, and after `rows` rows the next one needs those from rows - (window - 1)
 * on. */
uint32_t kv_ring_lowest(const struct kv_head *h, uint32_t end)
{
    return h->ring > 0 && end > h->ring ? end - h->ring + h->window - 1 : 0;
}
