/* SPDX-License-Identifier: Apache-2.0 */
/* RPC with dying, stopped and hostile servers and clients. */
#include "ipc/rpc/rpc.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ipc/endpoints.h"
#include "ipc/rpc/json.h"
#include "lib/base/bytes.h"
#include "tests/unit/ipc/support.h"

#define CALL_MS 8000

static struct rpc_client *open_client(const char *path)
{
    struct error error;
    struct rpc_client *client = rpc_client_open(path, &error);
    ck_assert_msg(client != NULL, "%s", error.text);
    return client;
}

/* Duration of a successful call in milliseconds. */
static unsigned expect_reply(struct rpc_client *client, const char *op, json_t **out)
{
    struct error error;
    json_t *reply;
    uint64_t start = clock_now_ns();
    int result = rpc_call(client, op, NULL, CALL_MS, &reply, &error);
    ck_assert_msg(result == 0, "%s: %s", op, error.text);
    if (out)
        *out = reply;
    else
        json_decref(reply);
    return (unsigned)((clock_now_ns() - start) / NS_PER_MS);
}

static unsigned expect_error(struct rpc_client *client, const char *op, json_t *fields,
                             unsigned timeout_ms, enum error_code code)
{
    struct error error = {0};
    json_t *reply;
    uint64_t start = clock_now_ns();
    ck_assert_int_eq(rpc_call(client, op, fields, timeout_ms, &reply, &error), -1);
    ck_assert_msg(error.code == code, "%s instead of %s: %s", error_name(error.code),
                  error_name(code), error.text);
    return (unsigned)((clock_now_ns() - start) / NS_PER_MS);
}

static pid_t spawn_server(int *out, const char *mode, const char *path)
{
    char line[64];
    pid_t pid = spawn_peer(out, mode, path, NULL);
    read_line(*out, line, sizeof line);
    ck_assert_str_eq(line, "ready");
    return pid;
}

START_TEST(calls_get_replies)
{
    struct host host = {0};
    struct stat st;
    host_start(&host, scratch_path("s"), 8);
    struct rpc_client *client = open_client(scratch_path("s"));
    json_t *reply;
    struct error error;
    ck_assert_int_eq(
        rpc_call(client, "echo", json_pack("{s:s}", "text", "h\xc3\xa9"), CALL_MS, &reply, &error),
        0);
    ck_assert_str_eq(json_string_value(json_object_get(reply, "text")), "h\xc3\xa9");
    json_decref(reply);
    expect_reply(client, "ping", NULL);
    expect_error(client, "fail", NULL, CALL_MS, ERR_BUSY);
    expect_error(client, "Bad Op", NULL, CALL_MS, ERR_BAD_INPUT);
    for (int i = 0; i < 500; i++)
        expect_reply(client, "echo", NULL);
    struct rpc_server_stats stats = host_stats(&host);
    ck_assert_uint_eq(stats.requests, 502); /* pings and malformed requests are not counted */
    ck_assert_uint_eq(stats.replies, 502);
    ck_assert_uint_eq(stats.rejected, 1);
    ck_assert_uint_eq(stats.relistens, 0);
    ck_assert_int_eq(stat(scratch_path("s"), &st), 0);
    ck_assert_uint_eq(st.st_mode & 07777, 0600);
    rpc_client_close(client);
    host_stop(&host);
}
END_TEST

START_TEST(calls_over_the_size_limit_are_rejected)
{
    struct host host = {0};
    host_start(&host, scratch_path("s"), 8);
    struct rpc_client *client = open_client(scratch_path("s"));
    char *text = malloc(RPC_BYTES_MAX + 1);
    json_t *reply;
    struct error error;
    memset(text, 'x', RPC_BYTES_MAX);
    text[RPC_BYTES_MAX - 256] = 0;
    int result =
        rpc_call(client, "echo", json_pack("{s:s}", "text", text), CALL_MS, &reply, &error);
    ck_assert_msg(result == 0, "%s", error.text);
    ck_assert_str_eq(json_string_value(json_object_get(reply, "text")), text);
    json_decref(reply);
    text[RPC_BYTES_MAX - 256] = 'x';
    text[RPC_BYTES_MAX] = 0;
    expect_error(client, "echo", json_pack("{s:s}", "text", text), CALL_MS, ERR_BAD_INPUT);
    expect_reply(client, "echo", NULL);
    free(text);
    rpc_client_close(client);
    host_stop(&host);
}
END_TEST

/* The corpus of malformed requests over a socket. Each gets an error reply; none reaches the
 * handler. */
START_TEST(malformed_requests_get_bad_input)
{
    static const char *const corpus[] = {
        "",
        " ",
        "null",
        "[]",
        "{",
        "{}",
        "{\"v\":1}",
        "}}}}",
        "\"",
        "\xff\xfe",
        "{\"a\":1,\"a\":1}",
        "{\"v\":1,\"id\":\"0123456789abcdef\",\"op\":\"x\",\"a\":1e999}",
        "{\"v\":1,\"id\":\"0123456789abcdef\",\"op\":\"x\",\"a\":99999999999999999999}",
        "{\"v\":1,\"id\":\"0123456789abcdef\",\"op\":\"x\",\"a\":\"\\u0000\"}",
        "{\"v\":1,\"id\":\"0123456789abcdef\",\"op\":\"x\",\"op\":\"y\"}",
        "{\"v\":1,\"id\":\"0123456789abcdef\",\"op\":\"x\",\"a\":\"\x80\"}",
    };
    struct host host = {0};
    host_start(&host, scratch_path("s"), 8);
    int fd = raw_connect(scratch_path("s"));
    ck_assert_int_eq(raw_handshake(fd, SP_REQ0), 0);
    static char raw_reply[1024], deep[RPC_BYTES_MAX];
    memset(deep, '[', sizeof deep);
    for (unsigned i = 0; i <= ARRAY_LEN(corpus); i++) {
        if (i < ARRAY_LEN(corpus))
            raw_request(fd, corpus[i], strlen(corpus[i]));
        else
            raw_request(fd, deep, sizeof deep);
        ssize_t n = raw_read_frame(fd, raw_reply, sizeof raw_reply - 1);
        ck_assert_int_gt(n, 4);
        raw_reply[n] = 0;
        ck_assert_ptr_nonnull(strstr(raw_reply + 4, "\"ok\":false"));
        ck_assert_ptr_nonnull(strstr(raw_reply + 4, "\"bad_input\""));
    }
    ck_assert_uint_eq(host_stats(&host).rejected, ARRAY_LEN(corpus) + 1);
    ck_assert_uint_eq(atomic_load(&host.taken), 0);
    close(fd);
    host_stop(&host);
}
END_TEST

START_TEST(e1_connect_and_close_does_not_deafen_a_service)
{
    static const unsigned times[] = {1, 1000};
    struct host host = {0};
    host_start(&host, scratch_path("s"), 8);
    struct rpc_client *old = open_client(scratch_path("s"));
    expect_reply(old, "echo", NULL);
    for (unsigned i = 0; i < ARRAY_LEN(times); i++) {
        raw_connect_and_close(scratch_path("s"), times[i]);
        struct rpc_client *client = open_client(scratch_path("s"));
        unsigned took = expect_reply(client, "echo", NULL);
        printf("service answered %u ms after %u hang-ups\n", took, times[i]);
        ck_assert_uint_lt(took, 4000);
        expect_reply(old, "echo", NULL);
        rpc_client_close(client);
    }
    rpc_client_close(old);
    host_stop(&host);
}
END_TEST

START_TEST(e1b_a_server_that_hangs_up_in_the_handshake_is_dialed_again)
{
    int listener = raw_listen(scratch_path("s"));
    struct rpc_client *client = open_client(scratch_path("s"));
    int fd = accept(listener, NULL, NULL);
    close(fd);
    close(listener);
    unlink(scratch_path("s"));
    int out;
    pid_t pid = spawn_server(&out, "rpc-echo", scratch_path("s"));
    ck_assert_uint_lt(expect_reply(client, "echo", NULL), 3000);
    close(out);
    kill_peer(pid);
    rpc_client_close(client);
}
END_TEST

START_TEST(e1c_clients_killed_early_do_not_deafen_a_service)
{
    struct host host = {0};
    host_start(&host, scratch_path("s"), 64);
    for (unsigned i = 0; i < 40; i++) {
        pid_t pid = spawn_peer(NULL, "rpc-client", scratch_path("s"), NULL);
        let_run(pid, i * 200);
        kill_peer(pid);
    }
    struct rpc_client *client = open_client(scratch_path("s"));
    ck_assert_uint_lt(expect_reply(client, "echo", NULL), 4000);
    rpc_client_close(client);
    host_stop(&host);
}
END_TEST

START_TEST(e1d_a_second_server_is_rejected_without_harm)
{
    struct host host = {0};
    struct error error;
    host_start(&host, scratch_path("s"), 8);
    struct rpc_client *client = open_client(scratch_path("s"));
    expect_reply(client, "echo", NULL);
    for (int i = 0; i < 10; i++) {
        ck_assert_ptr_null(rpc_server_open(scratch_path("s"), 8, &error));
        ck_assert_int_eq(error.code, ERR_BUSY);
    }
    struct rpc_client *other = open_client(scratch_path("s"));
    ck_assert_uint_lt(expect_reply(other, "echo", NULL), 1000);
    expect_reply(client, "echo", NULL);
    ck_assert_uint_eq(host_stats(&host).relistens, 0);
    rpc_client_close(other);
    rpc_client_close(client);
    host_stop(&host);
}
END_TEST

START_TEST(e2_hostile_lengths_and_garbage)
{
    static const uint64_t lengths[] = {
        RPC_BYTES_MAX + 65, 3 * MIB, GIB, (uint64_t)1 << 62, UINT64_MAX - 31, UINT64_MAX,
    };
    static unsigned char big[3 * MIB];
    struct host host = {0};
    host_start(&host, scratch_path("s"), 8);
    struct rpc_client *client = open_client(scratch_path("s"));
    expect_reply(client, "echo", NULL);
    for (unsigned i = 0; i < ARRAY_LEN(lengths); i++) {
        int fd = raw_connect(scratch_path("s"));
        ck_assert_int_eq(raw_handshake(fd, SP_REQ0), 0);
        raw_frame(fd, lengths[i], big, lengths[i] == sizeof big ? sizeof big : 64);
        raw_expect_end(fd);
        expect_reply(client, "echo", NULL);
    }
    /* Frames without the request number, with an endless backtrace, or of the wrong protocol. */
    static const unsigned char zeros[256];
    for (size_t n = 0; n <= 64; n += 2) {
        int fd = raw_connect(scratch_path("s"));
        ck_assert_int_eq(raw_handshake(fd, SP_REQ0), 0);
        raw_frame(fd, n, zeros, n);
        close(fd);
    }
    int fd = raw_connect(scratch_path("s"));
    raw_handshake(fd, SP_PAIR0);
    raw_expect_end(fd);
    expect_reply(client, "echo", NULL);
    fd = raw_connect(scratch_path("s"));
    ck_assert_int_eq(send(fd, "GET / HTTP/1.1\r\n\r\n", 18, MSG_NOSIGNAL), 18);
    raw_expect_end(fd); /* a failed handshake makes an NNG 1.5.2 listener unresponsive */
    struct rpc_client *other = open_client(scratch_path("s"));
    ck_assert_uint_lt(expect_reply(other, "echo", NULL), 4000);
    rpc_client_close(other);
    rpc_client_close(client);
    host_stop(&host);
}
END_TEST

struct caller {
    pthread_t thread;
    struct rpc_client *client;
    const char *op;
    unsigned timeout_ms;
    int result;
    json_t *reply;
    struct error error;
    uint64_t ended_ns;
};

static void *call_run(void *arg)
{
    struct caller *caller = arg;
    caller->result = rpc_call(caller->client, caller->op, NULL, caller->timeout_ms, &caller->reply,
                              &caller->error);
    caller->ended_ns = clock_now_ns();
    return NULL;
}

static void call_start(struct caller *caller, struct rpc_client *client, const char *op,
                       unsigned timeout_ms)
{
    *caller = (struct caller){.client = client, .op = op, .timeout_ms = timeout_ms};
    ck_assert_int_eq(pthread_create(&caller->thread, NULL, call_run, caller), 0);
}

static void call_end(struct caller *caller)
{
    pthread_join(caller->thread, NULL);
    ck_assert_msg(caller->result == 0, "%s", caller->error.text);
    json_decref(caller->reply);
}

START_TEST(e6_a_call_is_retried_with_the_same_id_after_the_server_is_killed)
{
    int out_a, out_b;
    char id_a[64], id_b[64];
    struct caller caller;
    pid_t a = spawn_server(&out_a, "rpc-mute", scratch_path("s"));
    struct rpc_client *client = open_client(scratch_path("s"));
    call_start(&caller, client, "work", CALL_MS);
    read_line(out_a, id_a, sizeof id_a); /* the server has received the request */
    kill_peer(a);
    pid_t b = spawn_server(&out_b, "rpc-echo", scratch_path("s"));
    read_line(out_b, id_b, sizeof id_b);
    ck_assert_str_eq(id_a, id_b);
    call_end(&caller);

    /* The server is killed between two calls and restarted only during the next one. */
    for (int i = 0; i < 4; i++) {
        kill_peer(b);
        close(out_b);
        call_start(&caller, client, "work", CALL_MS);
        b = spawn_server(&out_b, "rpc-echo", scratch_path("s"));
        call_end(&caller);
    }
    kill_peer(b);
    close(out_a);
    close(out_b);
    rpc_client_close(client);
}
END_TEST

START_TEST(calls_without_a_listener_fail_at_once)
{
    int out;
    struct error error;
    struct rpc_client *client = open_client(scratch_path("never"));
    ck_assert_uint_lt(expect_error(client, "ping", NULL, CALL_MS, ERR_GONE), 500);
    rpc_client_close(client);
    client = open_client(scratch_path("no-directory/s"));
    ck_assert_uint_lt(expect_error(client, "ping", NULL, CALL_MS, ERR_GONE), 500);
    rpc_client_close(client);

    /* A socket without a process may mean a restart: the call waits until its deadline ... */
    kill_peer(spawn_server(&out, "rpc-echo", scratch_path("s")));
    close(out);
    client = open_client(scratch_path("s"));
    unsigned took = expect_error(client, "ping", NULL, 600, ERR_GONE);
    ck_assert(took >= 600 && took < 2000);
    /* ... but fails at once when the lock of the run directory is free: no engine is running. */
    int lock = run_dir_lock(scratch, 0, &error);
    took = expect_error(client, "ping", NULL, 600, ERR_GONE);
    ck_assert_uint_ge(took, 600);
    close(lock);
    ck_assert_uint_lt(expect_error(client, "ping", NULL, CALL_MS, ERR_GONE), 600);
    rpc_client_close(client);
}
END_TEST

static int crash_loops(void *arg, struct error *error)
{
    (*(unsigned *)arg)++;
    return error_set(error, ERR_UNAVAILABLE, "it crashes");
}

/* A watch ends a call that waits for a server, and none that has a connection. */
START_TEST(a_watch_ends_a_hopeless_wait)
{
    int out;
    unsigned watched = 0;
    pid_t server = spawn_server(&out, "rpc-echo", scratch_path("s"));
    struct rpc_client *client = open_client(scratch_path("s"));
    rpc_client_set_watch(client, crash_loops, &watched);
    expect_reply(client, "ping", NULL);
    ck_assert_uint_eq(watched, 0);
    kill_peer(server);
    close(out);
    ck_assert_uint_lt(expect_error(client, "ping", NULL, CALL_MS, ERR_UNAVAILABLE), 2000);
    ck_assert_uint_eq(watched, 1);
    rpc_client_close(client);
}
END_TEST

START_TEST(a_stopped_server_ends_in_a_timeout_on_time)
{
    int out;
    pid_t pid = spawn_server(&out, "rpc-echo", scratch_path("s"));
    struct rpc_client *client = open_client(scratch_path("s"));
    expect_reply(client, "echo", NULL);
    kill(pid, SIGSTOP);
    unsigned took = expect_error(client, "echo", NULL, 700, ERR_TIMEOUT);
    ck_assert_msg(took >= 700 && took < 2000, "%u ms", took);
    kill(pid, SIGCONT);
    expect_reply(client, "echo",
                 NULL); /* the late reply to the first call is not taken for the second */
    kill_peer(pid);
    close(out);
    rpc_client_close(client);
}
END_TEST

START_TEST(late_replies_are_ignored)
{
    struct host host = {0};
    json_t *reply;
    host_start(&host, scratch_path("s"), 8);
    struct rpc_client *client = open_client(scratch_path("s"));
    expect_reply(client, "echo", NULL);
    for (int i = 0; i < 5; i++) {
        expect_error(client, "late", json_pack("{s:i}", "wait_ms", 150), 50, ERR_TIMEOUT);
        expect_reply(client, "echo", &reply);
        ck_assert_str_eq(json_string_value(json_object_get(reply, "op")), "echo");
        json_decref(reply);
    }
    rpc_client_close(client);
    host_stop(&host);
}
END_TEST

START_TEST(a_call_can_be_ended)
{
    struct host host = {0};
    struct caller caller;
    volatile int stop = 0;
    host_start(&host, scratch_path("s"), 8);
    struct rpc_client *client = open_client(scratch_path("s"));
    rpc_client_set_stop(client, &stop);
    call_start(&caller, client, "hold", CALL_MS);
    WAIT_FOR(atomic_load(&host.deferred) == 1, 0);
    uint64_t start = clock_now_ns();
    __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
    pthread_join(caller.thread, NULL);
    ck_assert_int_eq(caller.result, -1);
    ck_assert_int_eq(caller.error.code, ERR_CANCELLED);
    ck_assert_uint_lt(caller.ended_ns - start, 500 * NS_PER_MS);
    rpc_client_set_stop(client, NULL);
    expect_reply(client, "echo", NULL);
    rpc_client_close(client);
    host_stop(&host); /* with the deferred request pending */
}
END_TEST

START_TEST(two_hundred_clients_wait_at_once)
{
    enum { CLIENTS = 200 };
    static struct caller callers[CLIENTS];
    static struct rpc_client *clients[CLIENTS];
    struct host host = {0};
    host_start(&host, scratch_path("s"), RPC_CONTEXTS_MAX);
    uint64_t start = clock_now_ns();
    for (int i = 0; i < CLIENTS; i++) {
        clients[i] = open_client(scratch_path("s"));
        call_start(&callers[i], clients[i], "hold", WAIT_LIMIT_MS);
    }
    WAIT_FOR(atomic_load(&host.deferred) >= CLIENTS, 0);
    printf("%d long polls held after %lu ms\n", CLIENTS,
           (unsigned long)((clock_now_ns() - start) / NS_PER_MS));
    struct rpc_client *client = open_client(scratch_path("s"));
    expect_reply(client, "echo", NULL);
    atomic_store(&host.release, true);
    for (int i = 0; i < CLIENTS; i++)
        call_end(&callers[i]);
    ck_assert_uint_eq(host_stats(&host).relistens, 0);
    for (int i = 0; i < CLIENTS; i++)
        rpc_client_close(clients[i]);
    rpc_client_close(client);
    host_stop(&host);
}
END_TEST

START_TEST(calls_beyond_the_contexts_wait_their_turn)
{
    enum { CLIENTS = 5 };
    struct caller callers[CLIENTS];
    struct rpc_client *clients[CLIENTS];
    struct host host = {0};
    host_start(&host, scratch_path("s"), 2);
    for (int i = 0; i < CLIENTS; i++) {
        clients[i] = open_client(scratch_path("s"));
        call_start(&callers[i], clients[i], "hold", CALL_MS);
    }
    WAIT_FOR(atomic_load(&host.deferred) == 2, 0);
    /* The self-probe needs no context: a service whose requests all wait is not taken for
     * unresponsive. */
    uint64_t until = clock_now_ns() + 2 * NS_PER_S;
    WAIT_FOR(clock_now_ns() > until, 0);
    ck_assert_uint_eq(host_stats(&host).relistens, 0);
    ck_assert_uint_eq(atomic_load(&host.taken), 2);
    atomic_store(&host.release, true);
    for (int i = 0; i < CLIENTS; i++) {
        call_end(&callers[i]);
        rpc_client_close(clients[i]);
    }
    host_stop(&host);
}
END_TEST

START_TEST(a_reopened_listener_loses_no_call)
{
    enum { CLIENTS = 8 };
    struct caller callers[CLIENTS];
    struct rpc_client *clients[CLIENTS];
    struct host host = {0};
    host_start(&host, scratch_path("s"), 64);
    for (int i = 0; i < CLIENTS; i++) {
        clients[i] = open_client(scratch_path("s"));
        call_start(&callers[i], clients[i], "hold", WAIT_LIMIT_MS);
    }
    WAIT_FOR(atomic_load(&host.deferred) == CLIENTS, 0);
    unlink(scratch_path("s")); /* clients cannot connect any more; the self-probe detects it */
    WAIT_FOR(atomic_load(&host.taken) >= 2 * CLIENTS, 0); /* every call was retried */
    atomic_store(&host.release, true);
    for (int i = 0; i < CLIENTS; i++) {
        call_end(&callers[i]);
        rpc_client_close(clients[i]);
    }
    ck_assert_uint_eq(host_stats(&host).relistens, 1);
    host_stop(&host);
}
END_TEST

/* Sends a reply with this request number. */
static void raw_reply(int fd, const unsigned char number[4], const char *text, size_t bytes)
{
    unsigned char *frame = malloc(bytes + 4);
    memcpy(frame, number, 4);
    memcpy(frame + 4, text, bytes);
    raw_frame(fd, bytes + 4, frame, bytes + 4);
    free(frame);
}

START_TEST(malformed_replies_are_ignored)
{
    static const char *const broken[] = {
        "",
        "{",
        "[]",
        "{}",
        "\xff",
        "{\"v\":1,\"id\":\"0123456789abcdef\",\"ok\":true}",
        "{\"v\":1,\"v\":1}",
    };
    static char request[1024], text[256];
    struct caller caller;
    int listener = raw_listen(scratch_path("s"));
    struct rpc_client *client = open_client(scratch_path("s"));
    call_start(&caller, client, "work", CALL_MS);
    int fd = accept(listener, NULL, NULL);
    ck_assert_int_eq(raw_handshake(fd, SP_REP0), 0);
    ssize_t n = raw_read_frame(fd, request, sizeof request);
    ck_assert_int_gt(n, 4);
    unsigned char number[4], other[4];
    memcpy(number, request, 4);
    memcpy(other, request, 4);
    other[3] ^= 1;
    json_t *body;
    ck_assert_int_eq(rpc_request_parse(request + 4, (size_t)n - 4, &body, NULL), 0);
    int good = snprintf(text, sizeof text, "{\"v\":1,\"id\":\"%s\",\"ok\":true}",
                        json_string_value(json_object_get(body, "id")));
    json_decref(body);
    for (unsigned i = 0; i < ARRAY_LEN(broken); i++)
        raw_reply(fd, number, broken[i], strlen(broken[i]));
    raw_reply(fd, other, text, (size_t)good);
    raw_reply(fd, number, text, (size_t)good);
    call_end(&caller);
    /* A reply that is too long, or has no number, ends the connection but not the client. */
    call_start(&caller, client, "work", CALL_MS);
    ck_assert_int_gt(raw_read_frame(fd, request, sizeof request), 4);
    raw_frame(fd, UINT64_MAX - 31, "x", 1);
    raw_expect_end(fd);
    fd = accept(listener, NULL, NULL);
    ck_assert_int_eq(raw_handshake(fd, SP_REP0), 0);
    ck_assert_int_gt(raw_read_frame(fd, request, sizeof request), 4);
    raw_frame(fd, 2, "xx", 2);
    raw_expect_end(fd);
    close(listener);
    unlink(scratch_path("s"));
    int out;
    pid_t pid = spawn_server(&out, "rpc-echo", scratch_path("s"));
    call_end(&caller);
    kill_peer(pid);
    close(out);
    rpc_client_close(client);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("ipc rpc");
    TCase *tc = tcase_create("rpc");
    tcase_set_timeout(tc, 60);
    tcase_add_checked_fixture(tc, scratch_make, scratch_remove);
    tcase_add_test(tc, calls_get_replies);
    tcase_add_test(tc, calls_over_the_size_limit_are_rejected);
    tcase_add_test(tc, malformed_requests_get_bad_input);
    tcase_add_test(tc, e1_connect_and_close_does_not_deafen_a_service);
    tcase_add_test(tc, e1b_a_server_that_hangs_up_in_the_handshake_is_dialed_again);
    tcase_add_test(tc, e1c_clients_killed_early_do_not_deafen_a_service);
    tcase_add_test(tc, e1d_a_second_server_is_rejected_without_harm);
    tcase_add_test(tc, e2_hostile_lengths_and_garbage);
    tcase_add_test(tc, e6_a_call_is_retried_with_the_same_id_after_the_server_is_killed);
    tcase_add_test(tc, calls_without_a_listener_fail_at_once);
    tcase_add_test(tc, a_watch_ends_a_hopeless_wait);
    tcase_add_test(tc, a_stopped_server_ends_in_a_timeout_on_time);
    tcase_add_test(tc, late_replies_are_ignored);
    tcase_add_test(tc, a_call_can_be_ended);
    tcase_add_test(tc, two_hundred_clients_wait_at_once);
    tcase_add_test(tc, calls_beyond_the_contexts_wait_their_turn);
    tcase_add_test(tc, a_reopened_listener_loses_no_call);
    tcase_add_test(tc, malformed_replies_are_ignored);
    suite_add_tcase(suite, tc);
    return run_suite_apart(suite);
}
