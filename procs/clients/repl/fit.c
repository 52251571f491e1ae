/* SPDX-License-Identifier: Apache-2.0 */
/* Searches by halving: a conversation may have thousands of turns. */
#include "procs/clients/repl/fit.h"

int fit_turns(size_t from, size_t turns, uint64_t most, fit_count *count, void *arg, size_t *first,
              struct error *error)
{
    size_t low = from, high = turns, counted = SIZE_MAX;
    uint64_t tokens;
    while (low < high) {
        counted = low + (high - low) / 2;
        if (count(arg, counted, &tokens, error) != 0)
            return -1;
        if (tokens <= most)
            high = counted;
        else
            low = counted + 1;
    }
    *first = low;
    return counted == low ? 0 : count(arg, low, &tokens, error);
}
