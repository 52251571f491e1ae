/* SPDX-License-Identifier: Apache-2.0 */
/* Synthetic token ids with the routing locality of text: ids form groups of TOKEN_GROUP; with
 * probability `stay` the next id is of the same group, otherwise of a random one. Models written by
 * `sluice synth` route the tokens of a group alike; for other models the ids are just random.
 * Depends only on the seed. */
#ifndef SLUICE_CLIENTS_COMMON_TOKEN_STREAM_H
#define SLUICE_CLIENTS_COMMON_TOKEN_STREAM_H

#include <stddef.h>
#include <stdint.h>

#define TOKEN_GROUP 64u
#define TOKEN_STREAM_STAY                                                                          \
    0.8 /* with the defaults of synth: expert reuse like that of OLMoE on
                               * text */

/* Fills ids with tokens below vocab (at least 1). */
void token_stream_fill(uint64_t seed, double stay, uint32_t vocab, uint32_t *ids, size_t count);

#endif
