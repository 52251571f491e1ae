/* SPDX-License-Identifier: Apache-2.0 */
/* Accuracy of predictions: for every layer the newest prediction, compared with the accesses that
 * follow. */
#ifndef SLUICE_ENGINE_PREDICTOR_RECALL_H
#define SLUICE_ENGINE_PREDICTOR_RECALL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/error.h"

struct recall;

/* NULL with ERR_NO_MEMORY. */
struct recall *recall_create(uint32_t layers, uint32_t experts, struct error *error);
void recall_destroy(struct recall *r);

/* The prediction for a layer of a token; replaces the layer's older one. */
void recall_prediction(struct recall *r, uint32_t sequence, uint32_t position, uint32_t layer,
                       const uint32_t *experts, size_t count);

enum recall_result { RECALL_NO_PREDICTION, RECALL_HIT, RECALL_MISS };

/* An expert was accessed: whether there was a prediction for that token and layer, and whether it
 * contained the expert. */
enum recall_result recall_access(const struct recall *r, uint32_t sequence, uint32_t position,
                                 uint32_t layer, uint32_t expert);

#endif
