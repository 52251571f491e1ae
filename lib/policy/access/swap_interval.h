/* SPDX-License-Identifier: Apache-2.0 */
/* The interval of expert replacement (SwapMoE §3.5.1): from a low to a high frequency until it
 * affects the time per token.
 *
 * The time per token of an interval is modelled from measured times: token_ns + w * read_ns, with w
 * replacements per token and read_ns to read one expert. This is the upper bound, in which nothing
 * of a read is hidden. Intervals are halved until it exceeds token_ns by more than
 * SWAP_LATENCY_SHARE. Of the intervals before, the one with the smallest loss is chosen; the paper
 * takes the last. But below some interval a window is too small a sample, and more replacements
 * lose more. */
#ifndef SLUICE_POLICY_ACCESS_SWAP_INTERVAL_H
#define SLUICE_POLICY_ACCESS_SWAP_INTERVAL_H

#include <stdbool.h>
#include <stdint.h>

#define SWAP_INTERVAL_MAX  512
#define SWAP_LATENCY_SHARE 0.05

struct swap_search {
    uint32_t interval;        /* to be measured next */
    uint32_t best, min;       /* best so far; intervals down to min */
    double token_ns, read_ns; /* not above 0 or NaN: unknown, no limit */
    double loss;              /* of best */
};

/* Starts a search at SWAP_INTERVAL_MAX, down to `min` tokens. */
void swap_search_start(struct swap_search *s, uint32_t min, double token_ns, double read_ns);

/* The relative increase of the time per token that so many replacements per token cause; 0 when the
 * times are unknown. */
double swap_latency_increase(const struct swap_search *s, double replacements);

/* s->interval was measured, with this loss and so many replacements per token. False: the search
 * has ended, and s->best is its result. */
bool swap_search_measured(struct swap_search *s, double replacements, double loss);

#endif
