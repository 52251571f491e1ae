/* SPDX-License-Identifier: Apache-2.0 */
/* Template, included by attention.h: queries and blocks of them. */
#include "lib/kernels/kv_layout.h"

#define TILE_QUERIES  (VL / 4) /* queries of a register tile */
#define BLOCK_QUERIES 32       /* of a block at most: 64 KiB of sums, so fewer of large heads */
#define UNPACKED_SIZE 256 /* keys and values of larger heads are not converted for all queries */
#define TILE_KEYS     KERNEL_KEY_TILE
#define KEY_SUMS      8 /* vectors of products with quantised keys */

/* Softmax over the keys of a segment so far, and over those of all segments before it. */
struct query {
    const float *q;
    float *out;
    uint32_t positions; /* of its row */
    uint32_t begin;     /* the first key that it attends to */
    uint32_t kv_head;
    float sink; /* if there are sinks */
    float m, l, all_m, all_l;
    float *acc, *all;            /* weighted values, padded to 32 */
    float *p;                    /* [TILE_KEYS] scores, then weights */
    float old;                   /* factor of acc at the current tile */
    uint32_t first, keys;        /* of the current tile it attends to the keys [first, keys) */
    struct key_query *quantised; /* if the keys are */
};

struct query_block {
    enum kv_type type;
    uint32_t size, padded; /* of a query or key head; to a multiple of 32 */
    uint32_t value_size, value_padded;
    uint32_t unpacked;             /* elements of a converted row: the larger padded size */
    size_t key_bytes, value_bytes; /* of a tile of a head */
    float scale, cap;
    uint32_t count, max; /* queries; of them at most */
    struct query query[BLOCK_QUERIES];
    struct query spare; /* fills up a register tile; its values are not used */
    _Alignas(64) float p[BLOCK_QUERIES][TILE_KEYS];
    _Alignas(64) float spare_p[TILE_KEYS];
    struct key_query quantised[BLOCK_QUERIES];
    /* Of quantised values. */
    _Alignas(64) float value_scale[TILE_KEYS * (KERNEL_VALUE_SIZE_MAX / QK)];
    _Alignas(64) uint8_t value_codes[TILE_KEYS * KERNEL_VALUE_SIZE_MAX]; /* if they are keys */
    _Alignas(64) float sums[(2 * BLOCK_QUERIES + 1) * UNPACKED_SIZE];
    /* Keys or values of a tile, rows of their padded size. Only what a head needs is touched. */
    _Alignas(64) float tile[TILE_KEYS * UNPACKED_SIZE];
};

/* The queries of a register tile; the last tile is filled up. */
static uint32_t pick(struct query_block *b, uint32_t first, uint32_t end,
                     struct query *q[TILE_QUERIES])
{
    uint32_t n = end - first < TILE_QUERIES ? end - first : TILE_QUERIES;
    for (uint32_t i = 0; i < TILE_QUERIES; i++)
        q[i] = i < n ? &b->query[first + i] : &b->spare;
    return n;
}
