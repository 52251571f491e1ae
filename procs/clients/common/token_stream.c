/* SPDX-License-Identifier: Apache-2.0 */
/* Fills an array with synthetic token ids. */
#include "procs/clients/common/token_stream.h"

#include "lib/base/assert.h"
#include "lib/base/random.h"

void token_stream_fill(uint64_t seed, double stay, uint32_t vocab, uint32_t *ids, size_t count)
{
    struct random random;
    uint32_t group = 0, groups = (vocab + TOKEN_GROUP - 1) / TOKEN_GROUP;
    sl_assert(vocab > 0);
    random_seed(&random, seed, 0);
    for (size_t i = 0; i < count; i++) {
        if (i == 0 || random_unit(&random) >= stay)
            group = (uint32_t)random_below(&random, groups);
        uint32_t first = group * TOKEN_GROUP;
        uint32_t in_group = vocab - first < TOKEN_GROUP ? vocab - first : TOKEN_GROUP;
        ids[i] = first + (uint32_t)random_below(&random, in_group);
    }
}
