/* An edge: one connection between two engine processes, over which whole messages pass in order
 * (a Unix socket of type SOCK_SEQPACKET). Used by one thread, and no thread of its own: a message
 * costs one system call at either end, and the receiver sleeps on the socket itself. NNG's pair0,
 * which this was before, passes four of its threads on the way; ipc/README.md has the figures.
 *
 *   listener   LONELY --(a connection that says who it is)--> CONNECTED --(end of it)--> LONELY
 *   dialer     LONELY --(connect, greeting)-----------------> CONNECTED --(end of it)--> LONELY
 *
 * Rules kept here: no blocking send (a full queue or no peer is a lost message, counted); messages
 * of at most MSG_BYTES_MAX bytes; a lonely dialer tries again every 20 ms; a listener takes a
 * connection as its peer only after a valid greeting, and only one at a time, so that silent ones
 * and latecomers are in nobody's way; peers of another user are refused; sockets have mode 0600. */
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
    uint64_t denied;   /* connections of other users, refused */
    uint64_t rejected; /* connections that did not greet, or came while there was a peer */
};

/* Opens one end. `path`: absolute socket path. The side whose process outlives the other or is the
 * hub listens. me: the role messages are validated for. Returns NULL with *error set; ERR_BUSY: a
 * living process listens on that path (it is not disturbed). A file left by a dead one is
 * replaced. */
struct channel *channel_listen(const char *path, enum msg_role me, uint32_t incarnation,
                               struct error *error);
struct channel *channel_dial(const char *path, enum msg_role me, uint32_t incarnation,
                             struct error *error);

/* A descriptor that is readable while channel_receive may have something to do; owned by the edge,
 * stays the same until channel_close. */
int channel_fd(const struct channel *channel);

/* Sends a message (seals it first). 0, or -1 when it was lost (no peer, queue full): counted, never
 * fatal. */
int channel_send(struct channel *channel, void *message, enum msg_type type);

/* The next valid message into buf (MSG_BYTES_MAX bytes, 8-byte aligned). Returns its bytes, or 0
 * when none waits. Invalid ones are dropped, counted, and logged once. Never blocks. */
size_t channel_receive(struct channel *channel, void *buf);

/* Notices ends and newcomers that nobody receives from; call at least every 100 ms from the
 * process's loop. */
void channel_tick(struct channel *channel, uint64_t now_ns);

bool channel_connected(const struct channel *channel);
void channel_stats_get(const struct channel *channel, struct channel_stats *stats);
void channel_close(struct channel *channel);

#endif
