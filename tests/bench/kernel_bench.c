/* SPDX-License-Identifier: Apache-2.0 */
/* kernel_bench: speed of the kernels on this machine, on one thread.
 *   kernel_bench [SECONDS_PER_RESULT [TYPE|all [K]]]
 * "cold" uses more weights than the caches hold, a few outputs per call; "warm" uses one matrix
 * repeatedly. Each result is the 10th percentile of the call times, because other work on the
 * machine only makes calls slower. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/assert.h"
#include "lib/base/bytes.h"
#include "lib/base/clock.h"
#include "lib/kernels/kernels.h"
#include "lib/tensor/tensor_type.h"

enum {
    K_MAX = 8192,
    N_WARM = 1024,
    ROWS_MAX = 256,
    POSITIONS = 1024,
    HEADS = 16,
    HEAD_SIZE = 128,
    CALLS_MAX = 65536
};
#define COLD_BYTES (160 * MIB)
#define COLD_STEP  512 /* outputs per call */
_Static_assert(8 * (COLD_BYTES / 20) >= (uint64_t)ROWS_MAX * N_WARM, "space for every output");

static const enum tensor_type types[] = {TENSOR_F32,  TENSOR_F16, TENSOR_BF16, TENSOR_Q8_0,
                                         TENSOR_Q4_0, TENSOR_C8,  TENSOR_C4,   TENSOR_C2,
                                         TENSOR_G4,   TENSOR_G2};
static const uint32_t row_counts[] = {1, 2, 8, 64, 256};
#define TYPES ARRAY_LEN(types)
#define ROWS  ARRAY_LEN(row_counts)

static struct {
    uint8_t *weights;
    float *x, *y;
    void *act;
    double seconds;
    uint32_t k;
} bench;

static void *need(size_t bytes)
{
    void *p = aligned_alloc(64, align_up(bytes, 64));
    sl_assert(p != NULL);
    memset(p, 0, bytes);
    return p;
}

/* Weights without infinities or denormals: scales and floats are small and normal, the rest
 * random. */
static void fill_weights(enum tensor_type type, size_t bytes)
{
    const struct tensor_type_info *info = tensor_type_info((uint32_t)type);
    uint32_t state = 1;
    for (size_t i = 0; i + 4 <= bytes; i += 4) {
        state = state * 1664525u + 1013904223u;
        uint32_t word = type == TENSOR_F32 ? 0x3c000000u | (state >> 9) : state;
        if (type == TENSOR_F16 || type == TENSOR_BF16)
            word = (state & 0x83ff83ffu) | 0x20002000u;
        memcpy(bench.weights + i, &word, 4);
    }
    uint64_t unit = info->block_bytes; /* starts with a scale, and a zero point in store types */
    if (info->row_head_bytes > 0)
        sl_assert(tensor_type_row_bytes((uint32_t)type, bench.k, &unit));
    for (size_t i = 0; info->block_elems > 1 && i + unit <= bytes; i += unit) {
        uint16_t grid[2] = {0x2000, 0x4000};
        memcpy(bench.weights + i, grid, kernel_form_of(type) == FORM_GROUP ? 4 : 2);
    }
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* Seconds for all outputs, `step` per call, from the 10th percentile of the call times. */
static double matmul_time(const struct kernel_ops *ops, const struct kernel_matrix *m,
                          uint32_t rows, uint32_t step)
{
    static double took[CALLS_MAX];
    size_t stride = kernel_activation_bytes(m->type, m->k), calls = 0;
    for (uint32_t r = 0; r < rows; r++)
        ops->activation(m->type, bench.x + (size_t)r * m->k, m->k,
                        (uint8_t *)bench.act + r * stride);
    uint64_t start_ns = clock_now_ns(), now = start_ns;
    for (uint32_t j = 0;
         calls == 0 || (double)(now - start_ns) < bench.seconds * (double)NS_PER_S;) {
        uint64_t t = now;
        ops->matmul(m, j, j + step, bench.act, stride, rows, bench.y, m->n);
        now = clock_now_ns();
        took[calls++ % CALLS_MAX] = (double)(now - t) / (double)NS_PER_S;
        j = j + 2 * step <= m->n ? j + step : 0;
    }
    calls = calls < CALLS_MAX ? calls : CALLS_MAX;
    qsort(took, calls, sizeof *took, by_size);
    return took[calls / 10] * m->n / step;
}

static void bench_matmul(enum tensor_type type, double rate[ISA__COUNT][ROWS])
{
    uint64_t row_bytes = 0;
    sl_assert(tensor_type_row_bytes((uint32_t)type, bench.k, &row_bytes));
    fill_weights(type, COLD_BYTES);
    const char *name = tensor_type_info((uint32_t)type)->name;
    for (int isa = 0; isa < ISA__COUNT; isa++) {
        const struct kernel_ops *ops = kernel_ops_of((enum kernel_isa)isa);
        if (ops == NULL)
            continue;
        struct kernel_matrix m = {bench.weights, row_bytes, bench.k,
                                  (uint32_t)(COLD_BYTES / row_bytes), type};
        for (uint32_t rows = 1; rows <= 8; rows *= 8) {
            double t = matmul_time(ops, &m, rows, COLD_STEP), macs = (double)m.n * m.k * rows;
            rate[isa][0] = rows == 1 ? macs / t : rate[isa][0];
            printf("%-5s %-8s rows %3u cold %7.1f GB/s %8.1f GFLOP/s\n", name, ops->name, rows,
                   (double)m.n * (double)row_bytes / t / 1e9, 2 * macs / t / 1e9);
        }
        m.n = N_WARM;
        for (size_t r = 0; r < ROWS; r++) {
            double t = matmul_time(ops, &m, row_counts[r], m.n),
                   macs = (double)m.n * m.k * row_counts[r];
            if (row_counts[r] > 1)
                rate[isa][r] = macs / t;
            printf("%-5s %-8s rows %3u warm %7.1f GB/s %8.1f GFLOP/s\n", name, ops->name,
                   row_counts[r], (double)m.n * (double)row_bytes / t / 1e9, 2 * macs / t / 1e9);
        }
        fflush(stdout);
    }
}

/* One token row after POSITIONS others; or `rows` rows of a prompt. */
static void bench_attention(const struct kernel_ops *ops, uint32_t rows)
{
    struct kernel_attention a = {.q = bench.x,
                                 .k = (uint16_t *)(void *)bench.weights,
                                 .out = bench.y,
                                 .q_stride = HEADS * HEAD_SIZE,
                                 .out_stride = HEADS * HEAD_SIZE,
                                 .rows = rows,
                                 .positions = rows == 1 ? POSITIONS : 1,
                                 .heads = HEADS,
                                 .kv_heads = HEADS,
                                 .head_size = HEAD_SIZE,
                                 .scale = 0.01f};
    a.v = a.k + (size_t)POSITIONS * HEADS * HEAD_SIZE;
    double best = INFINITY, seen = 0;
    uint64_t start_ns = clock_now_ns();
    do {
        uint64_t t = clock_now_ns();
        seen = 0;
        for (a.head_begin = 0; a.head_begin < HEADS; a.head_begin = a.head_end) {
            a.head_end = a.head_begin + 1;
            ops->attention(&a);
            for (uint32_t r = 0; r < rows; r++)
                seen += a.positions + r;
        }
        best = fmin(best, (double)(clock_now_ns() - t) / (double)NS_PER_S);
    } while ((double)(clock_now_ns() - start_ns) < bench.seconds * (double)NS_PER_S);
    printf("attention %-8s rows %3u %4u positions, %u heads of %u: %8.1f us %8.1f GFLOP/s\n",
           ops->name, rows, rows == 1 ? (unsigned)POSITIONS : rows, (unsigned)HEADS,
           (unsigned)HEAD_SIZE, best * 1e6, 4.0 * HEAD_SIZE * seen / best / 1e9);
}

static void print_ratios(double rate[TYPES][ISA__COUNT][ROWS])
{
    for (size_t t = 0; t < TYPES; t++) {
        const char *name = tensor_type_info((uint32_t)types[t])->name;
        for (int isa = 0; isa < ISA__COUNT; isa++) {
            if (rate[t][isa][0] == 0)
                continue;
            printf("%-5s %-8s prefill/decode", name, kernel_ops_of((enum kernel_isa)isa)->name);
            for (size_t r = 1; r < ROWS; r++)
                printf("  rows %u: %.2f", row_counts[r], rate[t][isa][r] / rate[t][isa][0]);
            printf("\n");
        }
        if (rate[t][ISA_AVX512][0] == 0)
            continue;
        printf("%-5s avx512/generic  rows 1 (cold): %.2f", name,
               rate[t][ISA_AVX512][0] / rate[t][ISA_GENERIC][0]);
        for (size_t r = 1; r < ROWS; r++)
            printf("  rows %u: %.2f", row_counts[r],
                   rate[t][ISA_AVX512][r] / rate[t][ISA_GENERIC][r]);
        printf("\n");
    }
}

int main(int argc, char **argv)
{
    static double rate[TYPES][ISA__COUNT][ROWS];
    bench.seconds = argc > 1 ? atof(argv[1]) : 0.2;
    const char *only = argc > 2 && strcmp(argv[2], "all") != 0 ? argv[2] : NULL;
    bench.k = argc > 3 ? (uint32_t)strtoul(argv[3], NULL, 10) : 2048;
    sl_assert(bench.k % 64 == 0 && bench.k > 0 && bench.k <= K_MAX);
    bench.weights = need(COLD_BYTES);
    bench.x = need(sizeof(float) * ROWS_MAX * K_MAX);
    bench.act = need(sizeof(float) * ROWS_MAX * K_MAX);
    bench.y = need(sizeof(float) * 8 * (COLD_BYTES / 20)); /* 8 rows of the longest output */
    for (size_t i = 0; i < (size_t)ROWS_MAX * K_MAX; i++)
        bench.x[i] = (float)((i * 2654435761u) % 2001) / 1000.0f - 1.0f;
    for (size_t t = 0; t < TYPES; t++)
        if (only == NULL || strcmp(tensor_type_info((uint32_t)types[t])->name, only) == 0)
            bench_matmul(types[t], rate[t]);
    fill_weights(TENSOR_F16, COLD_BYTES);
    for (int isa = 0; isa < ISA__COUNT && only == NULL; isa++) {
        const struct kernel_ops *ops = kernel_ops_of((enum kernel_isa)isa);
        if (ops != NULL) {
            bench_attention(ops, 1);
            bench_attention(ops, ROWS_MAX);
        }
    }
    print_ratios(rate);
    free(bench.weights);
    free(bench.x);
    free(bench.act);
    free(bench.y);
    return 0;
}
