/* SPDX-License-Identifier: Apache-2.0 */
/* Splits a GGUF file into parts (lib/model/gguf/split.h). */
#ifndef SLUICE_TOOLS_SYNTH_SPLIT_H
#define SLUICE_TOOLS_SYNTH_SPLIT_H

#include <stdint.h>

#include "lib/base/error.h"

/* -1 with ERR_BAD_INPUT if the names of parts cannot be made of `name`. */
int split_check_name(const char *name, struct error *error);

/* Writes the tensors of the GGUF file at `path` to `parts` files of about the same size, whose
 * names are `name` (which ends with .gguf) with -0000I-of-0000N before the ending. The first has
 * the keys. 0, or -1 with ERR_BAD_INPUT, ERR_IO or ERR_NO_MEMORY; parts that were written stay. */
int split_write(const char *path, const char *name, uint32_t parts, struct error *error);

#endif
