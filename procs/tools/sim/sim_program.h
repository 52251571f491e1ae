/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of sluice sim: the grid of replays and its output. */
#ifndef SLUICE_TOOLS_SIM_SIM_PROGRAM_H
#define SLUICE_TOOLS_SIM_SIM_PROGRAM_H

#include <stdio.h>

#include "lib/sim/sim.h"
#include "lib/trace/import/import.h"

#define LABELS_MAX       40
#define BUDGETS_MAX      24
#define GRID_STORAGE_MAX 6
#define PARALLEL_MAX     16 /* numbers of sequences */
#define TRACES_MAX       64
#define ITEM_BYTES       64

struct budget {
    uint64_t bytes;
    double percent; /* of all experts at their highest precision */
};

/* A row of the grid: a preset, or an eviction only (no prediction, one pool, lossless). */
struct contender {
    char label[24];
    struct knobs knobs;
    bool eviction, belady;
    uint32_t parallel; /* sequences at a time; 0: as recorded */
};

struct cell {
    bool made; /* false: cannot be replayed at this budget */
    struct sim_result result;
};

struct grid {
    struct contender contender[LABELS_MAX];
    struct budget budget[BUDGETS_MAX];
    struct sim_storage storage[GRID_STORAGE_MAX];
    uint32_t contenders, budgets, storages;
    struct sim_gpu gpus[SIM_GPUS_MAX]; /* of all cells, linked; without places: none */
    struct cell *cell;                 /* [contenders][budgets][devices] */
    struct trace_header header;
    struct sim_compute compute;
    bool together; /* --parallel: contenders have a number of sequences */
};

static inline const struct cell *grid_cell(const struct grid *g, uint32_t contender,
                                           uint32_t budget, uint32_t storage)
{
    return &g->cell[(contender * g->budgets + budget) * g->storages + storage];
}

/* The bandwidth in decimal units: "200 MB/s". Returns buf. */
const char *speed_text(const struct sim_storage *d, char buf[24]);

/* Derived results; 0 if the divisor is 0. */
double result_hits(const struct sim_result *r);     /* share of the accesses, both phases */
double result_token_ms(const struct sim_result *r); /* per decoded token of all sequences */
double result_stall_ms(const struct sim_result *r); /* part of it */
double result_penalty(const struct sim_result *r);  /* per decoded token */
double result_mib(const struct sim_result *r);      /* read per decoded token */
double result_gpu_hits(const struct sim_result *r); /* share of the uses of experts, both phases */
double result_gpu_mib(const struct sim_result *r);  /* copied to the GPU per decoded token */
double result_gpu_stall_ms(const struct sim_result *r); /* part of the stall: copies to it */

/* traces.c */

struct traces {
    const char *path[TRACES_MAX];
    const char *import; /* settings, if the files are recordings of other engines; else NULL */
    struct trace trace[TRACES_MAX];
    uint32_t count;
    uint32_t parallel[PARALLEL_MAX], parallels; /* of --parallel */
    struct together *together;                  /* with --parallel, or of several traces */
    bool limited; /* --max-token-gap was given; 0: as an engine chooses it */
    uint64_t gap_ns;
};

/* --parallel: "1,2,4". -1 with *error. */
int traces_parallel(struct traces *t, const char *list, struct error *error);
/* --max-token-gap, in ms. */
int traces_gap(struct traces *t, const char *text, struct error *error);
/* Reads the files, and makes one trace of them: for --parallel the first number. -1 with *error. */
int traces_read(struct traces *t, struct trace *out, struct error *error);
/* Replaces the trace by that of a number of sequences, within the limit; its header stays. */
int traces_together(const struct traces *t, uint32_t parallel, const struct sim_compute *compute,
                    struct trace *out, struct error *error);
/* Makes a contender for each number of sequences. -1 with *error: too many. */
int traces_contenders(const struct traces *t, struct grid *g, struct error *error);
/* The most experts that a decoded token has predicted for a layer; 0: none is recorded. */
uint32_t traces_longest_list(const struct trace *t);
void traces_free(struct traces *t);

/* values.c */

/* The next item of a comma-separated list, trimmed. False at its end. */
bool value_next(const char **list, char item[ITEM_BYTES]);
/* After `error` of a preset with a policy. 0: the policy goes with others, and standard error says
 * that this preset is left out. -1: the error stands. */
int omit_preset(const char *name, const char *policy, struct error *error);
/* A trace from the settings of --synthetic. -1 with *error. */
int make_synthetic(const char *settings, struct trace *out, struct error *error);
/* The settings of --import. -1 with *error. */
int import_settings(const char *settings, struct trace_import *t, struct error *error);
/* Adds the precisions of --precisions (NULL: none) to those of the trace. -1 with *error. */
int take_precisions(const char *list, struct trace_header *h, struct error *error);

/* print.c. pivot "hits", "time" or "penalty": a row per contender, a column per budget; NULL: a row
 * per cell. -1 on a write error. */
int print_text(FILE *out, const struct grid *g, const char *pivot);
int print_md(FILE *out, const struct grid *g, const char *pivot);
int print_csv(FILE *out, const struct grid *g);
int print_json(FILE *out, const struct grid *g);
/* A line of each phase in which rows of a table on storage were read. That depends on the trace
 * alone: any cell made of it has the same. of: what follows the phase's name; first: an empty line
 * precedes. False: lines were written, or `first` was false. */
bool print_table_rows(FILE *out, const struct cell *c, const char *of, bool first);
/* together.c: what sequences share, for --parallel: a row per cell and number of them. */
int print_together(FILE *out, const struct grid *g, bool md);

/* plot.c: SVG of hits over budget, and a panel per device of time per token over budget. -1 on a
 * write error. */
int plot_svg(FILE *out, const struct grid *g);

#endif
