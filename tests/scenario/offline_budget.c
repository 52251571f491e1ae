/* SPDX-License-Identifier: Apache-2.0 */
/* Offline tools within a budget, in a memory cgroup with that limit: the results are those of the
 * mapped model, from a file, a split file and a store; what is read is stated beforehand, and
 * progress. */
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "lib/base/bytes.h"
#include "tests/harness/internal.h"

#define END_MS     240000
#define ONE_END_MS 20000
#define TEXT       SLUICE_SOURCE_DIR "/tests/golden/data/heldout/tales.txt"
#define ARGS       32
#define PLAN_ARGS  25
#define PLAN_BYTES (16 * MIB)

static char program[PATH_MAX], join[PATH_MAX + 64];

/* Runs `sluice-TOOL args...` in a new cgroup of `bytes`, which must suffice; 0: without a
 * cgroup. */
static void run(struct command *c, const char *tool, uint64_t bytes, const char *const args[])
{
    const char *argv[ARGS] = {"/bin/sh", "-c", join, program};
    char group[PATH_MAX] = "";
    size_t n = 4;
    if (bytes > 0) {
        cgroup_make(group);
        cgroup_limit(group, bytes);
    }
    snprintf(program, sizeof program, "%s/sluice-%s", test_libexec(), tool);
    snprintf(join, sizeof join, "%s%s%s exec \"$0\" \"$@\"", bytes ? "echo $$ > '" : "", group,
             bytes ? "/cgroup.procs' &&" : "");
    for (size_t i = 0; args[i]; i++) {
        CHECK(n + 1 < ARGS, "too many arguments");
        argv[n++] = args[i];
    }
    argv[n] = NULL;
    command_run(c, NULL, END_MS, argv);
    CHECK(c->status == 0, "%s: status %d: %.300s", tool, c->status, c->err);
    CHECK(!bytes || cgroup_failures(group) == 0, "%s: a process was killed for lack of memory",
          tool);
}

/* The same; what it prints does not matter. */
static void complete(const char *tool, uint64_t bytes, const char *const args[])
{
    struct command c;
    run(&c, tool, bytes, args);
    command_free(&c);
}

/* eval --offline of the model at `path`; NULL budget: mapped. The caller frees. */
static char *losses(const char *path, const char *budget, const char *more, const char *value)
{
    struct command c;
    uint64_t bytes = 0;
    char windows[16];
    snprintf(windows, sizeof windows, "%u", test_amount(AMOUNT_offline_windows));
    CHECK(!budget || bytes_parse(budget, &bytes), "%s", budget);
    const char *all[ARGS] = {"-m",       path,   "--text",     TEXT,  "--offline",
                             "--output", "json", "--ctx-size", "128", "--max-windows",
                             windows};
    size_t n = 11;
    all[n++] = more ? more : "--kld";
    if (more)
        all[n++] = value;
    if (budget) {
        all[n++] = "--budget";
        all[n++] = budget;
    }
    all[n] = NULL;
    run(&c, "eval", bytes, all);
    if (budget) {
        const char *stated = strstr(c.err, "reads at most");
        CHECK(stated, "it does not state what it reads: %.300s", c.err);
    }
    char *out = strdup(c.out);
    command_free(&c);
    return out;
}

/* mapped: the same model as a file. */
static void check_files(const char *mapped, const char *path, const char *budget, const char *more,
                        const char *value)
{
    char *want = losses(mapped, NULL, more, value), *got = losses(path, budget, more, value);
    CHECK(strcmp(want, got) == 0, "%s, %s: other losses: %s and %s", path, budget, want, got);
    free(want);
    free(got);
}

static void check_same(const char *path, const char *budget, const char *more, const char *value)
{
    check_files(test_model(), path, budget, more, value);
}

/* A model as one file, and as three. */
static void make_both(const char *shape, const char *more, char path[PATH_MAX],
                      char first[PATH_MAX])
{
    char split[PATH_MAX];
    path_in_dir(path, "one.gguf");
    path_in_dir(split, "split.gguf");
    path_in_dir(first, "split-00001-of-00003.gguf");
    complete("synth", 0, (const char *const[]){"-o", path, shape, more, "--quiet", NULL});
    complete("synth", 0,
             (const char *const[]){"-o", split, shape, more, "--quiet", "--split", "3", NULL});
}

/* A file of 1.9 GiB in less than a quarter of it, and the same model in three files. */
static void four_times_the_budget(void)
{
    char path[PATH_MAX], first[PATH_MAX];
    make_both("olmoe-1b-7b", "layers=8", path, first);
    check_files(path, path, "460MiB", NULL, NULL);
    check_files(path, first, "460MiB", NULL, NULL);
}

/* A split file in less than its size. */
static void eval_of_a_split_file(void)
{
    char path[PATH_MAX], first[PATH_MAX];
    make_both("tiny", "arch=qwen3moe", path, first);
    check_files(path, first, "20MiB", NULL, NULL);
}

/* The demo model has 28 MiB of experts; the rest of the program takes about 11 MiB. */
static void eval_of_a_file(void)
{
    check_same(test_model(), "20MiB", NULL, NULL);
    check_same(test_model(), "24MiB", "--policy", "precision=uniform-int4");
    if (!test_long())
        return;
    check_same(test_model(), "14MiB", NULL, NULL);
    check_same(test_model(), "16MiB", "--policy", "precision=hobbit");
}

/* Experts of 2 bits, made at 8: one is larger than two of the file. Budgets are too small, each in
 * one line, until one suffices. */
static void forms_larger_than_the_file(void)
{
    char path[PATH_MAX], budget[32];
    struct command c;
    unsigned small = 0, enough = 0;
    path_in_dir(path, "q2.gguf");
    complete("synth", 0,
             (const char *const[]){"-o", path, "tiny", "layers=3", "hidden=256", "head_size=64",
                                   "expert_inner=1024", "--type", "Q2_K", "--quiet", NULL});
    for (uint64_t bytes = 9 * MIB; bytes < 14 * MIB && enough == 0; bytes += MIB / 8) {
        snprintf(budget, sizeof budget, "%" PRIu64, bytes);
        command_run(&c, NULL, ONE_END_MS,
                    (const char *const[]){"eval", "-m", path, "--text", TEXT, "--offline",
                                          "--budget", budget, "--ctx-size", "16", "--max-windows",
                                          "1", "--threads", "1", "--policy",
                                          "precision=uniform-int8", NULL});
        bool is_small = strstr(c.err, "is too small") && command_lines(c.err) == 1;
        CHECK(c.status == 0 || is_small, "%s: status %d: %.300s", budget, c.status, c.err);
        c.status == 0 ? enough++ : small++;
        command_free(&c);
    }
    CHECK(small > 0 && enough > 0, "%u budgets were too small, %u sufficed", small, enough);
}

static void eval_of_a_store(void)
{
    char store[PATH_MAX];
    path_in_dir(store, "store");
    complete("pack", 0,
             (const char *const[]){"-m", test_model(), "-o", store, "--precisions", "native,int4",
                                   "--quiet", NULL});
    check_same(store, "20MiB", NULL, NULL);
    check_same(store, "20MiB", "--policy", "precision=uniform-int4");
}

/* Every byte of a stripe is wrong, but not its size or time: its mirror is read. */
static void eval_with_a_damaged_stripe(void)
{
    char store[PATH_MAX], stripe[PATH_MAX], mirror[PATH_MAX], bytes[4096];
    struct stat st;
    path_in_dir(store, "mirrored");
    path_in_dir(stripe, "stripe");
    path_in_dir(mirror, "mirror");
    complete("pack", 0,
             (const char *const[]){"-m", test_model(), "-o", store, "--stripes", stripe,
                                   "--mirrors", mirror, "--quiet", NULL});
    FILE *f = fopen(stripe, "r+");
    CHECK(f && fstat(fileno(f), &st) == 0, "no %s", stripe);
    memset(bytes, 0x5a, sizeof bytes);
    for (off_t at = 0; at < st.st_size; at += (off_t)sizeof bytes)
        CHECK(fwrite(bytes, 1, (size_t)(st.st_size - at < 4096 ? st.st_size - at : 4096), f) > 0,
              "%s", stripe);
    CHECK(fflush(f) == 0, "%s", stripe);
    const struct timespec times[2] = {st.st_atim, st.st_mtim};
    CHECK(futimens(fileno(f), times) == 0 && fclose(f) == 0, "%s", stripe);
    check_same(store, "20MiB", NULL, NULL);
}

static void too_small(void)
{
    struct command c;
    command_run(&c, NULL, END_MS,
                (const char *const[]){"eval", "-m", test_model(), "--text", TEXT, "--offline",
                                      "--budget", "9MiB", NULL});
    CHECK(c.status != 0 && strstr(c.err, "memory of 9") && command_lines(c.err) == 1,
          "status %d: %.300s", c.status, c.err);
    command_free(&c);
}

/* A long evaluation ends at the first signal; else timeout kills it, and its own status is 137. */
static void interrupted(void)
{
    struct command c;
    snprintf(program, sizeof program, "%s/sluice-eval", test_libexec());
    command_run(&c, NULL, END_MS,
                (const char *const[]){"/usr/bin/timeout", "-k", "20", "0.5", program, "-m",
                                      test_model(), "--text", TEXT, "--offline", "--budget",
                                      "14MiB", NULL});
    CHECK(c.status == 124, "status %d: %.300s", c.status, c.err);
    command_free(&c);
}

/* Recurrent states and latents of one layer at a time: as mapped, and as token by token, all layers
 * of each. */
static void eval_of_other_mixers(void)
{
    static const char *const shapes[][18] = {
        {"arch=qwen3next", "shared_inner=256", "rope_dims=16", "conv_taps=4", "delta_size=32",
         "delta_k_heads=2", "delta_v_heads=4", "delta_inner=128", "attention_step=2",
         "head_size=64"},
        {"arch=deepseek2", "dense_layers=1", "dense_inner=512", "shared_count=1", "kv_heads=1",
         "head_size=0", "q_rank=256", "kv_rank=256", "mla_key_size=160", "mla_value_size=64",
         "rope_dims=32"}};
    char path[PATH_MAX];
    path_in_dir(path, "shape.gguf");
    for (size_t i = 0; i < ARRAY_LEN(shapes); i++) {
        const char *args[ARGS] = {
            "-o", path, "--quiet", "tiny", "hidden=256", "expert_inner=256", "layers=3"};
        for (size_t k = 0; shapes[i][k]; k++)
            args[7 + k] = shapes[i][k];
        complete("synth", 0, args);
        check_files(path, path, "14MiB", NULL, NULL);
        char *ordered = losses(path, "14MiB", "--read-bandwidth", "1GB/s");
        CHECK(strstr(ordered, "\"loss\": 0.0,"), "%s: %s", shapes[i][0], ordered);
        free(ordered);
    }
}

/* Each segment that is decoded abreast has a simulated clock. Of so many experts, 32 clocks would
 * take more than the whole memory. */
static void clocks_of_many_streams(void)
{
    char model[PATH_MAX];
    path_in_dir(model, "clocks.gguf");
    complete("synth", 0,
             (const char *const[]){"-o", model, "tiny", "arch=qwen3moe", "layers=24", "hidden=64",
                                   "head_size=32", "expert_inner=64", "experts=128",
                                   "experts_used=2", "--quiet", NULL});
    complete("eval", 32 * MIB,
             (const char *const[]){"-m", model, "--text", TEXT, "--offline", "--read-bandwidth",
                                   "1GB/s", "--preset", "hobbit", "--ctx-size", "8",
                                   "--max-windows", "140", "--threads", "1", "--memory", "32MiB",
                                   NULL});
}

/* ---- profile ---- */

static void profile(const char *path, uint64_t bytes, const char *kill_after_s)
{
    const char *measured = test_long() ? "256" : "0", *limit = bytes ? "--budget" : NULL;
    char budget[32], tokens[16];
    struct command c;
    snprintf(budget, sizeof budget, "%" PRIu64, bytes ? bytes : 4 * GIB);
    snprintf(tokens, sizeof tokens, "%u", test_amount(AMOUNT_offline_profile_tokens));
    const char *args[] = {"-m",
                          test_model(),
                          "--text",
                          TEXT,
                          "-o",
                          path,
                          "--ctx-size=128",
                          "--pair-mib=2",
                          "--tokens",
                          tokens,
                          "--importance-tokens",
                          measured,
                          limit,
                          budget,
                          NULL};
    if (!kill_after_s) {
        run(&c, "profile", bytes, args);
    } else { /* its status does not matter: it may end before */
        const char *argv[ARGS + 6] = {"/usr/bin/timeout", "-s", "KILL", kill_after_s, program};
        snprintf(program, sizeof program, "%s/sluice-profile", test_libexec());
        memcpy(argv + 5, args, sizeof args);
        command_run(&c, NULL, END_MS, argv);
    }
    command_free(&c);
}

/* What does not depend on time: the file of its tables, whose name has their hash, and the loss. */
static char *measured(const char *path)
{
    json_error_t why;
    json_t *doc = json_load_file(path, 0, &why);
    CHECK(doc, "%s: %s", path, why.text);
    const char *file = json_string_value(json_object_get(json_object_get(doc, "tables"), "file"));
    CHECK(file && strchr(file, '.'), "%s: no tables", path);
    char *text = NULL;
    CHECK(asprintf(&text, "%s, %.17g nats, base %.17g", strchr(file, '.'),
                   json_number_value(json_object_get(json_object_get(doc, "scalars"), "nats")),
                   json_number_value(
                       json_object_get(json_object_get(doc, "scalars"), "importance_base"))) > 0,
          "out of memory");
    json_decref(doc);
    return text;
}

/* Nothing is resumed of a profile whose tokens had another context. */
static void other_windows_are_rejected(const char *path)
{
    char tokens[16];
    struct command c;
    snprintf(tokens, sizeof tokens, "%u", test_amount(AMOUNT_offline_profile_tokens));
    command_run(&c, NULL, END_MS,
                (const char *const[]){"profile", "-m", test_model(), "--text", TEXT, "-o", path,
                                      "--ctx-size", "64", "--tokens", tokens, "--pair-mib", "2",
                                      "--importance-tokens", "0", NULL});
    CHECK(c.status == 2 && strstr(c.err, "another text or --ctx-size"), "status %d: %.400s",
          c.status, c.err);
    command_free(&c);
}

static void profile_and_kills(void)
{
    char mapped[PATH_MAX], within[PATH_MAX], killed[PATH_MAX], after[32];
    path_in_dir(mapped, "mapped");
    path_in_dir(within, "within");
    path_in_dir(killed, "killed");
    profile(mapped, 0, NULL);
    profile(within, 24 * MIB, NULL);
    char *want = measured(mapped), *got = measured(within);
    CHECK(strcmp(want, got) == 0, "other statistics within a budget: %s and %s", want, got);
    free(got);
    for (unsigned i = 0; i < test_amount(AMOUNT_offline_kills); i++) {
        snprintf(after, sizeof after, "%.3f", (double)(rand() % 1000) / (test_long() ? 200 : 600));
        profile(killed, 24 * MIB, after);
    }
    profile(killed, 24 * MIB, NULL);
    got = measured(killed);
    CHECK(strcmp(want, got) == 0, "other statistics after kills: %s and %s", want, got);
    other_windows_are_rejected(killed);
    free(got);
    free(want);
}

/* ---- plan ---- */

/* Experts of 14 MiB, and the profile of it. */
static void model_to_plan(void)
{
    char model[PATH_MAX], profiled[PATH_MAX];
    path_in_dir(model, "plan.gguf");
    path_in_dir(profiled, "plan.profile");
    complete("synth", 0,
             (const char *const[]){"-o", model, "tiny", "arch=qwen3moe", "hidden=256",
                                   "head_size=64", "expert_inner=512", "--quiet", NULL});
    complete("profile", 0,
             (const char *const[]){"-m", model, "--text", TEXT, "-o", profiled, "--ctx-size", "32",
                                   "--tokens", "128", "--pair-mib", "1", "--importance-tokens",
                                   "32", NULL});
}

/* Plans a preset, or all; kill_after_s: at a moment before or after its end. */
static void plan(const char *preset, const char *out, uint64_t bytes, const char *kill_after_s)
{
    const char *loss = test_long() ? "20%" : "30%"; /* which every preset keeps */
    const char *limit = bytes ? "--memory" : NULL;
    char memory[32], tokens[16], model[PATH_MAX], profiled[PATH_MAX];
    struct command c;
    path_in_dir(model, "plan.gguf");
    path_in_dir(profiled, "plan.profile");
    snprintf(memory, sizeof memory, "%" PRIu64, bytes ? bytes : 4 * GIB);
    snprintf(tokens, sizeof tokens, "%u", test_amount(AMOUNT_plan_tokens));
    const char *args[] = {"-m",
                          model,
                          "--profile",
                          profiled,
                          "--text",
                          TEXT,
                          "--max-loss",
                          loss,
                          "--resident-experts=50%",
                          "--tokens",
                          tokens,
                          "--ctx-size=32",
                          "--configurations=8",
                          "--generations=50",
                          "--preset",
                          preset,
                          "-o",
                          out,
                          limit,
                          memory,
                          NULL};
    if (!kill_after_s) {
        run(&c, "plan", bytes, args);
        CHECK(!bytes || strstr(c.err, "reads at most"), "%.300s", c.err);
    } else {
        const char *argv[PLAN_ARGS + 6] = {"/usr/bin/timeout", "-s", "KILL", kill_after_s, program};
        snprintf(program, sizeof program, "%s/sluice-plan", test_libexec());
        memcpy(argv + 5, args, sizeof args);
        command_run(&c, NULL, END_MS, argv);
    }
    command_free(&c);
}

/* A plan without the times of the machine, and the names of its files. */
static char *decisions(const char *path, bool all)
{
    static const char *const times[] = {"int8_expert_ns", "int4_expert_ns", "int2_expert_ns"},
                             *const losses[] = {"edgemoe_loss", "hobbit_loss", "fate_loss",
                                                "swap_loss"};
    json_error_t why;
    json_t *doc = json_load_file(path, 0, &why);
    CHECK(doc, "%s: %s", path, why.text);
    json_t *scalars = json_object_get(doc, "scalars");
    json_object_del(json_object_get(doc, "tables"), "file");
    for (size_t i = 0; all && i < ARRAY_LEN(losses); i++)
        CHECK(json_object_get(scalars, losses[i]), "%s: no %s", path, losses[i]);
    bool timed = json_object_del(json_object_get(doc, "arrays"), "auto_ns") == 0;
    CHECK(timed || !all, "%s: auto", path);
    for (size_t i = 0; i < ARRAY_LEN(times); i++)
        CHECK(json_object_del(scalars, times[i]) == 0 || !all, "%s: no %s", path, times[i]);
    char *text = json_dumps(doc, JSON_SORT_KEYS);
    json_decref(doc);
    return text;
}

static void same_decisions(const char *a, const char *b, bool all)
{
    char *want = decisions(a, all), *got = decisions(b, all);
    CHECK(strcmp(want, got) == 0, "%s and %s are different plans", a, b);
    free(want);
    free(got);
}

static char *contents(const char *path)
{
    json_error_t why;
    json_t *doc = json_load_file(path, 0, &why);
    CHECK(doc, "%s: %s", path, why.text);
    char *text = json_dumps(doc, JSON_SORT_KEYS);
    json_decref(doc);
    return text;
}

/* What was measured is not measured again, times included; a damaged file of it is. */
static void planned_again(const char *preset, const char *path, const char *mapped)
{
    char *want = contents(path), file[PATH_MAX];
    plan(preset, path, 0, NULL);
    char *got = contents(path);
    CHECK(strcmp(want, got) == 0, "%s is another plan the second time", path);
    free(want);
    free(got);
    snprintf(file, sizeof file, "%.4000s.measured", path);
    FILE *f = fopen(file, "r+");
    CHECK(f && fseek(f, 200, SEEK_SET) == 0 && fwrite("damaged", 7, 1, f) == 1 && fclose(f) == 0,
          "%s", file);
    plan(preset, path, 0, NULL);
    same_decisions(mapped, path, test_long());
}

/* Within the budget and mapped: all presets, or in the short form each in turn, but mixed-two,
 * which begins with the precisions of edgemoe, and auto, which reads no experts. */
static void plan_presets(const char *mapped, const char *within)
{
    static const char *const presets[] = {"all", "fate", "edgemoe", "hobbit", "swapmoe"};
    unsigned met = 0;
    for (size_t i = 0; i < ARRAY_LEN(presets); i++) {
        bool all = i == 0;
        if (all != test_long() || (!all && !test_sample(EVERY_plan_presets, &met)))
            continue;
        plan(presets[i], mapped, 0, NULL);
        plan(presets[i], within, PLAN_BYTES, NULL);
        same_decisions(mapped, within, all);
    }
}

/* The short form kills runs of one cheap preset. */
static void plan_and_kills(void)
{
    const char *preset = test_long() ? "all" : "edgemoe";
    char mapped[PATH_MAX], within[PATH_MAX], killed[PATH_MAX], cheap[PATH_MAX], after[32];
    model_to_plan();
    path_in_dir(mapped, "mapped.plan");
    path_in_dir(within, "within.plan");
    path_in_dir(killed, "killed.plan");
    path_in_dir(cheap, test_long() ? "mapped.plan" : "cheap.plan");
    plan_presets(mapped, within);
    if (!test_long())
        plan(preset, cheap, 0, NULL);
    for (unsigned i = 0; i < test_amount(AMOUNT_plan_kills); i++) {
        snprintf(after, sizeof after, "%.3f", (double)(rand() % 1000) / (test_long() ? 300 : 3000));
        plan(preset, killed, PLAN_BYTES, after);
    }
    plan(preset, killed, PLAN_BYTES, NULL);
    same_decisions(cheap, killed, test_long());
    planned_again(preset, killed, cheap);
}

/* With one preset, a loss that it cannot keep has its own status. */
static void loss_that_cannot_be_kept(void)
{
    char model[PATH_MAX], profiled[PATH_MAX], out[PATH_MAX];
    static const char *const presets[] = {"fate", "hobbit"};
    path_in_dir(model, "plan.gguf");
    path_in_dir(profiled, "plan.profile");
    path_in_dir(out, "none.plan");
    model_to_plan();
    for (size_t i = 0; i < ARRAY_LEN(presets); i++) {
        struct command c;
        command_run(&c, NULL, END_MS,
                    (const char *const[]){"plan", "-m", model, "--profile", profiled, "--text",
                                          TEXT, "--max-loss", "0.000001%", "--resident-experts=50%",
                                          "--tokens", "256", "--ctx-size", "32", "--preset",
                                          presets[i], "-o", out, NULL});
        CHECK(c.status == 4 && strstr(c.err, "keep"), "%s: status %d: %.400s", presets[i], c.status,
              c.err);
        command_free(&c);
    }
}

/* The gate weights of a stream are part of the memory of the program. */
static void shares_of_a_long_stream(void)
{
    char model[PATH_MAX], out[PATH_MAX];
    path_in_dir(model, "shares.gguf");
    path_in_dir(out, "shares.plan");
    complete("synth", 0,
             (const char *const[]){"-o", model, "tiny", "arch=qwen3moe", "layers=8", "hidden=64",
                                   "head_size=32", "expert_inner=64", "experts=32",
                                   "experts_used=16", "--quiet", NULL});
    complete("plan", 20 * MIB,
             (const char *const[]){"-m", model, "--preset", "hobbit", "--shares",
                                   "native=0.5,int2=0.5", "--tokens", "16384", "--ctx-size", "128",
                                   "--memory", "20MiB", "-o", out, NULL});
}

/* With one thread as without a limit; in a cgroup that is the default. */
static void pack(void)
{
    struct command c;
    const char *from = test_model();
    char to[2][256], stripe[2][PATH_MAX];
    for (int i = 0; i < 2; i++) {
        snprintf(to[i], sizeof to[i], "%s/packed%d", test_dir(), i);
        snprintf(stripe[i], sizeof stripe[i], "%s/experts.0.bin", to[i]);
        run(&c, "pack", i * 24 * MIB,
            (const char *const[]){"-m", from, "-o", to[i], "--precisions=native,int4,int2", NULL});
    }
    CHECK(strstr(c.err, "of 4 threads") || strstr(c.err, "threads, to stay within"),
          "it does not report fewer threads: %.300s", c.err);
    command_run(&c, NULL, END_MS,
                (const char *const[]){"/usr/bin/cmp", "-i", "4096", stripe[0], stripe[1], NULL});
    CHECK(c.status == 0, "another store: %.300s%.300s", c.out, c.err);
    run(&c, "pack", 12 * MIB, (const char *const[]){"--check", to[1], "--memory=10MiB", NULL});
    snprintf(program, sizeof program, "%s/sluice-pack", test_libexec());
    command_run(&c, NULL, END_MS,
                (const char *const[]){program, "-m", from, "-o", to[0], "--memory=9MiB", NULL});
    CHECK(c.status == 2 && strstr(c.err, "is too small: one thread needs"), "status %d: %.300s",
          c.status, c.err);
}

int main(int argc, char **argv)
{
    static const struct test_case cases[] = {ROW(eval_of_a_file),
                                             ROW(eval_of_a_store),
                                             ROW(too_small),
                                             ROW(eval_with_a_damaged_stripe),
                                             ROW(interrupted),
                                             ROW(eval_of_other_mixers),
                                             ROW(clocks_of_many_streams),
                                             ROW(forms_larger_than_the_file),
                                             ROW(profile_and_kills),
                                             ROW(plan_and_kills),
                                             ROW(loss_that_cannot_be_kept),
                                             ROW(shares_of_a_long_stream),
                                             ROW(eval_of_a_split_file),
                                             ROW(pack),
                                             ROW(four_times_the_budget)};
    return test_main(argc, argv, cases, ARRAY_LEN(cases));
}
