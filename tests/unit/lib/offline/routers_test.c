/* SPDX-License-Identifier: Apache-2.0 */
/* Routers as predictions repeat them: one row at a time, they give the routes that the core chose
 * for many rows, bit for bit, in models of several architectures with biases, scales and norms that
 * are not trivial. Gate inputs follow the definition of the architecture's norm, computed here in
 * double. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "lib/offline/offline.h"
#include "lib/router/row.h"

#define DATA      SLUICE_SOURCE_DIR "/tests/golden/data/arch/"
#define ROWS      32
#define HIDDEN    1024
#define EXPERTS   256
#define ROUTES    (ROWS * MODEL_TOP_K_MAX)
#define TOLERANCE 1e-4

enum gate { GATE_RMS, GATE_LAYER_NORM, GATE_LAYER_INPUT, GATE_EARLY, GATE_ROOT };

static const struct {
    const char *file;
    enum gate gate;
    bool bias; /* of the logits */
} models[] = {{"oss_b_f32", GATE_RMS, true},
              {"smallthinker_b_f32", GATE_LAYER_INPUT, false},
              {"gemma4_b_f32", GATE_ROOT, false},
              {"phimoe_b_f32", GATE_LAYER_NORM, false},
              {"dbrx_b_f32", GATE_LAYER_NORM, false},
              {"../converted/dbrx-base", GATE_LAYER_NORM, false},
              {"qwen35moe_b_f32", GATE_RMS, false},
              {"deepseek_v3_f32", GATE_RMS, false},
              {"../converted/arctic-base", GATE_EARLY, false}};

static struct {
    struct offline_model *model;
    const struct model_hparams *h;
    struct route route[ROUTES];
    float layer_input[ROWS * HIDDEN];
    struct router_row *router;
    uint32_t rows;
} seen;

static void at_layer_inputs(void *arg, const struct expert_step *step, const float *x,
                            size_t stride, uint32_t n)
{
    (void)arg;
    for (uint32_t r = 0; r < step->rows; r++)
        memcpy(seen.layer_input + (size_t)r * n, x + r * stride, n * sizeof *x);
}

static void at_routed(void *arg, const struct expert_step *step, const struct route *routes)
{
    (void)arg;
    memcpy(seen.route, routes, (size_t)step->rows * seen.h->experts_used * sizeof *routes);
}

static void route(uint32_t layer, const float *x, struct route *out)
{
    static float logits[EXPERTS], scratch[ROUTING_SCRATCH(EXPERTS)];
    struct model_router rule;
    ck_assert(router_row_logits(seen.router, layer, x, ROUTER_NO_TOKEN, logits, &rule));
    routing_exact(&rule, logits, scratch, out);
}

/* The gate input is the norm of the layer's input, bit for bit. */
static void check_early(uint32_t layer, const float *input, const float *x, uint32_t n)
{
    static float norm[2 * HIDDEN], want[HIDDEN];
    offline_gate_norm(seen.model, layer, norm);
    offline_gate_input(seen.model, norm, input, want);
    ck_assert(memcmp(x, want, n * sizeof *x) == 0);
}

static void at_gate_inputs(void *arg, const struct expert_step *step, const float *x, size_t stride,
                           uint32_t n)
{
    const uint32_t k = seen.h->experts_used;
    const enum gate *gate = arg;
    struct route got[MODEL_TOP_K_MAX];
    for (uint32_t r = 0; r < step->rows; r++) {
        route(step->layer, x + r * stride, got);
        ck_assert_msg(memcmp(got, seen.route + (size_t)r * k, k * sizeof *got) == 0,
                      "layer %u, row %u: other experts or weights", step->layer, r);
        seen.rows++;
        ck_assert(*gate != GATE_LAYER_INPUT ||
                  memcmp(x + r * stride, seen.layer_input + (size_t)r * n, n * sizeof *x) == 0);
        if (*gate == GATE_EARLY)
            check_early(step->layer, seen.layer_input + (size_t)r * n, x + r * stride, n);
    }
}

static void open_model(int i)
{
    char path[256];
    struct error error = {0};
    snprintf(path, sizeof path, DATA "%s.gguf", models[i].file);
    memset(&seen, 0, sizeof seen);
    seen.model = offline_open(path, model_index_build, &error);
    ck_assert_msg(seen.model != NULL, "%s", error.text);
    seen.h = &offline_index(seen.model)->hparams;
    ck_assert(seen.h->hidden <= HIDDEN && seen.h->experts <= EXPERTS);
}

START_TEST(single_rows_have_the_routes_of_the_core)
{
    open_model(_i);
    enum gate gate = models[_i].gate;
    uint32_t layer = model_expert_layer(offline_index(seen.model), 0), ids[ROWS];
    struct error error = {0};
    seen.router = offline_router(seen.model, kernel_ops_select(NULL));
    ck_assert_ptr_nonnull(seen.router);
    const struct offline_hooks hooks = {.arg = &gate,
                                        .layer_inputs = at_layer_inputs,
                                        .routed = at_routed,
                                        .gate_inputs = at_gate_inputs};
    struct offline_runner *r =
        offline_runner_create(seen.model,
                              &(struct offline_runner_config){
                                  .threads = 1, .chunk = ROWS, .context = ROWS, .hooks = &hooks},
                              &error);
    ck_assert_msg(r != NULL, "%s", error.text);
    for (uint32_t i = 0; i < ROWS; i++)
        ids[i] = (7 * i + 3) % seen.h->vocab;
    ck_assert_msg(core_forward(offline_core(r), offline_sequence(r), ids, 0, ROWS, &error) == 0,
                  "%s", error.text);
    ck_assert(models[_i].bias == (model_entry_dense(offline_index(seen.model), layer,
                                                    DENSE_ROUTER_LOGIT_BIAS) != ENTRY_NONE));
    ck_assert_uint_eq(seen.rows, ROWS * hparams_expert_layers(seen.h));
    router_row_destroy(seen.router);
    offline_runner_destroy(r);
    offline_close(seen.model);
}
END_TEST

/* Element i of the gate input of x. */
static double expected(enum gate gate, const float *norm, const float *x, uint32_t n, uint32_t i)
{
    double mean = 0, squares = 0;
    if (gate == GATE_LAYER_INPUT)
        return (double)x[i];
    for (uint32_t j = 0; j < n && gate == GATE_LAYER_NORM; j++)
        mean += (double)x[j] / n;
    for (uint32_t j = 0; j < n; j++)
        squares += ((double)x[j] - mean) * ((double)x[j] - mean) / n;
    double unit = ((double)x[i] - mean) / sqrt(squares + (double)seen.h->rms_eps);
    return gate == GATE_ROOT ? unit / sqrt(n) : unit * (double)norm[i] + (double)norm[n + i];
}

START_TEST(gate_inputs_of_a_residual)
{
    static float norm[2 * HIDDEN], x[HIDDEN], got[HIDDEN];
    open_model(_i);
    uint32_t n = seen.h->hidden;
    for (uint32_t i = 0; i < n; i++)
        x[i] = 1.5f + (float)(i * 37 % 101) / 50;
    for (uint32_t l = hparams_next_experts(seen.h, 0); l < seen.h->layers;
         l = hparams_next_experts(seen.h, l + 1)) {
        offline_gate_norm(seen.model, l, norm);
        offline_gate_input(seen.model, norm, x, got);
        for (uint32_t i = 0; i < n; i++) {
            double want = expected(models[_i].gate, norm, x, n, i);
            ck_assert_msg(fabs((double)got[i] - want) < TOLERANCE, "%s layer %u: %g, not %g",
                          models[_i].file, l, (double)got[i], want);
        }
    }
    offline_close(seen.model);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("routers");
    TCase *c = tcase_create("models");
    tcase_add_loop_test(c, single_rows_have_the_routes_of_the_core, 0, ARRAY_LEN(models));
    tcase_add_loop_test(c, gate_inputs_of_a_residual, 0, ARRAY_LEN(models));
    tcase_set_timeout(c, 60);
    suite_add_tcase(s, c);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? 1 : 0;
}
