/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by RPC servers and clients: one NNG socket with one listener or dialer, its options, and
 * the watchdogs that NNG 1.5.2 needs. Private to ipc/. */
#ifndef SLUICE_IPC_RPC_LINK_H
#define SLUICE_IPC_RPC_LINK_H

#include <nng/nng.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "ipc/endpoints.h"
#include "ipc/rpc/probe.h"
#include "lib/base/error.h"

enum link_kind {
    LINK_DIAL,       /* one outgoing connection */
    LINK_LISTEN_MANY /* any number of incoming connections */
};

struct link {
    nng_socket socket;
    enum link_kind kind;
    nng_dialer dialer;
    nng_listener listener;
    bool started; /* the dialer or listener exists */
    char path[ENDPOINT_BYTES];
    int wake_fd;      /* eventfd signalled when a connection opens or closes; -1: none */
    _Atomic int pipe; /* id of the newest connection, 0: none; not kept for LINK_LISTEN_MANY */
    _Atomic uint64_t connects, denied;
    uint64_t restarts;  /* redials or relistens */
    uint64_t lonely_ns; /* time since which there is no connection, 0: connected */
    uint64_t redial_delay_ns;
    uint64_t next_probe_ns;
    uint64_t
        closed_ns; /* since when there is no listener, though it should be there; 0: there is one */
    struct probe probe;
};

/* Opens a socket with that function. The first one of a process is watched: without memory, NNG's
 * initialisation never returns (first.c). */
int link_socket_first(nng_socket *socket, int (*open)(nng_socket *));

/* Takes ownership of an open NNG socket (closed on failure) and starts listening or dialing.
 * ERR_BUSY: a running process listens on the path (it is not disturbed). A stale socket file is
 * replaced. */
int link_open(struct link *link, nng_socket socket, const char *path, enum link_kind kind,
              size_t message_max, int wake_fd, struct error *error);

/* Runs the watchdogs; call it at least every 100 ms. */
void link_tick(struct link *link, uint64_t now_ns);

/* Id of the connection, 0: none (not for LINK_LISTEN_MANY). */
int link_pipe(const struct link *link);

/* False when the socket could not be closed: *link must then stay valid until the process exits,
 * because NNG still refers to it. */
bool link_close(struct link *link);

/* nng_close, which may hang: false when it has not returned within a second. */
bool link_close_socket(nng_socket socket);

/* Converts an NNG error number into *error; returns -1. */
int link_error(struct error *error, int nng_result, const char *what, const char *path);

#endif
