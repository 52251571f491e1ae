/* SPDX-License-Identifier: Apache-2.0 */
/* Which rows of which sequences are the next pass. There is no phase of prompts and none of
 * responses: each sequence has tokens that are known and not computed, and every pass lets it catch
 * up with some of them. Pure. */
#ifndef SLUICE_ENGINE_COMPUTE_RUNNER_BATCH_H
#define SLUICE_ENGINE_COMPUTE_RUNNER_BATCH_H

#include <stdint.h>

struct batch_sequence {
    uint64_t arrival;
    uint32_t computed; /* tokens with rows */
    uint32_t known;    /* tokens of the log, more than `computed` */
    uint32_t prompt;   /* of them those of the prompt */
    uint32_t most;     /* rows that it may have in one pass, at least 1 */
    uint32_t rows;     /* output: of the next pass, from `computed` on */
};

/* Sets `rows` of each; returns their sum, at most `limit`. A sequence that needs one token gets it
 * first; then the others, in order of arrival, share what is left. No pass has rows of both a
 * prompt and its response. */
uint32_t batch_fill(struct batch_sequence *sequence, uint32_t count, uint32_t limit);

#endif
