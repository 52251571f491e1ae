/* SPDX-License-Identifier: Apache-2.0 */
/* The distribution of synthetic routing, by the number of experts. One table for all that makes
 * routing where there is no text: the traces of `doctor` (lib/sim/routing.h), and the weights that
 * `sluice synth` writes, which `sluice bench` runs on a token stream (token_stream.h). Pure. */
#ifndef SLUICE_SYNTHETIC_ROUTING_LAW_H
#define SLUICE_SYNTHETIC_ROUTING_LAW_H

#include <stdint.h>

struct routing_law {
    uint32_t experts, used; /* of a layer; of these for a token, in the recording it is fitted to */
    /* Router logits: standard deviation of an expert's bias, relative to that of the part that
     * depends on the token; share of the variance of that part that the tokens of a group have in
     * common. */
    float skew, locality;
    /* The same for weights: there attention and experts add to what tokens have in common, so
     * that other values give the same reuse of experts. */
    float weights_skew, weights_locality;
};

/* The row with the nearest number of experts (by their ratio), and among these with the nearest
 * number used (by the difference; of two, the smaller one). experts: at least 1. */
const struct routing_law *routing_law_of(uint32_t experts, uint32_t used);

#endif
