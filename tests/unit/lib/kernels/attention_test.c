/* SPDX-License-Identifier: Apache-2.0 */
/* Options of attention: key and value heads of different sizes, windows, sinks, capped scores,
 * every KV type; values that are the first elements of keys. Against sums in double over what the
 * tiles hold; the same bits on every instruction set, and for rows together and alone. Keys and
 * values outside a window are NaN, tiles before it inaccessible. */
#include <sys/mman.h>
#include <unistd.h>

#include "kernel_test.h"
#include "lib/kernels/kv_layout.h"

#define REFERENCE kernel_ops_of(ISA_GENERIC)
#define HEADS_MAX 200
/* Elements between rows of queries, and of results. */
#define Q_GAP   3
#define OUT_GAP 5

static const enum kv_type kv_types[] = {
#define KV_TYPE(id, name, block, block_bytes) KV_TYPE_##id,
#include "lib/tensor/kv_types.tbl.h"
};

struct option_case {
    uint32_t heads, kv_heads, key_size, value_size, positions, rows, window;
    float cap;
    bool sinks;
};

static const struct option_case cases[] = {
    {4, 2, 64, 64, 1, 1, 128, 0, true},          {4, 2, 64, 64, 128, 1, 128, 0, true},
    {4, 2, 64, 64, 129, 1, 128, 0, false},       {4, 2, 64, 64, 700, 1, 128, 0, true},
    {8, 1, 64, 64, 690, 40, 128, 0, true},       {8, 1, 32, 32, 1, 70, 5, 0, false},
    {16, 2, 20, 12, 500, 30, 33, 0, true},       {4, 2, 64, 64, 513, 3, 1, 0, false},
    {2, 2, 40, 64, 640, 5, 513, 0, false},       {4, 4, 128, 96, 70, 9, 0, 0, true},
    {4, 2, 256, 256, 200, 4, 100, 30.0f, false}, {4, 1, 512, 512, 130, 9, 64, 0, true},
    {16, 1, 576, 512, 130, 3, 0, 0, false},      {2, 1, 576, 512, 600, 1, 0, 2.0f, true},
    {3, 1, 72, 72, 20, 70, 0, 0, false},         {80, 2, 40, 36, 200, 1, 0, 0, true},
    {7, 1, 100, 100, 90, 33, 10, 20.0f, true},   {1, 1, 256, 256, 10, 60, 0, 0, false},
    {2, 1, 264, 264, 40, 17, 0, 0, false},       {6, 2, 15, 17, 500, 25, 0, 0, true},
    {2, 1, 256, 64, 60, 40, 0, 0, false},        {1, 1, 160, 160, 30, 80, 0, 0, true},
    {4, 1, 8, 8, 100, 20, 0, 0, false},          {33, 1, 5, 3, 90, 1, 0, 0, true},
    {5, 1, 64, 64, 180, 30, 20, 0, true},        {200, 2, 40, 36, 100, 1, 0, 0, false},
    {2, 1, 64, 64, 630, 20, 128, 0, true},       {3, 1, 1088, 1024, 66, 2, 0, 0, true},
};

/* Values are the first elements of keys. */
static const struct option_case in_keys[] = {
    {16, 1, 576, 512, 130, 3, 0, 0, false},  {1, 1, 576, 512, 600, 1, 0, 0, false},
    {3, 1, 96, 64, 513, 1, 0, 0, false},     {4, 2, 40, 20, 70, 9, 33, 0, true},
    {2, 1, 96, 64, 513, 1, 0, 0, true},      {16, 1, 96, 64, 130, 5, 0, 0, false},
    {30, 1, 576, 512, 70, 1, 0, 0, true},    {16, 1, 1088, 1024, 300, 3, 66, 0, false},
    {40, 1, 1088, 1024, 600, 1, 0, 0, true}, {4, 1, 576, 544, 130, 3, 66, 0, false},
};

/* Large heads are not quantised. */
static bool fits(const struct option_case *c, enum kv_type type)
{
    bool large = c->key_size > KERNEL_HEAD_SIZE_MAX || c->value_size > KERNEL_VALUE_SIZE_MAX;
    return !large || type == KV_TYPE_F16 || type == KV_TYPE_F32;
}

struct memory {
    uint8_t *base;
    size_t bytes;
};

static struct memory memory_new(size_t bytes)
{
    struct memory m = {.bytes = (bytes + 4095) / 4096 * 4096};
    m.base = mmap(NULL, m.bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ck_assert(m.base != MAP_FAILED);
    return m;
}

struct attention {
    struct option_case c;
    uint32_t ring;
    struct kernel_attention a;
    struct memory k, v;
    double *keys, *values; /* what the tiles hold: [position][head][size] */
    float *q, sinks[HEADS_MAX];
};

static uint32_t begin_of(const struct option_case *c, uint32_t row)
{
    uint32_t positions = c->positions + row;
    return c->window != 0 && positions > c->window ? positions - c->window : 0;
}

/* What a stored row holds: attention to one key is its value. kv_test checks that against the
 * description of the tiles. Keys are rounded like values. Blocks are rounded alone, so a row longer
 * than a value is read in pieces. */
static void stored_row(enum kv_type type, const float *x, uint32_t size, double *out)
{
    enum { PIECE = 512 };
    float query = 1, v[PIECE];
    uint32_t n = size < PIECE ? size : PIECE;
    uint8_t *tile = test_alloc((size_t)kv_tile_bytes(type, n));
    uint8_t *keys = calloc(1, (size_t)kv_tile_bytes(type, 1));
    kernel_kv_store(REFERENCE, type, KV_SIDE_VALUES, x, n, tile, 0);
    struct kernel_attention a = {.q = &query,
                                 .k = keys,
                                 .v = tile,
                                 .kv_type = type,
                                 .out = v,
                                 .rows = 1,
                                 .heads = 1,
                                 .kv_heads = 1,
                                 .key_size = 1,
                                 .value_size = n,
                                 .head_end = 1,
                                 .positions = 1};
    REFERENCE->attention(&a);
    for (uint32_t i = 0; i < n; i++)
        out[i] = (double)v[i];
    free(tile);
    free(keys);
    if (size > n)
        stored_row(type, x + n, size - n, out + n);
}

static void fill_side(struct attention *t, enum kv_side side, enum kv_type type)
{
    const struct option_case *c = &t->c;
    uint32_t size = side == KV_SIDE_KEYS ? c->key_size : c->value_size;
    uint32_t last = c->positions + c->rows - 1, first = begin_of(c, 0);
    uint32_t end = t->ring > 0 ? t->ring : last + KV_TILE - 1;
    size_t tiles = kernel_kv_tile(type, c->kv_heads, size, end, 0);
    struct memory m = memory_new(tiles);
    double *held = test_alloc(sizeof *held * last * c->kv_heads * size);
    float *x = test_alloc(size * sizeof *x);
    for (uint32_t p = 0; p < last; p++)
        for (uint32_t h = 0; h < c->kv_heads; h++) {
            uint32_t in_ring = kernel_ring_position(t->ring, p);
            uint8_t *tile = m.base + kernel_kv_tile(type, c->kv_heads, size, in_ring, h);
            test_fill(x, size);
            stored_row(type, x, size, held + ((size_t)p * c->kv_heads + h) * size);
            for (uint32_t i = 0; i < size && p < first; i++)
                x[i] = NAN;
            kernel_kv_store(REFERENCE, type, side, x, size, tile, p % KV_TILE);
        }
    size_t closed = kernel_kv_tile(type, c->kv_heads, size, first, 0) / 4096 * 4096;
    if (closed > 0 && t->ring == 0)
        ck_assert_int_eq(mprotect(m.base, closed, PROT_NONE), 0);
    free(x);
    *(side == KV_SIDE_KEYS ? &t->k : &t->v) = m;
    *(side == KV_SIDE_KEYS ? &t->keys : &t->values) = held;
}

static void values_of_keys(struct attention *t)
{
    const struct option_case *c = &t->c;
    size_t rows = (size_t)(c->positions + c->rows - 1) * c->kv_heads;
    t->values = test_alloc(sizeof *t->values * rows * c->value_size);
    for (size_t row = 0; row < rows; row++)
        memcpy(t->values + row * c->value_size, t->keys + row * c->key_size,
               c->value_size * sizeof *t->values);
}

static struct attention attention_new(const struct option_case *c, enum kv_type type,
                                      bool values_in_keys, uint32_t ring)
{
    struct attention t = {.c = *c, .ring = ring};
    size_t q_stride = (size_t)c->heads * c->key_size + Q_GAP;
    t.q = test_alloc(sizeof *t.q * c->rows * q_stride);
    test_fill(t.q, c->rows * q_stride);
    test_fill(t.sinks, HEADS_MAX);
    fill_side(&t, KV_SIDE_KEYS, type);
    if (values_in_keys)
        values_of_keys(&t);
    else
        fill_side(&t, KV_SIDE_VALUES, type);
    t.a = (struct kernel_attention){.q = t.q,
                                    .k = t.k.base,
                                    .v = t.v.base,
                                    .kv_type = type,
                                    .q_stride = q_stride,
                                    .out_stride = (size_t)c->heads * c->value_size + OUT_GAP,
                                    .rows = c->rows,
                                    .heads = c->heads,
                                    .kv_heads = c->kv_heads,
                                    .key_size = c->key_size,
                                    .value_size = c->value_size,
                                    .head_end = c->heads,
                                    .positions = c->positions,
                                    .window = c->window,
                                    .ring = ring,
                                    .scale = 2 / sqrtf((float)c->key_size),
                                    .cap = c->cap};
    return t; /* `sinks` is set where it stays */
}

static void attention_free(struct attention *t)
{
    munmap(t->k.base, t->k.bytes);
    if (t->v.base)
        munmap(t->v.base, t->v.bytes);
    free(t->keys);
    free(t->values);
    free(t->q);
}

/* One head of a row in double. */
static void oracle(const struct attention *t, uint32_t head, uint32_t row, double *out)
{
    const struct option_case *c = &t->c;
    uint32_t kv_head = head / (c->heads / c->kv_heads), end = c->positions + row;
    const float *q = t->q + row * t->a.q_stride + (size_t)head * c->key_size;
    double sum = c->sinks ? exp((double)t->sinks[head]) : 0;
    memset(out, 0, c->value_size * sizeof *out);
    for (uint32_t p = begin_of(c, row); p < end; p++) {
        const double *k = t->keys + ((size_t)p * c->kv_heads + kv_head) * c->key_size;
        const double *v = t->values + ((size_t)p * c->kv_heads + kv_head) * c->value_size;
        double score = 0;
        for (uint32_t d = 0; d < c->key_size; d++)
            score += (double)q[d] * k[d];
        score *= (double)t->a.scale;
        if (c->cap != 0)
            score = (double)c->cap * tanh(score / (double)c->cap);
        double weight = exp(score);
        sum += weight;
        for (uint32_t d = 0; d < c->value_size; d++)
            out[d] += weight * v[d];
    }
    for (uint32_t d = 0; d < c->value_size; d++)
        out[d] /= sum;
}

static void compare_with_double(const struct attention *t, const float *out)
{
    const struct option_case *c = &t->c;
    double want[KERNEL_WIDE_VALUE_MAX];
    /* Integer queries: half a step of 1/127 of the largest element, over a head. */
    double limit = t->a.kv_type == KV_TYPE_Q8_0 || t->a.kv_type == KV_TYPE_Q4_0 ? 2e-2 : 1e-5;
    for (uint32_t r = 0; r < c->rows; r++)
        for (uint32_t h = 0; h < c->heads; h++) {
            oracle(t, h, r, want);
            for (uint32_t d = 0; d < c->value_size; d++) {
                double got = (double)out[r * t->a.out_stride + h * c->value_size + d];
                ck_assert_msg(
                    fabs(got - want[d]) < limit,
                    "heads of %u, %u positions, %s: row %u head %u element %u is %g, not %g",
                    c->key_size, c->positions, kv_type_info((uint32_t)t->a.kv_type)->name, r, h, d,
                    got, want[d]);
            }
        }
}

/* All rows in one call, and each alone, have the wanted bits. */
static void compare_bits(const struct kernel_ops *ops, const struct attention *t, const float *want,
                         size_t bytes)
{
    float *got = test_alloc(bytes);
    struct kernel_attention a = t->a;
    a.out = got;
    ops->attention(&a);
    ck_assert_msg(memcmp(got, want, bytes) == 0, "%s: heads of %u, %u positions, %s", ops->name,
                  t->c.key_size, t->c.positions, kv_type_info((uint32_t)a.kv_type)->name);
    memset(got, 0xff, bytes);
    a.rows = 1;
    for (uint32_t r = 0; r < t->c.rows; r++) {
        ops->attention(&a);
        a.q += a.q_stride;
        a.out += a.out_stride;
        a.positions++;
    }
    ck_assert_msg(memcmp(got, want, bytes) == 0, "%s: heads of %u, %u positions, %s, rows alone",
                  ops->name, t->c.key_size, t->c.positions,
                  kv_type_info((uint32_t)a.kv_type)->name);
    free(got);
}

/* The generic set against sums in double; every set against the bits of the generic one. */
static void check_case(const struct option_case *c, enum kv_type type, bool values_in_keys)
{
    const struct kernel_ops *sets[ISA__COUNT];
    size_t count = test_other_sets(sets, true);
    struct attention t = attention_new(c, type, values_in_keys, 0);
    size_t bytes = sizeof(float) * t.a.out_stride * c->rows;
    float *want = test_alloc(bytes);
    t.a.sinks = c->sinks ? t.sinks : NULL;
    t.a.out = want;
    REFERENCE->attention(&t.a);
    compare_with_double(&t, want);
    compare_bits(REFERENCE, &t, want, bytes);
    for (size_t s = 0; s < count; s++)
        compare_bits(sets[s], &t, want, bytes);
    free(want);
    attention_free(&t);
}

START_TEST(options_match_double)
{
    test_seed(91);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        for (size_t type = 0; type < ARRAY_LEN(kv_types); type++)
            if (fits(&cases[i], kv_types[type]))
                check_case(&cases[i], kv_types[type], false);
}
END_TEST

START_TEST(values_in_keys_match_double)
{
    test_seed(92);
    for (size_t i = 0; i < ARRAY_LEN(in_keys); i++)
        for (size_t type = 0; type < ARRAY_LEN(kv_types); type++)
            if (fits(&in_keys[i], kv_types[type]))
                check_case(&in_keys[i], kv_types[type], true);
}
END_TEST

/* The smallest ring that the rows allow, and larger ones, in which keys before the window are
 * overwritten. Every set has the bits that the generic one has without a ring. */
static void check_rings(const struct option_case *c, enum kv_type type, bool values_in_keys)
{
    const struct kernel_ops *sets[ISA__COUNT] = {REFERENCE};
    size_t count = 1 + test_other_sets(sets + 1, true);
    uint32_t smallest = (c->window + c->rows - 1 + KV_TILE - 1) / KV_TILE * KV_TILE;
    size_t bytes = sizeof(float) * ((size_t)c->heads * c->value_size + OUT_GAP) * c->rows;
    float *want = test_alloc(bytes), *got = test_alloc(bytes);
    test_seed(93);
    struct attention all = attention_new(c, type, values_in_keys, 0);
    all.a.sinks = c->sinks ? all.sinks : NULL;
    all.a.out = want;
    REFERENCE->attention(&all.a);
    for (uint32_t more = 0; more < 2; more++) {
        test_seed(93); /* the same keys and values */
        struct attention in_ring =
            attention_new(c, type, values_in_keys, smallest + more * KV_TILE);
        in_ring.a.sinks = c->sinks ? in_ring.sinks : NULL;
        in_ring.a.out = got;
        for (size_t s = 0; s < count; s++) {
            memset(got, 0xff, bytes);
            sets[s]->attention(&in_ring.a);
            ck_assert_msg(memcmp(want, got, bytes) == 0, "%s: heads of %u, window of %u",
                          sets[s]->name, c->key_size, c->window);
        }
        attention_free(&in_ring);
    }
    free(want);
    free(got);
    attention_free(&all);
}

START_TEST(rings_have_the_same_bits)
{
    uint32_t wraps = 0;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        for (size_t type = 0; type < ARRAY_LEN(kv_types) && cases[i].window > 0; type++) {
            check_rings(&cases[i], kv_types[type], false);
            wraps += cases[i].positions > cases[i].window + cases[i].rows + 2 * KV_TILE;
        }
    for (size_t i = 0; i < ARRAY_LEN(in_keys); i++)
        for (size_t type = 0; type < ARRAY_LEN(kv_types) && in_keys[i].window > 0; type++)
            if (fits(&in_keys[i], kv_types[type]))
                check_rings(&in_keys[i], kv_types[type], true);
    ck_assert_uint_gt(wraps, 3);
}
END_TEST

/* ---- rotations for longer contexts ---- */

static double turns_at(double rotations, double dims, double theta, double context)
{
    return dims * log(context / (rotations * 2 * acos(-1.0))) / (2 * log(theta));
}

/* The published formula of YaRN, by angles per position. */
static double yarn_angle(const struct kernel_rope *r, uint32_t i)
{
    double n = r->dims, low = turns_at(r->beta_fast, n, r->theta, r->context);
    double high = turns_at(r->beta_slow, n, r->theta, r->context);
    if (r->truncate) {
        low = floor(low);
        high = ceil(high);
    }
    low = fmax(low, 0);
    high = fmin(high, n - 1);
    double ramp = fmin(fmax((i - low) / (low == high ? 0.001 : high - low), 0), 1);
    double plain = pow(r->theta, -2.0 * i / n);
    return plain / r->factor * ramp + plain * (1 - ramp);
}

static void check_table(const struct kernel_rope *r, uint32_t position, double magnitude)
{
    float table[256];
    kernel_rope_table(r, position, table);
    for (uint32_t i = 0; i < r->dims / 2; i++) {
        double angle =
            position * (r->yarn ? yarn_angle(r, i)
                                : pow(r->theta, -2.0 * i / r->dims) / (r->factor ? r->factor : 1));
        ck_assert_double_le(fabs((double)table[2 * i] - magnitude * cos(angle)), 2e-7);
        ck_assert_double_le(fabs((double)table[2 * i + 1] - magnitude * sin(angle)), 2e-7);
    }
}

START_TEST(rope_scales)
{
    struct kernel_rope r = {.dims = 64, .theta = 150000, .factor = 32};
    check_table(&r, 100000, 1);
    r.yarn = true;
    r.context = 4096;
    r.beta_fast = 32;
    r.beta_slow = 1;
    check_table(&r, 5, 0.1 * log(32) + 1);
    check_table(&r, 130000, 0.1 * log(32) + 1);
    float exact[64], rounded[64];
    kernel_rope_table(&r, 1000, exact);
    r.truncate = true;
    check_table(&r, 130000, 0.1 * log(32) + 1);
    kernel_rope_table(&r, 1000, rounded);
    ck_assert(memcmp(exact, rounded, sizeof exact) != 0);
    r.magnitude = 0.5;
    check_table(&r, 777, 0.5);
    r.context = 64; /* every angle is divided */
    check_table(&r, 777, 0.5);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("kernels.attention");
    TCase *tcase = tcase_create("attention");
    tcase_set_timeout(tcase, 120);
    tcase_add_test(tcase, options_match_double);
    tcase_add_test(tcase, values_in_keys_match_double);
    tcase_add_test(tcase, rings_have_the_same_bits);
    tcase_add_test(tcase, rope_scales);
    suite_add_tcase(suite, tcase);
    return test_run(suite);
}
