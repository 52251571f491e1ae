/* SPDX-License-Identifier: Apache-2.0 */
/* Errors of command lines, and the operands that several programs take: the same for every
 * program. */
#ifndef SLUICE_CONFIG_OPTION_ERROR_H
#define SLUICE_CONFIG_OPTION_ERROR_H

#include <getopt.h>
#include <stdbool.h>

#include "lib/base/error.h"

struct option_table;

/* For an argument that getopt_long rejected. `option` is its result: ':' (the short options start
 * with ':', so that getopt prints nothing) or '?'; `letters` and `names` are what it was called
 * with. The nearest option of the table is suggested for an unknown one. Options that download a
 * model in other programs get the answer that sluice does not. Returns -1. */
int option_error(const struct option_table *table, int option, char **argv, const char *letters,
                 const struct option *names, struct error *error);

/* After getopt_long: an operand that is a path is the model unless -m gave one; *model is borrowed
 * from argv. Every other operand, and a URL as the model, is an error; `hint` is added to that of
 * an operand ("" or " (...)"). 0, or -1 with ERR_BAD_INPUT. */
int option_model(const char **model, int argc, char **argv, const char *hint, struct error *error);
/* The same for programs that start an engine, which also opens models on servers. */
int option_model_or_server(const char **model, int argc, char **argv, const char *hint,
                           struct error *error);

/* If an argument is an option with which other programs download a model (-hf, --model-url): -1
 * with the answer. To be called before getopt, which takes -hf for -h. */
int option_download(const char *argument, struct error *error);

/* A whole number without a unit from 1 to 65535: hardly meant as bytes of memory. */
bool option_unit_missing(const char *text);

#endif
