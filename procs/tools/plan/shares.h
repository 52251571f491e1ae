/* Tier shares that are given instead of planned: for files with random weights, where no loss can
 * be measured and only speed is of interest. Pure functions. */
#ifndef SLUICE_TOOLS_PLAN_SHARES_H
#define SLUICE_TOOLS_PLAN_SHARES_H

#include <stddef.h>
#include <stdint.h>

#include "lib/base/error.h"
#include "lib/model/index/model_index.h"
#include "lib/tensor/precision.h"

#define SHARES_SKIP PRECISION__COUNT /* beside the tiers: not computed */

struct shares {
    double of[PRECISION__COUNT + 1]; /* sum 1 */
};

/* "int4=0.8,int2=0.15,skip=5%": names native|int8|int4|int2|skip, each at most once; what is
 * missing of 1 goes to the best tier that is named. -1 with ERR_BAD_INPUT. */
int shares_parse(struct shares *s, const char *text, struct error *error);

/* Gives `cells` experts widths in these shares, to the nearest whole number of experts, in an order
 * drawn from the seed. skip must be 0. */
void shares_deal(const struct shares *s, uint64_t seed, uint8_t *precision, uint64_t cells);

/* The better and the worse of at most two tiers that have a share; -1 with ERR_BAD_INPUT when there
 * are three. One tier: both are it. */
int shares_pair(const struct shares *s, enum precision *high, enum precision *low,
                struct error *error);

/* HOBBIT's thresholds: `before` holds the sum of better weights of every use (precision_weight_before); it
 * is sorted. t1 and t2 are such that `high` of the uses are at or below t1, `low` further ones at
 * or below t2. Uses of rank 0 are always high, whatever the share. got: the shares that come out.
 */
void shares_thresholds(float *before, size_t count, double high, double low, double *t1, double *t2,
                       double got[3]);

#endif
