/* SPDX-License-Identifier: Apache-2.0 */
/* The facts that decide, from two snapshots of the counters. */
#include "lib/limit/limit.h"

#include <string.h>

#include "lib/json/lookup.h"

#define NS_PER_SECOND 1e9

static uint64_t of_compute(const json_t *doc, const char *counter)
{
    return lookup_counter(doc, "compute", counter);
}

static void mark_loaders(const json_t *doc, struct limit_mark *mark)
{
    const json_t *throttles =
        json_object_get(json_object_get(doc, "directory"), "throttle_bytes_per_s");
    for (unsigned i = 0; i < LIMIT_LOADERS_MAX; i++) {
        const json_t *row = lookup_process(doc, "loader", i);
        if (!row)
            continue;
        mark->busy_ns[i] = lookup_u64(json_object_get(row, "counters"), "busy_ns");
        mark->throttled |= json_integer_value(json_array_get(throttles, i)) > 0;
    }
}

void limit_mark(const json_t *doc, struct limit_mark *mark)
{
    uint64_t all = lookup_u64(doc, "model.layers") * lookup_u64(doc, "model.experts");
    *mark = (struct limit_mark){
        .computing_ns = of_compute(doc, "prefill_ns") + of_compute(doc, "decode_ns"),
        .stall_ns = of_compute(doc, "stall_ns"),
        .gpu_busy_ns = of_compute(doc, "gpu_busy_ns"),
        .experts = of_compute(doc, "pass_experts"),
        .expert_rows = of_compute(doc, "pass_expert_rows"),
        .running = of_compute(doc, "sequences_running") > 0,
        .all_resident = all > 0 && lookup_counter(doc, "cache", "resident_entries") >= all,
    };
    mark_loaders(doc, mark);
}

static double grown(uint64_t before, uint64_t now)
{
    return (double)(now >= before ? now - before : now);
}

static double share(double part, double whole)
{
    return whole > 0 ? part / whole : 0;
}

void limit_between(const struct limit_mark *before, const struct limit_mark *now, double seconds,
                   struct limit_facts *facts)
{
    double ns = seconds * NS_PER_SECOND;
    *facts = (struct limit_facts){
        .computing = share(grown(before->computing_ns, now->computing_ns), ns),
        .stall = share(grown(before->stall_ns, now->stall_ns), ns),
        .running = now->running,
        .rows_per_expert = share(grown(before->expert_rows, now->expert_rows),
                                 grown(before->experts, now->experts)),
        .gpu_busy = share(grown(before->gpu_busy_ns, now->gpu_busy_ns), ns),
        .all_resident = now->all_resident,
        .throttled = now->throttled,
    };
    for (unsigned i = 0; i < LIMIT_LOADERS_MAX; i++) {
        double busy = share(grown(before->busy_ns[i], now->busy_ns[i]), ns);
        facts->busy = busy > facts->busy ? busy : facts->busy;
    }
}
