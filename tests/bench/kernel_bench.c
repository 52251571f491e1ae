/* SPDX-License-Identifier: Apache-2.0 */
/* kernel_bench: speed of the kernels on this machine, for every tensor type and instruction set.
 *   kernel_bench [SECONDS_PER_RESULT [TYPE|all|attention|delta|chosen [K [THREADS]]]]
 * decode: one row; the threads together read more weights than the caches hold. Its share is that
 * of the streaming rate, which is measured the same way before every type. The same with several
 * rows, as several sequences decode. prefill: one thread, one matrix repeatedly, 10th percentile of
 * the call times, because other work on the machine only makes calls slower. */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "lib/base/assert.h"
#include "lib/base/bytes.h"
#include "lib/base/clock.h"
#include "lib/kernels/choose.h"
#include "lib/kernels/index.h"
#include "lib/kernels/kernels.h"
#include "lib/tensor/tensor_type.h"
#include "lib/tensor/unpack/unpack.h"

enum {
    K_MAX = 8192,
    N_WARM = 1024,
    ROWS_MAX = 256,
    KV_HEADS = 16,
    HEAD_SIZE = 128,
    THREADS_MAX = 64,
    CALLS_MAX = 65536,
    STEP = 512 /* outputs per call */
};
#define COLD_BYTES   (160 * MIB)
#define SAMPLE_BYTES (256 * KIB) /* of weights that are made; the rest repeats them */

static const uint32_t row_counts[] = {2, 4, 8, 16, 64, 256};
static const uint32_t cold_row_counts[] = {2, 4, 8, 16};

static struct {
    uint8_t *weights;
    float *x, *y;
    void *act;
    double seconds;
    uint32_t k, threads;
} bench;

static void *need(size_t bytes)
{
    void *p = aligned_alloc(64, align_up(bytes, 64));
    sl_assert(p != NULL);
    memset(p, 0, bytes);
    return p;
}

/* ---- weights ---- */

static uint32_t random_word(void)
{
    static uint32_t state = 1;
    state = state * 1664525u + 1013904223u;
    return state >> 16 | state << 16;
}

static bool is_usual(float x)
{
    return x == x && fabsf(x) > 1e-6f && fabsf(x) < 1e3f;
}

/* Whether no scale of a random block is a NaN, infinite, subnormal or huge. */
static bool block_is_usual(enum tensor_type type, const uint8_t *block)
{
    const struct unpack_info *info = unpack_info((uint32_t)type);
    const struct tensor_type_info *layout = tensor_type_info((uint32_t)type);
    struct unpacked u;
    for (uint32_t part = 0; info && part < layout->block_elems / info->unit; part++) {
        info->unpack(block, part, &u);
        if (!is_usual(u.d) || (info->minimums && !is_usual(u.dmin)))
            return false;
    }
    return true;
}

static void random_block(enum tensor_type type, uint8_t *p, uint32_t bytes)
{
    do {
        for (uint32_t i = 0; i < bytes; i++)
            p[i] = (uint8_t)random_word();
    } while (!block_is_usual(type, p));
    if (type == TENSOR_F32) {
        p[3] = 0x3c;
    } else if (type == TENSOR_F16 || type == TENSOR_BF16) {
        p[1] = (uint8_t)((p[1] & 0x83) | 0x20);
    } else if (!unpack_info((uint32_t)type)) { /* a scale and a zero */
        static const uint16_t grid[2] = {0x2000, 0x4000};
        memcpy(p, grid, bytes < sizeof grid ? bytes : sizeof grid);
    }
}

/* Fills the weights with rows of random blocks. */
static struct kernel_matrix make_weights(enum tensor_type type)
{
    const struct tensor_type_info *info = tensor_type_info((uint32_t)type);
    struct kernel_matrix m = {.data = bench.weights, .k = bench.k, .type = type};
    sl_assert(tensor_type_row_bytes((uint32_t)type, bench.k, &m.row_bytes));
    size_t sample = (SAMPLE_BYTES + m.row_bytes - 1) / m.row_bytes * m.row_bytes;
    for (size_t row = 0; row < sample; row += m.row_bytes) {
        if (info->row_head_bytes > 0)
            random_block(type, bench.weights + row, info->row_head_bytes);
        for (size_t at = info->row_head_bytes; at < m.row_bytes; at += info->block_bytes)
            random_block(type, bench.weights + row + at, info->block_bytes);
    }
    for (size_t at = sample; at < COLD_BYTES; at++)
        bench.weights[at] = bench.weights[at - sample];
    m.n = (uint32_t)(COLD_BYTES / m.row_bytes);
    return m;
}

/* ---- decode ---- */

struct reader {
    const struct kernel_ops *ops; /* NULL: the bytes are read and added */
    const struct kernel_matrix *m;
    uint32_t begin, end, rows;
    float *y;    /* rows of STEP */
    double rate; /* bytes per second */
    uint64_t sum;
    pthread_t thread;
};

static uint64_t add_bytes(const uint8_t *p, size_t bytes)
{
    uint64_t sum[8] = {0}, word[8];
    for (size_t i = 0; i + sizeof word <= bytes; i += sizeof word) {
        __builtin_prefetch(p + i + 4096, 0, 2);
        __builtin_prefetch(p + i + 2048);
        memcpy(word, p + i, sizeof word);
        for (int l = 0; l < 8; l++)
            sum[l] += word[l];
    }
    return sum[0] + sum[1] + sum[2] + sum[3] + sum[4] + sum[5] + sum[6] + sum[7];
}

static void *read_weights(void *argument)
{
    struct reader *r = argument;
    uint64_t start_ns = clock_now_ns(), bytes = 0, now = start_ns;
    for (uint32_t j = r->begin; (double)(now - start_ns) < bench.seconds * (double)NS_PER_S;) {
        uint32_t n = r->end - j < STEP ? r->end - j : STEP;
        struct kernel_matrix part = *r->m;
        part.data = (const uint8_t *)r->m->data + j * r->m->row_bytes;
        part.n = n;
        if (r->ops)
            r->ops->matmul(&part, 0, n, bench.act, kernel_activation_bytes(part.type, part.k),
                           r->rows, r->y, STEP);
        else
            r->sum += add_bytes(part.data, n * part.row_bytes);
        bytes += n * r->m->row_bytes;
        now = clock_now_ns();
        j = j + n < r->end ? j + n : r->begin;
    }
    r->rate = (double)bytes / ((double)(now - start_ns) / (double)NS_PER_S);
    return NULL;
}

/* Bytes per second of all threads, each with its share of the outputs. */
static double read_rate(const struct kernel_ops *ops, const struct kernel_matrix *m, uint32_t rows)
{
    struct reader readers[THREADS_MAX];
    double rate = 0;
    for (uint32_t i = 0; i < bench.threads; i++) {
        struct reader *r = &readers[i];
        *r = (struct reader){.ops = ops,
                             .m = m,
                             .begin = m->n / bench.threads * i,
                             .end = m->n / bench.threads * (i + 1),
                             .rows = rows,
                             .y = bench.y + (size_t)i * rows * STEP};
        sl_assert(pthread_create(&r->thread, NULL, read_weights, r) == 0);
    }
    for (uint32_t i = 0; i < bench.threads; i++) {
        pthread_join(readers[i].thread, NULL);
        rate += readers[i].rate;
    }
    return rate;
}

/* ---- prefill ---- */

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* Seconds of a call, the 10th percentile. */
static double call_time(const struct kernel_ops *ops, const struct kernel_matrix *m, uint32_t rows,
                        size_t stride)
{
    static double took[CALLS_MAX];
    size_t calls = 0;
    uint64_t start_ns = clock_now_ns(), now = start_ns;
    while (calls == 0 || (double)(now - start_ns) < bench.seconds * (double)NS_PER_S) {
        uint64_t t = now;
        ops->matmul(m, 0, m->n, bench.act, stride, rows, bench.y, m->n);
        now = clock_now_ns();
        took[calls++ % CALLS_MAX] = (double)(now - t) / (double)NS_PER_S;
    }
    calls = calls < CALLS_MAX ? calls : CALLS_MAX;
    qsort(took, calls, sizeof *took, by_size);
    return took[calls / 10];
}

static void prepare(const struct kernel_ops *ops, const struct kernel_matrix *m, size_t stride)
{
    for (uint32_t r = 0; r < ROWS_MAX; r++)
        ops->activation(m->type, bench.x + (size_t)r * m->k, m->k,
                        (uint8_t *)bench.act + r * stride);
}

static void bench_type(enum tensor_type type)
{
    struct kernel_matrix m = make_weights(type);
    size_t stride = kernel_activation_bytes(type, bench.k);
    double stream = 0;
    for (int i = 0; i < 3; i++) /* the best: other work on the machine only makes it slower */
        stream = fmax(stream, read_rate(NULL, &m, 1));
    for (int isa = 0; isa < ISA__COUNT; isa++) {
        const struct kernel_ops *ops = kernel_ops_of((enum kernel_isa)isa);
        if (ops == NULL)
            continue;
        prepare(ops, &m, stride);
        double rate = read_rate(ops, &m, 1);
        printf("%-7s %-7s decode %6.2f GiB/s, %5.1f %% of %5.2f;",
               tensor_type_info((uint32_t)type)->name, ops->name, rate / GIB, 100 * rate / stream,
               stream / GIB);
        for (size_t r = 0; r < ARRAY_LEN(cold_row_counts); r++)
            printf("  rows %u: %5.2f", cold_row_counts[r],
                   read_rate(ops, &m, cold_row_counts[r]) / GIB);
        printf("; prefill GFLOP/s");
        struct kernel_matrix warm = m;
        warm.n = N_WARM;
        for (size_t r = 0; r < ARRAY_LEN(row_counts); r++) {
            double work = 2.0 * N_WARM * m.k * row_counts[r];
            printf("  rows %u: %6.1f", row_counts[r],
                   work / call_time(ops, &warm, row_counts[r], stride) / 1e9);
        }
        printf("\n");
        fflush(stdout);
    }
}

/* Rows of a sequence, the first with so many positions; calls as the device makes them: a key head
 * each, or a row for all. */
static const struct attention_case {
    uint32_t rows, positions, group; /* queries of a key head */
} attention_cases[] = {{1, 1024, 1}, {256, 1, 1},   {1, 4096, 1},
                       {1, 4096, 8}, {96, 4000, 1}, {12, 4000, 8}};

static void bench_attention(const struct kernel_ops *ops, enum kv_type type,
                            const struct attention_case *c)
{
    uint32_t heads = KV_HEADS * c->group, last = c->positions + c->rows;
    struct kernel_attention a = {.q = bench.x,
                                 .k = bench.weights,
                                 .kv_type = type,
                                 .out = bench.y,
                                 .q_stride = (size_t)heads * HEAD_SIZE,
                                 .out_stride = (size_t)heads * HEAD_SIZE,
                                 .rows = c->rows,
                                 .positions = c->positions,
                                 .heads = heads,
                                 .kv_heads = KV_HEADS,
                                 .key_size = HEAD_SIZE,
                                 .value_size = HEAD_SIZE,
                                 .scale = 0.01f};
    size_t tiles = align_up(last, KERNEL_KEY_TILE);
    a.v = bench.weights + kernel_kv_tile(type, KV_HEADS, HEAD_SIZE, (uint32_t)tiles, 0);
    double best = INFINITY, seen = 0;
    uint32_t each = c->rows == 1 ? heads : c->group;
    uint64_t start_ns = clock_now_ns();
    do {
        uint64_t t = clock_now_ns();
        seen = 0;
        for (a.head_begin = 0; a.head_begin < heads; a.head_begin = a.head_end) {
            a.head_end = a.head_begin + each;
            ops->attention(&a);
            for (uint32_t r = 0; r < c->rows; r++)
                seen += (double)each * (a.positions + r);
        }
        best = fmin(best, (double)(clock_now_ns() - t) / (double)NS_PER_S);
    } while ((double)(clock_now_ns() - start_ns) < bench.seconds * (double)NS_PER_S);
    printf("attention %-10s %-5s rows %3u, positions %4u to %4u, %2u x %u heads of %u: %8.1f us "
           "%6.1f GFLOP/s\n",
           ops->name, kv_type_info((uint32_t)type)->name, c->rows, c->positions, last - 1,
           (unsigned)KV_HEADS, c->group, (unsigned)HEAD_SIZE, best * 1e6,
           4.0 * HEAD_SIZE * seen / best / 1e9);
    fflush(stdout);
}

/* One step of the gated delta rule in each head of the recurrent layers of Qwen3.6-35B-A3B, by one
 * thread: from one version of the state to another, in place, and of one head that stays in the
 * cache. */
static void bench_delta(const struct kernel_ops *ops)
{
    enum { LAYERS = 30, V_HEADS = 32, SIZE = 128 };
    size_t state = (size_t)SIZE * SIZE, all = LAYERS * V_HEADS * state;
    const float decay = 0.9f;
    float *memory = need(2 * all * sizeof *memory);
    static const char *const names[] = {"another version", "in place", "one head"};
    memset(memory, 0, 2 * all * sizeof *memory);
    for (int how = 0; how < 3; how++) {
        double best = INFINITY;
        uint64_t start_ns = clock_now_ns();
        for (unsigned turn = 0;
             (double)(clock_now_ns() - start_ns) < bench.seconds * (double)NS_PER_S; turn++) {
            uint64_t t = clock_now_ns();
            float *from = memory + (how == 0 && turn % 2 == 1 ? all : 0);
            float *to = memory + (how == 0 && turn % 2 == 0 ? all : 0);
            for (size_t head = 0; head < (size_t)LAYERS * V_HEADS; head++) {
                size_t at = how == 2 ? 0 : head * state;
                struct kernel_delta d = {.k = bench.x,
                                         .q = bench.x + SIZE,
                                         .v = bench.x + 2 * SIZE,
                                         .rate = 0.01f,
                                         .decay = &decay,
                                         .keys = SIZE,
                                         .values = SIZE,
                                         .state = from + at,
                                         .next = to + at,
                                         .out = bench.y};
                ops->delta(&d);
            }
            best = fmin(best, (double)(clock_now_ns() - t) / (double)NS_PER_S);
        }
        printf("delta %-8s %u heads of %u, %-15s: %8.2f ms %8.1f GB/s read and as many written\n",
               ops->name, (unsigned)(LAYERS * V_HEADS), (unsigned)SIZE, names[how], best * 1e3,
               (double)(all * sizeof *memory) / best / 1e9);
    }
    free(memory);
}

/* The time of a call in seconds, the least of many: that in which this thread ran. */
static double thread_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / (double)NS_PER_S;
}

static double least_time(void (*call)(void *arg), void *arg)
{
    double best = INFINITY, start = thread_seconds();
    while (thread_seconds() - start < bench.seconds) {
        double t = thread_seconds();
        call(arg);
        best = fmin(best, thread_seconds() - t);
    }
    return best;
}

/* Attention of one row over 2,048 positions: the first ones without a list and with one, of a
 * context of 8,192 and 32,768 every so many, and blocks of 128. */
enum { LIST = 2048, LIST_BLOCK = 128 };

static const struct chosen_case {
    const char *name;
    uint32_t heads, key_size, value_size;
    bool in_keys;
} chosen_cases[] = {{"GLM-5", 32, 576, 512, true},
                    {"Qwen3.8", 12, 256, 256, false},
                    {"MiniMax-M3", 16, 128, 128, false}};

struct chosen_call {
    const struct kernel_ops *ops;
    struct kernel_attention a;
};

static void call_attention(void *arg)
{
    struct chosen_call *c = arg;
    c->ops->attention(&c->a);
}

static void bench_chosen(const struct kernel_ops *ops, enum kv_type type,
                         const struct chosen_case *c)
{
    static const struct {
        const char *name;
        uint32_t each,
            step; /* positions together; from the first of these to the next; 0: no list */
    } lists[] = {{"no list", 1, 0},  {"all", 1, 1},      {"1 of 4", 1, 4},
                 {"1 of 16", 1, 16}, {"4 of 16", 4, 16}, {"blocks", LIST_BLOCK, 16 * LIST_BLOCK}};
    static uint32_t at[LIST], count = LIST;
    struct chosen_call call = {ops,
                               {.q = bench.x,
                                .k = bench.weights,
                                .kv_type = type,
                                .out = bench.y,
                                .rows = 1,
                                .heads = c->heads,
                                .kv_heads = 1,
                                .key_size = c->key_size,
                                .value_size = c->value_size,
                                .head_end = c->heads,
                                .scale = 0.01f}};
    if (!c->in_keys)
        call.a.v = bench.weights + COLD_BYTES / 2;
    for (size_t i = 0; i < ARRAY_LEN(lists); i++) {
        call.a.positions = lists[i].step > 1 ? 16 * LIST : LIST;
        if (16 * LIST * kv_tile_bytes(type, c->key_size) / KV_TILE > COLD_BYTES / 2)
            continue;
        for (uint32_t n = 0; n < LIST; n++)
            at[n] = n / lists[i].each * lists[i].step + n % lists[i].each;
        call.a.chosen = (struct kernel_chosen){at, lists[i].step > 0 ? &count : NULL, LIST, 1};
        double t = least_time(call_attention, &call);
        double work = (double)LIST * c->heads * (c->key_size + c->value_size);
        printf("chosen %-10s %-5s %-10s %2u heads, 2048 positions, %-8s: %8.1f us %6.1f GFLOP/s\n",
               ops->name, kv_type_info((uint32_t)type)->name, c->name, c->heads, lists[i].name,
               t * 1e6, 2 * work / t / 1e9);
        fflush(stdout);
    }
}

struct index_call {
    const struct kernel_ops *ops;
    struct kernel_index a;
    uint32_t entries;
};

static void call_scores(void *arg)
{
    struct index_call *c = arg;
    kernel_index_scores(c->ops, &c->a, 0, c->entries);
}

static void call_choice(void *arg)
{
    struct index_call *c = arg;
    uint32_t chosen[LIST];
    kernel_choose(c->a.score, c->entries, LIST, chosen);
}

/* Scores of 32,768 keys, and the choice of 2,048. */
static void bench_index(const struct kernel_ops *ops, uint32_t rows, uint32_t heads,
                        enum kv_type type)
{
    enum { ENTRIES = 32768, SIZE = 128 };
    struct index_call c = {ops,
                           {INDEX_WEIGHTED, bench.x, bench.x, bench.weights, type, rows, heads,
                            SIZE, bench.y, ENTRIES},
                           ENTRIES};
    double t = least_time(call_scores, &c);
    printf("index %-10s %-5s %2u rows of %2u heads, 32768 keys: %8.1f us %6.1f GFLOP/s", ops->name,
           kv_type_info((uint32_t)type)->name, rows, heads, t * 1e6,
           2.0 * ENTRIES * SIZE * heads * rows / t / 1e9);
    printf("; choice %8.1f us\n", least_time(call_choice, &c) * 1e6);
    fflush(stdout);
}

static void bench_choice(const struct kernel_ops *ops)
{
    for (int type = 0; type < KV_TYPE__COUNT; type++)
        for (size_t i = 0; i < ARRAY_LEN(chosen_cases); i++)
            bench_chosen(ops, (enum kv_type)type, &chosen_cases[i]);
    bench_index(ops, 1, 64, KV_TYPE_F16);
    bench_index(ops, 1, 32, KV_TYPE_F16);
    bench_index(ops, 1, 4, KV_TYPE_F32);
    bench_index(ops, 16, 4, KV_TYPE_F32);
}

int main(int argc, char **argv)
{
    static const enum tensor_type types[] = {
#define TENSOR_TYPE(name, id, block_elems, block_bytes, row_head_bytes, computed) TENSOR_##name,
#include "lib/tensor/tensor_types.tbl.h"
    };
    char *end = NULL;
    bench.seconds = argc > 1 ? strtod(argv[1], &end) : 0.2;
    if (argc > 5 || (end && (end == argv[1] || *end || !(bench.seconds > 0)))) {
        fprintf(stderr, "usage: kernel_bench [SECONDS_PER_RESULT [TYPE|all|attention|delta|chosen "
                        "[K [THREADS]]]]\n");
        return 2;
    }
    const char *only = argc > 2 && strcmp(argv[2], "all") != 0 ? argv[2] : NULL;
    bench.k = argc > 3 ? (uint32_t)strtoul(argv[3], NULL, 10) : 2048;
    bench.threads = argc > 4 ? (uint32_t)strtoul(argv[4], NULL, 10) : 1;
    sl_assert(bench.k % 256 == 0 && bench.k > 0 && bench.k <= K_MAX);
    sl_assert(bench.threads > 0 && bench.threads <= THREADS_MAX);
    bench.weights = need(COLD_BYTES);
    bench.x = need(sizeof(float) * ROWS_MAX * K_MAX);
    bench.act = need(sizeof(float) * ROWS_MAX * K_MAX);
    bench.y = need(COLD_BYTES / 8); /* rows of 256 elements have at least 32 bytes */
    for (size_t i = 0; i < (size_t)ROWS_MAX * K_MAX; i++)
        bench.x[i] = (float)((i * 2654435761u) % 2001) / 1000.0f - 1.0f;
    for (size_t t = 0; t < ARRAY_LEN(types); t++)
        if (only == NULL || strcmp(tensor_type_info((uint32_t)types[t])->name, only) == 0)
            bench_type(types[t]);
    make_weights(TENSOR_F16);
    for (int isa = 0; isa < ISA__COUNT && (only == NULL || strcmp(only, "attention") == 0); isa++) {
        const struct kernel_ops *ops = kernel_ops_of((enum kernel_isa)isa);
        for (int type = 0; type < KV_TYPE__COUNT && ops != NULL; type++) {
            for (size_t i = 0; i < ARRAY_LEN(attention_cases); i++)
                bench_attention(ops, (enum kv_type)type, &attention_cases[i]);
        }
    }
    for (int isa = 0; isa < ISA__COUNT && (only == NULL || strcmp(only, "delta") == 0); isa++)
        if (kernel_ops_of((enum kernel_isa)isa) != NULL)
            bench_delta(kernel_ops_of((enum kernel_isa)isa));
    for (int isa = ISA_GENERIC + 1; isa < ISA__COUNT && only && strcmp(only, "chosen") == 0; isa++)
        if (kernel_ops_of((enum kernel_isa)isa) != NULL)
            bench_choice(kernel_ops_of((enum kernel_isa)isa));
    free(bench.weights);
    free(bench.x);
    free(bench.act);
    free(bench.y);
    return 0;
}
