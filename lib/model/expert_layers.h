/* SPDX-License-Identifier: Apache-2.0 */
/* A set of layers: those of a model that have experts, which may be any of them. For code that
 * knows no architecture; lib/model/arch/arch.h makes it from the table of layers. */
#ifndef SLUICE_MODEL_EXPERT_LAYERS_H
#define SLUICE_MODEL_EXPERT_LAYERS_H

#include <stdbool.h>
#include <stdint.h>

#include "lib/model/limits.h"

#define EXPERT_LAYERS_WORDS (MODEL_LAYERS_MAX / 64)

/* A bit for each layer that has none, so zeros are a model with experts in every layer. */
struct expert_layers {
    uint64_t without[EXPERT_LAYERS_WORDS];
};

static inline bool expert_layers_has(const struct expert_layers *e, uint32_t layer)
{
    return (e->without[layer / 64] >> layer % 64 & 1) == 0;
}

static inline void expert_layers_leave_out(struct expert_layers *e, uint32_t layer)
{
    e->without[layer / 64] |= (uint64_t)1 << layer % 64;
}

/* The first layer with experts in [layer, end); `end` if there is none. */
static inline uint32_t expert_layers_next(const struct expert_layers *e, uint32_t layer,
                                          uint32_t end)
{
    while (layer < end && !expert_layers_has(e, layer))
        layer++;
    return layer < end ? layer : end;
}

/* How many of the layers [first, end) have experts. */
static inline uint32_t expert_layers_count(const struct expert_layers *e, uint32_t first,
                                           uint32_t end)
{
    uint32_t count = 0;
    for (uint32_t layer = first; layer < end; layer++)
        count += expert_layers_has(e, layer);
    return count;
}

#endif
