/* SPDX-License-Identifier: Apache-2.0 */
/* Asynchronous calls: many at once; each ends exactly once, by its reply, its deadline, or by being
 * forgotten. */
#include "ipc/rpc/async.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "tests/unit/ipc/support.h"

#define CALLS 16

struct ended {
    unsigned times;
    char text[16];
    struct error error;
};

static void on_end(void *arg, json_t *reply, const struct error *error)
{
    struct ended *e = arg;
    const char *text = json_string_value(json_object_get(reply, "text"));
    ck_assert((reply != NULL) == (error == NULL));
    e->times++;
    snprintf(e->text, sizeof e->text, "%s", text ? text : "");
    e->error = error ? *error : (struct error){.code = ERR_NONE};
}

static struct rpc_async *open_client(void)
{
    struct error error;
    struct rpc_async *client = rpc_async_open(scratch_path("s"), CALLS, &error);
    ck_assert_msg(client != NULL, "%s", error.text);
    return client;
}

static void step(struct rpc_async *client)
{
    struct pollfd fds[RPC_ASYNC_FDS];
    rpc_async_poll(client, fds);
    poll(fds, RPC_ASYNC_FDS, 5);
    rpc_async_tick(client, clock_now_ns());
}

static uint64_t call(struct rpc_async *client, const char *op, json_t *fields, unsigned ms,
                     struct ended *ended)
{
    struct error error = {.text = ""};
    *ended = (struct ended){0};
    uint64_t ticket = rpc_async_call(client, op, fields, ms, on_end, ended, &error);
    ck_assert_msg(ticket != 0, "%s", error.text);
    return ticket;
}

/* Calls made before the server listens are sent once it does. */
START_TEST(many_at_once)
{
    struct host host = {0};
    struct ended ended[CALLS];
    struct error error;
    struct rpc_async *client = open_client();
    for (int i = 0; i < CALLS; i++) {
        char text[16];
        snprintf(text, sizeof text, "%d", i);
        call(client, "echo", json_pack("{s:s}", "text", text), WAIT_LIMIT_MS, &ended[i]);
    }
    ck_assert_uint_eq(
        rpc_async_call(client, "echo", NULL, WAIT_LIMIT_MS, on_end, &ended[0], &error), 0);
    ck_assert_int_eq(error.code, ERR_UNAVAILABLE);
    host_start(&host, scratch_path("s"), 8);
    for (int i = 0; i < CALLS; i++)
        WAIT_FOR(ended[i].times > 0, step(client));
    for (int i = 0; i < CALLS; i++) {
        ck_assert_uint_eq(ended[i].times, 1);
        ck_assert_msg(ended[i].error.code == ERR_NONE, "%s", ended[i].error.text);
        ck_assert_int_eq(strtol(ended[i].text, NULL, 10), i);
    }
    rpc_async_close(client);
    host_stop(&host);
}
END_TEST

START_TEST(errors_and_deadlines)
{
    struct host host = {0};
    struct ended failed, late, never;
    host_start(&host, scratch_path("s"), 8);
    struct rpc_async *client = open_client();
    call(client, "fail", NULL, WAIT_LIMIT_MS, &failed);
    call(client, "late", json_pack("{s:i}", "wait_ms", 200), WAIT_LIMIT_MS, &late);
    call(client, "hold", NULL, 50, &never);
    WAIT_FOR(failed.times && late.times && never.times, step(client));
    ck_assert_int_ne(failed.error.code, ERR_NONE);
    ck_assert_int_eq(late.error.code, ERR_NONE);
    ck_assert_int_eq(never.error.code, ERR_TIMEOUT);
    atomic_store(&host.release, true); /* a reply after the deadline is dropped */
    struct ended after;
    call(client, "echo", NULL, WAIT_LIMIT_MS, &after);
    WAIT_FOR(after.times, step(client));
    ck_assert(failed.times == 1 && late.times == 1 && never.times == 1 && after.times == 1);
    rpc_async_close(client);
    host_stop(&host);
}
END_TEST

START_TEST(forgotten)
{
    struct host host = {0};
    struct ended gone, after;
    host_start(&host, scratch_path("s"), 8);
    struct rpc_async *client = open_client();
    uint64_t ticket = call(client, "late", json_pack("{s:i}", "wait_ms", 50), 1000, &gone);
    WAIT_FOR(atomic_load(&host.taken) == 1, step(client));
    rpc_async_forget(client, ticket);
    rpc_async_forget(client, ticket); /* also a ticket that has ended */
    rpc_async_forget(client, 0);
    call(client, "late", json_pack("{s:i}", "wait_ms", 100), WAIT_LIMIT_MS, &after);
    WAIT_FOR(after.times, step(client));
    ck_assert_uint_eq(gone.times, 0);
    ck_assert_uint_eq(rpc_async_repeated(client), 0);
    rpc_async_close(client);
    host_stop(&host);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("ipc async");
    TCase *t = tcase_create("calls");
    tcase_add_checked_fixture(t, scratch_make, scratch_remove);
    tcase_add_test(t, many_at_once);
    tcase_add_test(t, errors_and_deadlines);
    tcase_add_test(t, forgotten);
    suite_add_tcase(suite, t);
    return run_suite(suite);
}
