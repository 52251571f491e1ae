/* SPDX-License-Identifier: Apache-2.0 */
/* Channels with absent, dying, stopped and hostile peers. The names e1 and e2 are those of the NNG
 * 1.5.2 experiments in ipc/README.md: inputs that broke its sockets must not break channels. */
#include "ipc/channel/channel.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "lib/base/bytes.h"
#include "tests/unit/ipc/support.h"

_Alignas(8) static unsigned char buf[MSG_BYTES_MAX];

static struct channel *open_channel(struct channel *(*how)(const char *, enum msg_role, uint32_t,
                                                           struct error *),
                                    const char *path, enum msg_role me)
{
    struct error error;
    struct channel *channel = how(path, me, 1, &error);
    ck_assert_msg(channel != NULL, "%s", error.text);
    return channel;
}

static struct channel_stats stats_of(const struct channel *channel)
{
    struct channel_stats stats;
    channel_stats_get(channel, &stats);
    return stats;
}

static void tick(struct channel *a, struct channel *b)
{
    uint64_t now = clock_now_ns();
    if (a)
        channel_tick(a, now);
    if (b)
        channel_tick(b, now);
}

/* Sends FLUSH with a new epoch until the loader at the other end replies with the same epoch. */
static void expect_flushed(struct channel *channel)
{
    static uint32_t epoch;
    uint64_t deadline = clock_now_ns() + WAIT_LIMIT_MS * NS_PER_MS, next_send = 0;
    epoch++;
    for (;;) {
        uint64_t now = clock_now_ns();
        ck_assert_msg(now < deadline, "no answer from the peer");
        channel_tick(channel, now);
        if (now >= next_send && channel_connected(channel)) {
            struct msg_flush flush = {.epoch = epoch};
            channel_send(channel, &flush, MSG_FLUSH);
            next_send = now + 50 * NS_PER_MS;
        }
        struct pollfd p = {.fd = channel_fd(channel), .events = POLLIN};
        poll(&p, 1, 5);
        struct msg_flush reply;
        while (channel_receive(channel, buf) > 0) {
            memcpy(&reply, buf, sizeof reply);
            if (reply.head.type == MSG_FLUSHED && reply.epoch == epoch)
                return;
        }
    }
}

/* ---- connections of untrusted clients ---- */

static int packet_socket(struct sockaddr_un *address)
{
    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    snprintf(address->sun_path, sizeof address->sun_path, "%s", scratch_path("a"));
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    struct timeval limit = {.tv_sec = WAIT_LIMIT_MS / 1000};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    ck_assert_int_ge(fd, 0);
    return fd;
}

static int packet_connect(void)
{
    struct sockaddr_un address;
    int fd = packet_socket(&address);
    ck_assert_int_eq(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
    return fd;
}

static int packet_listen(void)
{
    struct sockaddr_un address;
    int fd = packet_socket(&address);
    ck_assert_int_eq(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
    ck_assert_int_eq(listen(fd, 16), 0);
    return fd;
}

/* The first message of a dialer, written by hand. */
static void send_handshake(int fd)
{
    const struct {
        uint32_t magic;
        uint16_t version, role;
    } hello = {0x474c5553u, MSG_VERSION, ROLE_LOADER};
    ck_assert_int_eq(send(fd, &hello, sizeof hello, MSG_NOSIGNAL), sizeof hello);
}

/* Ticks the listener in between, because its queue of connections fills up. */
static void connect_and_close(struct channel *channel, unsigned times)
{
    for (unsigned i = 0; i < times; i++) {
        close(packet_connect());
        if (i % 8 == 7)
            channel_tick(channel, clock_now_ns());
    }
}

static void expect_end(struct channel *channel, int fd)
{
    char waste[64];
    struct pollfd p = {.fd = fd, .events = POLLIN};
    WAIT_FOR(poll(&p, 1, 0) == 1, tick(channel, NULL));
    ck_assert_int_le(recv(fd, waste, sizeof waste, MSG_DONTWAIT), 0);
    close(fd);
}

static pid_t spawn_ready(const char *mode, const char *path)
{
    int out;
    char line[64];
    pid_t pid = spawn_peer(&out, mode, path, NULL);
    read_line(out, line, sizeof line);
    ck_assert_str_eq(line, "ready");
    close(out);
    return pid;
}

START_TEST(messages_pass_in_order_and_whole)
{
    struct channel *cache = open_channel(channel_listen, scratch_path("a"), ROLE_CACHE);
    struct channel *compute = open_channel(channel_dial, scratch_path("a"), ROLE_COMPUTE);
    WAIT_FOR(channel_connected(cache) && channel_connected(compute), tick(cache, compute));
    struct msg_demand demand = {.count = MSG_WANTS_MAX, .layer = 5};
    for (unsigned i = 0; i < MSG_WANTS_MAX; i++)
        demand.wants[i] = (struct msg_want){.entry = i, .tokens = 1};
    uint64_t got = 0, first = 0;
    for (unsigned i = 0; i < 5000 || got < stats_of(compute).sent; i++) {
        if (i < 5000) {
            demand.count = (uint16_t)(1 + i % MSG_WANTS_MAX);
            channel_send(compute, &demand, MSG_DEMAND);
        }
        struct pollfd p = {.fd = channel_fd(cache), .events = POLLIN};
        poll(&p, 1, i < 5000 ? 0 : 100);
        for (size_t n; (n = channel_receive(cache, buf)) > 0; got++) {
            struct msg_demand in;
            memcpy(&in, buf, n);
            ck_assert_uint_eq(n, msg_bytes(&in));
            ck_assert_uint_gt(in.head.number, first);
            ck_assert_uint_eq(in.wants[in.count - 1].entry, in.count - 1u);
            first = in.head.number;
        }
        ck_assert_uint_lt(i, 6000);
    }
    struct channel_stats s = stats_of(compute);
    ck_assert_uint_eq(s.sent + s.lost, 5000);
    ck_assert_uint_eq(stats_of(cache).received, s.sent); /* every message counted as sent arrives */
    channel_close(compute);
    channel_close(cache);
}
END_TEST

START_TEST(without_a_peer_messages_are_lost_at_once)
{
    struct channel *cache = open_channel(channel_listen, scratch_path("a"), ROLE_CACHE);
    struct channel *loader = open_channel(channel_dial, scratch_path("b"), ROLE_LOADER);
    uint64_t start = clock_now_ns();
    for (int i = 0; i < 1000; i++) {
        struct msg_flush flush = {0};
        struct msg_dones dones = {.count = 1};
        ck_assert_int_eq(channel_send(cache, &flush, MSG_FLUSH), -1);
        ck_assert_int_eq(channel_send(loader, &dones, MSG_DONES), -1);
    }
    ck_assert_uint_lt(clock_now_ns() - start, NS_PER_S);
    ck_assert_uint_eq(stats_of(cache).lost, 1000);
    ck_assert_uint_eq(stats_of(loader).lost, 1000);
    ck_assert_uint_eq(channel_receive(cache, buf), 0);
    channel_close(loader);
    /* Messages to the previous peer are not delivered to the next one. */
    loader = open_channel(channel_dial, scratch_path("a"), ROLE_LOADER);
    WAIT_FOR(channel_connected(cache) && channel_connected(loader), tick(cache, loader));
    struct msg_flush flush = {.epoch = 77};
    channel_send(cache, &flush, MSG_FLUSH);
    WAIT_FOR(channel_receive(loader, buf) > 0, tick(cache, loader));
    memcpy(&flush, buf, sizeof flush);
    ck_assert_uint_eq(flush.epoch, 77);
    channel_close(loader);
    channel_close(cache);
}
END_TEST

START_TEST(invalid_messages_are_dropped_and_counted)
{
    struct channel *cache = open_channel(channel_listen, scratch_path("a"), ROLE_CACHE);
    int fd = packet_connect();
    send_handshake(fd);
    struct msg_flush flush = {0};
    static unsigned char junk[MSG_BYTES_MAX + 1];
    memset(junk, 0xa5, sizeof junk);
    unsigned bad = 0;
    for (size_t n = 1; n < sizeof junk; n *= 2, bad++)
        ck_assert_int_eq(send(fd, junk, n, MSG_NOSIGNAL), (ssize_t)n);
    ck_assert_int_eq(send(fd, junk, sizeof junk, MSG_NOSIGNAL), sizeof junk);
    msg_seal(&flush, MSG_FLUSH, 1, 1); /* wrong direction: the cache sends FLUSH */
    ck_assert_int_eq(send(fd, &flush, sizeof flush, MSG_NOSIGNAL), sizeof flush);
    msg_seal(&flush, MSG_FLUSHED, 1, 2);
    ck_assert_int_eq(send(fd, &flush, sizeof flush, MSG_NOSIGNAL), sizeof flush);
    WAIT_FOR(channel_receive(cache, buf) == sizeof flush, tick(cache, NULL));
    ck_assert_uint_eq(stats_of(cache).invalid, bad + 2);
    ck_assert_int_eq(send(fd, "", 0, MSG_NOSIGNAL), 0); /* an empty message ends the connection */
    WAIT_FOR(!channel_connected(cache), channel_receive(cache, buf));
    expect_end(cache, fd);
    channel_close(cache);
}
END_TEST

START_TEST(the_socket_is_private_and_leaves_with_its_owner)
{
    struct stat st;
    struct channel *cache = open_channel(channel_listen, scratch_path("a"), ROLE_CACHE);
    ck_assert_int_eq(stat(scratch_path("a"), &st), 0);
    ck_assert_uint_eq(st.st_mode & 07777, 0600);
    channel_close(cache);
    ck_assert_int_ne(stat(scratch_path("a"), &st), 0);
}
END_TEST

START_TEST(a_dead_predecessors_socket_is_replaced)
{
    pid_t pid = spawn_ready("loader-listen", scratch_path("a"));
    kill_peer(pid);
    ck_assert_int_eq(access(scratch_path("a"), F_OK), 0);
    struct channel *cache = open_channel(channel_listen, scratch_path("a"), ROLE_CACHE);
    pid = spawn_ready("loader-dial", scratch_path("a"));
    expect_flushed(cache);
    kill_peer(pid);
    channel_close(cache);

    struct error error;
    int fd = open(scratch_path("file"), O_CREAT | O_WRONLY, 0600);
    close(fd);
    ck_assert_ptr_null(channel_listen(scratch_path("file"), ROLE_CACHE, 1, &error));
    ck_assert_int_eq(error.code, ERR_BAD_INPUT);
    ck_assert_int_eq(access(scratch_path("file"), F_OK), 0);
    ck_assert_ptr_null(channel_listen("relative", ROLE_CACHE, 1, &error));
}
END_TEST

START_TEST(e1d_a_second_listener_is_rejected_without_harm)
{
    struct error error;
    struct channel *cache = open_channel(channel_listen, scratch_path("a"), ROLE_CACHE);
    for (int i = 0; i < 10; i++) {
        ck_assert_ptr_null(channel_listen(scratch_path("a"), ROLE_CACHE, 2, &error));
        ck_assert_int_eq(error.code, ERR_BUSY);
    }
    pid_t pid = spawn_ready("loader-dial", scratch_path("a"));
    expect_flushed(cache);
    ck_assert_ptr_null(channel_listen(scratch_path("a"), ROLE_CACHE, 2, &error));
    expect_flushed(cache);
    ck_assert_uint_eq(stats_of(cache).connects, 1);
    kill_peer(pid);
    channel_close(cache);
}
END_TEST

START_TEST(e1_connect_and_close_does_not_deafen_a_listener)
{
    static const unsigned times[] = {1, 200};
    for (unsigned i = 0; i < ARRAY_LEN(times); i++) {
        struct channel *cache = open_channel(channel_listen, scratch_path("a"), ROLE_CACHE);
        connect_and_close(cache, times[i]);
        pid_t pid = spawn_ready("loader-dial", scratch_path("a"));
        expect_flushed(cache);
        /* With a connected peer this has no effect. */
        uint64_t connects = stats_of(cache).connects;
        connect_and_close(cache, times[i]);
        expect_flushed(cache);
        ck_assert_uint_eq(stats_of(cache).connects, connects);
        kill_peer(pid);
        pid = spawn_ready("loader-dial", scratch_path("a"));
        expect_flushed(cache);
        kill_peer(pid);
        channel_close(cache);
    }
}
END_TEST

START_TEST(e1b_a_listener_that_hangs_up_in_the_handshake_is_dialed_again)
{
    for (int i = 0; i < 3; i++) {
        int listener = packet_listen();
        struct channel *cache = open_channel(channel_dial, scratch_path("a"), ROLE_CACHE);
        int fd = accept(listener, NULL, NULL);
        close(fd);
        close(listener);
        unlink(scratch_path("a"));
        pid_t pid = spawn_ready("loader-listen", scratch_path("a"));
        expect_flushed(cache);
        kill_peer(pid);
        pid = spawn_ready("loader-listen", scratch_path("a"));
        expect_flushed(cache);
        kill_peer(pid);
        channel_close(cache);
        unlink(scratch_path("a"));
    }
}
END_TEST

START_TEST(e1c_dialers_killed_early_do_not_deafen_a_listener)
{
    struct channel *cache = open_channel(channel_listen, scratch_path("a"), ROLE_CACHE);
    for (unsigned i = 0; i < 40; i++) {
        pid_t pid = spawn_peer(NULL, "loader-dial", scratch_path("a"), NULL);
        let_run(pid, i * 200);
        kill_peer(pid);
        tick(cache, NULL);
    }
    pid_t pid = spawn_ready("loader-dial", scratch_path("a"));
    expect_flushed(cache);
    kill_peer(pid);
    channel_close(cache);
}
END_TEST

/* Clients that send nothing, or a wrong handshake, never become the peer. */
START_TEST(e2_only_who_greets_is_taken)
{
    static unsigned char big[MSG_BYTES_MAX * 4];
    int silent[12];
    struct channel *cache = open_channel(channel_listen, scratch_path("a"), ROLE_CACHE);
    for (size_t n = 1; n <= sizeof big; n *= 2) {
        int fd = packet_connect();
        ck_assert_int_eq(send(fd, big, n, MSG_NOSIGNAL), (ssize_t)n);
        expect_end(cache, fd);
    }
    ck_assert_uint_eq(stats_of(cache).connects, 0);
    for (size_t i = 0; i < ARRAY_LEN(silent); i++)
        silent[i] = packet_connect();
    pid_t pid = spawn_ready("loader-dial", scratch_path("a"));
    expect_flushed(cache);
    int late = packet_connect();
    send_handshake(late);
    expect_end(cache, late);
    expect_flushed(cache);
    ck_assert_uint_eq(stats_of(cache).connects, 1);
    for (size_t i = 0; i < ARRAY_LEN(silent); i++)
        close(silent[i]);
    kill_peer(pid);
    channel_close(cache);
}
END_TEST

START_TEST(a_stopped_peer_never_blocks_the_sender)
{
    struct channel *cache = open_channel(channel_listen, scratch_path("a"), ROLE_CACHE);
    pid_t pid = spawn_ready("loader-dial", scratch_path("a"));
    expect_flushed(cache);
    ck_assert_int_eq(kill(pid, SIGSTOP), 0);
    uint64_t before = stats_of(cache).lost, start = clock_now_ns();
    struct msg_loads loads = {.count = 1,
                              .loads[0] = {.runs_count = 1, .runs = {{0, 0, PAGE_BYTES}}}};
    for (int i = 0; i < 20000; i++)
        channel_send(cache, &loads, MSG_LOADS);
    uint64_t took = clock_now_ns() - start;
    ck_assert_uint_gt(stats_of(cache).lost, before + 10000);
    ck_assert_msg(took < 5 * NS_PER_S, "%lu ms", (unsigned long)(took / NS_PER_MS));
    kill(pid, SIGCONT);
    expect_flushed(cache);
    ck_assert_uint_eq(stats_of(cache).connects, 1);
    kill_peer(pid);
    channel_close(cache);
}
END_TEST

START_TEST(either_side_may_be_killed_and_come_back)
{
    struct channel *cache = open_channel(channel_listen, scratch_path("a"), ROLE_CACHE);
    struct channel *dialer = open_channel(channel_dial, scratch_path("b"), ROLE_CACHE);
    for (int i = 0; i < 6; i++) {
        pid_t a = spawn_ready("loader-dial", scratch_path("a"));
        pid_t b = spawn_ready("loader-listen", scratch_path("b"));
        expect_flushed(cache);
        expect_flushed(dialer);
        kill_peer(a);
        kill_peer(b);
        WAIT_FOR(!channel_connected(cache) && !channel_connected(dialer), tick(cache, dialer));
    }
    channel_close(dialer);
    channel_close(cache);
}
END_TEST

/* Sends without a pause, so that the peer is killed in the middle of a read or a write. */
static void send_until(struct channel *channel, uint64_t deadline)
{
    while (clock_now_ns() < deadline) {
        struct msg_flush flush = {.epoch = 0};
        channel_send(channel, &flush, MSG_FLUSH);
        while (channel_receive(channel, buf) > 0)
            ;
    }
}

/* Environment variable EDGE_KILLS: number of rounds. */
START_TEST(peers_killed_amid_traffic_are_succeeded)
{
    const char *wanted = getenv("EDGE_KILLS");
    int rounds = wanted ? atoi(wanted) : 40;
    bool listen = _i == 0;
    struct channel *channel =
        open_channel(listen ? channel_listen : channel_dial, scratch_path("a"), ROLE_CACHE);
    srand(7);
    for (int i = 0; i < rounds; i++) {
        pid_t pid = spawn_ready(listen ? "loader-dial" : "loader-listen", scratch_path("a"));
        expect_flushed(channel);
        send_until(channel, clock_now_ns() + (uint64_t)(rand() % 3000) * NS_PER_US);
        kill_peer(pid);
    }
    ck_assert_uint_eq(stats_of(channel).connects, (uint64_t)rounds);
    channel_close(channel);
}
END_TEST

START_TEST(other_users_are_denied)
{
    if (geteuid() != 0)
        return; /* changing the user requires root */
    chmod(scratch, 0777);
    pid_t pid = spawn_ready("nobody-listen", scratch_path("a"));
    struct channel *cache = open_channel(channel_dial, scratch_path("a"), ROLE_CACHE);
    WAIT_FOR(stats_of(cache).denied >= 3, tick(cache, NULL));
    ck_assert(!channel_connected(cache));
    ck_assert_uint_eq(stats_of(cache).connects, 0);
    kill_peer(pid);
    channel_close(cache);
}
END_TEST

static int by_size(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

START_TEST(round_trip_time)
{
    enum { ROUNDS = 2000 };
    static uint64_t took[ROUNDS];
    struct channel *cache = open_channel(channel_listen, scratch_path("a"), ROLE_CACHE);
    pid_t pid = spawn_ready("loader-dial", scratch_path("a"));
    expect_flushed(cache);
    for (unsigned i = 0; i < ROUNDS; i++) {
        struct msg_flush flush = {.epoch = i};
        struct pollfd p = {.fd = channel_fd(cache), .events = POLLIN};
        uint64_t start = clock_now_ns();
        ck_assert_int_eq(channel_send(cache, &flush, MSG_FLUSH), 0);
        while (channel_receive(cache, buf) == 0)
            ck_assert_int_eq(poll(&p, 1, WAIT_LIMIT_MS), 1);
        took[i] = clock_now_ns() - start;
    }
    qsort(took, ROUNDS, sizeof took[0], by_size);
    printf("edge round trip: p50 %.1f us, p99 %.1f us\n", (double)took[ROUNDS / 2] / 1e3,
           (double)took[ROUNDS * 99 / 100] / 1e3);
    kill_peer(pid);
    channel_close(cache);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("ipc edge");
    TCase *tc = tcase_create("edge");
    tcase_add_checked_fixture(tc, scratch_make, scratch_remove);
    tcase_add_test(tc, messages_pass_in_order_and_whole);
    tcase_add_test(tc, without_a_peer_messages_are_lost_at_once);
    tcase_add_test(tc, invalid_messages_are_dropped_and_counted);
    tcase_add_test(tc, the_socket_is_private_and_leaves_with_its_owner);
    tcase_add_test(tc, a_dead_predecessors_socket_is_replaced);
    tcase_add_test(tc, e1d_a_second_listener_is_rejected_without_harm);
    tcase_add_test(tc, e1_connect_and_close_does_not_deafen_a_listener);
    tcase_add_test(tc, e1b_a_listener_that_hangs_up_in_the_handshake_is_dialed_again);
    tcase_add_test(tc, e1c_dialers_killed_early_do_not_deafen_a_listener);
    tcase_add_test(tc, e2_only_who_greets_is_taken);
    tcase_add_test(tc, a_stopped_peer_never_blocks_the_sender);
    tcase_add_test(tc, either_side_may_be_killed_and_come_back);
    tcase_add_test(tc, other_users_are_denied);
    tcase_add_test(tc, round_trip_time);
    suite_add_tcase(suite, tc);
    tc = tcase_create("kills");
    tcase_add_checked_fixture(tc, scratch_make, scratch_remove);
    tcase_add_loop_test(tc, peers_killed_amid_traffic_are_succeeded, 0, 2);
    suite_add_tcase(suite, tc);
    return run_suite(suite);
}
