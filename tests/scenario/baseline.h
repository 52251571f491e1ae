/* The texts everything else is compared with: a resident engine with one thread and the defaults.
 */
#ifndef SLUICE_TESTS_SCENARIO_BASELINE_H
#define SLUICE_TESTS_SCENARIO_BASELINE_H

#include "tests/harness/harness.h"

#define BASELINE_TOKENS 256

/* Text of prompt i; made at the first call of the program. */
const struct text *baseline(unsigned i);

/* Generates prompt i on e and compares. */
void baseline_compare(struct engine *e, unsigned i, const char *what);

#endif
