/* SPDX-License-Identifier: Apache-2.0 */
/* Scores of an indexer on every instruction set: the bits of the definition (ARITHMETIC.md),
 * written here without regard to speed, for rows together and alone, and for every range of
 * keys. */
#include <stdio.h>

#include "lib/kernels/index.h"
#include "lib/tensor/half.h"
#include "tests/unit/lib/kernels/kernel_test.h"

#define LANES 16

struct shape {
    uint32_t rows, heads, size, entries;
};

static const struct shape shapes[] = {
    {1, 64, 128, 700}, {1, 4, 128, 65}, {3, 32, 128, 130}, {16, 4, 128, 64}, {2, 65, 40, 67},
    {1, 1, 17, 1},     {5, 20, 16, 63}, {1, 130, 8, 9},    {7, 3, 64, 200},
};

struct data {
    struct shape s;
    enum index_form form;
    enum kv_type type;
    float *q, *weights, *keys; /* as they are stored */
    uint16_t *halves;
    size_t stride, floats; /* of a line; of all */
};

static struct data data_new(const struct shape *s, enum index_form form, enum kv_type type)
{
    struct data d = {.s = *s, .form = form, .type = type, .stride = s->entries + 3};
    size_t queries = (size_t)s->rows * s->heads, keys = (size_t)s->entries * s->size;
    d.q = test_alloc(sizeof *d.q * queries * s->size);
    d.weights = test_alloc(sizeof *d.weights * queries);
    d.keys = test_alloc(sizeof *d.keys * keys);
    d.halves = test_alloc(sizeof *d.halves * keys);
    test_fill(d.q, queries * s->size);
    test_fill(d.weights, queries);
    test_fill(d.keys, keys);
    for (size_t i = 0; i < keys; i++) {
        d.halves[i] = test_f16_round((double)d.keys[i]);
        if (type == KV_TYPE_F16)
            d.keys[i] = f16_to_f32(d.halves[i]);
    }
    d.floats = (index_form_info(form).own ? queries : s->rows) * d.stride;
    return d;
}

static void data_free(struct data *d)
{
    free(d->q);
    free(d->weights);
    free(d->keys);
    free(d->halves);
}

static float dot(const float *q, const float *k, uint32_t n)
{
    float s[LANES] = {0};
    for (uint32_t i = 0; i < n; i++)
        s[i % LANES] = fmaf(k[i], q[i], s[i % LANES]);
    for (int step = 8; step > 2; step /= 2)
        for (int i = 0; i < step; i++)
            s[i] += s[i + step];
    return (s[0] + s[2]) + (s[1] + s[3]);
}

static void oracle(const struct data *d, float *score)
{
    const struct index_form_info form = index_form_info(d->form);
    for (uint32_t i = 0; i < d->s.rows * d->s.heads; i++)
        for (uint32_t e = 0; e < d->s.entries; e++) {
            float *to = score + (form.own ? i : i / d->s.heads) * d->stride + e;
            float x = dot(d->q + (size_t)i * d->s.size, d->keys + (size_t)e * d->s.size, d->s.size);
            if (form.relu && x < 0)
                x = 0;
            float before = i % d->s.heads == 0 ? 0 : *to;
            *to = form.own ? x : fmaf(form.weighted ? d->weights[i] : 1.0f, x, before);
        }
}

static struct kernel_index arguments(const struct data *d, float *score)
{
    return (struct kernel_index){.form = d->form,
                                 .q = d->q,
                                 .weights = index_form_info(d->form).weighted ? d->weights : NULL,
                                 .keys = d->type == KV_TYPE_F16 ? (const void *)d->halves : d->keys,
                                 .type = d->type,
                                 .rows = d->s.rows,
                                 .heads = d->s.heads,
                                 .size = d->s.size,
                                 .score = score,
                                 .stride = d->stride};
}

static void check_ranges(const struct kernel_ops *ops, const struct data *d, const float *want)
{
    float *got = test_alloc(d->floats * sizeof *got);
    struct kernel_index a = arguments(d, got);
    for (uint32_t step = d->s.entries; step > 0; step = step > 1 ? step / 7 + 1 : 0) {
        memset(got, 0xff, d->floats * sizeof *got);
        for (uint32_t at = 0; at < d->s.entries; at += step)
            kernel_index_scores(ops, &a, at, at + step < d->s.entries ? at + step : d->s.entries);
        ck_assert_msg(memcmp(got, want, d->floats * sizeof *got) == 0,
                      "%s: form %d, %u heads of %u, %u keys in ranges of %u", ops->name,
                      (int)d->form, d->s.heads, d->s.size, d->s.entries, step);
        if (step == 2)
            break;
    }
    free(got);
}

static void check_rows(const struct kernel_ops *ops, const struct data *d, const float *want)
{
    float *got = test_alloc(d->floats * sizeof *got);
    memset(got, 0xff, d->floats * sizeof *got);
    for (uint32_t r = 0; r < d->s.rows; r++) {
        struct kernel_index a = arguments(d, got + r * d->floats / d->s.rows);
        a.rows = 1;
        a.q = d->q + (size_t)r * d->s.heads * d->s.size;
        a.weights = a.weights ? a.weights + (size_t)r * d->s.heads : NULL;
        kernel_index_scores(ops, &a, 0, d->s.entries);
    }
    ck_assert_mem_eq(got, want, d->floats * sizeof *got);
    free(got);
}

START_TEST(scores_have_the_defined_bits)
{
    const struct kernel_ops *ops = kernel_ops_of((enum kernel_isa)_i);
    static const enum kv_type types[] = {KV_TYPE_F16, KV_TYPE_F32};
    test_seed(211);
    for (size_t i = 0; i < ARRAY_LEN(shapes); i++)
        for (int form = 0; form < INDEX__COUNT; form++)
            for (size_t t = 0; t < ARRAY_LEN(types); t++) {
                struct data d = data_new(&shapes[i], (enum index_form)form, types[t]);
                float *want = test_alloc(d.floats * sizeof *want);
                memset(want, 0xff, d.floats * sizeof *want); /* what is not written stays */
                oracle(&d, want);
                check_ranges(ops, &d, want);
                check_rows(ops, &d, want);
                free(want);
                data_free(&d);
            }
}
END_TEST

/* All products below 0: every score is +0, and the lower positions win. */
START_TEST(products_below_zero_tie)
{
    const struct kernel_ops *ops = kernel_ops_of((enum kernel_isa)_i);
    struct shape s = {1, 4, 32, 50};
    struct data d = data_new(&s, INDEX_PLAIN, KV_TYPE_F32);
    float score[64];
    for (size_t i = 0; i < (size_t)s.heads * s.size; i++)
        d.q[i] = 1;
    for (size_t i = 0; i < (size_t)s.entries * s.size; i++)
        d.keys[i] = -1;
    struct kernel_index a = arguments(&d, score);
    kernel_index_scores(ops, &a, 0, s.entries);
    for (uint32_t e = 0; e < s.entries; e++)
        ck_assert(score[e] == 0 && !signbit(score[e]));
    data_free(&d);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("kernels.index");
    TCase *tcase = tcase_create("scores");
    tcase_set_timeout(tcase, 120);
    test_add_isa(tcase, scores_have_the_defined_bits);
    test_add_isa(tcase, products_below_zero_tie);
    suite_add_tcase(suite, tcase);
    return test_run(suite);
}
