/* SPDX-License-Identifier: Apache-2.0 */
/* Says how a lossy preset serves experts, evaluated on a model in memory without residency: the
 * precision or mask of every access. Where the loss of a preset depends on misses, every access
 * counts as a miss, so the results are the worst case; decisions that need a cache are in
 * clocked.h.
 *
 * Results do not depend on the number of threads: state that outlives a window (SwapMoE's sets) is
 * reset at the start of every segment. */
#ifndef SLUICE_OFFLINE_MEASURE_SERVING_H
#define SLUICE_OFFLINE_MEASURE_SERVING_H

#include "lib/offline/measure/evaluate.h"
#include "lib/plan/plan.h"
#include "lib/policy/access/precision.h"
#include "lib/tensor/precision.h"

#define SERVING_SEGMENT 8 /* windows, if serving.segment is 0 */

enum serving_kind {
    SERVE_NATIVE,
    SERVE_PRECISIONS, /* precision[]: uniform precision, edgemoe's mixed precision */
    SERVE_MASK,       /* allowed[]: pruned models */
    SERVE_POLICY,     /* policy: hobbit, mixed-two row by row, fate in chunks; every access a
                       * miss */
    SERVE_SWAPMOE,    /* masked routing to v_i experts that are replaced */
};

struct serving {
    enum serving_kind kind;
    enum quant_method method;
    const uint8_t *precision; /* [L * E]; mixed-two: the higher one */
    const uint8_t *low;       /* [L * E] mixed-two */
    const bool *allowed;      /* [L * E]; swapmoe: the initial sets */
    struct precision_policy policy;
    bool skip_renormalise; /* hobbit, mixed-two */
    uint32_t chunk; /* fate, swapmoe: tokens per pass, as the engine's prefill chunk; 0: the window.
                     * swapmoe: no more than swap_rows_max(interval) */
    /* swapmoe */
    const uint32_t *keep; /* [L] v_i */
    const float *norm;    /* [L * E] */
    uint32_t interval;
    double margin;          /* in mean importances: see swap.h */
    double pairs_per_token; /* experts that storage reads while a token of the chunk is computed; 0:
                             * unlimited */
    double before_routing;  /* share of a layer that is computed before its routing: attention */
    uint32_t segment; /* windows until the sets are reset; UINT32_MAX: never, as in the engine,
                             * but on one thread */
    bool together, count_only; /* ablations: not amortised; importance is a token count */
};

struct serving_report {
    uint64_t swapped;          /* swapmoe: pairs replaced */
    uint64_t need[2], skipped; /* policy: accesses at high and low precision, skipped */
    uint64_t bytes;            /* policy: of the experts accessed, at the precision that serves */
};

/* `base` gives model, text, threads, compare, progress; the rest comes from the serving. -1 with
 * *error. */
int serving_evaluate(const struct offline_evaluation *base, const struct serving *s,
                     struct offline_losses *losses, struct serving_report *report,
                     struct error *error);

/* swapmoe: pairs_per_token and before_routing from the times of the plan's profile; unchanged where
 * it has none. */
void serving_swap_times(struct serving *s, const struct plan *plan);

/* Sets the keep[l] experts with the largest values per layer (ties: lower index) to true. */
void serving_largest(const float *value, uint32_t layers, uint32_t experts, const uint32_t *keep,
                     bool *allowed);

/* Payload bytes of all experts at precision[]; NULL: native. */
uint64_t serving_bytes(const struct offline_model *m, const uint8_t *precision,
                       enum quant_method method);

#endif
