#include "ipc/channel/channel.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include <unistd.h>

#include "ipc/endpoints.h"
#include "lib/base/assert.h"
#include "lib/base/bytes.h"
#include "lib/base/clock.h"
#include "lib/base/log.h"

#define EDGE_MAGIC     0x45444745u
#define GREETING_MAGIC 0x474c5553u /* "SULG" */
#define SOCKET_MODE    0600
#define BACKLOG        16
#define CANDIDATES_MAX 4  /* connections that have not greeted yet; the oldest gives way */
#define INVALID_BURST  64 /* dropped in one call before the caller gets its turn again */
#define DIAL_EVERY_NS  (20 * NS_PER_MS)

struct greeting { /* the first thing a dialer says */
    uint32_t magic;
    uint16_t version, role; /* enum msg_role of the dialer */
};

struct edge {
    uint32_t magic;
    enum msg_role me;
    uint32_t incarnation;
    bool listens, complained;
    int fd; /* epoll: the connection; while there is none the listener or the dialer's timer */
    int listener, timer, peer; /* -1: none */
    int candidate[CANDIDATES_MAX];
    uint64_t next_dial_ns;
    uint64_t number;
    struct edge_stats stats;
    char path[ENDPOINT_BYTES];
};

/* ---- descriptors watched --------------------------------------------------------------------- */

static void watch(const struct edge *edge, int fd)
{
    struct epoll_event event = {.events = EPOLLIN};
    int rv = epoll_ctl(edge->fd, EPOLL_CTL_ADD, fd, &event);
    sl_assert(rv == 0 || errno == ENOMEM || errno == ENOSPC); /* then edge_tend finds it */
}

static void set_lonely(const struct edge *edge)
{
    struct itimerspec every = {.it_interval.tv_nsec = DIAL_EVERY_NS,
                               .it_value.tv_nsec = DIAL_EVERY_NS};
    if (edge->listens)
        watch(edge, edge->listener);
    else
        timerfd_settime(edge->timer, 0, &every, NULL);
}

static void refuse(struct edge *edge, unsigned i)
{
    edge->stats.refused++;
    close(edge->candidate[i]); /* which also takes it out of the epoll set */
    edge->candidate[i] = -1;
}

/* Whoever comes while there is a peer waits for edge_tend: it would only wake us to be refused. */
static void set_connected(struct edge *edge, int fd)
{
    static const struct itimerspec never;
    edge->peer = fd;
    edge->stats.connects++;
    if (edge->listens)
        epoll_ctl(edge->fd, EPOLL_CTL_DEL, edge->listener, NULL);
    else
        timerfd_settime(edge->timer, 0, &never, NULL);
    for (unsigned i = 0; i < CANDIDATES_MAX; i++)
        if (edge->candidate[i] >= 0)
            refuse(edge, i);
}

static void disconnect(struct edge *edge)
{
    close(edge->peer);
    edge->peer = -1;
    set_lonely(edge);
}

/* ---- connections ----------------------------------------------------------------------------- */

static bool same_user(struct edge *edge, int fd)
{
    struct ucred peer;
    socklen_t bytes = sizeof peer;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) == 0 && peer.uid == geteuid())
        return true;
    if (edge->stats.strangers++ == 0)
        log_warn("%s: refused a connection of another user", edge->path);
    return false;
}

static struct sockaddr_un address_of(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    memcpy(address.sun_path, path, strlen(path) + 1);
    return address;
}

static int open_socket(void)
{
    return socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
}

static int connect_to(const char *path)
{
    struct sockaddr_un address = address_of(path);
    int fd = open_socket();
    if (fd >= 0 && connect(fd, (const struct sockaddr *)&address, sizeof address) != 0) {
        int why = errno;
        close(fd);
        errno = why;
        return -1;
    }
    return fd;
}

static void try_dialing(struct edge *edge, uint64_t now_ns)
{
    uint64_t ticks;
    ssize_t got = read(edge->timer, &ticks, sizeof ticks);
    (void)got;
    if (now_ns < edge->next_dial_ns)
        return;
    edge->next_dial_ns = now_ns + DIAL_EVERY_NS / 2; /* so that no tick of the timer is too early */
    struct greeting hello = {
        .magic = GREETING_MAGIC, .version = MSG_VERSION, .role = (uint16_t)edge->me};
    int fd = connect_to(edge->path);
    if (fd < 0)
        return;
    if (!same_user(edge, fd) ||
        send(fd, &hello, sizeof hello, MSG_DONTWAIT | MSG_NOSIGNAL) != sizeof hello) {
        close(fd);
        return;
    }
    watch(edge, fd);
    set_connected(edge, fd);
}

/* Takes it as the peer once it has said the right thing. */
static void hear_candidate(struct edge *edge, unsigned i)
{
    struct greeting hello;
    ssize_t n = recv(edge->candidate[i], &hello, sizeof hello, MSG_DONTWAIT | MSG_TRUNC);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n != sizeof hello || hello.magic != GREETING_MAGIC || hello.version != MSG_VERSION ||
        hello.role >= ROLE_ANY) {
        refuse(edge, i);
        return;
    }
    int fd = edge->candidate[i];
    edge->candidate[i] = -1;
    set_connected(edge, fd);
}

static void add_candidate(struct edge *edge, int fd)
{
    if (edge->candidate[CANDIDATES_MAX - 1] >= 0)
        refuse(edge, CANDIDATES_MAX - 1);
    memmove(&edge->candidate[1], &edge->candidate[0],
            (CANDIDATES_MAX - 1) * sizeof edge->candidate[0]);
    edge->candidate[0] = fd;
    watch(edge, fd);
    hear_candidate(edge, 0);
}

static void accept_all(struct edge *edge)
{
    for (int i = 0; i < BACKLOG; i++) {
        int fd = accept4(edge->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0)
            break;
        bool ours = same_user(edge, fd);
        if (ours && edge->peer < 0) {
            add_candidate(edge, fd);
            continue;
        }
        edge->stats.refused += ours;
        close(fd);
    }
    for (unsigned i = 0; i < CANDIDATES_MAX; i++)
        if (edge->candidate[i] >= 0)
            hear_candidate(edge, i);
}

/* ---- opening --------------------------------------------------------------------------------- */

/* Removes a socket file that nobody listens on. */
static int clear_path(const char *path, struct error *error)
{
    struct stat st;
    if (lstat(path, &st) != 0)
        return errno == ENOENT ? 0 : error_set_errno(error, ERR_FAILED, errno, "%s", path);
    if (!S_ISSOCK(st.st_mode))
        return error_set(error, ERR_BAD_INPUT, "%s is in the way: not a socket", path);
    int fd = connect_to(path);
    if (fd >= 0)
        close(fd);
    if (fd >= 0 || errno != ECONNREFUSED)
        return error_set(error, ERR_BUSY, "another process listens on %s", path);
    if (unlink(path) != 0 && errno != ENOENT)
        return error_set_errno(error, ERR_FAILED, errno, "cannot remove %s", path);
    return 0;
}

/* Between bind and listen connections are refused: nobody comes before the mode is right. */
static int open_listener(struct edge *edge, struct error *error)
{
    struct sockaddr_un address = address_of(edge->path);
    if (clear_path(edge->path, error) != 0)
        return -1;
    edge->listener = open_socket();
    if (edge->listener < 0)
        return error_set_errno(error, ERR_FAILED, errno, "no socket for %s", edge->path);
    if (bind(edge->listener, (const struct sockaddr *)&address, sizeof address) != 0 ||
        chmod(edge->path, SOCKET_MODE) != 0 || listen(edge->listener, BACKLOG) != 0)
        return error_set_errno(error, ERR_FAILED, errno, "cannot listen on %s", edge->path);
    return 0;
}

static int open_timer(struct edge *edge, struct error *error)
{
    edge->timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    if (edge->timer < 0)
        return error_set_errno(error, ERR_FAILED, errno, "no timer for %s", edge->path);
    watch(edge, edge->timer);
    return 0;
}

static void close_fd(int fd)
{
    if (fd >= 0)
        close(fd);
}

static void release(struct edge *edge)
{
    close_fd(edge->peer);
    for (unsigned i = 0; i < CANDIDATES_MAX; i++)
        close_fd(edge->candidate[i]);
    close_fd(edge->listener);
    close_fd(edge->timer);
    close_fd(edge->fd);
    edge->magic = 0;
    free(edge);
}

static struct edge *edge_open(const char *path, enum msg_role me, uint32_t incarnation,
                              bool listens, struct error *error)
{
    if (path[0] != '/' || strlen(path) >= ENDPOINT_BYTES) {
        error_set(error, ERR_BAD_INPUT, "socket path is relative or too long: %s", path);
        return NULL;
    }
    struct edge *edge = calloc(1, sizeof *edge);
    if (!edge) {
        error_set(error, ERR_NO_MEMORY, "no memory for an edge");
        return NULL;
    }
    *edge = (struct edge){.magic = EDGE_MAGIC,
                          .me = me,
                          .incarnation = incarnation,
                          .listens = listens,
                          .fd = epoll_create1(EPOLL_CLOEXEC),
                          .listener = -1,
                          .timer = -1,
                          .peer = -1,
                          .candidate = {-1, -1, -1, -1}};
    memcpy(edge->path, path, strlen(path) + 1);
    int rv = edge->fd < 0 ? error_set_errno(error, ERR_FAILED, errno, "cannot watch %s", path)
             : listens    ? open_listener(edge, error)
                          : open_timer(edge, error);
    if (rv != 0) {
        release(edge);
        return NULL;
    }
    set_lonely(edge);
    if (!listens)
        try_dialing(edge, clock_now_ns());
    return edge;
}

struct edge *edge_listen(const char *path, enum msg_role me, uint32_t incarnation,
                         struct error *error)
{
    return edge_open(path, me, incarnation, true, error);
}

struct edge *edge_dial(const char *path, enum msg_role me, uint32_t incarnation,
                       struct error *error)
{
    return edge_open(path, me, incarnation, false, error);
}

/* ---- use ------------------------------------------------------------------------------------- */

int edge_fd(const struct edge *edge)
{
    OBJ_CHECK(edge, EDGE_MAGIC);
    return edge->fd;
}

bool edge_connected(const struct edge *edge)
{
    OBJ_CHECK(edge, EDGE_MAGIC);
    return edge->peer >= 0;
}

static void look_for_peer(struct edge *edge)
{
    if (edge->listens)
        accept_all(edge);
    else
        try_dialing(edge, clock_now_ns());
}

int edge_send(struct edge *edge, void *message, enum msg_type type)
{
    OBJ_CHECK(edge, EDGE_MAGIC);
    msg_seal(message, type, edge->incarnation, ++edge->number);
    size_t bytes = msg_bytes(message);
    /* Without a peer nothing is queued, and what was queued goes with the connection: nobody gets
     * his predecessor's mail. */
    if (edge->peer < 0)
        look_for_peer(edge);
    if (edge->peer >= 0) {
        ssize_t sent = send(edge->peer, message, bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (sent == (ssize_t)bytes) {
            edge->stats.sent++;
            return 0;
        }
        if (errno == EPIPE || errno == ECONNRESET)
            disconnect(edge);
    }
    edge->stats.lost++;
    return -1;
}

static void drop_invalid(struct edge *edge, const void *message, size_t bytes, const char *why)
{
    edge->stats.invalid++;
    if (edge->complained)
        return;
    edge->complained = true;
    struct msg_head head = {0};
    if (bytes >= sizeof head)
        memcpy(&head, message, sizeof head);
    log_warn(
        "%s: dropped a message of %zu bytes, type %s: wrong %s (further ones are only counted)",
        edge->path, bytes, msg_name(head.type), why);
}

/* Bytes of the next message as it came, more than the buffer when it was cut; 0: none waits. An
 * empty message is nothing an edge sends: like the end of the connection it ends it. */
static size_t receive_raw(struct edge *edge, void *buf)
{
    for (int i = 0; i < CANDIDATES_MAX; i++) {
        if (edge->peer < 0)
            look_for_peer(edge);
        if (edge->peer < 0)
            return 0;
        ssize_t n = recv(edge->peer, buf, MSG_BYTES_MAX, MSG_DONTWAIT | MSG_TRUNC);
        if (n > 0)
            return (size_t)n;
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return 0;
        disconnect(edge);
    }
    return 0;
}

size_t edge_receive(struct edge *edge, void *buf)
{
    OBJ_CHECK(edge, EDGE_MAGIC);
    for (int i = 0; i < INVALID_BURST; i++) {
        size_t bytes = receive_raw(edge, buf);
        if (bytes == 0)
            return 0;
        const char *why = bytes > MSG_BYTES_MAX ? "size" : msg_invalid(buf, bytes, edge->me);
        if (!why) {
            edge->stats.received++;
            return bytes;
        }
        drop_invalid(edge, buf, bytes, why);
    }
    return 0;
}

void edge_tend(struct edge *edge, uint64_t now_ns)
{
    OBJ_CHECK(edge, EDGE_MAGIC);
    struct pollfd peer = {.fd = edge->peer, .events = POLLRDHUP};
    if (edge->peer >= 0 && poll(&peer, 1, 0) > 0 && (peer.revents & (POLLHUP | POLLERR)))
        disconnect(edge);
    if (edge->listens)
        accept_all(edge);
    else if (edge->peer < 0)
        try_dialing(edge, now_ns);
}

void edge_stats_get(const struct edge *edge, struct edge_stats *stats)
{
    OBJ_CHECK(edge, EDGE_MAGIC);
    *stats = edge->stats;
}

void edge_close(struct edge *edge)
{
    if (!edge)
        return;
    OBJ_CHECK(edge, EDGE_MAGIC);
    if (edge->listens)
        unlink(edge->path);
    release(edge);
}
