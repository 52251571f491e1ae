/* SPDX-License-Identifier: Apache-2.0 */
/* Every tool with files of several types, and with one whose layers differ: none rejects a type,
 * and a store of the native experts has the losses of the file bit for bit. A trace of the engine
 * is replayed with the accesses that the file's layers and experts imply. */
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/bytes.h"
#include "lib/tensor/precision.h"
#include "lib/tensor/tensor_type.h"
#include "tests/harness/internal.h"

#define END_MS 120000
#define TOKENS 24 /* that the engine generates for its trace */

static char model[PATH_MAX], text[PATH_MAX], ids[PATH_MAX];
static char profile[PATH_MAX], plan[PATH_MAX], store[PATH_MAX], trace[PATH_MAX];

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
    snprintf(trace, sizeof trace, "%s/trace", test_dir());
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

/* Runs the engine; returns its number of expert accesses. */
static uint64_t record(const char *from)
{
    char trace_option[PATH_MAX + 16];
    struct text got;
    snprintf(trace_option, sizeof trace_option, "--trace=%s", trace);
    struct engine *e = engine_new();
    engine_start(e, (const char *const[]){"-m", from, trace_option, "--force=on",
                                          "--resident-experts=50", NULL});
    engine_generate(e, test_prompt(0), TOKENS, &got);
    uint64_t accesses = engine_counter(e, "compute", "accesses");
    CHECK(engine_counter(e, "recorder", "records_dropped") == 0, "the trace has gaps");
    text_free(&got);
    engine_stop(e);
    return accesses;
}

static uint64_t replayed(const json_t *result, const char *phase, const char *count)
{
    return (uint64_t)json_integer_value(json_object_get(json_object_get(result, phase), count));
}

/* Of a replay with a slot for every expert and one for every second: each token accesses top_k
 * experts of each layer once, and a miss reads one expert. */
static void check_result(const json_t *result, uint64_t each, uint64_t top_k, uint64_t layers,
                         uint64_t expert_bytes)
{
    uint64_t tokens = replayed(result, "decode", "tokens");
    uint64_t decoded = replayed(result, "decode", "accesses");
    uint64_t prompt = replayed(result, "prefill", "accesses");
    uint64_t chunks = replayed(result, "prefill", "passes"), misses = 0;
    const char *budget =
        json_number_value(json_object_get(result, "budget_percent")) < 100 ? "50 %" : "100 %";
    for (int phase = 0; phase < 2; phase++) {
        const char *name = phase ? "prefill" : "decode";
        uint64_t missed = replayed(result, name, "misses");
        uint64_t served = replayed(result, name, "hits") + replayed(result, name, "hits_inflight");
        CHECK(served + missed == replayed(result, name, "accesses") &&
                  replayed(result, name, "skipped") == 0,
              "%s, %s: the accesses do not add up", budget, name);
        CHECK(replayed(result, name, "demand_bytes") == missed * expert_bytes,
              "%s, %s: %llu misses read %llu bytes, experts have %llu", budget, name,
              (unsigned long long)missed,
              (unsigned long long)replayed(result, name, "demand_bytes"),
              (unsigned long long)expert_bytes);
        misses += missed;
    }
    CHECK(tokens + 1 >= TOKENS && tokens <= TOKENS && decoded == tokens * layers * top_k,
          "%s: %llu accesses in %llu tokens", budget, (unsigned long long)decoded,
          (unsigned long long)tokens);
    CHECK(chunks > 0 && prompt >= chunks * layers * top_k && prompt <= chunks * layers * each,
          "%s: %llu accesses in %llu chunks", budget, (unsigned long long)prompt,
          (unsigned long long)chunks);
    CHECK(misses >= layers * top_k, "%s: %llu misses", budget, (unsigned long long)misses);
    if (strcmp(budget, "100 %") == 0)
        CHECK(misses <= layers * each, "%llu misses of %llu experts", (unsigned long long)misses,
              (unsigned long long)(layers * each));
}

/* The trace of an engine, replayed by `sluice sim`. */
static void check_trace(const char *from)
{
    uint64_t accesses = record(from);
    json_t *file = command_json(END_MS, (const char *const[]){"inspect", from, "--json", NULL});
    json_t *doc = command_json(END_MS, (const char *const[]){"sim", trace, "--presets", "lod",
                                                             "--budgets", "50%,100%", "--calibrate",
                                                             "0", "--read-bandwidth", "1GB/s",
                                                             "--output", "json", NULL});
    uint64_t layers = lookup_u64(file, "hparams.layers"),
             each = lookup_u64(file, "hparams.experts");
    uint64_t top_k = lookup_u64(file, "hparams.experts_used");
    uint64_t bytes = lookup_u64(file, "expert_bytes") / (layers * each);
    CHECK(lookup_u64(file, "expert_entries") == layers * each &&
              lookup_u64(doc, "layers") == layers && lookup_u64(doc, "experts") == each &&
              lookup_u64(doc, "top_k") == top_k,
          "the trace is of another model");
    CHECK(bytes > 0 && lookup_u64(doc, "expert_bytes") == bytes * layers * each,
          "%llu bytes of experts in the trace",
          (unsigned long long)lookup_u64(doc, "expert_bytes"));
    json_t *results = json_object_get(doc, "results");
    const json_t *result;
    size_t i;
    CHECK(json_array_size(results) == 2, "%zu results", json_array_size(results));
    json_array_foreach(results, i, result)
    {
        uint64_t both =
            replayed(result, "decode", "accesses") + replayed(result, "prefill", "accesses");
        CHECK(both > 0 && both == accesses, "%llu accesses in the engine, %llu in sim",
              (unsigned long long)accesses, (unsigned long long)both);
        check_result(result, each, top_k, layers, bytes);
    }
    test_note("%llu accesses, experts of %llu bytes", (unsigned long long)accesses,
              (unsigned long long)bytes);
    json_decref(doc);
    json_decref(file);
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
    json_t *planned = json_load_file(plan, 0, NULL), *scalars = json_object_get(planned, "scalars");
    CHECK(json_object_get(scalars, "hobbit_t1") && !json_object_get(scalars, "reroute_nats"),
          "%s: not what `all` plans", plan);
    json_decref(planned);
    static const char *const presets[] = {"edgemoe", "hobbit", "fate", "swapmoe", "auto"};
    for (size_t i = 0; i < ARRAY_LEN(presets); i++)
        TOOL("eval", "-m", model, "--text", text, "--ctx-size", "64", "--max-windows", "1",
             "--offline", "--plan", plan, "--preset", presets[i]);
    check_trace(model);
    check_trace(store);
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

/* Models of other architectures, which have no scales of some matrices: these are of another
 * type. */
static void nvfp4_of_others(void)
{
    static const char *const shapes[] = {"deepseek-v2-lite", "lfm2-8b-a1b", "qwen3-next-80b",
                                         "gemma-4-26b-a4b"};
    paths();
    for (size_t i = 0; i < ARRAY_LEN(shapes); i++) {
        TOOL("synth", "-q", "-o", model, shapes[i], "layers=4", "hidden=256", "experts=8",
             "experts_used=2", "expert_inner=256", "vocab=600", "--type", "NVFP4");
        json_t *doc =
            command_json(END_MS, (const char *const[]){"run", "-m", model, "--print-memory", NULL});
        CHECK(strcmp(lookup_text(doc, "expert_type"), i == 3 ? "Q8_0" : "NVFP4") == 0,
              "%s: experts of %s", shapes[i], lookup_text(doc, "expert_type"));
        json_decref(doc);
        json_decref(losses(model));
    }
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

/* Of less than four bits: with fate the experts are those of the model, and int2. Without a budget
 * its plan lacks only the shares, which no preset needs. */
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

/* A mix of synth with gate and up of the type, that of its name if it is one; NULL: there is
 * none. */
static const char *mix_of(uint32_t type, const char *type_name)
{
    static const struct {
        uint32_t base;
        const char *name;
    } mixes[] = {
#define MIX(mix, type, ...) {TENSOR_##type, #mix},
#include "procs/tools/synth/types/mixes.tbl.h"
    };
    const char *found = NULL;
    for (size_t i = ARRAY_LEN(mixes); i > 0; i--)
        if (mixes[i - 1].base == type && (!found || strcmp(found, type_name) != 0))
            found = mixes[i - 1].name;
    return found;
}

/* Not with --pure: of some types synth makes no embedding. */
static void one_type(const char *mix, const char *type)
{
    paths();
    snprintf(store, sizeof store, "%s/store-%s", test_dir(), type);
    TOOL("synth", "-q", "-o", model, "tiny", "layers=2", "hidden=256", "head_size=64", "vocab=600",
         "experts=4", "experts_used=2", "expert_inner=256", "--type", mix);
    json_t *doc = command_json(END_MS, (const char *const[]){"inspect", model, "--json", NULL});
    const json_t *types =
        json_object_get(json_array_get(json_object_get(doc, "precisions"), 0), "types");
    CHECK(strcmp(lookup_text(types, "gate"), type) == 0 &&
              strcmp(lookup_text(types, "up"), type) == 0,
          "--type %s makes experts of %s", mix, lookup_text(types, "gate"));
    json_decref(doc);
    check_store();
    CHECK(unlink(model) == 0, "cannot remove %s", model);
}

/* Those of GGUF that synth writes: all but F32, in which no weight is published. */
static void every_type(void)
{
    static const struct {
        uint32_t id;
        const char *name;
    } types[] = {
#define TENSOR_TYPE(type, number, ...) {(number), #type},
#include "lib/tensor/tensor_types.tbl.h"
    };
    unsigned met = 0;
    for (size_t i = 0; i < ARRAY_LEN(types) && types[i].id < TENSOR_TYPE_OWN_FIRST; i++) {
        const char *mix = mix_of(types[i].id, types[i].name);
        CHECK(mix || types[i].id == TENSOR_F32, "synth writes no %s", types[i].name);
        test_context(types[i].name);
        if (mix && test_sample(EVERY_type_tools, &met))
            one_type(mix, types[i].name);
    }
}

int main(int argc, char **argv)
{
    static const struct test_case cases[] = {ROW(q4_k_m),          ROW(nvfp4),
                                             ROW(nvfp4_of_others), ROW(ternary),
                                             ROW(few_bits),        ROW(layers_that_differ),
                                             ROW(every_type),      ROW(layers_without_experts)};
    return test_main(argc, argv, cases, ARRAY_LEN(cases));
}
