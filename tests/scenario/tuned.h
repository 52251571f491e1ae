/* SPDX-License-Identifier: Apache-2.0 */
/* The stories about sluice tune share these: a small model with random weights, whose losses mean
 * nothing, and tunings of it. */
#ifndef SLUICE_SCENARIO_TUNED_H
#define SLUICE_SCENARIO_TUNED_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "tests/harness/harness.h"

#define END_MS  240000
#define BUDGET  "38MiB"
#define LOSS    "40%"    /* which edgemoe and hobbit keep */
#define NO_LOSS "0.001%" /* which no lower precision keeps */

#define AMOUNT         "--tokens", "256", "--ctx-size", "32", "--minutes", "10"
#define TUNE_FOR(loss) "tune", "-m", tuned_model, "--budget", BUDGET, "--max-loss", loss, AMOUNT
#define TUNE           TUNE_FOR(LOSS)

extern char tuned_model[PATH_MAX];
extern const char *tuned_store_dir; /* of start_tune and stop_at; NULL: none */
extern const char *tuned_loss;      /* of start_tune and stop_at; LOSS unless a test sets it */
extern const char *tuned_limit;     /* of start_tune and stop_at: --store-limit */

void make_model(void);

/* Tunes for this loss, or LOSS. */
void tune_for(struct command *c, const char *loss);
void tune(struct command *c);

/* Directories of stores next to the model. */
size_t stores(void);
/* Of the listed ones: those that are recorded, or the stores that no record uses. */
size_t listed(bool unused);
size_t tunings(void);

/* Some tokens, with an option more, or NULL; what stderr has, and has not. */
void generate(struct command *c, const char *more);
void check_generate(const char *more, const char *wanted, const char *unwanted);

pid_t start_tune(const char *log);
/* The text of a file, until the next call. */
const char *read_file(const char *path);
bool contains(const char *path, const char *text);
/* Starts tune, and sends a signal (0: none) when `text` is in its log, tune.log, after `act` (may
 * be NULL); its status of waitpid. */
int stop_at(const char *text, int signal_number, void (*act)(void));

/* An empty cache directory. */
void forget_all(const char *name);
/* `sluice models rm`, which must not print `freed` (may be NULL). */
void remove_all(const char *freed);

#endif
