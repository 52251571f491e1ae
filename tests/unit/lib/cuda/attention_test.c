/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of the KV cache, and attention: the bytes and bits of the CPU. */
#include <stdio.h>
#include <sys/mman.h>

#include "lib/kernels/kv_layout.h"
#include "tests/unit/lib/cuda/cuda_test.h"

enum { ROWS_MAX = 3, HEADS = 4 };

struct shape {
    uint32_t key_size, value_size, kv_heads, positions, rows, window, ring;
    float cap;
    bool sinks, own_values; /* own_values: not those of the keys */
};

static const struct shape shapes[] = {
    {64, 64, 2, 1, 1, 0, 0, 0, false, true},      /* the first token */
    {64, 64, 2, 63, 3, 0, 0, 0, false, true},     /* into the second tile */
    {80, 48, 1, 130, 1, 0, 0, 0, true, true},     /* sizes that fill no block; a sink */
    {128, 128, 4, 511, 3, 0, 0, 30, false, true}, /* into the second segment; a cap */
    {64, 64, 2, 1100, 1, 0, 0, 0, true, true},    /* three segments */
    {64, 64, 2, 700, 3, 150, 0, 0, true, true},   /* a window in two segments */
    {64, 32, 2, 1025, 2, 100, 192, 0, false,
     true},                                      /* in a ring; segments begin within the window */
    {96, 64, 1, 70, 2, 0, 0, 0, false, false},   /* MLA: values are the first elements of keys */
    {576, 512, 1, 66, 1, 0, 0, 0, false, false}, /* the largest */
};

/* NaN: in single elements, and in whole blocks, which then have no largest element. */
static void spoil(float *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (test_random() % 4000 == 0 || i / 32 % 11 == 5)
            x[i] = NAN;
}

static void store_all(const struct shape *s, enum kv_type type, enum kv_side side, uint32_t size,
                      bool nan, uint8_t *tiles)
{
    uint32_t stored = s->positions + s->rows - 1;
    float row[KERNEL_HEAD_SIZE_MAX];
    for (uint32_t p = 0; p < stored; p++)
        for (uint32_t h = 0; h < s->kv_heads; h++) {
            uint32_t at = kernel_ring_position(s->ring, p);
            test_fill(row, size);
            if (nan && test_random() % 50 == 0)
                row[test_random() % size] = NAN;
            kernel_kv_store(cpu(), type, side, row, size,
                            tiles + kernel_kv_tile(type, s->kv_heads, size, at, h),
                            at % KERNEL_KEY_TILE);
        }
}

static uint8_t *tiles_of(const struct shape *s, enum kv_type type, uint32_t size, size_t *bytes)
{
    uint32_t places = s->ring ? s->ring : s->positions + s->rows;
    *bytes = (size_t)(places / KERNEL_KEY_TILE + 1) * s->kv_heads * kv_tile_bytes(type, size);
    uint8_t *tiles = test_alloc(*bytes);
    memset(tiles, 0xff, *bytes); /* NaN where nothing was stored */
    return tiles;
}

/* The first row alone, with space for more keys, and its position in memory. */
static void check_at(const struct kernel_attention *rows, const float *expected)
{
    const uint32_t limits[] = {rows->positions, rows->positions + 600};
    const uint32_t position = rows->positions - 1;
    size_t floats = (size_t)HEADS * rows->value_size;
    for (size_t i = 0; i < ARRAY_LEN(limits); i++) {
        struct kernel_attention a = *rows;
        a.rows = 1;
        a.positions = limits[i];
        memset(a.out, 0, floats * sizeof *a.out);
        void *work = test_alloc(gpu()->attention_workspace(&a) + a.heads * 16 * (2 + a.value_size));
        check_launch(gpu()->attention_at(&a, &position, work, NULL));
        check_bits(a.out, expected, floats, "kv type %d, position %u of %u", (int)a.kv_type,
                   position, limits[i]);
        free(work);
    }
}

static void check_attention(const struct shape *s, enum kv_type type, uint32_t seed, bool nan)
{
    static float q[ROWS_MAX * HEADS * KERNEL_HEAD_SIZE_MAX];
    static float expected[ROWS_MAX * HEADS * KERNEL_VALUE_SIZE_MAX], out[ARRAY_LEN(expected)];
    float sinks[HEADS];
    size_t bytes;
    uint8_t *k = tiles_of(s, type, s->key_size, &bytes),
            *v = tiles_of(s, type, s->value_size, &bytes);
    store_all(s, type, KV_SIDE_KEYS, s->key_size, nan, k);
    store_all(s, type, KV_SIDE_VALUES, s->value_size, nan, v);
    test_fill(q, ARRAY_LEN(q));
    test_fill(sinks, HEADS);
    if (nan) {
        spoil(q, (size_t)s->rows * HEADS * s->key_size);
        sinks[2] = NAN;
    }
    struct kernel_attention a = {.q = q,
                                 .k = k,
                                 .v = s->own_values ? v : NULL,
                                 .kv_type = type,
                                 .out = expected,
                                 .q_stride = (size_t)HEADS * s->key_size,
                                 .out_stride = (size_t)HEADS * s->value_size,
                                 .rows = s->rows,
                                 .heads = HEADS,
                                 .kv_heads = s->kv_heads,
                                 .key_size = s->key_size,
                                 .value_size = s->value_size,
                                 .head_begin = 1,
                                 .head_end = HEADS,
                                 .positions = s->positions,
                                 .window = s->window,
                                 .ring = s->ring,
                                 .scale = 0.6f,
                                 .cap = s->cap,
                                 .sinks = s->sinks ? sinks : NULL};
    memset(expected, 0, sizeof expected);
    memset(out, 0, sizeof out);
    cpu()->attention(&a);
    a.out = out;
    void *work = test_alloc(gpu()->attention_workspace(&a));
    fibres_seed(seed);
    check_launch(gpu()->attention(&a, work, NULL));
    check_bits(out, expected, ARRAY_LEN(out), "kv type %d, %u positions", (int)type, s->positions);
    check_at(&a, expected);
    free(work);
    free(k);
    free(v);
}

START_TEST(attention_has_the_bits)
{
    test_seed(51);
    for (size_t i = 0; i < ARRAY_LEN(shapes); i++)
        for (uint32_t type = 0; type < KV_TYPE__COUNT; type++)
            check_attention(&shapes[i], (enum kv_type)type, (uint32_t)i, false);
}
END_TEST

/* Scores that are NaN change the same results in the same way. */
START_TEST(attention_with_nan)
{
    test_seed(53);
    for (size_t i = 0; i < ARRAY_LEN(shapes); i++)
        for (uint32_t type = 0; type < KV_TYPE__COUNT; type++)
            check_attention(&shapes[i], (enum kv_type)type, (uint32_t)i, true);
}
END_TEST

/* Keys whose tile has a number beyond 2^32, in memory of which only they are touched. */
START_TEST(attention_far_away)
{
    enum { KV_HEADS = 256, SIZE = 2, WINDOW = 5 };
    const uint32_t positions = 0x7fffff00u;
    size_t bytes = kernel_kv_tile(KV_TYPE_F16, KV_HEADS, SIZE, positions + KERNEL_KEY_TILE, 0);
    float q[KV_HEADS * SIZE], expected[KV_HEADS * SIZE] = {0}, out[KV_HEADS * SIZE] = {0},
                                                  row[SIZE];
    uint8_t *k = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (k == MAP_FAILED) {
        printf("SKIP cuda_attention attention_far_away: no address space of %zu bytes\n", bytes);
        return;
    }
    test_seed(54);
    test_fill(q, ARRAY_LEN(q));
    for (uint32_t p = positions - WINDOW; p < positions; p++) {
        test_fill(row, SIZE);
        kernel_kv_store(cpu(), KV_TYPE_F16, KV_SIDE_KEYS, row, SIZE,
                        k + kernel_kv_tile(KV_TYPE_F16, KV_HEADS, SIZE, p, KV_HEADS - 1),
                        p % KERNEL_KEY_TILE);
    }
    struct kernel_attention a = {.q = q,
                                 .k = k,
                                 .v = k,
                                 .kv_type = KV_TYPE_F16,
                                 .out = expected,
                                 .rows = 1,
                                 .heads = KV_HEADS,
                                 .kv_heads = KV_HEADS,
                                 .key_size = SIZE,
                                 .value_size = SIZE,
                                 .head_begin = KV_HEADS - 1,
                                 .head_end = KV_HEADS,
                                 .positions = positions,
                                 .window = WINDOW,
                                 .scale = 1};
    cpu()->attention(&a);
    a.out = out;
    void *work = test_alloc(gpu()->attention_workspace(&a));
    check_launch(gpu()->attention(&a, work, NULL));
    check_bits(out, expected, ARRAY_LEN(out), "far away");
    free(work);
    munmap(k, bytes);
}
END_TEST

static struct kernel_attention small_attention(void)
{
    return (struct kernel_attention){.rows = 1,
                                     .heads = 4,
                                     .kv_heads = 2,
                                     .key_size = 64,
                                     .value_size = 64,
                                     .head_end = 4,
                                     .positions = 1};
}

#define check_refused(field, value)                                                                \
    do {                                                                                           \
        struct kernel_attention a_ = small_attention();                                            \
        float none_;                                                                               \
        a_.v = &none_;                                                                             \
        a_.field = value;                                                                          \
        ck_assert_int_eq(gpu()->attention(&a_, NULL, NULL), GPU_UNSUPPORTED);                      \
        ck_assert_uint_eq(gpu()->attention_workspace(&a_), 0);                                     \
    } while (0)

START_TEST(arguments_out_of_range)
{
    check_refused(kv_type, KV_TYPE__COUNT);
    check_refused(key_size, KERNEL_HEAD_SIZE_MAX + 1);
    check_refused(value_size, KERNEL_VALUE_SIZE_MAX + 1);
    check_refused(kv_heads, 0);
    check_refused(kv_heads, 3);
    check_refused(head_end, 5);
    check_refused(head_begin, 5);
    check_refused(positions, 0);
    check_refused(positions, GPU_COUNT_MAX);
    check_refused(rows, GPU_ROWS_MAX + 1);
    check_refused(ring, 64);  /* without a window */
    check_refused(ring, 100); /* no whole tiles */
    struct gpu_kv_store s = {.head_size = 64, .kv_heads = 2, .rows = 1}, wrong = s;
    wrong.type = KV_TYPE__COUNT;
    ck_assert_int_eq(gpu()->kv_store(&wrong, NULL), GPU_UNSUPPORTED);
    wrong = s;
    wrong.position = UINT32_MAX;
    ck_assert_int_eq(gpu()->kv_store(&wrong, NULL), GPU_UNSUPPORTED);
    wrong = s;
    wrong.rows = GPU_ROWS_MAX + 1;
    ck_assert_int_eq(gpu()->kv_store(&wrong, NULL), GPU_UNSUPPORTED);
    wrong = s;
    wrong.ring = 64;
    wrong.rows = 65; /* two rows at one position */
    ck_assert_int_eq(gpu()->kv_store(&wrong, NULL), GPU_UNSUPPORTED);
    wrong = s;
    wrong.rows = 2;
    wrong.at = &wrong.position;
    ck_assert_int_eq(gpu()->kv_store(&wrong, NULL), GPU_UNSUPPORTED);
    struct kernel_attention two = small_attention();
    two.rows = 2;
    ck_assert_int_eq(gpu()->attention_at(&two, &wrong.position, NULL, NULL), GPU_UNSUPPORTED);
    wrong = s;
    wrong.rows = 0;
    ck_assert_int_eq(gpu()->kv_store(&wrong, NULL), 0);
}
END_TEST

/* The same rows, one by one, with their positions in memory. */
static void check_stored_at(struct gpu_kv_store s, const uint8_t *expected, size_t bytes)
{
    float copy[256];
    uint8_t *tiles = test_alloc(bytes);
    memset(tiles, 0x5a, bytes);
    for (uint32_t r = 0, rows = s.rows, first = s.position; r < rows; r++) {
        const uint32_t at = first + r;
        s.tiles = tiles;
        s.rows = 1;
        s.position = 0;
        s.at = &at;
        s.copy = copy;
        check_launch(gpu()->kv_store(&s, NULL));
        ck_assert_mem_eq(copy, s.x, s.x_stride * sizeof *copy);
        s.x += s.x_stride;
    }
    ck_assert_mem_eq(tiles, expected, bytes);
    free(tiles);
}

START_TEST(stored_rows_have_the_bytes)
{
    enum { KV_HEADS = 2, ROWS = 3, RING = 128, FIRST = 126 };
    static const uint32_t head_sizes[] = {32, 80, 128};
    static float x[ROWS * KV_HEADS * 128];
    test_seed(52);
    for (uint32_t i = 0; i < ARRAY_LEN(head_sizes) * KV_TYPE__COUNT * 2; i++) {
        uint32_t size = head_sizes[i % ARRAY_LEN(head_sizes)];
        enum kv_type type = (enum kv_type)(i / ARRAY_LEN(head_sizes) % KV_TYPE__COUNT);
        enum kv_side side = i % 2 ? KV_SIDE_KEYS : KV_SIDE_VALUES;
        size_t bytes = 2 * KV_HEADS * kv_tile_bytes(type, size);
        uint8_t *expected = test_alloc(bytes), *tiles = test_alloc(bytes);
        memset(expected, 0x5a, bytes);
        memset(tiles, 0x5a, bytes);
        fill_edges(x, ARRAY_LEN(x));
        memset(x, 0, 32 * sizeof *x);
        for (uint32_t e = 0; e < 32; e++) /* a block without a largest element */
            x[(size_t)KV_HEADS * size + e] = NAN;
        for (uint32_t r = 0; r < ROWS * KV_HEADS; r++) {
            uint32_t at = kernel_ring_position(RING, FIRST + r / KV_HEADS), h = r % KV_HEADS;
            kernel_kv_store(cpu(), type, side, x + (size_t)r * size, size,
                            expected + kernel_kv_tile(type, KV_HEADS, size, at, h),
                            at % KERNEL_KEY_TILE);
        }
        struct gpu_kv_store s = {.x = x,
                                 .tiles = tiles,
                                 .type = type,
                                 .side = side,
                                 .x_stride = (size_t)KV_HEADS * size,
                                 .head_size = size,
                                 .kv_heads = KV_HEADS,
                                 .position = FIRST,
                                 .ring = RING,
                                 .rows = ROWS};
        fibres_seed(i);
        check_launch(gpu()->kv_store(&s, NULL));
        for (size_t b = 0; b < bytes; b++)
            ck_assert_msg(tiles[b] == expected[b], "kv type %d side %d size %u byte %zu", (int)type,
                          (int)side, size, b);
        check_stored_at(s, expected, bytes);
        free(expected);
        free(tiles);
    }
}
END_TEST

GPU_TESTS_MAIN("cuda_attention", attention_has_the_bits, attention_with_nan, attention_far_away,
               stored_rows_have_the_bytes, arguments_out_of_range)
