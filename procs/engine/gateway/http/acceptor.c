/* Where connections come in. The HTTP library closes one whose first bytes are no request line
 * without a word, to the client and to us. So they wait here until that line has come, are looked
 * at without being read, and handed on as they are - or told that this is no HTTP.
 *
 *   accepted --> LINE --(a request line)-------> the library's
 *                 |  \--(none)--> told 400 --> LEAVING --(its end, a second)--> closed
 *                 +--(its end, --http-timeout)--> closed
 *
 * LEAVING: closed at once, with bytes unread, the kernel would take back what we told. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "lib/base/assert.h"
#include "procs/engine/gateway/gateway.h"
#include "procs/engine/gateway/http/reqline.h"
#include "shm/segment/inherited_fds.h"

#define EVENTS          64
#define LEAVING_NS      NS_PER_S
#define DISCARD_BYTES   (64 << 10) /* of one who is told 400: who sends more is cut off */
#define ACCEPT_PAUSE_NS (100 * NS_PER_MS)
#define REPLY_BYTES     512
#define NO_VISITOR      (-1)

struct visitor {
    int fd; /* NO_VISITOR: free */
    bool spoke, leaving;
    uint32_t discarded_bytes;
    uint64_t until_ns;
};

struct door {
    int epoll_fd;
    bool closed;
    unsigned places, count;
    bool wanting; /* descriptors, or memory: asked for again at pause_until_ns */
    uint64_t pause_until_ns;
    struct visitor visitors[];
};

unsigned door_connections(const struct gateway *g)
{
    return g->connections + g->door->count;
}

static struct door *door_new(unsigned places)
{
    struct door *d = calloc(1, sizeof *d + places * sizeof d->visitors[0]);
    if (!d)
        return NULL;
    d->places = places;
    for (unsigned i = 0; i < places; i++)
        d->visitors[i].fd = NO_VISITOR;
    return d;
}

int door_open(struct gateway *g, unsigned connections, struct error *error)
{
    /* Who is gone again between poll and accept must not keep us waiting. */
    int flags = fcntl(HERITAGE_HTTP, F_GETFL);
    if (flags < 0 || fcntl(HERITAGE_HTTP, F_SETFL, flags | O_NONBLOCK) != 0)
        return error_set(error, ERR_FAILED, "the listening socket: %s", strerror(errno));
    g->door = door_new(connections);
    if (!g->door)
        return error_set(error, ERR_NO_MEMORY, "no memory for %u connections", connections);
    g->door->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (g->door->epoll_fd < 0)
        return error_set(error, ERR_FAILED, "epoll for connections: %s", strerror(errno));
    return 0;
}

void door_close(struct gateway *g)
{
    g->door->closed = true;
}

void door_poll(const struct gateway *g, uint64_t now_ns, struct pollfd fds[DOOR_FDS])
{
    const struct door *d = g->door;
    bool room = !d->closed && door_connections(g) < d->places && now_ns >= d->pause_until_ns;
    fds[0] = (struct pollfd){.fd = room ? HERITAGE_HTTP : -1, .events = POLLIN};
    fds[1] = (struct pollfd){.fd = d->epoll_fd, .events = POLLIN};
}

/* ---- one who waits --------------------------------------------------------------------------- */

/* The descriptor is somebody else's from here on. */
static int release(struct gateway *g, struct visitor *v)
{
    int fd = v->fd;
    sl_assert(fd != NO_VISITOR && g->door->count > 0);
    v->fd = NO_VISITOR;
    g->door->count--;
    return fd;
}

static void part(struct gateway *g, struct visitor *v)
{
    close(release(g, v));
}

static void hand_on(struct gateway *g, struct visitor *v)
{
    struct sockaddr_storage peer;
    socklen_t bytes = sizeof peer;
    epoll_ctl(g->door->epoll_fd, EPOLL_CTL_DEL, v->fd, NULL);
    if (getpeername(v->fd, (struct sockaddr *)&peer, &bytes) != 0) {
        part(g, v);
        return;
    }
    int fd = release(g, v);
    MHD_add_connection(g->daemon, fd, (struct sockaddr *)&peer, bytes); /* closes it if it cannot */
}

/* Takes what it sends and forgets it. False: this was the end. */
static bool discard(struct visitor *v)
{
    char bytes[4096];
    while (v->discarded_bytes < DISCARD_BYTES) {
        ssize_t n = recv(v->fd, bytes, sizeof bytes, MSG_DONTWAIT);
        if (n < 0)
            return errno == EAGAIN || errno == EINTR;
        if (n == 0)
            return false;
        v->discarded_bytes += (uint32_t)n;
    }
    return false;
}

static size_t refusal(const char *why, char out[REPLY_BYTES])
{
    struct error error;
    error_set(&error, ERR_BAD_INPUT, "%s", why);
    json_t *object = error_object(MHD_HTTP_BAD_REQUEST, &error, NULL);
    char *body = object ? json_dumps(object, JSON_COMPACT) : NULL;
    int n = snprintf(out, REPLY_BYTES,
                     "HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\n"
                     "Content-Length: %zu\r\nConnection: close\r\n\r\n%s",
                     body ? strlen(body) : 0, body ? body : "");
    sl_assert(n > 0 && n < REPLY_BYTES);
    free(body);
    json_decref(object);
    return (size_t)n;
}

static void turn_away(struct gateway *g, struct visitor *v, const char *why)
{
    char reply[REPLY_BYTES], line[REPLY_BYTES];
    counter_add(g->child.row, CTR_GATEWAY_requests_malformed, 1);
    snprintf(line, sizeof line, "%u, %s", MHD_HTTP_BAD_REQUEST, why);
    refused(g, line);
    size_t bytes = refusal(why, reply);
    bool more = discard(v);
    /* It is shorter than any send buffer. Who resets the connection does not want it. */
    (void)!send(v->fd, reply, bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
    shutdown(v->fd, SHUT_WR);
    if (!more) {
        part(g, v);
        return;
    }
    v->leaving = true;
    v->until_ns = clock_now_ns() + LEAVING_NS;
}

/* It has sent something, or left. */
static void look(struct gateway *g, struct visitor *v, bool ended)
{
    char bytes[REQLINE_LOOK_BYTES];
    const char *why = "";
    if (v->leaving) {
        if (!discard(v))
            part(g, v);
        return;
    }
    ssize_t n = recv(v->fd, bytes, sizeof bytes, MSG_PEEK | MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) {
        part(g, v);
        return;
    }
    v->spoke = true;
    switch (reqline_look(bytes, (size_t)n, &why)) {
    case REQLINE_TAKEN: hand_on(g, v); break;
    case REQLINE_REFUSED: turn_away(g, v, why); break;
    case REQLINE_MORE:
        if (ended) {    /* in the middle of a line: it left */
            discard(v); /* or the kernel would make an error of it */
            part(g, v);
        }
        break;
    }
}

/* ---- all of them ----------------------------------------------------------------------------- */

static void welcome(struct gateway *g, int fd)
{
    struct door *d = g->door;
    unsigned i = 0;
    while (i < d->places && d->visitors[i].fd != NO_VISITOR)
        i++;
    sl_assert(i < d->places);
    struct epoll_event event = {.events = EPOLLIN | EPOLLRDHUP | EPOLLET, .data.u32 = i};
    counter_add(g->child.row, CTR_GATEWAY_connections_accepted, 1);
    if (epoll_ctl(d->epoll_fd, EPOLL_CTL_ADD, fd, &event) != 0) {
        refused(g, "a connection is closed: the kernel has no memory to watch it");
        close(fd);
        return;
    }
    d->visitors[i] = (struct visitor){
        .fd = fd, .until_ns = clock_now_ns() + g->child.params->http_timeout * NS_PER_S};
    d->count++;
}

static void nothing_left(struct door *d)
{
    if (!d->wanting)
        log_warn("connections have to wait: %s", strerror(errno));
    d->wanting = true;
    d->pause_until_ns = clock_now_ns() + ACCEPT_PAUSE_NS;
}

static void let_them_in(struct gateway *g)
{
    struct door *d = g->door;
    while (!d->closed && door_connections(g) < d->places) {
        int fd = accept4(HERITAGE_HTTP, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd >= 0) {
            d->wanting = false;
            welcome(g, fd);
        } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
            nothing_left(d);
            return;
        } else if (errno != EINTR && errno != ECONNABORTED) {
            return; /* there is nobody, or the network has an error for one of them */
        }
    }
}

void door_run(struct gateway *g)
{
    struct door *d = g->door;
    struct epoll_event events[EVENTS];
    int n;
    if (clock_now_ns() >= d->pause_until_ns)
        let_them_in(g);
    do {
        n = epoll_wait(d->epoll_fd, events, EVENTS, 0);
        for (int i = 0; i < n; i++) {
            struct visitor *v = &d->visitors[events[i].data.u32];
            bool ended = events[i].events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR);
            if (v->fd != NO_VISITOR)
                look(g, v, ended);
        }
    } while (n == EVENTS);
}

void door_tend(struct gateway *g, uint64_t now_ns)
{
    struct door *d = g->door;
    for (unsigned i = 0; i < d->places && d->count > 0; i++) {
        struct visitor *v = &d->visitors[i];
        if (v->fd == NO_VISITOR || now_ns < v->until_ns)
            continue;
        if (v->spoke && !v->leaving) /* who connects in advance is none who was cut off */
            counter_add(g->child.row, CTR_GATEWAY_connections_cut, 1);
        part(g, v);
    }
}
