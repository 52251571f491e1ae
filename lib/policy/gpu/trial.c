/* SPDX-License-Identifier: Apache-2.0 */
/* Measures the policies of a GPU in slices of tokens, and chooses the fastest. */
#include "lib/policy/gpu/trial.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/assert.h"

/* The next allowed policy, from one on; GPU_POLICY__COUNT: none. */
static enum gpu_policy next_allowed(const struct gpu_trial *t, int from)
{
    while (from < GPU_POLICY__COUNT && !(t->allowed >> from & 1))
        from++;
    return (enum gpu_policy)from;
}

static void begin_slice(struct gpu_trial *t, enum gpu_policy policy)
{
    t->policy = policy;
    t->skip = true;
    t->slice_tokens = t->slice_counted = 0;
    t->slice_ns = 0;
}

static void begin_trial(struct gpu_trial *t)
{
    t->trying = true;
    t->round = 0;
    begin_slice(t, next_allowed(t, 0));
}

void gpu_trial_open(struct gpu_trial *t, uint32_t allowed)
{
    sl_assert(allowed != 0 && allowed >> GPU_POLICY__COUNT == 0);
    *t = (struct gpu_trial){.allowed = allowed, .usual = -1};
    t->policy = next_allowed(t, 0);
    if (next_allowed(t, (int)t->policy + 1) != GPU_POLICY__COUNT)
        begin_trial(t);
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(const double value[GPU_TRIAL_SLICES])
{
    double sorted[GPU_TRIAL_SLICES];
    memcpy(sorted, value, sizeof sorted);
    qsort(sorted, GPU_TRIAL_SLICES, sizeof *sorted, ascending);
    return sorted[GPU_TRIAL_SLICES / 2];
}

static void choose(struct gpu_trial *t)
{
    enum gpu_policy best = next_allowed(t, 0);
    for (int i = best; i < GPU_POLICY__COUNT; i++) {
        if (!(t->allowed >> i & 1))
            continue;
        t->token_ns[i] = median(t->slices[i]);
        if (t->token_ns[i] < t->token_ns[best] * (1 - GPU_TRIAL_GAIN))
            best = (enum gpu_policy)i;
    }
    t->policy = best;
    t->trials++;
    t->trying = false;
    t->since = t->window_tokens = 0;
    t->uses = t->hits = 0;
    t->usual = -1;
}

static void try_token(struct gpu_trial *t, const struct gpu_trial_token *token)
{
    t->slice_tokens++;
    if (!t->skip) {
        t->slice_ns += (double)token->ns;
        t->slice_counted++;
        t->tokens[t->policy]++;
    }
    t->skip = false;
    if (t->slice_tokens < GPU_TRIAL_SLICE || t->slice_counted < GPU_TRIAL_SLICE / 2)
        return;
    t->slices[t->policy][t->round] = t->slice_ns / t->slice_counted;
    enum gpu_policy next = next_allowed(t, (int)t->policy + 1);
    if (next == GPU_POLICY__COUNT) {
        next = next_allowed(t, 0);
        t->round++;
    }
    if (t->round == GPU_TRIAL_SLICES)
        choose(t);
    else
        begin_slice(t, next);
}

/* Whether the share of hits of a complete window differs from the first one. */
static bool changed(struct gpu_trial *t, const struct gpu_trial_token *token)
{
    t->uses += token->uses;
    t->hits += token->hits;
    if (++t->window_tokens < GPU_TRIAL_WINDOW)
        return false;
    double share = t->uses ? (double)t->hits / (double)t->uses : 1;
    t->window_tokens = 0;
    t->uses = t->hits = 0;
    if (t->usual < 0)
        t->usual = share;
    return fabs(share - t->usual) > GPU_TRIAL_CHANGE;
}

void gpu_trial_token(struct gpu_trial *t, const struct gpu_trial_token *token)
{
    if (next_allowed(t, (int)next_allowed(t, 0) + 1) == GPU_POLICY__COUNT)
        return;
    if (t->trying)
        try_token(t, token);
    else if (changed(t, token) || ++t->since == GPU_TRIAL_AGAIN)
        begin_trial(t);
}

void gpu_trial_other(struct gpu_trial *t)
{
    t->skip = true;
}
