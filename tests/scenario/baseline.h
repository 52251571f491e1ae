/* SPDX-License-Identifier: Apache-2.0 */
/* Reference texts: generated with every expert resident, one thread, and defaults otherwise. */
#ifndef SLUICE_TESTS_SCENARIO_BASELINE_H
#define SLUICE_TESTS_SCENARIO_BASELINE_H

#include "tests/harness/harness.h"

/* Of each text. */
unsigned baseline_tokens(void);

/* Text of prompt i. The first call in a build generates all of them with an engine; later ones read
 * its file. */
const struct text *baseline(unsigned i);

/* Generates prompt i on e and compares with the baseline. `what` is for the message. */
void baseline_compare(struct engine *e, unsigned i, const char *what);
/* The same with the first tokens of the text only, where a case repeats it many times; all calls of
 * a program have as many. The first one generates their texts with another engine. */
void baseline_compare_first(struct engine *e, unsigned i, size_t tokens, const char *what);

#endif
