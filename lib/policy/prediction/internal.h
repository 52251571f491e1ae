/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the predictions. Private to lib/policy/prediction. */
#ifndef SLUICE_POLICY_PREDICTION_INTERNAL_H
#define SLUICE_POLICY_PREDICTION_INTERNAL_H

#include "lib/policy/prediction/prediction.h"

/* Keeps out[0..found-1] in descending order; an equal goes behind earlier ones, which is the tie
 * rule. At most `want`. Returns the new count. */
uint32_t prediction_keep_best(struct prediction *out, uint32_t found, uint32_t want,
                              struct prediction g);

#endif
