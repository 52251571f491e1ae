/* SPDX-License-Identifier: Apache-2.0 */
/* Directory states and inputs of an access, with the one answer that every caller of the precision
 * policy must give: the policy itself, compute, the simulator, the offline evaluation. Two
 * precisions: high is native, low is int4; thresholds of states_policy. */
#ifndef SLUICE_TESTS_UNIT_LIB_POLICY_ACCESS_STATES_H
#define SLUICE_TESTS_UNIT_LIB_POLICY_ACCESS_STATES_H

#include "lib/policy/access/precision.h"

#define STATES_MASK (1u << PRECISION_NATIVE | 1u << PRECISION_INT4)

struct states_row {
    enum precision_rule rule;
    float weight_before, popularity;
    bool prefill;
    enum precision_state high, low;
    enum precision_outcome outcome;
    enum precision precision; /* not checked where skipped */
};

static inline struct precision_policy states_policy(enum precision_rule rule)
{
    return (struct precision_policy){.rule = rule,
                                     .high = PRECISION_NATIVE,
                                     .low = PRECISION_INT4,
                                     .t1 = 0.6f,
                                     .t2 = 0.9f,
                                     .low_fraction = 0.25f};
}

#define A PRECISION_ABSENT
#define L PRECISION_LOADING
#define R PRECISION_READY
static const struct states_row states_rows[] = {
    {PRECISION_RULE_LOSSLESS, 0.7f, 0.8f, true, A, R, PRECISION_MISS, PRECISION_NATIVE},
    {PRECISION_RULE_LOSSLESS, 0.7f, 0.8f, false, R, A, PRECISION_HIT, PRECISION_NATIVE},
    {PRECISION_RULE_LOSSLESS, 0.7f, 0.8f, false, L, R, PRECISION_INFLIGHT, PRECISION_NATIVE},
    {PRECISION_RULE_UNIFORM_INT4, 0, 0, false, R, A, PRECISION_MISS, PRECISION_INT4},
    {PRECISION_RULE_UNIFORM_INT4, 0, 0, true, R, R, PRECISION_HIT, PRECISION_INT4},
    /* hobbit: at most t1 */
    {PRECISION_RULE_HOBBIT, 0, 0, false, A, A, PRECISION_MISS, PRECISION_NATIVE},
    {PRECISION_RULE_HOBBIT, 0.5f, 0, false, L, A, PRECISION_INFLIGHT, PRECISION_NATIVE},
    {PRECISION_RULE_HOBBIT, 0.5f, 0, false, R, A, PRECISION_HIT, PRECISION_NATIVE},
    {PRECISION_RULE_HOBBIT, 0.5f, 0, true, A, R, PRECISION_MISS, PRECISION_NATIVE},
    {PRECISION_RULE_HOBBIT, 0.5f, 0, false, R, R, PRECISION_HIT, PRECISION_NATIVE},
    /* between t1 and t2 */
    {PRECISION_RULE_HOBBIT, 0.7f, 0, false, A, A, PRECISION_MISS, PRECISION_INT4},
    {PRECISION_RULE_HOBBIT, 0.7f, 0, false, A, L, PRECISION_INFLIGHT, PRECISION_INT4},
    {PRECISION_RULE_HOBBIT, 0.7f, 0, true, L, A, PRECISION_INFLIGHT, PRECISION_NATIVE},
    {PRECISION_RULE_HOBBIT, 0.7f, 0, false, A, R, PRECISION_HIT, PRECISION_INT4},
    {PRECISION_RULE_HOBBIT, 0.7f, 0, false, L, R, PRECISION_HIT, PRECISION_INT4},
    {PRECISION_RULE_HOBBIT, 0.7f, 0, true, R, R, PRECISION_HIT, PRECISION_NATIVE},
    /* above t2 */
    {PRECISION_RULE_HOBBIT, 0.95f, 0, false, A, A, PRECISION_SKIPPED, PRECISION_NATIVE},
    {PRECISION_RULE_HOBBIT, 0.95f, 0, true, L, L, PRECISION_SKIPPED, PRECISION_NATIVE},
    {PRECISION_RULE_HOBBIT, 0.95f, 0, false, R, A, PRECISION_HIT, PRECISION_NATIVE},
    {PRECISION_RULE_HOBBIT, 0.95f, 0, false, A, R, PRECISION_HIT, PRECISION_INT4},
    /* fate: the least popular quarter of a chunk */
    {PRECISION_RULE_FATE, 0, 0.7f, true, A, A, PRECISION_MISS, PRECISION_NATIVE},
    {PRECISION_RULE_FATE, 0, 0.7f, true, A, R, PRECISION_MISS, PRECISION_NATIVE},
    {PRECISION_RULE_FATE, 0, 0.8f, true, A, A, PRECISION_MISS, PRECISION_INT4},
    {PRECISION_RULE_FATE, 0, 0.8f, true, A, R, PRECISION_HIT, PRECISION_INT4},
    {PRECISION_RULE_FATE, 0, 0.8f, true, R, R, PRECISION_HIT, PRECISION_NATIVE},
    {PRECISION_RULE_FATE, 0, 0.8f, false, A, R, PRECISION_MISS, PRECISION_NATIVE},
};
#undef A
#undef L
#undef R
#define STATES_ROWS ((int)(sizeof states_rows / sizeof states_rows[0]))

#endif
