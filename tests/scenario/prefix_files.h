/* SPDX-License-Identifier: Apache-2.0 */
/* Engines with --prefix-dir: a prompt, the texts that it has without prefixes, and the files of the
 * directory. */
#ifndef SLUICE_TESTS_SCENARIO_PREFIX_FILES_H
#define SLUICE_TESTS_SCENARIO_PREFIX_FILES_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tests/harness/harness.h"

#define STORED_TOKENS  12
#define STORED_WAIT_MS 120000

/* Keys of synth, up to a NULL: none (the demo model), with recurrent layers, with windows. */
extern const char *const stored_demo[], *const stored_qwen35moe[], *const stored_gpt_oss[];

extern char stored_dir[PATH_MAX];
extern struct text stored_want, stored_want_more; /* of the prompt and of its continuation */

/* Makes the model, and generates the texts without prefixes; stored_finish frees them. */
void stored_prepare(const char *const shape[]);
void stored_finish(void);

/* An engine with the directory and more options (may be NULL); stored_start_reader: whose rows are
 * kept, but not in memory, so that every prompt reads them. */
void stored_options(const char *const shape[], const char *const more[], const char *args[16]);
struct engine *stored_start(const char *const shape[], const char *const more[]);
struct engine *stored_start_reader(const char *const shape[]);

/* The prompt, or its continuation. stored_check: generates and compares its text; returns the
 * cached tokens. */
const char *stored_prompt(bool more);
uint64_t stored_check(struct engine *e, bool more, const char *what);

/* A counter of compute. */
uint64_t stored_count(struct engine *e, const char *counter);
void stored_wait(struct engine *e, const char *counter, uint64_t n);

/* Runs an engine until there is one file, of the prompt. */
void stored_store(const char *const shape[]);

/* How often the text is in the log; files whose names end so. */
size_t stored_lines(const struct engine *e, const char *text);
size_t stored_files(const char *end);
void stored_remove_files(void);

#endif
