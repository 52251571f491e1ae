/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by evaluate.c, score.c and sweep.c: an evaluation and its workers. */
#ifndef SLUICE_OFFLINE_MEASURE_JOB_H
#define SLUICE_OFFLINE_MEASURE_JOB_H

#include <pthread.h>
#include <stdatomic.h>

#include "lib/offline/measure/evaluate.h"

struct pair { /* the measured model, and the lossless one (or NULL) */
    struct offline_runner *test, *reference;
};

/* A segment of windows that is decoded abreast with others. */
struct stream {
    uint32_t window, end; /* the one that is decoded, and the end of the segment */
    uint32_t at;          /* its next token */
    bool busy;
    float *base; /* [window][residual] of the lossless model; NULL: it does not run */
};

/* A group of windows that goes through the model layer by layer: a step is one window in one layer,
 * or, after the layers, the scoring of a window. Workers take steps in this order; a step waits for
 * the one before it of the same window. */
struct sweep {
    uint32_t first, windows;
    uint32_t layer, layers; /* the first one, and how many */
    uint64_t next;          /* step: (layer - first layer) * windows + window */
    uint32_t *finished;     /* [windows] steps of each */
    float *x[2]; /* [windows][window][hidden] residual stream; of the reference: NULL without */
};

struct job { /* what all workers share */
    const struct offline_evaluation *e;
    struct offline_losses *out;
    struct worker *worker;
    uint32_t workers, group; /* windows of a sweep */
    uint32_t streams;        /* of a worker, abreast; else 1 */
    size_t scratch_limit;    /* 0: none */
    size_t output_bytes;     /* logits of a runner */
    uint64_t hook_bytes;     /* left for the hooks */
    atomic_uint next;        /* window, in order of time */
    struct sweep sweep;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    uint64_t done, of, started_ns; /* steps */
    atomic_uint failed;
    struct error error; /* of the first failure */
};

struct worker {
    struct job *job;
    uint32_t number;
    struct offline_hooks own; /* the caller's hooks */
    struct pair pair;
    uint32_t chunk[2];              /* rows of a pass: of the measured model, of the reference */
    struct core_row *rows;          /* [window], and at least [streams] */
    struct stream *stream;          /* [streams] */
    uint32_t *row_stream;           /* [streams] that a row of the pass is of */
    struct core_sequence *sequence; /* [streams] of the pass */
    float *gathered;                /* [streams][residual] rows of `base` */
    uint64_t skipped, accesses[PRECISION__COUNT];
    float *recorded; /* one row of log-probabilities of e->against */
    pthread_t thread;
    bool started;
};

/* evaluate.c: rows of a pass that is not limited by memory; whether the decisions of the worker's
 * hooks depend on them, so that they must not be limited. */
uint32_t job_chunk(const struct job *job);
bool job_chunk_depends(const struct worker *w);

/* evaluate.c: what the runner of the measured model calls. */
struct offline_hooks job_hooks(struct worker *w);

/* abreast.c: windows of the worker's segments until none is left. -1 with *error. */
int abreast_run(struct worker *w, struct error *error);
int abreast_open(struct worker *w, struct error *error); /* memory for its streams */
void abreast_close(struct worker *w);

/* evaluate.c: counts `steps` as done; worker 0 reports. */
void job_progress(struct worker *w, uint64_t steps);

/* evaluate.c: runs `loop` in a thread per worker until all end; worker 0 is this thread. */
void job_run(struct job *job, void *(*loop)(void *worker));

/* score.c: scores row `row` of the window, q, up to a constant, unless it is context. base: the
 * row of the lossless model; NULL when it does not run. */
int score_row(struct worker *w, uint32_t window, uint32_t row, const float *q, const float *base,
              struct error *error);

/* sweep.c: within a budget, how many workers there are, and the scratch memory of a runner whose
 * decisions do not depend on its chunk: the experts of a layer come first. Makes dense weights of
 * another precision, and takes memory for the runners from the slots. The hooks of worker 0 are
 * set. */
int sweep_workers(struct job *job, struct error *error);

/* sweep.c: sizes of a sweep within the budget, announced; then all windows. */
int sweep_prepare(struct job *job, struct error *error);
int sweep_run(struct job *job, struct error *error);

#endif
