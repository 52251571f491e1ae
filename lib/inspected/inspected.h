/* SPDX-License-Identifier: Apache-2.0 */
/* The index of a model, made by sluice-inspect in its sandbox: a malformed file can crash inspect
 * only. The index is checked again here. */
#ifndef SLUICE_INSPECTED_INSPECTED_H
#define SLUICE_INSPECTED_INSPECTED_H

#include "lib/base/error.h"

struct model_index;

/* fd: an open GGUF file or the directory of a store; path names it in errors, and locates stripes.
 * The result is freed with free. Errors: those of inspect, and ERR_FAILED when it crashed or cannot
 * be started. */
int inspected_index(int fd, const char *path, struct model_index **index, struct error *error);

#endif
