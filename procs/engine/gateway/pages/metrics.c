/* SPDX-License-Identifier: Apache-2.0 */
/* Prometheus metrics: most from the stats snapshot by a table, those of streams from the gateway's
 * histograms. No label is an expert: /map has those. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/assert.h"
#include "lib/base/bytes.h"
#include "lib/json/lookup.h"
#include "lib/kernels/isa.h"
#include "procs/engine/gateway/pages/pages.h"

/* Upper bounds in milliseconds: from a token of a resident model to a prompt that waits in the
 * queue. */
static const double bounds_ms[] = {1,    2,    5,   10,  20,  50,  100, 200, 500, 1000,
                                   2000, 5000, 1e4, 2e4, 5e4, 1e5, 2e5, 5e5, 1e6, 2e6};
_Static_assert(ARRAY_LEN(bounds_ms) == HISTOGRAM_BUCKETS, "a bound for every bucket");

static const char *const reasons[] = {"stop", "length", "cancelled", "error"};
_Static_assert(ARRAY_LEN(reasons) == FINISH_REASONS, "a count for every reason");

/* ---- counting -------------------------------------------------------------------------------- */

static void observe(struct histogram *h, double ms, uint64_t times)
{
    size_t i = 0;
    while (i < HISTOGRAM_BUCKETS && ms > bounds_ms[i])
        i++;
    h->count[i] += times;
    h->sum += ms / 1e3 * (double)times;
}

void metrics_first_token(struct metrics *m, uint64_t ns)
{
    observe(&m->first_token, (double)ns / NS_PER_MS, 1);
}

/* Tokens of one reply share the time since the previous one. */
void metrics_tokens(struct metrics *m, uint64_t ns, uint64_t count)
{
    observe(&m->inter_token, (double)ns / NS_PER_MS / (double)count, count);
}

void metrics_finished(struct metrics *m, const char *reason)
{
    for (size_t i = 0; i < ARRAY_LEN(reasons); i++)
        if (strcmp(reasons[i], reason) == 0)
            m->finished[i]++;
}

/* ---- writing --------------------------------------------------------------------------------- */

static void head(FILE *out, const char *name, const char *type, const char *help)
{
    fprintf(out, "# HELP sluice_%s %s\n# TYPE sluice_%s %s\n", name, help, name, type);
}

static void number(FILE *out, double value)
{
    if (value >= 0 && value < 9e15 && value == (double)(uint64_t)value)
        fprintf(out, " %" PRIu64 "\n", (uint64_t)value);
    else
        fprintf(out, " %.9g\n", value);
}

static void value(FILE *out, const char *name, const char *labels, double v)
{
    fprintf(out, "sluice_%s", name);
    if (labels[0])
        fprintf(out, "{%s}", labels);
    number(out, v);
}

/* A label's value: what would end it is escaped. */
static void label(FILE *out, const char *name, const char *text)
{
    fprintf(out, "%s=\"", name);
    for (; *text; text++) {
        if (*text == '"' || *text == '\\')
            fputc('\\', out);
        fputc(*text == '\n' ? ' ' : *text, out);
    }
    fputc('"', out);
}

static void each(FILE *out, const char *name, const json_t *doc, const char *key,
                 const char *service, const char *counter, double scale)
{
    char labels[64];
    for (size_t i = 0; i < lookup_processes(doc); i++) {
        const json_t *row = lookup_row(doc, i);
        if (strcmp(lookup_text(row, "service"), service) != 0)
            continue;
        snprintf(labels, sizeof labels, "%s=\"%" PRIu64 "\"", key, lookup_u64(row, "number"));
        const json_t *counters = json_object_get(row, "counters");
        value(out, name, labels, (double)lookup_u64(counters, counter) * scale);
    }
}

static void put_engine_metrics(FILE *out, const json_t *doc)
{
    const char *name = "";
#define METRIC(metric, type, help) head(out, name = #metric, #type, help);
#define VALUE(counter, service, labels, scale)                                                     \
    value(out, name, labels, (double)lookup_counter(doc, #service, #counter) * (scale));
#define EACH(counter, key, service, scale) each(out, name, doc, #key, #service, #counter, scale);
#define AT(path, labels, scale)            value(out, name, labels, (double)lookup_u64(doc, path) * (scale));
#include "procs/engine/gateway/pages/metrics.tbl.h"
}

/* Nothing without a GPU. Labels: its number first, or all numbers. */
static void put_gpu_metrics(FILE *out, const json_t *doc)
{
    const char *name = "";
    char labels[64];
    const char *gpu = lookup_text(doc, "gpu.numbers");
    if (!json_object_get(doc, "gpu"))
        return;
    head(out, "gpu_info", "gauge", "Always 1.");
    fprintf(out, "sluice_gpu_info{gpu=\"%s\",", gpu);
    label(out, "name", lookup_text(doc, "gpu.name"));
    fprintf(out, "} 1\n");
#define METRIC(metric, type, help) head(out, name = "gpu_" #metric, #type, help);
#define PUT(more, v)                                                                               \
    snprintf(labels, sizeof labels, "gpu=\"%s\"" more, gpu);                                       \
    value(out, name, labels, v);
#define VALUE(counter, more, scale)                                                                \
    PUT(more, (double)lookup_counter(doc, "compute", "gpu_" #counter) * (scale))
#define AT(path, more) PUT(more, (double)lookup_u64(doc, "gpu." path))
#include "procs/engine/gateway/pages/metrics_gpu.tbl.h"
#undef PUT
}

/* One metric, a value per process. */
static void processes(FILE *out, const json_t *doc, const char *name, const char *type,
                      const char *help, double (*of)(const json_t *row))
{
    head(out, name, type, help);
    for (size_t i = 0; i < lookup_processes(doc); i++) {
        const json_t *row = lookup_row(doc, i);
        fprintf(out, "sluice_%s{", name);
        label(out, "proc", lookup_text(row, "service"));
        fprintf(out, ",number=\"%" PRIu64 "\"}", lookup_u64(row, "number"));
        number(out, of(row));
    }
}

/* Every cause is exported from the start, so that the first restart is visible as an increase. */
static void restarts(FILE *out, const json_t *doc)
{
    head(out, "process_restarts_total", "counter", "Restarts of a process by cause.");
    for (size_t i = 0; i < lookup_processes(doc); i++) {
        const json_t *row = lookup_row(doc, i);
        const char *cause;
        json_t *count;
        json_object_foreach(json_object_get(row, "restarts_by"), cause, count)
        {
            fprintf(out, "sluice_process_restarts_total{");
            label(out, "proc", lookup_text(row, "service"));
            fprintf(out, ",number=\"%" PRIu64 "\",", lookup_u64(row, "number"));
            label(out, "cause", cause);
            fputc('}', out);
            number(out, (double)json_integer_value(count));
        }
    }
}

static double up(const json_t *row)
{
    return strcmp(lookup_text(row, "state"), "ready") == 0;
}

static double heartbeat_age(const json_t *row)
{
    return (double)lookup_u64(row, "heartbeat_age_ms") / 1e3;
}

static void bucket(FILE *out, const char *name, double bound, uint64_t count)
{
    fprintf(out, "sluice_%s_bucket{le=\"%g\"} %" PRIu64 "\n", name, bound, count);
}

static void histogram_end(FILE *out, const char *name, double sum, uint64_t count)
{
    fprintf(out, "sluice_%s_bucket{le=\"+Inf\"} %" PRIu64 "\nsluice_%s_sum %.9g\n", name, count,
            name, sum);
    fprintf(out, "sluice_%s_count %" PRIu64 "\n", name, count);
}

static void histogram(FILE *out, const char *name, const char *help, const struct histogram *h)
{
    uint64_t below = 0;
    head(out, name, "histogram", help);
    for (size_t i = 0; i < HISTOGRAM_BUCKETS; i++) {
        below += h->count[i];
        bucket(out, name, bounds_ms[i] / 1e3, below);
    }
    histogram_end(out, name, h->sum, below + h->count[HISTOGRAM_BUCKETS]);
}

/* Loaders count per bucket; loads above the last bound are in the total only. */
static void load_times(FILE *out, const json_t *doc)
{
    static const char name[] = "expert_load_seconds";
    uint64_t below = 0, all = lookup_counter(doc, "loader", "parts_done");
    head(out, name, "histogram", "Time from the request for a part of an expert to its last byte.");
#define LOAD_BOUND(le, ns)                                                                         \
    below += lookup_counter(doc, "loader", "loads_" #le);                                          \
    bucket(out, name, (ns) / 1e9, below);
#include "shm/table/load_bounds.tbl.h"
    histogram_end(out, name, (double)lookup_counter(doc, "loader", "loads_ns") / 1e9,
                  all > below ? all : below);
}

static void own(FILE *out, const struct metrics *m, const char *model_name, const json_t *doc)
{
    histogram(out, "time_to_first_token_seconds", "Time from a request to its first token.",
              &m->first_token);
    histogram(out, "inter_token_latency_seconds", "Time between two tokens of a stream.",
              &m->inter_token);
    head(out, "request_finished_total", "counter", "Completions by finish reason.");
    for (size_t i = 0; i < ARRAY_LEN(reasons); i++) {
        fprintf(out, "sluice_request_finished_total{");
        label(out, "reason", reasons[i]);
        fprintf(out, "} %" PRIu64 "\n", m->finished[i]);
    }
    head(out, "failing", "gauge", "1 while an essential process crashes again and again.");
    fprintf(out, "sluice_failing %d\n", lookup_text(doc, "failing")[0] != 0);
    head(out, "build_info", "gauge", "Always 1.");
    fprintf(out, "sluice_build_info{");
    label(out, "version", lookup_text(doc, "version"));
    fputc(',', out);
    label(out, "arch", lookup_text(doc, "model.arch"));
    fputc(',', out);
    label(out, "model_name", model_name);
    fputc(',', out);
    label(out, "isa", kernel_isa_name(lookup_counter(doc, "compute", "isa")));
    fprintf(out, "} 1\n");
}

char *metrics_make(const struct metrics *m, const char *model_name, const json_t *doc,
                   size_t *bytes)
{
    char *text = NULL;
    FILE *out = open_memstream(&text, bytes);
    if (!out)
        return NULL;
    put_engine_metrics(out, doc);
    put_gpu_metrics(out, doc);
    restarts(out, doc);
    processes(out, doc, "process_up", "gauge", "1 when the process is ready.", up);
    processes(out, doc, "process_heartbeat_age_seconds", "gauge", "Time since the last heartbeat.",
              heartbeat_age);
    load_times(out, doc);
    own(out, m, model_name, doc);
    bool whole = !ferror(out);
    if (fclose(out) == 0 && whole)
        return text;
    free(text);
    return NULL;
}
