/* SPDX-License-Identifier: Apache-2.0 */
/* Lossy presets take effect with the next sequence after the switch. In deterministic mode every
 * preset makes the same decisions in every run, and those of the simulator. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "lib/policy/presets/presets.h"
#include "tests/scenario/baseline.h"
#include "tests/scenario/fixtures.h"

#define FINISH_MS      120000
#define FREE_TOLERANCE 0.05 /* of all accesses */
#define FREE_ATTEMPTS  3

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
    struct generation *runs = generation_start(e, test_prompt(0), baseline_tokens());
    uint64_t deadline = deadline_in(FINISH_MS);
    while (generation_tokens(runs) < 8 && !generation_done(runs))
        CHECK(deadline_tick(deadline), "no tokens");
    struct generation *waits = generation_start(e, test_prompt(0), baseline_tokens());
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
    engine_start(e, (const char *const[]){"-m", store, "--preset=iq2", "--resident-experts=25",
                                          "--parallel=1", NULL});
    engine_generate(e, test_prompt(0), baseline_tokens(), &coarse);
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
        engine_generate(e, test_prompt(i), baseline_tokens(), &o->text[i]);
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
    (precision_mask ? plan_make_two : plan_make)(plan, "made.plan", precision_mask);
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

static void deterministic_mixed_two(void)
{
    the_same_twice("mixed-two", "native,int4,int2", 5);
}

/* ---- deterministic mode and simulator ---- */

struct pair {
    const char *in_sim, *in_engine;
};

static const struct pair compared[] = {{"accesses", "accesses"},
                                       {"hits", "hits"},
                                       {"hits_inflight", "hits_inflight"},
                                       {"misses", "misses"},
                                       {"skipped", "skipped"},
                                       {"low_precision_accesses", "low_precision_accesses"},
                                       {"rerouted", "rerouted_accesses"},
                                       {"demand_bytes", "modelled_demand_bytes"},
                                       {"prefetch_bytes", "modelled_prefetch_bytes"}};

static uint64_t in_phase(const json_t *result, const char *phase, const char *counter)
{
    return (uint64_t)json_integer_value(json_object_get(json_object_get(result, phase), counter));
}

/* Replays the trace of a run. */
static void compare_with_sim(const char *trace, const char *preset, const char *policy,
                             const char *plan, uint64_t capacity,
                             const uint64_t expected[ARRAY_LEN(compared)])
{
    struct command c;
    char budget[32];
    snprintf(budget, sizeof budget, "%" PRIu64, capacity);
    command_run(&c, NULL, 60000,
                (const char *const[]){"sim", trace, "--presets", preset, "--budgets", budget,
                                      "--policy", policy, "--read-bandwidth", "1GB/s",
                                      "--calibrate", "0", "--output", "json",
                                      plan ? "--plan" : NULL, plan, NULL});
    CHECK(c.status == 0, "sluice sim: %s", c.err);
    json_t *doc = json_loads(c.out, JSON_ALLOW_NUL, NULL);
    const json_t *result = json_array_get(json_object_get(doc, "results"), 0);
    for (size_t i = 0; i < ARRAY_LEN(compared); i++) {
        uint64_t got = in_phase(result, "decode", compared[i].in_sim) +
                       in_phase(result, "prefill", compared[i].in_sim);
        CHECK(got == expected[i], "%s: %s %" PRIu64 " in the engine, %" PRIu64 " in sim", preset,
              compared[i].in_engine, expected[i], got);
    }
    json_decref(doc);
    command_free(&c);
}

static void equals_sim_with(const char *store, const char *plan, const char *preset,
                            const char *policy)
{
    char policy_option[96], trace[PATH_MAX], plan_option[PATH_MAX + 8], trace_option[PATH_MAX + 16],
        preset_option[48];
    uint64_t expected[ARRAY_LEN(compared)];
    snprintf(trace, sizeof trace, "%s/%s.trace", test_dir(), preset);
    snprintf(plan_option, sizeof plan_option, "--plan=%s", plan ? plan : "");
    snprintf(trace_option, sizeof trace_option, "--trace=%s", trace);
    snprintf(preset_option, sizeof preset_option, "--preset=%s", preset);
    snprintf(policy_option, sizeof policy_option, "--policy=%s", policy);
    struct engine *e = engine_new();
    engine_start(e, (const char *const[]){"-m", store, preset_option, trace_option, policy_option,
                                          "--deterministic=on", "--resident-experts=25",
                                          "--prefill-chunk=64", plan ? plan_option : NULL, NULL});
    for (unsigned i = 0; i < TEST_PROMPTS; i++) {
        struct text text;
        engine_generate(e, test_prompt(i), baseline_tokens(), &text);
        text_free(&text);
    }
    json_t *doc = engine_stats(e);
    uint64_t capacity = lookup_u64(doc, "directory.experts_payload_max");
    json_decref(doc);
    for (size_t i = 0; i < ARRAY_LEN(compared); i++) {
        expected[i] = engine_counter(e, "compute", compared[i].in_engine);
        test_note("%s: %s %" PRIu64, preset, compared[i].in_engine, expected[i]);
    }
    CHECK(engine_counter(e, "recorder", "records_dropped") == 0, "the trace has gaps");
    engine_stop(e);
    CHECK(expected[0] > 0 && expected[1] + expected[3] > 0, "%s: nothing was decided", preset);
    compare_with_sim(trace, preset, policy, plan, capacity, expected);
}

static void equals_sim_on(const char *store, const char *plan, const char *preset)
{
    equals_sim_with(store, plan, preset, "");
}

static void equals_sim(const char *preset, const char *precisions, uint32_t precision_mask)
{
    char store[PATH_MAX], plan[PATH_MAX];
    store_pack(store, "store", precisions);
    (precision_mask ? plan_make_two : plan_make)(plan, "made.plan", precision_mask);
    equals_sim_on(store, plan, preset);
}

static void sim_repeats_hobbit(void)
{
    equals_sim("hobbit", "native,int4", 0);
}

static void sim_repeats_fate(void)
{
    equals_sim("fate", "int4,int2", 0);
}

static void sim_repeats_edgemoe(void)
{
    equals_sim("edgemoe", "native,int4", 5);
}

/* Presets that the policy does not go with are left out, and a wrong policy is an error. */
static void sim_has_other_presets(const char *trace)
{
    struct command c;
    command_run(&c, NULL, 60000,
                (const char *const[]){"sim", trace, "--policy", "routing=resident-first",
                                      "--presets", "lod-nocache,lod", "--budgets", "25%", NULL});
    CHECK(c.status == 0 && strstr(c.err, "omitting lod-nocache: routing=resident-first does not"),
          "status %d: %s", c.status, c.err);
    command_free(&c);
    command_run(
        &c, NULL, 60000,
        (const char *const[]){"sim", trace, "--policy", "nats=x", "--budgets", "25%", NULL});
    CHECK(c.status == 2 && !strstr(c.err, "omitting"), "status %d: %s", c.status, c.err);
    command_free(&c);
}

/* Resident-first, with prediction and prefetch: alone, and with a precision by gate weight. With
 * many nats, only those that may be chosen are logged. */
static void sim_repeats_resident_first(void)
{
    char store[PATH_MAX], plan[PATH_MAX], trace[PATH_MAX];
    store_pack(store, "store", "native,int4");
    plan_make(plan, "made.plan", 0);
    equals_sim_with(store, plan, "default", "routing=resident-first");
    equals_sim_with(store, plan, "hobbit", "routing=resident-first,nats=1.5,exact_ranks=2");
    equals_sim_with(store, plan, "lod", "routing=resident-first,nats=100");
    snprintf(trace, sizeof trace, "%s/default.trace", test_dir());
    sim_has_other_presets(trace);
}

/* Experts that a table names: the replay knows them when a pass begins, as the engine does. */
static void sim_repeats_tables(void)
{
    char model[PATH_MAX];
    struct command c;
    snprintf(model, sizeof model, "%s/tables.gguf", test_dir());
    command_run(&c, NULL, 60000,
                (const char *const[]){"synth",
                                      "-q",
                                      "-o",
                                      model,
                                      "tiny",
                                      "--type",
                                      "Q8_0",
                                      "arch=deepseek4",
                                      "layers=5",
                                      "kv_heads=1",
                                      "head_size=32",
                                      "q_rank=32",
                                      "output_groups=2",
                                      "output_rank=32",
                                      "window=32",
                                      "rope_dims=8",
                                      "rope_theta=160000",
                                      "rope_theta_window=10000",
                                      "index_heads=4",
                                      "index_size=32",
                                      "index_top_k=64",
                                      "gating=4",
                                      "norm_top_k=1",
                                      "shared_count=1",
                                      "table_layers=3",
                                      "streams=4",
                                      "stream_steps=20",
                                      "stream_eps=1e-6",
                                      NULL});
    CHECK(c.status == 0, "synth: %.300s", c.err);
    command_free(&c);
    equals_sim_with(model, NULL, "default", "prefetch=all");
    equals_sim_with(model, NULL, "lod", "prediction=none,prefetch=idle");
}

static void sim_repeats_mixed_two(void)
{
    equals_sim("mixed-two", "native,int4,int2", 5);
}

static void sim_repeats_mixed_two_resident_first(void)
{
    equals_sim("mixed-two-resident-first", "native,int4,int2", 5);
}

/* A trace does not say which prediction made its lists: those of top-k are no lists of Fate's. */
static void fate_replays_its_own_lists(void)
{
    static const char *const predictions[] = {"next-layer", "fate"};
    for (unsigned i = 0; i < ARRAY_LEN(predictions); i++) {
        char trace[PATH_MAX], trace_option[PATH_MAX + 16], policy[64];
        struct command c;
        struct text text;
        snprintf(trace, sizeof trace, "%s/%s.trace", test_dir(), predictions[i]);
        snprintf(trace_option, sizeof trace_option, "--trace=%s", trace);
        snprintf(policy, sizeof policy, "--policy=prediction=%s,prefetch=idle", predictions[i]);
        struct engine *e = engine_new();
        engine_start(e, (const char *const[]){policy, trace_option, "--deterministic=on",
                                              "--resident-experts=50", NULL});
        engine_generate(e, test_prompt(0), baseline_tokens(), &text);
        text_free(&text);
        engine_stop(e);
        command_run(&c, NULL, 60000,
                    (const char *const[]){"sim", trace, "--presets", "fate", "--policy",
                                          "precision=lossless,high=native,low=native", "--budgets",
                                          "50%", NULL});
        CHECK(c.status == 0 && !strstr(c.err, "as another prediction makes them") == (i == 1),
              "%s: status %d: %s", predictions[i], c.status, c.err);
        command_free(&c);
    }
}

/* Presets whose routing is exact; masked routing depends on what is resident and cannot be
 * replayed. Those with precisions of their own are above. */
static void sim_repeats_all(bool lossy)
{
    static const char *const above[] = {"hobbit", "fate", "edgemoe", "mixed-two"};
    char store[PATH_MAX], plan[PATH_MAX];
    unsigned met = 0;
    store_pack(store, "store", "native,int8,int4,int2");
    plan_make_two(plan, "made.plan", 1u << PRECISION_NATIVE | 1u << PRECISION_INT4);
    for (uint32_t i = 0; i < preset_count(); i++) {
        struct knobs k;
        struct error error;
        const char *name = preset_at(i)->name;
        bool seen = false;
        for (size_t a = 0; a < ARRAY_LEN(above); a++)
            seen |= strcmp(above[a], name) == 0;
        CHECK(knobs_resolve(name, NULL, NULL, &k, &error) == 0, "%s", error.text);
        if (!seen && k.routing == ROUTING_EXACT && knobs_lossy(&k) == lossy &&
            test_sample(EVERY_lossy_presets, &met))
            equals_sim_on(store, plan, name);
    }
}

static void sim_repeats_lossless_presets(void)
{
    sim_repeats_all(false);
}

static void sim_repeats_lossy_presets(void)
{
    sim_repeats_all(true);
}

/* ---- the free engine and the deterministic one ---- */

/* Shares of the accesses that a preset's loss depends on, and its hits. Whether an expert that was
 * not resident was in flight depends on the speed of compute against the modelled one. */
enum { SHARE_HITS, SHARE_SKIPPED, SHARE_LOW, SHARE__COUNT };
static const char *const shares[SHARE__COUNT] = {"hits", "skipped", "low_precision_accesses"};

static void measure_shares(const char *store, const char *plan, const char *preset,
                           const char *deterministic, double share[ARRAY_LEN(shares)])
{
    char plan_option[PATH_MAX + 8], preset_option[48];
    snprintf(plan_option, sizeof plan_option, "--plan=%s", plan);
    snprintf(preset_option, sizeof preset_option, "--preset=%s", preset);
    struct engine *e = engine_new();
    engine_start(e, (const char *const[]){"-m", store, plan_option, preset_option, deterministic,
                                          "--resident-experts=25", "--throttle=1GB",
                                          "--prefill-chunk=64", NULL});
    for (unsigned i = 0; i < TEST_PROMPTS; i++) {
        struct text text;
        engine_generate(e, test_prompt(i), baseline_tokens(), &text);
        text_free(&text);
    }
    double accesses = (double)engine_counter(e, "compute", "accesses");
    for (size_t i = 0; i < ARRAY_LEN(shares); i++)
        share[i] = (double)engine_counter(e, "compute", shares[i]) / accesses;
    engine_stop(e);
}

/* What is loaded when differs by timing, so the shares are compared within FREE_TOLERANCE, and
 * there are FREE_ATTEMPTS. More hits are no defect: where other work slows compute down, the device
 * has more time for each token. */
static bool shares_are_close(const char *preset, const double bound[ARRAY_LEN(shares)],
                             const double free_share[ARRAY_LEN(shares)])
{
    bool close = true;
    for (size_t i = 0; i < ARRAY_LEN(shares); i++) {
        test_note("%s: %s %.3f deterministic, %.3f free", preset, shares[i], bound[i],
                  free_share[i]);
        double more = free_share[i] - bound[i];
        close &= more >= -FREE_TOLERANCE && (i == SHARE_HITS || more <= FREE_TOLERANCE);
    }
    return close;
}

static void free_is_close(const char *preset, const char *precisions, uint32_t precision_mask)
{
    char store[PATH_MAX], plan[PATH_MAX];
    double bound[ARRAY_LEN(shares)], free_share[ARRAY_LEN(shares)];
    bool close = false;
    store_pack(store, "store", precisions);
    plan_make(plan, "made.plan", precision_mask);
    measure_shares(store, plan, preset, "--deterministic=on", bound);
    for (unsigned i = 0; i < FREE_ATTEMPTS && !close; i++) {
        measure_shares(store, plan, preset, "--deterministic=off", free_share);
        close = shares_are_close(preset, bound, free_share);
    }
    CHECK(close,
          "%s: the free engine's shares are too far from the deterministic ones in each of %d runs",
          preset, FREE_ATTEMPTS);
}

static void free_hobbit(void)
{
    free_is_close("hobbit", "native,int4", 0);
}

static void free_fate(void)
{
    free_is_close("fate", "int4,int2", 0);
}

static void free_edgemoe(void)
{
    free_is_close("edgemoe", "native,int4", 5);
}

static void deterministic_fate(void)
{
    the_same_twice("fate", "int4,int2", 0);
}

int main(int argc, char **argv)
{
    static const struct test_case cases[] = {
        ROW(switched_while_sequences_run),
        ROW(deterministic_hobbit),
        ROW(deterministic_edgemoe),
        ROW(deterministic_mixed_two),
        ROW(deterministic_fate),
        ROW(sim_repeats_tables),
        ROW(sim_repeats_hobbit),
        ROW(sim_repeats_fate),
        ROW(sim_repeats_edgemoe),
        ROW(sim_repeats_resident_first),
        ROW(sim_repeats_mixed_two),
        ROW(sim_repeats_mixed_two_resident_first),
        ROW(fate_replays_its_own_lists),
        ROW(sim_repeats_lossless_presets),
        ROW(sim_repeats_lossy_presets),
        ROW(free_hobbit),
        ROW(free_fate),
        ROW(free_edgemoe),
    };
    return test_main(argc, argv, cases, ARRAY_LEN(cases));
}
