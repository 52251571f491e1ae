/* SPDX-License-Identifier: Apache-2.0 */
/* Given rows in file format. A plain quantiser: one scale for all sub-blocks of
 * a unit, by the root mean square of its elements; good enough for normal
 * numbers. */
#ifndef SLUICE_TOOLS_SYNTH_ENCODER_H
#define SLUICE_TOOLS_SYNTH_ENCODER_H

#include <stdint.h>

#include "lib/tensor/tensor_type.h"

struct encoder;

/* NULL: out of memory, or a type whose codes are no function of single elements
 * (encoder_has). */
struct encoder *encoder_new(enum tensor_type type);
void encoder_free(struct encoder *e);
bool encoder_has(enum tensor_type type);

/* Converts a row of n floats, a multiple of the type's block. Threads may share
 * an encoder. */
void encoder_row(const struct encoder *e, const float *x, uint32_t n, void *out);

#endif
