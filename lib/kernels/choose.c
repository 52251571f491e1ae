/* SPDX-License-Identifier: Apache-2.0 */
/* The k largest scores. The k-th largest one is found digit by digit, by counting: nothing is
 * sorted, so the time depends neither on the scores nor on k, and equal scores need no order. */
#include "lib/kernels/choose.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "lib/base/assert.h"

#define DIGITS 256u /* of a byte of a rank */

/* Numbers in the order of the scores; 0: never chosen. */
static uint32_t rank_of(float score)
{
    uint32_t bits;
    if (!(score > -INFINITY))
        return 0;
    score += 0.0f; /* -0 becomes 0 */
    memcpy(&bits, &score, sizeof bits);
    return bits >> 31 ? ~bits : bits | 1u << 31;
}

/* The rank of the k-th largest score; more than k have another rank than 0. *equal: how many of
 * that rank are among the k. */
static uint32_t rank_at(const float *score, uint32_t n, uint32_t k, uint32_t *equal)
{
    uint64_t rank = 0; /* its upper digits */
    for (uint32_t shift = 32; shift > 0; shift -= 8) {
        uint32_t count[DIGITS] = {0}, digit = DIGITS - 1;
        for (uint32_t i = 0; i < n; i++) {
            uint64_t r = rank_of(score[i]);
            if (r >> shift == rank)
                count[r >> (shift - 8) & (DIGITS - 1)]++;
        }
        for (; count[digit] < k; digit--) {
            sl_assert(digit > 0);
            k -= count[digit];
        }
        rank = rank << 8 | digit;
    }
    *equal = k;
    return (uint32_t)rank;
}

uint32_t kernel_choose(const float *score, uint32_t n, uint32_t k, uint32_t *chosen)
{
    uint32_t visible = 0, count = 0, equal = n, least = 1;
    for (uint32_t i = 0; i < n; i++)
        visible += rank_of(score[i]) > 0;
    if (k == 0)
        return 0;
    if (k < visible)
        least = rank_at(score, n, k, &equal);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t rank = rank_of(score[i]);
        bool tie = rank == least && equal > 0;
        if (rank <= least && !tie)
            continue;
        equal -= tie;
        chosen[count++] = i;
    }
    return count;
}
