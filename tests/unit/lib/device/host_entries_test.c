/* SPDX-License-Identifier: Apache-2.0 */
/* Operations of attention over a window and entries, against their definition in double; and with
 * every instruction set, number of threads and division of the rows: the same bits. */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/random.h"
#include "lib/device/host/host.h"
#include "lib/device/pointers.h"

enum {
    ROWS = 300,
    SIZE = 16,
    ROPE = 8,
    INDEX = 10,
    HEADS = 6,
    GROUPS = 2,
    WINDOW = 20,
    INDEXES = 3
};
enum { CHOSEN = 5, ROW_MAX = 4 * (SIZE + INDEX), MIX = HEADS * SIZE };
#define EPS 1e-5f

static float projected[ROWS * ROW_MAX], bias[128 * 2 * SIZE], norm[SIZE], index_bias[4 * 2 * INDEX],
    index_norm[INDEX], keys[ROWS * SIZE], queries[ROWS * MIX], angles[ROWS * ROPE], sinks[HEADS],
    ones[SIZE], index_q[ROWS * INDEXES * INDEX], index_w[ROWS * INDEXES];
static const struct kernel_rope rope = {.dims = ROPE, .theta = 100};

static const struct device_entries few = {.unit = 4,
                                          .size = SIZE,
                                          .rope = ROPE,
                                          .window = WINDOW,
                                          .index = INDEX,
                                          .heads = INDEXES,
                                          .chosen = CHOSEN,
                                          .eps = EPS},
                                   many = {.unit = 128,
                                           .size = SIZE,
                                           .rope = ROPE,
                                           .window = WINDOW,
                                           .eps = EPS};

/* What the operations write. */
struct made {
    float entries[(ROWS / 64 + 1) * 64 * (SIZE + INDEX)];
    float state[128 * ROW_MAX], y[ROWS * MIX];
    uint32_t at[ROWS * CHOSEN], count[ROWS];
};

static void fill(struct random *random, float *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        x[i] = (float)(3 * random_unit(random) - 1.5);
}

static void make_input(void)
{
    struct random random;
    random_seed(&random, 5, 8);
    fill(&random, projected, ARRAY_LEN(projected));
    fill(&random, bias, ARRAY_LEN(bias));
    fill(&random, norm, ARRAY_LEN(norm));
    fill(&random, index_bias, ARRAY_LEN(index_bias));
    fill(&random, index_norm, ARRAY_LEN(index_norm));
    fill(&random, keys, ARRAY_LEN(keys));
    fill(&random, queries, ARRAY_LEN(queries));
    fill(&random, sinks, ARRAY_LEN(sinks));
    fill(&random, index_q, ARRAY_LEN(index_q));
    fill(&random, index_w, ARRAY_LEN(index_w));
    for (uint32_t i = 0; i < SIZE; i++)
        ones[i] = 1;
    for (uint32_t r = 0; r < ROWS; r++)
        kernel_rope_table(&rope, r, angles + (size_t)r * ROPE);
}

static void run_rows(struct device *d, const struct device_entries *m, struct made *out,
                     uint32_t first, uint32_t rows)
{
    static struct device_row row[ROWS];
    static float q[ROWS * MIX], score[ROWS * (ROWS / 4)];
    const struct device_sequence sequence = {.keys = device_address(keys),
                                             .index = device_address(out->entries),
                                             .index_type = KV_TYPE_F32,
                                             .kv_type = KV_TYPE_F32,
                                             .state = device_address(first ? out->state : NULL),
                                             .next_state = device_address(out->state)};
    for (uint32_t r = 0; r < rows; r++)
        row[r] = (struct device_row){.position = first + r};
    memcpy(q, queries + (size_t)first * MIX, (size_t)rows * MIX * sizeof *q);
    const struct op_entry_pool pool = {
        .rows = rows,
        .sequences = 1,
        .row = row,
        .sequence = &sequence,
        .shape = *m,
        .rope = rope,
        .bias = device_address(bias),
        .norm = device_address(norm),
        .index_bias = device_address(index_bias),
        .index_norm = device_address(index_norm),
        .projected = device_address(projected + (size_t)first * device_entry_row(m))};
    const struct op_entry_scores scores = {
        .rows = rows,
        .sequences = 1,
        .row = row,
        .sequence = &sequence,
        .shape = *m,
        .q = device_address(index_q + (size_t)first * INDEXES * INDEX),
        .weights = device_address(index_w + (size_t)first * INDEXES),
        .stride = ROWS / 4,
        .score = device_address(score)};
    const struct op_entry_choice choice = {.rows = rows,
                                           .row = row,
                                           .shape = *m,
                                           .stride = ROWS / 4,
                                           .score = device_address(score),
                                           .list_stride = CHOSEN,
                                           .at = device_address(out->at + (size_t)first * CHOSEN),
                                           .count = device_address(out->count + first)};
    const struct op_entry_attention attention = {
        .rows = rows,
        .sequences = 1,
        .row = row,
        .sequence = &sequence,
        .shape = *m,
        .query_heads = HEADS,
        .chosen = {.at = choice.at, .count = choice.count, .stride = CHOSEN},
        .sinks = device_address(sinks),
        .ones = device_address(ones),
        .angle_stride = ROPE,
        .angles = device_address(angles + (size_t)first * ROPE),
        .q = device_address(q),
        .groups = GROUPS,
        .y = device_rows_of_floats(device_address(out->y + (size_t)first * MIX), MIX / GROUPS)};
    d->ops->entry_pool(d, &pool);
    if (m->index > 0) {
        d->ops->entry_scores(d, &scores);
        d->ops->entry_choice(d, &choice);
    }
    d->ops->entry_attention(d, &attention);
}

static struct made *run(const struct device_entries *m, const char *isa, uint32_t threads,
                        uint32_t step)
{
    static float space[1 << 16];
    struct error error;
    struct device *d = host_device(kernel_ops_select(isa), threads, 0, &error);
    struct made *made = calloc(1, sizeof *made);
    const struct device_limits limits = {
        .rows = ROWS, .experts = 1, .top_k = 1, .entry_floats = 256 * SIZE};
    ck_assert(d && made);
    ck_assert_uint_le(d->ops->workspace(d, &limits), sizeof space - 64);
    d->ops->use_workspace(d, &limits, device_address((void *)(((uintptr_t)space + 63) / 64 * 64)));
    for (uint32_t first = 0; first < ROWS; first += step)
        run_rows(d, m, made, first, ROWS - first < step ? ROWS - first : step);
    ck_assert_uint_eq(d->not_finite, 0);
    d->ops->destroy(d);
    return made;
}

/* ---- the definition ---- */

static void finish(double *x, uint32_t n, const float *weight, uint32_t position, int direction)
{
    double sum = 0;
    for (uint32_t i = 0; i < n && weight; i++)
        sum += x[i] * x[i];
    for (uint32_t i = 0; i < n && weight; i++)
        x[i] *= (double)weight[i] / sqrt(sum / n + (double)EPS);
    for (uint32_t i = 0; i < ROPE / 2; i++) {
        double angle = direction * (double)position * pow(rope.theta, -2.0 * i / ROPE);
        double *p = x + n - ROPE + (size_t)2 * i, a = p[0], b = p[1];
        p[0] = a * cos(angle) - b * sin(angle);
        p[1] = a * sin(angle) + b * cos(angle);
    }
}

/* Entry w, or its key, of n elements whose values are at `at` of a row. */
static void entry_of(const struct device_entries *m, uint32_t w, uint32_t at, uint32_t n,
                     const float *biases, const float *weight, double *out)
{
    uint32_t parts = device_entry_parts(m), end = (w + 1) * m->unit, width = device_entry_row(m);
    for (uint32_t i = 0; i < n; i++) {
        double sum = 0, all = 0;
        for (uint32_t p = w >= parts - 1 ? end - parts * m->unit : 0; p < end; p++) {
            uint32_t half = parts == 2 && p >= w * m->unit ? n : 0;
            const float *row = projected + (size_t)p * width + at;
            double e = exp((double)row[parts * n + half + i] +
                           (double)biases[p % m->unit * parts * n + half + i]);
            sum += e;
            all += e * (double)row[half + i];
        }
        out[i] = all / sum;
    }
    finish(out, n, weight, w * m->unit, 1);
}

static void check_entries(const struct device_entries *m, const struct made *made)
{
    double want[SIZE];
    for (uint32_t w = 0; w < ROWS / m->unit; w++) {
        entry_of(m, w, 0, SIZE, bias, norm, want);
        for (uint32_t i = 0; i < SIZE; i++)
            ck_assert_double_eq_tol(made->entries[device_entry_at(m, w, false) + i], want[i], 2e-5);
        if (m->index == 0)
            continue;
        entry_of(m, w, 4 * SIZE, INDEX, index_bias, index_norm, want);
        for (uint32_t i = 0; i < INDEX; i++)
            ck_assert_double_eq_tol(made->entries[device_entry_at(m, w, true) + i], want[i], 2e-5);
    }
}

/* The entries with the best scores. */
static void check_choice(const struct device_entries *m, const struct made *made, uint32_t r)
{
    double score[ROWS];
    uint32_t seen = (r + 1) / m->unit, most = seen < CHOSEN ? seen : CHOSEN, better = 0;
    ck_assert_uint_eq(made->count[r], most);
    for (uint32_t w = 0; w < seen; w++) {
        score[w] = 0;
        for (uint32_t h = 0; h < INDEXES; h++) {
            double product = 0;
            for (uint32_t i = 0; i < INDEX; i++)
                product += (double)index_q[((size_t)r * INDEXES + h) * INDEX + i] *
                           (double)made->entries[device_entry_at(m, w, true) + i];
            score[w] += fmax(product, 0) * (double)index_w[(size_t)r * INDEXES + h];
        }
    }
    const uint32_t *at = made->at + (size_t)r * CHOSEN;
    double least = INFINITY;
    for (uint32_t i = 0; i < most; i++) {
        ck_assert(at[i] < seen && (i == 0 || at[i] > at[i - 1]));
        least = fmin(least, score[at[i]]);
    }
    for (uint32_t w = 0; w < seen; w++)
        better += score[w] > least + 1e-4;
    ck_assert(better < most || most == 0); /* the worst one of the choice is not better */
}

static void check_attention(const struct device_entries *m, const struct made *made, uint32_t r)
{
    uint32_t begin = r >= WINDOW ? r - WINDOW + 1 : 0, count = m->index ? made->count[r] : 0;
    count = m->index ? count : (r + 1) / m->unit;
    for (uint32_t h = 0; h < HEADS; h++) {
        double q[SIZE], o[SIZE] = {0}, sum = exp((double)sinks[h]);
        for (uint32_t i = 0; i < SIZE; i++)
            q[i] = (double)queries[((size_t)r * HEADS + h) * SIZE + i];
        finish(q, SIZE, ones, r, 1);
        for (uint32_t k = 0; k < r + 1 - begin + count; k++) {
            uint32_t e = k - (r + 1 - begin);
            const float *key = keys + (size_t)(begin + k) * SIZE;
            if (k > r - begin)
                key = made->entries +
                      device_entry_at(m, m->index ? made->at[r * CHOSEN + e] : e, false);
            double s = 0;
            for (uint32_t i = 0; i < SIZE; i++)
                s += q[i] * (double)key[i];
            s = exp(s / sqrt(SIZE));
            sum += s;
            for (uint32_t i = 0; i < SIZE; i++)
                o[i] += s * (double)key[i];
        }
        for (uint32_t i = 0; i < SIZE; i++)
            o[i] /= sum;
        finish(o, SIZE, NULL, r, -1);
        for (uint32_t i = 0; i < SIZE; i++)
            ck_assert_double_eq_tol(made->y[((size_t)r * HEADS + h) * SIZE + i], o[i], 3e-5);
    }
}

START_TEST(by_definition)
{
    const struct device_entries *m = _i == 0 ? &few : &many;
    make_input();
    struct made *made = run(m, "generic", 1, ROWS);
    check_entries(m, made);
    for (uint32_t r = 0; r < ROWS; r++) {
        if (m->index > 0)
            check_choice(m, made, r);
        check_attention(m, made, r);
    }
    free(made);
}
END_TEST

START_TEST(the_same_bits)
{
    static const uint32_t steps[] = {1, 7, 64, ROWS};
    const struct device_entries *m = _i == 0 ? &few : &many;
    make_input();
    struct made *want = run(m, "generic", 1, ROWS);
    for (int isa = 0; isa < ISA__COUNT; isa++) {
        const struct kernel_ops *ops = kernel_ops_of((enum kernel_isa)isa);
        for (size_t i = 0; ops && i < ARRAY_LEN(steps); i++) {
            struct made *got = run(m, ops->name, 1 + (uint32_t)i, steps[i]);
            ck_assert_msg(memcmp(got, want, sizeof *want) == 0, "%s, steps of %u", ops->name,
                          steps[i]);
            free(got);
        }
    }
    free(want);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("host entries");
    TCase *c = tcase_create("all");
    tcase_set_timeout(c, 120);
    tcase_add_loop_test(c, by_definition, 0, 2);
    tcase_add_loop_test(c, the_same_bits, 0, 2);
    suite_add_tcase(suite, c);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
