/* SPDX-License-Identifier: Apache-2.0 */
/* RPC with dying and hostile servers and clients. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "ipc/rpc/json.h"
#include "lib/base/bytes.h"
#include "tests/unit/ipc/rpc/calls.h"

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
        "{\"v\":1,\"id\":\"0123456789abcdef\",\"op\":\"x\\u0000\",\"a\":1}",
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

TCase *peers_case(void)
{
    TCase *tc = tcase_create("peers");
    tcase_set_timeout(tc, 60);
    tcase_add_checked_fixture(tc, scratch_make, scratch_remove);
    tcase_add_test(tc, malformed_requests_get_bad_input);
    tcase_add_test(tc, e1_connect_and_close_does_not_deafen_a_service);
    tcase_add_test(tc, e1b_a_server_that_hangs_up_in_the_handshake_is_dialed_again);
    tcase_add_test(tc, e1c_clients_killed_early_do_not_deafen_a_service);
    tcase_add_test(tc, e1d_a_second_server_is_rejected_without_harm);
    tcase_add_test(tc, e2_hostile_lengths_and_garbage);
    tcase_add_test(tc, e6_a_call_is_retried_with_the_same_id_after_the_server_is_killed);
    tcase_add_test(tc, malformed_replies_are_ignored);
    return tc;
}
