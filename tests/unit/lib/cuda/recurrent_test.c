/* SPDX-License-Identifier: Apache-2.0 */
/* Layers with a recurrent state: the bits of the CPU, in one pass and in two. */
#include <math.h>
#include <stdio.h>

#include "lib/exact/elementary.h"
#include "tests/unit/lib/cuda/cuda_test.h"

/* ---- convolution ---- */

enum { CHANNELS = 150, TAPS = 4, CONV_ROWS = 6 };

static void conv_on_cpu(const float *x, const float *past, const float *w, const float *bias,
                        uint32_t row, float *y)
{
    const float *in[TAPS];
    for (uint32_t t = 0; t < TAPS; t++) {
        int at = (int)(row + t) - (TAPS - 1);
        in[t] = at < 0 ? past + (at + TAPS - 1) * CHANNELS : x + at * CHANNELS;
    }
    cpu()->conv(in, w, CHANNELS, TAPS, CHANNELS, y);
    if (bias)
        cpu()->axpy(1.0f, bias, CHANNELS, y);
}

static void check_convolutions(bool biased)
{
    static float x[CONV_ROWS * CHANNELS], w[TAPS * CHANNELS], state[TAPS * CHANNELS],
        expected[CONV_ROWS * CHANNELS], y[CONV_ROWS * CHANNELS];
    float zeros[(TAPS - 1) * CHANNELS] = {0}, bias[CHANNELS];
    test_seed(71);
    test_fill(bias, CHANNELS);
    test_fill(x, ARRAY_LEN(x));
    test_fill(w, ARRAY_LEN(w));
    for (uint32_t row = 0; row < CONV_ROWS; row++) {
        conv_on_cpu(x, zeros, w, biased ? bias : NULL, row, expected + row * CHANNELS);
        cpu()->silu(expected + row * CHANNELS, CHANNELS);
    }
    static const uint32_t firsts[] = {CONV_ROWS, 1, 2, 4}; /* rows of the first pass */
    for (size_t i = 0; i < ARRAY_LEN(firsts); i++) {
        struct gpu_conv c = {.x = x,
                             .w = w,
                             .y = y,
                             .next = state,
                             .x_stride = CHANNELS,
                             .past_stride = CHANNELS,
                             .w_stride = CHANNELS,
                             .y_stride = CHANNELS,
                             .taps = TAPS,
                             .n = CHANNELS,
                             .rows = firsts[i],
                             .silu = true,
                             .bias = biased ? bias : NULL};
        memset(y, 0, sizeof y);
        check_launch(gpu()->conv(&c, NULL));
        c.past = state; /* in place */
        c.x += firsts[i] * CHANNELS;
        c.y += firsts[i] * CHANNELS;
        c.rows = CONV_ROWS - firsts[i];
        if (c.rows > 0)
            check_launch(gpu()->conv(&c, NULL));
        check_bits(y, expected, ARRAY_LEN(y), "first pass of %u rows", firsts[i]);
    }
}

START_TEST(convolutions_have_the_bits)
{
    check_convolutions(false);
    check_convolutions(true);
}
END_TEST

/* ---- recurrences ---- */

enum { KEYS = 24, VALUES = 140, V_HEADS = 4, SHARE = 2, K_HEADS = V_HEADS / SHARE, STEPS = 3 };

static struct {
    float k[STEPS * K_HEADS * KEYS], q[STEPS * K_HEADS * KEYS], v[STEPS * V_HEADS * VALUES];
    float rate[STEPS * V_HEADS], decay[STEPS * V_HEADS * KEYS], skip[V_HEADS];
    float expected[STEPS * V_HEADS * VALUES], out[STEPS * V_HEADS * VALUES];
    float state[V_HEADS * KEYS * VALUES], expected_state[V_HEADS * KEYS * VALUES];
} m;

/* What differs from DeltaNet: MAMBA has no delta term and D, CHANNELS a decay per row of the
 * state. */
enum kind { DELTANET, MAMBA, BY_CHANNEL, KINDS };

static uint32_t decays_of(enum kind kind)
{
    return kind == BY_CHANNEL ? KEYS : 1;
}

static void delta_on_cpu(bool interleaved, enum kind kind)
{
    memset(m.expected_state, 0, sizeof m.expected_state);
    for (uint32_t i = 0; i < STEPS * V_HEADS; i++) {
        uint32_t step = i / V_HEADS, head = i % V_HEADS;
        uint32_t k_head = interleaved ? head % K_HEADS : head / SHARE;
        float *state = m.expected_state + (size_t)head * KEYS * VALUES;
        struct kernel_delta d = {.k = m.k + (size_t)(step * K_HEADS + k_head) * KEYS,
                                 .q = m.q + (size_t)(step * K_HEADS + k_head) * KEYS,
                                 .v = m.v + (size_t)i * VALUES,
                                 .rate = m.rate[i],
                                 .decay = m.decay + (size_t)i * decays_of(kind),
                                 .decay_step = kind == BY_CHANNEL,
                                 .keys = KEYS,
                                 .values = VALUES,
                                 .state = state,
                                 .next = state,
                                 .out = m.expected + (size_t)i * VALUES,
                                 .without = kind == MAMBA};
        cpu()->delta(&d);
        if (kind == MAMBA)
            cpu()->axpy(m.skip[head], d.v, VALUES, d.out);
    }
}

/* Steps [begin, end), from the state of the steps before. */
static int delta_on_gpu(bool interleaved, enum kind kind, uint32_t begin, uint32_t end)
{
    uint32_t decays = V_HEADS * decays_of(kind);
    struct gpu_delta d = {.k = m.k + (size_t)begin * K_HEADS * KEYS,
                          .q = m.q + (size_t)begin * K_HEADS * KEYS,
                          .v = m.v + (size_t)begin * V_HEADS * VALUES,
                          .rate = m.rate + begin * V_HEADS,
                          .decay = m.decay + (size_t)begin * decays,
                          .skip = kind == MAMBA ? m.skip : NULL,
                          .before = begin > 0 ? m.state : NULL,
                          .after = m.state,
                          .out = m.out + (size_t)begin * V_HEADS * VALUES,
                          .k_stride = K_HEADS * KEYS,
                          .q_stride = K_HEADS * KEYS,
                          .v_stride = V_HEADS * VALUES,
                          .rate_stride = V_HEADS,
                          .decay_stride = decays,
                          .out_stride = V_HEADS * VALUES,
                          .key_step = KEYS,
                          .value_step = VALUES,
                          .keys = KEYS,
                          .values = VALUES,
                          .heads = V_HEADS,
                          .share = SHARE,
                          .rows = end - begin,
                          .interleaved = interleaved,
                          .without = kind == MAMBA,
                          .channels = kind == BY_CHANNEL};
    return gpu()->delta(&d, NULL);
}

START_TEST(delta_has_the_bits)
{
    test_seed(72);
    test_fill(m.k, ARRAY_LEN(m.k));
    test_fill(m.q, ARRAY_LEN(m.q));
    test_fill(m.v, ARRAY_LEN(m.v));
    test_fill(m.skip, ARRAY_LEN(m.skip));
    for (uint32_t i = 0; i < ARRAY_LEN(m.rate); i++)
        m.rate[i] = 0.5f + 0.5f * test_uniform();
    for (uint32_t i = 0; i < ARRAY_LEN(m.decay); i++)
        m.decay[i] = 0.5f + 0.5f * test_uniform();
    for (int i = 0; i < 4 * KINDS; i++) {
        bool interleaved = i % 2, two = i / 2 % 2;
        enum kind kind = (enum kind)(i / 4);
        delta_on_cpu(interleaved, kind);
        memset(m.state, 0xff, sizeof m.state);
        memset(m.out, 0xff, sizeof m.out);
        fibres_seed((uint32_t)i);
        check_launch(delta_on_gpu(interleaved, kind, 0, two ? 1 : STEPS));
        if (two)
            check_launch(delta_on_gpu(interleaved, kind, 1, STEPS));
        check_bits(m.out, m.expected, ARRAY_LEN(m.out), "outputs, case %d", i);
        check_bits(m.state, m.expected_state, ARRAY_LEN(m.state), "state, case %d", i);
    }
}
END_TEST

/* A head of 256, and sizes that are no multiple of a block of threads; the state before and after,
 * the inputs and the outputs begin at any float, and nothing around the results is written. */
static void check_apart(uint32_t keys, uint32_t values, uint32_t shift)
{
    enum { HEADS = 2, ROWS = 2, AROUND = 8 };
    size_t size = (size_t)HEADS * keys * values, in = (size_t)ROWS * HEADS * keys,
           outputs = (size_t)ROWS * HEADS * values;
    size_t lengths[] = {in, in, outputs, size, size, outputs}, at = 0;
    float *part[ARRAY_LEN(lengths)];
    for (size_t i = 0; i < ARRAY_LEN(lengths); i++)
        at += lengths[i] + 2 * AROUND;
    float *all = test_alloc(at * sizeof *all), *want = test_alloc((size + outputs) * sizeof *want);
    test_fill(all, at);
    at = 0;
    for (size_t i = 0; i < ARRAY_LEN(lengths); i++) {
        part[i] = all + at + (shift + i) % AROUND;
        at += lengths[i] + 2 * AROUND;
    }
    float beta[ROWS * HEADS] = {0.9f, 0.1f, 0.5f, 0.7f},
                      decay[ROWS * HEADS] = {0.3f, 1, 0.99f, 0.5f};
    float *before = part[3], *after = part[4], *out = part[5], *state = want, *sums = want + size;
    memcpy(state, before, size * sizeof *state);
    for (uint32_t i = 0; i < ROWS * HEADS; i++) {
        float *s = state + (size_t)(i % HEADS) * keys * values;
        struct kernel_delta d = {.k = part[0] + (size_t)i * keys,
                                 .q = part[1] + (size_t)i * keys,
                                 .v = part[2] + (size_t)i * values,
                                 .rate = beta[i],
                                 .decay = decay + i,
                                 .keys = keys,
                                 .values = values,
                                 .state = s,
                                 .next = s,
                                 .out = sums + (size_t)i * values};
        cpu()->delta(&d);
    }
    float *unchanged = test_alloc(at * sizeof *all);
    memcpy(unchanged, all, at * sizeof *all);
    memcpy(unchanged + (after - all), state, size * sizeof *state);
    memcpy(unchanged + (out - all), sums, outputs * sizeof *sums);
    struct gpu_delta d = {.k = part[0],
                          .q = part[1],
                          .v = part[2],
                          .rate = beta,
                          .decay = decay,
                          .before = before,
                          .after = after,
                          .out = out,
                          .k_stride = HEADS * keys,
                          .q_stride = HEADS * keys,
                          .v_stride = HEADS * values,
                          .rate_stride = HEADS,
                          .decay_stride = HEADS,
                          .out_stride = HEADS * values,
                          .key_step = keys,
                          .value_step = values,
                          .keys = keys,
                          .values = values,
                          .heads = HEADS,
                          .share = 1,
                          .rows = ROWS};
    fibres_seed(shift);
    check_launch(gpu()->delta(&d, NULL));
    check_bits(all, unchanged, at, "%u x %u, %u floats apart: a result or what is around it", keys,
               values, shift);
    free(all);
    free(want);
    free(unchanged);
}

/* q, k and v of a head are next to each other; rates and decays are the same for all rows. */
START_TEST(heads_apart)
{
    enum { HEADS = 3, SIZE = 20, WHOLE = 3 * SIZE, ROW = HEADS * WHOLE, ROWS = 4 };
    static float x[ROWS * ROW], state[HEADS * SIZE * SIZE], want_state[HEADS * SIZE * SIZE],
        out[ROWS * HEADS * SIZE], want[ROWS * HEADS * SIZE];
    const float rate[HEADS] = {1, 1, 1}, decay[HEADS] = {0.25f, 0.9f, 0.999f};
    test_seed(76);
    test_fill(x, ARRAY_LEN(x));
    for (uint32_t i = 0; i < ROWS * HEADS; i++) {
        const float *of_head = x + (size_t)i * WHOLE;
        float *s = want_state + (size_t)(i % HEADS) * SIZE * SIZE;
        struct kernel_delta d = {.q = of_head,
                                 .k = of_head + SIZE,
                                 .v = of_head + 2 * SIZE,
                                 .rate = 1,
                                 .decay = decay + i % HEADS,
                                 .keys = SIZE,
                                 .values = SIZE,
                                 .state = s,
                                 .next = s,
                                 .out = want + (size_t)i * SIZE,
                                 .without = true};
        cpu()->delta(&d);
    }
    struct gpu_delta d = {.q = x,
                          .k = x + SIZE,
                          .v = x + 2 * SIZE,
                          .rate = rate,
                          .decay = decay,
                          .after = state,
                          .out = out,
                          .k_stride = ROW,
                          .q_stride = ROW,
                          .v_stride = ROW,
                          .out_stride = HEADS * SIZE,
                          .key_step = WHOLE,
                          .value_step = WHOLE,
                          .keys = SIZE,
                          .values = SIZE,
                          .heads = HEADS,
                          .share = 1,
                          .rows = ROWS,
                          .without = true};
    fibres_seed(3);
    check_launch(gpu()->delta(&d, NULL));
    check_bits(out, want, ARRAY_LEN(out), "outputs");
    check_bits(state, want_state, ARRAY_LEN(state), "state");
}
END_TEST

START_TEST(delta_at_any_place)
{
    test_seed(74);
    for (uint32_t shift = 0; shift < 4; shift++) {
        check_apart(24, 140, shift);
        check_apart(3, 7, shift);
    }
    check_apart(256, 256, 1);
}
END_TEST

START_TEST(gates_have_the_bits)
{
    enum { ROWS = 2, COUNT = 70, JOINED = 5 };
    float a[ROWS * COUNT], b[ROWS * COUNT], bias[COUNT], a_log[COUNT];
    float beta[ROWS * COUNT], decay[ROWS * COUNT], expected[3][ROWS * COUNT];
    test_seed(73);
    test_fill(bias, COUNT);
    test_fill(a_log, COUNT);
    for (uint32_t i = 0; i < ROWS * COUNT; i++) {
        a[i] = test_uniform() * 30; /* above 20, too */
        b[i] = test_uniform() * 100;
        float biased = a[i] + bias[i % COUNT];
        double softplus = biased > 20 ? (double)biased : exact_log(1 + exact_exp((double)biased));
        expected[0][i] = (float)(1 / (1 + exact_exp(-(double)b[i])));
        expected[1][i] = (float)exact_exp((double)a_log[i % COUNT] * softplus);
        expected[2][i] = (float)(biased < -20 ? exact_exp((double)biased) : softplus);
    }
    struct gpu_delta_gates g = {.b = b,
                                .a = a,
                                .bias = bias,
                                .a_log = a_log,
                                .rate = beta,
                                .decay = decay,
                                .b_stride = COUNT,
                                .a_stride = COUNT,
                                .heads = COUNT,
                                .rows = ROWS};
    check_launch(gpu()->delta_gates(&g, NULL));
    check_bits(beta, expected[0], ROWS * COUNT, "beta");
    check_bits(decay, expected[1], ROWS * COUNT, "decay");
    g.b = NULL; /* the step is the rate */
    check_launch(gpu()->delta_gates(&g, NULL));
    check_bits(beta, expected[2], ROWS * COUNT, "step");
    check_bits(decay, expected[1], ROWS * COUNT, "decay of a step");
    /* one matrix has both, in groups of a k head */
    float joined[ROWS * COUNT * 2];
    for (uint32_t order = 0; order < 2; order++) {
        for (uint32_t i = 0; i < ROWS * COUNT; i++) {
            uint32_t h = i % COUNT, k_heads = COUNT / JOINED;
            uint32_t group = order ? h % k_heads : h / JOINED, n = order ? h / k_heads : h % JOINED;
            float *of_group = joined + (size_t)i / COUNT * 2 * COUNT + group * 2 * JOINED;
            of_group[n] = b[i];
            of_group[JOINED + n] = a[i];
        }
        g.b = joined;
        g.a = joined + JOINED;
        g.a_stride = g.b_stride = 2 * COUNT;
        g.share = JOINED;
        g.interleaved = order != 0;
        check_launch(gpu()->delta_gates(&g, NULL));
        check_bits(beta, expected[0], ROWS * COUNT, "joined beta");
        check_bits(decay, expected[1], ROWS * COUNT, "joined decay");
    }
    g.share = 4;
    ck_assert_int_eq(gpu()->delta_gates(&g, NULL), GPU_UNSUPPORTED);
}
END_TEST

/* A decay for each key channel, free or with a bound; the sign of a_log does not matter. */
START_TEST(channels_have_the_bits)
{
    enum { ROWS = 2, HEADS = 3, CHANNEL_KEYS = 50, COUNT = HEADS * CHANNEL_KEYS };
    static float a[ROWS * COUNT], b[ROWS * HEADS], bias[COUNT], decay[ROWS * COUNT],
        expected[ROWS * COUNT], rate[ROWS * HEADS], rates[ROWS * HEADS];
    float a_log[HEADS] = {-0.5f, 1.25f, -3};
    test_seed(75);
    test_fill(bias, COUNT);
    for (uint32_t i = 0; i < ROWS * HEADS; i++) {
        b[i] = test_uniform() * 50;
        rates[i] = (float)(1 / (1 + exact_exp(-(double)b[i])));
    }
    for (uint32_t i = 0; i < ROWS * COUNT; i++)
        a[i] = test_uniform() * 30; /* above 20, too */
    for (int bounded = 0; bounded < 2; bounded++) {
        for (uint32_t i = 0; i < ROWS * COUNT; i++) {
            double size = fabs((double)a_log[i % COUNT / CHANNEL_KEYS]);
            double x = (double)(a[i] + bias[i % COUNT]);
            double log_decay = bounded ? -5 * (1 / (1 + exact_exp(-(size * x))))
                                       : -size * (x > 20 ? x : exact_log(1 + exact_exp(x)));
            expected[i] = (float)exact_exp(log_decay);
        }
        struct gpu_delta_gates g = {.b = b,
                                    .a = a,
                                    .bias = bias,
                                    .a_log = a_log,
                                    .rate = rate,
                                    .decay = decay,
                                    .b_stride = HEADS,
                                    .a_stride = COUNT,
                                    .heads = HEADS,
                                    .rows = ROWS,
                                    .keys = CHANNEL_KEYS,
                                    .bound = bounded ? -5 : 0};
        check_launch(gpu()->delta_gates(&g, NULL));
        check_bits(decay, expected, ROWS * COUNT, "decays, bounded: %d", bounded);
        check_bits(rate, rates, ROWS * HEADS, "rates, bounded: %d", bounded);
        g.share = 1;
        ck_assert_int_eq(gpu()->delta_gates(&g, NULL), GPU_UNSUPPORTED);
    }
}
END_TEST

/* Decays of elements, in one pass and in two; the result takes the place of v. */
START_TEST(scan_has_the_bits)
{
    enum { SCAN_KEYS = 16, COLUMNS = 140, HEADS = 3, ALL = HEADS * COLUMNS, SCAN_ROWS = 4 };
    enum { ROW = 2 * SCAN_KEYS + ALL, STATE = ALL * SCAN_KEYS };
    static float in[SCAN_ROWS * ROW], v[SCAN_ROWS * ALL], y[SCAN_ROWS * ALL],
        expected[SCAN_ROWS * ALL], bias[ALL], skip[ALL], rates[STATE], state[STATE], want[STATE];
    test_seed(76);
    test_fill(in, ARRAY_LEN(in));
    test_fill(v, ARRAY_LEN(v));
    test_fill(bias, ALL);
    test_fill(skip, ALL);
    test_fill(rates, STATE);
    for (uint32_t i = 0; i < STATE; i++)
        rates[i] = -2 * fabsf(rates[i]);
    for (int skips = 0; skips < 2; skips++) {
        memset(want, 0, sizeof want);
        for (uint32_t u = 0; u < SCAN_ROWS * HEADS; u++) {
            uint32_t row = u / HEADS, at = u % HEADS * COLUMNS;
            float *s = want + (size_t)at * SCAN_KEYS, *x = in + row * ROW;
            struct kernel_scan scan = {.k = x,
                                       .q = x + SCAN_KEYS,
                                       .v = v + row * ALL + at,
                                       .step = x + 2 * SCAN_KEYS + at,
                                       .bias = bias + at,
                                       .skip = skips ? skip + at : NULL,
                                       .rate = rates + (size_t)at * SCAN_KEYS,
                                       .keys = SCAN_KEYS,
                                       .values = COLUMNS,
                                       .state = s,
                                       .next = s,
                                       .out = expected + row * ALL + at};
            cpu()->scan(&scan);
        }
        for (uint32_t first = 1; first <= SCAN_ROWS; first++) {
            struct gpu_scan g = {.k = in,
                                 .q = in + SCAN_KEYS,
                                 .v = y,
                                 .step = in + 2 * SCAN_KEYS,
                                 .bias = bias,
                                 .skip = skips ? skip : NULL,
                                 .rates = rates,
                                 .after = state,
                                 .out = y,
                                 .stride = ROW,
                                 .v_stride = ALL,
                                 .out_stride = ALL,
                                 .keys = SCAN_KEYS,
                                 .values = COLUMNS,
                                 .heads = HEADS,
                                 .rows = first};
            memcpy(y, v, sizeof y);
            memset(state, 0xff, sizeof state);
            fibres_seed(first);
            check_launch(gpu()->scan(&g, NULL));
            g.before = state;
            g.k += first * ROW;
            g.q += first * ROW;
            g.step += first * ROW;
            g.out = y + first * ALL;
            g.v = g.out;
            g.rows = SCAN_ROWS - first;
            check_launch(gpu()->scan(&g, NULL));
            check_bits(y, expected, ARRAY_LEN(y), "outputs, first pass of %u rows", first);
            check_bits(state, want, ARRAY_LEN(state), "state, first pass of %u rows", first);
        }
    }
}
END_TEST

START_TEST(arguments_out_of_range)
{
    struct gpu_conv c = {.taps = 0, .n = 4, .rows = 1};
    struct gpu_delta d = {.keys = 64, .values = 64, .heads = 4, .share = 2, .rows = 1};
    struct gpu_delta_gates g = {.heads = 4, .rows = GPU_ROWS_MAX + 1};
    ck_assert_int_eq(gpu()->conv(&c, NULL), GPU_UNSUPPORTED);
    c = (struct gpu_conv){.taps = 4, .n = 4, .rows = GPU_ROWS_MAX + 1};
    ck_assert_int_eq(gpu()->conv(&c, NULL), GPU_UNSUPPORTED);
    c.rows = 0;
    ck_assert_int_eq(gpu()->conv(&c, NULL), 0);
    ck_assert_int_eq(gpu()->delta_gates(&g, NULL), GPU_UNSUPPORTED);
    d.share = 0;
    ck_assert_int_eq(gpu()->delta(&d, NULL), GPU_UNSUPPORTED);
    d.share = 3;
    ck_assert_int_eq(gpu()->delta(&d, NULL), GPU_UNSUPPORTED);
    d.share = 2;
    d.keys = 0x80000000u; /* twice that is 0 in 32 bits */
    ck_assert_int_eq(gpu()->delta(&d, NULL), GPU_UNSUPPORTED);
    d.keys = 64;
    d.heads = 2 * (GPU_ROWS_MAX + 1);
    ck_assert_int_eq(gpu()->delta(&d, NULL), GPU_UNSUPPORTED);
    struct gpu_scan s = {.keys = 0x80000000u, .values = 64, .heads = 4, .rows = 1};
    ck_assert_int_eq(gpu()->scan(&s, NULL), GPU_UNSUPPORTED);
    s.keys = 16;
    s.heads = GPU_ROWS_MAX + 1;
    ck_assert_int_eq(gpu()->scan(&s, NULL), GPU_UNSUPPORTED);
}
END_TEST

GPU_TESTS_MAIN("cuda_recurrent", convolutions_have_the_bits, delta_has_the_bits, heads_apart,
               delta_at_any_place, gates_have_the_bits, channels_have_the_bits, scan_has_the_bits,
               arguments_out_of_range)
