/* SPDX-License-Identifier: Apache-2.0 */
/* Losses of a model in memory over windows of a text, each window independent, on all threads: a
 * worker takes whole windows, with a single-threaded core, so that results do not depend on the
 * number of threads.
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

struct offline_evaluation {
    struct offline_model *model;
    const struct offline_text *text;
    uint32_t threads;            /* 0: number of CPUs */
    bool token_by_token;         /* as in decode: exact for decisions that depend on rank */
    uint32_t chunk;              /* rows per pass otherwise; 0: the window */
    uint32_t segment;            /* consecutive windows per worker; 0: one */
    bool compare;                /* also run the lossless model: KLD and top-1 agreement */
    struct logits_file *against; /* compare with these recorded logits instead */
    struct logits_file *record;  /* receives every scored row; may be NULL */
    enum quant_method method;
    enum precision dense; /* of the measured model's dense matrices; the lossless one is native */
    enum kv_type kv_type, reference_kv_type; /* of the measured model, of the lossless one */
    bool renormalise_skips;
    const uint8_t
        *precision; /* [layers * experts] enum precision; NULL: native. Ignored with hooks.serve */
    const bool *allowed; /* [layers * experts] experts that may be routed to; NULL: all */
    /* Sets the hooks of a worker (with its own arg), called once per worker before it starts; NULL:
     * none. starts: a worker starts window `window`. */
    void (*hooks)(void *arg, uint32_t worker, struct offline_hooks *hooks);
    void (*starts)(void *arg, uint32_t worker, uint32_t window);
    /* Called by worker 0 after each of its windows. */
    void (*progress)(void *arg, uint32_t done, uint32_t windows);
    void *arg;
};

struct offline_losses {
    uint32_t windows, scored; /* scored: tokens of each window */
    double *nll;              /* [windows] nats, summed over the window */
    float *kld;               /* [windows * scored] when compared, else NULL */
    double *reference_nll;    /* [windows] when compared, else NULL */
    uint64_t top1_same;       /* of windows * scored */
    uint64_t skipped,
        accesses
            [PRECISION__COUNT]; /* expert accesses: per token with token_by_token, else per chunk */
};

/* 0, or -1 with *error. Free the result with offline_losses_free. */
int offline_evaluate(const struct offline_evaluation *e, struct offline_losses *out,
                     struct error *error);
void offline_losses_free(struct offline_losses *l);

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
