/* SPDX-License-Identifier: Apache-2.0 */
/* Precision shares from --shares: for files with random weights, where loss is meaningless and only
 * speed is measured. Pure functions. */
#ifndef SLUICE_TOOLS_PLAN_SHARES_H
#define SLUICE_TOOLS_PLAN_SHARES_H

#include <stddef.h>
#include <stdint.h>

#include "lib/base/error.h"
#include "lib/model/index/model_index.h"
#include "lib/tensor/precision.h"

#define SHARES_SKIP PRECISION__COUNT /* index after the precisions: not computed */

struct shares {
    double of[PRECISION__COUNT + 1]; /* sum 1 */
};

/* Parses "int4=0.8,int2=0.15,skip=5%": names native|int8|int4|int2|skip, each at most once; the
 * rest to 1 is added to the highest precision named. -1 with ERR_BAD_INPUT. */
int shares_parse(struct shares *s, const char *text, struct error *error);

/* Assigns precisions to `cells` experts in these shares, rounded to whole experts, in a random
 * order given by the seed. skip must be 0. */
void shares_deal(const struct shares *s, uint64_t seed, uint8_t *precision, uint64_t cells);

/* The higher and the lower of the one or two precisions with a share (one: both are the same); -1
 * with ERR_BAD_INPUT for more. */
int shares_pair(const struct shares *s, enum precision *high, enum precision *low,
                struct error *error);

/* HOBBIT's thresholds. `before`: for every access the sum of larger gate weights
 * (precision_weight_before); it is sorted in place. Sets t1 and t2 so that a share `high` of the
 * accesses is at or below t1, and `low` more at or below t2. Accesses of rank 0 are always high.
 * got: the resulting shares. */
void shares_thresholds(float *before, size_t count, double high, double low, double *t1, double *t2,
                       double got[3]);

#endif
