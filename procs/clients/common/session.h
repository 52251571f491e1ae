/* A client's engine: one that runs already, or one of its own that ends with the client. */
#ifndef SLUICE_CLIENTS_COMMON_SESSION_H
#define SLUICE_CLIENTS_COMMON_SESSION_H

#include <signal.h>
#include <stdbool.h>
#include <sys/types.h>

#include "config/params.h"
#include "ipc/endpoints.h"
#include "ipc/engine/engine_client.h"

struct session_request {
    const char *command; /* for messages */
    const char *run;     /* --name NAME, or NULL */
    const char *model;   /* -m FILE, or NULL: a running engine is wanted */
    struct params params;
    bool verbose;
};

struct session {
    char run[RUN_NAME_MAX + 1];
    pid_t own;  /* the engine this client started, 0: somebody else's */
    int log_fd; /* what our own engine wrote to stderr, -1: it goes to ours */
    struct rpc_client *engine, *control;
};

/* The number of the signal (SIGINT, SIGTERM, SIGHUP) that came since session_signals was called, 0:
 * none. Calls in progress end. */
extern volatile sig_atomic_t session_stop;
void session_signals(void);

/* Finds or starts the engine and waits until it is ready, telling about it on stderr when it takes
 * long.
 *   --name NAME, it runs     that one; engine parameters beside it are an error
 *   --name NAME, it does not one of our own of that name when there is a model, else an error
 *   no model                the running engine "default"
 *   a model, no parameters  the running engine "default" if it serves that very file
 *   else                    one of our own under a name of its own */
int session_open(struct session *s, const struct session_request *request, struct error *error);

/* False when an engine of our own has ended; its last words are in *error. */
bool session_alive(struct session *s, struct error *error);
/* True when the engine was somebody else's and nobody holds its run any more: nothing will answer
 * there again. */
bool session_gone(const struct session *s);

/* Stops an engine of our own and waits for its end; closes the clients. */
void session_close(struct session *s);

/* The control document of the engine (op "stats"), NULL when it does not answer. New reference. */
json_t *session_stats(struct session *s);

#endif
