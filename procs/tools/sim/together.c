/* SPDX-License-Identifier: Apache-2.0 */
/* The table of --parallel: what sequences that decode together share, and their speed. */
#include <string.h>

#include "procs/tools/sim/sim_program.h"

#include "lib/base/bytes.h"
#include "lib/rates/rates.h"

static double ratio(double a, double b)
{
    return b > 0 ? a / b : 0;
}

/* Tokens of all sequences per second of decode. */
static double tokens_per_s(const struct cell *c)
{
    const struct sim_stats *f = &c->result.phase[SIM_DECODE];
    return c->made ? ratio(1e9 * (double)f->tokens, f->compute_ns + f->stall_ns) : 0;
}

/* The bound of the passes (lib/rates), in tokens/s of all: a layer without experts and an expert
 * take one row's time, and each row at least what a further one costs. GPUs are not in it. */
static double bound_of(const struct grid *g, const struct cell *c, double storage_bytes_per_s)
{
    const struct sim_stats *f = &c->result.phase[SIM_DECODE];
    const struct sim_compute *k = &g->compute;
    double passes = (double)f->passes, bytes = (double)(f->demand_bytes + f->prefetch_bytes);
    double dense_ns = k->layer_ns * trace_expert_layers(&g->header),
           rows = ratio((double)f->tokens, passes);
    double experts_ns = k->expert_ns * ratio((double)f->experts, passes);
    double uses_ns = k->expert_ns * ratio((double)f->accesses, passes);
    /* weights are counted in ns of one row, so that the memory has one of them per ns */
    const struct rates_machine machine = {.memory = 1e9,
                                          .storage = storage_bytes_per_s,
                                          .arithmetic = k->batch > 0 ? 1e9 / k->batch : 0};
    const struct rates_pass pass = {.memory_bytes = dense_ns + experts_ns,
                                    .storage_bytes = ratio(bytes, passes),
                                    .row_bytes = rows * dense_ns + uses_ns};
    return ratio(rows, rates_bound(&machine, &pass).pass_s);
}

/* The same preset or eviction with the first number of sequences. */
static uint32_t first_like(const struct grid *g, uint32_t contender)
{
    for (uint32_t i = 0; i < contender; i++)
        if (strcmp(g->contender[i].label, g->contender[contender].label) == 0)
            return i;
    return contender;
}

static void print_head(FILE *out, bool md)
{
    static const char *const heads[] = {"preset",    "resident",     "bandwidth",   "sequences",
                                        "rows/pass", "experts/pass", "rows/expert", "MiB/pass",
                                        "MiB/token", "hits",         "tokens/s",    "gain",
                                        "bound",     "share"};
    fputs(md ? "|" : "", out);
    for (size_t i = 0; i < ARRAY_LEN(heads); i++)
        fprintf(out, md ? " %s |" : i == 0 ? "%-16s" : " %12s", heads[i]);
    fputs(md ? "\n|---|" : "\n", out);
    for (size_t i = 1; md && i < ARRAY_LEN(heads); i++)
        fputs("---:|", out);
    fputs(md ? "\n" : "", out);
}

static void print_row(FILE *out, const struct grid *g, uint32_t contender, uint32_t budget,
                      uint32_t storage, bool md)
{
    const struct cell *c = grid_cell(g, contender, budget, storage);
    const struct cell *first = grid_cell(g, first_like(g, contender), budget, storage);
    const struct sim_stats *f = &c->result.phase[SIM_DECODE];
    double passes = (double)f->passes, bytes = (double)(f->demand_bytes + f->prefetch_bytes);
    double bound = c->made ? bound_of(g, c, g->storage[storage].bytes_per_s) : 0;
    char speed[24];
    if (!c->made)
        return;
    fprintf(out,
            md ? "| %s | %.4g %% | %s | %u | %.2f | %.1f | %.2f | %.2f | %.2f | %.1f %% | %.2f |"
                 " %.2f | %.2f | %.2f |\n"
               : "%-16s %10.4g %% %12s %12u %12.2f %12.1f %12.2f %12.2f %12.2f %10.1f %% %12.2f"
                 " %12.2f %12.2f %12.2f\n",
            g->contender[contender].label, g->budget[budget].percent,
            speed_text(&g->storage[storage], speed), g->contender[contender].parallel,
            ratio((double)f->tokens, passes), ratio((double)f->experts, passes),
            ratio((double)f->accesses, (double)f->experts), ratio(bytes / (double)MIB, passes),
            ratio(bytes / (double)MIB, (double)f->tokens), 100 * result_hits(&c->result),
            tokens_per_s(c), ratio(tokens_per_s(c), tokens_per_s(first)), bound,
            ratio(tokens_per_s(c), bound));
}

/* A cell with this number of sequences; NULL: none could be replayed. */
static const struct cell *cell_with(const struct grid *g, uint32_t parallel)
{
    for (uint32_t i = 0; i < g->contenders; i++)
        for (uint32_t n = 0; g->contender[i].parallel == parallel && n < g->budgets * g->storages;
             n++)
            if (grid_cell(g, i, 0, 0)[n].made)
                return &grid_cell(g, i, 0, 0)[n];
    return NULL;
}

static bool is_first_with(const struct grid *g, uint32_t contender)
{
    for (uint32_t i = 0; i < contender; i++)
        if (g->contender[i].parallel == g->contender[contender].parallel)
            return false;
    return true;
}

/* What is read of a table on storage with each number of sequences. */
static void print_tables(FILE *out, const struct grid *g)
{
    bool first = true;
    for (uint32_t i = 0; i < g->contenders; i++) {
        uint32_t parallel = g->contender[i].parallel;
        const struct cell *c = is_first_with(g, i) ? cell_with(g, parallel) : NULL;
        char of[40];
        snprintf(of, sizeof of, " of %u sequence%s", parallel, parallel == 1 ? "" : "s");
        if (c)
            first = print_table_rows(out, c, of, first);
    }
}

int print_together(FILE *out, const struct grid *g, bool md)
{
    print_head(out, md);
    for (uint32_t d = 0; d < g->storages; d++)
        for (uint32_t b = 0; b < g->budgets; b++)
            for (uint32_t first = 0; first < g->contenders; first++)
                for (uint32_t i = first; first_like(g, first) == first && i < g->contenders; i++)
                    if (first_like(g, i) == first)
                        print_row(out, g, i, b, d, md);
    print_tables(out, g);
    return fflush(out) == 0 && !ferror(out) ? 0 : -1;
}
