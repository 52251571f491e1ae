/* SPDX-License-Identifier: Apache-2.0 */
/* Computes rates and shares from two samples. */
#include "procs/clients/top/rates.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "lib/base/clock.h"
#include "lib/json/lookup.h"

/* Row of the same process in the previous sample; NULL when there is none. */
static const json_t *row_before(const struct sample *before, const json_t *row)
{
    return lookup_process(before->doc, lookup_text(row, "service"),
                          (unsigned)lookup_u64(row, "number"));
}

static uint64_t counter_of(const json_t *row, const char *name)
{
    return lookup_u64(json_object_get(row, "counters"), name);
}

/* Growth of a counter. A smaller value means that it restarted at zero. */
static double grown(const struct sample *before, const json_t *row, const char *counter)
{
    uint64_t then = counter_of(row_before(before, row), counter), now = counter_of(row, counter);
    return (double)(now >= then ? now - then : now);
}

static double grown_all(const struct sample *before, const struct sample *now, const char *service,
                        const char *counter)
{
    double sum = 0;
    for (size_t i = 0; i < lookup_processes(now->doc); i++) {
        const json_t *row = lookup_row(now->doc, i);
        if (strcmp(lookup_text(row, "service"), service) == 0)
            sum += grown(before, row, counter);
    }
    return sum;
}

static double share(double part, double whole)
{
    return whole > 0 ? part / whole : 0;
}

static void work(const struct sample *before, const struct sample *now, struct rates *f)
{
#define GREW(service, counter) grown_all(before, now, service, counter)
    double prefill_ns = GREW("compute", "prefill_ns"), decode_ns = GREW("compute", "decode_ns");
    double accesses = GREW("compute", "accesses");
    f->prefill_tps = share(GREW("compute", "tokens_prefill") * 1e9, prefill_ns);
    f->decode_tps = share(GREW("compute", "tokens_decode") * 1e9, decode_ns);
    f->hit = share(GREW("compute", "hits"), accesses);
    f->inflight = share(GREW("compute", "hits_inflight"), accesses);
    f->miss = share(GREW("compute", "misses"), accesses);
    f->skipped = share(GREW("compute", "skipped"), accesses);
    f->tokens_per_s = share(GREW("compute", "tokens_decode"), f->seconds);
    f->accesses_per_s = share(accesses, f->seconds);
    f->stall = share(GREW("compute", "stall_ns"), prefill_ns + decode_ns);
    f->recall = share(GREW("predictor", "recall_hits"), GREW("predictor", "recall_accesses"));
    /* Of prefetches that were used or dropped: one loaded before the last sample may be used in
     * this one. */
    double used = GREW("cache", "prefetches_used"), unused = GREW("cache", "prefetches_unused");
    f->prefetch_used = share(used, used + unused);
    f->evictions_per_s = share(GREW("cache", "evictions"), f->seconds);
    f->table_rows_per_s = share(GREW("compute", "table_rows"), f->seconds);
    f->table_pages_per_s = share(GREW("cache", "page_loads"), f->seconds);
    f->table_wait = share(GREW("compute", "table_wait_ns"), prefill_ns + decode_ns);
#undef GREW
}

/* Sequences that ran at one of the samples count half, because only then it is known. */
static void passes(const struct sample *before, const struct sample *now, struct rates *f)
{
#define GREW(counter) grown_all(before, now, "compute", counter)
    double passes = GREW("passes"), experts = GREW("pass_experts"), tokens = GREW("tokens_decode");
    double running = ((double)lookup_counter(before->doc, "compute", "sequences_running") +
                      (double)lookup_counter(now->doc, "compute", "sequences_running")) /
                     2;
    f->passes_per_s = share(passes, f->seconds);
    f->rows = share(GREW("pass_rows"), passes);
    f->experts = share(experts, passes);
    f->rows_per_expert = share(GREW("pass_expert_rows"), experts);
    f->gap_us = share(f->seconds * 1e6 * (running > 1 ? running : 1), tokens);
#undef GREW
}

_Static_assert(LIMIT_LOADERS_MAX >= SERVICE_LOADERS_MAX, "every loader has a place in a mark");

static void limit(const struct sample *before, const struct sample *now, struct rates *f)
{
    struct limit_mark then, at;
    limit_mark(before->doc, &then);
    limit_mark(now->doc, &at);
    limit_between(&then, &at, f->seconds, &f->limit);
}

static void gpu(const struct sample *before, const struct sample *now, double seconds,
                struct gpu_rates *g)
{
#define GREW(counter) grown_all(before, now, "compute", counter)
    const json_t *gpu = json_object_get(now->doc, "gpu");
    double hits = GREW("gpu_expert_hits"), uploads = GREW("gpu_expert_uploads");
    if (!gpu)
        return;
    g->on = true;
    g->lost = json_is_true(json_object_get(gpu, "lost"));
    g->hit = share(hits, hits + uploads);
    g->uploads_per_s = share(uploads, seconds);
    g->evictions_per_s = share(GREW("gpu_expert_evictions"), seconds);
    g->to_bytes_per_s = share(GREW("gpu_uploaded_bytes"), seconds);
    g->from_bytes_per_s = share(GREW("gpu_downloaded_bytes"), seconds);
    double used = GREW("gpu_prefetches_timely") + GREW("gpu_prefetches_late");
    g->ahead = share(used, used + GREW("gpu_prefetches_unused"));
    g->busy = share(GREW("gpu_busy_ns") / 1e9, seconds);
#undef GREW
}

static uint64_t cpu_before(const struct sample *before, const json_t *row)
{
    for (size_t i = 0; i < lookup_processes(before->doc) && i < SERVICE_PROCESSES_MAX; i++)
        if (lookup_u64(lookup_row(before->doc, i), "pid") == lookup_u64(row, "pid"))
            return before->seen[i].cpu_ns;
    return 0;
}

static void process(const struct sample *before, const struct sample *now, uint32_t i,
                    struct rates *f)
{
    const json_t *row = lookup_row(now->doc, i);
    struct process_rates *p = &f->process[i];
    const char *service = lookup_text(row, "service");
    uint64_t cpu_ns = now->seen[i].cpu_ns, then = cpu_before(before, row);
    *p = (struct process_rates){.row = row, .order = -(double)i};
    if (strcmp(service, "loader") == 0)
        snprintf(p->name, sizeof p->name, "%s.%" PRIu64, service, lookup_u64(row, "number"));
    else
        snprintf(p->name, sizeof p->name, "%s", service);
    p->ready = strcmp(lookup_text(row, "state"), "ready") == 0;
    p->cpu =
        share(100.0 * (double)(cpu_ns > then ? cpu_ns - then : 0), (double)NS_PER_S * f->seconds);
    p->memory = (double)now->seen[i].anon;
    p->reserved = (double)lookup_u64(row, "reserved_bytes");
    p->messages =
        share(grown(before, row, "messages") + grown(before, row, "requests"), f->seconds);
    p->restarts = (double)lookup_u64(row, "restarts");
}

static void storage(const struct sample *before, const struct sample *now, const json_t *row,
                    struct storage_rates *d)
{
    double reads = grown(before, row, "reads_submitted");
    const json_t *throttles =
        json_object_get(json_object_get(now->doc, "directory"), "throttle_bytes_per_s");
    double seconds = (double)(now->when_ns - before->when_ns) / (double)NS_PER_S;
    d->row = row;
    d->number = lookup_u64(row, "number");
    d->in_flight = counter_of(row, "inflight");
    d->p99_us = lookup_u64(row, "demand_to_submission.p99_us");
    d->throttle = (uint64_t)json_integer_value(json_array_get(throttles, d->number));
    d->bytes_per_s = share(grown(before, row, "bytes_read"), seconds);
    d->busy = share(grown(before, row, "busy_ns") / 1e9, seconds);
    d->read_ms = share(grown(before, row, "read_ns") / 1e6, reads);
}

#define SORT(name, key)                                                                            \
    static int by_##name(const void *a, const void *b)                                             \
    {                                                                                              \
        const struct process_rates *x = a, *y = b;                                                 \
        if (x->key != y->key)                                                                      \
            return x->key > y->key ? -1 : 1;                                                       \
        return x->order > y->order ? -1 : x->order < y->order;                                     \
    }
#include "procs/clients/top/sorts.tbl.h"

static const struct {
    const char *name;
    int (*compare)(const void *a, const void *b);
} sorts[] = {
#define SORT(name, key) {#name, by_##name},
#include "procs/clients/top/sorts.tbl.h"
};

const char *sort_name(enum sort sort)
{
    return sorts[sort].name;
}

void rates_make(const struct sample *before, const struct sample *now, enum sort sort,
                struct rates *f)
{
    uint64_t start_ns = before->when_ns;
    struct sample since = *before; /* a shallow copy: only its time may differ */
    if (start_ns == 0 || start_ns >= now->when_ns)
        start_ns = now->when_ns - lookup_u64(now->doc, "uptime_ms") * NS_PER_MS;
    since.when_ns = start_ns;
    *f = (struct rates){.seconds = (double)(now->when_ns - start_ns) / (double)NS_PER_S};
    work(&since, now, f);
    passes(&since, now, f);
    gpu(&since, now, f->seconds, &f->gpu);
    f->processes = (uint32_t)lookup_processes(now->doc);
    if (f->processes > SERVICE_PROCESSES_MAX)
        f->processes = SERVICE_PROCESSES_MAX;
    for (uint32_t i = 0; i < f->processes; i++) {
        const json_t *row = lookup_row(now->doc, i);
        process(&since, now, i, f);
        if (strcmp(lookup_text(row, "service"), "loader") == 0 && f->storages < SERVICE_LOADERS_MAX)
            storage(&since, now, row, &f->storage[f->storages++]);
    }
    limit(&since, now, f);
    qsort(f->process, f->processes, sizeof f->process[0], sorts[sort].compare);
}
