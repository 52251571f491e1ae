/* SPDX-License-Identifier: Apache-2.0 */
/* Operations on streams of a residual that are mixed, against their definition in double; and with
 * every instruction set, number of threads and division of the rows: the same bits. */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/random.h"
#include "lib/device/host/host.h"
#include "lib/device/pointers.h"

enum { ROWS = 11, STREAMS = 4, N = 150, WIDE = STREAMS * N, WEIGHTS = STREAMS * (STREAMS + 2) };
#define EPS     1e-3f /* large, so that each place where it is added matters */
#define RMS_EPS 1e-5f

static struct {
    float x[ROWS * WIDE], y[ROWS * N], norm[N];
    float logits[ROWS * WEIGHTS], scale[3], base[WEIGHTS];
} in;

/* What the operations write. */
struct made {
    float weights[ROWS * WEIGHTS], head[ROWS * STREAMS];
    float read[ROWS * N], mean[ROWS * N], mixed[ROWS * WIDE];
};

static void make_input(void)
{
    struct random random;
    random_seed(&random, 5, 1);
    const struct {
        float *at;
        size_t floats;
        float size;
    } all[] = {{in.x, ROWS * WIDE, 3},
               {in.y, ROWS * N, 3},
               {in.norm, N, 2},
               {in.logits, ROWS * WEIGHTS, 4.0f},
               {in.base, WEIGHTS, 5.0f}};
    for (size_t a = 0; a < ARRAY_LEN(all); a++)
        for (size_t i = 0; i < all[a].floats; i++)
            all[a].at[i] = (float)(random_unit(&random) - 0.5) * all[a].size;
    for (int i = 0; i < 3; i++)
        in.scale[i] = 0.5f + (float)i;
}

static struct device_at at(const float *x, size_t floats)
{
    return device_address(x + floats);
}

static void run_rows(struct device *d, struct made *m, uint32_t steps, size_t first, uint32_t rows)
{
    const struct device_mixing shape = {STREAMS, steps, EPS, 0};
    float head[ROWS * STREAMS];
    memcpy(m->mixed + first * WIDE, in.x + first * WIDE, rows * WIDE * sizeof *m->mixed);
    const struct op_stream_weights weights = {.rows = rows,
                                              .shape = shape,
                                              .logits = at(in.logits, first * WEIGHTS),
                                              .scale = at(in.scale, 0),
                                              .base = at(in.base, 0),
                                              .weights = at(m->weights, first * WEIGHTS)};
    struct op_stream_weights of_head = weights;
    of_head.shape.steps = 0;
    for (size_t r = 0; r < rows; r++)
        memcpy(head + r * STREAMS, in.logits + (first + r) * WEIGHTS, STREAMS * sizeof *head);
    of_head.logits = at(head, 0);
    of_head.weights = at(m->head, first * STREAMS);
    const struct op_stream_gather read = {.rows = rows,
                                          .streams = STREAMS,
                                          .eps = RMS_EPS,
                                          .x = at(in.x, first * WIDE),
                                          .stride = WEIGHTS,
                                          .weights = weights.weights,
                                          .norm = at(in.norm, 0),
                                          .y = device_rows_of_floats(at(m->read, first * N), N)};
    struct op_stream_gather mean = read;
    mean.weights = (struct device_at){0};
    mean.y = device_rows_of_floats(at(m->mean, first * N), N);
    const struct op_stream_mix mix = {.rows = rows,
                                      .n = N,
                                      .shape = shape,
                                      .weights = weights.weights,
                                      .y = at(in.y, first * N),
                                      .x = at(m->mixed, first * WIDE)};
    d->ops->stream_weights(d, &weights);
    d->ops->stream_weights(d, &of_head);
    d->ops->stream_gather(d, &read);
    d->ops->stream_gather(d, &mean);
    d->ops->stream_mix(d, &mix);
}

/* In parts of `part` rows. */
static struct made *run(const char *isa, uint32_t threads, uint32_t steps, uint32_t part)
{
    struct error error;
    struct device *d = host_device(kernel_ops_select(isa), threads, 0, &error);
    struct made *m = calloc(1, sizeof *m);
    ck_assert(d && m);
    for (uint32_t first = 0, rows; first < ROWS; first += rows) {
        rows = part < ROWS - first ? part : ROWS - first;
        run_rows(d, m, steps, first, rows);
    }
    ck_assert(!d->not_finite);
    d->ops->destroy(d);
    return m;
}

/* ---- the definitions in double ---- */

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

static void near(const char *what, size_t i, float got, double want)
{
    ck_assert_msg(fabs((double)got - want) <= 2e-5 * (1 + fabs(want)),
                  "%s, element %zu: %g, not %g", what, i, (double)got, want);
}

static void columns(double c[STREAMS][STREAMS])
{
    for (int j = 0; j < STREAMS; j++) {
        double sum = (double)EPS;
        for (int i = 0; i < STREAMS; i++)
            sum += c[i][j];
        for (int i = 0; i < STREAMS; i++)
            c[i][j] /= sum;
    }
}

static void lines(double c[STREAMS][STREAMS])
{
    for (int i = 0; i < STREAMS; i++) {
        double sum = (double)EPS;
        for (int j = 0; j < STREAMS; j++)
            sum += c[i][j];
        for (int j = 0; j < STREAMS; j++)
            c[i][j] /= sum;
    }
}

struct weights {
    double pre[STREAMS], post[STREAMS], matrix[STREAMS][STREAMS];
};

static double term(size_t row, size_t i, int kind)
{
    return (double)in.logits[row * WEIGHTS + i] * (double)in.scale[kind] + (double)in.base[i];
}

static struct weights weights_of(size_t row, uint32_t steps)
{
    struct weights w;
    for (size_t i = 0; i < STREAMS; i++) {
        double sum = 0;
        w.pre[i] = sigmoid(term(row, i, 0)) + (double)EPS;
        w.post[i] = 2 * sigmoid(term(row, STREAMS + i, 1));
        for (size_t j = 0; j < STREAMS; j++)
            sum += w.matrix[i][j] = exp(term(row, (2 + i) * STREAMS + j, 2));
        for (size_t j = 0; j < STREAMS; j++)
            w.matrix[i][j] = w.matrix[i][j] / sum + (double)EPS;
    }
    columns(w.matrix);
    for (uint32_t step = 1; step < steps; step++) {
        lines(w.matrix);
        columns(w.matrix);
    }
    return w;
}

static void normed(const double *u, double *y)
{
    double sum = 0;
    for (int i = 0; i < N; i++)
        sum += u[i] * u[i];
    for (int i = 0; i < N; i++)
        y[i] = u[i] / sqrt(sum / N + (double)RMS_EPS) * (double)in.norm[i];
}

static void check_row(const struct made *m, size_t r, uint32_t steps)
{
    const struct weights w = weights_of(r, steps);
    double u[N] = {0}, mean[N] = {0}, want[N], of_mean[N];
    for (size_t s = 0; s < STREAMS; s++) {
        near("pre", s, m->weights[r * WEIGHTS + s], w.pre[s]);
        near("head", s, m->head[r * STREAMS + s], w.pre[s]);
        near("post", s, m->weights[r * WEIGHTS + STREAMS + s], w.post[s]);
        for (size_t j = 0; j < STREAMS; j++)
            near("matrix", s * STREAMS + j, m->weights[r * WEIGHTS + (2 + s) * STREAMS + j],
                 w.matrix[s][j]);
        for (size_t i = 0; i < N; i++) {
            double x = (double)in.x[(r * STREAMS + s) * N + i], y = w.post[s];
            u[i] += w.pre[s] * x;
            mean[i] += x / STREAMS;
            y *= (double)in.y[r * N + i];
            for (size_t from = 0; from < STREAMS; from++)
                y += w.matrix[from][s] * (double)in.x[(r * STREAMS + from) * N + i];
            near("mixed", s * N + i, m->mixed[(r * STREAMS + s) * N + i], y);
        }
    }
    normed(u, want);
    normed(mean, of_mean);
    for (size_t i = 0; i < N; i++) {
        near("read", i, m->read[r * N + i], want[i]);
        near("mean", i, m->mean[r * N + i], of_mean[i]);
    }
}

START_TEST(definitions)
{
    static const uint32_t steps[] = {1, 2, 3, 20};
    make_input();
    struct made *m = run("generic", 1, steps[_i], ROWS);
    for (size_t r = 0; r < ROWS; r++)
        check_row(m, r, steps[_i]);
    free(m);
}
END_TEST

/* Sums over both sides are 1, but for what is added. */
START_TEST(stochastic)
{
    make_input();
    struct made *m = run("generic", 1, 20, ROWS);
    for (size_t i = 0; i < STREAMS; i++) {
        const float *matrix = m->weights + (size_t)2 * STREAMS;
        double line = 0, column = 0;
        for (size_t j = 0; j < STREAMS; j++) {
            line += (double)matrix[i * STREAMS + j];
            column += (double)matrix[j * STREAMS + i];
        }
        ck_assert_double_eq_tol(line, 1, 0.05);
        ck_assert_double_eq_tol(column, 1, 0.005);
    }
    free(m);
}
END_TEST

START_TEST(same_bits)
{
    make_input();
    struct made *want = run("generic", 1, 20, ROWS);
    for (int isa = 0; isa < ISA__COUNT; isa++) {
        const char *name = kernel_isa_name((enum kernel_isa)isa);
        if (!kernel_ops_select(name))
            continue;
        for (uint32_t threads = 1; threads <= 3; threads++)
            for (uint32_t part = 1; part < ROWS; part += 3) {
                struct made *m = run(name, threads, 20, part);
                ck_assert_msg(memcmp(want, m, sizeof *m) == 0, "%s, %u threads, %u rows", name,
                              threads, part);
                free(m);
            }
    }
    free(want);
}
END_TEST

/* Without steps a result is added, and nothing is mixed. */
START_TEST(weighed)
{
    enum { BOTH = 2 * STREAMS };
    const struct device_mixing shape = {STREAMS, 0, EPS, 1.5f};
    float logits[ROWS * BOTH], weights[ROWS * BOTH];
    struct error error;
    struct device *d = host_device(kernel_ops_select("generic"), 2, 0, &error);
    struct made *m = calloc(1, sizeof *m);
    ck_assert(d && m);
    make_input();
    memcpy(m->mixed, in.x, sizeof in.x);
    for (size_t r = 0; r < ROWS; r++)
        memcpy(logits + r * BOTH, in.logits + r * WEIGHTS, BOTH * sizeof *logits);
    d->ops->stream_weights(d, &(struct op_stream_weights){.rows = ROWS,
                                                          .shape = shape,
                                                          .logits = at(logits, 0),
                                                          .scale = at(in.scale, 0),
                                                          .base = at(in.base, 0),
                                                          .weights = at(weights, 0)});
    d->ops->stream_mix(d, &(struct op_stream_mix){.rows = ROWS,
                                                  .n = N,
                                                  .shape = shape,
                                                  .weights = at(weights, 0),
                                                  .y = at(in.y, 0),
                                                  .x = at(m->mixed, 0)});
    for (size_t r = 0; r < ROWS; r++)
        for (size_t s = 0; s < STREAMS; s++) {
            double post = 1.5 * sigmoid(term(r, STREAMS + s, 1)) + (double)EPS;
            near("pre", s, weights[r * BOTH + s], sigmoid(term(r, s, 0)) + (double)EPS);
            near("post", s, weights[r * BOTH + STREAMS + s], post);
            for (size_t i = 0, x = (r * STREAMS + s) * N; i < N; i++)
                near("added", i, m->mixed[x + i],
                     (double)in.x[x + i] + post * (double)in.y[r * N + i]);
        }
    d->ops->destroy(d);
    free(m);
}
END_TEST

/* The sigmoid of an infinity is a number, but the value is noted. */
START_TEST(infinite_products_are_noted)
{
    struct error error;
    struct device *d = host_device(kernel_ops_select("auto"), 1, 0, &error);
    struct made *m = calloc(1, sizeof *m);
    ck_assert(d && m);
    make_input();
    in.logits[1] = -INFINITY;
    run_rows(d, m, 2, 0, 1);
    ck_assert(d->not_finite);
    d->ops->destroy(d);
    free(m);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("host_mixing");
    TCase *t = tcase_create("host_mixing");
    tcase_add_loop_test(t, definitions, 0, 4);
    tcase_add_test(t, stochastic);
    tcase_add_test(t, same_bits);
    tcase_add_test(t, weighed);
    tcase_add_test(t, infinite_products_are_noted);
    suite_add_tcase(suite, t);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
