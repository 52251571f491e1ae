/* SPDX-License-Identifier: Apache-2.0 */
/* sluice repl: declarations shared by its files.
 *
 *   input         lines from a terminal (libedit) or a pipe
 *   conversation  prompts and responses so far
 *   settings      values changed by /set
 *   fit           turns that a full context leaves out
 *   turn          sends a prompt and prints the response
 *   watch         thread that reports restarts of engine processes
 *   commands      lines that start with '/' */
#ifndef SLUICE_CLIENTS_REPL_REPL_H
#define SLUICE_CLIENTS_REPL_REPL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "lib/terminal/display.h"
#include "procs/clients/common/stream.h"
#include "procs/clients/conversation/conversation.h"

struct watch;

enum ternary { TERNARY_AUTO, TERNARY_ON, TERNARY_OFF, TERNARY__COUNT };

struct repl {
    struct session session;
    struct engine_submit submit; /* settings; the prompt is set per turn */
    int64_t context;             /* maximum tokens of conversation and prompt, 0: the engine's */
    uint64_t context_used;       /* tokens after the last response */
    uint64_t context_size;       /* 0: not known yet */
    bool special;                /* parse control tokens of a prompt that is not in a template */
    bool chat;                   /* use the model's chat template, if it has one */
    char *system;                /* message of a chat; NULL: none */
    enum ternary thinking;       /* variables enable_thinking and thinking of the template */
    struct chat_format format;
    json_t *format_reply; /* from which format was made; NULL: none yet */
    struct conversation conversation;
    json_t *stats; /* of the last response, or NULL */
    struct watch *watch;
    struct display display; /* of this response; under the watch's lock */
    FILE *terminal;         /* stdout without its filter */
    bool tty;               /* input is a terminal */
    bool out_tty;           /* output is a terminal */
    bool raw;               /* control characters are not replaced on a terminal */
    bool quiet;             /* no progress before a response, and no rates after it */
    bool progress;          /* it is shown before this response */
    bool progress_shown;    /* a line of it is on the terminal; under the watch's lock */
    bool has_tokens;        /* output of this response has arrived; under the watch's lock */
    bool mid_line;          /* the output is in the middle of a line; under the watch's lock */
    bool leave;
    struct error failure; /* first failed line, for the exit status of a pipe */
};

/* settings.c: sets NAME VALUE... as given to /set; "stop" takes several values. Without a value,
 * and without a name, prints what is set. */
int settings_set(struct repl *r, char *arguments, struct error *error);
/* Sets the system message: a text in quotes, or as it is. */
int settings_system(struct repl *r, char *text, struct error *error);
/* Sets one value from the command line. */
int settings_option(struct repl *r, const char *name, const char *value, struct error *error);
/* A line for each setting, or for that of a name. */
void settings_show(const struct repl *r, const char *name, FILE *out);
/* Name number i, NULL beyond the last. */
const char *settings_name(size_t i);
/* Settings as JSON (new reference), and the reverse: a value that is unknown or out of range is
 * rejected and changes nothing. */
json_t *settings_json(const struct repl *r);
int settings_take(struct repl *r, const json_t *settings, struct error *error);

/* commands.c: runs a line that starts with '/'. -1 with *error when it failed; the session
 * continues. */
int command_run(struct repl *r, char *line, struct error *error);
/* Completion candidate number i for the last word of a line; *typed: bytes of it already typed.
 * NULL beyond the last. */
const char *command_candidate(const char *line, size_t bytes, size_t i, size_t *typed);

/* turn.c: sends a prompt and streams the response to stdout. -1 with *error; ERR_GONE: the engine
 * has exited. */
int turn_run(struct repl *r, const char *prompt, struct error *error);

/* How many tokens the conversation has with this prompt, as it would be sent, and how many it may
 * have. Turns that are no longer sent do not count. -1 with *error. */
int turn_count(struct repl *r, const char *prompt, uint64_t *tokens, uint64_t *context,
               struct error *error);

/* watch.c: reports restarts of engine processes while a response is pending. */
struct watch *watch_open(struct repl *r, struct error *error);
void watch_close(struct watch *w);
/* Call before and after a response. before, after: stats snapshots, NULL when the engine did not
 * reply; they reveal restarts too short for the polling thread. */
void watch_start(struct watch *w, const json_t *before);
void watch_end(struct watch *w, const json_t *after);
/* All output during a response is printed between these calls. */
void watch_lock(struct watch *w);
void watch_unlock(struct watch *w);

/* Prints a notice on stderr, on its own line, in place of the progress; statistics are dimmed on a
 * terminal. */
void repl_notice(struct repl *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void repl_statistics(struct repl *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
