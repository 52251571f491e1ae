/* What the tests of ipc/ share. Waiting is always for a condition with a deadline. */
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

/* Evaluates `step` (an expression, for its effects) and `condition` until the latter holds. */
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

/* A directory of the test's own, and the path of a socket in it. Removed by scratch_remove. */
extern char scratch[64];
void scratch_make(void);
void scratch_remove(void);
const char *scratch_path(const char *file);

/* A helper process; its standard output can be read from *out (may be NULL). */
pid_t spawn_peer(int *out, const char *mode, const char *path, const char *argument);
void kill_peer(pid_t pid);
/* One line, without its end, waiting for it. */
void read_line(int fd, char *line, size_t cap);
/* Waits at most us microseconds for the child to end (it does not). */
void let_run(pid_t pid, unsigned us);

/* Raw connections, as a stranger to NNG makes them. */
int raw_connect(const char *path);
int raw_listen(const char *path);
void raw_connect_and_close(const char *path, unsigned times);
/* Greets as an SP peer of this protocol and reads the other greeting. -1 when hung up. */
int raw_handshake(int fd, uint16_t protocol);
/* A frame: type byte, length, bytes. */
void raw_frame(int fd, uint64_t claimed, const void *bytes, size_t count);
/* A request of the rep protocol. */
void raw_request(int fd, const void *text, size_t bytes);
/* A whole frame's payload; -1 when the peer hung up. */
ssize_t raw_read_frame(int fd, void *buf, size_t cap);
/* Waits for the peer to hang up. */
void raw_expect_end(int fd);

#define SP_PAIR0 0x10
#define SP_REQ0  0x30
#define SP_REP0  0x31

/* An rpc server with a thread of its own. Ops: "echo" answers at once, "hold" when released, "late"
 * after the number of milliseconds in "wait_ms", "fail" with an error. */
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

/* main() of a test program: one case, no fork. */
int run_suite(Suite *suite);
/* The same, a process per test: peers are killed, and what NNG 1.5.2 makes of that in one test (a
 * thread of its that waits for ever) would be found by the next. */
int run_suite_apart(Suite *suite);

#endif
