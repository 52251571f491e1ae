/* What rpc servers and rpc clients share: one NNG socket with one listener or dialer, the
 * options every socket must have, and the watchdogs that NNG 1.5.2 needs. Private to ipc/. */
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
    LINK_DIAL,       /* one connection, made by us */
    LINK_LISTEN_MANY /* any number, made by clients */
};

struct link {
    nng_socket socket;
    enum link_kind kind;
    nng_dialer dialer;
    nng_listener listener;
    bool started; /* the dialer or listener exists */
    char path[ENDPOINT_BYTES];
    int wake_fd;      /* eventfd raised when a connection comes or goes; -1: none */
    _Atomic int pipe; /* id of the newest connection, 0: none; not kept for LINK_LISTEN_MANY */
    _Atomic uint64_t connects, denied;
    uint64_t restarts;  /* redials or relistens */
    uint64_t lonely_ns; /* since when there is no connection, 0: there is one */
    uint64_t redial_delay_ns;
    uint64_t next_probe_ns;
    struct probe probe;
};

/* Takes over an open NNG socket (also when it fails: then it is closed) and starts listening or
 * dialing. A live process on the path is ERR_BUSY and is not disturbed; a file left by a dead one
 * is replaced. */
int link_open(struct link *link, nng_socket socket, const char *path, enum link_kind kind,
              size_t message_max, int wake_fd, struct error *error);

/* The watchdogs; at least every 100 ms. */
void link_tick(struct link *link, uint64_t now_ns);

/* Id of the connection, 0 when there is none (not for LINK_LISTEN_MANY). */
int link_pipe(const struct link *link);

/* False when the socket had to be left to the end of the process: then *link must stay, NNG still
 * knows it. */
bool link_close(struct link *link);

/* nng_close, which may hang: false when it has not ended within a second, and may never. */
bool link_close_socket(nng_socket socket);

/* NNG's error numbers as ours. */
int link_error(struct error *error, int nng_result, const char *what, const char *path);

#endif
