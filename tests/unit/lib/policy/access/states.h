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
    bool slow;                /* parameter slow_device */
};

static inline struct precision_policy states_policy(const struct states_row *row)
{
    return (struct precision_policy){.rule = row->rule,
                                     .high = PRECISION_NATIVE,
                                     .low = PRECISION_INT4,
                                     .t1 = 0.6f,
                                     .t2 = 0.9f,
                                     .low_fraction = 0.25f,
                                     .slow_device = row->slow};
}

#define A PRECISION_ABSENT
#define L PRECISION_LOADING
#define R PRECISION_READY
static const struct states_row states_rows[] = {
    {PRECISION_RULE_LOSSLESS, 0.7f, 0.8f, true, A, R, PRECISION_MISS, PRECISION_NATIVE, false},
    {PRECISION_RULE_LOSSLESS, 0.7f, 0.8f, false, R, A, PRECISION_HIT, PRECISION_NATIVE, false},
    {PRECISION_RULE_LOSSLESS, 0.7f, 0.8f, false, L, R, PRECISION_INFLIGHT, PRECISION_NATIVE, false},
    {PRECISION_RULE_UNIFORM_INT4, 0, 0, false, R, A, PRECISION_MISS, PRECISION_INT4, false},
    {PRECISION_RULE_UNIFORM_INT4, 0, 0, true, R, R, PRECISION_HIT, PRECISION_INT4, false},
    /* hobbit: at most t1 */
    {PRECISION_RULE_HOBBIT, 0, 0, false, A, A, PRECISION_MISS, PRECISION_NATIVE, false},
    {PRECISION_RULE_HOBBIT, 0.5f, 0, false, L, A, PRECISION_INFLIGHT, PRECISION_NATIVE, false},
    {PRECISION_RULE_HOBBIT, 0.5f, 0, false, R, A, PRECISION_HIT, PRECISION_NATIVE, false},
    {PRECISION_RULE_HOBBIT, 0.5f, 0, true, A, R, PRECISION_MISS, PRECISION_NATIVE, false},
    {PRECISION_RULE_HOBBIT, 0.5f, 0, false, R, R, PRECISION_HIT, PRECISION_NATIVE, false},
    /* between t1 and t2 */
    {PRECISION_RULE_HOBBIT, 0.7f, 0, false, A, A, PRECISION_MISS, PRECISION_INT4, false},
    {PRECISION_RULE_HOBBIT, 0.7f, 0, false, A, L, PRECISION_INFLIGHT, PRECISION_INT4, false},
    {PRECISION_RULE_HOBBIT, 0.7f, 0, true, L, A, PRECISION_INFLIGHT, PRECISION_NATIVE, false},
    {PRECISION_RULE_HOBBIT, 0.7f, 0, false, A, R, PRECISION_HIT, PRECISION_INT4, false},
    {PRECISION_RULE_HOBBIT, 0.7f, 0, false, L, R, PRECISION_HIT, PRECISION_INT4, false},
    {PRECISION_RULE_HOBBIT, 0.7f, 0, true, R, R, PRECISION_HIT, PRECISION_NATIVE, false},
    /* above t2 */
    {PRECISION_RULE_HOBBIT, 0.95f, 0, false, A, A, PRECISION_SKIPPED, PRECISION_NATIVE, false},
    {PRECISION_RULE_HOBBIT, 0.95f, 0, true, L, L, PRECISION_SKIPPED, PRECISION_NATIVE, false},
    {PRECISION_RULE_HOBBIT, 0.95f, 0, false, R, A, PRECISION_HIT, PRECISION_NATIVE, false},
    {PRECISION_RULE_HOBBIT, 0.95f, 0, false, A, R, PRECISION_HIT, PRECISION_INT4, false},
    /* drop: above t2, in decode */
    {PRECISION_RULE_DROP, 0.8f, 0, false, A, R, PRECISION_MISS, PRECISION_NATIVE, false},
    {PRECISION_RULE_DROP, 0.95f, 0, false, A, A, PRECISION_SKIPPED, PRECISION_NATIVE, false},
    {PRECISION_RULE_DROP, 0.95f, 0, false, R, A, PRECISION_HIT, PRECISION_NATIVE, false},
    {PRECISION_RULE_DROP, 0.95f, 0, false, L, A, PRECISION_SKIPPED, PRECISION_NATIVE, false},
    {PRECISION_RULE_DROP, 0.95f, 0, true, A, R, PRECISION_MISS, PRECISION_NATIVE, false},
    /* fate: the least popular quarter of a chunk */
    {PRECISION_RULE_FATE, 0, 0.7f, true, A, A, PRECISION_MISS, PRECISION_NATIVE, false},
    {PRECISION_RULE_FATE, 0, 0.7f, true, A, R, PRECISION_MISS, PRECISION_NATIVE, false},
    {PRECISION_RULE_FATE, 0, 0.8f, true, A, A, PRECISION_MISS, PRECISION_INT4, false},
    {PRECISION_RULE_FATE, 0, 0.8f, true, A, R, PRECISION_HIT, PRECISION_INT4, false},
    {PRECISION_RULE_FATE, 0, 0.8f, true, R, R, PRECISION_HIT, PRECISION_NATIVE, false},
    {PRECISION_RULE_FATE, 0, 0.8f, false, A, R, PRECISION_MISS, PRECISION_NATIVE, false},
    /* slow device: low in decode, unless high is resident or being prefetched */
    {PRECISION_RULE_FATE, 0, 0, false, A, A, PRECISION_MISS, PRECISION_INT4, true},
    {PRECISION_RULE_FATE, 0, 0, false, A, R, PRECISION_HIT, PRECISION_INT4, true},
    {PRECISION_RULE_FATE, 0, 0, false, R, A, PRECISION_HIT, PRECISION_NATIVE, true},
    {PRECISION_RULE_FATE, 0, 0, false, L, A, PRECISION_INFLIGHT, PRECISION_NATIVE, true},
    {PRECISION_RULE_FATE, 0, 0.7f, true, A, R, PRECISION_MISS, PRECISION_NATIVE, true},
};
#undef A
#undef L
#undef R
#define STATES_ROWS ((int)(sizeof states_rows / sizeof states_rows[0]))

#endif
