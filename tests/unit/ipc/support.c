/* SPDX-License-Identifier: Apache-2.0 */
/* Starts peers, servers and raw sockets for the tests of ipc. */
#include "tests/unit/ipc/support.h"

#include <dirent.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/base/log.h"

extern char **environ;

char scratch[64];

void scratch_make(void)
{
    snprintf(scratch, sizeof scratch, "/tmp/sluice-ipc-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(scratch));
}

void scratch_remove(void)
{
    DIR *dir = opendir(scratch);
    if (!dir)
        return;
    for (struct dirent *e; (e = readdir(dir));)
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0 &&
            unlinkat(dirfd(dir), e->d_name, 0) != 0)
            unlinkat(dirfd(dir), e->d_name, AT_REMOVEDIR);
    closedir(dir);
    rmdir(scratch);
}

const char *scratch_path(const char *file)
{
    static char paths[4][108];
    static unsigned next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", scratch, file);
    return path;
}

pid_t spawn_peer(int *out, const char *mode, const char *path, const char *argument)
{
    char *argv[] = {IPC_PEER, (char *)mode, (char *)path, (char *)argument, NULL};
    int ends[2];
    pid_t pid;
    posix_spawn_file_actions_t actions;
    ck_assert_int_eq(pipe2(ends, O_CLOEXEC), 0);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    ck_assert_int_eq(posix_spawn(&pid, IPC_PEER, &actions, NULL, argv, environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    if (out)
        *out = ends[0];
    else
        close(ends[0]);
    return pid;
}

void kill_peer(pid_t pid)
{
    kill(pid, SIGKILL);
    ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
}

void read_line(int fd, char *line, size_t cap)
{
    size_t n = 0;
    uint64_t deadline = clock_now_ns() + WAIT_LIMIT_MS * NS_PER_MS;
    for (;;) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        ck_assert_msg(clock_now_ns() < deadline, "no line from a peer");
        if (poll(&p, 1, 100) <= 0)
            continue;
        char c;
        ck_assert_msg(read(fd, &c, 1) == 1, "a peer ended");
        if (c == '\n')
            break;
        ck_assert(n + 1 < cap);
        line[n++] = c;
    }
    line[n] = 0;
}

void let_run(pid_t pid, unsigned us)
{
    int fd = (int)syscall(SYS_pidfd_open, pid, 0);
    struct pollfd p = {.fd = fd, .events = POLLIN};
    struct timespec limit = {.tv_nsec = us * 1000L};
    ck_assert_int_ge(fd, 0);
    ppoll(&p, 1, &limit, NULL);
    close(fd);
}

static struct sockaddr_un address_of(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    memcpy(address.sun_path, path, strlen(path));
    return address;
}

int raw_connect(const char *path)
{
    struct sockaddr_un address = address_of(path);
    struct timeval limit = {.tv_sec = WAIT_LIMIT_MS / 1000};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_ge(fd, 0);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    if (connect(fd, (struct sockaddr *)&address, sizeof address) == 0)
        return fd;
    close(fd);
    return -1;
}

int raw_listen(const char *path)
{
    struct sockaddr_un address = address_of(path);
    struct timeval limit = {.tv_sec = WAIT_LIMIT_MS / 1000};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    ck_assert_int_eq(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
    ck_assert_int_eq(listen(fd, 16), 0);
    return fd;
}

void raw_connect_and_close(const char *path, unsigned times)
{
    for (unsigned i = 0; i < times; i++) {
        int fd = raw_connect(path);
        if (fd >= 0)
            close(fd);
    }
}

static ssize_t read_whole(int fd, void *buf, size_t count)
{
    for (size_t n = 0; n < count;) {
        ssize_t got = recv(fd, (char *)buf + n, count - n, 0);
        if (got <= 0)
            return -1;
        n += (size_t)got;
    }
    return (ssize_t)count;
}

int raw_handshake(int fd, uint16_t protocol)
{
    unsigned char mine[8] = {
        0, 'S', 'P', 0, (unsigned char)(protocol >> 8), (unsigned char)protocol, 0, 0};
    unsigned char theirs[8];
    if (send(fd, mine, sizeof mine, MSG_NOSIGNAL) != (ssize_t)sizeof mine)
        return -1;
    return read_whole(fd, theirs, sizeof theirs) < 0 ? -1 : 0;
}

void raw_frame(int fd, uint64_t claimed, const void *bytes, size_t count)
{
    unsigned char head[9] = {1};
    uint64_t length = htobe64(claimed);
    memcpy(head + 1, &length, sizeof length);
    if (send(fd, head, sizeof head, MSG_NOSIGNAL) != (ssize_t)sizeof head)
        return;
    for (size_t n = 0; n < count;) {
        ssize_t sent = send(fd, (const char *)bytes + n, count - n, MSG_NOSIGNAL);
        if (sent <= 0)
            return; /* the peer closed the connection: the tests check for it next */
        n += (size_t)sent;
    }
}

void raw_request(int fd, const void *text, size_t bytes)
{
    unsigned char *frame = malloc(bytes + 4);
    const unsigned char number[4] = {0x80, 0, 0, 1};
    ck_assert_ptr_nonnull(frame);
    memcpy(frame, number, 4);
    memcpy(frame + 4, text, bytes);
    raw_frame(fd, bytes + 4, frame, bytes + 4);
    free(frame);
}

ssize_t raw_read_frame(int fd, void *buf, size_t cap)
{
    unsigned char head[9];
    uint64_t length;
    if (read_whole(fd, head, sizeof head) < 0)
        return -1;
    memcpy(&length, head + 1, sizeof length);
    length = be64toh(length);
    ck_assert_uint_le(length, cap);
    return read_whole(fd, buf, (size_t)length);
}

void raw_expect_end(int fd)
{
    char waste[4096];
    ssize_t n;
    while ((n = recv(fd, waste, sizeof waste, 0)) > 0)
        ;
    ck_assert_msg(n == 0 || errno == ECONNRESET || errno == EPIPE, "the peer did not hang up");
    close(fd);
}

/* The host. Deferred requests wait in a small table until they are released or due. */

#define DEFERRED_MAX 512

struct deferred {
    struct rpc_request *request;
    uint64_t at_ns;
};

static void echo(struct host *host, struct rpc_request *request)
{
    json_t *text = json_object_get(request->body, "text");
    rpc_reply(host->server, request, json_pack("{s:O?, s:s}", "text", text, "op", request->op));
}

static void reply_busy(struct host *host, struct rpc_request *request)
{
    struct error error;
    error_set(&error, ERR_BUSY, "the queue is full");
    rpc_reply_error(host->server, request, &error);
}

static void take_one(struct host *host, struct rpc_request *request, struct deferred *deferred)
{
    atomic_fetch_add(&host->taken, 1);
    bool wait = strcmp(request->op, "hold") == 0 || strcmp(request->op, "late") == 0;
    if (!wait && host->handler) {
        host->handler(host, request);
        return;
    }
    if (!wait) {
        (strcmp(request->op, "fail") == 0 ? reply_busy : echo)(host, request);
        return;
    }
    json_int_t ms = json_integer_value(json_object_get(request->body, "wait_ms"));
    for (unsigned i = 0; i < DEFERRED_MAX; i++) {
        if (deferred[i].request)
            continue;
        deferred[i].request = request;
        deferred[i].at_ns = strcmp(request->op, "late") == 0
                                ? request->taken_ns + (uint64_t)ms * NS_PER_MS
                                : UINT64_MAX;
        atomic_fetch_add(&host->deferred, 1);
        return;
    }
    ck_abort_msg("more requests than contexts");
}

static void *host_run(void *arg)
{
    struct host *host = arg;
    struct deferred *deferred = calloc(DEFERRED_MAX, sizeof *deferred);
    while (!atomic_load(&host->quit)) {
        struct pollfd p = {.fd = rpc_server_fd(host->server), .events = POLLIN};
        poll(&p, 1, 5);
        uint64_t now = clock_now_ns();
        for (struct rpc_request *r; (r = rpc_server_take(host->server));)
            take_one(host, r, deferred);
        for (unsigned i = 0; i < DEFERRED_MAX; i++) {
            if (!deferred[i].request || (deferred[i].at_ns > now && !atomic_load(&host->release)))
                continue;
            echo(host, deferred[i].request);
            deferred[i].request = NULL;
            atomic_fetch_sub(&host->deferred, 1);
        }
        rpc_server_tick(host->server, now);
    }
    free(deferred);
    return NULL;
}

void host_start(struct host *host, const char *path, unsigned contexts)
{
    struct error error;
    pthread_t thread;
    host->server = rpc_server_open(path, contexts, &error);
    ck_assert_msg(host->server != NULL, "%s", error.text);
    atomic_store(&host->quit, false);
    ck_assert_int_eq(pthread_create(&thread, NULL, host_run, host), 0);
    host->thread = (void *)thread;
}

void host_stop(struct host *host)
{
    atomic_store(&host->quit, true);
    pthread_join((pthread_t)host->thread, NULL);
    rpc_server_close(host->server);
}

struct rpc_server_stats host_stats(struct host *host)
{
    struct rpc_server_stats stats;
    rpc_server_stats_get(host->server, &stats);
    return stats;
}

/* A listener of NNG 1.5.2 that died leaks the connections it completed handshakes with, and no call
 * can free them. Read by the leak sanitizer. */
const char *__lsan_default_suppressions(void);
__attribute__((visibility("default"))) const char *__lsan_default_suppressions(void)
{
    return "leak:libnng";
}

static int run(Suite *suite, enum fork_status forked)
{
    log_init("test", LOG_LEVEL_NONE);
    signal(SIGPIPE, SIG_IGN);
    SRunner *runner = srunner_create(suite);
    srunner_set_fork_status(runner, forked);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}

int run_suite(Suite *suite)
{
    return run(suite, CK_NOFORK);
}

int run_suite_apart(Suite *suite)
{
    return run(suite, CK_FORK);
}
