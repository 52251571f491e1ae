/* SPDX-License-Identifier: Apache-2.0 */
/* Input of prompts and commands, from a terminal or a pipe. */
#ifndef SLUICE_CLIENTS_REPL_INPUT_H
#define SLUICE_CLIENTS_REPL_INPUT_H

#include <stdbool.h>
#include <stddef.h>

#include "lib/base/error.h"

struct input;

/* Completion candidate number i for the word before the cursor, see command_candidate. */
typedef const char *input_candidates(const char *line, size_t bytes, size_t i, size_t *typed);

enum input_result {
    INPUT_TEXT,
    INPUT_QUOTED,      /* text between """ and """ */
    INPUT_END,         /* end of input */
    INPUT_INTERRUPTED, /* a signal: its number is in session_stop */
    INPUT_BAD          /* *error has the reason; the next call continues after it */
};

/* tty: lines are edited, with history and completion; otherwise they are read unchanged. NULL with
 * *error. */
struct input *input_open(bool tty, input_candidates *candidates, struct error *error);
void input_close(struct input *in);

/* Reads a prompt or command: one line (a paste counts as one), or the text between """ and """.
 * *text is borrowed until the next call. */
enum input_result input_next(struct input *in, const char **text, struct error *error);

#endif
