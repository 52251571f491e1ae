/* What the files of the predictor share. One thread. */
#ifndef SLUICE_PREDICTOR_PREDICTOR_H
#define SLUICE_PREDICTOR_PREDICTOR_H

#include "ipc/child.h"
#include "lib/kernels/kernels.h"
#include "lib/policy/policy.h"
#include "procs/predictor/recall.h"

#define PREDICTOR_MAGIC 0x50524544u

struct predictor_calm { /* since when the cache has sent no load */
    uint64_t loads, since_ns;
    uint32_t news; /* rows published by then */
};

struct predictor {
    uint32_t magic;
    struct child child;
    struct edge *cache; /* HINT */
    const struct kernel_ops *ops;
    prediction_fn predict;
    uint32_t want; /* guesses per layer */
    struct predictor_calm calm;
    struct recall *recall;
    struct uses_reader uses;
    float *values;         /* [width] of the row read last */
    void *input;           /* the same, as the router wants it */
    float *logits;         /* [experts] */
    struct guess *guesses; /* [experts] */
    struct msg_hint hint;
};

/* hints.c: allocates the above. */
int hints_open(struct predictor *p, struct error *error);
/* Turns the gate row of `layer` into a HINT for the next layer. */
void hints_from_row(struct predictor *p, uint32_t layer);
/* Compares what was used since the last call with what was guessed. */
void hints_measure(struct predictor *p);

#endif
