/* SPDX-License-Identifier: Apache-2.0 */
/* Removal of a model's tunings. */
#ifndef SLUICE_TOOLS_MODELS_H
#define SLUICE_TOOLS_MODELS_H

#include <stdint.h>

#include "lib/base/error.h"

/* Removes the stores, records, plans and profiles of a model: the path of its file, or its hash in
 * hex. Of a store only the files that `sluice pack` makes; stores that no record uses, too. *bytes:
 * what was freed. -1 with ERR_NOT_FOUND, ERR_BUSY (a tuning is in progress) or ERR_IO. */
int models_remove(const char *model, uint64_t *bytes, struct error *error);

#endif
