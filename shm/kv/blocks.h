/* SPDX-License-Identifier: Apache-2.0 */
/* Shows what a slot has as blocks of bytes that can be written to storage and read back in pieces:
 * a tile of positions of all layers that have all positions, and the rings. */
#ifndef SLUICE_SHM_KV_BLOCKS_H
#define SLUICE_SHM_KV_BLOCKS_H

#include "shm/kv/kv.h"

/* Bytes of a block: of a tile; of the rings after `tokens` positions. */
uint64_t kv_tile_block_bytes(const struct kv_head *h);
uint64_t kv_ring_block_bytes(const struct kv_head *h, uint32_t tokens);

/* Copies bytes [at, at + bytes) of a block to a buffer, or from one (`to_slot`). The slot has
 * memory for the tile. Of the rings, a slot with fewer positions takes no tiles beyond them. */
void kv_tile_block_copy(const struct kv *kv, uint32_t slot, uint32_t tile, uint64_t at,
                        uint64_t bytes, void *buffer, bool to_slot);
void kv_ring_block_copy(const struct kv *kv, uint32_t slot, uint32_t tokens, uint64_t at,
                        uint64_t bytes, void *buffer, bool to_slot);

#endif
