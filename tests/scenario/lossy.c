/* Lossy presets: they take effect with the next sequence after the switch, and in deterministic
 * mode every run makes the same decisions. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "tests/scenario/baseline.h"
#include "tests/scenario/fixtures.h"

#define FINISH_MS 120000

static void switch_to(struct engine *e, const char *name)
{
    json_decref(engine_control(e, "preset", json_pack("{s:s}", "preset", name)));
}

/* ---- switching ---- */

static bool same(const struct text *a, const struct text *b)
{
    return a->count == b->count && memcmp(a->ids, b->ids, a->count * sizeof *a->ids) == 0;
}

static void expect(struct generation *g, const char *preset, const struct text *text)
{
    struct text got;
    generation_finish(g, FINISH_MS, &got);
    text_check_same(text, &got, preset);
    CHECK(strcmp(lookup_text(got.stats, "preset"), preset) == 0, "ran with preset %s, not %s",
          lookup_text(got.stats, "preset"), preset);
    text_free(&got);
}

/* The preset changes while one sequence runs and one is queued: the first keeps the old preset, the
 * second gets the new one. iq2 is as reproducible as the lossless presets: both texts are known. */
static void switch_amid(struct engine *e, const char *from, const struct text *from_text,
                        const char *to, const struct text *to_text)
{
    switch_to(e, from);
    struct generation *runs = generation_start(e, test_prompt(0), BASELINE_TOKENS);
    uint64_t deadline = deadline_in(FINISH_MS);
    while (generation_tokens(runs) < 8 && !generation_done(runs))
        CHECK(deadline_tick(deadline), "no tokens");
    struct generation *waits = generation_start(e, test_prompt(0), BASELINE_TOKENS);
    switch_to(e, to);
    CHECK(!generation_done(runs), "the generation ended before the switch");
    expect(runs, from, from_text);
    expect(waits, to, to_text);
}

static void switched_while_sequences_run(void)
{
    char store[PATH_MAX];
    struct text coarse;
    baseline(0);
    store_pack(store, "store", "native,int2");
    struct engine *e = engine_new();
    engine_start(e,
                 (const char *const[]){"-m", store, "--preset=iq2", "--resident-experts=25", NULL});
    engine_generate(e, test_prompt(0), BASELINE_TOKENS, &coarse);
    CHECK(!same(baseline(0), &coarse), "iq2 did not change the text");
    switch_amid(e, "lod", baseline(0), "iq2", &coarse);
    switch_amid(e, "iq2", &coarse, "default", baseline(0));
    text_free(&coarse);
    engine_stop(e);
}

/* ---- deterministic mode ---- */

static const char *const decided[] = {"accesses", "hits",    "hits_inflight",
                                      "misses",   "skipped", "low_precision_accesses"};

struct outcome {
    struct text text[2];
    uint64_t count[ARRAY_LEN(decided)];
};

static void run_deterministically(const char *const options[], struct outcome *o)
{
    struct engine *e = engine_new();
    engine_start(e, options);
    for (unsigned i = 0; i < ARRAY_LEN(o->text); i++)
        engine_generate(e, test_prompt(i), BASELINE_TOKENS, &o->text[i]);
    for (size_t i = 0; i < ARRAY_LEN(decided); i++)
        o->count[i] = engine_counter(e, "compute", decided[i]);
    engine_stop(e);
}

/* Two engines that differ in threads and throttle must make the same decisions. */
static void the_same_twice(const char *preset, const char *precisions, uint32_t precision_mask)
{
    char store[PATH_MAX], plan[PATH_MAX], plan_option[PATH_MAX + 8], preset_option[48];
    struct outcome a, b;
    store_pack(store, "store", precisions);
    plan_make(plan, "made.plan", precision_mask);
    snprintf(plan_option, sizeof plan_option, "--plan=%s", plan);
    snprintf(preset_option, sizeof preset_option, "--preset=%s", preset);
    run_deterministically((const char *const[]){"-m", store, plan_option, preset_option,
                                                "--deterministic=on", "--resident-experts=25",
                                                NULL},
                          &a);
    run_deterministically((const char *const[]){"-m", store, plan_option, preset_option,
                                                "--deterministic=on", "--resident-experts=25",
                                                "--threads=1", "--throttle=100MiB", NULL},
                          &b);
    for (size_t i = 0; i < ARRAY_LEN(decided); i++) {
        test_note("%s: %s %" PRIu64, preset, decided[i], a.count[i]);
        CHECK(a.count[i] == b.count[i], "%s: %s %" PRIu64 " and %" PRIu64, preset, decided[i],
              a.count[i], b.count[i]);
    }
    for (unsigned i = 0; i < ARRAY_LEN(a.text); i++) {
        text_check_same(&a.text[i], &b.text[i], preset);
        text_free(&a.text[i]);
        text_free(&b.text[i]);
    }
    CHECK(a.count[1] > 0 && a.count[1] < a.count[0], "%s: all accesses hit, or none", preset);
}

static void deterministic_hobbit(void)
{
    the_same_twice("hobbit", "native,int4", 0);
}

static void deterministic_edgemoe(void)
{
    the_same_twice("edgemoe", "native,int4", 5);
}

int main(int argc, char **argv)
{
#define ROW(name)                                                                                  \
    {                                                                                              \
#name, name                                                                                \
    }
    static const struct test_case cases[] = {
        ROW(switched_while_sequences_run),
        ROW(deterministic_hobbit),
        ROW(deterministic_edgemoe),
    };
    return test_main(argc, argv, cases, ARRAY_LEN(cases));
}
