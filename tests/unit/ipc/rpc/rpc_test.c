/* SPDX-License-Identifier: Apache-2.0 */
/* Calls: replies, sizes, deadlines, ends, and many at once. */
#include "ipc/rpc/rpc.h"

#include <dirent.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ipc/endpoints.h"
#include "tests/unit/ipc/rpc/calls.h"

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

/* Ticks until the listener is opened again, or not, on a clock of its own. */
static uint64_t ticks(struct rpc_server *server, uint64_t now_ns, uint64_t seconds)
{
    for (uint64_t i = 0; i < 10 * seconds; i++, now_ns += 100 * NS_PER_MS)
        rpc_server_tick(server, now_ns);
    return now_ns;
}

/* A directory in place of the socket: the listener cannot be opened until it is gone. */
START_TEST(a_listener_that_stays_closed_is_reported)
{
    struct error error;
    struct rpc_server *server = rpc_server_open(scratch_path("s"), 4, &error);
    ck_assert_ptr_nonnull(server);
    uint64_t now_ns = ticks(server, clock_now_ns(), 1);
    ck_assert_int_eq(rpc_server_check(server, now_ns, &error), 0);
    unlink(scratch_path("s"));
    ck_assert_int_eq(mkdir(scratch_path("s"), 0700), 0);
    now_ns = ticks(server, now_ns, 8);
    ck_assert_int_eq(rpc_server_check(server, now_ns, &error), 0);
    now_ns = ticks(server, now_ns, 4);
    ck_assert_int_eq(rpc_server_check(server, now_ns, &error), -1);
    ck_assert_msg(strstr(error.text, "cannot listen on"), "%s", error.text);
    ck_assert_int_eq(rmdir(scratch_path("s")), 0);
    now_ns = ticks(server, now_ns, 2);
    ck_assert_int_eq(rpc_server_check(server, now_ns, &error), 0);
    rpc_server_close(server);
}
END_TEST

static unsigned threads_named(const char *name)
{
    unsigned found = 0;
    DIR *dir = opendir("/proc/self/task");
    ck_assert_ptr_nonnull(dir);
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        char path[300], text[32] = "";
        snprintf(path, sizeof path, "/proc/self/task/%s/comm", entry->d_name);
        FILE *f = fopen(path, "re");
        found += f && fgets(text, sizeof text, f) && strncmp(text, name, strlen(name)) == 0;
        if (f)
            fclose(f);
    }
    closedir(dir);
    return found;
}

static void *name_oneself(void *waiting)
{
    ck_assert_int_eq(pthread_setname_np(pthread_self(), "of itself"), 0);
    pthread_barrier_wait(waiting);
    pthread_barrier_wait(waiting);
    return NULL;
}

/* Files of threads in /proc make the end of a process expensive: NNG's poller, which another thread
 * would name, has no name of its own. All other threads have theirs. */
START_TEST(nngs_poller_has_no_name)
{
    struct host host = {0};
    pthread_barrier_t waiting;
    pthread_t thread;
    host_start(&host, scratch_path("s"), 1);
    struct rpc_client *client = open_client(scratch_path("s"));
    expect_reply(client, "echo", NULL);
    ck_assert_uint_gt(threads_named("nng:task"), 0);
    ck_assert_uint_eq(threads_named("nng:poll"), 0);
    pthread_barrier_init(&waiting, NULL, 2);
    ck_assert_int_eq(pthread_create(&thread, NULL, name_oneself, &waiting), 0);
    pthread_barrier_wait(&waiting);
    ck_assert_uint_eq(threads_named("of itself"), 1);
    ck_assert_int_eq(pthread_setname_np(thread, "by another"), 0);
    ck_assert_uint_eq(threads_named("by another"), 1);
    pthread_barrier_wait(&waiting);
    pthread_join(thread, NULL);
    pthread_barrier_destroy(&waiting);
    rpc_client_close(client);
    host_stop(&host);
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
    tcase_add_test(tc, calls_without_a_listener_fail_at_once);
    tcase_add_test(tc, a_watch_ends_a_hopeless_wait);
    tcase_add_test(tc, a_stopped_server_ends_in_a_timeout_on_time);
    tcase_add_test(tc, late_replies_are_ignored);
    tcase_add_test(tc, a_call_can_be_ended);
    tcase_add_test(tc, two_hundred_clients_wait_at_once);
    tcase_add_test(tc, calls_beyond_the_contexts_wait_their_turn);
    tcase_add_test(tc, a_reopened_listener_loses_no_call);
    tcase_add_test(tc, a_listener_that_stays_closed_is_reported);
    tcase_add_test(tc, nngs_poller_has_no_name);
    suite_add_tcase(suite, tc);
    suite_add_tcase(suite, peers_case());
    return run_suite_apart(suite);
}
