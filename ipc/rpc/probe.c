/* SPDX-License-Identifier: Apache-2.0 */
/* Greets a listener with a protocol that no socket has: a working one closes the connection, a deaf
 * one does not reply. */
#include "ipc/rpc/probe.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "lib/base/assert.h"
#include "lib/base/clock.h"

/* The handshake of SP over ipc: NUL 'S' 'P' version, protocol (big-endian), two reserved bytes. The
 * protocol number here is one that no SP protocol uses. */
static const unsigned char hello[PROBE_HELLO_BYTES] = {0, 'S', 'P', 0, 0x0f, 0xf0, 0, 0};

void probe_start(struct probe *probe, const char *path, uint64_t now_ns)
{
    sl_assert(!probe_running(probe));
    *probe = (struct probe){.path = path, .fd = -1, .started_ns = now_ns};
}

void probe_stop(struct probe *probe)
{
    if (probe->fd >= 0)
        close(probe->fd);
    *probe = PROBE_IDLE;
}

/* A full backlog or a lack of descriptors is no result: retried at the next step. */
static enum probe_result try_connect(struct probe *probe)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    sl_assert(strlen(probe->path) < sizeof address.sun_path);
    memcpy(address.sun_path, probe->path, strlen(probe->path));

    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return PROBE_PENDING;
    if (connect(fd, (const struct sockaddr *)&address, sizeof address) == 0) {
        probe->fd = fd;
        return PROBE_PENDING;
    }
    int why = errno;
    close(fd);
    return why == ECONNREFUSED || why == ENOENT || why == ENOTDIR ? PROBE_REFUSED : PROBE_PENDING;
}

/* PROBE_ALIVE once the peer closed after its handshake (or because of ours). */
static enum probe_result advance(struct probe *probe)
{
    while (probe->sent < sizeof hello) {
        ssize_t n = send(probe->fd, hello + probe->sent, sizeof hello - probe->sent, MSG_NOSIGNAL);
        if (n < 0)
            return errno == EAGAIN || errno == EINTR ? PROBE_PENDING : PROBE_SILENT;
        probe->sent += (size_t)n;
    }
    for (;;) {
        unsigned char in[PROBE_HELLO_BYTES];
        ssize_t n = recv(probe->fd, in, sizeof in, 0);
        if (n > 0) {
            probe->got += (size_t)n;
            continue;
        }
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return PROBE_PENDING;
        /* An end of file before the handshake means that the listener is being closed. */
        return probe->got >= PROBE_HELLO_BYTES ? PROBE_ALIVE : PROBE_SILENT;
    }
}

enum probe_result probe_step(struct probe *probe, uint64_t now_ns, uint64_t limit_ns)
{
    sl_assert(probe_running(probe));
    enum probe_result result = PROBE_PENDING;
    if (probe->fd < 0)
        result = try_connect(probe);
    if (probe->fd >= 0)
        result = advance(probe);
    if (result == PROBE_PENDING && now_ns - probe->started_ns >= limit_ns)
        result = PROBE_SILENT;
    if (result != PROBE_PENDING)
        probe_stop(probe);
    return result;
}

enum probe_result probe_once(const char *path, uint64_t limit_ns)
{
    struct probe probe = PROBE_IDLE;
    uint64_t start = clock_now_ns();
    probe_start(&probe, path, start);
    for (;;) {
        uint64_t now = clock_now_ns();
        enum probe_result result = probe_step(&probe, now, limit_ns);
        if (result != PROBE_PENDING)
            return result;
        uint64_t left_ms = (limit_ns - (now - start)) / NS_PER_MS;
        struct pollfd wait = {.fd = probe.fd, .events = POLLIN};
        poll(&wait, 1, probe.fd >= 0 ? (int)left_ms + 1 : 1);
    }
}
