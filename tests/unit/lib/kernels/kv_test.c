/* SPDX-License-Identifier: Apache-2.0 */
/* The types of the KV cache: what a row holds, and attention over it. */
#include "kernel_test.h"

#define REFERENCE kernel_ops_of(ISA_GENERIC)
#define BLOCK     32

static const enum kv_type kv_types[] = {
#define KV_TYPE(id, name, block, block_bytes) KV_TYPE_##id,
#include "lib/tensor/kv_types.tbl.h"
};

static bool is_quantised(enum kv_type type)
{
    return type == KV_TYPE_Q8_0 || type == KV_TYPE_Q4_0;
}

/* ---- what a tile holds, from the description in kv_layout.h ---- */

static double element(enum kv_type type, enum kv_side side, const uint8_t *tile, uint32_t size,
                      uint32_t position, uint32_t e)
{
    uint32_t padded = (size + BLOCK - 1) / BLOCK * BLOCK, at;
    uint16_t half;
    float f;
    if (type == KV_TYPE_F32) {
        memcpy(&f, tile + ((size_t)position * size + e) * 4, 4);
        return (double)f;
    }
    if (type == KV_TYPE_F16) {
        memcpy(&half, tile + ((size_t)position * size + e) * 2, 2);
        return test_f16_value(half);
    }
    uint32_t per = type == KV_TYPE_Q8_0 ? 1 : 2;
    bool high = side == KV_SIDE_KEYS ? e / 4 % 2 == 1 : e / 16 % 2 == 1;
    if (side == KV_SIDE_KEYS)
        at = position / 16 * 16 * padded / per + e / (4 * per) * 64 + position % 16 * 4 + e % 4;
    else if (per == 1)
        at = position * padded + e;
    else
        at = position * padded / 2 + e / 32 * 16 + e % 16;
    memcpy(&half, tile + 64 * padded / per + 2 * (e / BLOCK * 64 + position), 2);
    double code =
        per == 1 ? (double)(int8_t)tile[at] : (double)(tile[at] >> (high ? 4 : 0) & 15) - 8;
    return test_f16_value(half) * code;
}

/* Half a step and the rounding of the scale to F16, which is worth at most 8 or 127 steps of it. */
static double rounding(enum kv_type type, const float *x, uint32_t size, uint32_t e)
{
    double max = 0;
    for (uint32_t i = e / BLOCK * BLOCK; i < size && i < (e / BLOCK + 1) * BLOCK; i++)
        max = fmax(max, fabs((double)x[i]));
    double f16 = max / 2048 + 127 * ldexp(1, -25);
    switch (type) {
    case KV_TYPE_F32: return 0;
    case KV_TYPE_F16: return fabs((double)x[e]) / 2048 + ldexp(1, -25);
    case KV_TYPE_Q8_0: return max / 127 / 2 * 1.0001 + f16;
    default: return max / 8 * 1.0001 + f16; /* the largest positive one may lose a whole step */
    }
}

/* One row in a tile of other bytes: what it holds, and that nothing else changed. */
static void check_row(const struct kernel_ops *ops, enum kv_type type, uint32_t size,
                      uint32_t position, const float *x)
{
    size_t bytes = (size_t)kv_tile_bytes(type, size);
    for (enum kv_side side = KV_SIDE_KEYS; side <= KV_SIDE_VALUES; side++) {
        uint8_t *tile = test_guarded(bytes), *same = test_alloc(bytes), *two = test_alloc(bytes);
        memset(tile, 0x55, bytes);
        memset(two, 0xaa, bytes);
        memset(same, 0x55, bytes);
        kernel_kv_store(ops, type, side, x, size, tile, position);
        kernel_kv_store(ops, type, side, x, size, two, position);
        kernel_kv_store(REFERENCE, type, side, x, size, same, position);
        ck_assert_mem_eq(tile, same, bytes);
        size_t changed = 0;
        for (size_t i = 0; i < bytes; i++)
            changed += tile[i] == two[i] || (tile[i] != 0x55 || two[i] != 0xaa);
        ck_assert_uint_eq(changed, bytes / KV_TILE);
        for (uint32_t e = 0; e < size; e++) {
            double got = element(type, side, tile, size, position, e);
            ck_assert_msg(fabs(got - (double)x[e]) <= rounding(type, x, size, e),
                          "%s %s: element %u of %u is %g, not %g", ops->name,
                          kv_type_info((uint32_t)type)->name, e, size, got, (double)x[e]);
        }
        test_guarded_free(tile, bytes);
        free(same);
        free(two);
    }
}

START_TEST(rows_hold_their_elements)
{
    static const uint32_t sizes[] = {2, 4, 16, 20, 31, 32, 33, 64, 72, 80, 96, 128, 256};
    const struct kernel_ops *ops = kernel_ops_of((enum kernel_isa)_i);
    float x[KERNEL_HEAD_SIZE_MAX];
    test_seed(81);
    for (size_t t = 0; t < ARRAY_LEN(kv_types); t++)
        for (size_t s = 0; s < ARRAY_LEN(sizes); s++)
            for (uint32_t position = 0; position < KV_TILE; position += 9) {
                test_fill(x, sizes[s]);
                for (uint32_t i = 0; i < sizes[s]; i += 1 + position)
                    x[i] *= position % 2 ? 100.0f : 1e-4f;
                check_row(ops, kv_types[t], sizes[s], position, x);
            }
    memset(x, 0, sizeof x); /* zeros, then one element */
    for (size_t t = 0; t < ARRAY_LEN(kv_types); t++) {
        check_row(ops, kv_types[t], 64, 5, x);
        x[40] = -3.0f;
        check_row(ops, kv_types[t], 64, 63, x);
        x[40] = 0;
    }
}
END_TEST

/* ---- attention ---- */

struct kv_case {
    uint32_t heads, kv_heads, size, positions, rows;
    float spread;
};

/* Rows [from, to) of keys and values, tiles of NaN scales and codes where there are none. */
static void fill_kv(const struct kernel_ops *ops, enum kv_type type, const struct kv_case *c,
                    const float *k, const float *v, uint32_t from, uint32_t to, uint8_t *keys,
                    uint8_t *values)
{
    for (uint32_t p = from; p < to; p++)
        for (uint32_t h = 0; h < c->kv_heads; h++) {
            size_t tile = kernel_kv_tile(type, c->kv_heads, c->size, p, h);
            size_t at = ((size_t)p * c->kv_heads + h) * c->size;
            kernel_kv_store(ops, type, KV_SIDE_KEYS, k + at, c->size, keys + tile, p % KV_TILE);
            kernel_kv_store(ops, type, KV_SIDE_VALUES, v + at, c->size, values + tile, p % KV_TILE);
        }
}

struct kv_memory {
    float *q, *k, *v;
    uint8_t *keys, *values;
    size_t bytes;
    struct kernel_attention a;
};

static struct kv_memory kv_make(enum kv_type type, const struct kv_case *c)
{
    size_t width = (size_t)c->heads * c->size, kv = (size_t)c->positions * c->kv_heads * c->size;
    struct kv_memory m = {
        .q = test_alloc(4 * width * c->rows),
        .k = test_alloc(4 * kv),
        .v = test_alloc(4 * kv),
        .bytes = kernel_kv_tile(type, c->kv_heads, c->size, c->positions + KV_TILE - 1, 0)};
    m.keys = test_guarded(m.bytes);
    m.values = test_guarded(m.bytes);
    memset(m.keys, 0xff, m.bytes);
    memset(m.values, 0xff, m.bytes);
    test_fill(m.q, width * c->rows);
    test_fill(m.k, kv);
    test_fill(m.v, kv);
    for (size_t i = 0; i < kv; i++)
        m.k[i] *= c->spread;
    m.a = (struct kernel_attention){.q = m.q,
                                    .k = m.keys,
                                    .v = m.values,
                                    .kv_type = type,
                                    .q_stride = width,
                                    .out_stride = width,
                                    .rows = c->rows,
                                    .heads = c->heads,
                                    .kv_heads = c->kv_heads,
                                    .key_size = c->size,
                                    .value_size = c->size,
                                    .head_end = c->heads,
                                    .positions = c->positions - c->rows + 1,
                                    .scale = 1 / sqrtf((float)c->size)};
    return m;
}

static void kv_free(struct kv_memory *m)
{
    free(m->q);
    free(m->k);
    free(m->v);
    test_guarded_free(m->keys, m->bytes);
    test_guarded_free(m->values, m->bytes);
}

/* The query as quantised keys see it. */
static void query_values(enum kv_type type, const float *q, uint32_t size, double *out)
{
    for (uint32_t b = 0; b < size; b += BLOCK) {
        uint32_t end = b + BLOCK < size ? b + BLOCK : size;
        float max = 0;
        for (uint32_t i = b; i < end; i++)
            max = fmaxf(max, fabsf(q[i]));
        for (uint32_t i = b; i < end; i++)
            out[i] = is_quantised(type)
                         ? nearbyint((double)(q[i] * (127.0f / max))) * (double)(max / 127.0f)
                         : (double)q[i];
    }
}

/* Largest error that quantising the query may cause in a score. */
static double score_error(const struct kernel_attention *a, const double *q, const float *exact,
                          const double *key)
{
    double sum = 0;
    for (uint32_t d = 0; d < a->key_size; d++)
        sum += fabs(q[d] - (double)exact[d]) * fabs(key[d]);
    return sum * (double)a->scale;
}

/* Attention of one head in double over what the tiles hold; `error`: the largest score_error. */
static void oracle(const struct kernel_attention *a, const float *exact, const double *q,
                   uint32_t head, double *out, double *error)
{
    static double score[2000];
    double max = -INFINITY, sum = 0, row[KERNEL_HEAD_SIZE_MAX];
    uint32_t kv_head = head / (a->heads / a->kv_heads);
    for (uint32_t p = 0; p < a->positions; p++) {
        size_t tile = kernel_kv_tile(a->kv_type, a->kv_heads, a->key_size, p, kv_head);
        score[p] = 0;
        for (uint32_t d = 0; d < a->key_size; d++) {
            row[d] = element(a->kv_type, KV_SIDE_KEYS, (const uint8_t *)a->k + tile, a->key_size,
                             p % KV_TILE, d);
            score[p] += q[d] * row[d] * (double)a->scale;
        }
        *error = fmax(*error, score_error(a, q, exact, row));
        max = fmax(max, score[p]);
    }
    memset(out, 0, a->key_size * sizeof *out);
    for (uint32_t p = 0; p < a->positions; p++) {
        size_t tile = kernel_kv_tile(a->kv_type, a->kv_heads, a->key_size, p, kv_head);
        double e = exp(score[p] - max);
        sum += e;
        for (uint32_t d = 0; d < a->key_size; d++)
            out[d] += e * element(a->kv_type, KV_SIDE_VALUES, (const uint8_t *)a->v + tile,
                                  a->key_size, p % KV_TILE, d);
    }
    for (uint32_t d = 0; d < a->key_size; d++)
        out[d] /= sum;
}

/* One row. With the quantised query: rounding of floats only. With the exact one: scores that are
 * off by at most e change every weight by a factor of at most exp(2 e); values are within 1. */
static void check_oracle(const struct kernel_ops *ops, enum kv_type type, const struct kv_case *c)
{
    struct kv_memory m = kv_make(type, c);
    float *got = test_alloc(4 * (size_t)c->heads * c->size);
    double want[KERNEL_HEAD_SIZE_MAX], exact[KERNEL_HEAD_SIZE_MAX], q[KERNEL_HEAD_SIZE_MAX];
    double whole[KERNEL_HEAD_SIZE_MAX], error = 0, none = 0;
    fill_kv(ops, type, c, m.k, m.v, 0, c->positions, m.keys, m.values);
    m.a.out = got;
    ops->attention(&m.a);
    for (uint32_t h = 0; h < c->heads; h++) {
        const float *query = m.q + (size_t)h * c->size;
        query_values(type, query, c->size, q);
        for (uint32_t d = 0; d < c->size; d++)
            whole[d] = (double)query[d];
        oracle(&m.a, query, q, h, want, &error);
        oracle(&m.a, query, whole, h, exact, &none);
        for (uint32_t d = 0; d < c->size; d++) {
            double x = (double)got[h * c->size + d];
            ck_assert_msg(
                fabs(x - want[d]) < 2e-5 * (double)c->spread &&
                    fabs(x - exact[d]) <= 2e-5 * (double)c->spread + 1.1 * expm1(2 * error),
                "%s %s: head %u, size %u, %u positions: %g, not %g (exact query: %g)", ops->name,
                kv_type_info((uint32_t)type)->name, h, c->size, c->positions, x, want[d], exact[d]);
        }
    }
    free(got);
    kv_free(&m);
}

static const uint32_t head_sizes[] = {4, 16, 20, 32, 40, 64, 72, 80, 96, 128, 256};
static const uint32_t lengths[] = {1, 8, 15, 16, 17, 63, 64, 65, 130, 511, 513, 1025};

START_TEST(attention_matches_double)
{
    const struct kernel_ops *ops = kernel_ops_of((enum kernel_isa)_i);
    test_seed(82);
    for (size_t t = 0; t < ARRAY_LEN(kv_types); t++) {
        for (size_t s = 0; s < ARRAY_LEN(head_sizes); s++)
            for (size_t p = 0; p < 9; p++)
                check_oracle(ops, kv_types[t],
                             &(struct kv_case){4, 1u << p % 3, head_sizes[s], lengths[p], 1, 1.0f});
        check_oracle(ops, kv_types[t], &(struct kv_case){2, 2, 64, 200, 1, 20.0f});
    }
}
END_TEST

static void check_bits(const struct kernel_ops *ops, enum kv_type type, const struct kv_case *c)
{
    size_t width = (size_t)c->heads * c->size * c->rows;
    float *want = test_alloc(4 * width), *got = test_alloc(4 * width);
    struct kv_memory m = kv_make(type, c);
    fill_kv(ops, type, c, m.k, m.v, 0, c->positions, m.keys, m.values);
    m.a.out = want;
    REFERENCE->attention(&m.a);
    m.a.out = got;
    ops->attention(&m.a);
    for (size_t i = 0; i < width; i++)
        ck_assert_msg(memcmp(got + i, want + i, sizeof *got) == 0,
                      "%s %s: head size %u, %u positions, %u rows: element %zu is %a, not %a",
                      ops->name, kv_type_info((uint32_t)type)->name, c->size, c->positions, c->rows,
                      i, (double)got[i], (double)want[i]);
    free(want);
    free(got);
    kv_free(&m);
}

START_TEST(same_bits_as_generic)
{
    static const struct kv_case many[] = {
        {2, 2, 64, 130, 33, 1},  {2, 1, 128, 127, 3, 1},   {4, 2, 72, 513, 2, 1},
        {4, 4, 256, 65, 5, 20},  {6, 2, 40, 130, 7, 1},    {6, 1, 128, 560, 1, 1},
        {16, 2, 20, 530, 31, 1}, {16, 16, 128, 513, 2, 1}, {80, 2, 16, 66, 3, 1},
        {2, 2, 24, 1100, 70, 9}, {32, 4, 128, 140, 40, 1}};
    const struct kernel_ops *ops = kernel_ops_of((enum kernel_isa)_i);
    test_seed(83);
    for (size_t t = 0; t < ARRAY_LEN(kv_types); t++) {
        for (size_t s = 0; s < ARRAY_LEN(head_sizes); s++)
            for (size_t p = 0; p < ARRAY_LEN(lengths); p++)
                check_bits(ops, kv_types[t],
                           &(struct kv_case){4, 2, head_sizes[s], lengths[p], 1,
                                             p % 3 == 2 ? 20.0f : 1.0f});
        for (size_t i = 0; i < ARRAY_LEN(many); i++)
            check_bits(ops, kv_types[t], &many[i]);
    }
}
END_TEST

/* Row by row, when later keys do not exist yet, as in decode; then in calls of 1, 2, 3 ... rows
 * with all keys, as in prefill; then head by head. */
static void check_invariance(const struct kernel_ops *ops, enum kv_type type,
                             const struct kv_case *c)
{
    size_t width = (size_t)c->heads * c->size;
    float *alone = test_alloc(4 * width * c->rows), *other = test_alloc(4 * width * c->rows);
    struct kv_memory m = kv_make(type, c);
    m.a.rows = 1;
    for (uint32_t r = 0; r < c->rows; r++) {
        fill_kv(ops, type, c, m.k, m.v, r, r + 1, m.keys, m.values);
        m.a.q = m.q + r * width;
        m.a.out = alone + r * width;
        m.a.positions = r + 1;
        ops->attention(&m.a);
    }
    for (uint32_t r = 0; r < c->rows; r += m.a.rows) {
        m.a.rows = m.a.rows + 1 < c->rows - r ? m.a.rows + 1 : c->rows - r;
        m.a.q = m.q + r * width;
        m.a.out = other + r * width;
        m.a.positions = r + 1;
        ops->attention(&m.a);
    }
    ck_assert_mem_eq(alone, other, 4 * width * c->rows);
    memset(other, 0xff, 4 * width * c->rows);
    m.a.q = m.q;
    m.a.out = other;
    m.a.positions = 1;
    m.a.rows = c->rows;
    for (uint32_t h = 0; h < c->heads; h++) {
        m.a.head_begin = h;
        m.a.head_end = h + 1;
        ops->attention(&m.a);
    }
    ck_assert_mem_eq(alone, other, 4 * width * c->rows);
    free(alone);
    free(other);
    kv_free(&m);
}

START_TEST(rows_do_not_depend_on_company)
{
    static const struct kv_case cases[] = {{3, 3, 64, 200, 200, 1},
                                           {8, 2, 128, 130, 130, 1},
                                           {5, 1, 20, 70, 70, 1},
                                           {4, 4, 256, 66, 66, 1}};
    const struct kernel_ops *ops = kernel_ops_of((enum kernel_isa)_i);
    test_seed(84);
    for (size_t t = 0; t < ARRAY_LEN(kv_types); t++)
        for (size_t i = 0; i < ARRAY_LEN(cases); i++)
            check_invariance(ops, kv_types[t], &cases[i]);
}
END_TEST

/* Sizes of the table, and names. */
START_TEST(sizes_and_names)
{
    ck_assert_uint_eq(kv_tile_bytes(KV_TYPE_F16, 128), 64 * 256);
    ck_assert_uint_eq(kv_tile_bytes(KV_TYPE_Q8_0, 128), 64 * 136);
    ck_assert_uint_eq(kv_tile_bytes(KV_TYPE_Q4_0, 128), 64 * 72);
    ck_assert_uint_eq(kv_tile_bytes(KV_TYPE_Q4_0, 80), 64 * 54); /* whole blocks */
    for (uint32_t t = 0; t < KV_TYPE__COUNT; t++)
        ck_assert_int_eq(kv_type_find(kv_type_info(t)->name), t);
    ck_assert_int_eq(kv_type_find("q5_0"), KV_TYPE__COUNT);
    ck_assert_ptr_null(kv_type_info(KV_TYPE__COUNT));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("kernels.kv");
    TCase *tcase = tcase_create("kv");
    tcase_set_timeout(tcase, 300);
    test_add_isa(tcase, rows_hold_their_elements);
    test_add_isa_attention(tcase, attention_matches_double);
    test_add_isa_attention(tcase, same_bits_as_generic);
    test_add_isa_attention(tcase, rows_do_not_depend_on_company);
    tcase_add_test(tcase, sizes_and_names);
    suite_add_tcase(suite, tcase);
    return test_run(suite);
}
