/* SPDX-License-Identifier: Apache-2.0 */
/* Opens the one NNG socket of a client or server, and replaces listeners and dialers that NNG has
 * left without use. */
#include "ipc/rpc/link.h"

#include <errno.h>
#include <nng/transport/ipc/ipc.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "lib/base/assert.h"
#include "lib/base/clock.h"
#include "lib/base/log.h"

#define RECONNECT_MIN_MS 10
#define RECONNECT_MAX_MS 500
#define SOCKET_MODE      0600
#define CLOSE_S          1 /* a socket closes within milliseconds, or never */

/* A dialer without a connection redials after 300 ms, then at growing intervals: a redial in the
 * middle of a slow handshake can itself break the listener. */
#define REDIAL_AFTER_NS     (300 * NS_PER_MS)
#define REDIAL_AFTER_MAX_NS (1200 * NS_PER_MS)

/* A service's listener is probed continuously, with a long limit, because reopening it drops every
 * client. */
#define PROBE_EVERY_NS    (500 * NS_PER_MS)
#define PROBE_LIMIT_NS    (1000 * NS_PER_MS)
#define RELISTEN_RETRY_NS (500 * NS_PER_MS)
#define OCCUPIED_PROBE_NS (200 * NS_PER_MS)

int link_error(struct error *error, int nng_result, const char *what, const char *path)
{
    enum error_code code = ERR_FAILED;
    if (nng_result == NNG_ENOMEM)
        code = ERR_NO_MEMORY;
    else if (nng_result == NNG_EADDRINUSE)
        code = ERR_BUSY;
    return error_set(error, code, "cannot %s %s: %s", what, path, nng_strerror(nng_result));
}

static void raise_wake(const struct link *link)
{
    uint64_t one = 1;
    if (link->wake_fd >= 0) {
        ssize_t done = write(link->wake_fd, &one, sizeof one);
        (void)done; /* a full eventfd is already readable */
    }
}

/* Callbacks run on NNG's threads. */

static void on_pipe_candidate(nng_pipe pipe, nng_pipe_ev event, void *arg)
{
    struct link *link = arg;
    uint64_t uid;
    (void)event;
    if (nng_pipe_get_uint64(pipe, NNG_OPT_IPC_PEER_UID, &uid) == 0 && uid == geteuid())
        return;
    if (atomic_fetch_add(&link->denied, 1) == 0)
        log_warn("%s: rejected a connection of another user", link->path);
    nng_pipe_close(pipe);
}

static void on_pipe_added(nng_pipe pipe, nng_pipe_ev event, void *arg)
{
    struct link *link = arg;
    (void)event;
    atomic_fetch_add(&link->connects, 1);
    if (link->kind != LINK_LISTEN_MANY)
        atomic_store(&link->pipe, nng_pipe_id(pipe));
    raise_wake(link);
}

static void on_pipe_removed(nng_pipe pipe, nng_pipe_ev event, void *arg)
{
    struct link *link = arg;
    int id = nng_pipe_id(pipe);
    (void)event;
    if (link->kind != LINK_LISTEN_MANY && atomic_compare_exchange_strong(&link->pipe, &id, 0))
        raise_wake(link);
}

/* NNG may report the end of a connection before its start: then a stale id remains. */
static void forget_dead_pipe(struct link *link)
{
    int id = atomic_load(&link->pipe);
    uint64_t uid;
    if (id != 0 &&
        nng_pipe_get_uint64((nng_pipe){.id = (uint32_t)id}, NNG_OPT_IPC_PEER_UID, &uid) != 0 &&
        atomic_compare_exchange_strong(&link->pipe, &id, 0))
        raise_wake(link);
}

int link_pipe(const struct link *link)
{
    return atomic_load(&link->pipe);
}

static bool peer_is_gone(int pipe)
{
    uint64_t pid;
    return nng_pipe_get_uint64((nng_pipe){.id = (uint32_t)pipe}, NNG_OPT_IPC_PEER_PID, &pid) == 0 &&
           pid != 0 && kill((pid_t)pid, 0) != 0 && errno == ESRCH;
}

static void url_of(const struct link *link, char url[ENDPOINT_BYTES + 8])
{
    snprintf(url, ENDPOINT_BYTES + 8, "ipc://%s", link->path);
}

/* Removes a socket file without a listener. NNG would do it too, but its connect-and-close check
 * can break a running listener. */
static int clear_path(const char *path, struct error *error)
{
    struct stat st;
    if (lstat(path, &st) != 0)
        return errno == ENOENT ? 0 : error_set_errno(error, ERR_FAILED, errno, "%s", path);
    if (!S_ISSOCK(st.st_mode))
        return error_set(error, ERR_BAD_INPUT, "%s exists and is not a socket", path);
    if (probe_once(path, OCCUPIED_PROBE_NS) != PROBE_REFUSED)
        return error_set(error, ERR_BUSY, "another process listens on %s", path);
    if (unlink(path) != 0 && errno != ENOENT)
        return error_set_errno(error, ERR_FAILED, errno, "cannot remove %s", path);
    return 0;
}

static int start_listener(struct link *link, struct error *error)
{
    char url[ENDPOINT_BYTES + 8];
    url_of(link, url);
    if (clear_path(link->path, error) != 0)
        return -1;
    int rv = nng_listener_create(&link->listener, link->socket, url);
    if (rv != 0)
        return link_error(error, rv, "listen on", link->path);
    rv = nng_listener_set_int(link->listener, NNG_OPT_IPC_PERMISSIONS, SOCKET_MODE);
    if (rv == 0)
        rv = nng_listener_start(link->listener, 0);
    if (rv != 0) {
        nng_listener_close(link->listener);
        return link_error(error, rv, "listen on", link->path);
    }
    link->started = true;
    return 0;
}

static int start_dialer(struct link *link, struct error *error)
{
    char url[ENDPOINT_BYTES + 8];
    url_of(link, url);
    int rv = nng_dial(link->socket, url, &link->dialer, NNG_FLAG_NONBLOCK);
    if (rv != 0)
        return link_error(error, rv, "dial", link->path);
    link->started = true;
    return 0;
}

static int set_options(struct link *link, size_t message_max)
{
    nng_socket s = link->socket;
    int rv = nng_socket_set_size(s, NNG_OPT_RECVMAXSZ, message_max);
    if (rv == 0)
        rv = nng_socket_set_ms(s, NNG_OPT_RECONNMINT, RECONNECT_MIN_MS);
    if (rv == 0)
        rv = nng_socket_set_ms(s, NNG_OPT_RECONNMAXT, RECONNECT_MAX_MS);
    if (rv == 0)
        rv = nng_pipe_notify(s, NNG_PIPE_EV_ADD_PRE, on_pipe_candidate, link);
    if (rv == 0)
        rv = nng_pipe_notify(s, NNG_PIPE_EV_ADD_POST, on_pipe_added, link);
    if (rv == 0)
        rv = nng_pipe_notify(s, NNG_PIPE_EV_REM_POST, on_pipe_removed, link);
    return rv;
}

int link_open(struct link *link, nng_socket socket, const char *path, enum link_kind kind,
              size_t message_max, int wake_fd, struct error *error)
{
    *link = (struct link){.socket = socket, .kind = kind, .wake_fd = wake_fd, .probe = PROBE_IDLE};
    link->redial_delay_ns = REDIAL_AFTER_NS;
    int n = snprintf(link->path, sizeof link->path, "%s", path);
    int result = 0;
    if (path[0] != '/' || n >= (int)sizeof link->path) {
        result = error_set(error, ERR_BAD_INPUT, "socket path is relative or too long: %s", path);
    } else {
        int rv = set_options(link, message_max);
        if (rv != 0)
            result = link_error(error, rv, "set up the socket of", path);
    }
    if (result == 0)
        result = kind == LINK_DIAL ? start_dialer(link, error) : start_listener(link, error);
    if (result != 0)
        link_close_socket(socket);
    return result;
}

static void redial(struct link *link)
{
    struct error error;
    if (link->started)
        nng_dialer_close(link->dialer);
    link->started = false;
    link->restarts++;
    if (start_dialer(link, &error) != 0)
        log_warn("%s", error.text);
}

static void relisten(struct link *link, uint64_t now_ns)
{
    struct error error;
    if (link->started) {
        log_info("%s: the listener stopped accepting connections; reopening it", link->path);
        nng_listener_close(link->listener);
    }
    link->started = false;
    link->restarts++;
    if (start_listener(link, &error) == 0) {
        link->closed_ns = 0;
        return;
    }
    if (link->closed_ns == 0)
        link->closed_ns = now_ns;
    if (link->restarts % 64 == 1)
        log_warn("%s", error.text);
    link->next_probe_ns = now_ns + RELISTEN_RETRY_NS;
}

static void tick_dialer(struct link *link, uint64_t now_ns)
{
    if (now_ns - link->lonely_ns < link->redial_delay_ns)
        return;
    link->lonely_ns = now_ns;
    /* No file: the peer has not started, and NNG's own retries will find it. But a dialer that
     * failed earlier must be replaced as soon as the file exists. */
    if (link->started && access(link->path, F_OK) != 0)
        return;
    redial(link);
    link->redial_delay_ns *= 2;
    if (link->redial_delay_ns > REDIAL_AFTER_MAX_NS)
        link->redial_delay_ns = REDIAL_AFTER_MAX_NS;
}

static void tick_listener(struct link *link, uint64_t now_ns)
{
    if (!probe_running(&link->probe)) {
        if (now_ns < link->next_probe_ns)
            return;
        if (!link->started) {
            relisten(link, now_ns);
            return;
        }
        probe_start(&link->probe, link->path, now_ns);
    }
    switch (probe_step(&link->probe, now_ns, PROBE_LIMIT_NS)) {
    case PROBE_PENDING: return;
    case PROBE_ALIVE: link->next_probe_ns = now_ns + PROBE_EVERY_NS; return;
    case PROBE_SILENT:
    case PROBE_REFUSED: link->next_probe_ns = now_ns + PROBE_EVERY_NS; relisten(link, now_ns);
    }
}

void link_tick(struct link *link, uint64_t now_ns)
{
    if (link->kind == LINK_LISTEN_MANY) {
        tick_listener(link, now_ns);
        return;
    }
    forget_dead_pipe(link);
    if (link_pipe(link) != 0) {
        link->lonely_ns = 0;
        link->redial_delay_ns = REDIAL_AFTER_NS;
        return;
    }
    if (link->lonely_ns == 0)
        link->lonely_ns = now_ns;
    tick_dialer(link, now_ns);
}

static void give_up_dialing(struct link *link)
{
    if (link->started)
        nng_dialer_close(link->dialer);
    link->started = false;
}

static void *close_socket(void *arg)
{
    nng_socket socket = {.id = (uint32_t)(uintptr_t)arg};
    nng_close(socket);
    return NULL;
}

/* In NNG 1.5.2 one thread tears down the connections of all sockets. On a connection whose peer
 * exited at the wrong moment it blocks indefinitely, and then every nng_close of the process
 * does. */
bool link_close_socket(nng_socket socket)
{
    pthread_t thread;
    struct timespec until;
    if (pthread_create(&thread, NULL, close_socket, (void *)(uintptr_t)socket.id) != 0)
        return false;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += CLOSE_S;
    if (pthread_clockjoin_np(thread, NULL, CLOCK_MONOTONIC, &until) == 0)
        return true;
    pthread_detach(thread);
    return false;
}

/* Closing the socket of a stuck connection hangs; the kernel closes it when the process exits. */
bool link_close(struct link *link)
{
    int pipe = link->kind == LINK_LISTEN_MANY ? 0 : link_pipe(link);
    bool closed = pipe == 0 || !peer_is_gone(pipe);
    if (closed)
        closed = link_close_socket(link->socket);
    else
        give_up_dialing(link);
    probe_stop(&link->probe);
    return closed;
}
