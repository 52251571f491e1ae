/* SPDX-License-Identifier: Apache-2.0 */
/* Prints the results of bench: medians, ratios with their intervals; as text, CSV and JSON. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/assert.h"
#include "lib/base/bytes.h"
#include "lib/json/lookup.h"
#include "procs/clients/bench/bench.h"

/* Statistics of one test in one variant over its repetitions. Times and bytes are per token. */
struct summary {
    double mean, deviation, median;
    double stall_ms, compute_ms, read_mib;
    double accesses, hit, inflight, miss, skipped, low; /* shares of accesses, in percent */
    double peak_mib;
    double of_resident; /* percent; NAN: no variant was fully resident */
};

static uint32_t column(const struct bench *b, const struct variant *variant, uint32_t test,
                       size_t offset, double *out)
{
    for (int64_t r = 0; r < b->repetitions; r++)
        memcpy(&out[r], (const char *)&variant->samples[test][r] + offset, sizeof *out);
    return (uint32_t)b->repetitions;
}

static double sum_of(const struct bench *b, const struct variant *variant, uint32_t test,
                     size_t offset)
{
    double x[BENCH_REPETITIONS_MAX];
    uint32_t n = column(b, variant, test, offset, x);
    return statistics_mean(x, n) * n;
}

#define SUM(field) sum_of(b, variant, test, offsetof(struct sample, field))

int report_resident(const struct bench *b)
{
    uint64_t all = lookup_u64(b->snapshot, "model.dense_bytes") +
                   lookup_u64(b->snapshot, "model.expert_slot_bytes");
    for (uint32_t i = 0; i < b->variant_count; i++)
        for (uint32_t test = 0; test < b->test_count; test++)
            if (all > 0 && b->variants[i].params.resident_experts >= 100 &&
                b->variants[i].samples[test][0].arena >= (double)all)
                return (int)i;
    return -1;
}

static double median_tps(const struct bench *b, const struct variant *variant, uint32_t test)
{
    double x[BENCH_REPETITIONS_MAX];
    uint32_t n = column(b, variant, test, offsetof(struct sample, tps), x);
    return statistics_median(x, n);
}

static void summarize(const struct bench *b, const struct variant *variant, uint32_t test,
                      struct summary *f)
{
    double x[BENCH_REPETITIONS_MAX], tokens = SUM(tokens), peak = 0;
    uint32_t n = column(b, variant, test, offsetof(struct sample, peak_memory), x);
    for (uint32_t i = 0; i < n; i++)
        peak = x[i] > peak ? x[i] : peak;
    column(b, variant, test, offsetof(struct sample, tps), x);
    double accesses = SUM(hits) + SUM(hits_inflight) + SUM(misses) + SUM(skipped);
    double percent = accesses > 0 ? 100 / accesses : 0;
    int resident = report_resident(b);
    *f = (struct summary){
        .mean = statistics_mean(x, n),
        .deviation = statistics_deviation(x, n),
        .median = statistics_median(x, n),
        .stall_ms = SUM(stall_ms) / tokens,
        .compute_ms = (SUM(ms) - SUM(stall_ms)) / tokens,
        .read_mib = SUM(bytes_read) / tokens / (double)MIB,
        .accesses = accesses,
        .hit = SUM(hits) * percent,
        .inflight = SUM(hits_inflight) * percent,
        .miss = SUM(misses) * percent,
        .skipped = SUM(skipped) * percent,
        .low = SUM(low_precision) * percent,
        .peak_mib = peak / (double)MIB,
        .of_resident = NAN,
    };
    double full = resident >= 0 ? median_tps(b, &b->variants[resident], test) : 0;
    if (full > 0)
        f->of_resident = 100 * f->median / full;
}

/* True when all variants had the same number of expert accesses in every repetition: they routed
 * alike. */
static bool same_accesses(const struct bench *b)
{
    for (uint32_t test = 0; test < b->test_count; test++)
        for (int64_t r = 0; r < b->repetitions; r++)
            for (uint32_t i = 1; i < b->variant_count; i++) {
                const struct sample *x = &b->variants[0].samples[test][r];
                const struct sample *y = &b->variants[i].samples[test][r];
                if (x->hits + x->hits_inflight + x->misses + x->skipped !=
                    y->hits + y->hits_inflight + y->misses + y->skipped)
                    return false;
            }
    return true;
}

/* Of the speeds at that offset in a sample. */
static struct statistics_ratio ratio_of(const struct bench *b, const struct comparison *c,
                                        uint32_t test, size_t offset)
{
    double x[BENCH_REPETITIONS_MAX], y[BENCH_REPETITIONS_MAX];
    uint32_t n = column(b, &b->variants[c->a], test, offset, x);
    column(b, &b->variants[c->b], test, offset, y);
    return statistics_ratio(x, y, n);
}

static const char *state(const struct bench *b)
{
    return b->cold && b->warmup == 0 ? "cold: file not in the page cache"
           : b->cold                 ? "file dropped from the page cache, then warmed up"
                                     : "warmed up";
}

/* ---- md ---- */

static void cpu_name(char name[64])
{
    char line[256];
    FILE *f = fopen("/proc/cpuinfo", "re");
    snprintf(name, 64, "unknown");
    while (f && fgets(line, sizeof line, f))
        if (strncmp(line, "model name", 10) == 0 && strchr(line, ':')) {
            line[strcspn(line, "\n")] = 0;
            snprintf(name, 64, "%.63s", strchr(line, ':') + 2);
            break;
        }
    if (f)
        fclose(f);
}

static void print_heading(const struct bench *b)
{
    char cpu[64], bytes[16];
    cpu_name(cpu);
    bytes_format(lookup_u64(b->snapshot, "model.expert_bytes"), bytes);
    printf("%s, %s: %s of experts; %s, %ld cores\n", lookup_text(b->snapshot, "model.name"),
           lookup_text(b->snapshot, "model.arch"), bytes, cpu, sysconf(_SC_NPROCESSORS_ONLN));
    if (b->text_ids)
        printf("forced tokens of %s; ", b->text_path);
    else
        printf("forced synthetic tokens (seed %lld, group stay %g); ", (long long)b->seed, b->stay);
    if (b->grammar.kind != GRAMMAR_NONE)
        printf("decode samples what a grammar allows, with grammar=off any token; ");
    char slices[64] = "variants alternate";
    if (b->slice_tokens > 0)
        snprintf(slices, sizeof slices, "decoding in interleaved slices of %lld tokens",
                 (long long)b->slice_tokens);
    printf("%s; one engine per variant and repetition, %s, %lld repetitions\n", state(b), slices,
           (long long)b->repetitions);
    printf("%s\n\n", same_accesses(b)
                         ? "all variants had the same number of expert accesses"
                         : "note: the variants had different numbers of expert accesses");
}

/* Formats a number, or `unknown` for NaN. */
static void number_text(char out[24], double x, const char *format, const char *unknown)
{
    if (isnan(x))
        snprintf(out, 24, "%s", unknown);
    else
        snprintf(out, 24, format, x);
}

static void print_md(const struct bench *b)
{
    print_heading(b);
    printf("| # | variant | test | t/s | of resident | compute ms | stall ms | read MiB | hit %% | "
           "in flight %% | miss %% | skipped %% | low prec. %% | peak MiB |\n"
           "|---:|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n");
    for (uint32_t i = 0; i < b->variant_count; i++) {
        for (uint32_t test = 0; test < b->test_count; test++) {
            struct summary f;
            char name[TEST_NAME_BYTES], resident[24] = "-", compute[24], stall[24];
            test_name(b, &b->test[test], name);
            summarize(b, &b->variants[i], test, &f);
            if (!isnan(f.of_resident))
                snprintf(resident, sizeof resident, "%.1f %%", f.of_resident);
            number_text(compute, f.compute_ms, "%.3f", "-");
            number_text(stall, f.stall_ms, "%.3f", "-");
            printf("| %u | %s | %s | %.2f ± %.2f | %s | %s | %s | %.3f | %.1f | %.1f | %.1f | "
                   "%.1f | %.1f | %.0f |\n",
                   i + 1, b->variants[i].label, name, f.mean, f.deviation, resident, compute, stall,
                   f.read_mib, f.hit, f.inflight, f.miss, f.skipped, f.low, f.peak_mib);
        }
    }
    printf("\nt/s: mean ± standard deviation; compute, stall, read: per token; of resident: "
           "medians\n");
    for (uint32_t i = 0; i < b->comparison_count; i++)
        for (uint32_t test = 0; test < b->test_count; test++) {
            const struct comparison *c = &b->comparisons[i];
            char name[TEST_NAME_BYTES];
            struct statistics_ratio r = ratio_of(b, c, test, offsetof(struct sample, tps)),
                                    cpu = ratio_of(b, c, test, offsetof(struct sample, cpu_tps));
            test_name(b, &b->test[test], name);
            printf("%s: variant %u / variant %u: ratio %.3f, 95 %% interval %.3f to %.3f; by CPU "
                   "time of compute %.3f, %.3f to %.3f\n",
                   name, c->a + 1, c->b + 1, r.ratio, r.low, r.high, cpu.ratio, cpu.low, cpu.high);
        }
}

/* ---- csv ---- */

static void print_csv(const struct bench *b)
{
    printf("variant,label,test,depth,repetitions,tps_mean,tps_sd,tps_median,percent_of_resident,"
           "compute_ms_per_token,stall_ms_per_token,read_mib_per_token,accesses,hit_percent,"
           "inflight_percent,miss_percent,skipped_percent,low_precision_percent,peak_mib\n");
    for (uint32_t i = 0; i < b->variant_count; i++)
        for (uint32_t test = 0; test < b->test_count; test++) {
            struct summary f;
            char name[TEST_NAME_BYTES], resident[24], compute[24], stall[24];
            test_name(b, &b->test[test], name);
            summarize(b, &b->variants[i], test, &f);
            number_text(resident, f.of_resident, "%.4f", "");
            number_text(compute, f.compute_ms, "%.6g", "");
            number_text(stall, f.stall_ms, "%.6g", "");
            printf("%u,\"%s\",%s,%lld,%lld,%.6g,%.6g,%.6g,%s,%s,%s,%.6g,%.0f,%.4f,%.4f,%.4f,%.4f,"
                   "%.4f,%.3f\n",
                   i + 1, b->variants[i].label, name, (long long)b->test[test].depth,
                   (long long)b->repetitions, f.mean, f.deviation, f.median, resident, compute,
                   stall, f.read_mib, f.accesses, f.hit, f.inflight, f.miss, f.skipped, f.low,
                   f.peak_mib);
        }
}

/* ---- json ---- */

/* JSON number, null for NaN. New reference. */
static json_t *known(double x)
{
    return isnan(x) ? json_null() : json_real(x);
}

static json_t *sample_json(const struct sample *s)
{
    return json_pack(
        "{s:f, s:f, s:o, s:f, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:s, s:O*, s:O*}", "tps",
        s->tps, "ms", s->ms, "stall_ms", known(s->stall_ms), "tokens", s->tokens, "bytes_read",
        (json_int_t)s->bytes_read, "hits", (json_int_t)s->hits, "hits_inflight",
        (json_int_t)s->hits_inflight, "misses", (json_int_t)s->misses, "skipped",
        (json_int_t)s->skipped, "low_precision_accesses", (json_int_t)s->low_precision,
        "peak_memory_bytes", (json_int_t)s->peak_memory, "arena_bytes", (json_int_t)s->arena,
        "restarts", (json_int_t)s->restarts, "preset", s->preset, "counters", s->counters, "slices",
        s->slices);
}

static json_t *test_json(const struct bench *b, const struct variant *variant, uint32_t test)
{
    struct summary f;
    char name[TEST_NAME_BYTES];
    json_t *samples = json_array();
    summarize(b, variant, test, &f);
    test_name(b, &b->test[test], name);
    for (int64_t r = 0; r < b->repetitions; r++)
        json_array_append_new(samples, sample_json(&variant->samples[test][r]));
    json_t *o = json_pack(
        "{s:s, s:f, s:f, s:f, s:o, s:o, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:o}", "test", name,
        "tps_mean", f.mean, "tps_sd", f.deviation, "tps_median", f.median, "compute_ms_per_token",
        known(f.compute_ms), "stall_ms_per_token", known(f.stall_ms), "bytes_read_per_token",
        f.read_mib * (double)MIB, "accesses", f.accesses, "hit_percent", f.hit, "inflight_percent",
        f.inflight, "miss_percent", f.miss, "skipped_percent", f.skipped, "low_precision_percent",
        f.low, "peak_mib", f.peak_mib, "samples", samples);
    json_object_set_new(o, "percent_of_resident", known(f.of_resident));
    json_object_set_new(o, "depth", json_integer(b->test[test].depth));
    return o;
}

static void add_param(const char *name, const char *value, const char *def, const char *help,
                      void *arg)
{
    (void)def;
    (void)help;
    json_object_set_new(arg, name, json_string(value));
}

static json_t *variants_json(const struct bench *b)
{
    json_t *variants = json_array();
    for (uint32_t i = 0; i < b->variant_count; i++) {
        json_t *params = json_object(), *tests = json_array();
        params_each(&b->variants[i].params, add_param, params);
        for (uint32_t test = 0; test < b->test_count; test++)
            json_array_append_new(tests, test_json(b, &b->variants[i], test));
        json_array_append_new(variants,
                              json_pack("{s:i, s:s, s:o, s:o}", "number", (int)i + 1, "label",
                                        b->variants[i].label, "params", params, "tests", tests));
    }
    return variants;
}

static json_t *comparisons_json(const struct bench *b)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < b->comparison_count; i++)
        for (uint32_t test = 0; test < b->test_count; test++) {
            const struct comparison *c = &b->comparisons[i];
            char name[TEST_NAME_BYTES];
            test_name(b, &b->test[test], name);
            struct statistics_ratio r = ratio_of(b, c, test, offsetof(struct sample, tps)),
                                    cpu = ratio_of(b, c, test, offsetof(struct sample, cpu_tps));
            json_array_append_new(list,
                                  json_pack("{s:s, s:i, s:i, s:f, s:f, s:f, s:f, s:f, s:f}", "test",
                                            name, "a", (int)c->a + 1, "b", (int)c->b + 1, "ratio",
                                            r.ratio, "low", r.low, "high", r.high, "cpu_ratio",
                                            cpu.ratio, "cpu_low", cpu.low, "cpu_high", cpu.high));
        }
    return list;
}

static json_t *depths_json(const struct bench *b)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < b->depth_count; i++)
        json_array_append_new(list, json_integer(b->depth[i]));
    return list;
}

static void print_json(const struct bench *b)
{
    char cpu[64];
    json_t *order = json_array(), *model = json_object_get(b->snapshot, "model");
    cpu_name(cpu);
    for (size_t i = 0; i < (size_t)b->repetitions * b->variant_count; i++)
        json_array_append_new(order, json_integer(b->order[i] + 1));
    json_t *o = json_pack(
        "{s:O*, s:{s:s, s:I}, s:{s:I, s:I, s:o, s:I, s:I, s:I, s:f, s:s*, s:b, s:s}, s:o, s:i, "
        "s:b, s:o, s:o}",
        "model", model, "machine", "cpu", cpu, "cores", (json_int_t)sysconf(_SC_NPROCESSORS_ONLN),
        "settings", "prompt", (json_int_t)b->prompt, "tokens", (json_int_t)b->tokens, "depths",
        depths_json(b), "repetitions", (json_int_t)b->repetitions, "warmup", (json_int_t)b->warmup,
        "seed", (json_int_t)b->seed, "stay", b->stay, "text", b->text_path, "cold", b->cold,
        "state", state(b), "order", order, "resident_variant", report_resident(b) + 1,
        "same_accesses", same_accesses(b), "variants", variants_json(b), "comparisons",
        comparisons_json(b));
    sl_assert(o); /* only out of memory can fail */
    json_dumpf(o, stdout, JSON_INDENT(2));
    printf("\n");
    json_decref(o);
}

int report_print(const struct bench *b, enum report form)
{
    switch (form) {
    case REPORT_MD:
        print_md(b);
        parallel_report(b);
        break;
    case REPORT_CSV: print_csv(b); break;
    case REPORT_JSON: print_json(b); break;
    }
    return fflush(stdout) == 0 && !ferror(stdout) ? 0 : -1;
}
