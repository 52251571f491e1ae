/* SPDX-License-Identifier: Apache-2.0 */
/* From which versions of a slot prompts continue, written again for the tests of reuse. */
#ifndef SLUICE_TESTS_REUSE_CHANCES_H
#define SLUICE_TESTS_REUSE_CHANCES_H

#include "lib/policy/reuse/reuse.h"

/* Where the response begins: where the last messages meet, if that is within the prompt and near
 * its end. */
static inline uint32_t response_of(const struct reuse_slot *s)
{
    uint32_t last = 0;
    for (uint32_t i = 0; i < REUSE_TURNS_MAX; i++)
        last = s->turns[i] < s->prompt && s->turns[i] > last ? s->turns[i] : last;
    if (last > 0 && s->prompt - last <= 32)
        return last;
    return s->prompt > 8 ? s->prompt - 8 : 0;
}

/* Of `end` rows, those in which a prompt that differs continues from a version that is not the
 * last, `gap` rows below the next one. */
static inline uint32_t chances_of(const struct reuse_slot *s, uint32_t rows, uint32_t gap,
                                  uint32_t end)
{
    bool edited = rows == s->start;
    for (uint32_t i = 0; i < REUSE_TURNS_MAX; i++)
        edited = edited || s->turns[i] == rows;
    if (rows == s->shared)
        return 0;
    if (rows == response_of(s))
        return end;
    uint32_t part = rows == s->branch ? end / 4 : edited ? end / 16 : 0;
    return part > gap ? part : gap;
}

#endif
