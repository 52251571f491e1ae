/* SPDX-License-Identifier: Apache-2.0 */
/* Operations on a residual of several streams and by n-grams, against their definition in double;
 * and with every instruction set, number of threads and division of the rows: the same bits. */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/random.h"
#include "lib/device/host/host.h"
#include "lib/device/pointers.h"

enum { ROWS = 13, STREAMS = 3, N = 70, WIDE = STREAMS * N, TAPS = 3, STEP = 2, VOCAB = 50 };
#define PAST   ((TAPS - 1) * STEP)
#define STATE  (PAST * WIDE + STEP - 1)
#define EPS    1e-5f
#define END_ID 7

static struct {
    float x[ROWS * WIDE], weight[WIDE], gate[ROWS * WIDE], logits[ROWS * STREAMS], y[ROWS * N];
    float keys[ROWS * WIDE], values[ROWS * N], key_norm[WIDE], query_norm[WIDE], conv_norm[WIDE];
    float conv[TAPS * WIDE], zeros[WIDE];
    struct device_row row[ROWS];
} in;

/* What the operations write. */
struct made {
    float begin[ROWS * WIDE], norm[ROWS * WIDE], silu[ROWS * WIDE], read[ROWS * N];
    float add[ROWS * WIDE], ngrams[ROWS * WIDE], state[2][STATE];
};

static void make_input(void)
{
    struct random random;
    random_seed(&random, 11, 3);
    float *const all[] = {in.x,      in.weight,   in.gate,       in.logits,    in.y,   in.keys,
                          in.values, in.key_norm, in.query_norm, in.conv_norm, in.conv};
    const size_t floats[] = {ROWS * WIDE, WIDE,        ROWS * WIDE, ROWS * STREAMS,
                             ROWS * N,    ROWS * WIDE, ROWS * N,    WIDE,
                             WIDE,        WIDE,        TAPS * WIDE};
    for (size_t a = 0; a < ARRAY_LEN(all); a++)
        for (size_t i = 0; i < floats[a]; i++)
            all[a][i] = (float)(random_unit(&random) - 0.5) * (a == 2 ? 30.0f : 4.0f);
    for (uint32_t r = 0; r < ROWS; r++) /* two sequences in turn */
        in.row[r] = (struct device_row){.sequence = r % 2, .position = r / 2, .token = 3 * r + 1};
}

static struct device_at at(const float *x, size_t floats)
{
    return device_address(x + floats);
}

/* Rows [first, first + rows) of the operations without a state. */
static void run_rows(struct device *d, struct made *m, uint32_t first, uint32_t rows)
{
    float gate[ROWS * WIDE], weights[ROWS * STREAMS];
    size_t wide = (size_t)first * WIDE, n = (size_t)first * N;
    memcpy(gate, in.gate, sizeof gate);
    memcpy(m->silu + wide, in.x + wide, (size_t)rows * WIDE * sizeof *m->silu);
    memcpy(m->add + wide, in.x + wide, (size_t)rows * WIDE * sizeof *m->add);
    const struct op_stream_begin begin = {
        .rows = rows, .streams = STREAMS, .n = N, .y = at(in.y, n), .x = at(m->begin, wide)};
    const struct op_stream_norm norm = {.rows = rows,
                                        .streams = STREAMS,
                                        .eps = EPS,
                                        .x = at(in.x, wide),
                                        .weight = at(in.weight, 0),
                                        .y = device_rows_of_floats(at(m->norm, wide), WIDE)};
    const struct op_silu_rows silu = {.rows = rows,
                                      .y = device_rows_of_floats(at(m->silu, wide), WIDE)};
    const struct op_stream_read read = {.rows = rows,
                                        .streams = STREAMS,
                                        .x = device_rows_of_floats(at(in.x, wide), WIDE),
                                        .gate = at(gate, wide),
                                        .y = device_rows_of_floats(at(m->read, n), N)};
    const struct op_stream_add add = {.rows = rows,
                                      .streams = STREAMS,
                                      .n = N,
                                      .logits = at(in.logits, (size_t)first * STREAMS),
                                      .weights = at(weights, 0),
                                      .y = at(in.y, n),
                                      .x = at(m->add, wide)};
    d->ops->stream_begin(d, &begin);
    d->ops->stream_norm(d, &norm);
    d->ops->silu_rows(d, &silu);
    d->ops->stream_read(d, &read);
    d->ops->stream_add(d, &add);
}

/* Both sequences continue in place; `begun`: they have a state. */
static void run_ngrams(struct device *d, struct made *m, uint32_t first, uint32_t rows, bool begun)
{
    float keys[ROWS * WIDE], space[ROWS * WIDE];
    struct device_sequence sequence[2] = {0};
    memcpy(keys, in.keys, sizeof keys);
    memcpy(m->ngrams + (size_t)first * WIDE, in.x + (size_t)first * WIDE,
           (size_t)rows * WIDE * sizeof *m->ngrams);
    for (uint32_t s = 0; s < 2; s++) {
        sequence[s].state = begun ? at(m->state[s], 0) : (struct device_at){0};
        sequence[s].next_state = at(m->state[s], 0);
    }
    const struct op_ngrams op = {.rows = rows,
                                 .sequences = 2,
                                 .row = in.row + first,
                                 .sequence = sequence,
                                 .shape = {STREAMS, N, TAPS, STEP, END_ID, EPS},
                                 .key_norm = at(in.key_norm, 0),
                                 .query_norm = at(in.query_norm, 0),
                                 .conv_norm = at(in.conv_norm, 0),
                                 .conv = at(in.conv, 0),
                                 .zeros = at(in.zeros, 0),
                                 .values = at(in.values, (size_t)first * N),
                                 .keys = at(keys, (size_t)first * WIDE),
                                 .space = at(space, 0),
                                 .x = at(m->ngrams, (size_t)first * WIDE)};
    d->ops->ngrams(d, &op);
}

/* In parts of `step` rows; the first has both sequences. */
static struct made *run(const char *isa, uint32_t threads, uint32_t step)
{
    struct error error;
    struct device *d = host_device(kernel_ops_select(isa), threads, 0, &error);
    struct made *m = calloc(1, sizeof *m);
    ck_assert(d && m);
    for (uint32_t first = 0, rows; first < ROWS; first += rows) {
        rows = first == 0 && step < 2 ? 2 : step < ROWS - first ? step : ROWS - first;
        run_rows(d, m, first, rows);
        run_ngrams(d, m, first, rows, first > 0);
    }
    ck_assert(!d->not_finite);
    d->ops->destroy(d);
    return m;
}

/* ---- the definitions in double ---- */

static void norm_of(const float *x, const float *weight, double *y)
{
    double sum = 0;
    for (int i = 0; i < N; i++)
        sum += (double)x[i] * (double)x[i];
    for (int i = 0; i < N; i++)
        y[i] = (double)x[i] / sqrt(sum / N + (double)EPS) * (double)weight[i];
}

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

static void near(const char *what, size_t i, float got, double want)
{
    ck_assert_msg(fabs((double)got - want) <= 2e-5 * (1 + fabs(want)),
                  "%s, element %zu: %g, not %g", what, i, (double)got, want);
}

static void check_streams(const struct made *m)
{
    for (size_t r = 0; r < ROWS; r++)
        for (size_t s = 0; s < STREAMS; s++) {
            double norm[N];
            norm_of(in.x + (r * STREAMS + s) * N, in.weight + s * N, norm);
            for (size_t i = 0; i < N; i++) {
                size_t e = (r * STREAMS + s) * N + i;
                double x = (double)in.x[e], w = 2 * sigmoid((double)in.logits[r * STREAMS + s]);
                near("begin", e, m->begin[e], (double)in.y[r * N + i]);
                near("norm", e, m->norm[e], norm[i]);
                near("silu", e, m->silu[e], x * sigmoid(x));
                near("add", e, m->add[e], x + w * (double)in.y[r * N + i]);
            }
        }
    for (size_t r = 0; r < ROWS; r++)
        for (size_t i = 0; i < N; i++) {
            double mean = 0;
            for (size_t s = 0; s < STREAMS; s++) {
                size_t e = (r * STREAMS + s) * N + i;
                mean += (double)in.x[e] * sigmoid((double)in.gate[e]) / STREAMS;
            }
            near("read", r * N + i, m->read[r * N + i], mean);
        }
}

/* Inputs t of the convolution, and what a value adds, of all rows. */
static void gated(double *t, double *v)
{
    for (size_t u = 0; u < ROWS * STREAMS; u++) {
        size_t s = u % STREAMS;
        double key[N], query[N], dot = 0, sum = 0;
        norm_of(in.keys + u * N, in.key_norm + s * N, key);
        norm_of(in.x + u * N, in.query_norm + s * N, query);
        for (int i = 0; i < N; i++)
            dot += key[i] * query[i] / sqrt(N);
        double root = copysign(sqrt(fmax(fabs(dot), 1e-6)), dot);
        for (size_t i = 0; i < N; i++) {
            v[u * N + i] = sigmoid(root) * (double)in.values[u / STREAMS * N + i];
            sum += v[u * N + i] * v[u * N + i];
        }
        for (size_t i = 0; i < N; i++)
            t[u * N + i] =
                v[u * N + i] / sqrt(sum / N + (double)EPS) * (double)in.conv_norm[s * N + i];
    }
}

/* Row r of a sequence is row 2 r or 2 r + 1; the taps are STEP positions apart. */
static void check_ngrams(const struct made *m)
{
    static double t[ROWS * WIDE], v[ROWS * WIDE];
    gated(t, v);
    for (size_t r = 0; r < ROWS; r++)
        for (size_t i = 0; i < WIDE; i++) {
            double sum = 0;
            for (size_t tap = 0; tap < TAPS; tap++) {
                size_t back = 2 * STEP * (TAPS - 1 - tap);
                if (back <= r)
                    sum += (double)in.conv[tap * WIDE + i] * t[(r - back) * WIDE + i];
            }
            size_t e = r * WIDE + i;
            near("ngrams", e, m->ngrams[e], (double)in.x[e] + v[e] + sum * sigmoid(sum));
        }
    /* The last token of each, and the oldest input that is kept. */
    for (size_t s = 0; s < 2; s++) {
        size_t last = s == (ROWS - 1) % 2 ? ROWS - 1 : ROWS - 2;
        ck_assert_uint_eq((uint32_t)m->state[s][PAST * WIDE], in.row[last].token);
        near("state", s, m->state[s][5], t[(last - 2 * (PAST - 1)) * WIDE + 5]);
    }
}

START_TEST(definitions)
{
    make_input();
    struct made *m = run("generic", 1, ROWS);
    check_streams(m);
    check_ngrams(m);
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

/* The sigmoid of an infinity is a number, but the value is noted. */
START_TEST(infinite_gates_are_noted)
{
    struct error error;
    struct device *d = host_device(kernel_ops_select("auto"), 1, 0, &error);
    struct made *m = calloc(1, sizeof *m);
    ck_assert(d && m);
    for (int which = 0; which < 2; which++) {
        make_input();
        *(which ? in.gate + 3 : in.logits + 1) = -INFINITY;
        run_rows(d, m, 0, 1);
        ck_assert(d->not_finite);
        d->not_finite = 0;
    }
    d->ops->destroy(d);
    free(m);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("host_residual");
    TCase *t = tcase_create("host_residual");
    tcase_add_test(t, definitions);
    tcase_add_test(t, same_bits);
    tcase_add_test(t, infinite_gates_are_noted);
    suite_add_tcase(suite, t);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
