/* SPDX-License-Identifier: Apache-2.0 */
/* EdgeMoE's search for precisions (Yi et al., IEEE TMC, §III-B), apart from the measurements.
 *
 * The paper iterates over the precisions of dense weights and keeps the best, because a lower one
 * frees memory for experts, but uses part of the tolerated loss P, which then keeps experts at
 * higher precisions. So does this search: for each dense precision whose loss alone keeps to P, it
 * finds experts' precisions within all of P, and keeps the result with the fewest bytes of dense
 * weights and all experts together.
 *
 * A lower precision may need as many bytes as the file's own type or more (int4 of Q4_0), so one
 * that is not smaller for all experts is not tried, and an expert for which it is not smaller keeps
 * the higher one.
 *
 * Both kinds of bytes count alike. With a budget M, dense weights D and experts X in bytes, a
 * share (M - D) / X of the experts is resident. If accesses are spread evenly, a token that uses k
 * of E experts in each layer reads  k / E * X * (1 - (M - D) / X) = k / E * (D + X - M)  bytes. */
#ifndef SLUICE_TOOLS_PLAN_PAPERS_WIDTHS_H
#define SLUICE_TOOLS_PLAN_PAPERS_WIDTHS_H

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/error.h"
#include "lib/offline/measure/evaluate.h"
#include "lib/tensor/precision.h"

struct width_search {
    void *arg;
    uint64_t cells;  /* experts of all layers */
    double max_loss; /* P, of loss.high, 0.01: 1 %; below 0: only the model as it is */
    uint32_t dense;  /* dense precisions to try: a mask of 1 << enum precision */
    /* Loss with these precisions; what: for messages. -1 with *error. */
    int (*measure)(void *arg, const char *what, enum precision dense, const uint8_t *precision,
                   struct offline_interval *loss, struct error *error);
    /* order[cells]: experts in the order in which they get `low` instead of `high`. */
    void (*order)(void *arg, enum precision high, enum precision low, uint64_t *order);
    uint64_t (*dense_bytes)(void *arg, enum precision dense);
    uint64_t (*cell_bytes)(void *arg, uint64_t cell, enum precision precision); /* of an expert */
};

struct widths { /* a result */
    enum precision dense, high, low;
    uint64_t low_count; /* experts at `low`; the others have `high`, or are native */
    uint64_t dense_bytes, expert_bytes;
    struct offline_interval loss, dense_loss; /* of all of it; with native experts */
    uint32_t uniform_mask; /* precisions measured for all experts, with this dense precision */
    struct offline_interval uniform[PRECISION__COUNT];
    uint8_t *precision; /* [cells], given by the caller */
};

/* Fills *best. ERR_NO_PLAN if no dense precision keeps to P (never if native is one of them). */
int widths_search(const struct width_search *s, struct widths *best, struct error *error);

#endif
