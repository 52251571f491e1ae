/* SPDX-License-Identifier: Apache-2.0 */
/* Routing: from router logits to experts and gate weights.
 *  exact   the rule of the model (lib/model/router.h). Top-k first and softmax over the K (Mixtral)
 *          is the same as softmax over all and normalised weights.
 *  masked  the logits of experts outside a set are -infinity before softmax and top-k
 *          (SwapMoE §3.2)
 *  resident-first
 *          in decode a resident expert takes the place of a missing one that is little better; the
 *          weights stay the router's (resident_first.h) */
#ifndef SLUICE_POLICY_ACCESS_ROUTING_H
#define SLUICE_POLICY_ACCESS_ROUTING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/model/router.h"
#include "lib/policy/choice.h"

#define ROUTING_LIST(X)                                                                            \
    X(ROUTING_EXACT, "exact")                                                                      \
    X(ROUTING_MASKED, "masked")                                                                    \
    X(ROUTING_RESIDENT_FIRST, "resident-first")
/* Set of masked routing: largest norms, most accessed, or replaced by importance. */
#define MASK_LIST(X)                                                                               \
    X(MASK_NONE, "none")                                                                           \
    X(MASK_NORM, "norm")                                                                           \
    X(MASK_FREQUENCY, "frequency")                                                                 \
    X(MASK_SWAP, "swap")

enum routing_rule { ROUTING_LIST(CHOICE_ID) };
enum routing_mask { MASK_LIST(CHOICE_ID) };

struct route {
    uint32_t expert;
    float weight;
};

#define ROUTE_STRIDE (sizeof(struct route) / sizeof(float)) /* between weights of routes */

#define ROUTING_SCRATCH(experts) (2 * (size_t)(experts))

/* Writes the top_k routes of a row to out, in order of rank, as the model's router chooses them.
 * logits: [experts]; scratch: ROUTING_SCRATCH(experts) floats. */
void routing_exact(const struct model_router *router, const float *logits, float *scratch,
                   struct route *out);

/* The same where a table has chosen them: [top_k] different experts. Their order is that of their
 * p, of equal ones that of the table. */
void routing_table(const struct model_router *router, const float *logits, const uint32_t *table,
                   float *scratch, struct route *out);

/* The logit z whose p = sqrt(ln(1 + exp(z))), of ROUTER_SQRT_SOFTPLUS; of p near 0 and below, that
 * of 1e-6. */
double routing_root_logit(double p);

/* Computes what decides the choice: p of router.h, and the score s = p + bias, which is -infinity
 * outside the groups that the row uses. p, score, scratch: [experts]. */
void routing_scores(const struct model_router *router, const float *logits, float *scratch,
                    float *p, float *score);

/* Computes the margin of each expert: how far it is above what it needs to be chosen, in nats of
 * its own logit. Only differences between experts count. Without a bias and groups these are the
 * logits. With them, t is midway between the score of the last chosen expert and the next one:
 * log-odds of p less log-odds of t - bias (p less t - bias, if p is the logit), within
 * ROUTING_MARGIN_MIN and _MAX, and at most ROUTING_MARGIN_GROUP outside the groups that the row
 * uses. The top_k largest are those of routing_exact, but for ties. scratch has
 * ROUTING_MARGIN_SCRATCH(experts) floats; margin: [experts]. */
#define ROUTING_MARGIN_MIN              (-11.0f)
#define ROUTING_MARGIN_MAX              4.0f
#define ROUTING_MARGIN_GROUP            (-0.25f)
#define ROUTING_MARGIN_SCRATCH(experts) (3 * (size_t)(experts))
void routing_margins(const struct model_router *router, const float *logits, float *scratch,
                     float *margin);

/* Sets the weights of `count` routes to those of a router that has chosen these experts, in this
 * order: p comes from the logits of all experts, and is normalised over the chosen ones only where
 * the model does so. For the choice of routing_exact the bits are those of its weights.
 * ROUTER_SPARSE_MIXER: better experts that are not among them count as masked, because its weight
 * is that of the best one of those that are left. scratch: [experts]. */
void routing_weights(const struct model_router *router, const float *logits, uint32_t count,
                     float *scratch, struct route *out);

/* What the weights of chosen experts are proportional to, for all experts: the weight that each one
 * has before it is normalised over those that were chosen. Not for ROUTER_SPARSE_MIXER, where each
 * weight depends on the experts chosen before: there exp(logit - largest logit). weight:
 * [experts]. */
void routing_shares(const struct model_router *router, const float *logits, float *weight);

/* Routes to the experts e with allowed[e] only. Returns the number of routes written to out: top_k,
 * or the size of the set when that is smaller; the softmax is over the set. If the best groups have
 * fewer experts of the set than that, all groups count. With every expert allowed, or NULL, the
 * result is bit-identical to routing_exact. */
uint32_t routing_masked(const struct model_router *router, const float *logits, const bool *allowed,
                        float *scratch, struct route *out);

#endif
