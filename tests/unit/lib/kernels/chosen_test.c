/* SPDX-License-Identifier: Apache-2.0 */
/* Attention over lists of positions: a list of all of them has the bits of attention without a
 * list, a part of them those of attention in which the others score -inf, on every instruction set;
 * and what is not in a list is not used. */
#include <stdio.h>

#include "kernel_test.h"

#define REFERENCE kernel_ops_of(ISA_GENERIC)
#define HEADS_MAX 128

struct shape {
    uint32_t heads, kv_heads, key_size, value_size, positions, rows, window, ring;
    bool in_keys, sinks;
    float cap;
};

static const struct shape shapes[] = {
    {4, 2, 64, 64, 700, 1, 0, 0, false, false, 0},
    {8, 2, 64, 64, 1, 1, 0, 0, false, true, 0},
    {3, 1, 40, 36, 1100, 3, 0, 0, false, true, 20},
    {16, 2, 128, 128, 1601, 2, 0, 0, false, false, 0},
    {24, 1, 576, 512, 900, 2, 0, 0, true, false, 0},
    {50, 1, 96, 64, 520, 2, 0, 0, true, true, 0},
    {5, 5, 256, 256, 140, 2, 0, 0, false, false, 0},
    {4, 1, 64, 64, 700, 3, 300, 0, false, true, 0},
    {4, 1, 64, 64, 1400, 3, 300, 320, false, true, 0},
    {1, 1, 15, 17, 130, 9, 0, 0, false, false, 0},
    {128, 1, 32, 32, 300, 1, 0, 0, false, false, 0},
    {6, 2, 576, 512, 600, 1, 0, 0, false, false, 0},
};

static const enum kv_type kv_types[] = {
#define KV_TYPE(id, name, block, block_bytes) KV_TYPE_##id,
#include "lib/tensor/kv_types.tbl.h"
};

struct data {
    struct shape s;
    uint32_t last; /* positions of the last row */
    uint8_t *k, *v;
    float *keys, *values, *q, sinks[HEADS_MAX];
    uint32_t *at, *count;
    size_t out_bytes;
    struct kernel_attention a;
};

static void store(const struct data *d, enum kv_side side, uint32_t from, uint32_t position,
                  uint32_t ring, bool nan, uint8_t *base)
{
    const struct shape *s = &d->s;
    uint32_t size = side == KV_SIDE_KEYS ? s->key_size : s->value_size;
    const float *x = (side == KV_SIDE_KEYS ? d->keys : d->values);
    float row[KERNEL_HEAD_SIZE_MAX];
    for (uint32_t h = 0; h < s->kv_heads; h++) {
        uint32_t at = kernel_ring_position(ring, position);
        memcpy(row, x + ((size_t)from * s->kv_heads + h) * size, size * sizeof *row);
        for (uint32_t i = 0; i < size && nan; i++)
            row[i] = NAN;
        kernel_kv_store(REFERENCE, d->a.kv_type, side, row, size,
                        base + kernel_kv_tile(d->a.kv_type, s->kv_heads, size, at, h),
                        position % KV_TILE);
    }
}

static uint8_t *tiles_of(const struct data *d, uint32_t size)
{
    uint32_t end = d->s.ring > 0 ? d->s.ring : d->last + KV_TILE;
    size_t bytes = kernel_kv_tile(d->a.kv_type, d->s.kv_heads, size, end, 0);
    uint8_t *p = test_alloc(bytes);
    memset(p, 0, bytes);
    return p;
}

static float *random_floats(size_t n)
{
    float *x = test_alloc(n * sizeof *x);
    test_fill(x, n);
    return x;
}

static struct data data_new(const struct shape *s, enum kv_type type)
{
    struct data d = {.s = *s, .last = s->positions + s->rows - 1};
    size_t width = (size_t)s->heads * s->key_size, out = (size_t)s->heads * s->value_size;
    d.a.kv_type = type;
    d.q = random_floats(width * s->rows);
    d.keys = random_floats((size_t)d.last * s->kv_heads * s->key_size);
    d.values = random_floats((size_t)d.last * s->kv_heads * s->value_size);
    test_fill(d.sinks, HEADS_MAX);
    d.k = tiles_of(&d, s->key_size);
    d.v = s->in_keys ? NULL : tiles_of(&d, s->value_size);
    for (uint32_t p = 0; p < d.last; p++) {
        store(&d, KV_SIDE_KEYS, p, p, s->ring, false, d.k);
        if (d.v)
            store(&d, KV_SIDE_VALUES, p, p, s->ring, false, d.v);
    }
    d.at = test_alloc(sizeof *d.at * s->rows * d.last);
    d.count = test_alloc(sizeof *d.count * s->rows);
    d.out_bytes = sizeof(float) * s->rows * out;
    d.a = (struct kernel_attention){.q = d.q,
                                    .k = d.k,
                                    .v = d.v,
                                    .kv_type = type,
                                    .q_stride = width,
                                    .out_stride = out,
                                    .rows = s->rows,
                                    .heads = s->heads,
                                    .kv_heads = s->kv_heads,
                                    .key_size = s->key_size,
                                    .value_size = s->value_size,
                                    .head_end = s->heads,
                                    .positions = s->positions,
                                    .window = s->window,
                                    .ring = s->ring,
                                    .scale = 2 / sqrtf((float)s->key_size),
                                    .cap = s->cap};
    return d; /* `sinks` is set where it stays */
}

static void data_free(struct data *d)
{
    free(d->k);
    free(d->v);
    free(d->keys);
    free(d->values);
    free(d->q);
    free(d->at);
    free(d->count);
}

/* Kinds of lists: each position with a probability in 256; blocks of 128; a single position. */
enum kind { ALL, MOST, HALF, SIXTEENTH, FEW, BLOCKS, ONE, NONE, KINDS };

static bool is_listed(enum kind kind, uint32_t p, uint32_t positions, uint32_t blocks)
{
    static const uint32_t of_256[] = {[MOST] = 250, [HALF] = 128, [SIXTEENTH] = 16, [FEW] = 2};
    switch (kind) {
    case ALL: return true;
    case BLOCKS: return (blocks >> (p / 128) & 1) != 0;
    case ONE: return p == positions / 2;
    case NONE: return false;
    default: return test_random() % 256 < of_256[kind];
    }
}

static void fill_lists(struct data *d, enum kind kind)
{
    for (uint32_t r = 0; r < d->s.rows; r++) {
        uint32_t positions = d->s.positions + r, n = 0, blocks = test_random();
        for (uint32_t p = 0; p < positions; p++)
            if (is_listed(kind, p, positions, blocks))
                d->at[(size_t)r * d->last + n++] = p;
        d->count[r] = n;
    }
    d->a.chosen =
        (struct kernel_chosen){.at = d->at, .count = d->count, .stride = d->last, .step = 1};
}

static float *attend(const struct kernel_ops *ops, const struct data *d)
{
    struct kernel_attention a = d->a;
    float *out = test_alloc(d->out_bytes);
    memset(out, 0xff, d->out_bytes);
    a.out = out;
    a.sinks = d->s.sinks ? d->sinks : NULL;
    ops->attention(&a);
    return out;
}

static void check_bits(const struct kernel_ops *ops, const struct data *d, const float *want,
                       const char *what)
{
    float *got = attend(ops, d);
    ck_assert_msg(memcmp(got, want, d->out_bytes) == 0, "%s: %s, %s, heads of %u, %u positions",
                  ops->name, what, kv_type_info((uint32_t)d->a.kv_type)->name, d->s.key_size,
                  d->s.positions);
    free(got);
}

static void check_all(const struct data *d, const float *want, const char *what)
{
    const struct kernel_ops *sets[ISA__COUNT] = {REFERENCE};
    size_t count = 1 + test_other_sets(sets + 1, true);
    for (size_t i = 0; i < count; i++)
        check_bits(sets[i], d, want, what);
}

START_TEST(a_list_of_all_has_the_bits_of_none)
{
    test_seed(201);
    for (size_t i = 0; i < ARRAY_LEN(shapes); i++)
        for (size_t t = 0; t < ARRAY_LEN(kv_types); t++) {
            struct data d = data_new(&shapes[i], kv_types[t]);
            float *want = attend(REFERENCE, &d);
            fill_lists(&d, ALL);
            check_all(&d, want, "all");
            free(want);
            data_free(&d);
        }
}
END_TEST

/* A row alone, heads divided, have the bits of all together. */
static void check_divided(const struct kernel_ops *ops, const struct data *d, const float *want)
{
    struct data one = *d;
    uint32_t middle = d->s.heads / 2;
    one.a.rows = 1;
    one.s.rows = 1;
    one.out_bytes = d->out_bytes / d->s.rows;
    for (uint32_t r = 0; r < d->s.rows; r++) {
        one.a.q = d->q + r * d->a.q_stride;
        one.a.positions = d->s.positions + r;
        one.a.chosen.at = d->at + (size_t)r * d->last;
        one.a.chosen.count = d->count + r;
        one.a.head_begin = 0;
        one.a.head_end = middle;
        float *first = attend(ops, &one);
        one.a.head_begin = middle;
        one.a.head_end = d->s.heads;
        float *last = attend(ops, &one);
        size_t split = (size_t)middle * d->s.value_size, all = d->a.out_stride;
        memcpy(last, first, split * sizeof *last);
        ck_assert_mem_eq(last, want + r * all, all * sizeof *last);
        free(first);
        free(last);
    }
}

/* The rows that a list names, moved together: other sums, the same mathematics. */
static void check_compact(const struct data *d, const float *got)
{
    struct data c = *d;
    uint32_t begin = kernel_attention_begin(d->s.window, d->s.positions), n = 0;
    if (d->count[0] == 0 || d->at[d->count[0] - 1] < begin)
        return;
    c.k = tiles_of(d, d->s.key_size);
    c.v = d->v ? tiles_of(d, d->s.value_size) : NULL;
    for (uint32_t i = 0; i < d->count[0]; i++) {
        if (d->at[i] < begin)
            continue;
        store(&c, KV_SIDE_KEYS, d->at[i], n, d->s.ring, false, c.k);
        if (c.v)
            store(&c, KV_SIDE_VALUES, d->at[i], n, d->s.ring, false, c.v);
        n++;
    }
    c.a.k = c.k;
    c.a.v = c.v;
    c.a.rows = 1;
    c.a.positions = n;
    c.a.chosen = (struct kernel_chosen){.count = NULL};
    float *want = attend(REFERENCE, &c);
    for (size_t i = 0; i < d->a.out_stride; i++)
        ck_assert_msg(fabsf(want[i] - got[i]) < 1e-5f, "element %zu is %g, not %g", i,
                      (double)got[i], (double)want[i]);
    free(want);
    free(c.k);
    free(c.v);
}

START_TEST(lists_have_the_same_bits_everywhere)
{
    test_seed(202);
    for (size_t i = 0; i < ARRAY_LEN(shapes); i++)
        for (size_t t = 0; t < ARRAY_LEN(kv_types); t++) {
            struct data d = data_new(&shapes[i], kv_types[t]);
            for (int kind = MOST; kind < KINDS; kind++) {
                fill_lists(&d, (enum kind)kind);
                float *want = attend(REFERENCE, &d);
                check_all(&d, want, "a part");
                check_divided(kernel_ops_select("auto"), &d, want);
                check_compact(&d, want);
                for (size_t e = 0; kind == NONE && e < d.out_bytes / sizeof *want; e++)
                    ck_assert(want[e] == 0 && !signbit(want[e]));
                free(want);
            }
            data_free(&d);
        }
}
END_TEST

/* Rows that are not in the list are NaN. */
START_TEST(other_rows_are_not_used)
{
    test_seed(203);
    for (size_t i = 0; i < ARRAY_LEN(shapes); i++)
        for (size_t t = 0; t < ARRAY_LEN(kv_types) && shapes[i].rows == 1; t++) {
            struct data d = data_new(&shapes[i], kv_types[t]);
            for (int kind = HALF; kind < NONE; kind++) {
                fill_lists(&d, (enum kind)kind);
                float *want = attend(REFERENCE, &d);
                for (uint32_t p = 0, n = 0; p < d.last; p++) {
                    bool in = n < d.count[0] && d.at[n] == p;
                    n += in;
                    store(&d, KV_SIDE_KEYS, p, p, 0, !in, d.k);
                    if (d.v)
                        store(&d, KV_SIDE_VALUES, p, p, 0, !in, d.v);
                }
                check_all(&d, want, "NaN elsewhere");
                free(want);
                for (uint32_t p = 0; p < d.last; p++) {
                    store(&d, KV_SIDE_KEYS, p, p, 0, false, d.k);
                    if (d.v)
                        store(&d, KV_SIDE_VALUES, p, p, 0, false, d.v);
                }
            }
            data_free(&d);
        }
}
END_TEST

/* Without a list, but with keys whose products are -inf. The first tile of each segment has a
 * listed position: no sum begins with a tile of nothing but -inf, which has no softmax. */
static void check_masked(struct data *d)
{
    const struct shape *s = &d->s;
    uint32_t n = 0;
    for (uint32_t p = 0; p < s->positions; p++)
        if (p % KERNEL_KEY_SEGMENT == 5 || test_random() % 9 == 0)
            d->at[n++] = p;
    d->count[0] = n;
    d->a.chosen = (struct kernel_chosen){.at = d->at, .count = d->count, .step = 1};
    float *got = attend(REFERENCE, d);
    for (uint32_t p = 0, at = 0; p < s->positions; p++) {
        bool in = at < n && d->at[at] == p;
        at += in;
        for (uint32_t h = 0; h < s->kv_heads && !in; h++)
            d->keys[((size_t)p * s->kv_heads + h) * s->key_size] = -INFINITY;
        store(d, KV_SIDE_KEYS, p, p, 0, false, d->k);
    }
    d->a.chosen = (struct kernel_chosen){.count = NULL};
    check_all(d, got, "masked");
    free(got);
}

START_TEST(a_list_masks_the_others)
{
    static const struct shape masked[] = {
        {4, 2, 64, 64, 700, 1, 0, 0, false, true, 0},
        {3, 1, 40, 36, 1600, 1, 0, 0, false, false, 0},
        {20, 1, 128, 96, 600, 1, 0, 0, false, false, 0},
    };
    static const enum kv_type types[] = {KV_TYPE_F16, KV_TYPE_F32};
    test_seed(204);
    for (size_t i = 0; i < ARRAY_LEN(masked); i++)
        for (size_t t = 0; t < ARRAY_LEN(types); t++) {
            struct data d = data_new(&masked[i], types[t]);
            for (uint32_t h = 0; h < d.s.heads; h++)
                d.q[(size_t)h * d.s.key_size] = 0.5f; /* times -inf */
            check_masked(&d);
            data_free(&d);
        }
}
END_TEST

static const struct {
    enum kv_type type;
    uint64_t hash;
} stored[] = {
#define HASH(type, hash) {KV_TYPE_##type, hash},
#include "tests/unit/lib/kernels/chosen_hashes.tbl.h"
};

/* FNV-1a: a change of the arithmetic is a decision (golden_hash.c). */
START_TEST(lists_have_the_stored_hashes)
{
    const struct kernel_ops *ops = kernel_ops_of((enum kernel_isa)_i);
    bool same = true;
    for (size_t t = 0; t < ARRAY_LEN(kv_types); t++) {
        test_seed(205);
        struct data d = data_new(&shapes[3], kv_types[t]);
        fill_lists(&d, SIXTEENTH);
        float *out = attend(ops, &d);
        uint64_t hash = 0xcbf29ce484222325u, want = 0;
        for (size_t i = 0; i < d.out_bytes; i++)
            hash = (hash ^ ((const uint8_t *)out)[i]) * 0x100000001b3u;
        for (size_t i = 0; i < ARRAY_LEN(stored); i++)
            want = stored[i].type == kv_types[t] ? stored[i].hash : want;
        if (hash != want) /* all at once, to be stored after a decision */
            printf("HASH(%d, 0x%016llx)\n", (int)kv_types[t], (unsigned long long)hash);
        same = same && hash == want;
        free(out);
        data_free(&d);
    }
    fflush(stdout);
    ck_assert_msg(same, "%s: hashes differ from chosen_hashes.tbl.h", ops->name);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("kernels.chosen");
    TCase *tcase = tcase_create("lists");
    tcase_set_timeout(tcase, 200);
    tcase_add_test(tcase, a_list_of_all_has_the_bits_of_none);
    tcase_add_test(tcase, lists_have_the_same_bits_everywhere);
    tcase_add_test(tcase, other_rows_are_not_used);
    tcase_add_test(tcase, a_list_masks_the_others);
    test_add_isa_attention(tcase, lists_have_the_stored_hashes);
    suite_add_tcase(suite, tcase);
    return test_run(suite);
}
