/* An edge: one pair0 connection between two engine processes, with every rule of ipc/README.md
 * built in. The only code that touches pair0 sockets of NNG. An edge is used by one thread.
 *
 * Rules kept here (NNG 1.5.2): RECVMAXSZ on every socket; no blocking send (a full queue or no peer
 * is a lost message, counted); RECONNMINT/MAXT 10/500 ms; redial watchdog (no pipe for 300 ms ->
 * close the dialer, dial again, then ever more rarely); relisten watchdog (no pipe and, asked by a
 * probe, no sign of life for 500 ms -> close the listener, listen again: a peer that vanished
 * during the handshake kills a listener for ever); peers of another uid are refused; sockets have
 * mode 0600. */
#ifndef SLUICE_IPC_EDGE_H
#define SLUICE_IPC_EDGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "ipc/messages.h"
#include "lib/base/error.h"

struct edge;

struct edge_stats {
    uint64_t sent, lost, received, invalid;
    uint64_t redials; /* or relistens */
    uint64_t connects;
    uint64_t strangers; /* connections of other users, refused */
};

/* Opens one end. `path`: absolute socket path (ipc:// is added). The side whose process outlives
 * the other or is the hub listens. me: the role messages are validated for. Returns NULL with
 * *error set; ERR_BUSY: a living process listens on that path (it is not disturbed). A file left by
 * a dead one is replaced. */
struct edge *edge_listen(const char *path, enum msg_role me, uint32_t incarnation,
                         struct error *error);
struct edge *edge_dial(const char *path, enum msg_role me, uint32_t incarnation,
                       struct error *error);

/* A descriptor that is readable while messages may wait; owned by the edge, valid until edge_close.
 */
int edge_fd(const struct edge *edge);

/* Sends a message (seals it first). 0, or -1 when it was lost (no peer, queue full): counted, never
 * fatal. */
int edge_send(struct edge *edge, void *message, enum msg_type type);

/* The next valid message into buf (MSG_BYTES_MAX bytes, 8-byte aligned). Returns its bytes, or 0
 * when none waits. Invalid ones are dropped, counted, and logged once. Never blocks. */
size_t edge_receive(struct edge *edge, void *buf);

/* Watchdogs; call at least every 100 ms from the process's loop. */
void edge_tend(struct edge *edge, uint64_t now_ns);

bool edge_connected(const struct edge *edge);
void edge_stats_get(const struct edge *edge, struct edge_stats *stats);
void edge_close(struct edge *edge);

#endif
