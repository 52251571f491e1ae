/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the tests of ipc/. Every wait is for a condition, with a deadline. */
#ifndef SLUICE_TESTS_UNIT_IPC_SUPPORT_H
#define SLUICE_TESTS_UNIT_IPC_SUPPORT_H

#include <check.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "ipc/rpc/rpc.h"
#include "lib/base/clock.h"

#define WAIT_LIMIT_MS 10000

/* Evaluates `step` (an expression with side effects) and `condition` until `condition` holds. */
#define WAIT_FOR(condition, step)                                                                  \
    do {                                                                                           \
        uint64_t wait_until_ = clock_now_ns() + WAIT_LIMIT_MS * NS_PER_MS;                         \
        for (;;) {                                                                                 \
            (void)(step);                                                                          \
            if (condition)                                                                         \
                break;                                                                             \
            ck_assert_msg(clock_now_ns() < wait_until_, "never came true: %s", #condition);        \
            poll(NULL, 0, 1);                                                                      \
        }                                                                                          \
    } while (0)

/* A private directory of the test, and the path of a socket in it. scratch_remove removes it. */
extern char scratch[64];
void scratch_make(void);
void scratch_remove(void);
const char *scratch_path(const char *file);

/* A helper process; its standard output is readable from *out (may be NULL). */
pid_t spawn_peer(int *out, const char *mode, const char *path, const char *argument);
void kill_peer(pid_t pid);
/* Waits for one line and stores it without its newline. */
void read_line(int fd, char *line, size_t cap);
/* Lets the child run for at most us microseconds. */
void let_run(pid_t pid, unsigned us);

/* Raw connections that do not use NNG. */
int raw_connect(const char *path);
int raw_listen(const char *path);
void raw_connect_and_close(const char *path, unsigned times);
/* SP handshake with this protocol: sends ours, reads the peer's. -1 when the peer closed. */
int raw_handshake(int fd, uint16_t protocol);
/* A frame: type byte, length, bytes. */
void raw_frame(int fd, uint64_t claimed, const void *bytes, size_t count);
/* A request of the rep protocol. */
void raw_request(int fd, const void *text, size_t bytes);
/* Payload of a whole frame; -1 when the peer closed. */
ssize_t raw_read_frame(int fd, void *buf, size_t cap);
/* Waits for the peer to close. */
void raw_expect_end(int fd);

#define SP_PAIR0 0x10
#define SP_REQ0  0x30
#define SP_REP0  0x31

/* An rpc server in a thread. Ops: "echo" replies at once, "hold" when released, "late" after
 * "wait_ms" milliseconds, "fail" with an error. */
struct host {
    struct rpc_server *server;
    void *thread;
    atomic_bool quit, release;
    atomic_uint deferred, taken;
    void (*handler)(struct host *host, struct rpc_request *request);
    void *arg;
};

void host_start(struct host *host, const char *path, unsigned contexts);
void host_stop(struct host *host);
struct rpc_server_stats host_stats(struct host *host);

/* main() of a test program: one case, without fork. */
int run_suite(Suite *suite);
/* The same with one process per test. Tests kill peers, and a thread that NNG 1.5.2 leaves waiting
 * forever would affect the next test. */
int run_suite_apart(Suite *suite);

#endif
