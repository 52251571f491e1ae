/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels of layers with a recurrent state: against double precision, and the bits of the portable
 * ones. */
#include "lib/exact/elementary.h"
#include "lib/kernels/decays.h"
#include "lib/kernels/internal.h"
#include "tests/unit/lib/kernels/kernel_test.h"

#define REFERENCE (&generic_ops)

static const uint32_t lengths[] = {1, 2, 7, 8, 9, 15, 16, 17, 31, 33, 64, 100, 128, 200};

static bool near(double got, double want, double size)
{
    return fabs(got - want) <= 3e-6 * size + 1e-30;
}

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

START_TEST(conv_matches_double)
{
    enum { N = 200, TAPS = 4 };
    const struct kernel_ops *ops = kernel_ops_of((enum kernel_isa)_i);
    float in[TAPS][N], w[TAPS * N], y[N + 1], bits[N];
    const float *x[TAPS] = {in[2], in[0], in[3], in[1]};
    test_seed(61);
    for (size_t l = 0; l < ARRAY_LEN(lengths); l++)
        for (uint32_t taps = 1; taps <= TAPS; taps++) {
            uint32_t n = lengths[l];
            test_fill(in[0], TAPS * N);
            test_fill(w, TAPS * N);
            y[n] = 42;
            ops->conv(x, w, n, taps, n, y);
            REFERENCE->conv(x, w, n, taps, n, bits);
            ck_assert_mem_eq(y, bits, n * sizeof *y);
            ck_assert_float_eq(y[n], 42);
            for (uint32_t i = 0; i < n; i++) {
                double sum = 0;
                for (uint32_t t = 0; t < taps; t++)
                    sum += (double)w[t * n + i] * (double)x[t][i];
                ck_assert(near((double)y[i], sum, 4));
            }
        }
}
END_TEST

START_TEST(gates_match_double)
{
    const struct kernel_ops *ops = kernel_ops_of((enum kernel_isa)_i);
    static const float special[] = {0.0f, -0.0f, 50, -50, -88.5f, -100, 1e4f, -1e4f};
    float gate[200], x[200], y[201], bits[200];
    test_seed(62);
    for (size_t l = 0; l < ARRAY_LEN(lengths); l++) {
        uint32_t n = lengths[l];
        test_fill(x, n);
        for (uint32_t i = 0; i < n; i++)
            gate[i] = i < ARRAY_LEN(special) ? special[i] : test_uniform() * 20;
        y[n] = 42;
        ops->sigmoid_mul(gate, x, n, y);
        REFERENCE->sigmoid_mul(gate, x, n, bits);
        ck_assert_mem_eq(y, bits, n * sizeof *y);
        for (uint32_t i = 0; i < n; i++)
            ck_assert(near((double)y[i], (double)x[i] * sigmoid((double)gate[i]), 1));
        ops->mul(gate, x, n, y);
        for (uint32_t i = 0; i < n; i++)
            ck_assert(y[i] == gate[i] * x[i]);
        ck_assert_float_eq(y[n], 42);
        memcpy(y, gate, n * sizeof *y);
        memcpy(bits, gate, n * sizeof *y);
        ops->silu(y, n);
        REFERENCE->silu(bits, n);
        ck_assert_mem_eq(y, bits, n * sizeof *y);
        for (uint32_t i = 0; i < n; i++)
            ck_assert(near((double)y[i], (double)gate[i] * sigmoid((double)gate[i]),
                           fabs((double)gate[i])));
        ck_assert_float_eq(y[n], 42);
    }
}
END_TEST

static void normalise(float *x, uint32_t n)
{
    double sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += (double)x[i] * (double)x[i];
    for (uint32_t i = 0; i < n; i++)
        x[i] = (float)((double)x[i] / sqrt(sum));
}

/* Several steps from a state of zeros, each also in place, with the delta term and without.
 * decay_step 1: each row of the state has its own decay. */
static void check_delta(const struct kernel_ops *ops, uint32_t keys, uint32_t values, bool without,
                        uint32_t decay_step)
{
    enum { STEPS = 5 };
    size_t size = (size_t)keys * values;
    float *state = test_alloc(size * sizeof *state), *next = test_alloc(size * sizeof *state);
    float *bits = test_alloc(size * sizeof *state),
          *k = test_alloc((4 * keys + 3 * values) * sizeof *k);
    double *want = test_alloc(size * sizeof *want);
    float *q = k + keys, *v = q + keys, *out = v + values, *same = out + values;
    float *decay = same + values;
    memset(state, 0, size * sizeof *state);
    memset(bits, 0, size * sizeof *state);
    memset(want, 0, size * sizeof *want);
    for (int step = 0; step < STEPS; step++) {
        test_fill(k, 2 * keys + values);
        normalise(k, keys); /* as in a model: else the steps amplify errors */
        normalise(q, keys);
        for (uint32_t i = 0; i < keys; i++)
            decay[i] = 0.9f - 0.5f * (float)i / (float)keys;
        struct kernel_delta d = {k,    q,      v,     decay, decay_step, 0.7f,
                                 keys, values, state, next,  out,        without};
        struct kernel_delta e = d;
        e.state = e.next = bits;
        e.out = same;
        ops->delta(&d);
        REFERENCE->delta(&e);
        ck_assert_mem_eq(out, same, values * sizeof *out);
        ck_assert_mem_eq(next, bits, size * sizeof *next);
        for (uint32_t j = 0; j < values; j++) {
            double recall = 0, sum = 0;
            for (uint32_t i = 0; i < keys; i++)
                recall += (double)k[i] * (want[i * values + j] *= (double)decay[i * decay_step]);
            double u = (double)0.7f * ((double)v[j] - (without ? 0 : recall));
            for (uint32_t i = 0; i < keys; i++) {
                want[i * values + j] += (double)k[i] * u;
                sum += (double)q[i] * want[i * values + j];
            }
            ck_assert_msg(near((double)out[j], sum, 4), "%u x %u step %d column %u: %g, not %g",
                          keys, values, step, j, (double)out[j], sum);
        }
        d.next = state;
        d.out = same;
        ops->delta(&d);
        ck_assert_mem_eq(state, next, size * sizeof *next);
        ck_assert_mem_eq(out, same, values * sizeof *out);
    }
    free(state);
    free(next);
    free(bits);
    free(k);
    free(want);
}

START_TEST(delta_matches_double)
{
    const struct kernel_ops *ops = kernel_ops_of((enum kernel_isa)_i);
    test_seed(63);
    for (size_t v = 0; v < ARRAY_LEN(lengths); v++) {
        check_delta(ops, 3, lengths[v], false, 0);
        check_delta(ops, 16, lengths[v], false, 0);
        check_delta(ops, 16, lengths[v], false, 1);
        check_delta(ops, 16, lengths[v], true, 0);
    }
    check_delta(ops, 128, 128, false, 0);
    check_delta(ops, 128, 128, false, 1);
    check_delta(ops, 128, 64, true, 0);
}
END_TEST

static double decay_of(double x, double rate, double bound)
{
    return exp(bound < 0 ? bound * sigmoid(rate * x) : -rate * (x > 20 ? x : log1p(exp(x))));
}

/* The same with the exact functions. */
static float exact_decay(double x, double rate, double bound)
{
    double softplus = x > 20 ? x : exact_log(1 + exact_exp(x));
    return (float)exact_exp(bound < 0 ? bound * (1 / (1 + exact_exp(-(rate * x))))
                                      : -rate * softplus);
}

static void check_decays(enum kernel_isa isa, const float *a, const float *bias, uint32_t n,
                         double rate, double bound)
{
    float y[201];
    y[n] = 42;
    kernel_decay(isa, &(struct kernel_decays){a, bias, n, rate, bound, y});
    for (uint32_t i = 0; i < n; i++) {
        double x = (double)(a[i] + bias[i]);
        float want = exact_decay(x, rate, bound);
        ck_assert_msg(memcmp(y + i, &want, sizeof *y) == 0 || (isnan(y[i]) && isnan(want)),
                      "%a, rate %g, bound %g: %a, not %a", x, rate, bound, (double)y[i],
                      (double)want);
        if (isfinite(a[i]))
            ck_assert_msg(near((double)y[i], decay_of(x, rate, bound), 1),
                          "%a, rate %g, bound %g: %a", x, rate, bound, (double)y[i]);
    }
    ck_assert_float_eq(y[n], 42);
}

START_TEST(decays_match_double)
{
    static const float special[] = {0.0f,   -0.0f,  20,       20.0001f,  -20,   88.8f,
                                    -104,   709,    -7e2f,    1e4f,      -1e4f, 3e38f,
                                    -3e38f, 1e-40f, INFINITY, -INFINITY, NAN};
    static const double rates[] = {0, 1e-3, 0.7, 2.5, 16, 1e5}, bounds[] = {0, -1e-3, -5, -100};
    float a[200], bias[200];
    test_seed(64);
    for (size_t l = 0; l < ARRAY_LEN(lengths); l++)
        for (size_t r = 0; r < ARRAY_LEN(rates) * ARRAY_LEN(bounds); r++) {
            for (uint32_t i = 0; i < lengths[l]; i++) {
                a[i] = test_uniform() * 40;
                bias[i] = test_uniform();
                if (i + lengths[l] % 32 < ARRAY_LEN(special)) {
                    a[i] = special[i + lengths[l] % 32];
                    bias[i] = 0;
                }
            }
            check_decays((enum kernel_isa)_i, a, bias, lengths[l], rates[r % ARRAY_LEN(rates)],
                         bounds[r / ARRAY_LEN(rates)]);
        }
}
END_TEST

/* Several steps with decays of elements from a state of zeros, each also in place; the steps of
 * columns are of all sizes. */
static void check_scan(const struct kernel_ops *ops, uint32_t keys, uint32_t values, bool skips)
{
    enum { STEPS = 5 };
    static const float special[] = {0.0f, -0.0f, 30, -30, -90, 100};
    size_t size = (size_t)keys * values;
    float *state = test_alloc((4 * size + 2 * keys + 6 * values) * sizeof *state);
    float *next = state + size, *bits = next + size, *rate = bits + size, *k = rate + size;
    float *q = k + keys, *v = q + keys, *raw = v + values, *bias = raw + values;
    float *skip = bias + values, *out = skip + values, *same = out + values;
    double *want = test_alloc(size * sizeof *want);
    memset(state, 0, 3 * size * sizeof *state);
    memset(want, 0, size * sizeof *want);
    test_fill(rate, size);
    for (size_t i = 0; i < size; i++)
        rate[i] = -0.1f - 2 * fabsf(rate[i]);
    for (int step = 0; step < STEPS; step++) {
        test_fill(k, 2 * keys + 4 * values);
        for (uint32_t j = 0; j < values && j < ARRAY_LEN(special); j++)
            raw[j] = special[(j + (uint32_t)step) % ARRAY_LEN(special)];
        struct kernel_scan d = {k,    q,    v,      raw,   bias, skips ? skip : NULL,
                                rate, keys, values, state, next, out};
        struct kernel_scan e = d;
        e.state = e.next = bits;
        e.out = same;
        ops->scan(&d);
        REFERENCE->scan(&e);
        ck_assert_mem_eq(out, same, values * sizeof *out);
        ck_assert_mem_eq(next, bits, size * sizeof *next);
        for (uint32_t j = 0; j < values; j++) {
            double t = log1p(exp((double)(raw[j] + bias[j]))), sum = 0;
            for (uint32_t i = 0; i < keys; i++) {
                double *s = &want[i * values + j];
                *s = *s * exp(t * (double)rate[i * values + j]) + (double)k[i] * t * (double)v[j];
                sum += (double)q[i] * *s;
            }
            sum += skips ? (double)skip[j] * (double)v[j] : 0;
            ck_assert_msg(near((double)out[j], sum, 4 * (1 + t)),
                          "%u x %u step %d column %u: %g, not %g", keys, values, step, j,
                          (double)out[j], sum);
        }
        d.next = state;
        d.out = same;
        ops->scan(&d);
        ck_assert_mem_eq(state, next, size * sizeof *next);
        ck_assert_mem_eq(out, same, values * sizeof *out);
    }
    free(state);
    free(want);
}

START_TEST(scan_matches_double)
{
    const struct kernel_ops *ops = kernel_ops_of((enum kernel_isa)_i);
    test_seed(64);
    for (size_t v = 0; v < ARRAY_LEN(lengths); v++) {
        check_scan(ops, 1, lengths[v], true);
        check_scan(ops, 16, lengths[v], false);
    }
    check_scan(ops, 16, 64, true);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("kernels.recurrent");
    TCase *tcase = tcase_create("recurrent");
    test_add_isa(tcase, conv_matches_double);
    test_add_isa(tcase, gates_match_double);
    test_add_isa(tcase, delta_matches_double);
    test_add_isa(tcase, decays_match_double);
    test_add_isa(tcase, scan_matches_double);
    suite_add_tcase(suite, tcase);
    return test_run(suite);
}
