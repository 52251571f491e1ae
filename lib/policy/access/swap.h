/* SPDX-License-Identifier: Apache-2.0 */
/* Expert replacement (SwapMoE §3.2, §3.3): every layer keeps a fixed number of resident experts and
 * routing is masked to them; the set follows the importance of experts over a window.
 *
 * Importance of an expert over the window: the sum, over the tokens whose unmasked top-k names it,
 * of |x| * G(x) * |E|. The window of a layer ends when its update is due: the v most important
 * experts should be resident. Candidates and victims form pairs: the most important candidate with
 * the least important victim, and so on, as long as the difference exceeds the margin. A window is
 * a small sample: among experts of similar importance the order changes every time, and replacing
 * them costs reads without a gain.
 *
 * Amortised: in an interval of f tokens layer l is updated at token floor(l * f / layers) of it,
 * and its pairs are issued evenly over its part of the interval. Not amortised: all layers are
 * updated, and all pairs due, at the end of the interval. A layer without new importance is not
 * updated: its pairs stay pending. One pair is in progress at a time (one spare entry is budgeted):
 * the old expert serves until the new one is READY and swap_done is called.
 *
 * Pure bookkeeping; nothing is allocated after swap_create. */
#ifndef SLUICE_POLICY_ACCESS_SWAP_H
#define SLUICE_POLICY_ACCESS_SWAP_H

#include <stdbool.h>
#include <stdint.h>

struct swap;

struct swap_config {
    uint32_t layers, experts, top_k;
    /* [layers]: v, top_k <= v <= experts; 0 for layers without experts; copied */
    const uint32_t *keep;
    const float *norm; /* [layers * experts]: |E|; copied; NULL: all 1 */
    uint32_t interval; /* f, tokens; at least 1 */
    float margin;      /* in units of the layer's mean importance; 0 or more */
    bool amortise;     /* spread over the interval */
    bool count_only;   /* importance is the number of tokens (an ablation) */
};

struct swap_pair {
    uint32_t layer, in, out; /* experts */
};

/* Returns NULL when the config is invalid or memory is short; the caller calls swap_destroy. The
 * first set of a layer has the v experts with the largest norms; swap_set replaces it. */
struct swap *swap_create(const struct swap_config *config);
void swap_destroy(struct swap *s);

/* Replaces the set of a layer by the experts e with resident[e] != 0: exactly v of them, which is
 * asserted. */
void swap_set(struct swap *s, uint32_t layer, const uint8_t *resident);

/* Adds to the importance of an expert that a token's unmasked top-k names; value is |x| * G(x). */
void swap_choice(struct swap *s, uint32_t layer, uint32_t expert, float value);

/* `tokens` were completed (decode: 1, prefill: the chunk's). Updates and due times are those of as
 * many calls with 1. */
void swap_tokens(struct swap *s, uint32_t tokens);

/* The number of tokens that may be routed together. All of them have the set of the first one, and
 * their importance arrives with the last one, so that a set is late by as many. A third of the
 * interval costs nothing that can be measured, the whole interval does (docs/lab/swapmoe.md). */
uint32_t swap_rows_max(uint64_t interval);

/* The number of tokens until the next update or pair is due; 0: one is due now. */
uint64_t swap_idle_tokens(const struct swap *s);

/* Hands out the next pair that is due. False: none is due, or one is in progress. After true,
 * swap_done or swap_abandon must follow. */
bool swap_next(struct swap *s, struct swap_pair *pair);
/* The new expert of the pair in progress is READY: it serves from now on, the old one does not. */
void swap_done(struct swap *s);
/* The pair in progress is given up: nothing has changed. */
void swap_abandon(struct swap *s);

/* The mask of masked routing of a layer: [experts], nonzero for those that serve. It is valid until
 * swap_destroy. */
const uint8_t *swap_serving(const struct swap *s, uint32_t layer);

/* The importance of an expert in the current window. */
float swap_importance(const struct swap *s, uint32_t layer, uint32_t expert);
/* The number of pairs that swap_done ended, over all layers. */
uint64_t swap_pairs_done(const struct swap *s);

#endif
