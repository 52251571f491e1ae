/* Options every client shares. In the manner of params_take_args: what belongs here is taken out of
 * argv, the rest is left for the program's own getopt_long. */
#ifndef SLUICE_CLIENTS_COMMON_OPTIONS_H
#define SLUICE_CLIENTS_COMMON_OPTIONS_H

#include <stdbool.h>
#include <stdio.h>

#include "ipc/engine/engine_client.h"

/* Takes --NAME VALUE and --NAME=VALUE of every sampling parameter out of argv (--temp is short for
 * --temperature). */
int sampling_take_args(struct sampling *s, int *argc, char **argv, struct error *error);

/* Whether a word names a sampling parameter; underscores and dashes are the same. */
bool sampling_known(const char *name);

/* One line per parameter: the options of --help, and the values of /show. */
void sampling_help(FILE *out);
void sampling_show(FILE *out, const struct sampling *s);

/* A whole number from min to max; the error names `what`. */
int option_i64(const char *what, const char *text, int64_t min, int64_t max, int64_t *value,
               struct error *error);

/* "1,2,3" -> newly allocated ids (caller frees). At least one. */
int option_ids(const char *text, uint32_t **ids, size_t *count, struct error *error);

/* A whole file, or standard input for "-": newly allocated, NUL-terminated (caller frees). Refuses
 * more than max bytes. */
int option_file(const char *path, size_t max, char **text, size_t *bytes, struct error *error);

/* Prints "sluice VERB: text" and returns the exit status the error's code stands for. */
int report(const char *command, const struct error *error);

#endif
