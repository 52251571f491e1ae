/* SPDX-License-Identifier: Apache-2.0 */
/* Accuracy of predictions: for every sequence and layer the newest prediction, compared with the
 * accesses that follow. `place`: the sequence's (lib/policy/sequences.h). */
#ifndef SLUICE_ENGINE_PREDICTOR_RECALL_H
#define SLUICE_ENGINE_PREDICTOR_RECALL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/error.h"
#include "lib/policy/prediction/prediction.h"
#include "lib/policy/sequences.h"

struct recall;

/* NULL with ERR_NO_MEMORY. */
struct recall *recall_create(uint32_t layers, uint32_t experts, struct error *error);
void recall_destroy(struct recall *r);

/* The prediction for a layer of a token; replaces the older one for this place and layer. */
void recall_prediction(struct recall *r, uint32_t place, const struct prediction_place *target,
                       const uint32_t *experts, size_t count);

enum recall_result { RECALL_NO_PREDICTION, RECALL_HIT, RECALL_MISS };

/* An expert was accessed: whether there was a prediction for that token and layer, and whether it
 * contained the expert. */
enum recall_result recall_access(const struct recall *r, uint32_t place,
                                 const struct prediction_place *at, uint32_t expert);

#endif
