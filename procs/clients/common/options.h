/* SPDX-License-Identifier: Apache-2.0 */
/* Options common to all clients. As with params_take_args, recognised options are removed from argv
 * and the rest is left for the program's own getopt_long. */
#ifndef SLUICE_CLIENTS_COMMON_OPTIONS_H
#define SLUICE_CLIENTS_COMMON_OPTIONS_H

#include <stdbool.h>
#include <stdio.h>

#include "config/option_table.h"
#include "ipc/engine/engine_client.h"

/* Removes --NAME VALUE and --NAME=VALUE of every sampling parameter from argv and applies them
 * (--temp is short for --temperature). -1 with *error. */
int sampling_take_args(struct sampling *s, int *argc, char **argv, struct error *error);

/* True when `name` is a sampling parameter; underscores and dashes are equivalent. */
bool sampling_known(const char *name);

/* The options of sampling, for a table of options. */
void sampling_options(option_visit *visit, void *arg);
/* Prints one line per parameter: the values of /show. */
void sampling_show(FILE *out, const struct sampling *s, const char *name);

/* A warning on stderr if a budget is more than this machine's memory. */
void option_warn_budget(const char *command, uint64_t bytes);

/* "1,2,3" -> newly allocated ids (caller frees). At least one. */
int option_ids(const char *text, uint32_t **ids, size_t *count, struct error *error);

/* Reads a whole file, or standard input for "-": newly allocated, NUL-terminated (caller frees).
 * More than max bytes are an error. */
int option_file(const char *path, size_t max, char **text, size_t *bytes, struct error *error);

/* Reads the grammar of an option, and compiles it to find what is wrong before an engine starts.
 * The text is newly allocated: option_grammar_free. */
int option_grammar(enum grammar_kind kind, const char *path, struct grammar_source *out,
                   struct error *error);
void option_grammar_free(struct grammar_source *g);

/* Prints "sluice COMMAND: text" and returns the exit status of the error's code. */
int report(const char *command, const struct error *error);
/* At the end of a successful command: whether all of its output was written, or the error. */
int output_end(struct error *error);

#endif
