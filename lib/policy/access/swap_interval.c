/* SPDX-License-Identifier: Apache-2.0 */
/* Walks through the intervals from a low to a high frequency, and stops where latency grows. */
#include "lib/policy/access/swap_interval.h"

void swap_search_start(struct swap_search *s, uint32_t min, double token_ns, double read_ns)
{
    *s = (struct swap_search){
        .interval = SWAP_INTERVAL_MAX, .min = min, .token_ns = token_ns, .read_ns = read_ns};
}

double swap_latency_increase(const struct swap_search *s, double replacements)
{
    if (!(s->token_ns > 0) || !(s->read_ns > 0))
        return 0;
    return replacements * s->read_ns / s->token_ns;
}

bool swap_search_measured(struct swap_search *s, double replacements, double loss)
{
    bool bends = swap_latency_increase(s, replacements) > SWAP_LATENCY_SHARE;
    if (s->best == 0 || (!bends && loss < s->loss)) { /* the lowest frequency needs no reason */
        s->best = s->interval;
        s->loss = loss;
    }
    s->interval /= 2;
    return !bends && s->interval >= s->min && s->interval > 0;
}
