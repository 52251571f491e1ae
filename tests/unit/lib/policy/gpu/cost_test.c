/* SPDX-License-Identifier: Apache-2.0 */
/* Time of a token for divisions of the layers: cases computed by hand, and what more slots, layers
 * and rates do. */
#include <check.h>

#include "lib/policy/gpu/cost.h"

#define LAYERS  4
#define EXPERTS 8

/* Of each layer: 100 bytes of Q8_0 and 20 of another type, 8 experts of 10 bytes of Q4_K, of which
 * 2 are used; 40 bytes of keys and values. With s slots for a layer the share s / 8 has a slot. */
static struct cost_layer layer[LAYERS];
static double hits[EXPERTS + 1];
static struct cost_model model;
/* Q8_0 at 100 bytes per second, Q4_K at 10, F16 has no kernels. */
static const struct cost_gpu gpu = {
    .product = {0, 100, 10, 50}, .pinned = 5, .pageable = 4, .wait_s = 0.25};
static const struct cost_cpu cpu = {.dense = 20, .experts = 4};

static void make_model(void)
{
    for (int l = 0; l < LAYERS; l++)
        layer[l] = (struct cost_layer){
            .dense.of = {0, 100, 0, 0, 20}, .expert.of = {0, 0, 10, 0, 0}, .kv = 40};
    for (int s = 0; s <= EXPERTS; s++)
        hits[s] = (double)s / EXPERTS;
    model = (struct cost_model){.layers = LAYERS,
                                .experts = EXPERTS,
                                .top_k = 2,
                                .layer = layer,
                                .output.of = {0, 200},
                                .hits = hits,
                                .policy = GPU_CENTRIC};
}

static struct cost_part on_gpu(uint32_t first, uint32_t end, uint64_t slots)
{
    return (struct cost_part){
        .gpu = &gpu, .first = first, .end = end, .kv_layers = end - first, .slots = slots};
}

static void check_cost(struct cost_part p, double weights, double experts, double kv, double waits)
{
    struct cost c = cost_of_part(&model, &cpu, &p);
    ck_assert_double_eq_tol(c.weights_s, weights, 1e-9);
    ck_assert_double_eq_tol(c.experts_s, experts, 1e-9);
    ck_assert_double_eq_tol(c.kv_s, kv, 1e-9);
    ck_assert_double_eq_tol(c.waits_s, waits, 1e-9);
    ck_assert_double_eq_tol(cost_sum(&c), weights + experts + kv + waits, 1e-9);
}

/* A dense layer: 100 / 100 + 20 / 10, as another type is that of the slowest; the output 200 /
 * 100. */
START_TEST(by_hand_on_a_gpu)
{
    check_cost(on_gpu(0, 2, 16), 6, 2 * 2 * 1, 0, 0.25 * 3);
    check_cost(on_gpu(2, 4, 16), 6 + 2, 4, 0, 0.25 * 3);
    /* half of the uses have a slot: 1 expert of each layer takes 10 / 5 to copy, and 1 to
     * compute */
    check_cost(on_gpu(0, 2, 8), 6, 2 * (2 + 1), 0, 0.25 * 3);
    /* of 3 slots for two layers a quarter of a layer's of 1 and of 2: 3 / 16 have one */
    check_cost(on_gpu(0, 2, 3), 6, 2 * (2 * 13 / 16.0 * 2 + 1), 0, 0.25 * 3);
    struct cost_part p = on_gpu(0, 2, 16);
    p.kv_layers = 1;
    check_cost(p, 6, 4, 40 / 4.0, 0.25 * 3);
    check_cost(on_gpu(1, 1, 0), 0, 0, 0, 0);
}
END_TEST

START_TEST(by_hand_on_the_cpu)
{
    check_cost((struct cost_part){.first = 0, .end = 2}, 240 / 20.0, 2 * 2 * 10 / 4.0, 0, 0);
    check_cost((struct cost_part){.first = 3, .end = 4}, (120 + 200) / 20.0, 5, 0, 0);
}
END_TEST

/* The CPU computes those without a slot meanwhile: 1 of them 2.5 s, against 1 s of the GPU; auto is
 * the faster one. */
START_TEST(by_policy)
{
    struct cost_cpu fast = {.dense = 20, .experts = 40};
    struct cost_part p = on_gpu(0, 2, 8);
    model.policy = GPU_COOPERATIVE;
    check_cost(p, 6, 2 * 2.5, 0, 0.75);
    ck_assert_double_eq_tol(cost_of_part(&model, &fast, &p).experts_s, 2 * 1, 1e-9);
    model.policy = GPU_POLICY__COUNT;
    check_cost(p, 6, 5, 0, 0.75);
    model.policy = GPU_PREFETCH;
    check_cost(p, 6, 6, 0, 0.75);
    struct cost_cpu slow = {.dense = 20, .experts = 0.1};
    model.policy = GPU_POLICY__COUNT;
    ck_assert_double_eq_tol(cost_of_part(&model, &slow, &p).experts_s, 6, 1e-9);
}
END_TEST

/* With everything there, tokens wait once. */
START_TEST(computes_alone)
{
    check_cost(on_gpu(0, 4, 32), 12 + 2, 8, 0, 0.25);
    struct cost_part p = on_gpu(0, 4, 31);
    ck_assert_double_eq_tol(cost_of_part(&model, &cpu, &p).waits_s, 0.25 * 5, 1e-9);
    p = on_gpu(0, 4, 32);
    p.kv_layers = 3;
    ck_assert_double_eq_tol(cost_of_part(&model, &cpu, &p).waits_s, 0.25 * 5, 1e-9);
}
END_TEST

/* Parts compute one after the other. */
START_TEST(parts_add_up)
{
    struct cost_part p[] = {on_gpu(0, 1, 8), on_gpu(1, 3, 4), {.first = 3, .end = 4}};
    double sum = 0;
    for (int i = 0; i < 3; i++) {
        struct cost c = cost_of_part(&model, &cpu, &p[i]);
        sum += cost_sum(&c);
    }
    ck_assert_double_eq_tol(cost_of_token(&model, &cpu, p, 3), sum, 1e-9);
}
END_TEST

/* A layer without experts has dense weights only, and no slots. */
START_TEST(layers_without_experts)
{
    layer[0].expert = (struct cost_bytes){{0}};
    check_cost(on_gpu(0, 1, 0), 3, 0, 0, 0.25 * 2);
    check_cost(on_gpu(0, 2, 8), 6, 2, 0, 0.25 * 3);
    ck_assert_uint_eq(cost_expert_layers(&model, 0, LAYERS), LAYERS - 1);
    ck_assert_double_eq_tol(cost_expert_on_gpu(&model, &gpu, 0, 2), 1, 1e-9);
    check_cost((struct cost_part){.first = 0, .end = 1}, 120 / 20.0, 0, 0, 0);
}
END_TEST

static double time_of(const struct cost_gpu *g, uint64_t slots, uint32_t kv_layers)
{
    struct cost_part p[] = {{.gpu = g, .end = 3, .kv_layers = kv_layers, .slots = slots},
                            {.first = 3, .end = 4}};
    return cost_of_token(&model, &cpu, p, 2);
}

/* More keys and values there and higher rates never take longer; nor do more slots, but where the
 * CPU computes a part of the experts at the same time. */
START_TEST(more_is_not_slower)
{
    for (int policy = 0; policy <= GPU_POLICY__COUNT; policy++) {
        model.policy = (enum gpu_policy)policy;
        for (uint64_t slots = 2; slots < 3 * EXPERTS; slots++) {
            struct cost_gpu faster = gpu;
            if (policy == GPU_CENTRIC || policy == GPU_PREFETCH)
                ck_assert_double_le(time_of(&gpu, slots + 1, 3), time_of(&gpu, slots, 3) + 1e-9);
            faster.pinned *= 2;
            ck_assert_double_le(time_of(&faster, slots, 3), time_of(&gpu, slots, 3));
            faster.product[2] *= 2;
            ck_assert_double_le(time_of(&faster, slots, 3), time_of(&gpu, slots, 3));
        }
        ck_assert_double_lt(time_of(&gpu, 24, 3), time_of(&gpu, 2, 3));
        for (uint32_t kv = 0; kv < 3; kv++)
            ck_assert_double_lt(time_of(&gpu, 24, kv + 1), time_of(&gpu, 24, kv));
    }
}
END_TEST

START_TEST(unknown_rates)
{
    struct cost_gpu g = gpu;
    ck_assert(cost_gpu_known(&g) && cost_cpu_known(&cpu));
    g.pinned = 0;
    ck_assert(!cost_gpu_known(&g));
    ck_assert(!cost_gpu_known(&(struct cost_gpu){.pinned = 1, .pageable = 1}));
    ck_assert(!cost_cpu_known(&(struct cost_cpu){.dense = 1}));
    for (unsigned i = 0; i < COST_TYPES; i++)
        ck_assert_uint_eq(cost_class(cost_types[i]), i);
    ck_assert_uint_eq(cost_class(TENSOR_IQ4_XS), COST_TYPES);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("cost of a division");
    TCase *t = tcase_create("cost");
    tcase_add_checked_fixture(t, make_model, NULL);
    tcase_add_test(t, by_hand_on_a_gpu);
    tcase_add_test(t, by_hand_on_the_cpu);
    tcase_add_test(t, by_policy);
    tcase_add_test(t, computes_alone);
    tcase_add_test(t, parts_add_up);
    tcase_add_test(t, layers_without_experts);
    tcase_add_test(t, more_is_not_slower);
    tcase_add_test(t, unknown_rates);
    suite_add_tcase(suite, t);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
