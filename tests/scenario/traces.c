/* SPDX-License-Identifier: Apache-2.0 */
/* Traces with router logits and gate inputs: the logits are those by which the experts were chosen,
 * and on a trace of any run the simulator has the hits of an engine with the eviction `learned`. A
 * script with numpy reads them as docs/trace.md says. */
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/bytes.h"
#include "lib/sim/sim.h"
#include "tests/harness/internal.h"
#include "tests/scenario/baseline.h"
#include "tests/scenario/fixtures.h"

#define PROMPTS 2
#define TOOL_MS 60000
#define SCRIPT  SLUICE_SOURCE_DIR "/tests/traces/read_logits.py"
#define QUIET   "prediction=none,prefetch=none,preload=none,"

struct totals {
    uint64_t hits, misses, experts_max;
};

static struct totals record(const char *path, const char *eviction, bool values)
{
    struct engine *e = engine_new();
    char policy[160], trace[PATH_MAX + 16];
    snprintf(policy, sizeof policy, "--policy=" QUIET "eviction=%s", eviction);
    snprintf(trace, sizeof trace, "--trace=%s", path);
    engine_start(e,
                 (const char *const[]){policy, trace, "--resident-experts=25", "--prefill-chunk=1",
                                       "--ctx-size=2048", values ? "--trace-logits=on" : NULL,
                                       "--trace-inputs=on", NULL});
    for (unsigned i = 0; i < PROMPTS; i++)
        baseline_compare(e, i, eviction);
    json_t *doc = engine_stats(e);
    struct totals t = {.hits = engine_counter(e, "compute", "hits"),
                       .misses = engine_counter(e, "compute", "misses"),
                       .experts_max = lookup_u64(doc, "directory.experts_payload_max")};
    json_decref(doc);
    uint64_t lost = engine_counter(e, "recorder", "records_dropped");
    engine_stop(e);
    if (lost > 0)
        test_skip("the recorder fell behind by %" PRIu64 " records", lost);
    return t;
}

static void read_into(const char *path, struct trace *t)
{
    struct error error;
    CHECK(trace_read(path, t, &error) == 0, "%s", error.text);
}

static struct totals simulate(const struct trace *t, const char *policy, uint64_t capacity)
{
    struct error error;
    struct sim_result r;
    struct sim_config config = {.capacity = capacity,
                                .storage = {.bytes_per_s = 1e9, .latency_ns = 1e5, .depth = 8},
                                .compute = {.layer_ns = 1e4, .expert_ns = 1e4, .batch = 1}};
    CHECK(knobs_resolve("default", NULL, policy, &config.knobs, &error) == 0, "%s", error.text);
    CHECK(sim_run(t, 0, 0, &config, false, &r, &error) == 0, "%s", error.text);
    struct totals out = {0};
    for (int p = 0; p < SIM_PHASES; p++) {
        out.hits += r.phase[p].hits;
        out.misses += r.phase[p].misses;
    }
    return out;
}

static uint64_t count_of(const struct trace *t, enum trace_kind kind)
{
    uint64_t n = 0;
    for (uint64_t i = 0; i < t->count; i++)
        n += t->records[i].kind == kind;
    return n;
}

/* The engine chooses the largest logits: the demo model's router has neither bias nor groups. */
static void check_choice(const struct trace *t)
{
    const struct trace_header *h = &t->header;
    float logits[MODEL_EXPERTS_MAX];
    uint32_t layer = UINT32_MAX;
    uint64_t compared = 0;
    for (uint64_t i = 0; i < t->count; i++) {
        const struct trace_record *r = &t->records[i];
        float value[TRACE_FLOATS], above = 0;
        if (r->kind == TRACE_ROUTER) {
            trace_values(r, value);
            memcpy(logits + r->expert, value, r->rank * sizeof *value);
            layer = r->layer;
        }
        if (r->kind != TRACE_EXPERT || r->prefill)
            continue;
        CHECK(r->layer == layer, "no logits precede an expert of layer %u", r->layer);
        for (uint32_t e = 0; e < h->experts; e++)
            above += logits[e] > logits[r->expert];
        CHECK((uint32_t)above == r->rank, "expert %u has rank %u, and %.0f logits are larger",
              r->expert, r->rank, (double)above);
        compared++;
    }
    CHECK(compared > 5000, "only %" PRIu64 " experts", compared);
}

static void logits_and_inputs(void)
{
    char path[PATH_MAX], other[PATH_MAX];
    struct trace t;
    snprintf(path, sizeof path, "%s/logits.trace", test_dir());
    snprintf(other, sizeof other, "%s/learned.trace", test_dir());
    record(path, "lru", true);
    struct totals real = record(other, "learned", false);
    read_into(path, &t);
    uint64_t rows = count_of(&t, TRACE_EXPERT) / t.header.top_k;
    CHECK(count_of(&t, TRACE_LOGITS) == 0 && count_of(&t, TRACE_BIAS) == 0, "more than requested");
    CHECK(count_of(&t, TRACE_ROUTER) == rows * ((t.header.experts + 3) / 4) &&
              count_of(&t, TRACE_INPUT) == rows * ((t.header.hidden + 7) / 8),
          "%" PRIu64 " records of logits, %" PRIu64 " of inputs, %" PRIu64 " rows",
          count_of(&t, TRACE_ROUTER), count_of(&t, TRACE_INPUT), rows);
    check_choice(&t);
    struct totals modelled = simulate(&t, QUIET "eviction=learned", real.experts_max);
    CHECK(real.hits > 1000 && real.misses > 1000 && real.hits == modelled.hits &&
              real.misses == modelled.misses,
          "%" PRIu64 " hits, %" PRIu64 " in sim on another run's trace", real.hits, modelled.hits);
    simulate(&t, QUIET "routing=resident-first,nats=5", real.experts_max);
    trace_free(&t);
}

static void numpy_reads_it(void)
{
    char path[PATH_MAX], rows[32];
    struct command c;
    struct trace t;
    command_run(&c, NULL, TOOL_MS,
                (const char *const[]){"/usr/bin/env", "python3", "-c", "import numpy", NULL});
    int status = c.status;
    command_free(&c);
    if (status != 0)
        test_skip("no python3 with numpy");
    snprintf(path, sizeof path, "%s/numpy.trace", test_dir());
    record(path, "lru", true);
    read_into(path, &t);
    command_run(&c, NULL, TOOL_MS,
                (const char *const[]){"/usr/bin/env", "python3", "-B", SCRIPT, path, NULL});
    CHECK(c.status == 0, "%.500s", c.err);
    snprintf(rows, sizeof rows, "logits (%" PRIu64 ", %u)",
             count_of(&t, TRACE_EXPERT) / t.header.top_k, t.header.experts);
    CHECK(strstr(c.out, rows) && strstr(c.out, "1.0000 of the choice"), "%s not in: %s", rows,
          c.out);
    test_note("%.*s", (int)strcspn(c.out, "\n"), c.out);
    command_free(&c);
    trace_free(&t);
}

int main(int argc, char **argv)
{
    static const struct test_case cases[] = {ROW(logits_and_inputs), ROW(numpy_reads_it)};
    return test_main(argc, argv, cases, ARRAY_LEN(cases));
}
