/* SPDX-License-Identifier: Apache-2.0 */
/* Products of quantised matrices with prepared activations: two kernels for all types of unpack.cuh.
 *
 * Both follow ARITHMETIC.md: the integer dot product of a unit is exact, so lanes may divide it; its float
 * term is added to partial sum (unit mod 8), units ascending, and the eight sums are joined by a tree.
 *
 * product_rows, for few rows (decode): the eight partial sums of an output are eight lanes, each with its
 * own chain of fma, and the tree is three exchanges. Units of 256 elements have four lanes per sum,
 * because a lane alone would read 144 bytes that no neighbour reads; their integers are added by
 * exchanges before the float term. A warp has 4 outputs, or 1 with units of 256, so one step of it reads
 * 4 times 8 neighbouring units, or 8 neighbouring super-blocks. It keeps the sums of up to 4 rows, so a
 * weight is read and unpacked once for 4 rows.
 *
 * product_tile, for many rows (prefill): 64 outputs times 64 rows per block of 256 threads, 4 x 4 of them per
 * thread. Pieces of 32 elements of both go through shared memory. It computes one partial sum after
 * the other, not eight at once: a thread then has one accumulator and three pending sums of the tree
 * per output and row instead of eight. The weight rows are read in eight passes with a stride of eight
 * units; the part of the matrix that a block needs (64 rows) stays in the L2 cache meanwhile. Tensor
 * cores (mma.m16n8k32 on bytes) are not used: their integer results would be as exact, but they have to
 * be scaled per 32 elements outside. */
#ifndef SLUICE_CUDA_PRODUCT_CUH
#define SLUICE_CUDA_PRODUCT_CUH

#include "lib/cuda/unpack.cuh"

struct product_args {
    const uint8_t *w, *x;
    float *y;
    size_t row_bytes, x_stride, y_stride;
    uint32_t k, n_begin, n_end, rows;
    table16 table;
};

/* The activations of a piece of 32 elements. */
struct piece_input {
    int4 first, last; /* 16 bytes each */
};

template <class T> INLINE piece_input input_of(const uint8_t *x, uint32_t piece)
{
    if (T::form == FORM_Q8 || T::form == FORM_Q4)
        return {load_as<int4>(x + act_half(piece, 0)), load_as<int4>(x + act_half(piece, 1))};
    return {load_as<int4>(x + (size_t)piece * QK), load_as<int4>(x + (size_t)piece * QK + 16)};
}

/* The sums of 16 activations each, where minimums need them. */
template <class T> INLINE void sums_of(const uint8_t *x, uint32_t k, uint32_t piece, int32_t sum[2])
{
    if (!T::MINIMUMS)
        return;
    uint32_t both = load_as<uint32_t>(x + super_sum_offset(k) + (size_t)piece * 4);
    sum[0] = (int16_t)(both & 0xffffu);
    sum[1] = (int16_t)(both >> 16);
}

INLINE int32_t dot_16(const int32_t *code, const int4 &x)
{
    return __dp4a(code[3], x.w,
                  __dp4a(code[2], x.z, __dp4a(code[1], x.y, __dp4a(code[0], x.x, 0))));
}

/* dx, and of groups the sum of the activations, of a unit. */
template <class T> INLINE unit_scales input_scales(const uint8_t *x, uint32_t k, uint32_t unit)
{
    if (T::form == FORM_SUPER)
        return {load_as<float>(x + super_scale_offset(k) + (size_t)unit * 4), 0};
    if (T::form == FORM_GROUP)
        return {load_as<float>(x + group_scale_offset(k) + (size_t)unit * 4),
                load_as<float>(x + group_sum_offset(k) + (size_t)unit * 4)};
    return {load_as<float>(x + act_scale_offset(k) + (size_t)unit * 4), 0};
}

/* The sum with the term of a unit. */
template <class T>
INLINE float add_term(float sum, int32_t dot, int32_t low, const unit_scales &w,
                      const unit_scales &x)
{
    if (T::form == FORM_GROUP) {
        int32_t exact = dot + T::OFFSET * (int32_t)x.other;
        float term = fmaf(-w.other, x.other, (float)exact);
        return fmaf(T::HEAD == 0 ? term * w.d : term, x.d, sum);
    }
    float term = (float)dot * w.d;
    if (T::MINIMUMS)
        term = fmaf(-w.other, (float)low, term);
    return fmaf(term, x.d, sum);
}

/* The factor of the whole row: of types of groups whose rows have one scale. */
template <class T> INLINE float finish(float sum, const uint8_t *row)
{
    if (T::form != FORM_GROUP)
        return sum;
    return sum * (T::HEAD != 0 ? load_half(row) : 1.0f);
}

/* The integers of one unit, or of this lane's part of it, for ROWS rows. */
template <class T, int ROWS, int SHARE>
INLINE void dot_unit(const product_args &a, const uint8_t *block, uint32_t unit, uint32_t lane,
                     const uint8_t *const x[ROWS], int32_t dot[ROWS], int32_t low[ROWS])
{
#pragma unroll
    for (uint32_t i = 0; i < T::PIECES / SHARE; i++) {
        uint32_t s = lane * (T::PIECES / SHARE) + i;
        piece p;
        T::piece_of(block, s, a.table, &p);
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            piece_input in = input_of<T>(x[r], unit * T::PIECES + s);
            int32_t first = dot_16(p.code, in.first), last = dot_16(p.code + 4, in.last), sum[2];
            dot[r] += T::SCALED ? p.scale[0] * first + p.scale[1] * last : first + last;
            sums_of<T>(x[r], a.k, unit * T::PIECES + s, sum);
            if (T::MINIMUMS)
                low[r] += p.min[0] * sum[0] + p.min[1] * sum[1];
        }
    }
}

#define PRODUCT_WARPS 4

template <class T, int ROWS>
__global__ void __launch_bounds__(WARP *PRODUCT_WARPS) product_rows(product_args a)
{
    const uint32_t SHARE = T::PIECES == 8 ? 4 : 1, OUTPUTS = WARP / PARTS / SHARE;
    uint32_t lane = threadIdx.x % WARP, part = lane / SHARE % PARTS;
    uint32_t warp = blockIdx.x * PRODUCT_WARPS + threadIdx.x / WARP;
    uint32_t output = a.n_begin + warp * OUTPUTS + lane / (SHARE * PARTS);
    uint32_t first_row = blockIdx.y * ROWS, units = a.k / (QK * T::PIECES);
    /* Lanes without an output compute the last one again, because exchanges need all lanes. */
    const uint8_t *row = a.w + (size_t)(output < a.n_end ? output : a.n_end - 1) * a.row_bytes;
    const uint8_t *x[ROWS];
    float sum[ROWS];
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        uint32_t at = first_row + r < a.rows ? first_row + r : a.rows - 1;
        x[r] = a.x + at * a.x_stride;
        sum[r] = 0;
    }
    for (uint32_t base = 0; base < units; base += PARTS) {
        uint32_t unit = base + part;
        bool there = unit < units;
        const uint8_t *block = row + T::HEAD + (size_t)(there ? unit : 0) * T::BYTES;
        int32_t dot[ROWS] = {0}, low[ROWS] = {0};
        if (there)
            dot_unit<T, ROWS, (int)SHARE>(a, block, unit, lane % SHARE, x, dot, low);
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            int32_t d = sum_up<(int)SHARE, 1>(dot[r]);
            int32_t l = T::MINIMUMS ? sum_up<(int)SHARE, 1>(low[r]) : 0;
            if (there)
                sum[r] = add_term<T>(sum[r], d, l, T::scales(row, block),
                                     input_scales<T>(x[r], a.k, unit));
        }
    }
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        float all = finish<T>(sum_up<PARTS, (int)SHARE>(sum[r]), row);
        if (lane % (SHARE * PARTS) == 0 && output < a.n_end && first_row + r < a.rows)
            a.y[(first_row + r) * a.y_stride + output] = all;
    }
}

/* ---- tiles ---- */

#define TILE         64 /* outputs, and rows, of a block */
#define TILE_SIDE    16 /* threads along each */
#define TILE_EACH    4  /* outputs, and rows, of a thread */
#define TILE_STEP    2  /* pieces in shared memory */
#define TILE_THREADS (TILE_SIDE * TILE_SIDE)

/* Words are [word][output or row]: neighbouring threads read neighbouring banks. */
struct product_shared {
    int32_t w[TILE_STEP][8][TILE], x[TILE_STEP][8][TILE];
    int32_t scale[TILE_STEP][2][TILE], min[TILE_STEP][2][TILE], sum[TILE_STEP][2][TILE];
    unit_scales w_scales[TILE_STEP][TILE], x_scales[TILE_STEP][TILE];
};

/* Thread `i` of the first half unpacks a piece of an output, of the second copies one of a row. */
template <class T>
INLINE void fill(const product_args &a, uint32_t unit, uint32_t s, uint32_t step, uint32_t i,
                 bool weights, product_shared *m)
{
    if (weights) {
        uint32_t output = a.n_begin + blockIdx.x * TILE + i;
        const uint8_t *row = a.w + (size_t)(output < a.n_end ? output : a.n_end - 1) * a.row_bytes;
        const uint8_t *block = row + T::HEAD + (size_t)unit * T::BYTES;
        piece p;
        T::piece_of(block, s, a.table, &p);
#pragma unroll
        for (int c = 0; c < 8; c++)
            m->w[step][c][i] = p.code[c];
#pragma unroll
        for (int h = 0; h < 2; h++) {
            if (T::SCALED)
                m->scale[step][h][i] = p.scale[h];
            if (T::MINIMUMS)
                m->min[step][h][i] = p.min[h];
        }
        m->w_scales[step][i] = T::scales(row, block);
        return;
    }
    uint32_t r = blockIdx.y * TILE + i;
    const uint8_t *x = a.x + (r < a.rows ? r : a.rows - 1) * a.x_stride;
    piece_input in = input_of<T>(x, unit * T::PIECES + s);
    int32_t words[8] = {in.first.x, in.first.y, in.first.z, in.first.w,
                        in.last.x,  in.last.y,  in.last.z,  in.last.w};
    int32_t sum[2] = {0, 0};
    sums_of<T>(x, a.k, unit * T::PIECES + s, sum);
#pragma unroll
    for (int c = 0; c < 8; c++)
        m->x[step][c][i] = words[c];
    m->sum[step][0][i] = sum[0];
    m->sum[step][1][i] = sum[1];
    m->x_scales[step][i] = input_scales<T>(x, a.k, unit);
}

/* Adds the integers of a piece for this thread's outputs and rows. */
template <class T>
INLINE void dot_tile(const product_shared *m, uint32_t step, uint32_t tx, uint32_t ty,
                     int32_t dot[TILE_EACH][TILE_EACH], int32_t low[TILE_EACH][TILE_EACH])
{
#pragma unroll
    for (int h = 0; h < 2; h++) {
        int32_t w[TILE_EACH][4], x[TILE_EACH][4];
#pragma unroll
        for (int i = 0; i < TILE_EACH; i++)
#pragma unroll
            for (int c = 0; c < 4; c++) {
                w[i][c] = m->w[step][4 * h + c][tx + TILE_SIDE * i];
                x[i][c] = m->x[step][4 * h + c][ty + TILE_SIDE * i];
            }
#pragma unroll
        for (int o = 0; o < TILE_EACH; o++)
#pragma unroll
            for (int r = 0; r < TILE_EACH; r++) {
                int32_t d = 0;
#pragma unroll
                for (int c = 0; c < 4; c++)
                    d = __dp4a(w[o][c], x[r][c], d);
                dot[o][r] += T::SCALED ? d * m->scale[step][h][tx + TILE_SIDE * o] : d;
                if (T::MINIMUMS)
                    low[o][r] +=
                        m->min[step][h][tx + TILE_SIDE * o] * m->sum[step][h][ty + TILE_SIDE * r];
            }
    }
}

/* The sums of one thread, of its current part, and of the parts before. */
struct tile_sums {
    float now[TILE_EACH][TILE_EACH];
    float pending[3][TILE_EACH][TILE_EACH]; /* sums of 1, 2 and 4 parts */
};

/* Joins a complete part: ((s0 + s1) + (s2 + s3)) + ((s4 + s5) + (s6 + s7)). After part 7 the result is in
 * `now`. */
INLINE void join_part(uint32_t part, tile_sums *t)
{
#pragma unroll
    for (int o = 0; o < TILE_EACH; o++)
#pragma unroll
        for (int r = 0; r < TILE_EACH; r++) {
            float v = t->now[o][r];
            if (part & 1)
                v = t->pending[0][o][r] + v;
            else
                t->pending[0][o][r] = v;
            if ((part & 3) == 3)
                v = t->pending[1][o][r] + v;
            else if ((part & 3) == 1)
                t->pending[1][o][r] = v;
            if (part == 7)
                t->now[o][r] = t->pending[2][o][r] + v;
            else if (part == 3)
                t->pending[2][o][r] = v;
            if (part != 7)
                t->now[o][r] = 0;
        }
}

/* One step of a part: pieces [at, at + TILE_STEP) of its `pieces`. */
template <class T>
INLINE void tile_step(const product_args &a, uint32_t part, uint32_t at, uint32_t pieces,
                      product_shared *m, int32_t dot[TILE_EACH][TILE_EACH],
                      int32_t low[TILE_EACH][TILE_EACH], tile_sums *t)
{
    uint32_t tx = threadIdx.x % TILE_SIDE, ty = threadIdx.x / TILE_SIDE;
    uint32_t half = threadIdx.x % (TILE_THREADS / 2), mine = at + half / TILE;
    __syncthreads(); /* the pieces of the step before are not read any more */
    if (mine < pieces)
        fill<T>(a, part + PARTS * (mine / T::PIECES), mine % T::PIECES, half / TILE, half % TILE,
                threadIdx.x < TILE_THREADS / 2, m);
    __syncthreads();
    for (uint32_t step = 0; step < TILE_STEP && at + step < pieces; step++) {
        dot_tile<T>(m, step, tx, ty, dot, low);
        if ((at + step) % T::PIECES != T::PIECES - 1)
            continue;
#pragma unroll
        for (int o = 0; o < TILE_EACH; o++)
#pragma unroll
            for (int r = 0; r < TILE_EACH; r++) {
                t->now[o][r] = add_term<T>(t->now[o][r], dot[o][r], low[o][r],
                                           m->w_scales[step][tx + TILE_SIDE * o],
                                           m->x_scales[step][ty + TILE_SIDE * r]);
                dot[o][r] = low[o][r] = 0;
            }
    }
}

template <class T> __global__ void __launch_bounds__(TILE_THREADS) product_tile(product_args a)
{
    product_shared *m = (product_shared *)(void *)shared_memory();
    uint32_t units = a.k / (QK * T::PIECES);
    int32_t dot[TILE_EACH][TILE_EACH] = {{0}}, low[TILE_EACH][TILE_EACH] = {{0}};
    tile_sums t = {{{0}}, {{{0}}}};
    for (uint32_t part = 0; part < PARTS; part++) {
        uint32_t pieces = part < units ? ((units - part - 1) / PARTS + 1) * T::PIECES : 0;
        for (uint32_t at = 0; at < pieces; at += TILE_STEP)
            tile_step<T>(a, part, at, pieces, m, dot, low, &t);
        join_part(part, &t);
    }
#pragma unroll
    for (int o = 0; o < TILE_EACH; o++)
#pragma unroll
        for (int r = 0; r < TILE_EACH; r++) {
            uint32_t output =
                a.n_begin + blockIdx.x * TILE + threadIdx.x % TILE_SIDE + TILE_SIDE * o;
            uint32_t row = blockIdx.y * TILE + threadIdx.x / TILE_SIDE + TILE_SIDE * r;
            if (output < a.n_end && row < a.rows)
                a.y[row * a.y_stride + output] =
                    finish<T>(t.now[o][r], a.w + (size_t)output * a.row_bytes);
        }
}

/* ---- launches ---- */

#define FEW_ROWS 8 /* up to here a weight is read again for each 4 rows */

template <class T> static int product(const product_args &a, void *stream)
{
    uint32_t n = a.n_end - a.n_begin, outputs = PRODUCT_WARPS * (T::PIECES == 8 ? 1 : 4);
    if (a.rows > FEW_ROWS)
        return LAUNCH((product_tile<T>), dim3(divide_up(n, TILE), divide_up(a.rows, TILE)),
                      dim3(TILE_THREADS), sizeof(product_shared), stream, a);
    if (a.rows == 1)
        return LAUNCH((product_rows<T, 1>), dim3(divide_up(n, outputs)), dim3(WARP * PRODUCT_WARPS),
                      0, stream, a);
    return LAUNCH((product_rows<T, 4>), dim3(divide_up(n, outputs), divide_up(a.rows, 4)),
                  dim3(WARP * PRODUCT_WARPS), 0, stream, a);
}

static inline product_args args_of(const struct kernel_matrix *w, uint32_t n_begin, uint32_t n_end,
                                   const void *x, size_t x_stride, uint32_t rows, float *y,
                                   size_t y_stride)
{
    product_args a = {};
    a.w = (const uint8_t *)w->data;
    a.x = (const uint8_t *)x;
    a.y = y;
    a.row_bytes = w->row_bytes;
    a.x_stride = x_stride;
    a.y_stride = y_stride;
    a.k = w->k;
    a.n_begin = n_begin;
    a.n_end = n_end;
    a.rows = rows;
    return a;
}

/* The function of a family: NAME(w, ...) for the types of LIST. */
#define PRODUCT_CASE(type, unpack, values)                                                         \
    case TENSOR_##type:                                                                            \
        a.table = table_of(values);                                                                \
        return product<unpack>(a, stream);
#define PRODUCT_FAMILY(NAME, LIST)                                                                 \
    extern "C" int NAME(const struct kernel_matrix *w, uint32_t n_begin, uint32_t n_end,           \
                        const void *x, size_t x_stride, uint32_t rows, float *y, size_t y_stride,  \
                        void *stream)                                                              \
    {                                                                                              \
        product_args a = args_of(w, n_begin, n_end, x, x_stride, rows, y, y_stride);               \
        switch (w->type) {                                                                         \
            LIST(PRODUCT_CASE)                                                                     \
        default: return GPU_UNSUPPORTED;                                                           \
        }                                                                                          \
    }

#endif
