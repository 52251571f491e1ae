/* SPDX-License-Identifier: Apache-2.0 */
/* From logits to a token. Steps, in this order: biases, penalties, top-k, top-p, min-p,
 * temperature, draw; of the tokens that a mask allows only. At temperature 0 only biases and
 * penalties apply, and the largest logit wins, ties to the lower id. The random number is a pure
 * function of (seed, position), so a sequence that is resumed, or computed in other chunks, draws
 * the same tokens. */
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

/* Added to the logit of a token before all else. */
struct sampler_bias {
    uint32_t id;
    float bias;
};

struct sampler;

/* Allocates all memory. NULL with ERR_NO_MEMORY. */
struct sampler *sampler_create(uint32_t vocab, struct error *error);
void sampler_destroy(struct sampler *s);
/* Whether a penalty changes anything. */
bool sampler_penalises(const struct sampler_settings *settings);

/* What a token is chosen from. */
struct sampler_choice {
    const float *logits;    /* [vocab]; NaN counts as -inf */
    const uint64_t *mask;   /* bit t % 64 of word t / 64: token t is allowed; NULL: all are */
    const uint32_t *recent; /* the tokens the penalties apply to */
    size_t recent_count;    /* ids beyond the vocabulary are ignored, also of biases */
    const struct sampler_bias *bias;
    size_t bias_count;          /* of several for a token the last one counts */
    const uint32_t *suppressed; /* tokens that are not chosen while there is another, ascending */
    size_t suppressed_count;
    uint32_t position; /* of the token */
};

#define SAMPLER_NONE UINT32_MAX

/* The token; SAMPLER_NONE: the mask allows none. */
uint32_t sampler_choose(struct sampler *s, const struct sampler_settings *settings,
                        const struct sampler_choice *choice);

/* The ids of the `count` largest logits, the largest first, ties to the lower id. Returns how many
 * there are: fewer than `count` if the vocabulary is smaller. */
uint32_t sampler_top(const float *logits, uint32_t vocab, uint32_t count, uint32_t *ids);

/* Uniform in [0, 1), 53 bits. */
double sampler_random(uint64_t seed, uint32_t position);

#endif
