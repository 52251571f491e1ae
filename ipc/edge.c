#include "ipc/edge.h"

#include <errno.h>
#include <nng/nng.h>
#include <nng/protocol/pair0/pair.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "ipc/link.h"
#include "lib/base/assert.h"
#include "lib/base/clock.h"
#include "lib/base/log.h"

#define EDGE_MAGIC     0x45444745u
#define QUEUE_LENGTH   64 /* messages, each way */
#define INVALID_BURST  64 /* dropped in one call before the caller gets its turn again */
#define RENEW_AFTER_NS NS_PER_S

struct edge {
    uint32_t magic;
    enum msg_role me;
    uint32_t incarnation;
    int fd; /* epoll over the socket's own: stays the same when the socket is replaced */
    bool complained;
    enum link_kind kind;
    int receive_fd;
    uint64_t renewals, next_renewal_ns;
    uint64_t number;
    struct edge_stats stats; /* without redials and connects, which the link counts */
    struct link link;
};

/* A pair0 socket with its queues and its descriptor. */
static int open_socket(const char *path, nng_socket *socket, int *receive_fd, struct error *error)
{
    int rv = nng_pair0_open(socket);
    if (rv != 0)
        return link_error(error, rv, "open a socket for", path);
    rv = nng_socket_set_int(*socket, NNG_OPT_SENDBUF, QUEUE_LENGTH);
    if (rv == 0)
        rv = nng_socket_set_int(*socket, NNG_OPT_RECVBUF, QUEUE_LENGTH);
    if (rv == 0)
        rv = nng_socket_get_int(*socket, NNG_OPT_RECVFD, receive_fd);
    if (rv == 0)
        return 0;
    nng_close(*socket);
    return link_error(error, rv, "set up a socket for", path);
}

static int connect_edge(struct edge *edge, const char *path, struct error *error)
{
    nng_socket socket = NNG_SOCKET_INITIALIZER;
    int receive_fd;
    struct epoll_event event = {.events = EPOLLIN};
    if (open_socket(path, &socket, &receive_fd, error) != 0)
        return -1;
    if (epoll_ctl(edge->fd, EPOLL_CTL_ADD, receive_fd, &event) != 0) {
        nng_close(socket);
        return error_set_errno(error, ERR_FAILED, errno, "cannot watch the socket for %s", path);
    }
    edge->receive_fd = receive_fd;
    return link_open(&edge->link, socket, path, edge->kind, MSG_BYTES_MAX, -1, error);
}

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

    edge->kind = kind;
    edge->fd = epoll_create1(EPOLL_CLOEXEC);
    if (edge->fd < 0)
        error_set_errno(error, ERR_FAILED, errno, "cannot watch the socket for %s", path);
    else if (connect_edge(edge, path, error) == 0)
        return edge;
    else
        close(edge->fd);
    free(edge);
    return NULL;
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

/* The socket of a peer that NNG will not let go is left as it is: closing it hangs. It keeps a few
 * descriptors until this process ends. */
static void renew(struct edge *edge, uint64_t now_ns)
{
    struct error error;
    char path[ENDPOINT_BYTES];
    memcpy(path, edge->link.path, sizeof path);
    if (now_ns < edge->next_renewal_ns)
        return;
    edge->next_renewal_ns = now_ns + RENEW_AFTER_NS;
    edge->renewals++;
    log_info("%s: NNG keeps the connection of a dead peer, opening another socket", path);
    epoll_ctl(edge->fd, EPOLL_CTL_DEL, edge->receive_fd, NULL);
    uint64_t restarts = edge->link.restarts, connects = atomic_load(&edge->link.connects),
             strangers = atomic_load(&edge->link.strangers);
    /* Nothing new may come over the old one, should NNG let go after all. */
    if (edge->kind == LINK_DIAL)
        link_give_up_dialing(&edge->link);
    else
        unlink(path);
    if (connect_edge(edge, path, &error) != 0)
        log_warn("%s", error.text);
    edge->link.restarts += restarts;
    atomic_fetch_add(&edge->link.connects, connects);
    atomic_fetch_add(&edge->link.strangers, strangers);
}

void edge_tend(struct edge *edge, uint64_t now_ns)
{
    OBJ_CHECK(edge, EDGE_MAGIC);
    link_tend(&edge->link, now_ns);
    if (link_stuck(&edge->link))
        renew(edge, now_ns);
}

void edge_stats_get(const struct edge *edge, struct edge_stats *stats)
{
    OBJ_CHECK(edge, EDGE_MAGIC);
    *stats = edge->stats;
    stats->redials = edge->link.restarts + edge->renewals;
    stats->connects = atomic_load(&edge->link.connects);
    stats->strangers = atomic_load(&edge->link.strangers);
}

void edge_close(struct edge *edge)
{
    if (!edge)
        return;
    OBJ_CHECK(edge, EDGE_MAGIC);
    bool closed = link_close(&edge->link);
    close(edge->fd);
    edge->magic = 0;
    if (closed)
        free(edge);
}
