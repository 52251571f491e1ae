/* SPDX-License-Identifier: Apache-2.0 */
/* The preset auto: it runs the preset that its plan predicts to be fastest for the capacity and the
 * storage device. Without --max-loss it stays lossless. It reports what it cannot do. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/policy/presets/auto.h"
#include "lib/policy/presets/presets.h"
#include "lib/tensor/quant_method.h"
#include "tests/scenario/baseline.h"
#include "tests/scenario/fixtures.h"

#define END_MS 60000

static void predict(struct plan *plan, const char *name, uint32_t first_share, uint32_t end_share,
                    double ns)
{
    uint32_t c = 0;
    while (strcmp(preset_at(auto_preset(c))->name, name) != 0)
        c++;
    for (uint32_t s = first_share; s < end_share; s++)
        for (uint32_t d = 0; d < PLAN_AUTO_BANDWIDTHS; d++)
            plan_auto_ns(plan)[plan_auto_at(s, d, c)] = (float)ns;
}

/* Predictions: lod is best up to 25 % resident experts, no prefetch from 50 % on; hobbit is much
 * faster but loses up to 2 %. */
static void plan_with_precisions(char path[PATH_MAX], uint32_t precision_mask)
{
    struct error error;
    plan_make(path, "auto.plan", precision_mask);
    struct plan *blank = plan_read(path, &error);
    CHECK(blank, "%s", error.text);
    struct plan *plan =
        plan_extended(blank, plan_array_bit(PLAN_ARRAY_auto_ns), blank->cells, &error);
    CHECK(plan, "%s", error.text);
    predict(plan, "lod", 0, 3, 5e6);
    predict(plan, "lod", 3, PLAN_AUTO_SHARES, 8e6);
    predict(plan, "auto-noprefetch", 0, PLAN_AUTO_SHARES, 6e6);
    predict(plan, "hobbit", 0, PLAN_AUTO_SHARES, 1e6);
    plan->scalar[PLAN_hobbit_loss_high] = 0.02;
    plan->scalar[PLAN_hobbit_t1] = 0.6;
    plan->scalar[PLAN_hobbit_t2] = 0.9;
    plan->scalar[PLAN_hobbit_skip_renormalise] = 0;
    plan->scalar[PLAN_hobbit_method] = QUANT_CHANNEL; /* as store_pack */
    plan->scalar[PLAN_hobbit_high] = PRECISION_NATIVE;
    plan->scalar[PLAN_hobbit_low] = PRECISION_INT2;
    CHECK(plan_write(plan, path, &error) == 0, "%s", error.text);
    free(blank);
    free(plan);
}

static void plan_with_predictions(char path[PATH_MAX])
{
    plan_with_precisions(path, 0);
}

static const char *status_text(struct engine *e, const char *path, char *to, size_t bytes)
{
    json_t *status = engine_control(e, "status", NULL);
    snprintf(to, bytes, "%s", lookup_text(status, path));
    json_decref(status);
    return to;
}

/* Runs a sequence; checks its preset and that its text is the lossless one. */
static void runs(struct engine *e, unsigned prompt, const char *preset)
{
    struct text got;
    engine_generate(e, test_prompt(prompt), baseline_tokens(), &got);
    text_check_same(baseline(prompt), &got, preset);
    CHECK(strcmp(lookup_text(got.stats, "preset"), preset) == 0, "auto ran %s instead of %s",
          lookup_text(got.stats, "preset"), preset);
    text_free(&got);
}

/* What the eviction is predicted to bring, over the LRU cache of lod. */
static void explains(struct engine *e)
{
    json_t *status = engine_control(e, "status", NULL);
    const json_t *parts = json_object_get(json_object_get(status, "auto"), "parts");
    const json_t *one = json_array_get(parts, 0);
    CHECK(json_array_size(parts) == 1 &&
              strcmp(lookup_text(one, "part"), "eviction by access probability") == 0 &&
              fabs(json_number_value(json_object_get(one, "ms_per_token_without")) - 8) < 1e-6 &&
              fabs(json_number_value(json_object_get(one, "ms_per_token")) - 6) < 1e-6,
          "%s", lookup_text(one, "part"));
    json_decref(status);
    char *log = engine_log(e);
    CHECK(strstr(log, "expected of each part: eviction by access probability 8.00 to 6.00 ms"),
          "%.2000s", log);
    free(log);
}

static void follows_the_plan(void)
{
    char plan[PATH_MAX], option[PATH_MAX + 8], text[64];
    baseline(0);
    plan_with_predictions(plan);
    snprintf(option, sizeof option, "--plan=%s", plan);
    struct engine *e = engine_new();
    engine_start(e, (const char *const[]){"--preset=auto", "--resident-experts=25", option, NULL});
    CHECK(strcmp(status_text(e, "preset", text, sizeof text), "auto") == 0, "%s", text);
    CHECK(strcmp(status_text(e, "auto.chosen", text, sizeof text), "lod") == 0, "%s", text);
    status_text(e, "auto.text", text, sizeof text);
    CHECK(strcmp(text, "lod, expected to be the fastest: 5.00 ms per token") == 0, "%s", text);
    runs(e, 0, "lod");
    json_decref(engine_control(e, "preset", json_pack("{s:s}", "preset", "layerwise")));
    runs(e, 1, "layerwise"); /* requested by name */
    json_decref(engine_control(e, "preset", json_pack("{s:s}", "preset", "auto")));
    runs(e, 1, "lod");
    engine_stop(e);
    engine_start(e, (const char *const[]){"--preset=auto", "--resident-experts=60", option, NULL});
    explains(e);
    runs(e, 0, "auto-noprefetch");
    engine_stop(e);
}

/* SwapMoE's loss holds for the share that it was measured with, and more. */
static void swapmoe_from_its_share_on(void)
{
    char path[PATH_MAX], option[PATH_MAX + 8], text[64];
    struct error error;
    plan_with_predictions(path);
    struct plan *plan = plan_read(path, &error);
    CHECK(plan, "%s", error.text);
    predict(plan, "swapmoe", 0, PLAN_AUTO_SHARES, 5e5);
    plan->scalar[PLAN_swap_loss_high] = 0.02;
    plan->scalar[PLAN_swap_share] = 0.5;
    plan->scalar[PLAN_swap_interval] = 96;
    plan->scalar[PLAN_swap_margin] = 1;
    plan->scalar[PLAN_swap_chunk] = 256;
    CHECK(plan_write(plan, path, &error) == 0, "%s", error.text);
    free(plan);
    snprintf(option, sizeof option, "--plan=%s", path);
    const struct {
        const char *resident, *loss, *chosen;
    } cases[] = {{"--resident-experts=60", "--max-loss=2", "swapmoe"},
                 {"--resident-experts=60", "--max-loss=1", "auto-noprefetch"},
                 {"--resident-experts=40", "--max-loss=2", "auto-noprefetch"}};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct engine *e = engine_new();
        engine_start(e, (const char *const[]){"--preset=auto", cases[i].loss, cases[i].resident,
                                              option, NULL});
        status_text(e, "auto.chosen", text, sizeof text);
        CHECK(strcmp(text, cases[i].chosen) == 0, "case %zu: %s", i, text);
        engine_stop(e);
    }
}

static void changes(struct engine *e, const char *op, const char *to, const char *chosen)
{
    struct command c;
    char text[64];
    bool throttle = strcmp(op, "throttle") == 0;
    command_run(&c, NULL, END_MS,
                (const char *const[]){"ctl", "--name", e->run, op, throttle ? "0" : to,
                                      throttle ? to : NULL, NULL});
    CHECK(c.status == 0, "%s %s: status %d: %s", op, to, c.status, c.err);
    command_free(&c);
    status_text(e, "auto.chosen", text, sizeof text);
    CHECK(strcmp(text, chosen) == 0, "%s %s: auto chose %s instead of %s", op, to, text, chosen);
}

/* A loss that holds at the start, and not with a smaller budget or a throttle: another preset is
 * chosen with them, and the fast one again without. */
static void loss_after_a_change(void)
{
    char path[PATH_MAX], option[PATH_MAX + 8];
    struct error error;
    plan_with_predictions(path);
    struct plan *plan = plan_read(path, &error);
    CHECK(plan, "%s", error.text);
    predict(plan, "lod", 0, PLAN_AUTO_SHARES, 8e6);
    predict(plan, "swapmoe", 0, PLAN_AUTO_SHARES, 5e5);
    plan->scalar[PLAN_swap_loss_high] = 0.02;
    plan->scalar[PLAN_swap_share] = 0.9;
    plan->scalar[PLAN_swap_interval] = 96;
    plan->scalar[PLAN_swap_margin] = 1;
    plan->scalar[PLAN_swap_chunk] = 256;
    plan->scalar[PLAN_token_ns] = 1e6;
    plan->scalar[PLAN_expert_read_ns] = 1e5;
    CHECK(plan_write(plan, path, &error) == 0, "%s", error.text);
    free(plan);
    snprintf(option, sizeof option, "--plan=%s", path);
    struct engine *e = engine_new();
    engine_start(
        e, (const char *const[]){"--preset=auto", "--max-loss=2", "--budget=40MiB", option, NULL});
    changes(e, "budget", "80MiB", "swapmoe");
    changes(e, "budget", "40MiB", "auto-noprefetch");
    changes(e, "budget", "90MiB", "swapmoe");
    changes(e, "throttle", "100kB", "auto-noprefetch");
    changes(e, "throttle", "0", "swapmoe");
    engine_stop(e);
}

/* A loss is allowed, but the model has one precision and hobbit needs two. */
static void needs_the_stored_precisions(void)
{
    char plan[PATH_MAX], option[PATH_MAX + 8];
    baseline(0);
    plan_with_predictions(plan);
    snprintf(option, sizeof option, "--plan=%s", plan);
    struct engine *e = engine_new();
    engine_start(e, (const char *const[]){"--preset=auto", "--max-loss=5", "--resident-experts=25",
                                          option, NULL});
    runs(e, 0, "lod");
    engine_stop(e);
    engine_start(
        e, (const char *const[]){"--preset=auto", "--max-loss=5", "--resident-experts=25", NULL});
    runs(e, 0, "auto"); /* no plan: lossless */
    engine_stop(e);
}

/* The plan's fastest preset has experts at int2: it is chosen if and only if they are stored. */
static void needs_the_planned_precisions(void)
{
    char path[PATH_MAX], option[PATH_MAX + 8], store[PATH_MAX], text[64];
    struct error error;
    plan_with_precisions(path, 1u << PRECISION_NATIVE | 1u << PRECISION_INT2);
    struct plan *plan = plan_read(path, &error);
    CHECK(plan, "%s", error.text);
    predict(plan, "auto-mixed", 0, PLAN_AUTO_SHARES, 5e5);
    plan->scalar[PLAN_edgemoe_loss_high] = 0.02;
    plan->scalar[PLAN_edgemoe_method] = QUANT_CHANNEL;
    CHECK(plan_write(plan, path, &error) == 0, "%s", error.text);
    free(plan);
    store_pack(store, "store", "native,int2");
    snprintf(option, sizeof option, "--plan=%s", path);
    const struct {
        const char *model, *chosen;
    } cases[] = {{test_model(), "lod"}, {store, "auto-mixed"}};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct engine *e = engine_new();
        engine_start(e, (const char *const[]){"-m", cases[i].model, "--preset=auto", "--max-loss=5",
                                              "--resident-experts=25", option, NULL});
        CHECK(strcmp(status_text(e, "auto.chosen", text, sizeof text), cases[i].chosen) == 0,
              "auto chose %s instead of %s", text, cases[i].chosen);
        engine_stop(e);
    }
}

/* With the precisions it needs, hobbit is chosen if and only if its loss is allowed. */
static void takes_a_loss_that_is_allowed(void)
{
    char plan[PATH_MAX], option[PATH_MAX + 8], store[PATH_MAX], text[64];
    plan_with_predictions(plan);
    store_pack(store, "store", "native,int2");
    snprintf(option, sizeof option, "--plan=%s", plan);
    struct engine *e = engine_new();
    static const struct {
        const char *loss, *chosen;
    } cases[] = {{"--max-loss=2", "hobbit"}, {"--max-loss=1.9", "lod"}};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        engine_start(e, (const char *const[]){"-m", store, "--preset=auto", cases[i].loss,
                                              "--resident-experts=25", option, NULL});
        CHECK(strcmp(status_text(e, "auto.chosen", text, sizeof text), cases[i].chosen) == 0,
              "with %s auto chose %s", cases[i].loss, text);
        engine_stop(e);
    }
}

/* Without auto, --max-loss rejects a preset and policy that may lose more. */
static void loss_without_auto(void)
{
    struct command c;
    command_run(&c, NULL, END_MS,
                (const char *const[]){"generate", "-m", test_model(), "--max-loss", "1", "--policy",
                                      "precision=hobbit", "-p", "a", "-n", "1", NULL});
    CHECK(c.status == 2 && strstr(c.err, "precision=hobbit needs two precisions"), "status %d: %s",
          c.status, c.err);
    command_free(&c);
}

/* doctor prints the ranking that auto chooses from; its cases: doctor_ranking_test. Here the list
 * of the real supervisor. */
static void doctor_prints_the_ranking(void)
{
    char plan[PATH_MAX], option[PATH_MAX + 8];
    struct command c;
    size_t i;
    const json_t *row;
    const char *why = NULL;
    plan_with_predictions(plan);
    snprintf(option, sizeof option, "--plan=%s", plan);
    command_run(&c, NULL, END_MS,
                (const char *const[]){"doctor", "-m", test_model(), "--no-device", "--json", option,
                                      "--max-loss=2", "--resident-experts=25", NULL});
    CHECK(c.status == 0, "status %d: %s", c.status, c.err);
    json_t *doc = json_loads(c.out, JSON_ALLOW_NUL, NULL), *section = json_object_get(doc, "auto");
    CHECK(strcmp(lookup_text(section, "chosen"), "lod") == 0, "chosen %s",
          lookup_text(section, "chosen"));
    row = json_array_get(json_object_get(section, "ranking"), 1);
    CHECK(strcmp(lookup_text(row, "preset"), "auto-noprefetch") == 0, "%s",
          lookup_text(row, "preset"));
    json_array_foreach(json_object_get(section, "rejected"), i, row)
    {
        if (strcmp(lookup_text(row, "preset"), "hobbit") == 0)
            why = lookup_text(row, "why");
    }
    CHECK(why && strstr(why, "needs two precisions"), "%s", why ? why : "not rejected");
    json_decref(doc);
    command_free(&c);
}

int main(int argc, char **argv)
{
    static const struct test_case cases[] = {
        {"follows_the_plan", follows_the_plan},
        {"swapmoe_from_its_share_on", swapmoe_from_its_share_on},
        {"loss_after_a_change", loss_after_a_change},
        {"needs_the_stored_precisions", needs_the_stored_precisions},
        {"needs_the_planned_precisions", needs_the_planned_precisions},
        {"takes_a_loss_that_is_allowed", takes_a_loss_that_is_allowed},
        {"loss_without_auto", loss_without_auto},
        {"doctor_prints_the_ranking", doctor_prints_the_ranking},
    };
    return test_main(argc, argv, cases, ARRAY_LEN(cases));
}
