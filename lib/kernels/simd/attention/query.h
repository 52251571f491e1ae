/* SPDX-License-Identifier: Apache-2.0 */
/* Template, included by attention.h: queries and blocks of them. */
#include "lib/kernels/kv_layout.h"

#define TILE_QUERIES  (VL / 4)           /* queries of a register tile; */
#define MANY_QUERIES  (VL == 16 ? 4 : 3) /* of one with transposed keys or converted values */
#define BLOCK_QUERIES 96                 /* of a block at most, fewer of heads above 128 */
#define BLOCK_FLOATS  (BLOCK_QUERIES * 128)
#define TURNED_SIZE   256 /* keys of larger heads are not transposed, */
#define TURNED_FROM   32  /* nor are those of fewer queries: it would not pay */
#define KEY_VECTORS   4   /* of transposed keys in a register tile */
#define KEYS_TOGETHER (KEY_VECTORS * VL)
#define PART_VECTORS  4 /* of values that are converted at a time */
#define PART_SIZE     (PART_VECTORS * VL)
#define TILE_KEYS     KERNEL_KEY_TILE
#define SEGMENT_TILES (KERNEL_KEY_SEGMENT / TILE_KEYS)
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
    float *acc;           /* [acc_size] weighted values of the segment; `out`: of those before */
    float *p;             /* [TILE_KEYS] scores, then weights */
    float old;            /* factor of acc at the current tile */
    uint32_t first, keys; /* of the current tile it attends to the keys [first, keys) */
    struct key_query *quantised; /* if the keys are */
    float olds[VL];              /* like `old`, of the parts of a packed tile (chosen.h) */
};

_Static_assert(SEGMENT_TILES <= VL, "olds");

/* A tile of Q8_0 of a key. */
#define PACKED_BYTES (TILE_KEYS * (KERNEL_HEAD_SIZE_MAX + KERNEL_HEAD_SIZE_MAX / QK * 2))

struct query_block {
    enum kv_type type;
    uint32_t size, padded; /* of a query or key head; to a multiple of 32 */
    uint32_t value_size, value_padded;
    uint32_t acc_size;             /* value_size, padded to PART_SIZE */
    size_t key_bytes, value_bytes; /* of a tile of a head */
    float scale, cap;
    uint32_t count, max; /* queries; of them at most */
    bool turns;          /* whether keys are transposed for many queries */
    struct query query[BLOCK_QUERIES];
    struct query spare; /* fills up a register tile; its values are not used */
    _Alignas(64) float p[BLOCK_QUERIES][TILE_KEYS];
    _Alignas(64) float spare_p[TILE_KEYS];
    _Alignas(64) float sums[BLOCK_FLOATS + KERNEL_WIDE_VALUE_MAX]; /* the last: of `spare` */
    _Alignas(64) float part[TILE_KEYS * PART_SIZE];                /* of values, in F32 */
    union {
        struct { /* queries, a register tile of them element by element, and keys, element by
                  * element; element d of both is number (d % 16) * steps + d / 16 */
            _Alignas(64) float queries[BLOCK_FLOATS];
            _Alignas(64) float keys[TURNED_SIZE * KEYS_TOGETHER];
        } turned;
        struct {
            struct key_query query[BLOCK_QUERIES];
            _Alignas(64) float value_scale[TILE_KEYS * (KERNEL_VALUE_SIZE_MAX / QK)];
            _Alignas(64) uint8_t codes[TILE_KEYS * KERNEL_VALUE_SIZE_MAX]; /* of values in keys */
            _Alignas(64) uint8_t packed[PACKED_BYTES];
        } quantised;
        _Alignas(64) uint8_t packed[TILE_KEYS * KERNEL_HEAD_SIZE_MAX * sizeof(float)];
    };
};

/* The next queries of [first, end), at most `most`; the tile is filled up. */
static ALWAYS_INLINE uint32_t pick(struct query_block *b, uint32_t first, uint32_t end,
                                   const uint32_t most, struct query *q[])
{
    uint32_t n = end - first < most ? end - first : most;
    for (uint32_t i = 0; i < most; i++)
        q[i] = i < n ? &b->query[first + i] : &b->spare;
    return n;
}
