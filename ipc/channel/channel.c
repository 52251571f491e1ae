/* SPDX-License-Identifier: Apache-2.0 */
/* Carries messages over packet sockets: listens or dials, greets the peer, drops what cannot be
 * sent, and finds the end of a connection. */
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

#define CHANNEL_MAGIC   0x45444745u
#define HANDSHAKE_MAGIC 0x474c5553u /* "SULG" */
#define SOCKET_MODE     0600
#define BACKLOG         16
#define CANDIDATES_MAX  4  /* pending connections without a handshake; the oldest is dropped */
#define INVALID_BURST   64 /* maximum invalid messages dropped per call */
#define DIAL_EVERY_NS   (20 * NS_PER_MS)

struct handshake { /* first message of a dialer */
    uint32_t magic;
    uint16_t version, role; /* enum msg_role of the dialer */
};

struct channel {
    uint32_t magic;
    enum msg_role me;
    uint32_t incarnation;
    bool listens, complained;
    int fd; /* epoll over the connection; without one, over the listener or the dialer's timer */
    int listener, timer, peer; /* -1: none */
    int candidate[CANDIDATES_MAX];
    uint64_t next_dial_ns;
    uint64_t number;
    struct channel_stats stats;
    char path[ENDPOINT_BYTES];
};

/* ---- descriptors watched --------------------------------------------------------------------- */

static void watch(const struct channel *channel, int fd)
{
    struct epoll_event event = {.events = EPOLLIN};
    int rv = epoll_ctl(channel->fd, EPOLL_CTL_ADD, fd, &event);
    sl_assert(rv == 0 || errno == ENOMEM || errno == ENOSPC); /* channel_tick covers this */
}

static void set_lonely(const struct channel *channel)
{
    struct itimerspec every = {.it_interval.tv_nsec = DIAL_EVERY_NS,
                               .it_value.tv_nsec = DIAL_EVERY_NS};
    if (channel->listens)
        watch(channel, channel->listener);
    else
        timerfd_settime(channel->timer, 0, &every, NULL);
}

static void reject(struct channel *channel, unsigned i)
{
    channel->stats.rejected++;
    close(channel->candidate[i]); /* also removes it from the epoll set */
    channel->candidate[i] = -1;
}

/* New connections while a peer is connected wait for channel_tick: they would only wake this
 * process to be rejected. */
static void set_connected(struct channel *channel, int fd)
{
    static const struct itimerspec never;
    channel->peer = fd;
    channel->stats.connects++;
    if (channel->listens)
        epoll_ctl(channel->fd, EPOLL_CTL_DEL, channel->listener, NULL);
    else
        timerfd_settime(channel->timer, 0, &never, NULL);
    for (unsigned i = 0; i < CANDIDATES_MAX; i++)
        if (channel->candidate[i] >= 0)
            reject(channel, i);
}

static void disconnect(struct channel *channel)
{
    close(channel->peer);
    channel->peer = -1;
    set_lonely(channel);
}

/* ---- connections ----------------------------------------------------------------------------- */

static bool same_user(struct channel *channel, int fd)
{
    struct ucred peer;
    socklen_t bytes = sizeof peer;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) == 0 && peer.uid == geteuid())
        return true;
    if (channel->stats.denied++ == 0)
        log_warn("%s: rejected a connection of another user", channel->path);
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

static void try_dialing(struct channel *channel, uint64_t now_ns)
{
    uint64_t ticks;
    ssize_t got = read(channel->timer, &ticks, sizeof ticks);
    (void)got;
    if (now_ns < channel->next_dial_ns)
        return;
    channel->next_dial_ns =
        now_ns + DIAL_EVERY_NS / 2; /* half the period, so that no timer tick comes too early */
    struct handshake hello = {
        .magic = HANDSHAKE_MAGIC, .version = MSG_VERSION, .role = (uint16_t)channel->me};
    int fd = connect_to(channel->path);
    if (fd < 0)
        return;
    if (!same_user(channel, fd) ||
        send(fd, &hello, sizeof hello, MSG_DONTWAIT | MSG_NOSIGNAL) != sizeof hello) {
        close(fd);
        return;
    }
    watch(channel, fd);
    set_connected(channel, fd);
}

/* Makes a candidate the peer once its handshake is valid. */
static void receive_handshake(struct channel *channel, unsigned i)
{
    struct handshake hello;
    ssize_t n = recv(channel->candidate[i], &hello, sizeof hello, MSG_DONTWAIT | MSG_TRUNC);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n != sizeof hello || hello.magic != HANDSHAKE_MAGIC || hello.version != MSG_VERSION ||
        hello.role >= ROLE_ANY) {
        reject(channel, i);
        return;
    }
    int fd = channel->candidate[i];
    channel->candidate[i] = -1;
    set_connected(channel, fd);
}

static void add_candidate(struct channel *channel, int fd)
{
    if (channel->candidate[CANDIDATES_MAX - 1] >= 0)
        reject(channel, CANDIDATES_MAX - 1);
    memmove(&channel->candidate[1], &channel->candidate[0],
            (CANDIDATES_MAX - 1) * sizeof channel->candidate[0]);
    channel->candidate[0] = fd;
    watch(channel, fd);
    receive_handshake(channel, 0);
}

static void accept_all(struct channel *channel)
{
    for (int i = 0; i < BACKLOG; i++) {
        int fd = accept4(channel->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0)
            break;
        bool ours = same_user(channel, fd);
        if (ours && channel->peer < 0) {
            add_candidate(channel, fd);
            continue;
        }
        channel->stats.rejected += ours;
        close(fd);
    }
    for (unsigned i = 0; i < CANDIDATES_MAX; i++)
        if (channel->candidate[i] >= 0)
            receive_handshake(channel, i);
}

/* ---- opening --------------------------------------------------------------------------------- */

/* Removes a socket file without a listener. */
static int clear_path(const char *path, struct error *error)
{
    struct stat st;
    if (lstat(path, &st) != 0)
        return errno == ENOENT ? 0 : error_set_errno(error, ERR_FAILED, errno, "%s", path);
    if (!S_ISSOCK(st.st_mode))
        return error_set(error, ERR_BAD_INPUT, "%s exists and is not a socket", path);
    int fd = connect_to(path);
    if (fd >= 0)
        close(fd);
    if (fd >= 0 || errno != ECONNREFUSED)
        return error_set(error, ERR_BUSY, "another process listens on %s", path);
    if (unlink(path) != 0 && errno != ENOENT)
        return error_set_errno(error, ERR_FAILED, errno, "cannot remove %s", path);
    return 0;
}

/* Connections fail between bind and listen, so none arrives before the mode is set. */
static int open_listener(struct channel *channel, struct error *error)
{
    struct sockaddr_un address = address_of(channel->path);
    if (clear_path(channel->path, error) != 0)
        return -1;
    channel->listener = open_socket();
    if (channel->listener < 0)
        return error_set_errno(error, ERR_FAILED, errno, "cannot create a socket for %s",
                               channel->path);
    if (bind(channel->listener, (const struct sockaddr *)&address, sizeof address) != 0 ||
        chmod(channel->path, SOCKET_MODE) != 0 || listen(channel->listener, BACKLOG) != 0)
        return error_set_errno(error, ERR_FAILED, errno, "cannot listen on %s", channel->path);
    return 0;
}

static int open_timer(struct channel *channel, struct error *error)
{
    channel->timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    if (channel->timer < 0)
        return error_set_errno(error, ERR_FAILED, errno, "cannot create a timer for %s",
                               channel->path);
    watch(channel, channel->timer);
    return 0;
}

static void close_fd(int fd)
{
    if (fd >= 0)
        close(fd);
}

static void release(struct channel *channel)
{
    close_fd(channel->peer);
    for (unsigned i = 0; i < CANDIDATES_MAX; i++)
        close_fd(channel->candidate[i]);
    close_fd(channel->listener);
    close_fd(channel->timer);
    close_fd(channel->fd);
    channel->magic = 0;
    free(channel);
}

static struct channel *channel_open(const char *path, enum msg_role me, uint32_t incarnation,
                                    bool listens, struct error *error)
{
    if (path[0] != '/' || strlen(path) >= ENDPOINT_BYTES) {
        error_set(error, ERR_BAD_INPUT, "socket path is relative or too long: %s", path);
        return NULL;
    }
    struct channel *channel = calloc(1, sizeof *channel);
    if (!channel) {
        error_set(error, ERR_NO_MEMORY, "out of memory (channel)");
        return NULL;
    }
    *channel = (struct channel){.magic = CHANNEL_MAGIC,
                                .me = me,
                                .incarnation = incarnation,
                                .listens = listens,
                                .fd = epoll_create1(EPOLL_CLOEXEC),
                                .listener = -1,
                                .timer = -1,
                                .peer = -1,
                                .candidate = {-1, -1, -1, -1}};
    memcpy(channel->path, path, strlen(path) + 1);
    int rv = channel->fd < 0 ? error_set_errno(error, ERR_FAILED, errno, "cannot watch %s", path)
             : listens       ? open_listener(channel, error)
                             : open_timer(channel, error);
    if (rv != 0) {
        release(channel);
        return NULL;
    }
    set_lonely(channel);
    if (!listens)
        try_dialing(channel, clock_now_ns());
    return channel;
}

struct channel *channel_listen(const char *path, enum msg_role me, uint32_t incarnation,
                               struct error *error)
{
    return channel_open(path, me, incarnation, true, error);
}

struct channel *channel_dial(const char *path, enum msg_role me, uint32_t incarnation,
                             struct error *error)
{
    return channel_open(path, me, incarnation, false, error);
}

/* ---- use ------------------------------------------------------------------------------------- */

int channel_fd(const struct channel *channel)
{
    OBJ_CHECK(channel, CHANNEL_MAGIC);
    return channel->fd;
}

bool channel_connected(const struct channel *channel)
{
    OBJ_CHECK(channel, CHANNEL_MAGIC);
    return channel->peer >= 0;
}

static void poll_for_peer(struct channel *channel)
{
    if (channel->listens)
        accept_all(channel);
    else
        try_dialing(channel, clock_now_ns());
}

int channel_send(struct channel *channel, void *message, enum msg_type type)
{
    OBJ_CHECK(channel, CHANNEL_MAGIC);
    msg_seal(message, type, channel->incarnation, ++channel->number);
    size_t bytes = msg_bytes(message);
    /* Without a peer nothing is queued, and queued messages are lost with the connection: a new
     * peer never receives messages meant for its predecessor. */
    if (channel->peer < 0)
        poll_for_peer(channel);
    if (channel->peer >= 0) {
        ssize_t sent = send(channel->peer, message, bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (sent == (ssize_t)bytes) {
            channel->stats.sent++;
            return 0;
        }
        if (errno == EPIPE || errno == ECONNRESET)
            disconnect(channel);
    }
    channel->stats.lost++;
    return -1;
}

static void drop_invalid(struct channel *channel, const void *message, size_t bytes,
                         const char *why)
{
    channel->stats.invalid++;
    if (channel->complained)
        return;
    channel->complained = true;
    struct msg_head head = {0};
    if (bytes >= sizeof head)
        memcpy(&head, message, sizeof head);
    log_warn(
        "%s: dropped a message of %zu bytes, type %s: wrong %s (further ones are only counted)",
        channel->path, bytes, msg_name(head.type), why);
}

/* Size of the next message as received, larger than the buffer when it was cut; 0: none pending. An
 * empty message is never sent and ends the connection, like its end. */
static size_t receive_raw(struct channel *channel, void *buf)
{
    for (int i = 0; i < CANDIDATES_MAX; i++) {
        if (channel->peer < 0)
            poll_for_peer(channel);
        if (channel->peer < 0)
            return 0;
        ssize_t n = recv(channel->peer, buf, MSG_BYTES_MAX, MSG_DONTWAIT | MSG_TRUNC);
        if (n > 0)
            return (size_t)n;
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return 0;
        disconnect(channel);
    }
    return 0;
}

size_t channel_receive(struct channel *channel, void *buf)
{
    OBJ_CHECK(channel, CHANNEL_MAGIC);
    for (int i = 0; i < INVALID_BURST; i++) {
        size_t bytes = receive_raw(channel, buf);
        if (bytes == 0)
            return 0;
        const char *why = bytes > MSG_BYTES_MAX ? "size" : msg_invalid(buf, bytes, channel->me);
        if (!why) {
            channel->stats.received++;
            return bytes;
        }
        drop_invalid(channel, buf, bytes, why);
    }
    return 0;
}

void channel_tick(struct channel *channel, uint64_t now_ns)
{
    OBJ_CHECK(channel, CHANNEL_MAGIC);
    struct pollfd peer = {.fd = channel->peer, .events = POLLRDHUP};
    if (channel->peer >= 0 && poll(&peer, 1, 0) > 0 && (peer.revents & (POLLHUP | POLLERR)))
        disconnect(channel);
    if (channel->listens)
        accept_all(channel);
    else if (channel->peer < 0)
        try_dialing(channel, now_ns);
}

void channel_stats_get(const struct channel *channel, struct channel_stats *stats)
{
    OBJ_CHECK(channel, CHANNEL_MAGIC);
    *stats = channel->stats;
}

void channel_close(struct channel *channel)
{
    if (!channel)
        return;
    OBJ_CHECK(channel, CHANNEL_MAGIC);
    if (channel->listens)
        unlink(channel->path);
    release(channel);
}
