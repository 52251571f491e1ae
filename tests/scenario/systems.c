/* SPDX-License-Identifier: Apache-2.0 */
/* The four systems on a model that begins with layers without experts and whose router has a bias: from
 * the profile to the running engine. Lossless presets give the text of the model byte for byte, the others
 * serve what was planned; every access is counted once, and predictions are right more often than by
 * chance. */
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "tests/harness/internal.h"

#define END_MS 120000
#define TOKENS 48

static char model[PATH_MAX], text[PATH_MAX], profile[PATH_MAX], plan[PATH_MAX];
static char store[PATH_MAX], planned[PATH_MAX], trace[PATH_MAX];

static json_t *tool(const char *const argv[])
{
    struct command c;
    command_run(&c, NULL, END_MS, argv);
    CHECK(c.status == 0, "%s: %.300s", argv[0], c.err);
    json_t *doc = json_loads(c.out, 0, NULL);
    command_free(&c);
    return doc;
}

#define TOOL(...) json_decref(tool((const char *const[]){__VA_ARGS__, NULL}))

static void make(const char *const keys[])
{
    const char *args[24] = {"synth", "-q", "-o", model, "tiny", "experts=32", "--type", "Q8_0"};
    for (size_t i = 0; keys[i]; i++)
        args[8 + i] = keys[i];
    snprintf(model, sizeof model, "%s/model.gguf", test_dir());
    snprintf(text, sizeof text, SLUICE_SOURCE_DIR "/tests/golden/data/heldout/science.txt");
    snprintf(profile, sizeof profile, "%s/profile", test_dir());
    snprintf(plan, sizeof plan, "%s/plan", test_dir());
    snprintf(store, sizeof store, "%s/store", test_dir());
    snprintf(planned, sizeof planned, "%s/planned", test_dir());
    snprintf(trace, sizeof trace, "%s/trace", test_dir());
    json_decref(tool(args));
}

/* The recall of the router's predictions: of 4 in 32 experts, one by chance in eight. */
static void check_profile(uint64_t layers)
{
    json_t *doc = json_load_file(profile, 0, NULL);
    json_t *recall = json_object_get(json_object_get(doc, "arrays"), "recall_gate");
    json_t *norm = json_object_get(json_object_get(doc, "arrays"), "norm");
    CHECK(json_array_size(recall) == 4 && json_array_size(norm) == (size_t)4 * 32, "profile");
    for (size_t l = 0; l < 4; l++) {
        bool predicted = l > 4 - layers, there = l >= 4 - layers;
        double r = json_number_value(json_array_get(recall, l));
        CHECK(json_is_null(json_array_get(norm, 32 * l)) == !there, "norms of layer %zu", l);
        CHECK(predicted ? r > 0.3 : json_is_null(json_array_get(recall, l)),
              "recall of layer %zu is %g", l, r);
        if (predicted)
            test_note("layer %zu: %.1f %% of the experts predicted", l, 100 * r);
    }
    json_decref(doc);
}

static void make_plan(void)
{
    const char *long_form = test_long() ? "2048" : "256";
    TOOL("profile", "-m", model, "--text", text, "-o", profile, "--tokens", "512", "--ctx-size",
         "64", "--importance-tokens", "64");
    TOOL("plan", "-m", model, "--profile", profile, "--text", text, "--max-loss", "60%",
         "--resident-experts", "50%", "-o", plan, "--tokens", long_form, "--ctx-size", "64",
         "--configurations", "8", "--generations", "10");
    TOOL("pack", "-m", model, "-o", store, "--precisions", "native,int8,int4,int2", "--quiet",
         "--verify", "--json");
    TOOL("pack", "-m", model, "-o", planned, "--plan", plan, "--precisions",
         "native,int8,int4,int2", "--quiet", "--json");
    TOOL("pack", "--check", store);
}

static void check_counters(struct engine *e, const char *preset)
{
    uint64_t accesses = engine_counter(e, "compute", "accesses");
    uint64_t hits = engine_counter(e, "compute", "hits");
    uint64_t flying = engine_counter(e, "compute", "hits_inflight");
    uint64_t misses = engine_counter(e, "compute", "misses");
    uint64_t skipped = engine_counter(e, "compute", "skipped");
    uint64_t predictable = engine_counter(e, "predictor", "recall_accesses");
    uint64_t right = engine_counter(e, "predictor", "recall_hits");
    CHECK(accesses > 0 && accesses == hits + flying + misses + skipped,
          "%s: accesses do not add up", preset);
    test_note("%s: %.1f %% of %llu accesses hit, %llu of %llu predicted", preset,
              100 * (double)hits / (double)accesses, (unsigned long long)accesses,
              (unsigned long long)right, (unsigned long long)predictable);
    CHECK(right * 4 >= predictable, "%s: %llu of %llu accesses predicted", preset,
          (unsigned long long)right, (unsigned long long)predictable);
}

/* A preset in the engine; expected: the text of the model. */
static void serve(const char *from, const char *preset, const struct text *expected)
{
    char plan_option[PATH_MAX + 8], preset_option[48];
    struct text got;
    snprintf(plan_option, sizeof plan_option, "--plan=%s", plan);
    snprintf(preset_option, sizeof preset_option, "--preset=%s", preset);
    struct engine *e = engine_new();
    engine_start(e, (const char *const[]){"-m", from, plan_option, preset_option,
                                          "--resident-experts=50", NULL});
    engine_generate(e, test_prompt(1), TOKENS, &got);
    CHECK(strcmp(lookup_text(got.stats, "preset"), preset) == 0, "ran with %s, not %s",
          lookup_text(got.stats, "preset"), preset);
    if (expected)
        text_check_same(expected, &got, preset);
    check_counters(e, preset);
    text_free(&got);
    engine_stop(e);
}

/* Offline with a simulated clock, and a replay of the engine's trace. */
static void check_offline(void)
{
    static const char *const presets[] = {"default", "hobbit", "fate", "edgemoe"};
    char plan_option[PATH_MAX + 8], trace_option[PATH_MAX + 8];
    struct text got;
    for (size_t i = 0; i < ARRAY_LEN(presets); i++)
        TOOL("eval", "-m", model, "--text", text, "--ctx-size", "64", "--max-windows", "1",
             "--read-bandwidth", "500MB/s", "--plan", plan, "--preset", presets[i],
             "--resident-experts", "50");
    snprintf(plan_option, sizeof plan_option, "--plan=%s", plan);
    snprintf(trace_option, sizeof trace_option, "--trace=%s", trace);
    struct engine *e = engine_new();
    engine_start(e, (const char *const[]){"-m", store, plan_option, trace_option,
                                          "--resident-experts=50", NULL});
    engine_generate(e, test_prompt(1), TOKENS, &got);
    text_free(&got);
    engine_stop(e);
    TOOL("sim", trace, "--plan", plan, "--presets", "default,hobbit,fate,edgemoe", "--budgets",
         "50%");
}

static void whole_way(uint64_t layers, const char *const keys[])
{
    static const char *const lossless[] = {"default", "auto-prefetch", "mixtral-offload"};
    static const char *const lossy[] = {"hobbit", "fate", "swapmoe"};
    struct text expected;
    make(keys);
    make_plan();
    check_profile(layers);
    struct engine *e = engine_new();
    engine_start(e, (const char *const[]){"-m", model, "--resident-experts=100", NULL});
    engine_generate(e, test_prompt(1), TOKENS, &expected);
    engine_stop(e);
    for (size_t i = 0; i < ARRAY_LEN(lossless); i++)
        serve(i ? store : model, lossless[i], &expected);
    for (size_t i = 0; i < ARRAY_LEN(lossy); i++)
        serve(store, lossy[i], NULL);
    serve(planned, "edgemoe", NULL);
    check_offline();
    text_free(&expected);
}

/* Two layers without experts, sigmoid with a bias and groups, a shared expert. */
static void dense_layers_and_groups(void)
{
    whole_way(2, (const char *const[]){"arch=glm4moe", "dense_layers=2", "dense_inner=256",
                                       "shared_count=1", "norm_top_k=1", "expert_scale=1.5",
                                       "groups=4", "groups_used=2", "vocab=600", NULL});
}

/* Softmax with a bias. */
static void softmax_with_a_bias(void)
{
    whole_way(3, (const char *const[]){"arch=ernie4_5-moe", "dense_layers=1", "dense_inner=256",
                                       "shared_count=1", "shared_inner=64", "vocab=600", NULL});
}

int main(int argc, char **argv)
{
    static const struct test_case cases[] = {ROW(dense_layers_and_groups),
                                             ROW(softmax_with_a_bias)};
    return test_main(argc, argv, cases, test_long() ? ARRAY_LEN(cases) : 1);
}
