/* SPDX-License-Identifier: Apache-2.0 */
/* From logits to a token. Steps, in this order: penalties, top-k, top-p, min-p, temperature, draw.
 * At temperature 0 only the penalties apply and the largest logit wins, ties to the lower id.
 * The random number is a pure function of (seed, position), so a sequence that is resumed, or
 * computed in other chunks, draws the same tokens. */
#ifndef SLUICE_SAMPLING_SAMPLER_H
#define SLUICE_SAMPLING_SAMPLER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/error.h"

struct sampler_settings { /* struct sampling (lib/sampling/sampling.h) after checks */
    double temperature, top_p, min_p;
    /* Of the recent tokens: the first divides a logit (multiplies it below 0), then the second is
     * subtracted, and the third as often as the token occurs. */
    double repeat_penalty, presence_penalty, frequency_penalty;
    uint32_t top_k; /* 0: all */
    uint64_t seed;
};

struct sampler;

/* Allocates all memory. NULL with ERR_NO_MEMORY. */
struct sampler *sampler_create(uint32_t vocab, struct error *error);
void sampler_destroy(struct sampler *s);
/* Whether a penalty changes anything. */
bool sampler_penalises(const struct sampler_settings *settings);

/* Chooses the token for `position` from logits [vocab]. recent: the tokens the penalties apply
 * to (ids beyond the vocabulary are ignored). NaN counts as -inf. */
uint32_t sampler_choose(struct sampler *s, const struct sampler_settings *settings,
                        const float *logits, const uint32_t *recent, size_t recent_count,
                        uint32_t position);

/* Uniform in [0, 1), 53 bits. */
double sampler_random(uint64_t seed, uint32_t position);

#endif
