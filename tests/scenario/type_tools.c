/* SPDX-License-Identifier: Apache-2.0 */
/* Every tool with files of several types, and with one whose layers differ: none rejects a type, and a
 * store of the native experts has the losses of the file bit for bit. */
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "lib/tensor/precision.h"
#include "tests/harness/internal.h"

#define END_MS 120000

static char model[PATH_MAX], text[PATH_MAX], ids[PATH_MAX];
static char profile[PATH_MAX], plan[PATH_MAX], store[PATH_MAX];

#define TOOL(...) json_decref(command_json(END_MS, (const char *const[]){__VA_ARGS__, NULL}))

static json_t *losses(const char *path)
{
    json_t *doc =
        command_json(END_MS, (const char *const[]){"eval", "-m", path, "--ids", ids, "--ctx-size",
                                                   "64", "--per-token", "--output", "json", NULL});
    json_t *list = json_incref(json_object_get(doc, "nll_per_token"));
    CHECK(json_array_size(list) == 126, "%zu losses", json_array_size(list));
    json_decref(doc);
    return list;
}

static void paths(void)
{
    json_t *list = json_array();
    for (int i = 0; i < 128; i++)
        json_array_append_new(list, json_integer((7 * i * i + 3 * i) % 600));
    snprintf(model, sizeof model, "%s/model.gguf", test_dir());
    snprintf(text, sizeof text, SLUICE_SOURCE_DIR "/tests/golden/data/heldout/science.txt");
    snprintf(ids, sizeof ids, "%s/ids.json", test_dir());
    snprintf(profile, sizeof profile, "%s/profile", test_dir());
    snprintf(plan, sizeof plan, "%s/plan", test_dir());
    snprintf(store, sizeof store, "%s/store", test_dir());
    json_t *doc = json_pack("{s:o}", "ids", list);
    CHECK(json_dump_file(doc, ids, 0) == 0, "cannot write %s", ids);
    json_decref(doc);
}

static void check_store(void)
{
    TOOL("pack", "-m", model, "-o", store, "--quiet", "--verify", "--json");
    TOOL("pack", "--check", store);
    TOOL("inspect", store, "--json");
    json_t *file = losses(model), *packed = losses(store);
    CHECK(json_equal(file, packed), "the store has other losses than the file");
    json_decref(file);
    json_decref(packed);
}

static void every_tool(const char *type)
{
    paths();
    TOOL("synth", "-q", "-o", model, "tiny", "layers=3", "hidden=256", "head_size=64", "vocab=600",
         "expert_inner=256", "--type", type);
    TOOL("inspect", model, "--json");
    TOOL("run", "-m", model, "--print-memory");
    TOOL("doctor", "-m", model, "--no-device", "--threads", "1", "--json");
    check_store();
    TOOL("profile", "-m", model, "--text", text, "-o", profile, "--tokens", "512", "--ctx-size",
         "64", "--importance-tokens", "128");
    TOOL("plan", "-m", model, "--profile", profile, "--text", text, "--max-loss", "50%",
         "--resident-experts", "50%", "-o", plan, "--tokens", "256", "--ctx-size", "64",
         "--configurations", "8", "--generations", "20");
    static const char *const presets[] = {"edgemoe", "hobbit", "fate", "swapmoe", "auto"};
    for (size_t i = 0; i < ARRAY_LEN(presets); i++)
        TOOL("eval", "-m", model, "--text", text, "--ctx-size", "64", "--max-windows", "1",
             "--offline", "--plan", plan, "--preset", presets[i]);
}

/* Every tool counts the experts that exist. The rest of the way: scenario_systems. */
static void layers_without_experts(void)
{
    paths();
    TOOL("synth", "-q", "-o", model, "tiny", "arch=glm4moe", "layers=4", "dense_layers=2",
         "dense_inner=512", "shared_count=1", "norm_top_k=1", "vocab=600", "--type", "Q8_0");
    json_t *doc = command_json(END_MS, (const char *const[]){"inspect", model, "--json", NULL});
    CHECK(lookup_u64(doc, "expert_entries") == 2 * 16 && lookup_u64(doc, "expert_layers") == 2,
          "%llu experts", (unsigned long long)lookup_u64(doc, "expert_entries"));
    json_decref(doc);
    doc = command_json(END_MS, (const char *const[]){"run", "-m", model, "--print-memory", NULL});
    CHECK(lookup_u64(doc, "expert_count") == 2 * 16 && lookup_u64(doc, "expert_layers") == 2,
          "%llu experts", (unsigned long long)lookup_u64(doc, "expert_count"));
    json_decref(doc);
    static const char *const presets[] = {"default", "hobbit", "fate"};
    for (size_t i = 0; i < ARRAY_LEN(presets); i++)
        TOOL("eval", "-m", model, "--text", text, "--ctx-size", "64", "--max-windows", "1",
             "--offline", "--preset", presets[i]);
    TOOL("eval", "-m", model, "--text", text, "--ctx-size", "64", "--max-windows", "1",
         "--read-bandwidth", "1GB/s");
    check_store();
}

static void q4_k_m(void)
{
    every_tool("Q4_K_M");
}

static void nvfp4(void)
{
    every_tool("NVFP4");
}

static double planned(const char *name)
{
    json_t *doc = json_load_file(plan, 0, NULL);
    const json_t *number = json_object_get(json_object_get(doc, "scalars"), name);
    double value = json_is_number(number) ? json_number_value(number) : (double)NAN;
    json_decref(doc);
    return value;
}

/* No precision is smaller in rows that are so short. */
static void ternary(void)
{
    every_tool("TQ2_0");
    CHECK(isnan(planned("fate_loss_high")), "fate is planned with larger experts");
}

/* Of less than four bits: with fate the experts are those of the model, and int2. Without a budget its plan lacks only
 * the shares, which no preset needs. */
static void few_bits(void)
{
    paths();
    TOOL("synth", "-q", "-o", model, "tiny", "layers=3", "hidden=256", "head_size=64", "vocab=600",
         "expert_inner=256", "--type", "Q3_K_S");
    TOOL("profile", "-m", model, "--text", text, "-o", profile, "--tokens", "256", "--ctx-size",
         "64", "--importance-tokens", "0");
    TOOL("plan", "-m", model, "--profile", profile, "--text", text, "--max-loss", "100%", "-o",
         plan, "--preset", "fate", "--tokens", "256", "--ctx-size", "64");
    CHECK(planned("fate_high") == PRECISION_NATIVE && planned("fate_low") == PRECISION_INT2 &&
              planned("fate_prefill_int2") > 0 && planned("fate_boundary") >= 1,
          "%g, %g, %g", planned("fate_high"), planned("fate_low"), planned("fate_prefill_int2"));
    TOOL("pack", "-m", model, "-o", store, "--delta", "--precisions", "int2", "--quiet");
    TOOL("generate", "-m", store, "--plan", plan, "--preset", "fate", "--max-loss", "100%", "-p",
         "It was", "-n", "4", "--temp", "0");
}

static void layers_that_differ(void)
{
    every_tool("Q8_0,IQ2_XXS,MXFP4");
}

int main(int argc, char **argv)
{
    static const struct test_case cases[] = {ROW(q4_k_m),
                                             ROW(nvfp4),
                                             ROW(ternary),
                                             ROW(few_bits),
                                             ROW(layers_that_differ),
                                             ROW(layers_without_experts)};
    return test_main(argc, argv, cases, ARRAY_LEN(cases));
}
