/* SPDX-License-Identifier: Apache-2.0 */
/* Errors of command lines, the same for every program. */
#ifndef SLUICE_CONFIG_OPTION_ERROR_H
#define SLUICE_CONFIG_OPTION_ERROR_H

#include <getopt.h>
#include <stdbool.h>

#include "lib/base/error.h"

/* For an argument that getopt_long rejected. `option` is its result: ':' (the short options start with
 * ':', so that getopt prints nothing) or '?'. Names near an unknown one are suggested: of `options`, of
 * `more` (ends with NULL, may be NULL) and, with `params`, of the parameters. Returns -1. */
int option_error(const char *command, int option, char **argv, const struct option *options,
                 bool params, const char *const *more, struct error *error);

#endif
