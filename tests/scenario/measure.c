/* SPDX-License-Identifier: Apache-2.0 */
/* The programs that measure: synth, bench, doctor; and forced tokens, which bench uses. */
#include <dirent.h>
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/bytes.h"
#include "lib/synthetic/token_stream.h"
#include "procs/clients/common/stream.h"
#include "tests/harness/internal.h"

#define END_MS 120000
#define FORCED 400

static void expect(const struct command *c, int status)
{
    CHECK(c->status == status, "status %d instead of %d: %.400s", c->status, status, c->err);
}

static char *read_file(const char *path, size_t *bytes)
{
    struct stat st;
    FILE *f = fopen(path, "re");
    CHECK(f && fstat(fileno(f), &st) == 0, "cannot open %s", path);
    char *text = malloc((size_t)st.st_size + 1);
    CHECK(text && fread(text, 1, (size_t)st.st_size, f) == (size_t)st.st_size, "cannot read %s",
          path);
    fclose(f);
    *bytes = (size_t)st.st_size;
    return text;
}

/* synth -o NAME tiny WORDS --type TYPE --seed SEED; its JSON (new reference). */
static json_t *synth(const char *name, const char *const settings[2], const char *type,
                     const char *seed, const char *threads)
{
    struct command c;
    char path[PATH_MAX];
    path_in_dir(path, name);
    command_run(&c, NULL, END_MS,
                (const char *const[]){"synth", "-q", "-o", path, "--output", "json", "--type", type,
                                      "--seed", seed, "-t", threads, "tiny", settings[0],
                                      settings[1], NULL});
    expect(&c, 0);
    json_t *doc = json_loads(c.out, JSON_ALLOW_NUL, NULL);
    CHECK(doc, "not JSON: %.200s", c.out);
    command_free(&c);
    return doc;
}

/* Equal seeds give equal bytes for any number of threads; another seed gives others. */
static void synth_reproducible(void)
{
    static const char *const types[] = {"F16", "Q8_0", "Q4_0"};
    static const char *const settings[] = {"skew=0.25", "layers=2"};
    for (size_t i = 0; i < ARRAY_LEN(types); i++) {
        char path[3][PATH_MAX];
        char *bytes[3];
        size_t count[3];
        static const char *const names[] = {"a.gguf", "b.gguf", "c.gguf"};
        for (int k = 0; k < 3; k++) {
            json_t *doc = synth(names[k], settings, types[i], k < 2 ? "7" : "8", k ? "3" : "1");
            path_in_dir(path[k], names[k]);
            bytes[k] = read_file(path[k], &count[k]);
            CHECK(lookup_u64(doc, "bytes") == count[k],
                  "synth reported %llu bytes, the file has %zu",
                  (unsigned long long)lookup_u64(doc, "bytes"), count[k]);
            json_decref(doc);
        }
        CHECK(count[0] == count[1] && memcmp(bytes[0], bytes[1], count[0]) == 0,
              "%s: the same seed gave different files", types[i]);
        CHECK(count[0] == count[2], "%s: the size depends on the seed", types[i]);
        size_t same = 0;
        for (size_t k = 0; k < count[0]; k++)
            same += bytes[0][k] == bytes[2][k];
        CHECK(same < count[0] / 2, "%s: two seeds gave nearly the same file", types[i]);
        for (int k = 0; k < 3; k++)
            free(bytes[k]);
    }
}

/* Every architecture: inspect accepts the file, and an engine generates valid text with it. */
static void synth_is_a_model(void)
{
    static const char *const settings[][2] = {{"arch=qwen3moe", NULL},
                                              {"arch=olmoe", NULL},
                                              {"arch=llama", NULL},
                                              {"arch=qwen2moe", "shared_inner=64"}};
    for (size_t i = 0; i < ARRAY_LEN(settings); i++) {
        struct command c;
        char path[PATH_MAX];
        path_in_dir(path, "model.gguf");
        json_decref(synth("model.gguf", settings[i], "Q8_0", "1", "2"));
        command_run(&c, NULL, END_MS, (const char *const[]){"inspect", path, NULL});
        expect(&c, 0);
        command_free(&c);
        command_run(&c, NULL, END_MS,
                    (const char *const[]){"generate", "-m", path, "-p", "the king, \xc3\xa9", "-n",
                                          "24", "--temp", "0", "--ignore-eos", "--resident-experts",
                                          "50", "--output", "json", NULL});
        expect(&c, 0);
        json_t *doc = json_loads(c.out, JSON_ALLOW_NUL, NULL);
        CHECK(doc && lookup_u64(doc, "tokens") == 24, "not 24 tokens: %.200s", c.out);
        /* 11 bytes, of which "th" (and then "in") are merged */
        CHECK(lookup_u64(doc, "prompt_tokens") == 10, "%llu prompt tokens",
              (unsigned long long)lookup_u64(doc, "prompt_tokens"));
        const json_t *ids = json_object_get(doc, "ids");
        size_t different = 0;
        for (size_t k = 1; k < 24; k++)
            different += json_integer_value(json_array_get(ids, k)) !=
                         json_integer_value(json_array_get(ids, 0));
        CHECK(different > 8, "%s: the text repeats one token", settings[i][0]);
        json_decref(doc);
        command_free(&c);
    }
}

static void synth_bad_input(void)
{
    static const char *const bad[][2] = {{"nothing", "skew=1"},         {"tiny", "skew"},
                                         {"tiny", "hidden=100"},        {"tiny", "weight=3"},
                                         {"tiny", "arch=gpt2"},         {"tiny", "vocab=99"},
                                         {"tiny", "experts=1.5"},       {"tiny", "experts_used=17"},
                                         {"tiny", "layers=0"},          {"tiny", "layers=513"},
                                         {"tiny", "layers=4294967295"}, {"tiny", "locality=2"}};
    char path[PATH_MAX];
    path_in_dir(path, "bad.gguf");
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct command c;
        command_run(&c, NULL, END_MS,
                    (const char *const[]){"synth", "-o", path, bad[i][0], bad[i][1], NULL});
        expect(&c, 2);
        CHECK(command_lines(c.err) == 1, "not one line: %.200s", c.err);
        command_free(&c);
        CHECK(access(path, F_OK) != 0, "a file is left behind");
    }
    struct command c; /* larger than any device */
    command_run(&c, NULL, END_MS,
                (const char *const[]){"synth", "-o", path, "tiny", "experts=4096",
                                      "expert_inner=65536", "hidden=65536", "head_size=128",
                                      "layers=512", NULL});
    expect(&c, 2);
    CHECK(strstr(c.err, "not enough space"), "the error is not about free space: %.200s", c.err);
    command_free(&c);
}

static const json_t *at(const json_t *doc, const char *array, size_t i)
{
    const json_t *item = json_array_get(json_object_get(doc, array), i);
    CHECK(item, "no %s[%zu]", array, i);
    return item;
}

/* Variants alternate and compute the same tokens: the same accesses in the same order. */
static void bench_variants(void)
{
    struct command c;
    command_run(&c, NULL, END_MS,
                (const char *const[]){"bench", "-m", test_model(), "-p", "40", "-n", "24", "-r",
                                      "2", "--resident-experts", "100,25", "--threads", "1",
                                      "--compare", "2,1", "-o", "json", NULL});
    expect(&c, 0);
    json_t *doc = json_loads(c.out, JSON_ALLOW_NUL, NULL);
    CHECK(doc, "not JSON: %.200s", c.out);
    static const json_int_t order[] = {1, 2, 2, 1};
    for (size_t i = 0; i < ARRAY_LEN(order); i++)
        CHECK(json_integer_value(at(doc, "order", i)) == order[i],
              "the variants did not alternate");
    CHECK(json_is_true(json_object_get(doc, "same_accesses")), "the variants differ in accesses");
    CHECK(json_array_size(json_object_get(doc, "variants")) == 2, "not two variants");
    for (size_t i = 0; i < 2; i++) {
        const json_t *variant = at(doc, "variants", i);
        CHECK(json_array_size(json_object_get(variant, "tests")) == 2, "not two tests");
        for (size_t t = 0; t < 2; t++) {
            const json_t *test = at(variant, "tests", t);
            CHECK(json_array_size(json_object_get(test, "samples")) == 2, "not two samples");
            CHECK(json_number_value(json_object_get(test, "tps_mean")) > 0, "no rate");
        }
        /* 8 layers, 4 experts, a prompt of one and 24 steps, two repetitions */
        CHECK(json_number_value(json_object_get(at(variant, "tests", 1), "accesses")) ==
                  8 * 4 * 25 * 2,
              "%g accesses",
              json_number_value(json_object_get(at(variant, "tests", 1), "accesses")));
    }
    CHECK(json_integer_value(json_object_get(doc, "resident_variant")) == 1,
          "variant 1 is resident");
    const json_t *test = at(at(doc, "variants", 1), "tests", 1);
    CHECK(json_number_value(json_object_get(test, "miss_percent")) +
                  json_number_value(json_object_get(test, "inflight_percent")) >
              0,
          "no misses with a quarter of the experts resident");
    CHECK(json_array_size(json_object_get(doc, "comparisons")) == 2, "not two comparisons");
    json_decref(doc);
    command_free(&c);
}

/* A test of bench -d: its name, depth and accesses, each with 8 layers and 4 experts. */
static void check_depth_test(const json_t *test, const char *name, uint64_t depth, uint64_t tokens)
{
    const char *named = lookup_text(test, "test");
    CHECK(strcmp(named, name) == 0, "test %s instead of %s", named, name);
    CHECK(lookup_u64(test, "depth") == depth, "%s: depth %" PRIu64, name,
          lookup_u64(test, "depth"));
    const json_t *sample = at(test, "samples", 0);
    CHECK(json_number_value(json_object_get(sample, "tps")) > 0, "%s: no rate", name);
    CHECK(json_number_value(json_object_get(sample, "tokens")) == (double)tokens,
          "%s: %g tokens computed instead of %" PRIu64, name,
          json_number_value(json_object_get(sample, "tokens")), tokens);
}

/* The context of a depth is in the engine before the test, and belongs to no test: a test computes
 * its own tokens. Decode is the step of one prompt token and 12 more. */
static void bench_depth(void)
{
    static const char *const interleave[] = {NULL, "--interleave=4"};
    for (size_t i = 0; i < ARRAY_LEN(interleave); i++) {
        struct command c;
        command_run(&c, NULL, END_MS,
                    (const char *const[]){"bench", "-m", test_model(), "-p", "20", "-n", "200",
                                          "-r", "1", "-d", "0,300,90", "--threads", "1", "-o",
                                          "json", interleave[i], NULL});
        expect(&c, 0);
        json_t *doc = json_loads(c.out, JSON_ALLOW_NUL, NULL);
        CHECK(doc, "not JSON: %.200s", c.out);
        const json_t *variant = at(doc, "variants", 0);
        CHECK(json_array_size(json_object_get(variant, "tests")) == 6, "not six tests");
        check_depth_test(at(variant, "tests", 0), "pp20", 0, 20);
        check_depth_test(at(variant, "tests", 1), "tg200", 0, 201);
        check_depth_test(at(variant, "tests", 2), "pp20 @ d300", 300, 20);
        check_depth_test(at(variant, "tests", 3), "tg200 @ d300", 300, 201);
        check_depth_test(at(variant, "tests", 4), "pp20 @ d90", 90, 20);
        check_depth_test(at(variant, "tests", 5), "tg200 @ d90", 90, 201);
        CHECK(json_integer_value(at(json_object_get(doc, "settings"), "depths", 1)) == 300,
              "the settings do not list the depths");
        json_decref(doc);
        command_free(&c);
    }
}

/* The slices of a sample add up to its time, and to its tokens except those decoded before the
 * first slice. */
static void check_slices(const json_t *sample, uint64_t tokens)
{
    const json_t *slices = json_object_get(sample, "slices");
    uint64_t reported = 0;
    double ms = 0, all_ms = json_number_value(json_object_get(sample, "ms"));
    for (size_t i = 0; i < json_array_size(slices); i++) {
        const json_t *turn = json_array_get(slices, i);
        reported += (uint64_t)json_integer_value(json_array_get(turn, 0));
        ms += json_number_value(json_array_get(turn, 1));
    }
    CHECK(json_array_size(slices) > 1, "%zu slices", json_array_size(slices));
    CHECK(reported <= tokens && reported + 4 > tokens, "%" PRIu64 " of %" PRIu64 " tokens",
          reported, tokens);
    CHECK(fabs(ms - all_ms) < 1e-3, "slices of %g ms, a sample of %g ms", ms, all_ms);
}

/* Interleaved: one engine decodes while the other is stopped. No access is lost, and a stopped
 * process does not count as crashed. */
static void bench_interleave(void)
{
    struct command c;
    command_run(&c, NULL, END_MS,
                (const char *const[]){"bench", "-m", test_model(), "-p", "0", "-n", "30", "-r", "2",
                                      "--resident-experts", "50,25", "--threads", "1",
                                      "--interleave", "4", "-o", "json", NULL});
    expect(&c, 0);
    json_t *doc = json_loads(c.out, JSON_ALLOW_NUL, NULL);
    CHECK(doc, "not JSON: %.200s", c.out);
    CHECK(json_is_true(json_object_get(doc, "same_accesses")), "the variants differ in accesses");
    for (size_t i = 0; i < 2; i++) {
        const json_t *test = at(at(doc, "variants", i), "tests", 0);
        CHECK(json_number_value(json_object_get(test, "tps_median")) > 0, "no rate");
        CHECK(json_is_null(json_object_get(test, "stall_ms_per_token")),
              "stall_ms_per_token is not null");
        CHECK(json_number_value(json_object_get(test, "accesses")) == 8 * 4 * 31 * 2,
              "accesses are lost");
        for (size_t s = 0; s < 2; s++) {
            CHECK(json_integer_value(json_object_get(at(test, "samples", s), "restarts")) == 0,
                  "a stopped process was restarted");
            check_slices(at(test, "samples", s), 30);
        }
    }
    json_decref(doc);
    command_free(&c);
}

/* Variants with different parameters, and the counters of each. */
static void bench_explicit_variants(void)
{
    struct command c;
    command_run(&c, NULL, END_MS,
                (const char *const[]){"bench",
                                      "-m",
                                      test_model(),
                                      "-p",
                                      "0",
                                      "-n",
                                      "20",
                                      "-r",
                                      "1",
                                      "--warmup-tokens",
                                      "60",
                                      "--resident-experts",
                                      "25",
                                      "--variant",
                                      "label=none;preset=lod",
                                      "--variant",
                                      "preset=fate;policy=precision=lossless,prefetch=all",
                                      "-o",
                                      "json",
                                      NULL});
    expect(&c, 0);
    json_t *doc = json_loads(c.out, JSON_ALLOW_NUL, NULL);
    CHECK(doc, "not JSON: %.200s", c.out);
    static const char *const label[] = {"none",
                                        "preset=fate;policy=precision=lossless,prefetch=all"};
    for (size_t i = 0; i < 2; i++) {
        const json_t *variant = at(doc, "variants", i),
                     *sample = at(at(variant, "tests", 0), "samples", 0);
        const char *name = json_string_value(json_object_get(variant, "label"));
        CHECK(name && strcmp(name, label[i]) == 0, "variant %zu is labelled %s", i, name);
        /* 8 layers, 4 experts, a prompt of one and 20 steps: the warm-up is not in it */
        CHECK(lookup_u64(sample, "counters.compute.accesses") == 8 * 4 * 21, "%llu accesses",
              (unsigned long long)lookup_u64(sample, "counters.compute.accesses"));
        uint64_t hints = lookup_u64(sample, "counters.cache.hint_entries");
        uint64_t missing = lookup_u64(sample, "counters.cache.predicted_absent");
        uint64_t fetched = lookup_u64(sample, "counters.cache.prefetches_timely") +
                           lookup_u64(sample, "counters.cache.prefetches_late");
        CHECK((hints > 0) == (i == 1), "variant %zu: %llu hints", i, (unsigned long long)hints);
        CHECK(i == 0 || (fetched > 0 && missing > 0 && missing <= hints),
              "%llu hinted, %llu missing, %llu fetched", (unsigned long long)hints,
              (unsigned long long)missing, (unsigned long long)fetched);
    }
    json_decref(doc);
    command_free(&c);
}

static void bench_forms(void)
{
    struct command c;
    char text[PATH_MAX];
    path_in_dir(text, "text");
    FILE *f = fopen(text, "we");
    for (int i = 0; i < 40; i++)
        fputs("It was a dark and stormy night, and the king had three sons. ", f);
    fclose(f);
    command_run(&c, NULL, END_MS,
                (const char *const[]){"bench", "-m", test_model(), "-p", "0", "-n", "8", "-r", "1",
                                      "--text", text, "--vary", "eviction=lru,fifo", "-o", "csv",
                                      NULL});
    expect(&c, 0);
    CHECK(command_lines(c.out) == 3, "not a heading and two variants: %s", c.out);
    CHECK(strstr(c.out, "\"eviction=fifo\",tg8"), "no variant with fifo: %s", c.out);
    command_free(&c);
    static const char *const bad[][4] = {{"--vary", "nothing=1,2"},
                                         {"--resident-experts", "50,lots"},
                                         {"--compare", "1,2"},
                                         {"--variant", "label=a;preset"},
                                         {"--variant", "resident_experts=lots"},
                                         {"-n", "-1"},
                                         {"-d", "128,-1"},
                                         {"-d", "128,128"},
                                         {"-d", "59999"},
                                         {"-d", "1,"},
                                         {"-d", "128", "--keep-kv", "0"},
                                         {"--parallel", "2", "--interleave", "4"},
                                         {"--text", "/nowhere"}};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        command_run(&c, NULL, END_MS,
                    (const char *const[]){"bench", "-m", test_model(), "-r", "1", bad[i][0],
                                          bad[i][1], bad[i][2], bad[i][3], NULL});
        expect(&c, 2);
        CHECK(command_lines(c.err) == 1, "not one line: %.200s", c.err);
        command_free(&c);
    }
}

/* Forced tokens are returned unchanged, also when compute is killed meanwhile. */
static void forced_tokens(void)
{
    struct engine *e = engine_new();
    struct engine_submit submit;
    struct error error;
    struct stream_result result;
    uint32_t ids[FORCED + 4];
    uint64_t id;
    engine_start(e, (const char *const[]){"--resident-experts", "25", NULL});
    token_stream_fill(3, 0.5, 4096, ids, ARRAY_LEN(ids));
    engine_submit_defaults(&submit);
    submit.prompt_ids = ids;
    submit.prompt_ids_count = 4;
    submit.forced = ids + 4;
    submit.forced_count = FORCED;
    submit.max_tokens = FORCED + 2;
    submit.ignore_eos = true;
    CHECK(stream_submit(e->session, &submit, &id, &error) == 0, "%s", error.text);
    engine_wait_counter(e, "compute", "tokens_decode", 20, END_MS);
    kill(engine_pid(e, "compute", 0, 0), SIGKILL);
    CHECK(stream_follow(e->session, id, NULL, NULL, &result, &error) == 0, "%s", error.text);
    CHECK(result.count == FORCED + 2, "%zu tokens", result.count);
    CHECK(memcmp(result.ids, ids + 4, FORCED * sizeof *ids) == 0, "the tokens differ");
    CHECK(lookup_u64(result.stats, "resumes") >= 1, "the sequence was not resumed");
    stream_result_free(&result);
    ids[5] = 4096; /* not in the vocabulary */
    CHECK(stream_submit(e->session, &submit, &id, &error) != 0 && error.code == ERR_BAD_INPUT,
          "a token outside of the vocabulary was accepted");
    engine_stop(e);
}

static size_t files_in(const char *path)
{
    size_t n = 0;
    DIR *dir = opendir(path);
    CHECK(dir, "cannot open %s", path);
    for (struct dirent *e; (e = readdir(dir)) != NULL;)
        n += e->d_name[0] != '.';
    closedir(dir);
    return n;
}

static void doctor_json(void)
{
    struct command c;
    command_run(&c, NULL, END_MS,
                (const char *const[]){"doctor", "--path", test_dir(), "--seconds", "1",
                                      "--expert-bytes", "1MiB", "-o", "json", NULL});
    expect(&c, 0);
    CHECK(files_in(test_dir()) == 0, "a scratch file is left behind");
    json_t *doc = json_loads(c.out, JSON_ALLOW_NUL, NULL);
    CHECK(doc, "not JSON: %.200s", c.out);
    const json_t *storage = json_object_get(doc, "device"),
                 *memory = json_object_get(doc, "memory");
    size_t cells = json_array_size(json_object_get(storage, "cells")), measured = 0;
    for (size_t i = 0; i < cells; i++)
        measured += json_number_value(json_object_get(at(storage, "cells", i), "bytes_per_s")) > 0;
    CHECK(cells == 60 && measured >= cells / 4, "%zu of %zu cells were measured", measured, cells);
    double best = json_number_value(json_object_get(storage, "bytes_per_s"));
    CHECK(best > 1e5 && best < 1e12, "%g bytes/s", best);
    CHECK(json_number_value(json_object_get(memory, "read_all_threads")) > 1e8, "no bandwidth");
    CHECK(lookup_u64(doc, "cpu.cpus") > 0, "no CPUs");
    CHECK(json_is_boolean(json_object_get(json_object_get(doc, "cgroup"), "v1")), "no cgroup");
    CHECK(json_array_size(json_object_get(doc, "lines")) > 30, "few lines");
    CHECK(!strstr(c.out, "(null)"), "a finding without a text");
    const json_t *gpu = json_object_get(doc, "gpu");
    CHECK(json_is_integer(json_object_get(gpu, "devices")), "no number of GPUs");
    CHECK(json_is_boolean(json_object_get(gpu, "kernels")), "no CUDA module, nor its absence");
    json_decref(doc);
    command_free(&c);
    command_run(&c, NULL, END_MS, (const char *const[]){"doctor", "--path", "/nowhere", NULL});
    expect(&c, 2);
    command_free(&c);
}

/* With a model: the ledger's budgets, estimates, and advice as names; a section for each of two
 * devices; the largest read is one expert. */
static void doctor_model(void)
{
    struct command c, memory_estimate;
    command_run(&c, NULL, END_MS,
                (const char *const[]){"doctor", "-m", test_model(), "-p", test_model(), "-p",
                                      test_model(), "--seconds", "2", "--json", NULL});
    expect(&c, 0);
    command_run(&memory_estimate, NULL, END_MS,
                (const char *const[]){"run", "-m", test_model(), "--print-memory", NULL});
    expect(&memory_estimate, 0);
    json_t *doc = json_loads(c.out, JSON_ALLOW_NUL, NULL),
           *ledger = json_loads(memory_estimate.out, 0, NULL);
    CHECK(doc && ledger, "not JSON: %.200s", c.out);
    CHECK(lookup_u64(doc, "model.min_budget") == lookup_u64(ledger, "min_budget"),
          "minimum budget %llu", (unsigned long long)lookup_u64(doc, "model.min_budget"));
    CHECK(lookup_u64(doc, "model.everything") == lookup_u64(ledger, "budgets.100"),
          "everything %llu", (unsigned long long)lookup_u64(doc, "model.everything"));
    const json_t *model = json_object_get(doc, "model");
    const json_t *estimates = json_object_get(model, "estimates");
    CHECK(json_array_size(estimates) == 4, "%zu estimates", json_array_size(estimates));
    /* The last one is for all experts resident, which needs no reads: no other may be faster. */
    double whole = 1e6;
    for (size_t i = 4; i-- > 0;) {
        const json_t *e = json_array_get(estimates, i);
        double decode = json_number_value(json_object_get(e, "decode_tps"));
        double prefill = json_number_value(json_object_get(e, "prefill_tps"));
        CHECK(decode > 0 && decode <= whole && prefill > 0, "estimate %zu: %g", i, decode);
        whole = i == 3 ? decode : whole;
    }
    CHECK(lookup_u64(doc, "memory.read_array_bytes") >= lookup_u64(doc, "cpu.cache"), "caches");
    CHECK(json_is_array(json_object_get(json_object_get(doc, "advice"), "names")), "no advice");
    const json_t *second = json_object_get(doc, "device 2");
    CHECK(json_array_size(json_object_get(second, "cells")) == 60, "no second device");
    uint64_t expert = lookup_u64(ledger, "expert_bytes") / lookup_u64(ledger, "expert_count");
    uint64_t read = lookup_u64(at(second, "cells", 59), "bytes");
    CHECK(read == align_up(expert, 4096), "reads of %llu bytes", (unsigned long long)read);
    const json_t *beside = json_object_get(model, "measured");
    CHECK(json_number_value(json_object_get(beside, "slowdown")) >= 1 &&
              json_number_value(json_object_get(beside, "busy_bytes_per_s")) > 1e5,
          "computing beside reads was not measured");
    const json_t *verdict = json_object_get(doc, "verdict");
    CHECK(json_array_size(json_object_get(verdict, "lines")) == 5 &&
              lookup_u64(verdict, "budget_bytes") == lookup_u64(doc, "model.budget") &&
              json_number_value(json_object_get(verdict, "decode_tps")) > 0,
          "verdict and model differ");
    json_decref(doc);
    json_decref(ledger);
    command_free(&memory_estimate);
    /* Parameters reach the ledger: a longer context needs more, also of keys and values. */
    uint64_t min_budget = 0, kv = 0;
    for (unsigned i = 0; i < 2; i++) {
        command_free(&c);
        command_run(&c, NULL, END_MS,
                    (const char *const[]){"doctor", "-m", test_model(), "--no-device", "--json",
                                          "--ctx-size", i ? "8192" : "512", NULL});
        expect(&c, 0);
        doc = json_loads(c.out, JSON_ALLOW_NUL, NULL);
        CHECK(lookup_u64(doc, "model.min_budget") > min_budget,
              "a longer context needs no more than %llu", (unsigned long long)min_budget);
        CHECK(lookup_u64(doc, "model.kv_cache") > kv, "keys and values of %llu bytes",
              (unsigned long long)kv);
        min_budget = lookup_u64(doc, "model.min_budget");
        kv = lookup_u64(doc, "model.kv_cache");
        json_decref(doc);
    }
    command_free(&c);
    command_run(&c, NULL, END_MS,
                (const char *const[]){"doctor", "-m", "/nowhere", "--no-device", NULL});
    expect(&c, 2);
    command_free(&c);
}

/* On a terminal the stages are shown, the verdict comes first, and lines break between words. */
static void doctor_on_a_terminal(void)
{
    static const char *const shown[] = {
        "doctor: reading memory",
        "doctor: computing with the model's shapes",
        "doctor: simulating",
        "fits     yes, with all of its 25.5 MiB of experts in memory\r\n",
        "budget   ",
        "speed    about ",
        " tokens/s; a prompt of 500 tokens takes about ",
        "limit    ",
        "next     sluice repl -m ",
        "\r\nmodel\r\n"};
    struct terminal *t = terminal_open(
        24, 80, -1, (const char *const[]){"doctor", "--no-device", test_model(), NULL});
    for (size_t i = 0; i < ARRAY_LEN(shown); i++)
        terminal_wait(t, shown[i], END_MS);
    /* Longer than its column. Where a line breaks depends on the figures beside it, which vary. */
    terminal_wait_words(
        t, "of each budget: keys and values of 2048 tokens (--ctx-size), type f16 (--kv-type)",
        END_MS);
    terminal_wait(t, "\r\nadvice\r\n", END_MS);
    terminal_wait(t, "--all prints all measurements", END_MS);
    CHECK(terminal_end(t, END_MS) == 0, "the exit status is not 0");
}

/* As a file: the shorter form has few sections, --all each of them once; unknown speeds are called
 * so. */
static void doctor_has_two_forms(void)
{
    for (int all = 0; all < 2; all++) {
        struct command c;
        command_run(&c, NULL, END_MS,
                    (const char *const[]){"doctor", "--no-device", "-m", test_model(),
                                          all ? "--all" : NULL, NULL});
        expect(&c, 0);
        const char *memory = strstr(c.out, "\nmemory\n");
        CHECK(strncmp(c.out, "fits     ", 9) == 0 && (memory != NULL) == all, "%.600s", c.out);
        CHECK(!memory || !strstr(memory + 1, "\nmemory\n"), "memory twice: %.900s", c.out);
        CHECK(strstr(c.out, "estimate 50 %   unknown ") && !strstr(c.out, "e+") &&
                  strstr(c.err, "doctor: reading memory"),
              "%.900s", c.out);
        command_free(&c);
    }
}

int main(int argc, char **argv)
{
    static const struct test_case cases[] = {
        {"synth_reproducible", synth_reproducible},
        {"synth_is_a_model", synth_is_a_model},
        {"synth_bad_input", synth_bad_input},
        {"bench_variants", bench_variants},
        {"bench_explicit_variants", bench_explicit_variants},
        {"bench_interleave", bench_interleave},
        {"bench_depth", bench_depth},
        {"bench_forms", bench_forms},
        {"forced_tokens", forced_tokens},
        {"doctor_json", doctor_json},
        {"doctor_model", doctor_model},
        {"doctor_on_a_terminal", doctor_on_a_terminal},
        {"doctor_has_two_forms", doctor_has_two_forms},
    };
    return test_main(argc, argv, cases, ARRAY_LEN(cases));
}
