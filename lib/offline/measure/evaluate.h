/* SPDX-License-Identifier: Apache-2.0 */
/* Losses of a model over windows of a text, each window independent, on all threads. Groups of
 * windows go through the model layer by layer, so that an expert is read once for all of them: a
 * worker takes one window in one layer, with a single-threaded core, so that results do not depend
 * on the number of threads. Decisions that depend on earlier tokens need the windows in order of
 * time: a worker takes whole windows, or, token by token, one token of each of several segments in
 * a pass (abreast).
 *
 * Perplexity = exp(sum of nll / scored tokens), tokens 1 .. window-1 of every window, each from
 * those before it: the protocol of `sluice eval`. */
#ifndef SLUICE_OFFLINE_MEASURE_EVALUATE_H
#define SLUICE_OFFLINE_MEASURE_EVALUATE_H

#include "lib/offline/measure/logits.h"
#include "lib/offline/offline.h"
#include "lib/offline/text.h"
#include "lib/tensor/precision.h"

/* Maximum threads of an evaluation; worker numbers are below it. */
#define OFFLINE_WORKERS_MAX 64
/* Segments of a worker that go through the model abreast, at most. */
#define OFFLINE_STREAMS_MAX 32

struct offline_progress {
    uint64_t done, of;   /* steps of equal work */
    uint64_t left_ns;    /* until the end, at the speed so far */
    uint64_t read_bytes; /* of the model, since it was opened; 0: mapped */
};

/* Within a budget, before an evaluation begins. */
struct offline_estimate {
    uint32_t windows, group, threads; /* group: windows that go through the layers together */
    uint64_t expert_bytes;            /* of all experts */
    uint64_t slot_bytes;              /* memory for experts */
    uint64_t read_bytes;              /* at most; nothing is resident at the start */
    uint64_t enough_bytes;            /* with this budget nothing is read twice by a group */
    double bytes_per_s;               /* of the reads so far, on one thread */
};

/* Time for `left` more steps of step_ns, of which the first `must` are done in any case and the
 * others only within limit_ns from now. */
uint64_t offline_left_ns(double step_ns, uint64_t must, uint64_t left, uint64_t limit_ns);

/* Lines for people: what is done and left; what will be read. */
#define OFFLINE_TEXT_BYTES 320
const char *offline_progress_text(const struct offline_progress *p, char text[OFFLINE_TEXT_BYTES]);
const char *offline_duration_text(uint64_t ns, char text[OFFLINE_TEXT_BYTES]);
const char *offline_estimate_text(const struct offline_estimate *e, char text[OFFLINE_TEXT_BYTES]);

/* Layers [first, end) of an evaluation that is not in_order and compares nothing. The residual
 * stream of all windows, [windows][window][hidden] floats, is in a file: read where it enters
 * `first`, unless that is layer 0; written where it leaves `end`, and then nothing is scored:
 * losses are 0. The losses from a layer on are those of the whole model if the layers before it are
 * as they were. */
struct offline_part {
    uint32_t first, end; /* end 0: all, and scored */
    int fd;              /* of offline_part_bytes; borrowed; -1: not needed */
};

struct offline_evaluation {
    struct offline_model *model;
    const struct offline_text *text;
    uint32_t threads;    /* 0: number of CPUs */
    bool token_by_token; /* as in decode: exact for decisions that depend on rank */
    uint32_t chunk;      /* rows per pass otherwise; 0: the window */
    bool in_order;       /* hooks depend on earlier tokens of a window */
    uint32_t segment;    /* in_order: consecutive windows per worker; 0: one */
    /* in_order: token by token, several segments at a time: a pass has a row of each that decodes,
     * and its sequence is the number of the stream that the segment is in, from 1 on. */
    bool abreast;
    uint32_t streams;                /* abreast: at most, of a worker; 0: OFFLINE_STREAMS_MAX */
    uint32_t score_from;             /* rows before it are context: nothing of them is counted */
    bool unscored;                   /* hooks only: losses are 0, no logits. Not in_order */
    const struct offline_part *part; /* NULL: all layers */
    bool compare;                    /* also run the lossless model: KLD and top-1 agreement */
    struct logits_file *against;     /* compare with these recorded logits instead */
    struct logits_file *record;      /* receives every scored row; may be NULL */
    struct logits_file *npy;         /* the same */
    enum quant_method method;
    enum precision dense; /* of the measured model's dense matrices; the lossless one is native */
    enum kv_type kv_type, reference_kv_type; /* of the measured model, of the lossless one */
    bool renormalise_skips;
    const uint8_t
        *precision; /* [layers * experts] enum precision; NULL: native. Ignored with hooks.serve */
    const bool *allowed; /* [layers * experts] experts that may be routed to; NULL: all */
    /* Sets the hooks of a worker (with its own arg), called once per worker before it starts; NULL:
     * none. starts: the next calls of the worker's hooks are for window `window`; in_order for all
     * of it, else for one layer. Layers of a window follow each other. joins: the same for the next
     * rows of a stream, from 0 on, abreast. group: windows [first, first + windows) begin;
     * nothing is running. All may be NULL. */
    void (*hooks)(void *arg, uint32_t worker, struct offline_hooks *hooks);
    void (*starts)(void *arg, uint32_t worker, uint32_t window);
    void (*joins)(void *arg, uint32_t worker, uint32_t stream, uint32_t window);
    void (*group)(void *arg, uint32_t first, uint32_t windows);
    uint64_t row_bytes; /* that the hooks keep for every row of a group, from layer to layer */
    uint64_t
        hook_bytes; /* that they allocate while it runs; up to a half of what is free is left for
                     * them */
    uint64_t stream_bytes; /* abreast: that they allocate for each stream of each worker */
    /* Called by worker 0 after each of its steps. */
    void (*progress)(void *arg, const struct offline_progress *p);
    void (*announce)(void *arg, const struct offline_estimate *estimate);
    void *arg;
};

struct offline_losses {
    uint32_t windows, scored; /* scored: tokens of each window, which are its last ones */
    double *nll;              /* [windows] nats, summed over the window */
    float *kld;               /* [windows * scored] when compared, else NULL */
    double *reference_nll;    /* [windows] when compared, else NULL */
    uint32_t *same;     /* [windows] tokens with the same best one, when compared, else NULL */
    uint64_t top1_same; /* of windows * scored */
    uint64_t skipped,
        accesses[PRECISION__COUNT]; /* expert accesses: per token with token_by_token, abreast or
                                 * serve_row, else per chunk */
};

/* 0, or -1 with *error. Free the result with offline_losses_free. */
int offline_evaluate(const struct offline_evaluation *e, struct offline_losses *out,
                     struct error *error);
void offline_losses_free(struct offline_losses *l);
/* Opens a file of that size, without a name, in the directory of the path `next_to`; the caller
 * closes it. -1 with *error. */
int offline_part_open(const char *next_to, uint64_t bytes, struct error *error);
uint64_t offline_part_bytes(const struct offline_model *m, const struct offline_text *text);

double offline_perplexity(const struct offline_losses *l);
double offline_mean_nll(const struct offline_losses *l);

/* Relative increase of perplexity from a to b (0.01: one per cent), and its interval by bootstrap
 * over windows, paired (Efron & Tibshirani 1993; percentile method, 2000 resamples, fixed seed).
 * Both must be over the same windows. */
struct offline_interval {
    double value, low, high;
};
struct offline_interval offline_loss_interval(const double *nll_a, const double *nll_b,
                                              uint32_t windows, uint32_t scored, double level);

/* Perplexity and its interval, by the same method. */
struct offline_interval offline_perplexity_interval(const double *nll, uint32_t windows,
                                                    uint32_t scored, double level);

/* The value below which a fraction of the n values is; sorts the values. */
float offline_quantile(float *values, size_t n, double fraction);

#endif
