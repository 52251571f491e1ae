/* SPDX-License-Identifier: Apache-2.0 */
/* Makes calls with an expected end, also in threads. */
#include "tests/unit/ipc/rpc/calls.h"

struct rpc_client *open_client(const char *path)
{
    struct error error;
    struct rpc_client *client = rpc_client_open(path, &error);
    ck_assert_msg(client != NULL, "%s", error.text);
    return client;
}

unsigned expect_reply(struct rpc_client *client, const char *op, json_t **out)
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

unsigned expect_error(struct rpc_client *client, const char *op, json_t *fields,
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

pid_t spawn_server(int *out, const char *mode, const char *path)
{
    char line[64];
    pid_t pid = spawn_peer(out, mode, path, NULL);
    read_line(*out, line, sizeof line);
    ck_assert_str_eq(line, "ready");
    return pid;
}

static void *call_run(void *arg)
{
    struct caller *caller = arg;
    caller->result = rpc_call(caller->client, caller->op, NULL, caller->timeout_ms, &caller->reply,
                              &caller->error);
    caller->ended_ns = clock_now_ns();
    return NULL;
}

void call_start(struct caller *caller, struct rpc_client *client, const char *op,
                unsigned timeout_ms)
{
    *caller = (struct caller){.client = client, .op = op, .timeout_ms = timeout_ms};
    ck_assert_int_eq(pthread_create(&caller->thread, NULL, call_run, caller), 0);
}

void call_end(struct caller *caller)
{
    pthread_join(caller->thread, NULL);
    ck_assert_msg(caller->result == 0, "%s", caller->error.text);
    json_decref(caller->reply);
}
