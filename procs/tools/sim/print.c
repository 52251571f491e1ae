/* SPDX-License-Identifier: Apache-2.0 */
/* Prints the results of the simulator as a table, a row per preset or per value of a swept
 * parameter. */
#include <inttypes.h>
#include <jansson.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "lib/base/bytes.h"
#include "procs/tools/sim/sim_program.h"

const char *speed_text(const struct sim_storage *d, char buf[24])
{
    bool large = d->bytes_per_s >= 1e9;
    snprintf(buf, 24, "%.4g %s/s", d->bytes_per_s / (large ? 1e9 : 1e6), large ? "GB" : "MB");
    return buf;
}

static double ratio(double a, double b)
{
    return b > 0 ? a / b : 0;
}

double result_hits(const struct sim_result *r)
{
    const struct sim_stats *a = &r->phase[SIM_DECODE], *b = &r->phase[SIM_PREFILL];
    return ratio((double)(a->hits + b->hits), (double)(a->accesses + b->accesses));
}

double result_token_ms(const struct sim_result *r)
{
    const struct sim_stats *f = &r->phase[SIM_DECODE];
    return ratio((f->stall_ns + f->compute_ns) / 1e6, (double)f->tokens);
}

double result_stall_ms(const struct sim_result *r)
{
    const struct sim_stats *f = &r->phase[SIM_DECODE];
    return ratio(f->stall_ns / 1e6, (double)f->tokens);
}

double result_penalty(const struct sim_result *r)
{
    const struct sim_stats *f = &r->phase[SIM_DECODE];
    return ratio(f->penalty, (double)f->tokens);
}

double result_mib(const struct sim_result *r)
{
    const struct sim_stats *f = &r->phase[SIM_DECODE];
    return ratio((double)(f->demand_bytes + f->prefetch_bytes) / (double)MIB, (double)f->tokens);
}

double result_gpu_hits(const struct sim_result *r)
{
    uint64_t hits = 0, uses = 0;
    for (int p = 0; p < SIM_PHASES; p++) {
        const struct sim_stats *f = &r->phase[p];
        hits += f->gpu_hits;
        uses += f->gpu_hits + f->gpu_uploads + f->gpu_on_cpu;
    }
    return ratio((double)hits, (double)uses);
}

double result_gpu_mib(const struct sim_result *r)
{
    const struct sim_stats *f = &r->phase[SIM_DECODE];
    return ratio((double)f->gpu_upload_bytes / (double)MIB, (double)f->tokens);
}

double result_gpu_stall_ms(const struct sim_result *r)
{
    const struct sim_stats *f = &r->phase[SIM_DECODE];
    return ratio(f->gpu_stall_ns / 1e6, (double)f->tokens);
}

/* ---- one row per contender ------------------------------------------------------------------ */

static void pivot_value(char buf[24], const struct cell *c, const char *pivot)
{
    if (!c->made)
        snprintf(buf, 24, "-");
    else if (strcmp(pivot, "time") == 0)
        snprintf(buf, 24, "%.3f", result_token_ms(&c->result));
    else if (strcmp(pivot, "penalty") == 0)
        snprintf(buf, 24, "%.3f", result_penalty(&c->result));
    else
        snprintf(buf, 24, "%.1f %%", 100 * result_hits(&c->result));
}

static const char *pivot_unit(const char *pivot)
{
    if (strcmp(pivot, "time") == 0)
        return "ms per token";
    return strcmp(pivot, "penalty") == 0 ? "miss penalty per token" : "hits";
}

static void print_pivot(FILE *out, const struct grid *g, const char *pivot, bool md)
{
    for (uint32_t d = 0; d < g->storages; d++) {
        char value[24], speed[24];
        if (g->storages > 1)
            fprintf(out, "%sread bandwidth %s\n%s", d ? "\n" : "",
                    speed_text(&g->storage[d], speed), md ? "\n" : "");
        fprintf(out, md ? "| %s |" : "%-22s", pivot_unit(pivot));
        for (uint32_t b = 0; b < g->budgets; b++) {
            snprintf(value, sizeof value, "%.4g %%", g->budget[b].percent);
            fprintf(out, md ? " %s |" : " %10s", value);
        }
        fprintf(out, md ? "\n|---|" : "\n");
        for (uint32_t b = 0; md && b < g->budgets; b++)
            fprintf(out, "---:|");
        if (md)
            fputc('\n', out);
        for (uint32_t i = 0; i < g->contenders; i++) {
            fprintf(out, md ? "| %s |" : "%-22s", g->contender[i].label);
            for (uint32_t b = 0; b < g->budgets; b++) {
                pivot_value(value, grid_cell(g, i, b, d), pivot);
                fprintf(out, md ? " %s |" : " %10s", value);
            }
            fputc('\n', out);
        }
    }
}

/* ---- one row per cell ----------------------------------------------------------------------- */

struct position {
    uint32_t contender, budget, storage;
};

#define GPU_COLUMNS   6
#define ROW_COLUMNS   13 /* after the first one */
#define FIRST_COLUMNS 16
#define OTHER_COLUMNS 14

static bool next_cell(const struct grid *g, struct position *p, bool first)
{
    if (first) {
        *p = (struct position){0};
        return g->contenders > 0 && g->budgets > 0 && g->storages > 0;
    }
    if (++p->storage < g->storages)
        return true;
    p->storage = 0;
    if (++p->contender < g->contenders)
        return true;
    p->contender = 0;
    return ++p->budget < g->budgets;
}

static void print_head(FILE *out, const struct grid *g, bool md)
{
    static const char *const heads[] = {
        "preset",      "experts",       "bandwidth",     "hits",       "hits_inflight",
        "misses",      "skipped",       "penalty/token", "MiB/token",  "prefetched",
        "used",        "recall",        "stall ms",      "ms/token",   "gpu hits",
        "gpu uploads", "gpu evictions", "gpu on cpu",    "gpu MiB/tk", "gpu stall ms"};
    size_t count = ARRAY_LEN(heads) - (g->gpus[0].places > 0 ? 0 : GPU_COLUMNS);
    fprintf(out, md ? "|" : "");
    for (size_t i = 0; i < count; i++)
        fprintf(out, md ? " %s |" : i == 0 ? "%-16s" : " %13s", heads[i]);
    fprintf(out, md ? "\n|---|" : "\n");
    for (size_t i = 1; md && i < count; i++)
        fprintf(out, "---:|");
    if (md)
        fputc('\n', out);
}

static void print_gpu_columns(FILE *out, const struct sim_result *r, bool md)
{
    const struct sim_stats *f = &r->phase[SIM_DECODE];
    fprintf(out,
            md ? " %.1f %% | %" PRIu64 " | %" PRIu64 " | %" PRIu64 " | %.3f | %.3f |"
               : " %11.1f %% %13" PRIu64 " %13" PRIu64 " %13" PRIu64 " %13.3f %13.3f",
            100 * result_gpu_hits(r), f->gpu_uploads, f->gpu_evictions, f->gpu_on_cpu,
            result_gpu_mib(r), result_gpu_stall_ms(r));
}

static void print_rows(FILE *out, const struct grid *g, bool md)
{
    print_head(out, g, md);
    struct position p;
    for (bool more = next_cell(g, &p, true); more; more = next_cell(g, &p, false)) {
        const struct cell *c = grid_cell(g, p.contender, p.budget, p.storage);
        const struct sim_stats *f = &c->result.phase[SIM_DECODE];
        char speed[24];
        if (!c->made)
            continue;
        fprintf(out,
                md ? "| %s | %.4g %% | %s | %.1f %% | %" PRIu64 " | %" PRIu64 " | %" PRIu64
                     " | %.3f | %.3f | %" PRIu64 " | %.0f %% | %.0f %% | %.3f | %.3f |"
                   : "%-16s %11.4g %% %13s %11.1f %% %13" PRIu64 " %13" PRIu64 " %13" PRIu64
                     " %13.3f %13.3f %13" PRIu64 " %11.0f %% %11.0f %% %13.3f %13.3f",
                g->contender[p.contender].label, g->budget[p.budget].percent,
                speed_text(&g->storage[p.storage], speed), 100 * result_hits(&c->result),
                f->hits_inflight, f->misses, f->skipped, result_penalty(&c->result),
                result_mib(&c->result), f->prefetches,
                100 * ratio((double)f->prefetches_used, (double)f->prefetches),
                100 * ratio((double)f->predicted_hits, (double)f->predicted_accesses),
                result_stall_ms(&c->result), result_token_ms(&c->result));
        if (g->gpus[0].places > 0)
            print_gpu_columns(out, &c->result, md);
        fputc('\n', out);
    }
}

/* ---- rows for a terminal of 80 columns: what presets are compared by ------------------------ */

#define COLUMN_COUNT(g) (ROW_COLUMNS + ((g)->gpus[0].places > 0 ? GPU_COLUMNS : 0))
#define FULL_COLUMNS(g) (FIRST_COLUMNS + COLUMN_COUNT(g) * OTHER_COLUMNS)

/* Columns of the terminal that `out` is; 0: it is none. */
static unsigned terminal_columns(FILE *out)
{
    struct winsize size;
    int fd = fileno(out);
    return fd >= 0 && isatty(fd) && ioctl(fd, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

static void print_short_row(FILE *out, const struct grid *g, const struct position *p)
{
    const struct cell *c = grid_cell(g, p->contender, p->budget, p->storage);
    const struct sim_stats *f = &c->result.phase[SIM_DECODE];
    bool gpu = g->gpus[0].places > 0;
    if (!c->made)
        return;
    fprintf(out, "%-21s %6.4g %% %6.1f %% %9.3f", g->contender[p->contender].label,
            g->budget[p->budget].percent, 100 * result_hits(&c->result), result_mib(&c->result));
    if (gpu)
        fprintf(out, " %7.1f %% %8.3f", 100 * result_gpu_hits(&c->result),
                result_gpu_mib(&c->result));
    else
        fprintf(out, " %7.0f %% %6.0f %%",
                100 * ratio((double)f->prefetches_used, (double)f->prefetches),
                100 * ratio((double)f->predicted_hits, (double)f->predicted_accesses));
    fprintf(out, " %9.3f\n", result_token_ms(&c->result));
}

static void print_short(FILE *out, const struct grid *g)
{
    struct position p;
    char speed[24];
    uint32_t budget = 0;
    for (uint32_t d = 0; d < g->storages; d++) {
        fprintf(out, "%sread bandwidth %s\n", d ? "\n" : "", speed_text(&g->storage[d], speed));
        fprintf(out, "%-21s %8s %8s %9s %9s %8s %9s\n", "preset", "experts", "hits", "MiB/token",
                g->gpus[0].places > 0 ? "gpu hits" : "used",
                g->gpus[0].places > 0 ? "gpu MiB" : "recall", "ms/token");
        for (bool more = next_cell(g, &p, true); more; more = next_cell(g, &p, false)) {
            if (p.storage != d)
                continue;
            if (p.budget != budget)
                fputc('\n', out);
            budget = p.budget;
            print_short_row(out, g, &p);
        }
    }
    fprintf(out,
            "\nAll columns: --output md, csv or json, or a terminal of %u columns.\n"
            "Fewer rows: --presets A,B --budgets 25%%,50%%; or one row per preset: --pivot time\n",
            (unsigned)FULL_COLUMNS(g));
}

/* ---- a table on storage ---------------------------------------------------------------------- */

bool print_table_rows(FILE *out, const struct cell *c, const char *of, bool first)
{
    static const char *const names[SIM_PHASES] = {"decode", "prefill"};
    for (int p = 0; p < SIM_PHASES; p++) {
        const struct sim_stats *f = &c->result.phase[p];
        double tokens = (double)f->tokens, pages = (double)f->table_pages;
        if (f->table_rows == 0)
            continue;
        fprintf(
            out,
            "%sRows of the table, %s%s: %.2f per token in %.2f pages, %.1f %% of these in memory; "
            "%.2f KiB read per token\n",
            first ? "\n" : "", names[p], of, ratio((double)f->table_rows, tokens),
            ratio(pages, tokens), 100 * ratio(pages - (double)f->table_reads, pages),
            ratio((double)f->table_bytes / (double)KIB, tokens));
        first = false;
    }
    return first;
}

static void print_table(FILE *out, const struct grid *g)
{
    const struct cell *c = g->cell;
    while (!c->made)
        c++;
    print_table_rows(out, c, "", true);
}

static int sound(FILE *out)
{
    return fflush(out) == 0 && !ferror(out) ? 0 : -1;
}

int print_text(FILE *out, const struct grid *g, const char *pivot)
{
    unsigned columns = terminal_columns(out);
    if (pivot)
        print_pivot(out, g, pivot, false);
    else if (columns > 0 && columns < FULL_COLUMNS(g))
        print_short(out, g);
    else
        print_rows(out, g, false);
    print_table(out, g);
    return sound(out);
}

int print_md(FILE *out, const struct grid *g, const char *pivot)
{
    if (pivot)
        print_pivot(out, g, pivot, true);
    else
        print_rows(out, g, true);
    print_table(out, g);
    return sound(out);
}

/* ---- csv and json --------------------------------------------------------------------------- */

static const char *const phase_names[SIM_PHASES] = {"decode", "prefill"};

int print_csv(FILE *out, const struct grid *g)
{
    fprintf(out, "preset,%sbudget_bytes,budget_percent,read_bytes_per_s,phase",
            g->together ? "parallel," : "");
#define COUNT(name, meaning) fprintf(out, ",%s", #name);
#define REAL(name, meaning)  fprintf(out, ",%s", #name);
#include "lib/sim/results.tbl.h"
    fputc('\n', out);
    struct position p;
    for (bool more = next_cell(g, &p, true); more; more = next_cell(g, &p, false)) {
        const struct cell *c = grid_cell(g, p.contender, p.budget, p.storage);
        for (int phase = 0; c->made && phase < SIM_PHASES; phase++) {
            const struct sim_stats *f = &c->result.phase[phase];
            fprintf(out, "%s,", g->contender[p.contender].label);
            if (g->together)
                fprintf(out, "%" PRIu32 ",", g->contender[p.contender].parallel);
            fprintf(out, "%" PRIu64 ",%.6g,%.0f,%s", g->budget[p.budget].bytes,
                    g->budget[p.budget].percent, g->storage[p.storage].bytes_per_s,
                    phase_names[phase]);
#define COUNT(name, meaning) fprintf(out, ",%" PRIu64, f->name);
#define REAL(name, meaning)  fprintf(out, ",%.6f", f->name);
#include "lib/sim/results.tbl.h"
            fputc('\n', out);
        }
    }
    return sound(out);
}

static json_t *json_of_phase(const struct sim_stats *f)
{
    json_t *o = json_object();
#define COUNT(name, meaning) json_object_set_new(o, #name, json_integer((json_int_t)f->name));
#define REAL(name, meaning)  json_object_set_new(o, #name, json_real(f->name));
#include "lib/sim/results.tbl.h"
    return o;
}

static json_t *json_of_cell(const struct grid *g, const struct position *p)
{
    const struct cell *c = grid_cell(g, p->contender, p->budget, p->storage);
    const struct contender *contender = &g->contender[p->contender];
    char knobs[1024];
    json_t *o = json_pack("{s:s, s:s, s:I, s:f, s:f}", "preset", contender->label, "policy",
                          knobs_text(&contender->knobs, knobs, sizeof knobs), "budget_bytes",
                          (json_int_t)g->budget[p->budget].bytes, "budget_percent",
                          g->budget[p->budget].percent, "read_bytes_per_s",
                          g->storage[p->storage].bytes_per_s);
    if (g->together)
        json_object_set_new(o, "parallel", json_integer(contender->parallel));
    json_object_set_new(o, "hit_rate", json_real(result_hits(&c->result)));
    json_object_set_new(o, "token_ms", json_real(result_token_ms(&c->result)));
    json_object_set_new(o, "stall_ms", json_real(result_stall_ms(&c->result)));
    json_object_set_new(o, "penalty_per_token", json_real(result_penalty(&c->result)));
    json_object_set_new(o, "mib_per_token", json_real(result_mib(&c->result)));
    if (g->gpus[0].places > 0) {
        json_object_set_new(o, "gpu_hit_rate", json_real(result_gpu_hits(&c->result)));
        json_object_set_new(o, "gpu_mib_per_token", json_real(result_gpu_mib(&c->result)));
        json_object_set_new(o, "gpu_stall_ms", json_real(result_gpu_stall_ms(&c->result)));
    }
    for (int phase = 0; phase < SIM_PHASES; phase++)
        json_object_set_new(o, phase_names[phase], json_of_phase(&c->result.phase[phase]));
    return o;
}

static json_t *json_of_gpu(const struct sim_gpu *gpu)
{
    json_t *each = json_array();
    uint64_t slots = 0;
    for (const struct sim_gpu *g = gpu; g; g = g->next) {
        slots += g->places;
        json_array_append_new(each, json_pack("{s:I, s:I}", "slots", (json_int_t)g->places,
                                              "end_layer", (json_int_t)g->end_layer));
    }
    return json_pack("{s:I, s:s, s:f, s:f, s:o}", "slots", (json_int_t)slots, "policy",
                     gpu_policy_name(gpu->policy), "bytes_per_s", gpu->bytes_per_s, "expert_us",
                     gpu->expert_ns / 1e3, "each", each);
}

int print_json(FILE *out, const struct grid *g)
{
    json_t *rows = json_array();
    struct position p;
    for (bool more = next_cell(g, &p, true); more; more = next_cell(g, &p, false))
        if (grid_cell(g, p.contender, p.budget, p.storage)->made)
            json_array_append_new(rows, json_of_cell(g, &p));
    json_t *doc =
        json_pack("{s:I, s:I, s:I, s:I, s:o}", "layers", (json_int_t)g->header.layers, "experts",
                  (json_int_t)g->header.experts, "top_k", (json_int_t)g->header.top_k,
                  "expert_bytes", (json_int_t)sim_all_bytes(&g->header), "results", rows);
    if (g->gpus[0].places > 0)
        json_object_set_new(doc, "gpu", json_of_gpu(&g->gpus[0]));
    int rc = json_dumpf(doc, out, JSON_INDENT(2) | JSON_REAL_PRECISION(9));
    json_decref(doc);
    return rc == 0 && fputc('\n', out) != EOF ? sound(out) : -1;
}
