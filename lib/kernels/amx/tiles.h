/* SPDX-License-Identifier: Apache-2.0 */
/* Products of several rows in tiles of AMX. A product of tiles adds to the sums of 16 outputs and
 * 16 rows of activations the products of up to 64 bytes. Weights are the first operand: a row of
 * bytes per output, as they are stored. Activations are the second: 16 rows, transposed by words of
 * four bytes. The sums are a row per output. */
#ifndef SLUICE_KERNELS_AMX_TILES_H
#define SLUICE_KERNELS_AMX_TILES_H

#include "lib/kernels/avx512/bytes.h"

#define TILE_ROWS    16 /* of activations */
#define TILE_OUTPUTS 16
#define TILE_BYTES   64 /* of a register's row at most */

/* The registers, whose numbers are part of the instructions:
 *   0 to 3   sums
 *   4, 5     weights
 *   6, 7     activations */
#define TILE_FIRST_W 4
#define TILE_FIRST_X 6

struct tile_shapes { /* as the instruction reads it */
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};
_Static_assert(sizeof(struct tile_shapes) == 64, "memory operand of LDTILECFG");

/* Makes earlier stores visible to loads of tiles: the compiler's functions for tiles do not state
 * what they read. */
static ALWAYS_INLINE void tiles_written(void)
{
    __asm__ volatile("" ::: "memory");
}

/* Products of `bytes` bytes, until tiles_end. Every kernel ends it before it returns: the state of
 * a thread that is switched is then small. */
static ALWAYS_INLINE void tiles_begin(uint32_t bytes)
{
    struct tile_shapes s = {.palette = 1};
    for (int i = 0; i < 8; i++) {
        s.row_bytes[i] = i >= TILE_FIRST_W && i < TILE_FIRST_X ? (uint16_t)bytes : TILE_BYTES;
        s.rows[i] = i >= TILE_FIRST_X ? (uint8_t)(bytes / 4) : TILE_OUTPUTS;
    }
    tiles_written();
    _tile_loadconfig(&s);
}

static ALWAYS_INLINE void tiles_end(void)
{
    _tile_release();
}

/* Sums of 16 outputs and 16 rows. */
typedef float tile_floats[TILE_OUTPUTS][TILE_ROWS];
typedef int32_t tile_ints[TILE_OUTPUTS][TILE_ROWS];

#define TREE 3 /* open sums: of 1, 2, 4 partial sums */

/* The open sums of an output, and the result. */
typedef tile_floats tile_tree[TREE + 1];

/* A complete partial sum of an output: adds it to those before it as far as the tree goes. */
static ALWAYS_INLINE void tile_close(tile_tree sums, uint32_t part, int output, vf v)
{
    const uint32_t levels = (uint32_t)__builtin_ctz(part + 1);
    for (uint32_t level = 0; level < levels; level++)
        v = vf_add(vf_load(sums[level][output]), v);
    vf_store(sums[levels][output], v);
}

/* Rows of activations, in tiles; the last one's missing rows repeat the last row. */
struct tile_rows {
    const uint8_t *x;
    size_t stride;
    uint32_t rows, tiles;
};

static ALWAYS_INLINE struct tile_rows tile_rows_of(const uint8_t *x, size_t stride, uint32_t rows)
{
    return (struct tile_rows){x, stride, rows, (rows + TILE_ROWS - 1) / TILE_ROWS};
}

static ALWAYS_INLINE void tile_row_pointers(const struct tile_rows *r, uint32_t tile, size_t at,
                                            const uint8_t *row[TILE_ROWS])
{
    for (uint32_t i = 0; i < TILE_ROWS; i++) {
        const uint32_t n = tile * TILE_ROWS + i;
        row[i] = r->x + (n < r->rows ? n : r->rows - 1) * r->stride + at;
    }
}

/* 16 bytes of each row, as four rows of a register. */
static ALWAYS_INLINE void tile_words(const uint8_t *const row[TILE_ROWS], size_t at,
                                     uint8_t words[4][TILE_BYTES])
{
    vq v[4];
    vq_transpose(row, at, v);
    UNROLL for (int e = 0; e < 4; e++) vq_store(words[e], v[e]);
}

/* A float of each row. */
static ALWAYS_INLINE void tile_scales(const uint8_t *const row[TILE_ROWS], size_t at,
                                      float d[TILE_ROWS])
{
    for (int i = 0; i < TILE_ROWS; i++)
        d[i] = load_f32(row[i] + at);
}

/* Finished sums of tile `tile`, of the first `outputs` outputs, into y. */
static ALWAYS_INLINE void tile_store(tile_floats sums, const struct tile_rows *r, uint32_t tile,
                                     float *y, size_t y_stride, uint32_t outputs)
{
    const uint8_t *output[TILE_OUTPUTS];
    UNROLL for (int i = 0; i < TILE_OUTPUTS; i++) output[i] = (const uint8_t *)sums[i];
    for (uint32_t i = 0; i < TILE_ROWS; i += 4) {
        vq v[4];
        vq_transpose(output, i * sizeof(float), v);
        UNROLL for (uint32_t e = 0; e < 4; e++)
        {
            const uint32_t row = tile * TILE_ROWS + i + e;
            if (row < r->rows)
                vf_store_n(y + row * y_stride, vi_as_float(v[e]), outputs);
        }
    }
}

#endif
