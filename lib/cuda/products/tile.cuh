/* SPDX-License-Identifier: Apache-2.0 */
/* Products of quantised matrices with many rows: ROWS rows times TILE_ELEMENTS / ROWS outputs per
 * block of 8 warps. A warp has 32 outputs times 16 rows: four products of tensor cores (mma.cuh)
 * per piece of 32 elements. 64 rows where there are so many, because the weights are unpacked again
 * for each ROWS of them; 32 for the experts of a batch, which rarely have more, and whose warps
 * would have nothing to do.
 *
 * A lane has 16 sums, and computes one partial sum after the other, not eight at once: it has one
 * accumulator and three pending sums of the tree for each of them instead of eight accumulators.
 * The pieces are taken in that order: part by part, in a part with a stride of eight units; the
 * part of the matrix that a block needs stays in the L2 cache.
 *
 * Shared memory has two stages: while the pieces of one are multiplied, the activations of the
 * other are copied asynchronously (8.0 and later). Its weights are unpacked before: registers for
 * what was loaded of them would be more than half of those of the sums. While a block waits for
 * them, another one of the multiprocessor multiplies: threads have at most 128 registers, so that
 * there is space for two blocks. */
#ifndef SLUICE_CUDA_PRODUCTS_TILE_CUH
#define SLUICE_CUDA_PRODUCTS_TILE_CUH

#include "lib/cuda/products/mma.cuh"
#include "lib/cuda/products/unit.cuh"

#define TILE_THREADS  256
#define TILE_ELEMENTS 4096
#define TILE_EACH     16 /* sums of a lane */
#define WARP_OUTPUTS  32
#define WARP_ROWS     16

/* Halves of pieces are 16 bytes, rows next to each other: eight of them are one matrix of
 * load_matrices, without bank conflicts. */
template <int ROWS> struct tile_stage {
    enum { OUTPUTS = TILE_ELEMENTS / ROWS, PIECES = TILE_THREADS / OUTPUTS };
    int4 w[PIECES][2][OUTPUTS], x[PIECES][2][ROWS];
    uint32_t scales[PIECES][OUTPUTS]; /* bytes: scale and minimum of each half */
    uint32_t sums[PIECES][ROWS];      /* of activations of each half */
    unit_scales w_unit[PIECES][OUTPUTS], x_unit[PIECES][ROWS];
};

/* ---- the order of pieces ---- */

struct piece_at {
    uint32_t part, unit, piece;
};

template <class T> INLINE void next_piece(piece_at *at, uint32_t units, int by)
{
#pragma unroll
    for (int i = 0; i < by; i++) {
        if (++at->piece < T::PIECES)
            continue;
        at->piece = 0;
        at->unit += PARTS;
        if (at->unit >= units)
            at->unit = ++at->part;
    }
}

/* ---- a stage is filled ---- */

/* The part of each stage that a thread brings. */
struct tile_source {
    const uint8_t *row, *x;  /* an output, and a row; NULL: none */
    uint32_t w_slot, x_slot; /* which of the stage's pieces */
    piece_at w_at, x_at;
};

/* The arrays after the activations: where a unit's numbers are. */
template <class T> INLINE const uint8_t *unit_number(const uint8_t *x, uint32_t k, uint32_t unit)
{
    size_t offset = T::form == FORM_SUPER   ? super_scale_offset(k)
                    : T::form == FORM_GROUP ? group_scale_offset(k)
                                            : act_scale_offset(k);
    return x + offset + (size_t)unit * 4;
}

template <class T, int ROWS>
INLINE void copy_row(uint32_t k, const tile_source &n, tile_stage<ROWS> *to)
{
    uint32_t s = n.x_slot, i = threadIdx.x % ROWS, number = n.x_at.unit * T::PIECES + n.x_at.piece;
    copy_16(&to->x[s][0][i], half_of<T>(n.x, number, 0));
    copy_16(&to->x[s][1][i], half_of<T>(n.x, number, 1));
    if (T::MINIMUMS)
        copy_4(&to->sums[s][i], n.x + super_sum_offset(k) + (size_t)number * 4);
    copy_4(&to->x_unit[s][i].d, unit_number<T>(n.x, k, n.x_at.unit));
    if (T::form == FORM_GROUP)
        copy_4(&to->x_unit[s][i].other, n.x + group_sum_offset(k) + (size_t)n.x_at.unit * 4);
}

template <class T, int ROWS>
INLINE void unpack_weights(const table16 &table, const tile_source &n, uint32_t units,
                           tile_stage<ROWS> *to)
{
    uint32_t s = n.w_slot, i = threadIdx.x % tile_stage<ROWS>::OUTPUTS;
    const row_unit unit = {n.row, n.w_at.unit, units};
    piece p;
    T::piece_of(unit, n.w_at.piece, table, &p);
    to->w[s][0][i] = {p.code[0], p.code[1], p.code[2], p.code[3]};
    to->w[s][1][i] = {p.code[4], p.code[5], p.code[6], p.code[7]};
    if (T::SCALED) {
        uint32_t small = ((uint32_t)p.scale[0] & 255) | ((uint32_t)p.scale[1] & 255) << 8;
        if (T::MINIMUMS)
            small |= (uint32_t)p.min[0] << 16 | (uint32_t)p.min[1] << 24;
        to->scales[s][i] = small;
    }
    to->w_unit[s][i] = T::scales(unit);
}

/* The next stage, of which `left` pieces exist. It is complete after copies_wait and a barrier. */
template <class T, int ROWS>
INLINE void fill(const product_args &a, uint32_t units, uint32_t left, tile_source *n,
                 tile_stage<ROWS> *to)
{
    if (n->x && n->x_slot < left)
        copy_row<T, ROWS>(a.p.w.k, *n, to);
    if (n->w_slot < left)
        unpack_weights<T, ROWS>(a.table, *n, units, to);
    next_piece<T>(&n->w_at, units, tile_stage<ROWS>::PIECES);
    next_piece<T>(&n->x_at, units, tile_stage<ROWS>::PIECES);
}

/* ---- a stage is multiplied ---- */

/* Sum e of a lane is of this output and this row of its warp: the layout of the results of mma, for
 * two times two of them. */
INLINE uint32_t output_of(int e)
{
    return e / 8 * 16 + e / 2 % 2 * 8 + threadIdx.x % WARP / 4;
}

INLINE uint32_t row_of(int e)
{
    return e / 4 % 2 * 8 + threadIdx.x % 4 * 2 + e % 2;
}

struct tile_sums {
    int32_t dot[TILE_EACH], low[TILE_EACH];
    float now[TILE_EACH], pending[3][TILE_EACH]; /* sums of 1, 2 and 4 parts */
};

/* The product of a piece, or of a half of it with SPLIT, times its scales. */
template <class T>
INLINE void add_scaled(const uint32_t a[4], const uint32_t b[2], const uint32_t scales[2], int half,
                       int32_t dot[4])
{
    int32_t c[4] = {0, 0, 0, 0};
    if (T::SPLIT)
        multiply_16(c, a + 2 * half, b[half]);
    else
        multiply_32(c, a, b);
#pragma unroll
    for (int i = 0; i < 4; i++)
        dot[i] += (int8_t)(scales[i / 2] >> 8 * half) * c[i];
}

template <class T>
INLINE void add_product(const uint32_t a[4], const uint32_t b[2], const uint32_t scales[2],
                        int32_t dot[4])
{
    if (T::SCALED)
        add_scaled<T>(a, b, scales, 0, dot);
    else
        multiply_32(dot, a, b);
    if (T::SPLIT)
        add_scaled<T>(a, b, scales, 1, dot);
}

/* Minimums times sums of activations. */
template <class T> INLINE int32_t low_of(uint32_t scales, uint32_t sums)
{
    int32_t first = (int16_t)(sums & 0xffffu), last = (int16_t)(sums >> 16);
    if (!T::SPLIT)
        return (int32_t)(scales >> 16 & 255) * (first + last);
    return (int32_t)(scales >> 16 & 255) * first + (int32_t)(scales >> 24) * last;
}

/* Adds the integers of a piece; outputs, rows: the first of the warp. */
template <class T, int ROWS>
INLINE void dot_piece(const tile_stage<ROWS> *m, uint32_t s, uint32_t outputs, uint32_t rows,
                      tile_sums *t)
{
    uint32_t lane = threadIdx.x % WARP, a[2][4], b[2][2], scales[4];
#pragma unroll
    for (int i = 0; i < 2; i++)
        load_matrices(a[i], &m->w[s][lane / 16][outputs + 16 * i + lane % 16]);
    load_matrices(b[0], &m->x[s][lane / 8 % 2][rows + lane / 16 * 8 + lane % 8]);
#pragma unroll
    for (int i = 0; i < 4; i++)
        scales[i] = T::SCALED ? m->scales[s][outputs + output_of(i / 2 * 8 + i % 2 * 2)] : 0;
#pragma unroll
    for (int i = 0; i < 4; i++)
        add_product<T>(a[i / 2], b[i % 2], scales + i / 2 * 2, t->dot + 4 * i);
    if (T::MINIMUMS) {
#pragma unroll
        for (int e = 0; e < TILE_EACH; e++)
            t->low[e] += low_of<T>(scales[e / 8 * 2 + e / 2 % 2], m->sums[s][rows + row_of(e)]);
    }
}

/* The terms of a unit, whose integers are complete. */
template <class T, int ROWS>
INLINE void add_terms(const tile_stage<ROWS> *m, uint32_t s, uint32_t outputs, uint32_t rows,
                      tile_sums *t)
{
#pragma unroll
    for (int e = 0; e < TILE_EACH; e++) {
        t->now[e] =
            add_term<T>(t->now[e], t->dot[e], t->low[e], m->w_unit[s][outputs + output_of(e)],
                        m->x_unit[s][rows + row_of(e)]);
        t->dot[e] = t->low[e] = 0;
    }
}

/* Joins a complete part: ((s0 + s1) + (s2 + s3)) + ((s4 + s5) + (s6 + s7)). After part 7 the result
 * is in `now`. */
INLINE void join_part(uint32_t part, tile_sums *t)
{
#pragma unroll
    for (int e = 0; e < TILE_EACH; e++) {
        float v = t->now[e];
        if (part & 1)
            v = t->pending[0][e] + v;
        else
            t->pending[0][e] = v;
        if ((part & 3) == 3)
            v = t->pending[1][e] + v;
        else if ((part & 3) == 1)
            t->pending[1][e] = v;
        if (part == 7)
            t->now[e] = t->pending[2][e] + v;
        else if (part == 3)
            t->pending[2][e] = v;
        if (part != 7)
            t->now[e] = 0;
    }
}

template <class T, int ROWS>
INLINE void compute_stage(const tile_stage<ROWS> *m, uint32_t left, uint32_t units,
                          uint32_t outputs, uint32_t rows, piece_at *at, tile_sums *t)
{
#pragma unroll 1
    for (uint32_t s = 0; s < tile_stage<ROWS>::PIECES && s < left; s++) {
        uint32_t part = at->part;
        dot_piece<T, ROWS>(m, s, outputs, rows, t);
        if (at->piece == T::PIECES - 1)
            add_terms<T, ROWS>(m, s, outputs, rows, t);
        next_piece<T>(at, units, 1);
        if (at->part != part)
            join_part(part, t);
    }
}

/* ---- the kernel ---- */

template <class T, int ROWS> INLINE tile_source source_of(const product_args &a, uint32_t units)
{
    const uint32_t OUTPUTS = tile_stage<ROWS>::OUTPUTS, PIECES = tile_stage<ROWS>::PIECES;
    uint32_t output = a.p.n_begin + blockIdx.x * OUTPUTS + threadIdx.x % OUTPUTS;
    uint32_t row = blockIdx.y * ROWS + threadIdx.x % ROWS;
    tile_source n = {};
    n.row = (const uint8_t *)a.p.w.data +
            (size_t)(output < a.p.n_end ? output : a.p.n_end - 1) * a.p.w.row_bytes;
    n.w_slot = threadIdx.x / OUTPUTS;
    n.x_slot = threadIdx.x / ROWS;
    /* Results of rows that do not exist are not stored. */
    n.x = row < a.p.rows && n.x_slot < PIECES ? input_row(a, row) : NULL;
    for (uint32_t i = 0; i < n.w_slot; i++)
        next_piece<T>(&n.w_at, units, 1);
    for (uint32_t i = 0; n.x && i < n.x_slot; i++)
        next_piece<T>(&n.x_at, units, 1);
    return n;
}

template <class T, int ROWS>
INLINE void store_tile(const product_args &a, uint32_t units, uint32_t outputs, uint32_t rows,
                       const tile_sums *t)
{
#pragma unroll
    for (int e = 0; e < TILE_EACH; e++) {
        uint32_t output =
            a.p.n_begin + blockIdx.x * tile_stage<ROWS>::OUTPUTS + outputs + output_of(e);
        uint32_t row = blockIdx.y * ROWS + rows + row_of(e);
        if (output < a.p.n_end && row < a.p.rows)
            a.p.y[row * a.p.y_stride + output] = finish<T>(
                t->now[e],
                {(const uint8_t *)a.p.w.data + (size_t)output * a.p.w.row_bytes, 0, units});
    }
}

template <class T, int ROWS>
__global__ void __launch_bounds__(TILE_THREADS, 2) product_tile(product_args all)
{
    typedef tile_stage<ROWS> stage;
    const product_args a = args_of_job(all);
    if (blockIdx.y * ROWS >= a.p.rows)
        return;
    stage *m = (stage *)(void *)shared_memory();
    uint32_t units = a.p.w.k / (QK * T::PIECES), pieces = units * T::PIECES;
    uint32_t warp = threadIdx.x / WARP;
    uint32_t outputs = warp % (stage::OUTPUTS / WARP_OUTPUTS) * WARP_OUTPUTS;
    uint32_t rows = warp / (stage::OUTPUTS / WARP_OUTPUTS) * WARP_ROWS;
    bool used = a.p.n_begin + blockIdx.x * stage::OUTPUTS + outputs < a.p.n_end &&
                blockIdx.y * ROWS + rows < a.p.rows;
    tile_source source = source_of<T, ROWS>(a, units);
    tile_sums t = {};
    piece_at at = {0, 0, 0};
    fill<T, ROWS>(a, units, pieces, &source, m);
    copies_wait();
    __syncthreads();
    for (uint32_t left = pieces, now = 0; left > 0; now ^= 1) {
        uint32_t after = left > stage::PIECES ? left - stage::PIECES : 0;
        /* The other stage was read before the last barrier. */
        fill<T, ROWS>(a, units, after, &source, m + (now ^ 1));
        if (used)
            compute_stage<T, ROWS>(m + now, left, units, outputs, rows, &at, &t);
        copies_wait();
        __syncthreads();
        left = after;
    }
    for (uint32_t part = units < PARTS ? units : PARTS; part < PARTS; part++)
        join_part(part, &t); /* without units */
    if (used)
        store_tile<T, ROWS>(a, units, outputs, rows, &t);
}

#endif
