/* SPDX-License-Identifier: Apache-2.0 */
/* Decides whether prefetch is worth its reads. It is measured while it runs, for the rules that
 * evict by probability.
 *
 * Used reads: of the last prefetches that were accessed, evicted or cancelled, at least
 * JUDGE_USED_MIN must have been accessed. Otherwise prefetch stops, and is tried again later.
 *
 * Time (if `timed`): a trial of JUDGE_SLICES short slices with and without prefetch, in an order
 * that cancels what changes steadily (a cache that becomes full, a context that grows). Its value
 * is the median over neighbouring slices of the logarithm of the ratio of their times, so that a
 * single disturbed slice does not count. Values are averaged with those of earlier trials, newer
 * ones counting more; the first one with JUDGE_GAIN_FIRST, since a single trial is uncertain and
 * prefetch usually wins. Prefetch stays only if it saves JUDGE_GAIN_MIN: where the time is equal,
 * the reads are saved.
 *
 * Prefetch is on at first, without a trial while the cache is cold. A decision holds for
 * JUDGE_KEEP_MIN tokens, and twice as long each time that it is confirmed: one that was wrong is
 * soon taken again, and trials become rare. One object per cache; times are arguments. */
#ifndef SLUICE_POLICY_PREDICTION_JUDGE_H
#define SLUICE_POLICY_PREDICTION_JUDGE_H

#include <stdbool.h>
#include <stdint.h>

#define JUDGE_SLICE  8u /* tokens */
#define JUDGE_SLICES 8u
#define JUDGE_TRIAL  (JUDGE_SLICE * JUDGE_SLICES)
/* The first tokens of a slice do not count, because they use what the slice before has read. */
#define JUDGE_SETTLE     2u
#define JUDGE_KEEP_MIN   128u
#define JUDGE_KEEP_MAX   2048u
#define JUDGE_GAIN_MIN   0.02
#define JUDGE_GAIN_FIRST 0.1
#define JUDGE_OUTCOMES   64u /* prefetches, from which on a share is one */
#define JUDGE_USED_MIN   0.2

struct prefetch_judge {
    bool timed, on;
    bool trying;             /* a trial, or without time the first prefetches after a pause */
    double gain;             /* logarithm of time without / time with prefetch */
    uint32_t tokens, keep;   /* of this slice, or since the decision; how long it holds */
    uint32_t slice;          /* of the trial */
    double ns[JUDGE_SLICES]; /* sums of the trial's slices */
    uint32_t used, unused;   /* prefetches, the older ones counting less */
};

/* Starts with prefetch on. timed: its effect on the time per token is measured, too. */
void prefetch_judge_init(struct prefetch_judge *j, bool timed);

/* A decode token ended; token_ns is the time since the one before, waiting included. */
void prefetch_judge_token(struct prefetch_judge *j, double token_ns);

/* A prefetched expert was accessed (used), or it was evicted or its read cancelled without an
 * access. */
void prefetch_judge_outcome(struct prefetch_judge *j, bool used);

#endif
