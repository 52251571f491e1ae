/* SPDX-License-Identifier: Apache-2.0 */
/* Inputs of the planner: the routing of a text as a trace, HOBBIT's eviction weights fitted to
 * traces, importances shrunk towards their groups. Oracles: the routes of a decode token by token;
 * the corners of the simplex, none of which may be better than the fitted point. */
#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/random.h"
#include "lib/offline/measure/routing_trace.h"
#include "lib/policy/presets/presets.h"
#include "lib/sim/sim.h"
#include "lib/tensor/precision.h"
#include "procs/tools/plan/planning.h"

#define DEMO   SLUICE_SOURCE_DIR "/launch/demo/tiny-books-moe-q8_0.gguf"
#define TEXT   SLUICE_SOURCE_DIR "/tests/golden/data/heldout/tales.txt"
#define WINDOW 24
#define TOKENS (2 * WINDOW)

static struct offline_model *model;
static struct offline_text text;
static char path[] = "/tmp/eviction_test_XXXXXX";

static void setup(void)
{
    struct error error = {0};
    const char *paths[] = {TEXT};
    model = offline_open(DEMO, model_index_build, &error);
    ck_assert_msg(model != NULL, "%s", error.text);
    ck_assert_int_eq(
        offline_text_load(offline_index(model), paths, 1, WINDOW, TOKENS, &text, &error), 0);
}

static void teardown(void)
{
    unlink(path);
    offline_text_free(&text);
    offline_close(model);
}

struct decoded {
    const struct trace *trace;
    uint64_t at; /* of the next record */
};

static void next_is(void *arg, const struct expert_step *step, const struct route *routes)
{
    struct decoded *d = arg;
    for (uint32_t rank = 0; rank < 4; rank++) {
        const struct trace_record *r = &d->trace->records[d->at++];
        ck_assert_uint_eq(r->kind, TRACE_EXPERT);
        ck_assert_uint_eq(r->position, step->row->position);
        ck_assert_uint_eq(r->layer, step->layer);
        ck_assert_uint_eq(r->rank, rank);
        ck_assert_uint_eq(r->expert, routes[rank].expert);
        ck_assert(r->weight == routes[rank].weight);
    }
    if (step->layer == 7)
        ck_assert_uint_eq(d->trace->records[d->at++].kind, TRACE_TOKEN_END);
}

START_TEST(trace_is_a_decode)
{
    struct error error = {0};
    struct trace trace;
    ck_assert_int_eq(offline_trace(model, &text, QUANT_CHANNEL, 2, &trace, &error), 0);
    ck_assert_int_eq(trace_check(&trace.header, trace.records, trace.count, &error), 0);
    struct decoded d = {.trace = &trace};
    struct offline_hooks hooks = {.arg = &d, .routed = next_is};
    struct offline_runner_config config = {
        .threads = 1, .chunk = 1, .context = WINDOW, .hooks = &hooks};
    struct offline_runner *runner = offline_runner_create(model, &config, &error);
    for (uint32_t w = 0; w < text.windows; w++) {
        ck_assert_uint_eq(trace.records[d.at++].kind, TRACE_SEQUENCE_START);
        for (uint32_t i = 0; i < WINDOW; i++)
            ck_assert_int_eq(core_forward(offline_core(runner), offline_sequence(runner),
                                          offline_window(&text, w) + i, i, 1, &error),
                             0);
        ck_assert_uint_eq(trace.records[d.at++].kind, TRACE_SEQUENCE_END);
    }
    ck_assert_uint_eq(d.at, trace.count);
    offline_runner_destroy(runner);
    trace_free(&trace);
}
END_TEST

/* A trace of this model's shape, written to `path`. */
static void synthesise(void)
{
    struct error error = {0};
    struct trace trace;
    struct trace_synthetic s;
    trace_synthetic_defaults(&s);
    s.layers = 8;
    s.experts = 32;
    s.top_k = 4;
    s.skew = 1.2;
    s.locality = 0;
    s.recall = 0;
    s.prompt = 0;
    s.tokens = 150;
    s.sequences = 1;
    ck_assert_int_eq(trace_synthesise(&s, &trace, &error), 0);
    ck_assert_int_eq(close(mkstemp(path)), 0);
    ck_assert_msg(trace_write(path, &trace, &error) == 0, "%s", error.text);
    trace_free(&trace);
}

static double penalty(const char *settings)
{
    struct error error = {0};
    struct trace trace;
    struct sim_config c = {.storage = {.bytes_per_s = 1e9, .depth = 16}};
    double sum = 0;
    ck_assert_int_eq(trace_read(path, &trace, &error), 0);
    trace.header.precision_mask = (1u << PRECISION__COUNT) - 1;
    for (enum precision t = PRECISION_NATIVE; t < PRECISION__COUNT; t++)
        trace.header.precision_bytes[t] = offline_expert_bytes(model, 0, 0, t, QUANT_CHANNEL);
    ck_assert_msg(knobs_resolve("hobbit", "t1=0.5,t2=0.9,prediction=none,prefetch=none", settings,
                                &c.knobs, &error) == 0,
                  "%s", error.text);
    for (int part = 4; part >= 2; part -= 2) {
        struct sim_result r;
        c.capacity = serving_bytes(model, NULL, QUANT_CHANNEL) / (uint64_t)part;
        ck_assert_int_eq(sim_run(&trace, 0, 0, &c, false, &r, &error), 0);
        sum += r.phase[SIM_DECODE].penalty / (double)r.phase[SIM_DECODE].passes / 2;
    }
    trace_free(&trace);
    return sum;
}

START_TEST(fitted_beats_the_corners)
{
    struct error error = {0};
    const struct model_hparams *h = &offline_index(model)->hparams;
    struct planning p = {.model = model,
                         .trace_path = path,
                         .profile_path = "p",
                         .json = true,
                         .native_bytes = serving_bytes(model, NULL, QUANT_CHANNEL)};
    synthesise();
    p.report = json_object();
    p.plan = plan_create(h->layers, h->experts, h->experts_used, offline_hash(model), 0, 0, &error);
    p.plan->scalar[PLAN_hobbit_t1] = 0.5;
    p.plan->scalar[PLAN_hobbit_t2] = 0.9;
    ck_assert_msg(plan_hobbit_eviction(&p, &error) == 0, "%s", error.text);
    const double *s = p.plan->scalar;
    char settings[256];
    snprintf(settings, sizeof settings, "w_lru=%.9g,w_lfu=%.9g,w_lhu=%.9g,w_fld=%.9g,fld_next=%s",
             s[PLAN_hobbit_w_lru], s[PLAN_hobbit_w_lfu], s[PLAN_hobbit_w_lhu], s[PLAN_hobbit_w_fld],
             s[PLAN_hobbit_fld_next] > 0 ? "on" : "off");
    double fitted = penalty(settings);
    static const char *const corners[] = {
        "w_lru=1,w_lfu=0,w_lhu=0,w_fld=0", "w_lru=0,w_lfu=1,w_lhu=0,w_fld=0",
        "w_lru=0,w_lfu=0,w_lhu=1,w_fld=0", "w_lru=0,w_lfu=0,w_lhu=0,w_fld=1",
        "w_lru=0,w_lfu=0,w_lhu=0,w_fld=1,fld_next=on"};
    for (size_t i = 0; i < ARRAY_LEN(corners); i++)
        ck_assert_msg(fitted <= penalty(corners[i]), "%s: %g, %s: %g", settings, fitted, corners[i],
                      penalty(corners[i]));
    /* accesses follow popularity only: recency is irrelevant */
    ck_assert(fitted < 0.97 * penalty(corners[0]));
    json_t *fit = json_object_get(p.report, "hobbit_eviction");
    ck_assert(json_real_value(json_object_get(fit, "penalty")) == fitted);
    json_decref(p.report);
    free(p.plan);
}
END_TEST

/* A trace of another shape is rejected before the fit. */
START_TEST(another_models_trace)
{
    struct error error = {0};
    struct trace trace;
    struct trace_synthetic s;
    trace_synthetic_defaults(&s);
    s.layers = 3;
    s.tokens = 2;
    ck_assert_int_eq(trace_synthesise(&s, &trace, &error), 0);
    ck_assert_int_eq(close(mkstemp(path)), 0);
    ck_assert_int_eq(trace_write(path, &trace, &error), 0);
    trace_free(&trace);
    struct planning p = {.model = model, .trace_path = path};
    ck_assert_int_eq(plan_hobbit_eviction(&p, &error), -1);
    ck_assert_int_eq(error.code, ERR_BAD_INPUT);
    ck_assert_ptr_nonnull(strstr(error.text, "another model"));
}
END_TEST

/* Groups with different means, equal spread within a group, and noise: without noise values change
 * little, with noise the result is nearer to the truth, with only noise all are equal. */
static double off_after(double spread, double noise, double *kept)
{
    enum { LAYERS = 16, EXPERTS = 32, ALL = LAYERS * EXPERTS };
    static float x[ALL];
    static double truth[ALL], out[ALL];
    static uint8_t measured[ALL];
    struct random random;
    double before = 0, after = 0, group = 0;
    random_seed(&random, 5, 0);
    for (int i = 0; i < ALL; i++) {
        if (i % OFFLINE_IMPORTANCE_GROUP == 0)
            group = spread * (double)random_normal(&random);
        truth[i] = group + spread * (double)random_normal(&random);
        x[i] = (float)(truth[i] + noise * (double)random_normal(&random));
        measured[i] = 1;
    }
    *kept = importance_shrunk(x, measured, LAYERS, EXPERTS, OFFLINE_IMPORTANCE_GROUP, out);
    for (int i = 0; i < ALL; i++) {
        before += ((double)x[i] - truth[i]) * ((double)x[i] - truth[i]);
        after += (out[i] - truth[i]) * (out[i] - truth[i]);
    }
    return after / before;
}

START_TEST(shrunk_is_nearer)
{
    double kept;
    ck_assert(off_after(1, 2, &kept) < 0.5);
    ck_assert(kept > 0.02 && kept < 0.4);
    off_after(0, 1, &kept);
    ck_assert(kept < 0.1);
    off_after(1, 0.01, &kept);
    ck_assert(kept > 0.3 && kept <= 1);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("eviction");
    TCase *c = tcase_create("eviction"), *pure = tcase_create("pure");
    tcase_add_checked_fixture(c, setup, teardown);
    tcase_set_timeout(c, 240);
    tcase_add_test(c, trace_is_a_decode);
    tcase_add_test(c, fitted_beats_the_corners);
    tcase_add_test(c, another_models_trace);
    tcase_add_test(pure, shrunk_is_nearer);
    suite_add_tcase(s, c);
    suite_add_tcase(s, pure);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? 1 : 0;
}
