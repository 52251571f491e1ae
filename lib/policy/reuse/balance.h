/* SPDX-License-Identifier: Apache-2.0 */
/* Divides memory between experts and kept prefixes by one measure: the time that a step of memory
 * saves. Both sides are measured, not assumed:
 *
 *   prefixes   each prompt that continues from kept rows saves the time to compute them, and needs
 *              that so many bytes are kept: its own, and those of all that was used since. A prompt
 *              that would have continued from rows that were given up counts alike. So it is known
 *              what every number of steps would have saved.
 *   experts    the time that passes wait for experts, times the part of it that a step more would
 *              have avoided. It is known for the next step only, and taken for all: the first steps
 *              that experts lose are those that they use least.
 *
 * Sums of both grow over the same time and fade alike, so no rate is needed. Memory moves one step
 * at a time, and only if it saves BALANCE_FACTOR times what it costs. Where a single step changes
 * what is measured by more than that, memory would move to and fro: each time that it turns, twice
 * as much is demanded, which fades slowly. Pure functions. */
#ifndef SLUICE_POLICY_REUSE_BALANCE_H
#define SLUICE_POLICY_REUSE_BALANCE_H

#include <stdbool.h>
#include <stdint.h>

#define BALANCE_STEPS  64u /* of the budget */
#define BALANCE_MOST   32u /* prefixes get at most half of it */
#define BALANCE_FACTOR 1.5
#define BALANCE_KEEP   0.999  /* what remains of the sums after a decision */
#define BALANCE_CALM   0.9999 /* what remains after a decision of a factor that turns have raised */
#define BALANCE_LEARNS                                                                             \
    100u /* decisions before memory is taken from prefixes: a restarted process
                             * has not seen the prompts that use it */

/* All zero: nothing is known. */
struct balance {
    double saved_ns[BALANCE_MOST + 1]; /* by prefixes, with so many steps beside the pool or more */
    double stall_ns;                   /* that experts would save with a step more */
    uint32_t steps;                    /* that prefixes have */
    double factor; /* how many times its cost a move must save; 0: BALANCE_FACTOR */
    int direction; /* of the last move: 1 to prefixes, -1 to experts, 0: none yet */
    uint32_t decisions;
};

/* A prompt saved so much, or would have, where `steps` steps or more beside the pool are kept;
 * 0 or less: the pool suffices. */
void balance_prefix(struct balance *b, double steps, uint64_t ns);

/* Passes waited `stall_ns` for experts. share: of the misses, the part that a step more of memory
 * would have avoided, 0 to 1. */
void balance_experts(struct balance *b, uint64_t stall_ns, double share);

/* One step more, one less, or none: changes b->steps, which is at most `most`, at most
 * BALANCE_MOST. has: what prefixes have by now; one more is decided only when they have the last
 * one. To be called when something was counted. Returns b->steps. */
uint32_t balance_decide(struct balance *b, uint32_t has, uint32_t most);

/* What prefixes save per step, where they have as many as save most per step. Experts save stall_ns
 * with the next one. */
double balance_step_ns(const struct balance *b);

#endif
