/* SPDX-License-Identifier: Apache-2.0 */
/* Sizes and places of entries, which stand for several positions each in attention. */
#ifndef SLUICE_DEVICE_ENTRY_H
#define SLUICE_DEVICE_ENTRY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/tensor/kv_type.h"

/* Entries: keys that are values, too, of `size` elements, the last `rope` of them rotated; each
 * stands for `unit` positions, 0: there are none. Beside them, attention is over the last `window`
 * positions. With an indexer, `index` elements are of its keys, one for each entry, and a row has
 * `heads` queries, by which it attends to at most `chosen` entries; its entries reach back to the
 * positions of the one before them. A row sees the entries that end at its position or before. */
struct device_entries {
    uint32_t unit, size, rope, window;
    uint32_t index, heads, chosen;
    float eps;
};

/* 2: what a position adds to the entry after its own stands before what it adds to its own. */
static inline uint32_t device_entry_parts(const struct device_entries *a)
{
    return a->index > 0 ? 2 : 1;
}

/* Floats of a position: values and gates of entries, then those of the indexer's keys. */
static inline uint32_t device_entry_row(const struct device_entries *a)
{
    return 2 * device_entry_parts(a) * (a->size + a->index);
}

/* Rows of a state, of which position p has the one of number p % this; and their floats. */
static inline uint32_t device_entry_past(const struct device_entries *a)
{
    return device_entry_parts(a) * a->unit;
}

static inline size_t device_entry_floats(const struct device_entries *a)
{
    return (size_t)device_entry_past(a) * device_entry_row(a);
}

static inline uint32_t device_entries_seen(const struct device_entries *a, uint32_t position)
{
    return a->unit > 0 ? (position + 1) / a->unit : 0;
}

/* Bytes of the entries up to position `end`, with their keys: of whole tiles of positions. */
static inline size_t device_entry_bytes(const struct device_entries *a, enum kv_type type,
                                        uint32_t end)
{
    return (end + KV_TILE - 1) / KV_TILE *
           (size_t)(kv_tile_bytes(type, a->size + a->index) / a->unit);
}

/* Where an entry is, or its key: each tile of positions has the entries that end in it, then their
 * keys. Elements from the first one on. */
static inline size_t device_entry_at(const struct device_entries *a, uint32_t entry, bool key)
{
    uint32_t tile = KV_TILE / a->unit; /* 0 where an entry has several tiles, and no key */
    if (tile == 0)
        return (size_t)entry * a->size;
    size_t first = (size_t)(entry / tile) * tile * (a->size + a->index);
    return first + (key ? (size_t)tile * a->size + (size_t)(entry % tile) * a->index
                        : (size_t)(entry % tile) * a->size);
}

#endif
