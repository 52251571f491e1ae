/* SPDX-License-Identifier: Apache-2.0 */
/* Compares an engine's memory, seen from outside, with its budget. */
#include "tests/scenario/walled.h"

#include <inttypes.h>
#include <stdio.h>

#include "lib/base/bytes.h"

uint64_t walled_budget(struct engine *e)
{
    json_t *doc = engine_stats(e);
    uint64_t min = lookup_u64(doc, "memory.min_budget_bytes");
    json_decref(doc);
    engine_stop(e);
    CHECK(min > 0, "stats lack memory.min_budget_bytes");
    return align_up(min + 6 * MIB, PAGE_BYTES);
}

void walled_start(struct walled *w, uint64_t budget_bytes, const char *const options[])
{
    char budget[48];
    const char *all[WALLED_OPTIONS + 4] = {budget, "--cgroup=off", "--prefill-chunk=128"};
    struct error error;
    size_t n = 0;
    for (; options[n]; n++) {
        CHECK(n < WALLED_OPTIONS, "too many options");
        all[3 + n] = options[n];
    }
    snprintf(budget, sizeof budget, "--budget=%" PRIu64, budget_bytes);
    *w = (struct walled){.engine = engine_new(), .budget_bytes = budget_bytes};
    w->cgroup = cgroup_try(w->engine->cgroup, &error);
    if (w->cgroup) {
        engine_use_fresh_programs(w->engine);
        w->sampler = sampler_start(w->engine->cgroup);
    }
    engine_start(w->engine, all);
    if (!w->cgroup)
        w->sampler = sampler_start_processes(w->engine);
}

void walled_end(struct walled *w)
{
    uint64_t counted = engine_counter(w->engine, "supervisor", "used_bytes_max");
    uint64_t peak = sampler_stop(w->sampler);
    test_note("%s: peak %.1f MiB, counted %.1f MiB, of %.1f MiB",
              w->cgroup ? "cgroup" : "processes", (double)peak / (double)MIB,
              (double)counted / (double)MIB, (double)w->budget_bytes / (double)MIB);
    CHECK(peak <= w->budget_bytes && counted <= w->budget_bytes, "more than the budget");
    engine_stop(w->engine);
}
