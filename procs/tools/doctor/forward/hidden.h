/* SPDX-License-Identifier: Apache-2.0 */
/* Keys of an indexer with which it makes a choice at random places. A hidden key is infinite: with
 * queries of zeros its score is NaN, which is never chosen (lib/kernels/choose.h). */
#ifndef SLUICE_TOOLS_DOCTOR_FORWARD_HIDDEN_H
#define SLUICE_TOOLS_DOCTOR_FORWARD_HIDDEN_H

#include <stdint.h>

#include "lib/model/arch/arch.h"

/* Hides keys of a layer, all of which are zeros, so that as many scores as the indexer chooses are
 * left, one in each of so many equal parts of `positions`. Of an indexer that chooses blocks, this
 * is the first position of a block: the score of a block is that of its first position as long as
 * none is greater, and none is greater than NaN. type: of keys and values. */
void hidden_keys(const struct model_hparams *h, enum kv_type type, uint64_t positions,
                 uint32_t layer, void *keys);

#endif
