/* SPDX-License-Identifier: Apache-2.0 */
/* Accepts connections and checks the head of the request, because the HTTP library accepts heads
 * that a proxy reads differently, and closes other invalid connections silently. The head is peeked
 * at, not read, so that the library gets the connection unchanged. A connection carries one request
 * (common_headers in http.c), so that no head reaches the library unchecked.
 *
 *   accepted --> HEAD --(a request's head)----> the HTTP library
 *                 |  \--(malformed)--> 400 or 431 sent --> LEAVING --(disconnect, 1 s)--> closed
 *                 +--(disconnect, --http-timeout)--> closed
 *
 * LEAVING: if it were closed at once, with unread bytes, the kernel would discard the response. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "lib/base/assert.h"
#include "procs/engine/gateway/http/head.h"
#include "procs/engine/gateway/http/http.h"
#include "shm/segment/inherited_fds.h"

#define EVENTS          64
#define LEAVING_NS      NS_PER_S
#define DISCARD_BYTES   (64 << 10) /* read from a client after 400; more closes the connection */
#define ACCEPT_PAUSE_NS (100 * NS_PER_MS)
#define EXHAUSTED_NS    (10 * NS_PER_S) /* without a connection: a successor is better then */
#define REPLY_BYTES     512
#define NO_CONN         (-1)

struct pending_conn {
    int fd; /* NO_CONN: free */
    bool has_sent, leaving;
    uint32_t discarded_bytes;
    uint64_t until_ns;
};

struct acceptor {
    int epoll_fd;
    bool closed;
    unsigned slots, count;
    bool exhausted; /* descriptors, or memory: retried at pause_until_ns */
    uint64_t pause_until_ns;
    uint64_t exhausted_ns; /* since when */
    struct pending_conn pending[];
};

unsigned acceptor_connections(const struct http *h)
{
    return h->connections + h->acceptor->count;
}

static struct acceptor *acceptor_new(unsigned slots)
{
    struct acceptor *a = calloc(1, sizeof *a + slots * sizeof a->pending[0]);
    if (!a)
        return NULL;
    a->slots = slots;
    for (unsigned i = 0; i < slots; i++)
        a->pending[i].fd = NO_CONN;
    return a;
}

int acceptor_open(struct http *h, unsigned connections, struct error *error)
{
    /* A client that disconnects between poll and accept must not block us. */
    int flags = fcntl(INHERITED_HTTP, F_GETFL);
    if (flags < 0 || fcntl(INHERITED_HTTP, F_SETFL, flags | O_NONBLOCK) != 0)
        return error_set(error, ERR_FAILED, "the listening socket: %s", strerror(errno));
    h->acceptor = acceptor_new(connections);
    if (!h->acceptor)
        return error_set(error, ERR_NO_MEMORY, "out of memory (%u connections)", connections);
    h->acceptor->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (h->acceptor->epoll_fd < 0)
        return error_set(error, ERR_FAILED, "epoll for connections: %s", strerror(errno));
    return 0;
}

void acceptor_close(struct http *h)
{
    h->acceptor->closed = true;
}

/* Until the supervisor has sent the model, as after a restart, clients wait in the socket's
 * queue. */
static bool may_accept(const struct http *h)
{
    return !h->acceptor->closed && h->accepts && acceptor_connections(h) < h->acceptor->slots;
}

void acceptor_poll(const struct http *h, uint64_t now_ns, struct pollfd fds[ACCEPTOR_FDS])
{
    const struct acceptor *a = h->acceptor;
    bool accepting = may_accept(h) && now_ns >= a->pause_until_ns;
    fds[0] = (struct pollfd){.fd = accepting ? INHERITED_HTTP : -1, .events = POLLIN};
    fds[1] = (struct pollfd){.fd = a->epoll_fd, .events = POLLIN};
}

/* ---- one pending connection ------------------------------------------------------------------ */

/* The descriptor now belongs to the HTTP library. */
static int release(struct http *h, struct pending_conn *conn)
{
    int fd = conn->fd;
    sl_assert(fd != NO_CONN && h->acceptor->count > 0);
    conn->fd = NO_CONN;
    h->acceptor->count--;
    return fd;
}

static void close_conn(struct http *h, struct pending_conn *conn)
{
    close(release(h, conn));
}

static void pass_to_library(struct http *h, struct pending_conn *conn)
{
    struct sockaddr_storage peer;
    socklen_t bytes = sizeof peer;
    epoll_ctl(h->acceptor->epoll_fd, EPOLL_CTL_DEL, conn->fd, NULL);
    if (getpeername(conn->fd, (struct sockaddr *)&peer, &bytes) != 0) {
        close_conn(h, conn);
        return;
    }
    int fd = release(h, conn);
    MHD_add_connection(h->daemon, fd, (struct sockaddr *)&peer, bytes); /* closes it on failure */
}

/* Reads and discards its bytes. False: end of the connection. */
static bool discard(struct pending_conn *conn)
{
    char bytes[4096];
    while (conn->discarded_bytes < DISCARD_BYTES) {
        ssize_t n = recv(conn->fd, bytes, sizeof bytes, MSG_DONTWAIT);
        if (n < 0)
            return errno == EAGAIN || errno == EINTR;
        if (n == 0)
            return false;
        conn->discarded_bytes += (uint32_t)n;
    }
    return false;
}

static size_t rejection_response(const struct http *h, unsigned status, const char *why,
                                 char out[REPLY_BYTES])
{
    struct error error;
    error_set(&error, ERR_BAD_INPUT, "%s", why);
    const struct http_service *s = h->service;
    json_t *object = s->error(s->otherwise, status, &error, NULL);
    char *body = object ? json_dumps(object, JSON_COMPACT) : NULL;
    int n = snprintf(out, REPLY_BYTES,
                     "HTTP/1.1 %u %s\r\nContent-Type: application/json\r\n"
                     "Content-Length: %zu\r\nConnection: close\r\n\r\n%s",
                     status, MHD_get_reason_phrase_for(status), body ? strlen(body) : 0,
                     body ? body : "");
    sl_assert(n > 0 && n < REPLY_BYTES);
    free(body);
    json_decref(object);
    return (size_t)n;
}

static void reject(struct http *h, struct pending_conn *conn, unsigned status, const char *why)
{
    char reply[REPLY_BYTES], line[REPLY_BYTES];
    counter_add(h->child->process, CTR_GATEWAY_requests_malformed, 1);
    snprintf(line, sizeof line, "%u, %s", status, why);
    log_rejection(h, line);
    size_t bytes = rejection_response(h, status, why, reply);
    bool more = discard(conn);
    /* It is shorter than any send buffer. An error means that the client reset the connection. */
    (void)!send(conn->fd, reply, bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
    shutdown(conn->fd, SHUT_WR);
    if (!more) {
        close_conn(h, conn);
        return;
    }
    conn->leaving = true;
    conn->until_ns = clock_now_ns() + LEAVING_NS;
}

/* The client has sent bytes or disconnected. */
static void check(struct http *h, struct pending_conn *conn, bool ended)
{
    char bytes[HEAD_BYTES_MAX];
    const char *why = "";
    if (conn->leaving) {
        if (!discard(conn))
            close_conn(h, conn);
        return;
    }
    ssize_t n = recv(conn->fd, bytes, sizeof bytes, MSG_PEEK | MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) {
        close_conn(h, conn);
        return;
    }
    conn->has_sent = true;
    switch (head_check(bytes, (size_t)n, &why)) {
    case HEAD_TAKEN: pass_to_library(h, conn); break;
    case HEAD_REJECTED: reject(h, conn, MHD_HTTP_BAD_REQUEST, why); break;
    case HEAD_TOO_LONG: reject(h, conn, MHD_HTTP_REQUEST_HEADER_FIELDS_TOO_LARGE, why); break;
    case HEAD_MORE:
        if (ended) {       /* in the middle of the head: it disconnected */
            discard(conn); /* else the kernel would report an error */
            close_conn(h, conn);
        }
        break;
    }
}

/* ---- all connections ------------------------------------------------------------------------- */

static void add_conn(struct http *h, int fd)
{
    struct acceptor *a = h->acceptor;
    unsigned i = 0;
    while (i < a->slots && a->pending[i].fd != NO_CONN)
        i++;
    sl_assert(i < a->slots);
    struct epoll_event event = {.events = EPOLLIN | EPOLLRDHUP | EPOLLET, .data.u32 = i};
    counter_add(h->child->process, CTR_GATEWAY_connections_accepted, 1);
    if (epoll_ctl(a->epoll_fd, EPOLL_CTL_ADD, fd, &event) != 0) {
        log_rejection(h, "a connection is closed: the kernel has no memory to watch it");
        close(fd);
        return;
    }
    a->pending[i] = (struct pending_conn){
        .fd = fd, .until_ns = clock_now_ns() + h->child->params->http_timeout * NS_PER_S};
    a->count++;
}

static void pause_accepting(struct acceptor *a)
{
    uint64_t now_ns = clock_now_ns();
    if (!a->exhausted) {
        log_warn("cannot accept connections now: %s; retrying", strerror(errno));
        a->exhausted_ns = now_ns;
    }
    a->exhausted = true;
    a->pause_until_ns = now_ns + ACCEPT_PAUSE_NS;
}

static void accept_all(struct http *h)
{
    struct acceptor *a = h->acceptor;
    while (may_accept(h)) {
        int fd = accept4(INHERITED_HTTP, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd >= 0) {
            a->exhausted = false;
            add_conn(h, fd);
        } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
            pause_accepting(a);
            return;
        } else if (errno != EINTR && errno != ECONNABORTED) {
            a->exhausted = false;
            return; /* no connection, or a network error of one of them */
        }
    }
}

void acceptor_run(struct http *h)
{
    struct acceptor *a = h->acceptor;
    struct epoll_event events[EVENTS];
    int n;
    if (clock_now_ns() >= a->pause_until_ns)
        accept_all(h);
    do {
        n = epoll_wait(a->epoll_fd, events, EVENTS, 0);
        for (int i = 0; i < n; i++) {
            struct pending_conn *conn = &a->pending[events[i].data.u32];
            bool ended = events[i].events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR);
            if (conn->fd != NO_CONN)
                check(h, conn, ended);
        }
    } while (n == EVENTS);
}

/* With connections the descriptors may be theirs, and are free when they end. Without any,
 * waiting does not help: the supervisor starts a successor, and clients stay in the socket's
 * queue. */
static void check_exhausted(const struct http *h, uint64_t now_ns)
{
    const struct acceptor *a = h->acceptor;
    if (a->exhausted && acceptor_connections(h) == 0 && now_ns - a->exhausted_ns >= EXHAUSTED_NS)
        log_fatal(1, "no connection could be accepted for %llu s",
                  (unsigned long long)(EXHAUSTED_NS / NS_PER_S));
}

void acceptor_tick(struct http *h, uint64_t now_ns)
{
    struct acceptor *a = h->acceptor;
    check_exhausted(h, now_ns);
    for (unsigned i = 0; i < a->slots && a->count > 0; i++) {
        struct pending_conn *conn = &a->pending[i];
        if (conn->fd == NO_CONN || now_ns < conn->until_ns)
            continue;
        /* a connection that was opened in advance and has sent nothing did not time out */
        if (conn->has_sent && !conn->leaving)
            counter_add(h->child->process, CTR_GATEWAY_connections_timed_out, 1);
        close_conn(h, conn);
    }
}
