/* SPDX-License-Identifier: Apache-2.0 */
/* Compares a forward pass with a reference from another implementation: routing, then logits.
 *
 * If the last chosen router logit and the first one not chosen differ by less than GOLDEN_GAP,
 * rounding may select the other expert. Later values then legitimately differ, so a sequence is
 * compared up to such a position only. The same holds for a greedy choice with a margin below
 * GOLDEN_MARGIN. */
#ifndef SLUICE_TESTS_GOLDEN_COMPARE_H
#define SLUICE_TESTS_GOLDEN_COMPARE_H

#include "tests/golden/image.h"
#include "tests/golden/reference.h"

#define GOLDEN_GAP         1e-3
#define GOLDEN_MARGIN      0.05
#define GOLDEN_LOGIT_DELTA 2e-2 /* of F16 weights */
#define GOLDEN_STRIDE      8    /* STRIDE in vectors.py: a position has every eighth logit */

struct golden_expected {
    const char *name; /* for messages */
    const uint32_t *ids;
    uint32_t positions;
    const float *logits;  /* [positions][golden_columns(vocab)]: vectors.py, save_logits */
    const json_t *layers; /* per layer "experts" and "weights" [position][top_k], and the gaps;
                           * null for a layer without experts */
    const char *gap_key;  /* [position] */
    double logit_delta;   /* allowed; 0: GOLDEN_LOGIT_DELTA */
};

static inline size_t golden_columns(size_t vocab)
{
    return 2 + vocab / GOLDEN_STRIDE;
}

/* Runs the ids through the core in chunks and compares; returns the number of positions compared.
 */
uint32_t golden_compare(struct image *image, struct core *core, const struct golden_expected *want);

/* The largest of x[0..n) and how far the second is below it. */
void golden_top_two(const float *x, size_t n, size_t *best, float *margin);

#endif
