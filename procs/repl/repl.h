/* The conversation: what is sent, what came back, what can be set. */
#ifndef SLUICE_REPL_H
#define SLUICE_REPL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "procs/client/stream.h"

#define REPL_PROMPT_MAX  (64u << 10) /* one prompt, and what of the conversation goes along */
#define REPL_CONTEXT_DEF 1500

struct repl {
    struct session session;
    struct engine_submit submit; /* settings; the prompt is filled per turn */
    int64_t context;             /* bytes of the conversation sent along, 0: none */
    char *talk;                  /* the conversation so far, NUL-terminated */
    size_t talk_bytes;
    json_t *figures; /* of the last answer, or NULL */
    bool tty;        /* input comes from a person */
    bool leave;
};

/* Handles a line that begins with '/'. Problems are printed; the session goes on. */
void command_run(struct repl *r, char *line);

/* Sends a prompt and streams the answer to stdout. -1 only when the engine is gone. */
int repl_turn(struct repl *r, const char *prompt, struct error *error);

#endif
