/* SPDX-License-Identifier: Apache-2.0 */
/* Every preset in the running engine: what it must do, and what it must not. A preset without a row
 * fails the test. Half of the experts fit; the device is throttled so that loads take time. */
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "lib/policy/presets/presets.h"
#include "tests/scenario/baseline.h"
#include "tests/scenario/fixtures.h"

#define END_MS 60000

/* Of a counter: must be 0, must not be, depends on timing. */
enum expected { ZERO, SOME, ANY };

struct expectation {
    const char *preset;
    bool lossless;                          /* the text is that of the model */
    enum expected prefetches, skipped, low; /* low: accesses below the best precision */
    enum expected swaps, misses, filled;    /* filled: before the first request */
};

static const struct expectation expectations[] = {
    /* preset                  lossless prefetches skipped low  swaps misses filled */
    {"default", true, SOME, ZERO, ZERO, ZERO, SOME, ZERO},
    {"lod-nocache", true, ZERO, ZERO, ZERO, ZERO, SOME, ZERO},
    {"lod", true, ZERO, ZERO, ZERO, ZERO, SOME, ZERO},
    {"eap", true, ANY, ZERO, ZERO, ZERO, SOME, ZERO},
    {"edgemoe", false, ANY, ZERO, SOME, ZERO, SOME, SOME},
    {"hobbit", false, SOME, SOME, SOME, ZERO, SOME, ZERO},
    {"fate", false, ANY, ZERO, SOME, ZERO, SOME, ZERO},
    {"swapmoe", false, ZERO, ZERO, ZERO, SOME, ANY, SOME},
    {"auto", true, ANY, ZERO, ZERO, ZERO, SOME, SOME},
    {"iq8", false, ZERO, ZERO, SOME, ZERO, SOME, ZERO},
    {"iq4", false, ZERO, ZERO, SOME, ZERO, SOME, ZERO},
    {"iq2", false, ZERO, ZERO, SOME, ZERO, SOME, ZERO},
    {"pruned", false, ZERO, ZERO, ZERO, ZERO, ANY, SOME},
    {"pruned-freq", false, ZERO, ZERO, ZERO, ZERO, ANY, SOME},
    {"layerwise", true, SOME, ZERO, ZERO, ZERO, ANY, ZERO},
    {"resident", true, ZERO, ZERO, ZERO, ZERO, ANY, SOME},
    {"auto-noprefetch", true, ZERO, ZERO, ZERO, ZERO, SOME, SOME},
    {"auto-hobbit-eviction", true, ANY, ZERO, ZERO, ZERO, SOME, SOME},
    {"auto-mixed", false, SOME, ZERO, SOME, ZERO, SOME, SOME},
    {"auto-mixed-noprefetch", false, ZERO, ZERO, SOME, ZERO, SOME, SOME},
    {"auto-two-precision", false, SOME, SOME, SOME, ZERO, SOME, SOME},
    {"auto-int8", false, ANY, ZERO, SOME, ZERO, SOME, SOME},
    {"auto-int4", false, ANY, ZERO, SOME, ZERO, ANY, SOME},
    {"auto-int2", false, ANY, ZERO, SOME, ZERO, ANY, SOME},
    {"auto-prefetch", true, SOME, ZERO, ZERO, ZERO, SOME, SOME},
    {"mixtral-offload", true, SOME, ZERO, ZERO, ZERO, SOME, ZERO},
    {"moe-infinity", true, SOME, ZERO, ZERO, ZERO, SOME, ZERO},
    {"auto-resident-first", false, ANY, ZERO, ZERO, ZERO, SOME, SOME},
    {"auto-resident-first-noprefetch", false, ZERO, ZERO, ZERO, ZERO, SOME, SOME},
    {"auto-two-precision-noprefetch", false, ZERO, SOME, SOME, ZERO, SOME, SOME},
    {"mixed-two", false, ZERO, SOME, SOME, ZERO, SOME, SOME},
    {"mixed-two-resident-first", false, ZERO, SOME, SOME, ZERO, SOME, SOME},
    {"auto-mixed-adaptive", false, ANY, ZERO, SOME, ZERO, SOME, SOME},
    {"auto-two-precision-adaptive", false, ANY, SOME, SOME, ZERO, SOME, SOME},
    {"mixed-two-adaptive", false, ANY, SOME, SOME, ZERO, SOME, SOME},
    {"drop", false, ZERO, SOME, ZERO, ZERO, SOME, SOME},
};

static const struct expectation *expectation_of(const char *preset)
{
    for (size_t i = 0; i < ARRAY_LEN(expectations); i++)
        if (strcmp(expectations[i].preset, preset) == 0)
            return &expectations[i];
    test_fail("preset %s has no row in this test: say what it must do", preset);
}

static void check(const char *preset, const char *what, enum expected expected, uint64_t count)
{
    test_note("%s: %s %llu", preset, what, (unsigned long long)count);
    CHECK(expected == ANY || (count > 0) == (expected == SOME), "%s: %s is %llu", preset, what,
          (unsigned long long)count);
}

/* Before the first request, only preloading makes an expert resident. */
static void check_preload(struct engine *e, const struct expectation *x)
{
    uint64_t deadline = deadline_in(END_MS);
    if (x->filled == SOME)
        while (engine_counter(e, "cache", "resident_entries") == 0)
            CHECK(deadline_tick(deadline), "%s: nothing was preloaded", x->preset);
    else
        check(x->preset, "resident before the first request", x->filled,
              engine_counter(e, "cache", "resident_entries"));
}

static void check_counters(struct engine *e, const struct expectation *x)
{
    const char *p = x->preset;
    uint64_t accesses = engine_counter(e, "compute", "accesses");
    uint64_t hits = engine_counter(e, "compute", "hits");
    uint64_t misses = engine_counter(e, "compute", "misses");
    uint64_t skipped = engine_counter(e, "compute", "skipped");
    uint64_t inflight = engine_counter(e, "compute", "hits_inflight");
    uint64_t prefetches = engine_counter(e, "cache", "prefetches");
    CHECK(accesses == hits + misses + skipped + inflight, "%s: accesses do not add up", p);
    check(p, "misses", x->misses, misses);
    check(p, "prefetches", x->prefetches, prefetches);
    check(p, "skipped", x->skipped, skipped);
    check(p, "low_precision_accesses", x->low,
          engine_counter(e, "compute", "low_precision_accesses"));
    check(p, "expert_swaps", x->swaps, engine_counter(e, "cache", "expert_swaps"));
}

static void run_preset(const char *store, const char *plan, const struct expectation *x)
{
    char plan_option[PATH_MAX + 8], preset_option[48];
    struct knobs k;
    struct error error;
    CHECK(knobs_resolve(x->preset, NULL, NULL, &k, &error) == 0, "%s", error.text);
    CHECK(x->lossless == !knobs_lossy(&k), "%s: lossless in the table differs from the preset",
          x->preset);
    snprintf(plan_option, sizeof plan_option, "--plan=%s", plan);
    snprintf(preset_option, sizeof preset_option, "--preset=%s", x->preset);
    struct engine *e = engine_new();
    engine_start(e, (const char *const[]){"-m", store, plan_option, preset_option,
                                          "--resident-experts=50", "--throttle=500MB", NULL});
    check_preload(e, x);
    for (unsigned n = test_amount(AMOUNT_preset_prompts); n-- > 0;) {
        unsigned i = 1 - n; /* the one with a long prompt always */
        struct text text;
        bool whole = x->lossless || x->swaps == SOME; /* exchanges follow what is used */
        engine_generate(e, test_prompt(i),
                        whole ? baseline_tokens() : test_amount(AMOUNT_preset_tokens), &text);
        CHECK(strcmp(lookup_text(text.stats, "preset"), x->preset) == 0 ||
                  strcmp(x->preset, "auto") == 0,
              "ran with %s, not %s", lookup_text(text.stats, "preset"), x->preset);
        if (x->lossless)
            text_check_same(baseline(i), &text, x->preset);
        text_free(&text);
    }
    check_counters(e, x);
    engine_stop(e);
}

static void run_presets(bool lossless)
{
    char store[PATH_MAX], plan[PATH_MAX];
    baseline(0);
    store_pack(store, "store", "native,int8,int4,int2");
    plan_make_two(plan, "mixed.plan", 1u << PRECISION_NATIVE | 1u << PRECISION_INT4);
    for (uint32_t i = 0; i < preset_count(); i++) {
        const struct expectation *x = expectation_of(preset_at(i)->name);
        if (x->lossless == lossless)
            run_preset(store, plan, x);
    }
}

static void lossless_presets(void)
{
    run_presets(true);
}

static void lossy_presets(void)
{
    run_presets(false);
}

int main(int argc, char **argv)
{
    static const struct test_case cases[] = {{"lossless_presets", lossless_presets},
                                             {"lossy_presets", lossy_presets}};
    return test_main(argc, argv, cases, ARRAY_LEN(cases));
}
