/* How a lossy system serves experts, evaluated on a model in memory: which tier or mask every use
 * gets, without residency. A miss is assumed wherever a system's loss depends on one, so that the
 * figures are its worst case; decisions that need a cache are in clocked.h.
 *
 * Nothing depends on the number of threads: what lives longer than a window (SwapMoE's sets) is
 * reset every SERVING_SEGMENT windows. */
#ifndef SLUICE_OFFLINE_MEASURE_SERVING_H
#define SLUICE_OFFLINE_MEASURE_SERVING_H

#include "lib/offline/measure/evaluate.h"
#include "lib/tensor/precision.h"

#define SERVING_SEGMENT 8 /* windows */

enum serving_kind {
    SERVE_NATIVE,
    SERVE_PRECISIONS, /* tier[]: uniform widths, edgemoe's widths */
    SERVE_MASK,       /* allowed[]: pruned models */
    SERVE_HOBBIT,     /* by gate weights, token by token, every use a miss */
    SERVE_FATE, /* prefill: the least popular fraction of a chunk's experts at int2, others int4 */
    SERVE_SWAPMOE, /* masked routing to v_i experts that are swapped */
};

struct serving {
    enum serving_kind kind;
    enum quant_method method;
    const uint8_t *precision; /* [L * E] */
    const bool *allowed;      /* [L * E]; swapmoe: the first sets */
    /* hobbit */
    double t1, t2;
    enum precision high, low;
    bool skip_renormalise;
    /* fate */
    double low_fraction;
    /* swapmoe */
    const uint32_t *keep; /* [L] v_i */
    const float *norm;    /* [L * E] */
    uint32_t interval;
    double margin;             /* mean importances: swap.h */
    uint32_t chunk;            /* tokens between looks at the sets: 1 is exact, more is faster */
    double pairs_per_token;    /* most swaps the drive could do in a token's time; 0: no bound */
    bool together, count_only; /* ablations: not amortised; importance is a token count */
};

struct serving_report {
    uint64_t swapped;          /* swapmoe: pairs */
    uint64_t need[2], skipped; /* hobbit: uses at the high and low tier, skipped */
};

/* `base` gives model, text, threads, compare, progress; the serving the rest. */
int serving_evaluate(const struct offline_evaluation *base, const struct serving *s,
                     struct offline_losses *losses, struct serving_report *report,
                     struct error *error);

/* Per layer the keep[l] experts with the largest values (ties: lower index) are true. */
void serving_largest(const float *value, uint32_t layers, uint32_t experts, const uint32_t *keep,
                     bool *allowed);

/* Payload bytes of all experts: tier[] of each. */
uint64_t serving_bytes(const struct offline_model *m, const uint8_t *precision,
                       enum quant_method method);

#endif
