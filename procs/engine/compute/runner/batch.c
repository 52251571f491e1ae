/* SPDX-License-Identifier: Apache-2.0 */
/* The rows of the next pass: one token each where that is all, then prompts in order of arrival. */
#include "procs/engine/compute/runner/batch.h"

#include <stdbool.h>

static uint32_t smaller(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* Without the others. A chunk never contains both prompt and response tokens, so that their times
 * are separate. */
static uint32_t wanted(const struct batch_sequence *s)
{
    uint32_t end = s->computed < s->prompt ? smaller(s->known, s->prompt) : s->known;
    return smaller(end - s->computed, s->most);
}

static bool is_step(const struct batch_sequence *s)
{
    return s->known - s->computed == 1;
}

/* The next one in order: steps before the others, then by arrival. count: none is left. */
static uint32_t next(const struct batch_sequence *sequence, uint32_t count)
{
    uint32_t best = count;
    for (uint32_t i = 0; i < count; i++) {
        const struct batch_sequence *s = &sequence[i], *b = &sequence[best == count ? i : best];
        if (s->rows > 0)
            continue;
        if (best == count || is_step(s) > is_step(b) ||
            (is_step(s) == is_step(b) && s->arrival < b->arrival))
            best = i;
    }
    return best;
}

uint32_t batch_fill(struct batch_sequence *sequence, uint32_t count, uint32_t limit)
{
    uint32_t sum = 0, i;
    for (i = 0; i < count; i++)
        sequence[i].rows = 0;
    while (sum < limit && (i = next(sequence, count)) < count) {
        sequence[i].rows = smaller(wanted(&sequence[i]), limit - sum);
        sum += sequence[i].rows;
    }
    return sum;
}
