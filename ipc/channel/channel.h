/* SPDX-License-Identifier: Apache-2.0 */
/* Channel: one connection between two engine processes that carries whole messages in order (a Unix
 * socket of type SOCK_SEQPACKET). Used by one thread; it has no thread of its own. A message costs
 * one system call at either end, and the receiver sleeps on the socket itself.
 *
 *   listener   LONELY --(connection with a valid handshake)--> CONNECTED --(closed)--> LONELY
 *   dialer     LONELY --(connect, send handshake)------------> CONNECTED --(closed)--> LONELY
 *
 * Rules kept here:
 * - No blocking send: with a full queue or without a peer the message is lost and counted.
 * - A message has at most MSG_BYTES_MAX bytes.
 * - A lonely dialer retries every 20 ms.
 * - A listener accepts a connection as its peer only after a valid handshake, and only one at a
 *   time, so that silent and surplus connections do no harm.
 * - Connections of other users are rejected; sockets have mode 0600. */
#ifndef SLUICE_IPC_CHANNEL_CHANNEL_H
#define SLUICE_IPC_CHANNEL_CHANNEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "ipc/channel/messages.h"
#include "lib/base/error.h"

struct channel;

struct channel_stats {
    uint64_t sent, lost, received, invalid;
    uint64_t connects;
    uint64_t denied;   /* rejected connections of other users */
    uint64_t rejected; /* rejected connections without a handshake, or while a peer was connected */
};

/* Opens one end. path: absolute socket path. The side that lives longer or serves several peers
 * listens. me: the role that received messages are validated for. NULL with *error; ERR_BUSY: a
 * running process listens on that path (it is not disturbed). A stale socket file is replaced. */
struct channel *channel_listen(const char *path, enum msg_role me, uint32_t incarnation,
                               struct error *error);
struct channel *channel_dial(const char *path, enum msg_role me, uint32_t incarnation,
                             struct error *error);

/* Descriptor that is readable while channel_receive may have work; owned by the channel, constant
 * until channel_close. */
int channel_fd(const struct channel *channel);

/* Seals and sends a message. 0, or -1 when it was lost (no peer, queue full): counted, never
 * fatal. */
int channel_send(struct channel *channel, void *message, enum msg_type type);

/* Receives the next valid message into buf (MSG_BYTES_MAX bytes, 8-byte aligned). Returns its size,
 * or 0 when none is pending. Invalid ones are dropped, counted, and logged once. Never blocks. */
size_t channel_receive(struct channel *channel, void *buf);

/* Handles closed and new connections when the process is not receiving; call at least every 100
 * ms. */
void channel_tick(struct channel *channel, uint64_t now_ns);

bool channel_connected(const struct channel *channel);
void channel_stats_get(const struct channel *channel, struct channel_stats *stats);
void channel_close(struct channel *channel);

#endif
