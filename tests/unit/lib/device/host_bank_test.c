/* SPDX-License-Identifier: Apache-2.0 */
/* Operations on a residual that is a bank of sums, against their definition in double; and with
 * every instruction set, number of threads and division of the rows: the same bits. */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/random.h"
#include "lib/device/host/host.h"
#include "lib/device/pointers.h"

enum { ROWS = 11, STREAMS = 5, SOURCES = 4, N = 70, WIDE = STREAMS * N };
#define EPS 1e-5f

static float x[ROWS * WIDE], result[ROWS * N], score[N], ones[N];

/* What the operations write: the sums that are read, of one source and of several; the bank after a
 * sum, and after the end of a block. */
struct made {
    float one[ROWS * N], read[ROWS * N], add[ROWS * WIDE], end[ROWS * WIDE];
};

static void make_input(void)
{
    struct random random;
    random_seed(&random, 12, 3);
    for (size_t i = 0; i < ARRAY_LEN(x); i++)
        x[i] = (float)(random_unit(&random) - 0.5) * (float)(1 + i / N % STREAMS);
    for (size_t i = 0; i < ARRAY_LEN(result); i++)
        result[i] = (float)(random_unit(&random) - 0.5);
    for (size_t i = 0; i < N; i++) {
        score[i] = (float)(random_unit(&random) - 0.5);
        ones[i] = 1;
    }
}

static void run_rows(struct device *d, struct made *m, uint32_t first, uint32_t rows)
{
    float weights[ROWS * STREAMS];
    size_t wide = (size_t)first * WIDE, n = (size_t)first * N;
    memcpy(m->add + wide, x + wide, (size_t)rows * WIDE * sizeof *x);
    memcpy(m->end + wide, x + wide, (size_t)rows * WIDE * sizeof *x);
    struct op_bank_read read = {.rows = rows,
                                .streams = STREAMS,
                                .sources = SOURCES,
                                .n = N,
                                .eps = EPS,
                                .x = device_address(x + wide),
                                .ones = device_address(ones),
                                .score = device_address(score),
                                .weights = device_address(weights),
                                .y = device_address(m->read + n)};
    struct op_bank_add add = {.rows = rows,
                              .streams = STREAMS,
                              .n = N,
                              .y = device_address(result + n),
                              .x = device_address(m->add + wide)};
    d->ops->bank_read(d, &read);
    d->ops->bank_add(d, &add);
    read.sources = 1;
    read.y = device_address(m->one + n);
    add.ends = 3;
    add.x = device_address(m->end + wide);
    d->ops->bank_read(d, &read);
    d->ops->bank_add(d, &add);
}

static struct made *run(const char *isa, uint32_t threads, uint32_t step)
{
    struct error error;
    struct device *d = host_device(kernel_ops_select(isa), threads, 0, &error);
    struct made *m = calloc(1, sizeof *m);
    ck_assert(d && m);
    for (uint32_t first = 0; first < ROWS; first += step)
        run_rows(d, m, first, ROWS - first < step ? ROWS - first : step);
    ck_assert_uint_eq(d->not_finite, 0);
    d->ops->destroy(d);
    return m;
}

static double score_of(const float *source)
{
    double square = 0, sum = 0;
    for (size_t i = 0; i < N; i++) {
        square += (double)source[i] * (double)source[i];
        sum += (double)source[i] * (double)score[i];
    }
    return sum / sqrt(square / N + (double)EPS);
}

static void near(const char *what, size_t at, float got, double want)
{
    ck_assert_msg(fabs((double)got - want) < 1e-5 * (1 + fabs(want)), "%s %zu: %g, not %g", what,
                  at, (double)got, want);
}

static void check_row(const struct made *m, size_t r)
{
    const float *row = x + r * WIDE;
    double p[SOURCES], all = 0;
    for (size_t s = 0; s < SOURCES; s++)
        all += p[s] = exp(score_of(row + s * N));
    for (size_t i = 0; i < N; i++) {
        double sum = 0;
        for (size_t s = 0; s < SOURCES; s++)
            sum += p[s] / all * (double)row[s * N + i];
        near("read", r * N + i, m->read[r * N + i], sum);
    }
}

START_TEST(definitions)
{
    make_input();
    struct made *m = run("generic", 1, ROWS);
    for (size_t r = 0; r < ROWS; r++)
        check_row(m, r);
    for (size_t e = 0; e < ARRAY_LEN(x); e++) {
        size_t r = e / WIDE, s = e / N % STREAMS, i = e % N;
        float y = result[r * N + i], first = x[r * WIDE + i];
        near("add", e, m->add[e], (double)(s == 0 ? x[e] + y : x[e]));
        ck_assert(m->end[e] == (s == 0 ? y : s == 3 ? first : x[e]));
        if (s == 0)
            ck_assert(m->one[r * N + i] == first);
    }
    free(m);
}
END_TEST

START_TEST(same_bits)
{
    make_input();
    struct made *want = run("generic", 1, ROWS);
    for (int isa = 0; isa < ISA__COUNT; isa++) {
        const char *name = kernel_isa_name((enum kernel_isa)isa);
        if (!kernel_ops_select(name))
            continue;
        for (uint32_t threads = 1; threads <= 3; threads++)
            for (uint32_t step = 1; step < ROWS; step += 4) {
                struct made *m = run(name, threads, step);
                ck_assert_msg(memcmp(want, m, sizeof *m) == 0, "%s, %u threads, %u rows", name,
                              threads, step);
                free(m);
            }
    }
    free(want);
}
END_TEST

/* A source whose score is an infinity would be left out or be the only one. */
START_TEST(infinite_scores_are_noted)
{
    struct error error;
    struct device *d = host_device(kernel_ops_select("auto"), 1, 0, &error);
    struct made *m = calloc(1, sizeof *m);
    ck_assert(d && m);
    make_input();
    score[3] = -INFINITY;
    run_rows(d, m, 0, 1);
    ck_assert(d->not_finite);
    d->ops->destroy(d);
    free(m);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("host_bank");
    TCase *t = tcase_create("host_bank");
    tcase_add_test(t, definitions);
    tcase_add_test(t, same_bits);
    tcase_add_test(t, infinite_scores_are_noted);
    suite_add_tcase(suite, t);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
