/* SPDX-License-Identifier: Apache-2.0 */
/* A key stands for one position, or for those of a pool (model_index_unit). */
#include "procs/tools/doctor/forward/hidden.h"

#include <math.h>
#include <string.h>

#include "lib/base/random.h"

#define HALF_INF 0x7c00u
#define SEED     2u

static void hide(bool half, uint32_t size, char *key)
{
    for (uint32_t i = 0; i < size; i++) {
        const uint16_t narrow = HALF_INF;
        const float whole = INFINITY;
        if (half)
            memcpy(key + i * sizeof narrow, &narrow, sizeof narrow);
        else
            memcpy(key + i * sizeof whole, &whole, sizeof whole);
    }
}

void hidden_keys(const struct model_hparams *h, enum kv_type type, uint64_t positions,
                 uint32_t layer, void *keys)
{
    const bool half = kv_index_type(type) == KV_TYPE_F16;
    const uint64_t bytes = h->index_size * (half ? sizeof(uint16_t) : sizeof(float));
    const uint64_t count = positions / model_index_unit(h);
    const uint64_t block = h->index_local > 0 ? h->index_block : 1;
    const uint64_t blocks = (count + block - 1) / block;
    const uint64_t chosen = h->index_top_k < blocks ? h->index_top_k : blocks;
    struct random random;
    random_seed(&random, SEED, layer);
    for (uint64_t i = 0; i < chosen; i++) {
        uint64_t first = i * blocks / chosen, end = (i + 1) * blocks / chosen;
        uint64_t seen = first + random_below(&random, end - first);
        for (uint64_t k = first * block; k < end * block && k < count; k++)
            if (k != seen * block)
                hide(half, h->index_size, (char *)keys + k * bytes);
    }
}
