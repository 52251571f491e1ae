/* SPDX-License-Identifier: Apache-2.0 */
/* Predictions for prompts: which presets make them, how many experts they name, and that most of
 * the missing ones are prefetched. Counters of a cold engine, no times. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "tests/scenario/baseline.h"
#include "tests/scenario/fixtures.h"

#define PROMPT_BYTES 1800u /* 512 tokens and a few */
#define LAYERS       8u    /* of the demo model */
#define EXPERTS      32u
#define ONE_CHUNK    "--prefill-chunk=1024"

static char prompt[PROMPT_BYTES + 1];
static unsigned runs; /* names stores */

static void read_prompt(void)
{
    FILE *f = fopen(SLUICE_SOURCE_DIR "/launch/demo/calib.txt", "rbe");
    CHECK(f && fread(prompt, 1, PROMPT_BYTES, f) == PROMPT_BYTES, "no text for a prompt");
    fclose(f);
}

struct prefill {
    uint64_t hints, entries, absent, prefetches, accesses, low;
};

/* One token is generated: no pass of decode. */
static struct prefill run(const char *precisions, const char *preset, const char *policy,
                          const char *chunk)
{
    char name[16], store[PATH_MAX], plan[PATH_MAX], plan_option[PATH_MAX + 8], preset_option[48],
        policies[64];
    struct text got;
    read_prompt();
    snprintf(name, sizeof name, "store%u", runs++);
    store_pack(store, name, precisions);
    plan_make(plan, "made.plan", strstr(precisions, "native") ? 5 : 0);
    snprintf(plan_option, sizeof plan_option, "--plan=%s", plan);
    snprintf(preset_option, sizeof preset_option, "--preset=%s", preset);
    snprintf(policies, sizeof policies, "--policy=%s", policy);
    struct engine *e = engine_new();
    engine_start(e, (const char *const[]){"-m", store, plan_option, preset_option, policies,
                                          "--resident-experts=75", chunk, NULL});
    engine_generate(e, prompt, 1, &got);
    CHECK(lookup_u64(got.stats, "prompt_tokens") >= 512, "the prompt is too short");
    text_free(&got);
    struct prefill p = {.hints = engine_counter(e, "cache", "hints"),
                        .entries = engine_counter(e, "cache", "hint_entries"),
                        .absent = engine_counter(e, "cache", "predicted_absent"),
                        .prefetches = engine_counter(e, "cache", "prefetches"),
                        .accesses = engine_counter(e, "compute", "accesses"),
                        .low = engine_counter(e, "compute", "low_precision_accesses")};
    engine_stop(e);
    test_note("%s %s: %" PRIu64 " hints, %" PRIu64 " entries, %" PRIu64 " missing, %" PRIu64
              " prefetched, %" PRIu64 " of %" PRIu64 " accesses at low precision",
              preset, policy, p.hints, p.entries, p.absent, p.prefetches, p.low, p.accesses);
    return p;
}

static void most_missing_experts_are_prefetched(void)
{
    static const struct {
        const char *precisions, *preset;
    } t[] = {{"int4,int2", "fate"}, {"native,int4", "hobbit"}};
    for (size_t i = 0; i < ARRAY_LEN(t); i++) {
        struct prefill p = run(t[i].precisions, t[i].preset, "", "--prefill-chunk=256");
        CHECK(p.absent > 100 && 2 * p.prefetches >= p.absent,
              "%s: %" PRIu64 " of %" PRIu64 " missing experts were prefetched", t[i].preset,
              p.prefetches, p.absent);
    }
}

/* Expert paths are of single tokens: EdgeMoE and EAP predict in decode only. */
static void paths_predict_nothing(void)
{
    static const char *const presets[] = {"eap", "edgemoe"};
    for (size_t i = 0; i < ARRAY_LEN(presets); i++) {
        struct prefill p = run("native,int4", presets[i], "", ONE_CHUNK);
        CHECK(p.hints == 0, "%s: %" PRIu64 " hints", presets[i], p.hints);
    }
}

/* In chunks of 16 tokens not every expert is predicted: the others are named after these, at the
 * lower precision. */
static void hobbit_names_whole_layers(void)
{
    struct prefill p = run("native,int4", "hobbit", "", ONE_CHUNK);
    CHECK(p.hints == LAYERS - 1 && p.entries == (LAYERS - 1) * EXPERTS,
          "%" PRIu64 " hints, %" PRIu64 " entries", p.hints, p.entries);
    p = run("native,int4", "hobbit", "", "--prefill-chunk=16");
    CHECK(p.entries >= 32u * (LAYERS - 1) * EXPERTS && p.low > 0,
          "%" PRIu64 " entries, %" PRIu64 " accesses at low precision", p.entries, p.low);
    struct prefill few =
        run("native,int4", "hobbit", "prefill_prediction=popularity", "--prefill-chunk=16");
    CHECK(few.entries < p.entries, "%" PRIu64 " entries by popularity", few.entries);
}

/* Hints carry the precision that popularity asks for: with every expert unpopular, all of them low.
 * A hint at the high precision would serve its access. */
static void hints_have_the_precision_of_popularity(void)
{
    struct prefill p = run("int4,int2", "fate", "low_fraction=1", ONE_CHUNK);
    CHECK(p.prefetches > 50 && p.low == p.accesses, "%" PRIu64 " of %" PRIu64, p.low, p.accesses);
    p = run("int4,int2", "fate", "low_fraction=1,prefetch=all", ONE_CHUNK);
    CHECK(p.low == p.accesses, "%" PRIu64 " of %" PRIu64, p.low, p.accesses);
}

int main(int argc, char **argv)
{
    static const struct test_case cases[] = {
        ROW(most_missing_experts_are_prefetched),
        ROW(paths_predict_nothing),
        ROW(hobbit_names_whole_layers),
        ROW(hints_have_the_precision_of_popularity),
    };
    return test_main(argc, argv, cases, ARRAY_LEN(cases));
}
