/* SPDX-License-Identifier: Apache-2.0 */
/* The directory of prefix files. What users wrote to the engine can be computed from them, so
 * nobody else may read them, and nobody else may place files there. */
#ifndef SLUICE_PREFIX_DIRECTORY_H
#define SLUICE_PREFIX_DIRECTORY_H

#include <stdbool.h>

#include "lib/base/error.h"

/* Opens it; with `make` it is made with mode 0700 if it does not exist. Returns a descriptor, which
 * the caller closes, or -1 with ERR_BAD_INPUT: it cannot be opened, belongs to another user, or
 * others may write to it. */
int prefix_directory_open(const char *path, bool make, struct error *error);

#endif
