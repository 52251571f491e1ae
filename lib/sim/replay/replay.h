/* SPDX-License-Identifier: Apache-2.0 */
/* Internals of a replay: the sequences of a trace, and the running layer. Private to lib/sim. */
#ifndef SLUICE_SIM_REPLAY_REPLAY_H
#define SLUICE_SIM_REPLAY_REPLAY_H

#include "lib/sim/internal.h"

#include "lib/policy/access/prefill.h"
#include "lib/policy/prediction/activation.h"
#include "lib/policy/sequences.h"

struct run_sequence { /* one that runs */
    bool in_pass;     /* it takes part in the running pass, ... */
    bool done;        /* ... and its part is complete */
    uint32_t position, tokens;
    uint16_t *chosen[2]; /* [experts]: of the layers one and two before */
    uint32_t chosen_count[2], chosen_layer[2];
};

/* Experts that a row of a sequence could be routed to (TRACE_CANDIDATE). */
struct run_candidates {
    uint32_t sequence, position, layer, count;
    uint64_t first;                      /* record */
    struct routing_candidate *candidate; /* [experts] */
    float *weight;                       /* [experts]: of each candidate */
};

struct run_row { /* whose logits are collected: `count` experts, from the first one on */
    uint32_t sequence, position, layer, count;
};

/* Router logits of a trace, where they are needed. */
struct run_logits {
    struct run_row *row; /* [SEQUENCES_MAX], by place */
    float *value;        /* [SEQUENCES_MAX][experts] */
    float *bias;         /* [layers][experts] */
    uint32_t *biases;    /* [layers]: elements of it that the trace has, from the first one on */
    bool any_bias;       /* of a layer: then logits of one whose bias is not whole are not used */
    bool gives_levels;   /* to the eviction, because the trace has no records of these */
    float *margin, *scratch;
    uint8_t *levels; /* [experts], as margin */
};

#define RUN_PART_NONE UINT32_MAX

struct run_part { /* what a sequence uses of an expert in the running layer */
    const struct trace_record *record;
    uint32_t step;
    uint32_t next; /* part of the same expert; RUN_PART_NONE */
};

struct run_item {                 /* an expert of the running layer */
    uint32_t tokens, first, last; /* parts */
};

/* The accesses of a layer of one pass: of all its sequences. */
struct run_layer {
    struct sim_step step[SEQUENCES_MAX];
    struct run_sequence *sequence[SEQUENCES_MAX]; /* of each step */
    uint32_t used[SEQUENCES_MAX];                 /* experts of each step */
    const struct trace_record **access; /* [SEQUENCES_MAX][experts]: of each step, by rank */
    uint32_t steps;
    struct run_part *part; /* [SEQUENCES_MAX * experts] */
    uint32_t parts;
    uint32_t *expert; /* [experts]: in order of their first record */
    uint32_t experts;
    struct run_item *item;      /* [experts], by number; without tokens: not used */
    struct sim_part *given;     /* [SEQUENCES_MAX]: of one access */
    struct prefill_item *order; /* [experts]: by popularity */
    float *popularity;          /* [experts] */
};

struct run {
    const struct trace *t;
    struct sim_cache *cache;
    uint32_t layers, experts, top_k;
    struct sequences sequences;
    struct run_sequence sequence[SEQUENCES_MAX]; /* by place */
    uint32_t in_pass; /* sequences in the running pass that are not done */
    struct run_layer layer;
    uint16_t *chosen;                  /* [SEQUENCES_MAX][2][experts] */
    struct activation *activation;     /* of prediction=activation, else NULL */
    struct prediction *predictions;    /* [experts] */
    uint32_t *known;                   /* [experts]: tokens, of a layer with a table */
    bool began;                        /* the running pass: such layers were read */
    float *scratch;                    /* [experts] */
    double *next, *next_access;        /* belady: next access of each record; of each expert now */
    struct run_candidates *candidates; /* [SEQUENCES_MAX], by place; NULL: routes as recorded */
    struct run_logits *logits;         /* NULL: not needed, or not recorded */
    bool *resident;                    /* [experts]: of candidates */
    struct trace_record *made; /* [SEQUENCES_MAX][MODEL_TOP_K_MAX]: instead of those recorded */
    enum trace_kind gpu_kind;  /* of the predictions for a GPU; 0: none needed */
    struct run_table *table;   /* NULL: the trace has no rows of a table */
};

/* ---- layer.c ---- */

bool run_layer_create(struct run *r); /* false: out of memory */
void run_layer_free(struct run *r);
/* The records of accesses from `at` on that are of one layer of one pass, in any order, with other
 * records among them. Returns the record after them. */
uint64_t run_layer_end(const struct run *r, uint64_t at, uint64_t end);
/* Adds a step of a sequence for its first record. */
void run_layer_add(struct run *r, const struct trace_record *first, struct run_sequence *s);
/* Collects and simulates the accesses at..after-1 of the sequences that were added; predictions
 * follow up to `end`. */
void run_layer_replay(struct run *r, uint64_t at, uint64_t after, uint64_t end);

/* Where a table names the experts of the first layers, these are known when a pass begins: before
 * its first layer, whose records begin at `at`, and whose steps were added. */
void run_layer_known(struct run *r, uint64_t at, uint64_t end);

/* ---- run.c ---- */

bool run_has_kind(const struct trace *t, enum trace_kind kind);

/* ---- table.c: rows of a table on storage ---- */

bool run_table_create(struct run *r); /* false: out of memory */
void run_table_free(struct run *r);
/* A record of rows. */
void run_table_take(struct run *r, const struct trace_record *x);
/* All rows of a pass were taken, if any: they are read, and counted in sim_cache_count_table. */
void run_table_read(struct run *r);

/* ---- logits.c: router logits ---- */

/* After run_reroute_create. False: out of memory; run_logits_free is to be called. */
bool run_logits_create(struct run *r, enum eviction eviction);
void run_logits_free(struct run *r);
/* A record of logits, of the sequence at this place. The last one of a layer gives what follows
 * from all of them. */
void run_logits_take(struct run *r, uint32_t place, const struct trace_record *x);

/* ---- reroute.c: routing resident-first ---- */

/* Sets *needed to whether accesses are made from candidates: with that routing, and with exact
 * routing if the trace has accesses that are not the exact choice. ERR_BAD_INPUT: it cannot be
 * simulated on this trace. */
int run_reroute_check(const struct trace *t, const struct knobs *k, bool belady, bool *needed,
                      struct error *error);
bool run_reroute_create(struct run *r); /* false: out of memory */
void run_reroute_free(struct run *r);
/* A record of a candidate, of the sequence at this place. */
void run_reroute_take(struct run *r, uint32_t place, const struct trace_record *x);
/* After sim_cache_layer: the top-k accesses of a step by rank, in place of those recorded; with
 * exact routing the first candidates. NULL: those recorded. Valid until the same step of the next
 * layer. */
const struct trace_record *run_reroute(struct run *r, uint32_t step);

#endif
