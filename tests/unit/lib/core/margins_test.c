/* SPDX-License-Identifier: Apache-2.0 */
/* The logits and the rule that the source gets explain the routes: the experts with the largest
 * margins (lib/policy/access/routing.h) are those that the core chooses, in models whose routers
 * have a bias, groups, or neither. Eviction `learned` takes its labels from them. Where a table
 * chooses, there are none. */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "tests/golden/image.h"
#include "tests/golden/reference.h"

#define CONTEXT 16
#define TOKENS  4

static const struct {
    const char *file;
    bool is_plain; /* neither a bias nor groups */
} models[] = {{"arch/qwen3moe_a.gguf", true},        {"arch/glm4moe_a.gguf", false},
              {"arch/glm4_7_flash_f32.gguf", false}, {"arch/deepseek_v2.gguf", true},
              {"arch/deepseek_v3_f32.gguf", false},  {"arch/kimi_k2.gguf", false},
              {"arch/ernie4_5_a.gguf", false},       {"arch/lfm2moe_a.gguf", false},
              {"arch/minimax_m2_a.gguf", false},     {"converted/deepseek4-base.gguf", false}};

static struct {
    float *margins, *scratch;
    uint32_t experts, top_k, layers, table_layers;
    bool is_plain, is_given; /* the logits of the layer */
} w;

static void take_logits(void *self, const struct expert_step *step, const float *logits,
                        const struct model_router *rule)
{
    (void)self, (void)step;
    ck_assert_int_eq(rule->bias == NULL && rule->groups < 2, w.is_plain);
    ck_assert_uint_eq(rule->experts, w.experts);
    routing_margins(rule, logits, w.scratch, w.margins);
    w.is_given = true;
}

static void take_routes(void *self, const struct expert_step *step, const struct route *routes)
{
    float least = INFINITY, next = -INFINITY;
    (void)self;
    w.layers++;
    ck_assert_msg(w.is_given == (step->layer >= w.table_layers), "logits of layer %u", step->layer);
    if (!w.is_given)
        return; /* a table has chosen */
    w.is_given = false;
    for (uint32_t e = 0; e < w.experts; e++) {
        bool is_chosen = false;
        for (uint32_t k = 0; k < w.top_k; k++)
            is_chosen = is_chosen || routes[k].expert == e;
        least = is_chosen ? fminf(least, w.margins[e]) : least;
        next = is_chosen ? next : fmaxf(next, w.margins[e]);
    }
    ck_assert_msg(least >= next, "an expert of margin %g is chosen, one of %g is not",
                  (double)least, (double)next);
}

START_TEST(the_largest_margins_are_the_routes)
{
    struct image image;
    struct error error;
    image_open(&image, golden_path(models[_i].file), CONTEXT);
    const struct model_hparams *h = &image.model->hparams;
    w.experts = h->experts;
    w.top_k = h->experts_used;
    w.table_layers = h->table_layers;
    w.is_plain = models[_i].is_plain;
    w.margins = calloc(w.experts, sizeof *w.margins);
    w.scratch = calloc(ROUTING_MARGIN_SCRATCH(w.experts), sizeof *w.scratch);
    ck_assert(w.margins && w.scratch);
    struct core_config config = {.model = image.model,
                                 .ops = kernel_ops_select("auto"),
                                 .source = image_source(&image),
                                 .threads = 1,
                                 .chunk = 4,
                                 .prefill_order = prefill_order_of(PREFILL_ORDER_INDEX)};
    config.source.logits = take_logits;
    config.source.routed = take_routes;
    struct core *core = core_create(&config, &error);
    ck_assert_msg(core != NULL, "%s", error.text);
    const struct core_sequence sequence = image_sequence(&image);
    for (uint32_t at = 0; at < TOKENS; at++) {
        uint32_t token = 3 + 7 * at;
        ck_assert_msg(core_forward(core, &sequence, &token, at, 1, &error) == 0, "%s", error.text);
    }
    ck_assert_uint_ge(w.layers, TOKENS);
    core_destroy(core);
    image_close(&image);
    free(w.margins);
    free(w.scratch);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("margins");
    TCase *c = tcase_create("margins");
    tcase_set_timeout(c, 60);
    tcase_add_loop_test(c, the_largest_margins_are_the_routes, 0, (int)ARRAY_LEN(models));
    suite_add_tcase(suite, c);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
