/* SPDX-License-Identifier: Apache-2.0 */
/* Compares slices of tokens with and without prefetch, and stops prefetch that is not worth its
 * reads. */
#include "lib/policy/prediction/judge.h"

#include <math.h>

#define PAIRS (JUDGE_SLICES / 2)

/* With prefetch or without: the sequence of Thue and Morse. Every two slices are a pair. */
static const bool with[JUDGE_SLICES] = {true, false, false, true, false, true, true, false};

static void begin_trial(struct prefetch_judge *j)
{
    j->trying = true;
    j->on = true;
    j->tokens = j->slice = 0;
    j->used = j->unused = 0;
    for (uint32_t i = 0; i < JUDGE_SLICES; i++)
        j->ns[i] = 0;
}

void prefetch_judge_init(struct prefetch_judge *j, bool timed)
{
    *j = (struct prefetch_judge){
        .timed = timed, .on = true, .keep = JUDGE_KEEP_MIN, .gain = JUDGE_GAIN_FIRST};
}

/* `same`: as before. */
static void decide(struct prefetch_judge *j, bool on, bool same)
{
    uint32_t longer = j->keep < JUDGE_KEEP_MAX ? 2 * j->keep : j->keep;
    j->keep = same ? longer : JUDGE_KEEP_MIN;
    j->on = on;
    j->trying = false;
    j->tokens = 0;
}

/* Of the pairs of slices; 0 without times. */
static double trial_gain(const struct prefetch_judge *j)
{
    double gain[PAIRS];
    for (uint32_t i = 0; i < PAIRS; i++) {
        double a = j->ns[2 * i], b = j->ns[2 * i + 1], value = 0;
        if (a > 0 && b > 0)
            value = with[2 * i] ? log(b / a) : log(a / b);
        uint32_t at = i;
        for (; at > 0 && gain[at - 1] > value; at--)
            gain[at] = gain[at - 1];
        gain[at] = value;
    }
    return (gain[PAIRS / 2 - 1] + gain[PAIRS / 2]) / 2;
}

static bool is_gain(double gain)
{
    return gain > -log(1 - JUDGE_GAIN_MIN);
}

static void end_trial(struct prefetch_judge *j)
{
    bool was = is_gain(j->gain);
    j->gain = (j->gain + trial_gain(j)) / 2;
    decide(j, is_gain(j->gain), was == is_gain(j->gain));
}

static void next_slice(struct prefetch_judge *j)
{
    j->tokens = 0;
    if (++j->slice == JUDGE_SLICES)
        end_trial(j);
    else
        j->on = with[j->slice];
}

void prefetch_judge_token(struct prefetch_judge *j, double token_ns)
{
    j->tokens++;
    if (!j->trying) {
        if (j->tokens >= j->keep && (j->timed || !j->on))
            begin_trial(j);
        return;
    }
    if (!j->timed)
        return;
    if (j->tokens > JUDGE_SETTLE)
        j->ns[j->slice] += token_ns;
    if (j->tokens == JUDGE_SLICE)
        next_slice(j);
}

/* Reads that are not used: without waiting for times. */
static void stop(struct prefetch_judge *j)
{
    bool stopped_before = !is_gain(j->gain);
    j->gain = 0;
    decide(j, false, stopped_before);
}

void prefetch_judge_outcome(struct prefetch_judge *j, bool used)
{
    j->used += used;
    j->unused += !used;
    uint32_t all = j->used + j->unused;
    if (all < JUDGE_OUTCOMES)
        return;
    bool enough = j->used >= JUDGE_USED_MIN * all;
    j->used /= 2;
    j->unused /= 2;
    if (!enough && (j->on || j->trying))
        stop(j);
    else if (enough && j->trying && !j->timed) {
        j->gain = JUDGE_GAIN_FIRST;
        decide(j, true, false);
    }
}
