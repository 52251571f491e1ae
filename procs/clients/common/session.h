/* SPDX-License-Identifier: Apache-2.0 */
/* A client's engine: a running one, or a private one that exits with the client. */
#ifndef SLUICE_CLIENTS_COMMON_SESSION_H
#define SLUICE_CLIENTS_COMMON_SESSION_H

#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/types.h>

#include "config/params.h"
#include "ipc/endpoints.h"
#include "ipc/engine/engine_client.h"

struct session_request {
    const char *command; /* for messages */
    const char *run;     /* --name NAME, or NULL */
    const char *model;   /* -m FILE, or NULL: use a running engine */
    struct params params;
    bool verbose;
};

struct session {
    char run[RUN_NAME_MAX + 1];
    const char *command; /* of the request; borrowed */
    pid_t own;           /* the private engine, 0: the engine was already running */
    int log_fd;          /* stderr of the private engine, -1: it uses this process's */
    struct rpc_client *engine, *control;
};

/* Number of the signal (SIGINT, SIGTERM, SIGHUP) received since session_signals was called, 0:
 * none. A signal interrupts calls in progress. */
extern volatile sig_atomic_t session_stop;
void session_signals(void);

/* Whether the model is a URL, which only the engine opens. */
bool session_on_server(const char *model);
/* For what reads the model's file itself: -1 with ERR_BAD_INPUT of a model on a server. `what`
 * begins the reason: "--text reads the tokenizer of a file". */
int session_need_file(const char *model, const char *what, struct error *error);

/* Finds or starts the engine and waits until it is ready; a long start is reported on stderr. 0, or
 * -1 with *error.
 *
 *   --name NAME, running      that engine; engine parameters are an error
 *   --name NAME, not running  a private engine of that name if a model is given, else an error
 *   no model                  the running engine "default"
 *   a model, no parameters    the running engine "default" if it serves the same file or URL
 *   otherwise                 a private engine with a generated name */
int session_open(struct session *s, const struct session_request *request, struct error *error);

/* Before session_open, for a private engine whose policies are left to sluice
 * (params_close_choice): says which tuning of the model the engine will find, or offers to make one
 * (lib/tunings). quiet: nothing on stderr about it. -1 with ERR_CANCELLED. */
int session_tune(struct session_request *request, bool quiet, struct error *error);

/* False when the private engine has exited; *error has its exit message. */
bool session_alive(struct session *s, struct error *error);
/* True when the engine was not private and no process holds its run any more: no reply will
 * come. */
bool session_gone(const struct session *s);

/* Stops the private engine and waits for its exit; closes the clients. */
void session_close(struct session *s);

/* Stats snapshot of the engine (op "stats"), NULL when it does not reply. New reference. */
json_t *session_stats(struct session *s);

#endif
