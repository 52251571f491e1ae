/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: a trace. Accepted traces are replayed and profiled without leaving their bounds. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "lib/sim/replay/together.h"
#include "lib/sim/sim.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void replay(const struct trace *t, const char *preset, const char *knobs)
{
    struct error error;
    struct sim_result result;
    struct path_tables tables;
    void *block = NULL;
    struct sim_config config = {.capacity = sim_all_bytes(&t->header) / 2,
                                .storage = {.bytes_per_s = 1e9, .latency_ns = 1e5, .depth = 4},
                                .compute = {.layer_ns = 1e5, .expert_ns = 1e4, .batch = 0.5}};
    if (knobs_resolve(preset, NULL, knobs, &config.knobs, &error) != 0)
        abort();
    if (sim_profile(t, 0, t->count / 2, &tables, &block, &error) == 0)
        config.plan.tables = tables;
    (void)sim_run(t, 0, sim_split(t, 0.3), &config, false, &result, &error);
    free(block);
}

/* Its sequences in two at a time, cut into at least three. */
static void replay_together(const struct trace *t)
{
    struct error error;
    struct trace two;
    struct together *all = together_create(t, 1, 3, &error);
    if (!all)
        return;
    if (together_trace(all, 2, NULL, &two, &error) != 0)
        abort();
    replay(&two, "default", NULL);
    trace_free(&two);
    const struct together_limit limit = {.gap_ns = 1, .compute = {.layer_ns = 1, .expert_ns = 1}};
    if (together_trace(all, 2, &limit, &two, &error) != 0)
        abort();
    trace_free(&two);
    together_destroy(all);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct trace t;
    struct error error;
    if (size > 1u << 16 || trace_parse(data, size, &t, &error) != 0)
        return 0;
    /* Small shapes only: the test is about the records, not about large arrays. */
    const struct table_pages pages = trace_table_pages(&t.header);
    if ((uint64_t)t.header.layers * t.header.experts <= 4096 && table_parts_of_row(&pages) <= 4) {
        replay(&t, "default", NULL);
        replay(&t, "default", "eviction=learned");
        replay(&t, "default", "eviction=learned,routing=resident-first,nats=3");
        replay(&t, "hobbit", NULL);
        replay(&t, "edgemoe", NULL);
        replay(&t, "layerwise", NULL);
        replay_together(&t);
    }
    trace_free(&t);
    return 0;
}
