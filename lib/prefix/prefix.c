/* SPDX-License-Identifier: Apache-2.0 */
/* The layout of a prefix file: where its tables and blocks are, and which of them a prompt uses. */
#include "lib/prefix/prefix.h"

#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#include "lib/base/assert.h"
#include "lib/base/bytes.h"

uint32_t prefix_tiles(const struct prefix_head *h)
{
    return h->tile_bytes > 0 ? (h->tokens + PREFIX_TILE - 1) / PREFIX_TILE : 0;
}

uint32_t prefix_ring_block(const struct prefix_head *h)
{
    return prefix_tiles(h);
}

uint32_t prefix_state_block(const struct prefix_head *h)
{
    return prefix_tiles(h) + (h->ring_bytes > 0);
}

uint32_t prefix_blocks(const struct prefix_head *h)
{
    return prefix_state_block(h) + h->states;
}

uint64_t prefix_tables_bytes(const struct prefix_head *h)
{
    return ((uint64_t)h->tokens + h->states) * sizeof(uint32_t) +
           (uint64_t)prefix_blocks(h) * sizeof(uint64_t);
}

static uint64_t aligned(uint64_t bytes)
{
    return align_up(bytes, PREFIX_ALIGN);
}

uint64_t prefix_block_bytes(const struct prefix_head *h, uint32_t block)
{
    sl_assert(block < prefix_blocks(h));
    return aligned(block < prefix_tiles(h)         ? h->tile_bytes
                   : block < prefix_state_block(h) ? h->ring_bytes
                                                   : h->state_bytes);
}

uint64_t prefix_block_offset(const struct prefix_head *h, uint32_t block)
{
    uint32_t tiles = prefix_tiles(h), states = prefix_state_block(h);
    uint64_t at = PREFIX_ALIGN + aligned(prefix_tables_bytes(h));
    at += (block < tiles ? block : tiles) * aligned(h->tile_bytes);
    at += block > tiles && states > tiles ? aligned(h->ring_bytes) : 0;
    return at + (block > states ? block - states : 0) * aligned(h->state_bytes);
}

uint64_t prefix_file_bytes(const struct prefix_head *h)
{
    return prefix_block_offset(h, prefix_blocks(h));
}

uint32_t *prefix_tokens(const struct prefix_head *h, void *tables)
{
    (void)h;
    return tables;
}

uint32_t *prefix_positions(const struct prefix_head *h, void *tables)
{
    return (uint32_t *)tables + h->tokens;
}

static size_t checksum_at(const struct prefix_head *h, uint32_t block)
{
    sl_assert(block < prefix_blocks(h));
    return ((size_t)h->tokens + h->states) * sizeof(uint32_t) + block * sizeof(uint64_t);
}

uint64_t prefix_checksum(const struct prefix_head *h, const void *tables, uint32_t block)
{
    uint64_t sum;
    memcpy(&sum, (const char *)tables + checksum_at(h, block), sizeof sum);
    return sum;
}

void prefix_set_checksum(const struct prefix_head *h, void *tables, uint32_t block, uint64_t sum)
{
    memcpy((char *)tables + checksum_at(h, block), &sum, sizeof sum);
}

bool prefix_same_bond(const struct prefix_bond *a, const struct prefix_bond *b)
{
    return memcmp(a, b, sizeof *a) == 0; /* it has no padding */
}

_Static_assert(sizeof(struct prefix_bond) == 40, "no padding");

void prefix_name(const struct prefix_bond *bond, const uint32_t *tokens, uint32_t count,
                 char name[PREFIX_NAME_BYTES])
{
    uint64_t seed = XXH3_64bits(bond, sizeof *bond);
    uint64_t hash = XXH3_64bits_withSeed(tokens, count * sizeof *tokens, seed);
    snprintf(name, PREFIX_NAME_BYTES, "%016llx" PREFIX_NAME_SUFFIX, (unsigned long long)hash);
}

bool prefix_is_name(const char *name)
{
    return strspn(name, "0123456789abcdef") == 16 && strcmp(name + 16, PREFIX_NAME_SUFFIX) == 0;
}

static uint32_t last_state(const struct prefix_head *h, const uint32_t *positions, uint32_t common)
{
    uint32_t found = PREFIX_NO_STATE;
    for (uint32_t i = 0; i < h->states && positions[i] <= common; i++)
        found = i;
    return found;
}

struct prefix_use prefix_use(const struct prefix_head *h, const uint32_t *positions,
                             uint32_t common, bool recurrent)
{
    if (common > h->tokens)
        common = h->tokens;
    bool cuts = !recurrent && (h->ring_bytes == 0 || common >= h->lowest);
    if (cuts)
        return (struct prefix_use){.rows = common, .state = PREFIX_NO_STATE};
    uint32_t state = last_state(h, positions, common);
    return state == PREFIX_NO_STATE ? (struct prefix_use){.rows = 0, .state = state}
                                    : (struct prefix_use){.rows = positions[state], .state = state};
}

uint64_t prefix_use_bytes(const struct prefix_head *h, struct prefix_use use, uint32_t from)
{
    if (use.rows <= from)
        return 0;
    uint64_t tiles = (use.rows + PREFIX_TILE - 1) / PREFIX_TILE - from / PREFIX_TILE;
    uint64_t bytes = h->tile_bytes > 0 ? tiles * aligned(h->tile_bytes) : 0;
    bool ring = h->ring_bytes > 0 && use.state == PREFIX_NO_STATE;
    return bytes + (ring ? aligned(h->ring_bytes) : 0) +
           (use.state != PREFIX_NO_STATE ? aligned(h->state_bytes) : 0);
}
