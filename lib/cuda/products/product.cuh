/* SPDX-License-Identifier: Apache-2.0 */
/* Products of quantised matrices with prepared activations: two kernels for all types of
 * unpack.cuh.
 *
 * Both follow ARITHMETIC.md: the integer dot product of a unit is exact, so lanes may divide it;
 * its float term is added to partial sum (unit mod 8), units ascending, and the eight sums are
 * joined by a tree.
 *
 * product_rows, for few rows (decode): the eight partial sums of an output are eight lanes, each
 * with its own chain of fma, and the tree is three exchanges. Units of 256 elements have four lanes
 * per sum, because a lane alone would read 144 bytes that no neighbour reads; their integers are
 * added by exchanges before the float term. A warp has 4 outputs, or 1 with units of 256, so one
 * step of it reads 4 times 8 neighbouring units, or 8 neighbouring super-blocks. It keeps the sums
 * of up to 4 rows, so a weight is read and unpacked once for 4 rows.
 *
 * product_tile (tile.cuh), for many rows (prefill): tensor cores.
 *
 * A launch has one matrix, or along z those of several jobs, each with its rows. */
#ifndef SLUICE_CUDA_PRODUCT_CUH
#define SLUICE_CUDA_PRODUCT_CUH

#include "lib/cuda/products/tile.cuh"

/* The integers of one unit, or of this lane's part of it, for ROWS rows. */
template <class T, int ROWS, int SHARE>
INLINE void dot_unit(const product_args &a, const row_unit &u, uint32_t lane,
                     const uint8_t *const x[ROWS], int32_t dot[ROWS], int32_t low[ROWS])
{
#pragma unroll
    for (uint32_t i = 0; i < T::PIECES / SHARE; i++) {
        /* Two pieces of a lane share their bytes. */
        uint32_t s = T::PIECES / SHARE == 2 && SHARE > 1
                         ? lane / T::APART * 2 * T::APART | lane % T::APART | i * T::APART
                         : lane * (T::PIECES / SHARE) + i;
        piece p;
        T::piece_of(u, s, a.table, &p);
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            piece_input in = input_of<T>(x[r], u.unit * T::PIECES + s);
            int32_t first = dot_16(p.code, in.first), last = dot_16(p.code + 4, in.last), sum[2];
            dot[r] += T::SCALED ? p.scale[0] * first + p.scale[1] * last : first + last;
            sums_of<T>(x[r], a.p.w.k, u.unit * T::PIECES + s, sum);
            if (T::MINIMUMS)
                low[r] += p.min[0] * sum[0] + p.min[1] * sum[1];
        }
    }
}

#define PRODUCT_WARPS 4

template <class T, int ROWS>
__global__ void __launch_bounds__(WARP *PRODUCT_WARPS) product_rows(product_args all)
{
    const product_args a = args_of_job(all);
    const uint32_t SHARE = T::PIECES == 8 ? 4 : 1, OUTPUTS = WARP / PARTS / SHARE;
    uint32_t lane = threadIdx.x % WARP, part = lane / SHARE % PARTS;
    uint32_t warp = blockIdx.x * PRODUCT_WARPS + threadIdx.x / WARP;
    uint32_t output = a.p.n_begin + warp * OUTPUTS + lane / (SHARE * PARTS);
    uint32_t first_row = blockIdx.y * ROWS, units = a.p.w.k / (QK * T::PIECES);
    if (first_row >= a.p.rows)
        return; /* another job has more rows */
    /* Lanes without an output compute the last one again, because exchanges need all lanes. */
    const uint8_t *row = (const uint8_t *)a.p.w.data +
                         (size_t)(output < a.p.n_end ? output : a.p.n_end - 1) * a.p.w.row_bytes;
    const uint8_t *x[ROWS];
    float sum[ROWS];
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        uint32_t at = first_row + r < a.p.rows ? first_row + r : a.p.rows - 1;
        x[r] = input_row(a, at);
        sum[r] = 0;
    }
    for (uint32_t base = 0; base < units; base += PARTS) {
        uint32_t unit = base + part;
        bool there = unit < units;
        const row_unit now = {row, there ? unit : 0, units};
        int32_t dot[ROWS] = {0}, low[ROWS] = {0};
        if (there)
            dot_unit<T, ROWS, (int)SHARE>(a, now, lane % SHARE, x, dot, low);
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            int32_t d = sum_up<(int)SHARE, 1>(dot[r]);
            int32_t l = T::MINIMUMS ? sum_up<(int)SHARE, 1>(low[r]) : 0;
            if (there)
                sum[r] =
                    add_term<T>(sum[r], d, l, T::scales(now), input_scales<T>(x[r], a.p.w.k, unit));
        }
    }
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        float all = finish<T>(sum_up<PARTS, (int)SHARE>(sum[r]), {row, 0, units});
        if (lane % (SHARE * PARTS) == 0 && output < a.p.n_end && first_row + r < a.p.rows)
            a.p.y[(first_row + r) * a.p.y_stride + output] = all;
    }
}

/* ---- launches ---- */

template <class T, int ROWS> static int tiles(const product_args &a, dim3 grid, void *stream)
{
    return LAUNCH((product_tile<T, ROWS>), grid, dim3(TILE_THREADS), 2 * sizeof(tile_stage<ROWS>),
                  stream, a);
}

template <class T> static int product(const gpu_products &p, const table16 &table, void *stream)
{
    const product_args a = {p, table};
    uint32_t outputs = PRODUCT_WARPS * (T::PIECES == 8 ? 1 : 4);
    if (p.rows > GPU_SOME_ROWS)
        return tiles<T, 64>(a, product_grid(p, TILE_ELEMENTS / 64, 64), stream);
    if (p.rows > GPU_FEW_ROWS)
        return tiles<T, 32>(a, product_grid(p, TILE_ELEMENTS / 32, 32), stream);
    if (p.rows == 1)
        return LAUNCH((product_rows<T, 1>), product_grid(p, outputs, 1), dim3(WARP * PRODUCT_WARPS),
                      0, stream, a);
    return LAUNCH((product_rows<T, 4>), product_grid(p, outputs, 4), dim3(WARP * PRODUCT_WARPS), 0,
                  stream, a);
}

/* The function of a family: NAME(p, ...) for the types of LIST. */
#define PRODUCT_CASE(type, unpack, values)                                                         \
    case TENSOR_##type:                                                                            \
        return product<unpack>(*p, table_of(values), stream);
#define PRODUCT_FAMILY(NAME, LIST)                                                                 \
    extern "C" int NAME(const struct gpu_products *p, void *stream)                                \
    {                                                                                              \
        switch (p->w.type) {                                                                       \
            LIST(PRODUCT_CASE)                                                                     \
        default: return GPU_UNSUPPORTED;                                                           \
        }                                                                                          \
    }

#endif
