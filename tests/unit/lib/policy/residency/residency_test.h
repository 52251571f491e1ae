/* SPDX-License-Identifier: Apache-2.0 */
/* The small model of the residency tests: 5 layers of 9 experts in one or two precisions. */
#ifndef SLUICE_TESTS_UNIT_LIB_POLICY_RESIDENCY_RESIDENCY_TEST_H
#define SLUICE_TESTS_UNIT_LIB_POLICY_RESIDENCY_RESIDENCY_TEST_H

#include <check.h>

#include "lib/base/bytes.h"
#include "lib/policy/residency/residency.h"

#define LAYERS     5u
#define EXPERTS    9u
#define TOP_K      3u
#define ALL        (LAYERS * EXPERTS)
#define PRECISIONS 2u
#define SLOTS      (PRECISIONS * ALL)

/* Reproducible random numbers. */
extern uint64_t seed;
uint32_t below(uint32_t n);

struct residency_config config_of(enum eviction eviction, enum allocation allocation,
                                  uint32_t precisions);

/* The cases of rules_test.c. */
void add_rules(TCase *c);

#endif
