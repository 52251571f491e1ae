/* Where prompts come from. */
#ifndef SLUICE_CLIENTS_REPL_INPUT_H
#define SLUICE_CLIENTS_REPL_INPUT_H

#include <stdbool.h>
#include <stddef.h>

#include "lib/base/error.h"

struct input;

/* Candidate number i for the word before the cursor, see command_candidate. */
typedef const char *input_candidates(const char *line, size_t bytes, size_t i, size_t *typed);

enum input_result {
    INPUT_TEXT,
    INPUT_END,         /* nothing more will come */
    INPUT_INTERRUPTED, /* a signal: session_stop says which */
    INPUT_BAD          /* *error says why; the next call goes on behind it */
};

/* tty: lines are edited, with history and completion; else they are read as they are. NULL with
 * *error. */
struct input *input_open(bool tty, input_candidates *candidates, struct error *error);
void input_close(struct input *in);

/* A prompt or command: one line (what is pasted stays together), or what stands between """ and
 * """. Borrowed until the next call. */
enum input_result input_next(struct input *in, const char **text, struct error *error);

#endif
