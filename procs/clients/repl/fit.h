/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses how many of the oldest turns are left out when the context is full. Pure functions. */
#ifndef SLUICE_CLIENTS_REPL_FIT_H
#define SLUICE_CLIENTS_REPL_FIT_H

#include <stddef.h>
#include <stdint.h>

#include "lib/base/error.h"

/* Tokens of the prompt if turns are sent from number `first` on. 0, or -1 with *error. */
typedef int fit_count(void *arg, size_t first, uint64_t *tokens, struct error *error);

/* Of `turns` turns, finds the first one from which on the prompt has at most `most` tokens, from
 * number `from` on; `turns`, the prompt alone, if there is none. The more turns, the more tokens.
 * `count` is called for few of them, because each call renders a prompt and asks the engine, and at
 * last for the result. 0 with *first, or -1 with the error of `count`. */
int fit_turns(size_t from, size_t turns, uint64_t most, fit_count *count, void *arg, size_t *first,
              struct error *error);

#endif
