/* SPDX-License-Identifier: Apache-2.0 */
/* The gateway over real sockets: the text of generate, whole and streamed; stop strings; processes
 * killed during a stream; keys; /stats, /metrics and the page. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "lib/base/bytes.h"
#include "tests/scenario/baseline.h"
#include "tests/scenario/completions.h"

#define CANCELLED_MS 15000
#define UNREAD                                                                                     \
    400 /* tokens whose events exceed the socket buffers of a client that does not read */

static const char *const options[] = {"--http=0", NULL};

static void same_text(void)
{
    unsigned port;
    struct http h;
    for (unsigned p = 0; p < TEST_PROMPTS; p++)
        baseline(p);
    struct engine *e = gateway_start(&port, options);
    for (unsigned p = 0; p < TEST_PROMPTS; p++) {
        char *text = completion_text(port, test_prompt(p), baseline_tokens());
        CHECK(strcmp(text, baseline(p)->text) == 0, "prompt %u: the text differs: %.120s", p, text);
        free(text);
        completion_start(&h, port, test_prompt(p), baseline_tokens());
        completion_check(&h, baseline(p)->text, baseline_tokens(), "streamed");
    }
    /* The demo model has no chat template: the default form is used. */
    char *expected = completion_text(port, "User: Hello\nAssistant:", 12);
    http_call(&h, port, "/v1/chat/completions", NULL,
              "{\"messages\":[{\"role\":\"user\",\"content\":\"Hello\"}],\"max_tokens\":12,"
              "\"temperature\":0,\"ignore_eos\":true,\"logprobs\":true}",
              200);
    json_t *doc = http_json(&h);
    const json_t *choice = json_array_get(json_object_get(doc, "choices"), 0);
    CHECK(strcmp(lookup_text(choice, "message.content"), expected) == 0, "%.300s", h.body);
    CHECK(json_array_size(json_object_get(json_object_get(choice, "logprobs"), "content")) == 12,
          "%.300s", h.body);
    json_decref(doc);
    http_close(&h);
    free(expected);
    engine_stop(e);
}

/* A file with U+0000, as tools read them: one token of its own, through HTTP and from a file. */
static void nul_in_texts(void)
{
    unsigned port;
    struct http h;
    struct command c;
    char path[600];
    struct engine *e = gateway_start(&port, options);
    http_call(
        &h, port, "/v1/completions", NULL,
        "{\"prompt\":\"a\\u0000b\",\"max_tokens\":2,\"ignore_eos\":true,\"stop\":\"\\u0000\"}",
        200);
    json_t *doc = http_json(&h);
    CHECK(lookup_u64(doc, "usage.prompt_tokens") == 3, "%.300s", h.body);
    json_decref(doc);
    http_close(&h);
    http_call(
        &h, port, "/v1/chat/completions", NULL,
        "{\"messages\":[{\"role\":\"user\",\"content\":\"ELF\\u0000\\u0001\"}],\"max_tokens\":2}",
        200);
    http_close(&h);
    engine_stop(e);
    snprintf(path, sizeof path, "%s/nul", test_dir());
    FILE *f = fopen(path, "we");
    CHECK(f && fwrite("a\0b", 1, 3, f) == 3 && fclose(f) == 0, "cannot write %s", path);
    command_run(&c, NULL, END_MS,
                (const char *const[]){"generate", "-m", test_model(), "-f", path, "-n", "2",
                                      "--output", "json", NULL});
    CHECK(c.status == 0 && strstr(c.out, "\"prompt_tokens\": 3,"), "status %d: %.300s %.300s",
          c.status, c.out, c.err);
    command_free(&c);
}

/* The counted tokens, which have log-probabilities, make up the whole text and nothing else. */
static void stop_leaves_no_token(const json_t *doc, const char *text)
{
    const json_t *choice = json_array_get(json_object_get(doc, "choices"), 0);
    const json_t *logprobs = json_object_get(choice, "logprobs");
    const json_t *tokens = json_object_get(logprobs, "tokens");
    const json_t *offsets = json_object_get(logprobs, "text_offset");
    size_t n = json_array_size(tokens), bytes = 0;
    CHECK(json_array_size(offsets) == n &&
              json_array_size(json_object_get(logprobs, "token_logprobs")) == n &&
              lookup_u64(doc, "usage.completion_tokens") == n,
          "%zu tokens; offsets or usage do not match", n);
    for (size_t i = 0; i < n; i++) {
        const char *token = json_string_value(json_array_get(tokens, i));
        CHECK(token[0] && strncmp(text + bytes, token, strlen(token)) == 0 &&
                  (size_t)json_integer_value(json_array_get(offsets, i)) == bytes,
              "token %zu, '%s', is not at offset %zu of '%s'", i, token, bytes, text);
        bytes += strlen(token);
    }
    CHECK(bytes == strlen(text), "%zu bytes of tokens, %zu of text", bytes, strlen(text));
}

static void check_stopped(unsigned port, const char *quoted, const char *expected)
{
    struct http h;
    struct events got;
    char more[512];
    snprintf(more, sizeof more, "\"stop\":%s,\"logprobs\":0", quoted);
    completion_call(&h, port, test_prompt(0), LONG, more, 200);
    json_t *doc = http_json(&h);
    const json_t *choice = json_array_get(json_object_get(doc, "choices"), 0);
    CHECK(strcmp(lookup_text(choice, "text"), expected) == 0 &&
              strcmp(lookup_text(choice, "finish_reason"), "stop") == 0,
          "stop %s: %.300s", quoted, h.body);
    stop_leaves_no_token(doc, expected);
    uint64_t tokens = lookup_u64(doc, "usage.completion_tokens");
    http_close(&h);
    snprintf(more, sizeof more,
             "\"stop\":%s,\"stream\":true,\"stream_options\":{\"include_usage\":true}", quoted);
    completion_call(&h, port, test_prompt(0), LONG, more, 200);
    http_events(&h, &got);
    CHECK(strcmp(got.text, expected) == 0 && strcmp(got.finish, "stop") == 0 && got.done &&
              got.completion_tokens == tokens,
          "stop %s, streamed: %.300s", quoted, h.body);
    free(got.text);
    http_close(&h);
    json_decref(doc);
}

/* The text of `generate --stop`; the caller frees. */
static char *generated(struct engine *e, const char *stop)
{
    struct command c;
    command_run(&c, NULL, END_MS,
                (const char *const[]){"generate", "--name", e->run, "-p", test_prompt(0), "-n",
                                      "64", "--temp", "0", "--ignore-eos", "--output", "json",
                                      "--stop", "never generated", "--stop", stop, NULL});
    json_t *doc = json_loads(c.out, JSON_ALLOW_NUL, NULL);
    CHECK(c.status == 0 && strcmp(lookup_text(doc, "finish"), "stop") == 0, "stop '%s': %s", stop,
          c.err);
    char *text = strdup(lookup_text(doc, "text"));
    json_decref(doc);
    command_free(&c);
    return text;
}

/* Stop strings of all lengths from a response, not aligned to tokens: the text before them is sent,
 * whole and streamed, as by generate. Nothing is computed after them. */
static void stops(void)
{
    unsigned port;
    struct engine *e = gateway_start(&port, options);
    char *text = completion_text(port, test_prompt(0), 64), stop[16];
    uint64_t rounds = 0, last = strlen(text) - sizeof stop;
    for (size_t at = 1; at < last; at += last / 8 + 1) {
        size_t bytes = 1 + at % (sizeof stop - 1);
        memcpy(stop, text + at, bytes);
        stop[bytes] = 0;
        char *expected = generated(e, stop);
        size_t first = (size_t)(strstr(text, stop) - text);
        CHECK(strlen(expected) == first && memcmp(expected, text, first) == 0,
              "generate --stop '%s': '%s'", stop, expected);
        json_t *list = json_pack("[s, s]", "never generated", stop);
        char *quoted = json_dumps(list, 0);
        check_stopped(port, quoted, expected);
        free(quoted);
        json_decref(list);
        free(expected);
        rounds++;
    }
    CHECK(engine_counter(e, "gateway", "streams_stopped") == 2 * rounds,
          "wrong count of streams_stopped");
    CHECK(engine_counter(e, "compute", "sequences_done") == 3 * rounds + 1 &&
              engine_counter(e, "compute", "sequences_cancelled") == 0,
          "a stopped sequence must count as done, not cancelled");
    /* A stop string that does not occur has no effect. */
    struct http h;
    completion_call(&h, port, test_prompt(0), 8, "\"stop\":\"never generated\"", 200);
    CHECK(strstr(h.body, "\"finish_reason\":\"length\""), "%.300s", h.body);
    http_close(&h);
    CHECK(engine_counter(e, "gateway", "streams_stopped") == 2 * rounds,
          "wrong count of streams_stopped");
    free(text);
    engine_stop(e);
}

static void kill_compute(void)
{
    unsigned port;
    struct http h;
    baseline(0);
    struct engine *e =
        gateway_start(&port, (const char *const[]){"--http=0", "--resident-experts=25", NULL});
    for (int round = 0; round < 3; round++) {
        pid_t pid = engine_pid(e, "compute", 0, 0);
        completion_start(&h, port, test_prompt(0), baseline_tokens());
        CHECK(http_wait(&h, "data: ", END_MS), "no event");
        kill(pid, SIGKILL);
        completion_check(&h, baseline(0)->text, baseline_tokens(), "compute killed");
        engine_pid(e, "compute", 0, pid);
    }
    CHECK(engine_restarts(e, "gateway", 0) == 0, "the gateway was restarted");
    engine_stop(e);
}

static void kill_gateway(void)
{
    unsigned port;
    struct http h;
    struct events got;
    baseline(0);
    struct engine *e =
        gateway_start(&port, (const char *const[]){"--http=0", "--resident-experts=25", NULL});
    pid_t pid = engine_pid(e, "gateway", 0, 0);
    completion_start(&h, port, test_prompt(0), LONG);
    CHECK(http_wait(&h, "data: ", END_MS), "no event");
    kill(pid, SIGKILL);
    http_finish(&h, END_MS);
    http_events(&h, &got);
    CHECK(!got.done, "the stream ended regularly");
    free(got.text);
    http_close(&h);
    /* The supervisor owns the listening socket: the next gateway accepts this connection, and
     * serves it at once. */
    char *text = completion_text(port, test_prompt(0), baseline_tokens());
    CHECK(strcmp(text, baseline(0)->text) == 0, "the text differs: %.120s", text);
    free(text);
    engine_pid(e, "gateway", 0, pid);
    /* Long before --idle-timeout. */
    engine_wait_counter(e, "compute", "sequences_cancelled", 1, CANCELLED_MS);
    CHECK(http_port(e) == port, "the port changed");
    json_decref(engine_control(e, "restart", json_pack("{s:s}", "process", "gateway")));
    CHECK(http_port(e) == port, "the port changed");
    engine_stop(e);
}

/* A stream in progress ends with an error that names the reason; other responses are that error. */
static void stop_is_reported(struct http *streamed, struct http *whole, struct http *queued)
{
    struct events got;
    http_finish(streamed, END_MS);
    http_events(streamed, &got);
    CHECK(streamed->status == 200 && got.done && !got.finish[0] && strstr(got.error, "stopping"),
          "finish '%s', error '%s'", got.finish, got.error);
    free(got.text);
    http_close(streamed);
    struct http *const both[] = {whole, queued};
    for (size_t i = 0; i < 2; i++) {
        http_finish(both[i], END_MS);
        CHECK(both[i]->status == 503 && strstr(both[i]->body, "stopping") &&
                  strstr(both[i]->raw, "Retry-After: 1"),
              "status %d: %.300s", both[i]->status, both[i]->raw);
        http_close(both[i]);
    }
}

/* The engine is stopped with responses in progress, one of them for a client that reads nothing. */
static void stop_ends_streams(void)
{
    unsigned port;
    struct http streamed, whole, queued, stalled;
    struct command lines;
    struct engine *e =
        gateway_start(&port, (const char *const[]){"--http=0", "--resident-experts=25", NULL});
    char *body = completion_body(test_prompt(0), LONG, "");
    char *stream = completion_body(test_prompt(0), UNREAD, "\"stream\":true");
    http_send_request(&stalled, http_connect_narrow(port), "/v1/completions", NULL, stream);
    completion_start(&streamed, port, test_prompt(0), LONG);
    CHECK(http_wait(&streamed, "data: ", END_MS), "no event");
    http_open(&whole, port, "/v1/completions", NULL, body);
    http_open(&queued, port, "/v1/completions", NULL, body);
    engine_wait_counter(e, "gateway", "streams_started", 4, END_MS);
    engine_stop(e);
    stop_is_reported(&streamed, &whole, &queued);
    http_close(&stalled);
    command_run(&lines, NULL, END_MS,
                (const char *const[]){"/bin/grep", "-c", "does not stop", e->log, NULL});
    CHECK(strtol(lines.out, NULL, 10) == 0, "the gateway waited for a client that does not read");
    command_free(&lines);
    free(stream);
    free(body);
}

/* compute, which runs until the gateway has ended, rejects a request: the reason is the stop. */
static void stop_rejects(void)
{
    unsigned port;
    struct error error;
    uint64_t id;
    struct engine *e = gateway_start(&port, (const char *const[]){"--http=0", NULL});
    struct rpc_client *client = engine_client_open(e->run, &error);
    CHECK(client, "%s", error.text);
    pid_t gateway = engine_pid(e, "gateway", 0, 0);
    kill(gateway, SIGSTOP);
    kill(e->pid, SIGTERM);
    engine_wait_log(e, "stopping:", END_MS);
    struct engine_submit submit;
    engine_submit_defaults(&submit);
    submit.prompt = "x";
    submit.prompt_bytes = 1;
    CHECK(engine_submit(client, &submit, &id, &error) != 0 && strstr(error.text, "is stopping"),
          "not rejected: %s", error.text);
    kill(gateway, SIGCONT);
    rpc_client_close(client);
    engine_stop(e);
}

/* ---- keys, /stats, /metrics and the page ---- */

/* A gateway that is started again has the key of the engine's start: the file is not read again. */
static void key_is_that_of_the_start(struct engine *e, unsigned port, const char *path)
{
    struct http h;
    pid_t pid = engine_pid(e, "gateway", 0, 0);
    for (int removed = 0; removed < 2; removed++) {
        FILE *f = removed ? NULL : fopen(path, "we");
        if (removed)
            CHECK(unlink(path) == 0, "cannot remove %s", path);
        else
            fputs("other\n", f);
        if (f)
            fclose(f);
        kill(pid, SIGKILL);
        pid = engine_pid(e, "gateway", 0, pid);
        http_call(&h, port, "/stats", "Authorization: Bearer open\r\n", NULL, 200);
        http_close(&h);
        http_call(&h, port, "/stats", "Authorization: Bearer other\r\n", NULL, 401);
        http_close(&h);
    }
}

static void keys(void)
{
    unsigned port;
    struct http h;
    char path[PATH_MAX], option[PATH_MAX + 32];
    snprintf(path, sizeof path, "%s/key", test_dir());
    FILE *f = fopen(path, "we");
    fputs("open \nsecond line\n", f);
    fclose(f);
    snprintf(option, sizeof option, "--http-key-file=%s", path);
    struct engine *e = gateway_start(&port, (const char *const[]){"--http=0", option, NULL});
    http_call(&h, port, "/health", NULL, NULL, 200);
    http_close(&h);
    static const char *const wrong[] = {
        NULL, "Authorization: Bearer \r\n", "Authorization: Bearer opens\r\n",
        "Authorization: Basic !!!\r\n", "Authorization: Bearer second\r\n"};
    for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
        http_call(&h, port, "/stats", wrong[i], NULL, 401);
        http_close(&h);
        http_call(&h, port, "/v1/completions", wrong[i], "{\"prompt\":\"x\"}", 401);
        http_close(&h);
    }
    /* The key is the first line of the file, without the blank at its end; it is also valid as a
     * password. */
    http_call(&h, port, "/stats", "Authorization: Bearer open\r\n", NULL, 200);
    http_close(&h);
    http_call(&h, port, "/metrics", "Authorization: Basic dTpvcGVu\r\n", NULL, 200);
    CHECK(strstr(h.body, "sluice_memory_budget_bytes"), "%.200s", h.body);
    http_close(&h);
    key_is_that_of_the_start(e, port, path);
    engine_stop(e);
}

/* Two clients of whom one is computed: who asks, how far each is, and what limits the speed between
 * two snapshots. */
static void requests_and_limit(void)
{
    unsigned port;
    struct http computed, queued, h;
    struct engine *e = gateway_start(
        &port, (const char *const[]){"--http=0", "--parallel=1", "--resident-experts=25", NULL});
    completion_start(&computed, port, test_prompt(0), LONG);
    CHECK(http_wait(&computed, "data: ", END_MS), "no event");
    completion_start(&queued, port, test_prompt(1), LONG);
    engine_wait_counter(e, "compute", "sequences_queued", 1, END_MS);
    http_call(&h, port, "/requests", NULL, NULL, 200);
    json_t *doc = http_json(&h);
    const json_t *all = json_object_get(doc, "sequences");
    const json_t *first = json_array_get(all, 0), *second = json_array_get(all, 1);
    CHECK(json_array_size(all) == 2 && strstr(lookup_text(first, "client"), " /v1/completions") &&
              lookup_u64(first, "tokens") > 0 &&
              lookup_u64(first, "done") == lookup_u64(first, "prompt_tokens") &&
              strcmp(lookup_text(second, "state"), "queued") == 0 &&
              lookup_u64(second, "queue") == 1,
          "%.600s", h.body);
    json_decref(doc);
    http_close(&h);
    char limit[16] = "";
    while (!limit[0]) { /* from the second snapshot on */
        http_call(&h, port, "/stats", NULL, NULL, 200);
        doc = http_json(&h);
        snprintf(limit, sizeof limit, "%s", lookup_text(doc, "limit.name"));
        CHECK(strncmp(lookup_text(doc, "limit.text"), limit, strlen(limit)) == 0, "limit %s",
              limit);
        json_decref(doc);
        http_close(&h);
    }
    CHECK(strcmp(limit, "none") != 0, "nothing limits an engine that computes");
    http_close(&computed);
    http_close(&queued);
    engine_stop(e);
}

/* The page has its numbers without scripts and loads nothing from other hosts; the map has a
 * character per expert; the metrics are in the format of Prometheus. */
static void stats_and_page(void)
{
    unsigned port;
    struct http h;
    struct engine *e = gateway_start(
        &port, (const char *const[]){"--http=0", "--resident-experts=50", "--isa=generic", NULL});
    free(completion_text(port, test_prompt(0), 16));
    http_call(&h, port, "/", NULL, NULL, 200);
    CHECK(strstr(h.body, "<td>compute</td><td>ready</td>") && strstr(h.body, "<th>new tokens</th>"),
          "the page has no numbers: %.400s", h.body);
    CHECK(!strstr(h.body, "//") && strstr(h.raw, "Content-Security-Policy: default-src 'none'"),
          "the page refers to other hosts");
    http_close(&h);
    static const char *const assets[] = {"/web/page.css", "/web/engine.js", "/web/chat.js"};
    for (size_t i = 0; i < ARRAY_LEN(assets); i++) {
        http_call(&h, port, assets[i], NULL, NULL, 200);
        CHECK(h.body_bytes > 1000, "%s is %zu bytes", assets[i], h.body_bytes);
        http_close(&h);
    }
    http_call(&h, port, "/map", NULL, NULL, 200);
    json_t *map = http_json(&h);
    const json_t *rows = json_object_get(map, "rows");
    size_t resident = 0, hot = 0;
    CHECK(json_array_size(rows) == 8, "%.300s", h.body);
    for (size_t i = 0; i < 8; i++) {
        const char *states = lookup_text(json_array_get(rows, i), "resident");
        const char *heat = lookup_text(json_array_get(rows, i), "heat");
        CHECK(strlen(states) == 32 && strlen(heat) == 32, "%.300s", h.body);
        for (size_t x = 0; x < 32; x++) {
            resident += states[x] == '0';
            hot += heat[x] != '0';
        }
    }
    CHECK(resident > 0 && resident <= 128 && hot > 0, "%zu resident, %zu hot", resident, hot);
    json_decref(map);
    http_close(&h);
    http_call(&h, port, "/metrics", NULL, NULL, 200);
    static const char *const names[] = {"\nsluice_generation_tokens_total 16\n",
                                        "\nsluice_time_to_first_token_seconds_count 1\n",
                                        "\nsluice_inter_token_latency_seconds_bucket{le=\"+Inf\"}",
                                        "\nsluice_expert_load_seconds_bucket{le=\"0.001\"}",
                                        "\nsluice_request_finished_total{reason=\"length\"} 1\n"};
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        CHECK(strstr(h.body, names[i]), "no%s", names[i]);
    CHECK(!strstr(h.body, "{{") && !strstr(h.body, "}}"), "labels with two braces");
    char isa[32];
    json_t *doc = engine_stats(e);
    const char *wanted = lookup_text(doc, "params.isa");
    snprintf(isa, sizeof isa, ",isa=\"%.16s\"} 1\n", wanted);
    CHECK(strstr(h.body, isa), "no%s", isa);
    json_decref(doc);
    http_close(&h);
    engine_stop(e);
}

static uint64_t restarts_by(struct engine *e, const char *service, const char *cause)
{
    json_t *doc = engine_stats(e);
    const json_t *row = lookup_process(doc, service, 0);
    uint64_t n = lookup_u64(json_object_get(row, "restarts_by"), cause);
    json_decref(doc);
    return n;
}

/* The newest exit record, in every output that has it. */
static void check_exit_record(struct engine *e, pid_t pid, const char *service, const char *cause)
{
    json_t *doc = engine_stats(e);
    const json_t *exit_record = lookup_exit(doc, 0);
    char *text = json_dumps(exit_record, 0);
    CHECK(strcmp(lookup_text(exit_record, "service"), service) == 0 &&
              strcmp(lookup_text(exit_record, "cause"), cause) == 0 &&
              lookup_u64(exit_record, "pid") == (uint64_t)pid &&
              lookup_u64(exit_record, "signal") == SIGKILL &&
              lookup_u64(exit_record, "exit") == 0 &&
              json_is_true(json_object_get(exit_record, "restarted")) &&
              strstr(lookup_text(exit_record, "exit_message"),
                     strcmp(cause, "requested") == 0 ? "on request" : "signal 9"),
          "%s of %s: %.300s", cause, service, text);
    uint64_t uptime = lookup_u64(doc, "uptime_ms"), now = (uint64_t)time(NULL);
    uint64_t then = lookup_u64(exit_record, "wall_ms") / 1000;
    CHECK(lookup_u64(exit_record, "uptime_ms") > 0 &&
              lookup_u64(exit_record, "uptime_ms") <= uptime && then <= now &&
              then + uptime / 1000 + 2 >= now,
          "when: %.300s", text);
    free(text);
    json_decref(doc);
}

/* The engine records an exit: its signal, and whether it was requested. */
static void history(void)
{
    unsigned port;
    struct http h;
    struct command c;
    struct engine *e =
        gateway_start(&port, (const char *const[]){"--http=0", "--resident-experts=50", NULL});
    json_t *doc = engine_stats(e);
    CHECK(lookup_exits(doc) == 0, "an exit was recorded");
    json_decref(doc);
    pid_t pid = engine_pid(e, "compute", 0, 0);
    kill(pid, SIGKILL);
    engine_pid(e, "compute", 0, pid);
    check_exit_record(e, pid, "compute", "signal");
    pid = engine_pid(e, "predictor", 0, 0);
    json_decref(engine_control(e, "restart", json_pack("{s:s}", "process", "predictor")));
    check_exit_record(e, pid, "predictor", "requested");
    CHECK(restarts_by(e, "compute", "signal") == 1 && restarts_by(e, "compute", "requested") == 0 &&
              restarts_by(e, "predictor", "requested") == 1,
          "wrong restarts by cause");
    http_call(&h, port, "/", NULL, NULL, 200);
    const char *requested = strstr(h.body, "<td>predictor</td><td>requested</td>");
    const char *killed = strstr(h.body, "<td>compute</td><td>signal</td><td class=\"w\">signal 9");
    CHECK(requested && killed && requested < killed,
          "exit records are not in the page, or not newest first: %s", h.body);
    http_close(&h);
    http_call(&h, port, "/metrics", NULL, NULL, 200);
    CHECK(strstr(h.body, "{proc=\"compute\",number=\"0\",cause=\"signal\"} 1\n") &&
              strstr(h.body, "{proc=\"compute\",number=\"0\",cause=\"heartbeat\"} 0\n") &&
              strstr(h.body, "{proc=\"predictor\",number=\"0\",cause=\"requested\"} 1\n"),
          "wrong restarts by cause in the metrics");
    http_close(&h);
    command_run(&c, NULL, END_MS, (const char *const[]){"stats", "--name", e->run, NULL});
    CHECK(c.status == 0 && strstr(c.out, "\nEXITED ") && strstr(c.out, "signal 9"), "%s", c.out);
    command_free(&c);
    engine_stop(e);
}

/* 34 exits: the engine keeps the maximum of 32 records, and every snapshot fits the smallest
 * buffer. */
static void history_is_bounded(void)
{
    static const char *const paths[] = {"/stats", "/metrics", "/"};
    unsigned port;
    struct http h;
    struct engine *e = gateway_start(
        &port, (const char *const[]){"--http=0", "--resident-experts=50", "--http-buffer=64KiB",
                                     "--http-body=16KiB", NULL});
    for (int i = 0; i < 34; i++)
        json_decref(engine_control(e, "restart", json_pack("{s:s}", "process", "predictor")));
    json_t *doc = engine_stats(e);
    CHECK(lookup_exits(doc) == 32 && restarts_by(e, "predictor", "requested") == 34,
          "%zu exit records of 34", lookup_exits(doc));
    json_decref(doc);
    for (size_t i = 0; i < ARRAY_LEN(paths); i++) {
        http_call(&h, port, paths[i], NULL, NULL, 200);
        test_note("%s: %zu bytes", paths[i], h.body_bytes);
        http_close(&h);
    }
    engine_stop(e);
}

int main(int argc, char **argv)
{
    static const struct test_case cases[] = {
        ROW(same_text),      ROW(nul_in_texts),       ROW(stops),        ROW(kill_compute),
        ROW(kill_gateway),   ROW(stop_ends_streams),  ROW(stop_rejects), ROW(keys),
        ROW(stats_and_page), ROW(requests_and_limit), ROW(history),      ROW(history_is_bounded),
    };
    return test_main(argc, argv, cases, ARRAY_LEN(cases));
}
