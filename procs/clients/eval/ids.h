/* SPDX-License-Identifier: Apache-2.0 */
/* Token ids as input and output of eval. */
#ifndef SLUICE_EVAL_IDS_H
#define SLUICE_EVAL_IDS_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/error.h"

/* The array "ids" of a JSON object, such as eval --per-token prints; the caller frees *ids. -1 with
 * ERR_BAD_INPUT and others. */
int ids_read(const char *path, uint32_t **ids, size_t *count, struct error *error);

/* New references: all ids of the windows, and minus the logarithm of the probability of each but
 * the first of a window. */
json_t *ids_json(const uint32_t *ids, size_t count);
json_t *ids_losses_json(const double *nll, size_t count);

#endif
