/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the predictions. Private to lib/policy/prediction. */
#ifndef SLUICE_POLICY_PREDICTION_INTERNAL_H
#define SLUICE_POLICY_PREDICTION_INTERNAL_H

#include "lib/policy/prediction/prediction.h"

/* Keeps out[0..found-1] in descending order; an equal goes after earlier ones, which is the tie
 * rule. At most `want`. Returns the new count. */
uint32_t prediction_keep_best(struct prediction *out, uint32_t found, uint32_t want,
                              struct prediction g);

/* The `want` experts that the router of in->logits puts first, in the order of its choice (NaN
 * last); of a row that a table has decided only the experts of the table. */
uint32_t prediction_by_router(const struct prediction_input *in, uint32_t want,
                              struct prediction *out);

/* Whether the gate weights of a choice are in proportion to the softmax of the logits. */
bool prediction_router_is_plain(const struct model_router *r);

/* Sets weight_before from the gate weights that prediction_by_router left in in->scratch. */
void prediction_gate_weights_before(const struct prediction_input *in, struct prediction *out,
                                    uint32_t count);

#endif
