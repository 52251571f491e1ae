/* SPDX-License-Identifier: Apache-2.0 */
/* Routing: the experts and the bits of lib/policy/access/routing.c. */
#include <stdio.h>

#include "lib/policy/access/routing.h"
#include "tests/unit/lib/cuda/cuda_test.h"

enum { EXPERTS_MAX = 300, TOP_K_MAX = 12, ROWS = 9, SEEDS = 12 };

static const struct {
    struct model_router router;
    bool bias;
} cases[] = {
    {{.experts = 8, .top_k = 2, .gating = ROUTER_SOFTMAX, .normalise = true}, false},
    {{.experts = 128, .top_k = 8, .gating = ROUTER_SOFTMAX, .normalise = true}, false},
    {{.experts = 60, .top_k = 4, .gating = ROUTER_SOFTMAX, .scale = 2.5f}, true},
    {{.experts = 160,
      .top_k = 6,
      .gating = ROUTER_SOFTMAX,
      .scale = 16,
      .groups = 8,
      .groups_used = 3},
     false},
    {{.experts = 256,
      .top_k = 8,
      .gating = ROUTER_SIGMOID,
      .normalise = true,
      .scale = 2.5f,
      .groups = 8,
      .groups_used = 4},
     true},
    {{.experts = EXPERTS_MAX, .top_k = TOP_K_MAX, .gating = ROUTER_SIGMOID, .normalise = true},
     true},
    {{.experts = 32, .top_k = 4, .gating = ROUTER_SOFTMAX_AFTER}, false},
    {{.experts = 16, .top_k = 2, .gating = ROUTER_SPARSE_MIXER}, false},
    {{.experts = 16, .top_k = 1, .gating = ROUTER_SIGMOID_AFTER}, false},
    {{.experts = 24, .top_k = 3, .gating = ROUTER_SIGMOID_AFTER, .normalise = true}, true},
    {{.experts = 5, .top_k = 5, .gating = ROUTER_SOFTMAX}, false},
    {{.experts = 12, .top_k = 2, .gating = ROUTER_SIGMOID, .groups = 3, .groups_used = 1}, false},
    {{.experts = 40, .top_k = 3, .gating = ROUTER_SOFTMAX_AFTER, .groups = 10, .groups_used = 2},
     true},
};

/* kind 0: usual logits; 1: many ties; 2: far apart, so that p underflows; 3: -inf among them; 4, 5:
 * NaN among them, few and many; 6: NaN first; 7: only NaN; 8: infinities and NaN. */
static void make_logits(float *z, uint32_t n, uint32_t kind)
{
    static const uint32_t one_of[ROWS] = {0, 0, 0, 3, 8, 2, 0, 1, 3};
    for (uint32_t i = 0; i < n; i++) {
        bool other = one_of[kind] != 0 && test_random() % one_of[kind] == 0;
        z[i] = kind == 1   ? (float)(test_random() % 3)
               : kind == 2 ? test_uniform() * 400
                           : test_uniform() * 4;
        if (other || (kind == 6 && i == 0))
            z[i] = kind == 3 || (kind == 8 && i % 3 == 0) ? -INFINITY
                   : kind == 8 && i % 3 == 1              ? INFINITY
                                                          : NAN;
    }
}

START_TEST(routes_are_the_same)
{
    static float logits[ROWS * (EXPERTS_MAX + 1)], scratch[ROUTING_SCRATCH(EXPERTS_MAX)];
    float bias[EXPERTS_MAX], weight[ROWS * TOP_K_MAX], from[TOP_K_MAX];
    uint32_t expert[ROWS * TOP_K_MAX];
    struct route routes[TOP_K_MAX];
    test_seed(61);
    for (size_t run = 0; run < ARRAY_LEN(cases) * SEEDS; run++) {
        size_t i = run % ARRAY_LEN(cases);
        struct model_router r = cases[i].router;
        uint32_t stride = r.experts + 1;
        test_fill(bias, EXPERTS_MAX);
        bias[run % r.experts] = run % 5 == 4 ? NAN : 0.0f;
        r.bias = cases[i].bias ? bias : NULL;
        for (uint32_t row = 0; row < ROWS; row++)
            make_logits(logits + row * stride, r.experts, row);
        struct gpu_route g = {.router = r,
                              .logits = logits,
                              .expert = expert,
                              .weight = weight,
                              .stride = stride,
                              .rows = ROWS};
        fibres_seed((uint32_t)run);
        check_launch(gpu()->route(&g, NULL));
        for (uint32_t row = 0; row < ROWS; row++) {
            routing_exact(&r, logits + row * stride, scratch, routes);
            for (uint32_t k = 0; k < r.top_k; k++) {
                ck_assert_uint_eq(expert[row * r.top_k + k], routes[k].expert);
                from[k] = routes[k].weight;
            }
            check_bits(weight + row * r.top_k, from, r.top_k, "router %zu, row %u", i, row);
        }
    }
}
END_TEST

/* Some experts are not allowed; routes next to each other, as the core has them. */
START_TEST(masked_routes_are_the_same)
{
    static float logits[ROWS * EXPERTS_MAX], scratch[ROUTING_SCRATCH(EXPERTS_MAX)];
    float bias[EXPERTS_MAX];
    bool allowed[EXPERTS_MAX];
    struct route expected[TOP_K_MAX], routes[ROWS * TOP_K_MAX];
    test_seed(62);
    for (size_t run = 0; run < ARRAY_LEN(cases) * SEEDS; run++) {
        struct model_router r = cases[run % ARRAY_LEN(cases)].router;
        test_fill(bias, EXPERTS_MAX);
        r.bias = cases[run % ARRAY_LEN(cases)].bias ? bias : NULL;
        uint32_t left = 0;
        for (uint32_t e = 0; e < r.experts; e++)
            left += allowed[e] = test_random() % 3 != 0;
        for (uint32_t e = 0; left < r.top_k; e++) {
            left += !allowed[e];
            allowed[e] = true;
        }
        for (uint32_t row = 0; row < ROWS; row++)
            make_logits(logits + row * r.experts, r.experts, row);
        struct gpu_route g = {.router = r,
                              .logits = logits,
                              .expert = &routes->expert,
                              .weight = &routes->weight,
                              .allowed = allowed,
                              .stride = r.experts,
                              .step = ROUTE_STRIDE,
                              .rows = ROWS};
        fibres_seed((uint32_t)run);
        check_launch(gpu()->route(&g, NULL));
        for (uint32_t row = 0; row < ROWS; row++) {
            ck_assert_uint_eq(
                routing_masked(&r, logits + row * r.experts, allowed, scratch, expected), r.top_k);
            for (uint32_t k = 0; k < r.top_k; k++) {
                const struct route *have = &routes[row * r.top_k + k];
                ck_assert_uint_eq(have->expert, expected[k].expert);
                check_bits(&have->weight, &expected[k].weight, 1, "router %zu, row %u", run, row);
            }
        }
    }
}
END_TEST

START_TEST(arguments_out_of_range)
{
    static const struct model_router wrong[] = {
        {.experts = 8, .top_k = 0, .gating = ROUTER_SOFTMAX},
        {.experts = 8, .top_k = 9, .gating = ROUTER_SOFTMAX},
        {.experts = 0, .top_k = 0, .gating = ROUTER_SOFTMAX},
        {.experts = 8, .top_k = 2, .gating = 7},
        {.experts = 8, .top_k = 2, .gating = ROUTER_SIGMOID, .groups = 3, .groups_used = 1},
        {.experts = 8, .top_k = 2, .gating = ROUTER_SIGMOID, .groups = 16, .groups_used = 1},
        {.experts = 5000, .top_k = 2, .gating = ROUTER_SOFTMAX},
    };
    for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
        struct gpu_route g = {.router = wrong[i], .rows = 1};
        ck_assert_msg(gpu()->route(&g, NULL) == GPU_UNSUPPORTED, "router %zu", i);
    }
    struct gpu_route g = {.router = cases[0].router, .rows = 1u << 31};
    ck_assert_int_eq(gpu()->route(&g, NULL), GPU_UNSUPPORTED);
    g.rows = 0;
    ck_assert_int_eq(gpu()->route(&g, NULL), 0);
}
END_TEST

GPU_TESTS_MAIN("cuda_router", routes_are_the_same, masked_routes_are_the_same,
               arguments_out_of_range)
