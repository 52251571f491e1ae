/* SPDX-License-Identifier: Apache-2.0 */
/* Questions about prompts, without a connection and without compute: what is held for a client is
 * counted. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "procs/engine/gateway/dialects/openai/openai.h"
#include "procs/engine/gateway/serve/serve.h"

#define BODY "{\"messages\":[{\"role\":\"user\",\"content\":\"a long question\"}]}"

static struct gateway gateway;
static struct process row;
static struct exchange exchange;

/* ---- instead of the rest of the gateway ---- */

static struct {
    rpc_async_done *done;
    void *arg;
} call;
static enum error_code refused;

uint64_t rpc_async_call(struct rpc_async *c, const char *op, json_t *request, unsigned timeout_ms,
                        rpc_async_done *done, void *arg, struct error *error)
{
    (void)c, (void)op, (void)timeout_ms, (void)error;
    json_decref(request);
    call.done = done;
    call.arg = arg;
    return 1;
}

void rpc_async_forget(struct rpc_async *c, uint64_t ticket)
{
    (void)c, (void)ticket;
}

void exchange_error(struct exchange *x, const struct error *error, const char *param)
{
    (void)x, (void)param;
    refused = error->code;
}

void auth_share(struct exchange *x, struct MHD_Response *response)
{
    (void)x, (void)response;
}

int stream_may_start(const struct gateway *g, struct error *error)
{
    (void)g, (void)error;
    return 0;
}

struct api_limits stream_limits(struct gateway *g)
{
    return (struct api_limits){.prompt_bytes = 4096, .chat = &g->chat};
}

void stream_put_prompt(const struct api_request *r, struct engine_submit *out)
{
    engine_submit_defaults(out);
    out->prompt = r->prompt;
    out->prompt_bytes = r->prompt_bytes;
    out->special = r->special;
}

/* ---- tests ---- */

static void ask(const struct dialect *dialect, const char *body)
{
    gateway = (struct gateway){.http.quota.limit = 4096, .child = {.process = &row}};
    gateway.http.child = &gateway.child;
    exchange = (struct exchange){.magic = EXCHANGE_MAGIC,
                                 .http = &gateway.http,
                                 .gateway = &gateway,
                                 .dialect = dialect,
                                 .body.unvalidated = true};
    refused = ERR_NONE;
    buffer_add(&gateway.http.quota, &exchange.body, body, strlen(body));
    ask_start(&exchange);
}

static void check_counted(void)
{
    ck_assert_int_eq(refused, ERR_NONE);
    ck_assert(exchange.ready && exchange.sent_bytes > 0 && !exchange.ask);
    ck_assert_uint_eq(exchange.response_bytes, exchange.sent_bytes);
    ck_assert_uint_eq(gateway.http.quota.buffered, exchange.sent_bytes);
    ck_assert_uint_eq(gateway.http.quota.unvalidated, 0);
    MHD_destroy_response(exchange.ready);
}

/* With and without a call of compute. */
START_TEST(replies_are_counted)
{
    ask(&openai_template, BODY);
    check_counted();
    ask(&openai_detokenize, "{\"tokens\":[]}"); /* an empty text */
    check_counted();
    ask(&openai_tokenize, "{\"content\":\"a\"}");
    ck_assert_ptr_nonnull(exchange.ask);
    json_t *reply = json_pack("{s:[i, i]}", "ids", 1, 2);
    call.done(call.arg, reply, NULL);
    json_decref(reply);
    check_counted();
}
END_TEST

START_TEST(a_reply_without_space)
{
    ask(&openai_tokenize, "{\"content\":\"a\"}");
    ck_assert(quota_take(&gateway.http.quota,
                         gateway.http.quota.limit - gateway.http.quota.buffered, false));
    exchange.ask->buffered = 0; /* what the body gives back does not suffice */
    json_t *reply = json_pack("{s:[i, i]}", "ids", 1, 2);
    call.done(call.arg, reply, NULL);
    json_decref(reply);
    ck_assert_int_eq(refused, ERR_NO_MEMORY);
    ck_assert(!exchange.ready && !exchange.ask);
}
END_TEST

/* As streams are, when compute does not come back. */
START_TEST(all_are_refused)
{
    struct error error;
    ask(&openai_tokenize, "{\"content\":\"a\"}");
    error_set(&error, ERR_GONE, "no");
    asks_refuse(&gateway, &error);
    ck_assert(refused == ERR_GONE && !exchange.ask);
    ck_assert_uint_eq(gateway.http.quota.buffered, 0);
    refused = ERR_NONE;
    asks_refuse(&gateway, &error);
    ck_assert_int_eq(refused, ERR_NONE);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("ask");
    TCase *cases = tcase_create("ask");
    tcase_add_test(cases, replies_are_counted);
    tcase_add_test(cases, a_reply_without_space);
    tcase_add_test(cases, all_are_refused);
    suite_add_tcase(suite, cases);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
