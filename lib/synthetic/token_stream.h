/* SPDX-License-Identifier: Apache-2.0 */
/* Synthetic token ids with the routing locality of text: ids form groups of TOKEN_GROUP; with
 * probability `stay` the next id is of the same group, otherwise of a random one. Models written by
 * `sluice synth` route the tokens of a group alike, and so does the synthetic routing of the
 * simulator; for other models the ids are just random. Depends only on the seed. */
#ifndef SLUICE_SYNTHETIC_TOKEN_STREAM_H
#define SLUICE_SYNTHETIC_TOKEN_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/random.h"

#define TOKEN_GROUP       64u
#define TOKEN_STREAM_STAY 0.5 /* fitted together with routing_laws.tbl.h */

struct token_stream {
    struct random random;
    double stay;
    uint32_t vocab, group;
    bool started;
};

/* A stream of ids below vocab (at least 1). */
void token_stream_start(struct token_stream *s, uint64_t seed, double stay, uint32_t vocab);
uint32_t token_stream_next(struct token_stream *s);

/* The first `count` ids of such a stream. */
void token_stream_fill(uint64_t seed, double stay, uint32_t vocab, uint32_t *ids, size_t count);

#endif
