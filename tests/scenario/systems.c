/* SPDX-License-Identifier: Apache-2.0 */
/* The four systems on models whose layers or routers differ from those of the papers' models: from
 * the profile to the running engine. Lossless presets give the text of the model byte for byte, the
 * others serve what was planned; every access is counted once, and predictions are right more often
 * than by chance. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "tests/harness/internal.h"

#define END_MS 120000
#define TOKENS 48

static char model[PATH_MAX], text[PATH_MAX], profile[PATH_MAX], plan[PATH_MAX];
static char store[PATH_MAX], planned[PATH_MAX], trace[PATH_MAX];

#define TOOL(...) json_decref(command_json(END_MS, (const char *const[]){__VA_ARGS__, NULL}))

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
    json_decref(command_json(END_MS, args));
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
    /* A preset that predicts 2 of 4 experts finds at most half of them, by chance a sixteenth. */
    CHECK(right * 5 >= predictable, "%s: %llu of %llu accesses predicted", preset,
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

/* Layers 0 and 1 recurrent, 2 with attention, 3 recurrent. */
static void recurrent_layers(void)
{
    whole_way(4, (const char *const[]){"arch=qwen35moe", "shared_inner=64", "rope_dims=16",
                                       "conv_taps=4", "delta_size=32", "delta_k_heads=2",
                                       "delta_v_heads=4", "delta_inner=128", "attention_step=3",
                                       "vocab=600", NULL});
}

/* The input of the router is not that of the experts; a dense network next to the experts. */
static void router_with_a_scale(void)
{
    whole_way(4, (const char *const[]){"arch=gemma4", "dense_inner=128", "head_size=32",
                                       "window=48", "full_every=3", "head_size_window=32",
                                       "value_size_window=32", "rope_dims_window=32", "full_v=0",
                                       "rope_theta_window=1000", "vocab=600", NULL});
}

/* Biases of the logits and of experts. */
static void biases_and_windows(void)
{
    whole_way(4, (const char *const[]){"arch=gpt-oss", "window=16", "vocab=600", NULL});
}

/* Writes a bias into the model that lets 4 experts of each layer win every choice, others in each
 * layer. */
static void let_biases_decide(void)
{
    struct command c;
    unsigned layers = 0;
    command_run(&c, NULL, END_MS, (const char *const[]){"inspect", model, "--tensors", NULL});
    CHECK(c.status == 0, "inspect: %.300s", c.err);
    FILE *file = fopen(model, "r+b");
    CHECK(file != NULL, "cannot open %s", model);
    for (char *end, *line = strtok_r(c.out, "\n", &end); line; line = strtok_r(NULL, "\n", &end)) {
        unsigned layer;
        float bias[32] = {0};
        if (sscanf(line, "blk.%u.ffn_gate_inp.bias", &layer) != 1 ||
            !strstr(line, "ffn_gate_inp.bias"))
            continue;
        for (unsigned i = 0; i < 4; i++)
            bias[(7 * layer + 5 * i) % 32] = 1000;
        CHECK(fseek(file, atol(strrchr(line, ' ')), SEEK_SET) == 0 &&
                  fwrite(bias, sizeof bias, 1, file) == 1,
              "cannot write the bias");
        layers++;
    }
    fclose(file);
    command_free(&c);
    CHECK(layers == 4, "%u biases", layers);
}

/* Every prediction from a gate input is right when the bias of the logits decides. */
static void predictions_know_the_bias_of_the_logits(void)
{
    struct text got;
    make((const char *const[]){"arch=gpt-oss", "window=16", "vocab=600", NULL});
    let_biases_decide();
    TOOL("profile", "-m", model, "--text", text, "-o", profile, "--tokens", "64", "--ctx-size",
         "64", "--importance-tokens", "0");
    json_t *doc = json_load_file(profile, 0, NULL);
    json_t *recall = json_object_get(json_object_get(doc, "arrays"), "recall_gate");
    for (size_t l = 1; l < 4; l++)
        CHECK(json_number_value(json_array_get(recall, l)) == 1, "recall of layer %zu is %g", l,
              json_number_value(json_array_get(recall, l)));
    json_decref(doc);
    struct engine *e = engine_new();
    engine_start(
        e, (const char *const[]){"-m", model, "--preset=default", "--resident-experts=50", NULL});
    engine_generate(e, test_prompt(1), TOKENS, &got);
    uint64_t predictable = engine_counter(e, "predictor", "recall_accesses");
    uint64_t right = engine_counter(e, "predictor", "recall_hits");
    CHECK(predictable > 0 && right == predictable, "%llu of %llu accesses predicted",
          (unsigned long long)right, (unsigned long long)predictable);
    text_free(&got);
    engine_stop(e);
}

int main(int argc, char **argv)
{
    static const struct test_case cases[] = {
        ROW(dense_layers_and_groups), ROW(predictions_know_the_bias_of_the_logits),
        ROW(softmax_with_a_bias),     ROW(recurrent_layers),
        ROW(router_with_a_scale),     ROW(biases_and_windows)};
    return test_main(argc, argv, cases, ARRAY_LEN(cases));
}
