/* The parts of sluice sim: what is replayed, and how it is shown. Private to procs/sim. */
#ifndef SLUICE_TOOLS_SIM_SIM_PROGRAM_H
#define SLUICE_TOOLS_SIM_SIM_PROGRAM_H

#include <stdio.h>

#include "lib/sim/sim.h"

#define LABELS_MAX       40
#define BUDGETS_MAX      24
#define GRID_DEVICES_MAX 6

struct budget {
    uint64_t bytes;
    double percent; /* of all experts at their best tier */
};

/* A line of the grid: a system, or an eviction alone (no prediction, one pool, lossless). */
struct contender {
    char label[KNOB_NAME_BYTES];
    struct knobs knobs;
    bool eviction, belady;
};

struct cell {
    bool made; /* false: it cannot be replayed, or not at that budget */
    struct sim_result result;
};

struct grid {
    struct contender contender[LABELS_MAX];
    struct budget budget[BUDGETS_MAX];
    struct sim_device device[GRID_DEVICES_MAX];
    uint32_t contenders, budgets, devices;
    struct cell *cell; /* [contenders][budgets][drives] */
    struct trace_header header;
    uint64_t tokens; /* measured: of all passes */
};

static inline const struct cell *grid_cell(const struct grid *g, uint32_t contender,
                                           uint32_t budget, uint32_t device)
{
    return &g->cell[(contender * g->budgets + budget) * g->devices + device];
}

/* A speed as drives have it, in decimal units: "200 MB/s". Returns buf. */
const char *speed_text(const struct sim_device *d, char buf[24]);

/* Figures made of sums. 0 where there is nothing to divide by. */
double result_hits(const struct sim_result *r);     /* share of the uses, both phases */
double result_token_ms(const struct sim_result *r); /* of decode */
double result_stall_ms(const struct sim_result *r); /* of it */
double result_penalty(const struct sim_result *r);  /* per decoded token */
double result_mib(const struct sim_result *r);      /* read per decoded token */

/* print.c. pivot: one row per contender, one column per budget: "hits", "time" or "penalty"; NULL:
 * a row per cell. 0, or -1 when out broke. */
int print_text(FILE *out, const struct grid *g, const char *pivot);
int print_md(FILE *out, const struct grid *g, const char *pivot);
int print_csv(FILE *out, const struct grid *g);
int print_json(FILE *out, const struct grid *g);

/* plot.c: hits over budget, and time per token over budget, a panel per drive, as SVG. */
int plot_svg(FILE *out, const struct grid *g);

#endif
