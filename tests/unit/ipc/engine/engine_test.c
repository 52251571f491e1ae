/* SPDX-License-Identifier: Apache-2.0 */
/* The client stubs of the engine's calls against a server that uses the parsers and builders of the
 * engine. */
#include "ipc/engine/engine_client.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ipc/endpoints.h"
#include "lib/base/bytes.h"
#include "tests/unit/ipc/support.h"

/* The last request the server received, and its next reply. */
struct engine {
    char key[ENGINE_KEY_BYTES_MAX + 1], prompt[64], client[64];
    uint32_t ids[8];
    size_t forced_count, ranges;
    struct engine_submit submit;
    struct engine_next next;
    uint64_t from, cancelled;
    unsigned wait_ms;
};

static void submit(struct host *host, struct rpc_request *request, struct engine *engine)
{
    struct error error;
    struct engine_submit s;
    if (engine_submit_parse(request->body, &s, &error) != 0) {
        rpc_reply_error(host->server, request, &error);
    } else {
        memcpy(engine->key, s.request_key, strlen(s.request_key) + 1);
        if (s.prompt && s.prompt_bytes < sizeof engine->prompt)
            memcpy(engine->prompt, s.prompt, s.prompt_bytes + 1);
        if (s.prompt_ids && s.prompt_ids_count <= ARRAY_LEN(engine->ids))
            memcpy(engine->ids, s.prompt_ids, s.prompt_ids_count * sizeof s.prompt_ids[0]);
        snprintf(engine->client, sizeof engine->client, "%s", s.client ? s.client : "");
        engine->submit = s;
        engine->forced_count = s.forced_count;
        engine->ranges = s.special.count;
        rpc_reply(host->server, request, engine_submit_reply(4711, 3));
    }
    engine_submit_parsed_free(&s);
}

static void handle(struct host *host, struct rpc_request *request)
{
    struct engine *engine = host->arg;
    struct error error;
    uint64_t id;
    if (strcmp(request->op, "submit") == 0) {
        submit(host, request, engine);
    } else if (strcmp(request->op, "next") == 0) {
        if (engine_next_parse(request->body, &id, &engine->from, &engine->wait_ms, &error) != 0)
            rpc_reply_error(host->server, request, &error);
        else
            rpc_reply(host->server, request, engine_next_reply(&engine->next));
    } else if (strcmp(request->op, "cancel") == 0) {
        if (engine_cancel_parse(request->body, &engine->cancelled, &error) != 0)
            rpc_reply_error(host->server, request, &error);
        else
            rpc_reply(host->server, request, NULL);
    } else {
        error_set(&error, ERR_NOT_FOUND, "no call %s", request->op);
        rpc_reply_error(host->server, request, &error);
    }
}

static struct engine engine;
static struct host host;
static struct rpc_client *client;
static int lock;

static void set_up(void)
{
    char dir[ENDPOINT_BYTES], path[ENDPOINT_BYTES];
    struct error error;
    scratch_make();
    setenv("SLUICE_RUN_DIR", scratch, 1);
    ck_assert_int_eq(run_dir_path("t", dir, &error), 0);
    ck_assert_int_eq(run_dir_create(dir, &error), 0);
    lock = run_dir_lock(dir, 0, &error);
    ck_assert_int_eq(endpoint_path(dir, ENDPOINT_ENGINE, 0, path, &error), 0);
    memset(&engine, 0, sizeof engine);
    memset(&host, 0, sizeof host);
    host.handler = handle;
    host.arg = &engine;
    host_start(&host, path, 8);
    client = engine_client_open("t", &error);
    ck_assert_msg(client != NULL, "%s", error.text);
}

static void tear_down(void)
{
    rpc_client_close(client);
    host_stop(&host);
    close(lock);
    unlink(scratch_path("t/lock"));
    unlink(scratch_path("t/engine.sock"));
    scratch_remove();
    ck_assert_int_ne(access(scratch, F_OK), 0);
}

START_TEST(submits_arrive_as_they_were)
{
    struct error error;
    struct engine_submit s;
    uint64_t id;
    engine_submit_defaults(&s);
    s.prompt = "one\ntwo \xf0\x9f\x98\x80";
    s.prompt_bytes = strlen(s.prompt);
    s.request_key = "key-1";
    s.client = "127.0.0.1 /v1/messages";
    s.max_tokens = 9;
    s.ignore_eos = s.score_prompt = true;
    s.logprobs = 3;
    s.sampling.temperature = 0.1 + 0.2; /* must be the same double after the round trip */
    s.sampling.seed = INT64_MAX;
    ck_assert_msg(engine_submit(client, &s, &id, &error) == 0, "%s", error.text);
    ck_assert_uint_eq(id, 4711);
    ck_assert_str_eq(engine.key, "key-1");
    ck_assert_str_eq(engine.prompt, s.prompt);
    ck_assert_str_eq(engine.client, s.client);
    ck_assert_int_eq(engine.submit.max_tokens, 9);
    ck_assert_int_eq(engine.submit.logprobs, 3);
    ck_assert(engine.submit.ignore_eos && engine.submit.score_prompt);
    ck_assert_uint_eq(engine.submit.special.count, 0);
    ck_assert_double_eq(engine.submit.sampling.temperature, 0.1 + 0.2);
    ck_assert_int_eq(engine.submit.sampling.seed, INT64_MAX);

    const uint32_t ids[] = {5, 0, INT32_MAX};
    s.prompt = NULL;
    s.prompt_ids = ids;
    s.prompt_ids_count = 3;
    s.score_prompt = false;
    s.forced = ids;
    s.forced_count = 3;
    s.request_key = NULL; /* the stub generates one */
    ck_assert_int_eq(engine_submit(client, &s, &id, &error), 0);
    ck_assert_int_eq(memcmp(engine.ids, ids, sizeof ids), 0);
    ck_assert_uint_eq(strlen(engine.key), 32);
    ck_assert_uint_eq(engine.forced_count, 3);
}
END_TEST

START_TEST(bad_submits_are_rejected_by_either_end)
{
    struct error error;
    struct engine_submit s;
    uint64_t id;
    char *text = malloc(ENGINE_PROMPT_BYTES_MAX + 1);
    memset(text, '\\', ENGINE_PROMPT_BYTES_MAX + 1);
    engine_submit_defaults(&s);
    s.prompt = text;
    s.prompt_bytes = ENGINE_PROMPT_BYTES_MAX + 1;
    ck_assert_int_eq(engine_submit(client, &s, &id, &error), -1);
    ck_assert_int_eq(error.code, ERR_BAD_INPUT);
    s.prompt_bytes--;
    ck_assert_msg(engine_submit(client, &s, &id, &error) == 0, "%s", error.text);
    ck_assert_uint_eq(engine.submit.prompt_bytes, ENGINE_PROMPT_BYTES_MAX);
    s.prompt = "\xff";
    s.prompt_bytes = 1;
    ck_assert_int_eq(engine_submit(client, &s, &id, &error), -1);
    ck_assert_int_eq(error.code, ERR_BAD_INPUT);
    s.prompt = "x";
    s.sampling.top_p = 7;
    ck_assert_int_eq(engine_submit(client, &s, &id, &error), -1);
    ck_assert_int_eq(error.code, ERR_BAD_INPUT);
    ck_assert_ptr_nonnull(strstr(error.text, "top_p"));
    s.sampling.top_p = 1;
    static const char *const clients[] = {
        "two\nlines", "h\xc3\xa9",
        "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"};
    for (size_t i = 0; i < ARRAY_LEN(clients); i++) {
        s.client = clients[i];
        ck_assert_int_eq(engine_submit(client, &s, &id, &error), -1);
        ck_assert_ptr_nonnull(strstr(error.text, "client must be"));
    }
    free(text);
}
END_TEST

/* The most ranges, written as long as they can be, in the longest prompt, of which each byte is
 * escaped: one call carries them. */
START_TEST(many_ranges_arrive)
{
    struct error error;
    struct engine_submit s;
    struct text_ranges ranges = {0};
    uint64_t id;
    size_t from = ENGINE_PROMPT_BYTES_MAX - 2 * (ENGINE_RANGES_MAX + 1);
    char *text = malloc(ENGINE_PROMPT_BYTES_MAX);
    memset(text, '\\', ENGINE_PROMPT_BYTES_MAX);
    engine_submit_defaults(&s);
    s.prompt = text;
    s.prompt_bytes = ENGINE_PROMPT_BYTES_MAX;
    for (size_t i = 0; i < ENGINE_RANGES_MAX; i++)
        ck_assert_int_eq(text_ranges_add(&ranges, from + 2 * i, from + 2 * i + 1), 0);
    s.special = ranges;
    ck_assert_msg(engine_submit(client, &s, &id, &error) == 0, "%s", error.text);
    ck_assert_uint_eq(engine.ranges, ENGINE_RANGES_MAX);
    ck_assert_int_eq(text_ranges_add(&ranges, ENGINE_PROMPT_BYTES_MAX - 1, ENGINE_PROMPT_BYTES_MAX),
                     0);
    s.special = ranges;
    ck_assert_int_eq(engine_submit(client, &s, &id, &error), -1);
    ck_assert_msg(error.code == ERR_BAD_INPUT && strstr(error.text, "at most 32768 ranges"), "%s",
                  error.text);
    text_ranges_free(&ranges);
    free(text);
}
END_TEST

START_TEST(next_carries_everything)
{
    struct error error;
    struct engine_next next;
    const uint32_t ids[] = {1, 2, UINT32_MAX};
    const double logprobs[] = {-0.1, -INFINITY, -1e-300};
    engine.next = (struct engine_next){
        .ids = ids,
        .count = 3,
        .text = "a\xc3\xa9",
        .text_bytes = 3,
        .next = 13,
        .logprobs = logprobs,
        .logprobs_count = 3,
    };
    ck_assert_msg(engine_next(client, 4711, 10, 250, &next, &error) == 0, "%s", error.text);
    ck_assert_uint_eq(engine.from, 10);
    ck_assert_uint_eq(engine.wait_ms, 250);
    ck_assert_uint_eq(next.count, 3);
    ck_assert_int_eq(memcmp(next.ids, ids, sizeof ids), 0);
    ck_assert_str_eq(next.text, "a\xc3\xa9");
    ck_assert_uint_eq(next.text_bytes, 3);
    ck_assert_uint_eq(next.next, 13);
    ck_assert(!next.done && !next.finish && !next.stats && !next.stopped);
    ck_assert_int_eq(memcmp(next.logprobs, logprobs, sizeof logprobs), 0);
    engine_next_free(&next);

    engine.next = (struct engine_next){.done = true, .finish = "error", .next = 10};
    error_set(&engine.next.failure, ERR_NO_PROGRESS, "loaders stood still");
    engine.next.stats = json_pack("{s:i}", "tokens", 3);
    ck_assert_int_eq(engine_next(client, 4711, 10, 0, &next, &error), 0);
    ck_assert(next.done && next.count == 0);
    ck_assert_str_eq(next.finish, "error");
    ck_assert_int_eq(next.failure.code, ERR_NO_PROGRESS);
    ck_assert_str_eq(next.failure.text, "loaders stood still");
    ck_assert_int_eq(json_integer_value(json_object_get(next.stats, "tokens")), 3);
    engine_next_free(&next);
    json_decref(engine.next.stats);

    engine.next = (struct engine_next){
        .done = true, .finish = "stop", .next = 12, .stopped = true, .text_tokens = 0};
    ck_assert_int_eq(engine_next(client, 4711, 10, 0, &next, &error), 0);
    ck_assert(next.done && next.stopped && next.text_tokens == 0);
    ck_assert_str_eq(next.finish, "stop");
    engine_next_free(&next);

    engine.next = (struct engine_next){.next = 3}; /* before the requested position */
    ck_assert_int_eq(engine_next(client, 4711, 10, 0, &next, &error), -1);
    ck_assert_int_eq(error.code, ERR_FAILED);
}
END_TEST

START_TEST(cancel_and_unknown_calls)
{
    struct error error;
    json_t *reply;
    ck_assert_int_eq(engine_cancel(client, 99, &error), 0);
    ck_assert_uint_eq(engine.cancelled, 99);
    ck_assert_int_eq(control_call(client, "dance", json_pack("{s:i}", "steps", 3), &reply, &error),
                     -1);
    ck_assert_int_eq(error.code, ERR_NOT_FOUND);
}
END_TEST

START_TEST(a_run_that_is_not_there_is_named)
{
    struct error error;
    ck_assert_ptr_null(engine_client_open("absent", &error));
    ck_assert_int_eq(error.code, ERR_GONE);
    ck_assert_ptr_nonnull(strstr(error.text, "\"absent\""));
    ck_assert_ptr_null(control_client_open("a/b", &error));
    ck_assert_int_eq(error.code, ERR_BAD_INPUT);
}
END_TEST

/* Before the first token; the estimate may be missing. */
START_TEST(progress_arrives_as_it_was)
{
    static const uint64_t left[] = {6300, 0, UINT64_MAX};
    struct error error;
    struct engine_next next;
    for (size_t i = 0; i < ARRAY_LEN(left); i++) {
        const struct engine_progress sent = {.known = true,
                                             .queue = i,
                                             .tokens = 4096,
                                             .done = 512,
                                             .cached = 256,
                                             .time_ms = 900,
                                             .left_ms = left[i]};
        engine.next = (struct engine_next){.text = "", .progress = sent};
        ck_assert_msg(engine_next(client, 1, 0, 10, &next, &error) == 0, "%s", error.text);
        ck_assert(next.progress.known && next.progress.queue == i);
        ck_assert(next.progress.tokens == 4096 && next.progress.done == 512);
        ck_assert(next.progress.cached == 256 && next.progress.time_ms == 900);
        ck_assert_uint_eq(next.progress.left_ms, left[i]);
        engine_next_free(&next);
    }
    engine.next = (struct engine_next){.text = ""};
    ck_assert_int_eq(engine_next(client, 1, 0, 10, &next, &error), 0);
    ck_assert(!next.progress.known);
    engine_next_free(&next);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("ipc engine");
    TCase *tc = tcase_create("engine");
    tcase_add_checked_fixture(tc, set_up, tear_down);
    tcase_add_test(tc, submits_arrive_as_they_were);
    tcase_add_test(tc, progress_arrives_as_it_was);
    tcase_add_test(tc, bad_submits_are_rejected_by_either_end);
    tcase_add_test(tc, many_ranges_arrive);
    tcase_add_test(tc, next_carries_everything);
    tcase_add_test(tc, cancel_and_unknown_calls);
    tcase_add_test(tc, a_run_that_is_not_there_is_named);
    suite_add_tcase(suite, tc);
    return run_suite(suite);
}
