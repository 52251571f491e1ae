/* Swapping virtual experts (SwapMoE §3.2, §3.3): every layer keeps a fixed number of resident
 * experts; routing is masked to them; what they are follows the importance of experts over a
 * window.
 *
 * Importance of an expert over the window: the sum, over the tokens whose unmasked top-k names it,
 * of |x| * G(x) * |E|. The window of a layer ends when its update is planned: the v most important
 * are to be resident. What is to come and what is to leave makes pairs: the most important newcomer
 * with the least important leaver, and so on, while the one is more important than the other by the
 * margin: a window is a small sample, and of experts that matter alike another few come out ahead
 * each time. Changing those costs reading and gains nothing.
 *
 * Amortised: in an interval of f tokens layer l is planned at token floor(l * f / layers) of it,
 * and its pairs are handed out evenly over its part of the interval; without, all layers are
 * planned, and all pairs due, at the interval's end. One pair is out at a time (one spare entry is
 * budgeted): the old expert serves until the new one is READY and swap_done is called.
 *
 * Pure bookkeeping; nothing is allocated after swap_create. */
#ifndef SLUICE_POLICY_ACCESS_SWAP_H
#define SLUICE_POLICY_ACCESS_SWAP_H

#include <stdbool.h>
#include <stdint.h>

struct swap;

struct swap_config {
    uint32_t layers, experts, top_k;
    const uint32_t *keep; /* [layers]: v, top_k <= v <= experts; copied */
    const float *norm;    /* [layers * experts]: |E|; copied; NULL: all 1 */
    uint32_t interval;    /* f, tokens; at least 1 */
    float margin;         /* in mean importances of the layer's experts; 0 or more */
    bool amortise;        /* spread over the interval */
    bool count_only;      /* importance is the number of tokens (an ablation) */
};

struct swap_pair {
    uint32_t layer, in, out; /* experts */
};

/* NULL when the config makes no sense or memory is short. The first set of a layer is its v
 * largest norms; swap_set says another. */
struct swap *swap_create(const struct swap_config *config);
void swap_destroy(struct swap *s);

/* Replaces the set of a layer: resident[e] != 0; exactly v of them (asserted). */
void swap_set(struct swap *s, uint32_t layer, const uint8_t *resident);

/* A token's unmasked top-k names the expert; value is |x| * G(x). */
void swap_choice(struct swap *s, uint32_t layer, uint32_t expert, float value);

/* tokens were completed (1 in decode, the chunk's in prefill). */
void swap_tokens(struct swap *s, uint32_t tokens);

/* The next pair that is due, if none is out. After it: swap_done (the new one serves from now on)
 * or swap_abandon (nothing changed). */
bool swap_next(struct swap *s, struct swap_pair *pair);
void swap_done(struct swap *s);
void swap_abandon(struct swap *s);

/* [experts], not 0 for those that serve: the mask of routing_masked. Valid until swap_destroy. */
const uint8_t *swap_serving(const struct swap *s, uint32_t layer);

float swap_importance(const struct swap *s, uint32_t layer,
                      uint32_t expert); /* of the window now */
uint64_t swap_pairs_done(const struct swap *s);

#endif
