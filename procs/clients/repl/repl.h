/* A conversation with an engine: what its parts share.
 *
 *   input     lines of a person (libedit) or of a pipe
 *   talk      what was said so far
 *   settings  what /set changes
 *   turn      a prompt goes out, the answer comes in
 *   watch     a thread that tells when a process of the engine is restarted
 *   commands  what begins with '/' */
#ifndef SLUICE_CLIENTS_REPL_REPL_H
#define SLUICE_CLIENTS_REPL_REPL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "procs/clients/common/stream.h"
#include "procs/clients/repl/talk.h"

#define REPL_CONTEXT_DEF 1500

struct watch;

struct repl {
    struct session session;
    struct engine_submit submit; /* settings; the prompt is filled per turn */
    int64_t context;             /* bytes of the conversation sent along, 0: none */
    bool chat;                   /* in the form of the model's family, when it has one */
    struct model_chat family;
    struct talk talk;
    json_t *stats; /* of the last answer, or NULL */
    struct watch *watch;
    bool tty;        /* input comes from a person */
    bool out_tty;    /* so does what is printed go to one */
    bool quiet;      /* no rates after an answer */
    bool has_tokens; /* something of this answer came; under the watch's lock */
    bool mid_line;   /* the last thing printed was no line's end; under the watch's lock */
    bool leave;
    struct error failure; /* the first line that failed, for the exit status of a pipe */
};

/* settings.c. NAME VALUE... as after /set; several values for "stop". */
int settings_set(struct repl *r, char *arguments, struct error *error);
void settings_show(const struct repl *r, FILE *out);
/* Name number i, NULL beyond the last. */
const char *settings_name(size_t i);
/* Settings as JSON, new reference, and back: what is unknown or out of bounds is refused and
 * changes nothing. */
json_t *settings_json(const struct repl *r);
int settings_take(struct repl *r, const json_t *settings, struct error *error);

/* commands.c: runs a line that begins with '/'. -1 with *error when it could not be done; the
 * session goes on. */
int command_run(struct repl *r, char *line, struct error *error);
/* Candidate number i for the word that ends a line; *typed bytes of it stand there already. NULL
 * beyond the last. */
const char *command_candidate(const char *line, size_t bytes, size_t i, size_t *typed);

/* turn.c: sends a prompt and streams the answer to stdout. -1 with *error; ERR_GONE: there is no
 * engine any more. */
int turn_run(struct repl *r, const char *prompt, struct error *error);

/* watch.c: prints what happens to the engine's processes while an answer is waited for. */
struct watch *watch_open(struct repl *r, struct error *error);
void watch_close(struct watch *w);
/* Around an answer. before, after: the engine's document then, NULL when it did not answer; what
 * happened in between is told even when it was too short for the thread to see. */
void watch_start(struct watch *w, const json_t *before);
void watch_end(struct watch *w, const json_t *after);
/* Everything that is printed during an answer is printed between these. */
void watch_lock(struct watch *w);
void watch_unlock(struct watch *w);

/* A line for the person, on stderr, never in the middle of the answer's line. */
void repl_notice(struct repl *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
