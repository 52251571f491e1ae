/* SPDX-License-Identifier: Apache-2.0 */
/* The host as a device: whatever operation hides a value that is not finite, the value has been
 * noted before, or it is in the result. */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "lib/device/host/host.h"
#include "lib/device/pointers.h"

enum { K = 32, N = 32 };

static const float values[] = {NAN, INFINITY, -INFINITY};
static struct device *device;
static _Alignas(64) float x[K];

static void set_up(void)
{
    struct error error;
    device = host_device(kernel_ops_select("auto"), 1, 0, &error);
    ck_assert_ptr_nonnull(device);
    for (int i = 0; i < K; i++)
        x[i] = 1;
}

static void tear_down(void)
{
    device->ops->destroy(device);
}

/* A weight of each matrix is small, but one may be `bad`. */
static struct device_matrix matrix_of(float w[K * N], float bad)
{
    for (int i = 0; i < K * N; i++)
        w[i] = 0.01f;
    w[K + 3] = bad;
    return (struct device_matrix){.data = device_address(w),
                                  .row_bytes = K * sizeof(float),
                                  .k = K,
                                  .n = N,
                                  .type = TENSOR_F32};
}

static void *workspace(struct device_limits limits)
{
    size_t bytes = align_up(device->ops->workspace(device, &limits) + 64, 64);
    void *memory = aligned_alloc(64, bytes);
    ck_assert_ptr_nonnull(memory);
    device->ops->use_workspace(device, &limits, device_address(memory));
    return memory;
}

static void check_seen(const float *y, uint32_t n, const char *what, int kind, float bad)
{
    ck_assert_msg(device->not_finite || !host_finite(y, n), "%s %d: %g is lost", what, kind,
                  (double)bad);
    device->not_finite = 0;
}

static void activate_network(enum ffn_activation activation, struct ffn_limit limit, float gate,
                             float up, float *y)
{
    static _Alignas(64) float w[2][K * N], u[N];
    struct op_gate_up op = {.rows = 1,
                            .activation = activation,
                            .limit = limit,
                            .x = device_rows_of_floats(device_address(x), K),
                            .gate = matrix_of(w[0], gate),
                            .up = matrix_of(w[1], up),
                            .y = device_rows_of_floats(device_address(y), N),
                            .up_y = device_address(u)};
    device->ops->gate_up(device, &op);
}

static void activate_expert(enum ffn_activation activation, struct ffn_limit limit, float gate,
                            float up, float *y)
{
    static _Alignas(64) float w[2][K * N], u[N];
    const uint32_t row = 0;
    struct device_job job = {.rows = 1};
    void *memory = workspace((struct device_limits){
        .rows = 1, .experts = 1, .top_k = 1, .expert_width = K, .gather_forms = 1u << FORM_F32});
    job.matrix[EXPERT_GATE] = matrix_of(w[0], gate);
    job.matrix[EXPERT_UP] = matrix_of(w[1], up);
    struct op_expert_gate_up op = {.rows = 1,
                                   .n = N,
                                   .activation = activation,
                                   .limit = limit,
                                   .x = device_rows_of_floats(device_address(x), K),
                                   .jobs = 1,
                                   .job = &job,
                                   .pairs = 1,
                                   .pair_row = &row,
                                   .inner_rows = 1,
                                   .gate = device_address(y),
                                   .up = device_address(u)};
    device->ops->expert_gate_up(device, &op);
    free(memory);
}

static void check_activation(enum ffn_activation activation, struct ffn_limit limit, float value)
{
    float y[N];
    activate_network(activation, limit, value, 0.01f, y);
    check_seen(y, N, "gate", (int)activation, value);
    activate_network(activation, limit, 0.01f, value, y);
    check_seen(y, N, "up", (int)activation, value);
    activate_expert(activation, limit, value, 0.01f, y);
    check_seen(y, N, "gate of an expert", (int)activation, value);
    activate_expert(activation, limit, 0.01f, value, y);
    check_seen(y, N, "up of an expert", (int)activation, value);
}

static const struct ffn_limit limits[] = {{0, false, 4, 25}, {7, false, 4, 25}, {7, true, 4, 25}};

/* Limits, and the zeros of ReLU. */
START_TEST(activations)
{
    for (int a = 0; a < ACTIVATION__COUNT; a++)
        for (size_t i = 0; i < ARRAY_LEN(values) * ARRAY_LEN(limits); i++)
            check_activation((enum ffn_activation)a, limits[i % ARRAY_LEN(limits)],
                             values[i / ARRAY_LEN(limits)]);
}
END_TEST

START_TEST(finite_values_are_not_noted)
{
    float y[N];
    for (int a = 0; a < ACTIVATION__COUNT; a++)
        for (size_t i = 0; i < ARRAY_LEN(limits); i++) {
            activate_network((enum ffn_activation)a, limits[i], 90, -90, y);
            activate_expert((enum ffn_activation)a, limits[i], 90, -90, y);
            ck_assert(!device->not_finite && host_finite(y, N));
        }
}
END_TEST

/* One head; the matrix `which` of q, k and v has the value. */
static void attend(int which, float bad, float *y)
{
    static _Alignas(64) float w[3][K * N], q[N], k[N], v[N];
    static _Alignas(64) uint8_t keys[1 << 16], vals[1 << 16];
    struct device_row row = {.position = 0};
    struct device_sequence sequence = {
        .keys = device_address(keys), .values = device_address(vals), .kv_type = KV_TYPE_F16};
    void *memory = workspace((struct device_limits){.rows = 1, .attention_floats = N + 2});
    struct op_attention op = {.rows = 1,
                              .sequences = 1,
                              .row = &row,
                              .sequence = &sequence,
                              .shape = {.heads = 1, .kv_heads = 1, .key_size = N, .value_size = N},
                              .heads = {.scale = {.base = 0.25f}, .clamp = 8},
                              .x = device_rows_of_floats(device_address(x), K),
                              .w_q = matrix_of(w[0], which == 0 ? bad : 0.01f),
                              .w_k = matrix_of(w[1], which == 1 ? bad : 0.01f),
                              .w_v = matrix_of(w[2], which == 2 ? bad : 0.01f),
                              .q = device_address(q),
                              .k = device_address(k),
                              .v = device_address(v),
                              .mix = device_rows_of_floats(device_address(y), N)};
    device->ops->attention(device, &op);
    free(memory);
}

START_TEST(clamped_heads)
{
    float y[N];
    for (int which = 0; which < 3; which++)
        for (size_t i = 0; i < ARRAY_LEN(values); i++) {
            attend(which, values[i], y);
            check_seen(y, N, "q, k or v", which, values[i]);
        }
}
END_TEST

enum { ROPE = 16, RANK = 32, VALUE = 32 };

/* One head, whose matrix of keys reads blocks of integers. */
static void attend_latent(float bad, float *y)
{
    static _Alignas(64) float w_q[K * (N + ROPE)], v_b[RANK * VALUE], angles[ROPE];
    static _Alignas(64) uint8_t k_b[34 * RANK], keys[1 << 16]; /* zeros */
    const struct device_latent shape = {.heads = 1,
                                        .nope = N,
                                        .rope = ROPE,
                                        .value = VALUE,
                                        .rank = RANK,
                                        .key = RANK + ROPE,
                                        .scale = {.base = 0.25f}};
    struct device_row row = {.position = 0};
    struct device_sequence sequence = {.keys = device_address(keys), .kv_type = KV_TYPE_F16};
    void *memory = workspace((struct device_limits){.rows = 1,
                                                    .latent = shape,
                                                    .nope_forms = 1u << kernel_form_of(TENSOR_Q8_0),
                                                    .latent_forms = 1u << FORM_F32});
    struct device_matrix q = matrix_of(w_q, bad);
    q.n = N + ROPE;
    struct op_latent_attention op = {.rows = 1,
                                     .sequences = 1,
                                     .row = &row,
                                     .sequence = &sequence,
                                     .shape = shape,
                                     .x = device_rows_of_floats(device_address(x), K),
                                     .q = q,
                                     .k_b = {.data = device_address(k_b),
                                             .row_bytes = 34,
                                             .k = N,
                                             .n = RANK,
                                             .type = TENSOR_Q8_0},
                                     .v_b = {.data = device_address(v_b),
                                             .row_bytes = RANK * sizeof(float),
                                             .k = RANK,
                                             .n = VALUE,
                                             .type = TENSOR_F32},
                                     .angle_stride = ROPE,
                                     .angles = device_address(angles),
                                     .mix = device_rows_of_floats(device_address(y), VALUE)};
    device->ops->latent_attention(device, &op);
    free(memory);
}

START_TEST(queries_of_latents)
{
    float y[VALUE];
    for (size_t i = 0; i < ARRAY_LEN(values); i++) {
        attend_latent(values[i], y);
        check_seen(y, VALUE, "query", 0, values[i]);
    }
}
END_TEST

/* Sigmoids of an infinity are 0 or 1, and capped logits the cap. */
START_TEST(gates_and_caps)
{
    static _Alignas(64) float w[K * N], y[N], weight[1], gates[2 * N];
    for (size_t i = 0; i < ARRAY_LEN(values); i++) {
        struct op_row_gates row = {.rows = 1,
                                   .x = device_rows_of_floats(device_address(x), K),
                                   .w = matrix_of(w, 0.01f),
                                   .y = device_rows_of_floats(device_address(y), N),
                                   .weight = device_address(weight)};
        row.w.n = 1;
        w[3] = values[i];
        device->ops->row_gates(device, &row);
        check_seen(weight, 1, "gate of a row", 0, values[i]);
        gates[N + 3] = values[i];
        device->ops->gate_heads(
            device, &(struct op_gate_heads){.rows = 1,
                                            .shape = {.heads = 1,
                                                      .kv_heads = 1,
                                                      .key_size = N,
                                                      .value_size = N,
                                                      .gate = HEAD_GATE_SIGMOID},
                                            .gates = device_address(gates),
                                            .mix = device_rows_of_floats(device_address(y), N)});
        check_seen(y, N, "gate of a head", 0, values[i]);
        device->ops->logits(device,
                            &(struct op_logits){.rows = 1,
                                                .x = device_rows_of_floats(device_address(x), K),
                                                .w = matrix_of(w, values[i]),
                                                .cap = 30,
                                                .y = device_address(y)});
        check_seen(y, N, "logit", 0, values[i]);
        memset(y, 0, sizeof y);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("host_finite");
    TCase *t = tcase_create("host_finite");
    tcase_add_checked_fixture(t, set_up, tear_down);
    tcase_add_test(t, activations);
    tcase_add_test(t, finite_values_are_not_noted);
    tcase_add_test(t, clamped_heads);
    tcase_add_test(t, queries_of_latents);
    tcase_add_test(t, gates_and_caps);
    suite_add_tcase(suite, t);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
