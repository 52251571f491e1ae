/* SPDX-License-Identifier: Apache-2.0 */
/* Precision: which precisions may serve an access, and which one is requested when none of them is
 * resident. A pure function of gate weights, plan and parameters; compute acts on the result.
 *
 *  lossless       always native
 *  uniform-int8, uniform-int4, uniform-int2
 *                 always that precision
 *  hobbit         s = sum of the gate weights ranked before the expert, normalised over the top-k
 *                 (HOBBIT §3.2):
 *                   s <= T1   high
 *                   s <= T2   high or low; low is requested
 *                   else      high or low where resident, skipped otherwise
 *                 Rank 0 is always high. In prefill s is the minimum over the tokens of the chunk.
 *  edgemoe        the precision that the plan assigns to the expert
 *  mixed-two      as hobbit, with two precisions that the plan assigns to the expert: EdgeMoE's as
 *                 the higher one, and a lower one
 *  drop           always native; in decode, where s > T2, skipped if it is not resident: hobbit
 *                 with one precision. At most 1 - T2 of the gate weights of a token and layer is
 *                 left out
 *  fate           high (int4 by default). In prefill the `low_fraction` least popular experts of
 *                 the chunk may be low, and low is requested; in decode, with slow_device, low is
 *                 requested for an expert that is neither resident nor being prefetched (Fate §4.5,
 *                 §5.3)
 *
 * A choice lists the precisions that may serve, best first. precision_serve applies it to what is
 * resident; compute, the deterministic mode and the simulator call it. A prefetch loads what an
 * access would request (precision_predict). */
#ifndef SLUICE_POLICY_ACCESS_PRECISION_H
#define SLUICE_POLICY_ACCESS_PRECISION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/policy/choice.h"
#include "lib/tensor/precision.h"

#define PRECISION_RULE_LIST(X)                                                                     \
    X(PRECISION_RULE_LOSSLESS, "lossless")                                                         \
    X(PRECISION_RULE_UNIFORM_INT8, "uniform-int8")                                                 \
    X(PRECISION_RULE_UNIFORM_INT4, "uniform-int4")                                                 \
    X(PRECISION_RULE_UNIFORM_INT2, "uniform-int2")                                                 \
    X(PRECISION_RULE_HOBBIT, "hobbit")                                                             \
    X(PRECISION_RULE_EDGEMOE, "edgemoe")                                                           \
    X(PRECISION_RULE_FATE, "fate")                                                                 \
    X(PRECISION_RULE_MIXED_TWO, "mixed-two")                                                       \
    X(PRECISION_RULE_DROP, "drop")

enum precision_need { NEED_HIGH, NEED_LOW, NEED_SKIP };

enum precision_rule { PRECISION_RULE_LIST(CHOICE_ID) };

/* The precision of an access depends on its route, not on the rule alone. */
static inline bool precision_by_route(enum precision_rule rule)
{
    return rule == PRECISION_RULE_HOBBIT || rule == PRECISION_RULE_EDGEMOE ||
           rule == PRECISION_RULE_FATE || rule == PRECISION_RULE_MIXED_TWO ||
           rule == PRECISION_RULE_DROP;
}

/* The plan assigns precisions to each expert. */
static inline bool precision_by_plan(enum precision_rule rule)
{
    return rule == PRECISION_RULE_EDGEMOE || rule == PRECISION_RULE_MIXED_TWO;
}

/* An expert is served at a lower precision, or skipped, by its rank. */
static inline bool precision_by_rank(enum precision_rule rule)
{
    return rule == PRECISION_RULE_HOBBIT || rule == PRECISION_RULE_MIXED_TWO ||
           rule == PRECISION_RULE_DROP;
}

/* The precisions of an expert in a plan. */
struct precision_planned {
    enum precision high, low; /* low: mixed-two */
};

struct precision_policy {
    enum precision_rule rule;
    enum precision high, low; /* hobbit, fate; see knobs_precision_policy */
    float t1, t2;             /* hobbit, mixed-two: 0 <= t1 <= t2 <= 1; drop: t2 */
    float low_fraction;       /* fate: share of the chunk's experts */
    bool slow_device;         /* fate */
};

struct precision_input {
    float weight_before; /* s: see above */
    float popularity; /* prefill: share of the chunk's experts of this layer with more tokens (ties:
                         lower index first), 0 <= p < 1: 0 is the most popular */
    struct precision_planned planned; /* edgemoe, mixed-two: from the plan */
    bool prefill;
    bool predicted; /* for a prefetch, not for an access */
};

struct precision_choice {
    enum precision_need need; /* the need regardless of what is resident */
    enum precision request;   /* not for NEED_SKIP */
    uint32_t accept_count;
    enum precision accept[PRECISION__COUNT]; /* best first; includes `request` unless skipped */
};

/* Sets *out to the precisions that may serve the access, and the one that is requested. */
void precision_choose(const struct precision_policy *p, const struct precision_input *in,
                      struct precision_choice *out);

/* A store can lack single experts of a precision: limits the choice to those of `present`, a mask
 * of 1 << enum precision and not 0. A request that is not present is replaced by the lowest
 * accepted precision that is, or by the best of all. */
void precision_limit(struct precision_choice *choice, uint32_t present);

/* ---- applied to what is resident ------------------------------------------------------------- */

/* LOADING: the entry is reserved and being read, for a prefetch or for a demand. */
enum precision_state { PRECISION_ABSENT, PRECISION_LOADING, PRECISION_READY };
enum precision_outcome { PRECISION_HIT, PRECISION_INFLIGHT, PRECISION_MISS, PRECISION_SKIPPED };

/* Decides which precision serves an access: the best accepted one that is READY; otherwise, unless
 * the expert is skipped, the best accepted one that is LOADING and not below the request (waiting
 * for it reads fewer bytes than a second load); otherwise the request. state: of every accepted
 * precision and of the request. *precision becomes the one that serves or is waited for; if the
 * expert is skipped, the best accepted one. */
enum precision_outcome precision_serve(const struct precision_choice *choice,
                                       const enum precision_state state[PRECISION__COUNT],
                                       enum precision *precision);

/* A predicted expert: rank `at` of `count` in its list, weight_before as in struct prediction. */
struct precision_predicted {
    uint32_t at, count;
    float weight_before;
    struct precision_planned planned;
    bool prefill;
};

/* The precision at which a prediction is prefetched: what an access would request if the prediction
 * were right and nothing resident (HOBBIT §3.3; Fate §4.5: in prefill by predicted popularity).
 * False: not prefetched, because an access would skip it. In prefill no expert of a list is left
 * out: some token of the chunk may need it, at low precision. */
bool precision_predict(const struct precision_policy *p, const struct precision_predicted *in,
                       uint32_t present, enum precision *precision);

/* The precisions that a rule may request, as a mask of 1 << enum precision. Where the plan decides,
 * these are all of `present`. */
uint32_t precision_policy_mask(const struct precision_policy *p, uint32_t present);

/* Sets before[i], i below top_k, to s of rank i: the share that the weights ranked before it have
 * in the sum of all top_k. weight[i * stride] are in order of rank and not negative. All s are 0
 * when the sum is 0. */
void precision_weights_before(const float *weight, size_t stride, uint32_t top_k, float *before);

/* Popularity of the expert at position `at` of a chunk's `count` experts in
 * PREFILL_ORDER_POPULARITY. */
static inline float precision_popularity(uint32_t at, uint32_t count)
{
    return (float)at / (float)count;
}

#endif
