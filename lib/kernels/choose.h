/* SPDX-License-Identifier: Apache-2.0 */
/* The choice of the positions that attention is over, by scores. One implementation for all
 * instruction sets: the choice is part of what a model computes. */
#ifndef SLUICE_KERNELS_CHOOSE_H
#define SLUICE_KERNELS_CHOOSE_H

#include <stdint.h>

/* Writes the numbers of the k largest of n scores to chosen, in ascending order, and returns how
 * many these are. Of equal scores, the lower number is chosen first; 0 and -0 are equal. A score of
 * -infinity is that of a position which is not visible: it is never chosen, and neither is NaN. So
 * fewer than k are chosen where fewer are visible, and then all of these are. chosen: space for the
 * smaller one of n and k. Takes five passes over the scores, whatever they and k are. */
uint32_t kernel_choose(const float *score, uint32_t n, uint32_t k, uint32_t *chosen);

#endif
