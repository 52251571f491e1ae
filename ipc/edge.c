#include "ipc/edge.h"

#include <nng/nng.h>
#include <nng/protocol/pair0/pair.h>
#include <stdlib.h>
#include <string.h>

#include "ipc/link.h"
#include "lib/base/assert.h"
#include "lib/base/log.h"

#define EDGE_MAGIC    0x45444745u
#define QUEUE_LENGTH  64 /* messages, each way */
#define INVALID_BURST 64 /* dropped in one call before the caller gets its turn again */

struct edge {
    uint32_t magic;
    enum msg_role me;
    uint32_t incarnation;
    int fd;
    bool complained;
    uint64_t number;
    struct edge_stats stats; /* without redials and connects, which the link counts */
    struct link link;
};

static struct edge *edge_open(const char *path, enum msg_role me, uint32_t incarnation,
                              enum link_kind kind, struct error *error)
{
    struct edge *edge = calloc(1, sizeof *edge);
    if (!edge) {
        error_set(error, ERR_NO_MEMORY, "no memory for an edge");
        return NULL;
    }
    edge->magic = EDGE_MAGIC;
    edge->me = me;
    edge->incarnation = incarnation;

    nng_socket socket = NNG_SOCKET_INITIALIZER;
    int rv = nng_pair0_open(&socket);
    if (rv == 0)
        rv = nng_socket_set_int(socket, NNG_OPT_SENDBUF, QUEUE_LENGTH);
    if (rv == 0)
        rv = nng_socket_set_int(socket, NNG_OPT_RECVBUF, QUEUE_LENGTH);
    if (rv == 0)
        rv = nng_socket_get_int(socket, NNG_OPT_RECVFD, &edge->fd);
    if (rv != 0) {
        link_error(error, rv, "open a socket for", path);
        nng_close(socket);
        free(edge);
        return NULL;
    }
    if (link_open(&edge->link, socket, path, kind, MSG_BYTES_MAX, -1, error) != 0) {
        free(edge);
        return NULL;
    }
    return edge;
}

struct edge *edge_listen(const char *path, enum msg_role me, uint32_t incarnation,
                         struct error *error)
{
    return edge_open(path, me, incarnation, LINK_LISTEN_ONE, error);
}

struct edge *edge_dial(const char *path, enum msg_role me, uint32_t incarnation,
                       struct error *error)
{
    return edge_open(path, me, incarnation, LINK_DIAL, error);
}

int edge_fd(const struct edge *edge)
{
    OBJ_CHECK(edge, EDGE_MAGIC);
    return edge->fd;
}

bool edge_connected(const struct edge *edge)
{
    OBJ_CHECK(edge, EDGE_MAGIC);
    return link_pipe(&edge->link) != 0;
}

int edge_send(struct edge *edge, void *message, enum msg_type type)
{
    OBJ_CHECK(edge, EDGE_MAGIC);
    msg_seal(message, type, edge->incarnation, ++edge->number);
    size_t bytes = msg_bytes(message);
    nng_msg *msg;
    /* Without a peer nothing is queued: a successor must not be greeted with its predecessor's
     * mail. */
    if (!edge_connected(edge) || nng_msg_alloc(&msg, bytes) != 0) {
        edge->stats.lost++;
        return -1;
    }
    memcpy(nng_msg_body(msg), message, bytes);
    if (nng_sendmsg(edge->link.socket, msg, NNG_FLAG_NONBLOCK) != 0) {
        nng_msg_free(msg);
        edge->stats.lost++;
        return -1;
    }
    edge->stats.sent++;
    return 0;
}

static void drop_invalid(struct edge *edge, nng_msg *msg, const char *why)
{
    edge->stats.invalid++;
    if (edge->complained)
        return;
    edge->complained = true;
    struct msg_head head = {0};
    if (nng_msg_len(msg) >= sizeof head)
        memcpy(&head, nng_msg_body(msg), sizeof head);
    log_warn(
        "%s: dropped a message of %zu bytes, type %s: wrong %s (further ones are only counted)",
        edge->link.path, nng_msg_len(msg), msg_name(head.type), why);
}

size_t edge_receive(struct edge *edge, void *buf)
{
    OBJ_CHECK(edge, EDGE_MAGIC);
    for (int i = 0; i < INVALID_BURST; i++) {
        nng_msg *msg;
        if (nng_recvmsg(edge->link.socket, &msg, NNG_FLAG_NONBLOCK) != 0)
            return 0;
        size_t bytes = nng_msg_len(msg);
        const char *why = msg_invalid(nng_msg_body(msg), bytes, edge->me);
        if (!why)
            memcpy(buf, nng_msg_body(msg), bytes);
        else
            drop_invalid(edge, msg, why);
        nng_msg_free(msg);
        if (!why) {
            edge->stats.received++;
            return bytes;
        }
    }
    return 0;
}

void edge_tend(struct edge *edge, uint64_t now_ns)
{
    OBJ_CHECK(edge, EDGE_MAGIC);
    link_tend(&edge->link, now_ns);
}

void edge_stats_get(const struct edge *edge, struct edge_stats *stats)
{
    OBJ_CHECK(edge, EDGE_MAGIC);
    *stats = edge->stats;
    stats->redials = edge->link.restarts;
    stats->connects = atomic_load(&edge->link.connects);
    stats->strangers = atomic_load(&edge->link.strangers);
}

void edge_close(struct edge *edge)
{
    if (!edge)
        return;
    OBJ_CHECK(edge, EDGE_MAGIC);
    link_close(&edge->link);
    edge->magic = 0;
    free(edge);
}
