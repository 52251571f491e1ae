/* Losses of a model in memory over windows of a text, each window on its own, on all threads: a
 * worker takes whole windows, with a core of one thread, so that nothing depends on their number.
 *
 * Perplexity = exp(sum of nll / scored tokens), tokens 1 .. window-1 of every window, each from
 * those before it: the protocol of `sluice eval`. */
#ifndef SLUICE_OFFLINE_MEASURE_EVALUATE_H
#define SLUICE_OFFLINE_MEASURE_EVALUATE_H

#include "lib/offline/measure/logits.h"
#include "lib/offline/offline.h"
#include "lib/offline/text.h"
#include "lib/tensor/precision.h"

/* Threads of an evaluation, at most: workers are numbered below it. */
#define OFFLINE_WORKERS_MAX 64

struct offline_evaluation {
    struct offline_model *model;
    const struct offline_text *text;
    uint32_t threads;            /* 0: as many as there are processors */
    bool token_by_token;         /* as in decode: what an expert of a rank is served by is exact */
    uint32_t chunk;              /* rows at a time when not; 0: the window */
    uint32_t segment;            /* windows a worker takes at a time, in order; 0: one */
    bool compare;                /* beside every window the lossless model: KLD and agreement */
    struct logits_file *against; /* instead of the lossless model: what was recorded */
    struct logits_file *record;  /* where every scored row goes; may be NULL */
    enum quant_method method;
    bool renormalise_skips;
    const uint8_t
        *precision;      /* [layers * experts] enum tier; NULL: native. With hooks.serve: unused */
    const bool *allowed; /* [layers * experts] the experts routed to; NULL: all */
    /* The hooks of a worker (its arg is its own), called once per worker before it starts; NULL:
     * none. begins: a worker takes window `window`. */
    void (*hooks)(void *arg, uint32_t worker, struct offline_hooks *hooks);
    void (*starts)(void *arg, uint32_t worker, uint32_t window);
    /* Called by worker 0 now and then. */
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
        accesses[PRECISION__COUNT]; /* of experts: in decode token by token, else per chunk */
};

/* 0, or -1 with *error. */
int offline_evaluate(const struct offline_evaluation *e, struct offline_losses *out,
                     struct error *error);
void offline_losses_free(struct offline_losses *l);

double offline_perplexity(const struct offline_losses *l);
double offline_mean_nll(const struct offline_losses *l);

/* Rise of perplexity of b over a (0.01: one per cent), and its interval by bootstrap over windows,
 * paired (Efron & Tibshirani 1993; percentile method, 2000 resamples, fixed seed). Same windows. */
struct offline_interval {
    double value, low, high;
};
struct offline_interval offline_loss_interval(const double *nll_a, const double *nll_b,
                                              uint32_t windows, uint32_t scored, double level);

/* The same of perplexity itself, and of the mean of n values. */
struct offline_interval offline_perplexity_interval(const double *nll, uint32_t windows,
                                                    uint32_t scored, double level);

/* The value below which a fraction of the n values lies; sorts them. */
float offline_quantile(float *values, size_t n, double fraction);

#endif
