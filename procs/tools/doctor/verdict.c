/* SPDX-License-Identifier: Apache-2.0 */
/* The first lines of doctor: what its measurements mean, in lines of at most 80 columns. Pure. */
#include <inttypes.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "lib/text/shell.h"
#include "procs/tools/doctor/doctor.h"

#define PROMPT_TOKENS 500
#define READING_SHARE 0.5 /* of a token's time: from here on reading is what limits */
#define STREAM_SHARE  0.6 /* of the memory's bandwidth, likewise */
#define LABEL_COLUMNS 8
#define NEXT_BYTES    (SHELL_WORD_BYTES(PATH_MAX) + 64)

static void line(struct findings *f, const char *name, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

static void line(struct findings *f, const char *name, const char *fmt, ...)
{
    char text[NEXT_BYTES + 32];
    json_t *lines = json_object_get(json_object_get(f->root, "verdict"), "lines");
    int n = snprintf(text, sizeof text, "%-*s ", LABEL_COLUMNS, name);
    va_list args;
    va_start(args, fmt);
    vsnprintf(text + n, sizeof text - (size_t)n, fmt, args);
    va_end(args);
    if (!lines)
        finding_quiet(f, "verdict", "lines", lines = json_array());
    json_array_append_new(lines, json_string(text));
}

/* "1.5GiB", rounded up: an option. */
static const char *option_size(uint64_t bytes, char out[16])
{
    if (bytes < 10 * GIB)
        snprintf(out, 16, "%" PRIu64 "MiB", (bytes + MIB - 1) / MIB);
    else
        snprintf(out, 16, "%.1fGiB", (double)((bytes * 10 + GIB - 1) / GIB) / 10);
    return out;
}

/* The budget that the verdict is about, and the estimate with it; NULL: fewer experts are resident
 * than were estimated. A given one may be below the minimum, or need more than is available. */
struct chosen {
    uint64_t budget, runs; /* runs: what to start with; 0: nothing fits */
    bool below, beyond;
    const struct estimate *estimate;
};

static struct chosen choose(const struct verdict *v)
{
    const uint64_t budgets[ESTIMATE_SHARES] = {v->model->budget_25, v->model->budget_50,
                                               v->model->budget_75, v->model->budget_100};
    double share;
    uint64_t most = v->model->budget_100, given = v->budget_given;
    uint64_t recommended = estimate_budget(v->model, v->host, &share);
    struct chosen c = {.budget = given ? given : recommended};
    c.below = given > 0 && given < v->model->min_budget;
    c.beyond = given > 0 && !c.below && (given < most ? given : most) > v->host->available;
    c.runs = c.below || c.beyond ? recommended : c.budget;
    for (size_t i = 0; i < ESTIMATE_SHARES && !c.below; i++)
        if (budgets[i] <= c.budget)
            c.estimate = &v->estimates[i];
    return c;
}

static void put_fits(struct findings *f, const struct verdict *v, const struct chosen *c)
{
    char a[16], b[16], given[16];
    const struct model_facts *m = v->model;
    bytes_format(m->expert_bytes, b);
    bytes_format(c->budget, given);
    bool fits = c->budget > 0 && !c->below && !c->beyond;
    bool shm = fits && v->host->shm_free < c->budget;
    finding_quiet(f, "verdict", "fits", json_boolean(fits && !shm));
    if (c->below)
        line(f, "fits", "no: --budget %s is below the minimum %s", given,
             bytes_format(m->min_budget, a));
    else if (c->beyond)
        line(f, "fits", "no: --budget %s is more than the %s that are available", given,
             bytes_format(v->host->available, a));
    else if (!fits)
        line(f, "fits", "no: it needs at least %s, and %s are available",
             bytes_format(m->min_budget, a), bytes_format(v->host->available, b));
    else if (shm)
        line(f, "fits", "not yet: /dev/shm has %s free, the budget needs more",
             bytes_format(v->host->shm_free, a));
    else if (c->estimate && c->estimate->share >= 1)
        line(f, "fits", "yes, with all of its %s of experts in memory", b);
    else if (c->estimate)
        line(f, "fits", "yes, with %.0f %% of its %s of experts in memory (%s free)",
             100 * c->estimate->share, b, bytes_format(v->host->available, a));
    else
        line(f, "fits", "yes, with fewer than 25 %% of its %s of experts in memory", b);
}

static void put_budget(struct findings *f, const struct verdict *v, const struct chosen *c)
{
    char budget[16], least[16], all[16];
    const char *of = v->budget_given ? "as given" : "recommended";
    bytes_format(v->model->min_budget, least);
    bytes_format(v->model->budget_100, all);
    finding_quiet(f, "verdict", "budget_bytes", json_integer((json_int_t)c->budget));
    bytes_format(c->budget, budget);
    if (c->budget >= v->model->budget_100 && c->budget > 0)
        line(f, "budget", "%s %s, for all experts; minimum %s", budget, of, least);
    else if (c->budget)
        line(f, "budget", "%s %s; minimum %s, all experts need %s", budget, of, least, all);
    else
        line(f, "budget", "none; minimum %s, all experts need %s", least, all);
}

static void time_text(double seconds, char out[32])
{
    char digits[DIGITS_BYTES];
    bool minutes = seconds >= 100;
    snprintf(out, 32, "%s %s", two_digits(minutes ? seconds / 60 : seconds, digits),
             minutes ? "min" : "s");
}

static void put_speed(struct findings *f, const struct verdict *v, const struct chosen *c)
{
    const struct estimate *e = c->estimate ? c->estimate : &v->estimates[0];
    bool known = c->budget > 0 && !c->below && e->decode_tps > 0,
         prompt = known && e->prefill_tps > 0;
    double seconds = prompt ? PROMPT_TOKENS / e->prefill_tps : 0;
    char tokens[DIGITS_BYTES], time[32];
    finding_quiet(f, "verdict", "decode_tps", known ? json_real(e->decode_tps) : json_null());
    finding_quiet(f, "verdict", "prompt_500_s", prompt ? json_real(seconds) : json_null());
    two_digits(e->decode_tps, tokens);
    time_text(seconds, time);
    if (prompt)
        line(f, "speed", "%s %s tokens/s; a prompt of %d tokens takes %s %s",
             c->estimate ? "about" : "at most", tokens, PROMPT_TOKENS,
             c->estimate ? "about" : "at least", time);
    else if (known)
        line(f, "speed", "%s %s tokens/s", c->estimate ? "about" : "at most", tokens);
    else if (c->budget == 0 || c->below)
        line(f, "speed", "unknown");
    else if (!v->reads_known)
        line(f, "speed", "unknown, because storage was not measured (--no-device)");
    else
        line(f, "speed", "unknown: too few experts fit for an estimate");
}

static void put_limit(struct findings *f, const struct verdict *v, const struct chosen *c)
{
    const struct estimate *e = c->estimate;
    double weights =
        v->host->stream_bytes_per_s > 0 && v->host->decode_s > 0
            ? estimate_token_bytes(v->model) / v->host->decode_s / v->host->stream_bytes_per_s
            : 0;
    double all_s = e ? e->compute_s + e->stall_s + e->load_s : 0;
    const char *limit = "unknown";
    if (c->budget == 0) {
        line(f, "limit", "memory: free or add some, or use a smaller --ctx-size");
        limit = "memory";
    } else if (c->below) {
        line(f, "limit", "memory: the budget is too small");
        limit = "memory";
    } else if (!e || e->decode_tps <= 0) {
        line(f, "limit", "%s",
             v->reads_known ? "memory: few experts fit" : "unknown, like the speed");
        limit = v->reads_known ? "memory" : limit;
    } else if (e->stall_s + e->load_s >= READING_SHARE * all_s) {
        line(f, "limit", "storage: reads take %.0f %% of the time; more memory would help",
             100 * (e->stall_s + e->load_s) / all_s);
        limit = "storage";
    } else if (weights >= STREAM_SHARE && weights <= 1) { /* above: from the caches */
        line(f, "limit", "memory bandwidth: computing uses %.0f %% of it; faster memory would help",
             100 * weights);
        limit = "bandwidth";
    } else {
        double share = e->compute_s / all_s;
        if (share < 0.995)
            line(f, "limit", "the CPU: computing takes %.0f %% of the time, reads the rest",
                 100 * share);
        else
            line(f, "limit", "the CPU: computing takes all of the time, nothing is read");
        limit = "cpu";
    }
    finding_quiet(f, "verdict", "limit", json_string(limit));
}

static void put_next(struct findings *f, const struct verdict *v, const struct chosen *c)
{
    char size[16], path[SHELL_WORD_BYTES(PATH_MAX)], text[NEXT_BYTES];
    shell_word(v->path, path, sizeof path);
    const char *blank = path[0] == '-' ? "" : " "; /* after it, that would be an option */
    if (c->runs > 0 && v->host->shm_free < c->runs)
        snprintf(text, sizeof text, "sudo mount -o remount,size=%s /dev/shm",
                 option_size(c->runs + c->runs / 8, size));
    else if (c->runs > 0)
        snprintf(text, sizeof text, "sluice repl -m%s%s --budget %s", blank, path,
                 option_size(c->runs, size));
    else
        snprintf(text, sizeof text, "sluice doctor -m%s%s --ctx-size %" PRIu64, blank, path,
                 v->ctx_size / 2);
    finding_quiet(f, "verdict", "next", json_string(text));
    line(f, "next", "%s", text);
}

void verdict_model(struct findings *f, const struct verdict *v)
{
    struct chosen c = choose(v);
    put_fits(f, v, &c);
    put_budget(f, v, &c);
    put_speed(f, v, &c);
    put_limit(f, v, &c);
    put_next(f, v, &c);
}

void verdict_machine(struct findings *f, const struct host_facts *a, uint64_t available,
                     const char *isa, unsigned cpus)
{
    char size[16], shm[16];
    double reads = a->read_bytes_per_s[ESTIMATE_DEPTHS - 1];
    finding_quiet(f, "verdict", "storage_bytes_per_s", reads > 0 ? json_real(reads) : json_null());
    if (reads > 0)
        line(f, "storage", "%.0f MB/s in reads of %s", reads / 1e6,
             bytes_format(a->chunk_bytes, size));
    else
        line(f, "storage", "not measured");
    bytes_format(available, size);
    bytes_format(a->shm_free, shm);
    if (a->stream_bytes_per_s > 0)
        line(f, "memory", "%s available, /dev/shm %s free; reads %.1f GB/s", size, shm,
             a->stream_bytes_per_s / 1e9);
    else
        line(f, "memory", "%s available, /dev/shm %s free", size, shm);
    line(f, "cpu", "%u CPU%s, kernels for %s", cpus, cpus == 1 ? "" : "s", isa);
    line(f, "lacks", "%s",
         !a->io_uring      ? "io_uring: loaders read with threads, slower at high queue depths"
         : !a->freed_pages ? "nothing that an engine needs"
                           : "contiguous free pages: see FREED_PAGES in docs/doctor.md");
    finding_quiet(f, "verdict", "next", json_string("sluice doctor -m FILE"));
    line(f, "next", "sluice doctor -m FILE: whether a model fits, and its speed");
}
