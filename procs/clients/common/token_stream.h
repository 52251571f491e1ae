/* A stream of token ids that routes like text does: ids come in groups of TOKEN_GROUP, the next id
 * is one of the same group with probability `stay`, else of any. The files that `sluice synth`
 * writes give the tokens of a group alike routing; in a model of another kind it is a stream of
 * random tokens. A function of the seed alone. */
#ifndef SLUICE_CLIENTS_COMMON_TOKEN_STREAM_H
#define SLUICE_CLIENTS_COMMON_TOKEN_STREAM_H

#include <stddef.h>
#include <stdint.h>

#define TOKEN_GROUP       64u
#define TOKEN_STREAM_STAY 0.8 /* with the defaults of synth: reuse like that of OLMoE on text */

/* Fills ids with tokens below vocab (at least 1). */
void token_stream_fill(uint64_t seed, double stay, uint32_t vocab, uint32_t *ids, size_t count);

#endif
