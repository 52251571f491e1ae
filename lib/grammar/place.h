/* SPDX-License-Identifier: Apache-2.0 */
/* The marks of a source before its grammar. */
#ifndef SLUICE_GRAMMAR_PLACE_H
#define SLUICE_GRAMMAR_PLACE_H

#include "lib/grammar/program.h"

/* Whether the marks are ones. -1 with ERR_BAD_INPUT. */
int place_check(const struct grammar_source *s, struct error *error);

/* Puts free text and the marks before the text of a finished automaton. -1 with ERR_NO_MEMORY, or
 * ERR_BAD_INPUT (too complex); *g is freed by the caller. */
int place_before(struct grammar *g, const struct grammar_source *s, struct error *error);

#endif
