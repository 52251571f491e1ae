/* SPDX-License-Identifier: Apache-2.0 */
/* Several sequences that decode together (--parallel): they begin at the same time, each with
 * tokens of its own, and share the experts of a pass. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "lib/base/clock.h"
#include "lib/json/lookup.h"
#include "procs/clients/bench/bench.h"

#define POLL_NS (2 * NS_PER_S) /* far below the idle timeout, after which a sequence is cancelled */

struct together {
    struct session *session;
    uint64_t id[BENCH_PARALLEL_MAX], from[BENCH_PARALLEL_MAX];
    bool ended[BENCH_PARALLEL_MAX];
    struct stream_result result[BENCH_PARALLEL_MAX];
    uint32_t started;
};

static int step(struct together *t, uint32_t i, struct error *error)
{
    int state = stream_step(t->session, t->id[i], &t->from[i], NULL, NULL, &t->result[i], error);
    t->ended[i] = state > 0;
    return state < 0 ? -1 : 0;
}

/* One after another, because each reply costs the engine time; the others are polled now and then,
 * so that none counts as abandoned. */
static int follow_all(struct together *t, struct error *error)
{
    uint64_t polled_ns = clock_now_ns();
    int rc = 0;
    for (uint32_t i = 0; i < t->started && rc == 0; i++) {
        while (!t->ended[i] && rc == 0) {
            rc = step(t, i, error);
            if (clock_now_ns() - polled_ns < POLL_NS)
                continue;
            for (uint32_t k = i + 1; k < t->started && rc == 0; k++)
                rc = t->ended[k] ? 0 : step(t, k, error);
            polled_ns = clock_now_ns();
        }
        if (rc == 0)
            rc = sequence_ended(&t->result[i], error);
    }
    return rc;
}

static double of(const struct together *t, uint32_t i, const char *key)
{
    return json_number_value(json_object_get(t->result[i].stats, key));
}

static double counted(const struct sample *s, const char *service, const char *name)
{
    return json_number_value(json_object_get(json_object_get(s->counters, service), name));
}

/* One sample of all: what they computed together, in the time of the engine's passes, which counts
 * once, and the time of the slowest one. */
static void add_up(const struct together *t, struct sample *out)
{
    double steps = of(t, 0, "tokens") - 1, decode_ns = counted(out, "compute", "decode_ns");
    for (uint32_t i = 1; i < t->started; i++) {
        double tokens = of(t, i, "tokens"), tps = of(t, i, "decode_tps");
        double ms = tps > 0 ? 1e3 * (tokens - 1) / tps : 0;
        steps += tokens - 1;
        out->ms = ms > out->ms ? ms : out->ms;
        out->stall_ms = fmax(out->stall_ms, of(t, i, "stall_ms"));
        out->tokens += of(t, i, "prompt_tokens") - of(t, i, "cached_tokens") + tokens - 1;
        out->bytes_read += of(t, i, "bytes_read");
        out->hits += of(t, i, "hits");
        out->hits_inflight += of(t, i, "hits_inflight");
        out->misses += of(t, i, "misses");
        out->skipped += of(t, i, "skipped");
        out->low_precision += of(t, i, "low_precision_accesses");
    }
    out->tps = decode_ns > 0 ? 1e9 * steps / decode_ns : 0;
}

int run_together(const struct bench *b, struct session *s, const struct tokens *t,
                 const struct test *test, struct sample *out, struct error *error)
{
    struct together all = {.session = s};
    json_t *before = stats_with_cpu(s);
    int rc = 0;
    for (; all.started < b->sequences && rc == 0; all.started += rc == 0)
        rc = sequence_start(b, s, t, test, all.started, &all.id[all.started], error);
    if (rc == 0)
        rc = follow_all(&all, error);
    if (rc == 0 && out) {
        json_t *after = stats_with_cpu(s);
        rc = sample_take(out, &all.result[0], before, after, test, error);
        add_up(&all, out);
        json_decref(after);
    }
    for (uint32_t i = 0; i < all.started; i++)
        stream_result_free(&all.result[i]);
    json_decref(before);
    return rc;
}

/* ---- the table ------------------------------------------------------------------------------- */

/* The sum of a counter over the repetitions of a decode test. */
static double sum_counted(const struct bench *b, const struct variant *v, uint32_t test,
                          const char *service, const char *name)
{
    double sum = 0;
    for (int64_t r = 0; r < b->repetitions; r++)
        sum += counted(&v->samples[test][r], service, name);
    return sum;
}

static double median_of(const struct bench *b, const struct variant *v, uint32_t test)
{
    double tps[BENCH_REPETITIONS_MAX];
    for (int64_t r = 0; r < b->repetitions; r++)
        tps[r] = v->samples[test][r].tps;
    return statistics_median(tps, (uint32_t)b->repetitions);
}

/* Means of the passes of a decode test. */
struct passes {
    double passes, together; /* together: tokens/s of all */
    double cpu_ms;           /* of compute, all threads, for a pass */
    struct rates_counts mean;
};

static struct passes passes_of(const struct bench *b, const struct variant *v, uint32_t test)
{
    double n = sum_counted(b, v, test, "compute", "passes"), each = n > 0 ? 1 / n : 0;
    return (struct passes){
        .passes = n,
        .together = median_of(b, v, test),
        .cpu_ms = each * sum_counted(b, v, test, "compute", "cpu_ns") / 1e6,
        .mean = {.rows = each * sum_counted(b, v, test, "compute", "pass_rows"),
                 .experts = each * sum_counted(b, v, test, "compute", "pass_experts"),
                 .expert_rows = each * sum_counted(b, v, test, "compute", "pass_expert_rows"),
                 .bytes_read = each * sum_counted(b, v, test, "loader", "bytes_read")}};
}

/* The bound, in tokens/s of all, and the share of it that was reached. */
static void print_bound(const struct bench *b, const struct variant *v, uint32_t test,
                        const struct passes *p)
{
    struct bound bound;
    if (!bound_open(b, v, &b->test[test], &bound)) {
        printf(" | | |\n");
        return;
    }
    struct rates_pass pass = rates_pass_of(&bound.model.cost, &p->mean);
    struct rates_bound least = rates_bound(&bound.machine, &pass);
    double tps = least.pass_s > 0 ? p->mean.rows / least.pass_s : 0;
    if (tps > 0)
        printf(" %.2f | %s | %.2f |\n", tps, least.limit, p->together / tps);
    else
        printf(" | | |\n");
    bound_close(&bound);
}

static void print_row(const struct bench *b, const struct variant *v, uint32_t test, bool bound)
{
    struct passes p = passes_of(b, v, test);
    const struct rates_counts *n = &p.mean;
    printf("| %s | %.2f | %.2f | %.1f | %.1f | %.2f | %.2f | %.2f |", v->label, p.together,
           p.together / (double)v->params.parallel, n->rows, n->experts,
           n->experts > 0 ? n->expert_rows / n->experts : 0, n->bytes_read / 1e6, p.cpu_ms);
    if (bound)
        print_bound(b, v, test, &p);
    else
        printf("\n");
}

/* Whether doctor has measured the machine for any variant. */
static bool has_bound(const struct bench *b, uint32_t test)
{
    struct bound bound;
    for (uint32_t i = 0; i < b->variant_count; i++)
        if (bound_open(b, &b->variants[i], &b->test[test], &bound)) {
            bound_close(&bound);
            return true;
        }
    return false;
}

void parallel_report(const struct bench *b)
{
    for (uint32_t t = 0; t < b->test_count && b->sequences_max > 1; t++) {
        char name[TEST_NAME_BYTES];
        if (b->test[t].kind != TEST_DECODE)
            continue;
        bool bound = has_bound(b, t);
        test_name(b, &b->test[t], name);
        printf("\n%s, sequences together:\n\n"
               "| variant | tokens/s, all | tokens/s, each | rows per pass | experts per pass |"
               " rows per expert | MB read per pass | CPU ms per pass |%s\n"
               "|---|---:|---:|---:|---:|---:|---:|---:|%s\n",
               name, bound ? " bound, tokens/s | limit | share |" : "",
               bound ? "---:|---|---:|" : "");
        for (uint32_t i = 0; i < b->variant_count; i++)
            print_row(b, &b->variants[i], t, bound);
        if (!bound)
            printf("\nThe bound is unknown: sluice doctor -m MODEL --threads N measures the rates "
                   "of this machine.\n");
    }
}
