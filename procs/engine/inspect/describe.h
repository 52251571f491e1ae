/* SPDX-License-Identifier: Apache-2.0 */
/* Prints a model index, as text or JSON. */
#ifndef SLUICE_ENGINE_INSPECT_DESCRIBE_H
#define SLUICE_ENGINE_INSPECT_DESCRIBE_H

#include <stdbool.h>
#include <stdio.h>

#include "lib/model/index/model_index.h"

void describe_text(FILE *out, const char *path, const struct model_index *m, bool tensors);
/* 0, or -1 when the JSON cannot be made or written. */
int describe_json(FILE *out, const char *path, const struct model_index *m, bool tensors);

#endif
