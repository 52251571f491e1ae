/* SPDX-License-Identifier: Apache-2.0 */
/* Gates of heads in every form and with every function, against the definition in double; one row
 * and several, one thread and several: the same bits. And limits of networks, likewise. */
#include <check.h>
#include <math.h>
#include <string.h>

#include "lib/base/random.h"
#include "lib/device/host/host.h"
#include "lib/device/pointers.h"

enum { ROWS = 5, HEADS = 3, KEY = 80, GATES = 2 * HEADS * KEY };

static float gates[ROWS * GATES], results[ROWS * HEADS * KEY];
static _Alignas(64) float mix[ROWS * HEADS * KEY];

static const struct layer_attention forms[] = {
    {.heads = HEADS, .kv_heads = 1, .key_size = KEY, .value_size = KEY, .gate_form = GATE_IN_Q},
    {.heads = HEADS, .kv_heads = 1, .key_size = KEY, .value_size = 64, .gate_form = GATE_OF_HEAD},
    {.heads = HEADS, .kv_heads = 1, .key_size = 8, .value_size = 72, .gate_form = GATE_OF_ELEMENT},
};

static double gate_of(const struct layer_attention *a, uint32_t row, uint32_t head, uint32_t i)
{
    switch ((enum gate_form)a->gate_form) {
    case GATE_IN_Q: return (double)gates[(row * HEADS + head) * 2 * a->key_size + a->key_size + i];
    case GATE_OF_HEAD: return (double)gates[row * HEADS + head];
    default: return (double)gates[(row * HEADS + head) * a->value_size + i];
    }
}

static double factor_of(enum head_gate function, double gate)
{
    return function == HEAD_GATE_SIGMOID ? 1 / (1 + exp(-gate)) : log1p(exp(gate));
}

/* `rows` rows from `first` on, in mix. */
static void run(struct device *device, struct layer_attention a, uint32_t first, uint32_t rows)
{
    uint32_t floats = model_gates_of(&a, a.value_size).floats, size = HEADS * a.value_size;
    const struct op_gate_heads op = {
        .rows = rows,
        .shape = a,
        .gates = device_address(gates + (size_t)first * floats),
        .mix = device_rows_of_floats(device_address(mix + (size_t)first * size), size)};
    memcpy(mix + (size_t)first * size, results + (size_t)first * size,
           (size_t)rows * size * sizeof *mix);
    device->ops->gate_heads(device, &op);
}

static void check_form(struct device *device, const struct layer_attention *a)
{
    static float together[ROWS * HEADS * KEY];
    uint32_t size = HEADS * a->value_size;
    run(device, *a, 0, ROWS);
    for (uint32_t i = 0; i < ROWS * size; i++) {
        uint32_t head = i % size / a->value_size, at = i % a->value_size;
        double want =
            (double)results[i] * factor_of((enum head_gate)a->gate, gate_of(a, i / size, head, at));
        ck_assert_msg(fabs((double)mix[i] - want) <= 1e-6 * fabs(want) + 1e-30,
                      "form %u, gate %u, element %u: %g, not %g", a->gate_form, a->gate, i,
                      (double)mix[i], want);
    }
    memcpy(together, mix, sizeof together);
    for (uint32_t row = 0; row < ROWS; row++)
        run(device, *a, row, 1);
    ck_assert_mem_eq(together, mix, (size_t)ROWS * size * sizeof *mix);
}

START_TEST(forms_and_functions)
{
    struct error error;
    struct random random;
    struct device *device = host_device(kernel_ops_select("auto"), (uint32_t)_i, 0, &error);
    ck_assert_ptr_nonnull(device);
    random_seed(&random, 7, 1);
    for (size_t i = 0; i < ROWS * GATES; i++)
        gates[i] = (float)(random_unit(&random) - 0.5) * (i % 3 == 0 ? 60.0f : 8.0f);
    for (size_t i = 0; i < ROWS * HEADS * KEY; i++)
        results[i] = (float)(random_unit(&random) - 0.5);
    for (size_t f = 0; f < ARRAY_LEN(forms); f++)
        for (uint32_t gate = HEAD_GATE_SIGMOID; gate < HEAD_GATE__COUNT; gate++) {
            struct layer_attention a = forms[f];
            a.gate = gate;
            check_form(device, &a);
        }
    ck_assert(!device->not_finite);
    device->ops->destroy(device);
}
END_TEST

/* A softplus of -infinity is 0, but the value is noted. */
START_TEST(infinite_gates_are_noted)
{
    struct error error;
    struct device *device = host_device(kernel_ops_select("auto"), 1, 0, &error);
    ck_assert_ptr_nonnull(device);
    for (uint32_t gate = HEAD_GATE_SIGMOID; gate < HEAD_GATE__COUNT; gate++) {
        struct layer_attention a = forms[1];
        a.gate = gate;
        memset(gates, 0, sizeof gates);
        gates[1] = -INFINITY;
        run(device, a, 0, 1);
        ck_assert(device->not_finite);
        device->not_finite = 0;
    }
    device->ops->destroy(device);
}
END_TEST

static double silu(double x)
{
    return x / (1 + exp(-x));
}

START_TEST(limits_before_and_after_the_activation)
{
    enum { N = 700 };
    static float gate[N], up[N], y[N], plain[N];
    const struct kernel_ops *kernels = kernel_ops_select("auto");
    const double limit = 2.5;
    struct random random;
    random_seed(&random, 7, 2);
    for (int i = 0; i < N; i++) {
        gate[i] = (float)(random_unit(&random) - 0.5) * 20;
        up[i] = (float)(random_unit(&random) - 0.5) * 20;
    }
    for (int after = 0; after < 2; after++) {
        host_activate(kernels, ACTIVATION_SILU,
                      (struct ffn_limit){.value = 2.5f, .result = after != 0}, gate, up, N, y);
        for (int i = 0; i < N; i++) {
            double g = (double)gate[i], u = fmax(fmin((double)up[i], limit), -limit);
            double want = (after ? fmin(silu(g), limit) : silu(fmin(g, limit))) * u;
            ck_assert_msg(fabs((double)y[i] - want) <= 1e-6 * fabs(want) + 1e-30,
                          "%d, element %d: %g, not %g", after, i, (double)y[i], want);
        }
        /* limits that nothing reaches have the bits of none */
        host_activate(kernels, ACTIVATION_SILU,
                      (struct ffn_limit){.value = 100, .result = after != 0}, gate, up, N, y);
        host_activate(kernels, ACTIVATION_SILU, (struct ffn_limit){0}, gate, up, N, plain);
        ck_assert_mem_eq(y, plain, sizeof y);
    }
}
END_TEST

/* The caps of SiTU; without one of up; and in place. */
START_TEST(caps_of_both)
{
    enum { N = 700 };
    static float gate[N], up[N], y[N];
    const struct kernel_ops *kernels = kernel_ops_select("auto");
    struct random random;
    random_seed(&random, 8, 2);
    for (int capped = 0; capped < 2; capped++) {
        const struct ffn_limit caps = {.cap_gate = 4, .cap_up = capped ? 2.5f : 0};
        for (int i = 0; i < N; i++) {
            y[i] = gate[i] = (float)(random_unit(&random) - 0.5) * 20;
            up[i] = (float)(random_unit(&random) - 0.5) * 20;
        }
        host_activate(kernels, ACTIVATION_SITU, caps, y, up, N, y);
        for (int i = 0; i < N; i++) {
            double g = (double)gate[i], u = (double)up[i];
            double want = 4 * tanh(g / 4) / (1 + exp(-g)) * (capped ? 2.5 * tanh(u / 2.5) : u);
            ck_assert_msg(fabs((double)y[i] - want) <= 4e-6 * (1 + fabs(want)),
                          "%d, element %d: %g, not %g", capped, i, (double)y[i], want);
        }
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("host_gates");
    TCase *t = tcase_create("host_gates");
    tcase_add_loop_test(t, forms_and_functions, 1, 4);
    tcase_add_test(t, infinite_gates_are_noted);
    tcase_add_test(t, limits_before_and_after_the_activation);
    tcase_add_test(t, caps_of_both);
    suite_add_tcase(suite, t);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
