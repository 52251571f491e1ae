/* SPDX-License-Identifier: Apache-2.0 */
/* Keys of a synthetic model with a value per layer, where the architecture has them. */
#ifndef SLUICE_TOOLS_SYNTH_LAYER_KEYS_H
#define SLUICE_TOOLS_SYNTH_LAYER_KEYS_H

#include "procs/tools/synth/shape.h"

/* Writes which layers rotate (LAYER_UNROTATED: not), the tables of n-grams and the layers that read
 * them, the blocks of indexers, and the positions of entries. `s` is finished (shape_finish). */
void layer_keys_put(const struct shape *s, struct gguf_writer *w);

#endif
