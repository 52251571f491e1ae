/* SPDX-License-Identifier: Apache-2.0 */
/* Tests what a stream sends of the replies of compute, without a connection and without compute. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "procs/engine/gateway/dialects/openai/openai.h"
#include "procs/engine/gateway/serve/serve.h"

static struct gateway gateway;
static struct process row;
static struct exchange exchange;
static struct stream stream;

/* ---- instead of the rest of the gateway ---- */

static struct {
    rpc_async_done *done;
    void *arg;
} call;
static unsigned cancels, submits;
static struct params params = {.http_streams = 8};
static enum error_code asks_refused, refused;
static char response[2000]; /* that is not streamed */
static char finished[16];   /* the reason, or "error"; "": not yet */

uint64_t rpc_async_call(struct rpc_async *c, const char *op, json_t *request, unsigned timeout_ms,
                        rpc_async_done *done, void *arg, struct error *error)
{
    (void)c, (void)timeout_ms, (void)error;
    json_decref(request);
    if (strcmp(op, "cancel") == 0) {
        cancels++;
        return 1;
    }
    call.done = done;
    call.arg = arg;
    return 1;
}

void rpc_async_forget(struct rpc_async *c, uint64_t ticket)
{
    (void)c, (void)ticket;
}

uint64_t rpc_async_repeated(const struct rpc_async *c)
{
    (void)c;
    return 0;
}

void exchange_resume(struct exchange *x)
{
    (void)x;
}

void exchange_error(struct exchange *x, const struct error *error, const char *param)
{
    (void)x, (void)param;
    refused = error->code;
}

void exchange_counted(struct exchange *x, char *text, size_t bytes)
{
    (void)x;
    snprintf(response, sizeof response, "%.*s", (int)bytes, text);
    free(text);
}

unsigned error_http_status(enum error_code code)
{
    (void)code;
    return 503;
}

void log_rejection(struct http *h, const char *why)
{
    (void)h, (void)why;
}

void metrics_first_token(struct metrics *m, uint64_t ns)
{
    (void)m, (void)ns;
}

void metrics_tokens(struct metrics *m, uint64_t ns, uint64_t count)
{
    (void)m, (void)ns, (void)count;
}

void metrics_finished(struct metrics *m, const char *reason)
{
    (void)m;
    snprintf(finished, sizeof finished, "%s", reason);
}

void asks_refuse(struct gateway *g, const struct error *error)
{
    (void)g;
    asks_refused = error->code;
}

void stream_reject(struct stream *s, const struct error *error)
{
    (void)s, (void)error;
}

struct stream *stream_unused(struct gateway *g, struct error *error)
{
    for (size_t i = 0; i < STREAMS_MAX; i++)
        if (g->streams[i].state == STREAM_FREE)
            return &g->streams[i];
    (void)error;
    return NULL;
}

int stream_submit(struct stream *s, struct error *error)
{
    (void)error;
    s->sequence = ++submits;
    s->ticket = 1;
    return 0;
}

/* ---- tests ---- */

static void start(bool events)
{
    gateway = (struct gateway){.http.quota.limit = 1 << 16,
                               .child = {.process = &row, .params = &params}};
    exchange = (struct exchange){.magic = EXCHANGE_MAGIC, .gateway = &gateway};
    stream = (struct stream){
        .magic = STREAM_MAGIC,
        .state = STREAM_FOLLOW,
        .lead = &stream,
        .gateway = &gateway,
        .exchange = &exchange,
        .completion = {.dialect = &openai_completion,
                       .model = "m",
                       .quota = &gateway.http.quota,
                       .request = {.stream = true, .wants = events ? OPENAI_PROGRESS : 0}},
    };
    finished[0] = 0;
    stream_request_next(&stream);
}

static void reply(const char *text)
{
    json_t *object = json_loads(text, 0, NULL);
    ck_assert_ptr_nonnull(object);
    call.done(call.arg, object, NULL);
    json_decref(object);
}

static bool sent(const char *text)
{
    return stream.completion.out.bytes > 0 &&
           memmem(stream.completion.out.data, stream.completion.out.bytes, text, strlen(text)) !=
               NULL;
}

#define PROGRESS                                                                                   \
    "{\"ids\":[],\"text\":\"\",\"next\":0,\"done\":false,\"progress\":{\"queue\":0,\"tokens\":9,"  \
    "\"done\":3,\"cached\":0,\"time_ms\":5}}"
#define END                                                                                        \
    "{\"ids\":[7],\"text\":\"word\",\"next\":1,\"done\":true,\"finish\":\"length\",\"stats\":{}}"

/* Progress that does not fit into the buffers is dropped: the answer is complete without it. */
START_TEST(progress_without_space)
{
    for (int events = 0; events < 2; events++) {
        start(events);
        ck_assert(quota_take(&gateway.http.quota, gateway.http.quota.limit, false));
        reply(PROGRESS);
        ck_assert_msg(!finished[0] && stream.state == STREAM_FOLLOW && !stream.completion.failed,
                      "the stream has ended: %s", finished);
        ck_assert_uint_eq(stream.completion.out.bytes, 0);
        quota_give(&gateway.http.quota, gateway.http.quota.limit, false);
        reply(PROGRESS);
        ck_assert(sent(events ? "\"prompt_progress\"" : ": prompt 3/9\n\n"));
        reply(END);
        ck_assert(strcmp(finished, "length") == 0 && stream.state == STREAM_ENDED);
        ck_assert(sent("\"word\"") && sent("data: [DONE]\n\n"));
        stream_free(&stream);
        ck_assert_uint_eq(gateway.http.quota.buffered, 0);
    }
}
END_TEST

/* A part of the answer is not harmless. */
START_TEST(text_without_space)
{
    start(false);
    ck_assert(quota_take(&gateway.http.quota, gateway.http.quota.limit, false));
    reply(END);
    ck_assert(strcmp(finished, "error") == 0);
    quota_give(&gateway.http.quota, gateway.http.quota.limit, false);
    stream_free(&stream);
}
END_TEST

#define CALL  "<call>{\\\"name\\\":\\\"f\\\",\\\"arguments\\\":{}}</call>"
#define FIRST "{\"ids\":[1,2],\"text\":\"so" CALL "\",\"next\":2,\"done\":false}"
#define MORE                                                                                       \
    "{\"ids\":[3],\"text\":\" and more\",\"next\":3,\"done\":true,\"finish\":\"cancelled\","       \
    "\"stats\":{\"cached_tokens\":5}}"

/* After the one call that the client wants, nothing is computed and the end is not an error. */
START_TEST(one_call_cancels)
{
    for (int events = 0; events < 2; events++) {
        start(false);
        cancels = 0;
        struct completion *c = &stream.completion;
        c->dialect = &openai_chat;
        c->request = (struct api_request){
            .stream = events,
            .one_call = true,
            .answer.call = {.open = "<call>", .close = "</call>", .call_open = ""}};
        completion_open(c);
        reply(FIRST);
        ck_assert_uint_eq(cancels, 1);
        ck_assert(stream.state == STREAM_FOLLOW);
        reply(MORE);
        ck_assert_uint_eq(cancels, 1);
        ck_assert_str_eq(finished, "stop");
        if (events)
            ck_assert(sent("\"finish_reason\":\"tool_calls\"") && !sent("more"));
        else
            ck_assert(strstr(response, "\"finish_reason\":\"tool_calls\"") &&
                      strstr(response, "\"completion_tokens\":2") &&
                      strstr(response, "\"cached_tokens\":5") && !strstr(response, "more"));
        if (events)
            stream_free(&stream);
        ck_assert_uint_eq(gateway.http.quota.buffered, 0);
    }
}
END_TEST

/* The first answer has begun, and the others are submitted. */
static void start_answers(unsigned answers, unsigned tries, bool events)
{
    struct error error;
    start(false);
    submits = cancels = 0;
    exchange.stream = &stream;
    struct api_request *r = &stream.completion.request;
    *r = (struct api_request){.stream = events, .answers = answers, .tries = tries};
    r->prompt = strdup("x");
    stream.prompt_buffered = 9;
    ck_assert(quota_take(&gateway.http.quota, 9, true));
    ck_assert(answers_open(&stream, &error) == 0);
    reply("{\"ids\":[1],\"text\":\"one\",\"next\":1,\"done\":false,\"logprobs\":[-3.0],"
          "\"pieces\":[3]}");
    for (unsigned i = 1; i < tries; i++) {
        answers_submit(&stream);
        answers_submit(&stream); /* one after the other */
        ck_assert_uint_eq(submits, i);
        ck_assert(r->prompt);
        struct stream *s = &gateway.streams[i - 1];
        ck_assert(s->state == STREAM_SUBMIT);
        if (i == 1) { /* the queue was full */
            error_set(&error, ERR_BUSY, "full");
            ck_assert(answers_postpone(s, &error));
            answers_submit(&stream);
            ck_assert(s->state == STREAM_WAIT); /* not at once again */
            s->reply_ns = 1;                    /* a second has passed */
            answers_submit(&stream);
            submits--;
        }
        s->state = STREAM_FOLLOW;
    }
    answers_submit(&stream);
    ck_assert(!r->prompt && stream.prompt_buffered == 0);
}

static void end_answer(struct stream *s, const char *text)
{
    s->ticket = 0;
    stream_request_next(s);
    ck_assert_ptr_eq(call.arg, s);
    reply(text);
}

#define TWO                                                                                        \
    "{\"ids\":[1,2],\"text\":\"two\",\"next\":2,\"done\":true,\"finish\":\"stop\",\"logprobs\":"   \
    "[-1.0,-2.0],\"pieces\":[1,2],\"stats\":{\"cached_tokens\":7}}"
#define REST                                                                                       \
    "{\"ids\":[2],\"text\":\"!\",\"next\":2,\"done\":true,\"finish\":\"length\",\"logprobs\":"     \
    "[-3.0],\"pieces\":[1],\"stats\":{\"cached_tokens\":5}}"

START_TEST(two_answers)
{
    for (int events = 0; events < 2; events++) {
        start_answers(2, 2, events);
        end_answer(&gateway.streams[0], TWO);
        ck_assert(!finished[0] && gateway.streams[0].state == STREAM_DONE);
        end_answer(&stream, REST);
        ck_assert_str_eq(finished, "length");
        if (events) {
            ck_assert(sent("\"index\":1,\"text\":\"two\"") && sent("\"index\":0,\"text\":\"!\""));
            ck_assert(sent("\"finish_reason\":\"stop\"") && sent("data: [DONE]\n\n"));
            stream_free(&stream);
        } else {
            ck_assert(strstr(response, "[{\"index\":0,\"text\":\"one!\"") &&
                      strstr(response, "{\"index\":1,\"text\":\"two\""));
            ck_assert(strstr(response, "\"completion_tokens\":4") &&
                      strstr(response, "\"cached_tokens\":5"));
        }
        ck_assert(gateway.streams[0].state == STREAM_FREE && exchange.new_tokens == 4);
        ck_assert_uint_eq(cancels, 0);
        ck_assert_uint_eq(gateway.http.quota.buffered, 0);
    }
}
END_TEST

/* The one whose tokens are the most probable on average. */
START_TEST(the_best_of_two)
{
    start_answers(1, 2, false);
    end_answer(&stream, REST);
    ck_assert(!finished[0]);
    end_answer(&gateway.streams[0], TWO);
    ck_assert(strstr(response, "[{\"index\":0,\"text\":\"two\"") && !strstr(response, "one!"));
    ck_assert(strstr(response, "\"completion_tokens\":4") &&
              strstr(response, "\"cached_tokens\":5"));
    ck_assert_uint_eq(gateway.http.quota.buffered, 0);
}
END_TEST

/* Eight answers, of which none alone takes much: together they never fit, or only now they do
 * not. */
START_TEST(answers_without_space)
{
    static const struct {
        size_t taken, bytes;
        enum error_code code;
    } rows[] = {{0, 9000, ERR_BAD_INPUT}, {40000, 3000, ERR_NO_MEMORY}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char text[9200];
        start_answers(8, 8, false);
        ck_assert(quota_take(&gateway.http.quota, rows[i].taken, false));
        for (size_t n = 0; n < 8 && !finished[0]; n++) {
            struct stream *s = n < 7 ? &gateway.streams[n] : &stream;
            int next = n < 7 ? 1 : 2;
            snprintf(text, sizeof text,
                     "{\"ids\":[1],\"text\":\"%0*d\",\"next\":%d,\"done\":true,\"finish\":"
                     "\"length\",\"stats\":{}}",
                     (int)rows[i].bytes, 0, next);
            end_answer(s, text);
        }
        ck_assert_str_eq(finished, "error");
        ck_assert_int_eq(refused, rows[i].code);
        ck_assert_uint_eq(gateway.http.quota.buffered, rows[i].taken);
    }
}
END_TEST

/* An answer that fails ends the response, and the sequences of the others. */
START_TEST(one_of_three_fails)
{
    for (int events = 0; events < 2; events++) {
        start_answers(3, 3, events);
        end_answer(&gateway.streams[0], "{\"ids\":[],\"text\":\"\",\"next\":0,\"done\":true,"
                                        "\"finish\":\"error\",\"error\":{\"code\":\"failed\","
                                        "\"text\":\"no\"},\"stats\":{}}");
        ck_assert_str_eq(finished, "error");
        ck_assert_uint_ge(cancels, 2);
        if (events) {
            ck_assert(sent("\"error\"") && stream.state == STREAM_ENDED);
            stream_free(&stream);
        }
        for (size_t i = 0; i < 2; i++)
            ck_assert(gateway.streams[i].state == STREAM_FREE);
        ck_assert_uint_eq(gateway.http.quota.buffered, 0);
    }
}
END_TEST

/* A sequence whose number is not known yet is cancelled later. */
START_TEST(a_client_of_three_leaves)
{
    start_answers(3, 3, true);
    gateway.streams[1].state = STREAM_SUBMIT;
    stream_client_left(&stream);
    ck_assert_uint_eq(cancels, 2);
    ck_assert(stream.state == STREAM_FREE && gateway.streams[0].state == STREAM_FREE &&
              gateway.streams[1].state == STREAM_LEFT && !exchange.stream);
    stream_free(&gateway.streams[1]);
    ck_assert_uint_eq(gateway.http.quota.buffered, 0);
}
END_TEST

START_TEST(more_answers_than_streams)
{
    struct error error;
    start(false);
    stream.completion.request.tries = 9;
    ck_assert(answers_open(&stream, &error) == -1 && error.code == ERR_BAD_INPUT);
    ck_assert(strstr(error.text, "9 answers") && strstr(error.text, "at most 8"));
    stream_free(&stream);
}
END_TEST

/* compute refuses the second answer: its stream is free again, as is that of the first one. */
START_TEST(a_refused_second_answer)
{
    struct error error;
    start_answers(2, 2, false);
    struct stream *s = &gateway.streams[0];
    s->state = STREAM_SUBMIT;
    s->ticket = 0; /* its reply has come */
    error_set(&error, ERR_FAILED, "no");
    stream_fail(s, &error);
    ck_assert_str_eq(finished, "error");
    ck_assert(s->state == STREAM_FREE && stream.state == STREAM_FREE);
    ck_assert_uint_eq(gateway.http.quota.buffered, 0);
}
END_TEST

/* Also where the first answer is complete, and no other one is computed now. */
START_TEST(a_stop_ends_answers_that_wait)
{
    for (int events = 0; events < 2; events++) {
        start_answers(2, 2, events);
        end_answer(&stream, REST);
        ck_assert(stream.state == STREAM_DONE && !finished[0]);
        gateway.streams[0].state = STREAM_WAIT;
        streams_stop(&gateway);
        ck_assert_str_eq(finished, "error");
        ck_assert(gateway.streams[0].state == STREAM_FREE);
        ck_assert(stream.state == (events ? STREAM_ENDED : STREAM_FREE));
        if (events) {
            ck_assert(sent("\"error\""));
            stream_free(&stream);
        }
        ck_assert_uint_eq(gateway.http.quota.buffered, 0);
    }
}
END_TEST

/* Tokens of a prompt that is echoed are no new ones. */
START_TEST(an_echo_counts_new_tokens)
{
    start(false);
    stream.completion.prompt_tokens = 2;
    stream.completion.request = (struct api_request){
        .stream = true, .scored = true, .logprobs = true, .answers = 1, .tries = 1};
    reply("{\"ids\":[5,6],\"text\":\" ab\",\"next\":2,\"done\":false,\"logprobs\":[null,-3.0],"
          "\"pieces\":[2,1]}");
    ck_assert(sent("\"text\":\" ab\"") && sent("\"token_logprobs\":[null,-3.0]"));
    ck_assert(sent("\"tokens\":[\" a\",\"b\"]") && sent("\"text_offset\":[0,2]"));
    ck_assert_uint_eq(stream.completion.new_tokens, 0);
    reply("{\"ids\":[7],\"text\":\"c\",\"next\":3,\"done\":true,\"finish\":\"length\","
          "\"logprobs\":[-1.0],\"pieces\":[1],\"stats\":{}}");
    ck_assert(stream.completion.new_tokens == 1 && stream.completion.logprob_sum == -1);
    stream_free(&stream);
    ck_assert_uint_eq(gateway.http.quota.buffered, 0);
}
END_TEST

START_TEST(a_stop_refuses_questions)
{
    start(true);
    streams_stop(&gateway);
    ck_assert(asks_refused == ERR_GONE);
    stream_free(&stream);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("stream");
    TCase *cases = tcase_create("stream");
    tcase_add_test(cases, progress_without_space);
    tcase_add_test(cases, text_without_space);
    tcase_add_test(cases, one_call_cancels);
    tcase_add_test(cases, two_answers);
    tcase_add_test(cases, the_best_of_two);
    tcase_add_test(cases, answers_without_space);
    tcase_add_test(cases, one_of_three_fails);
    tcase_add_test(cases, a_client_of_three_leaves);
    tcase_add_test(cases, more_answers_than_streams);
    tcase_add_test(cases, a_refused_second_answer);
    tcase_add_test(cases, a_stop_ends_answers_that_wait);
    tcase_add_test(cases, an_echo_counts_new_tokens);
    tcase_add_test(cases, a_stop_refuses_questions);
    suite_add_tcase(suite, cases);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
