/* The gateway over real sockets: the text generate makes, whole and streamed; stops; clients that
 * leave, stall, or send what is no HTTP; processes killed under a stream; keys; the budget. */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "lib/base/bytes.h"
#include "lib/base/clock.h"
#include "tests/harness/internal.h"
#include "tests/scenario/baseline.h"
#include "tests/scenario/http.h"

#define END_MS    60000
#define CROWD     500
#define HEALTH_MS 100
#define HEALTHS   20
#define HALF_A_BODY                                                                                \
    "POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 90000\r\n\r\n"            \
    "{\"prompt\":\"It was"
#define LONG         1500 /* tokens of a stream that is not to end by itself */
#define MANY         1200 /* tokens whose log-probabilities are more than SMALL_BUFFER holds */
#define SMALL_BUFFER "--http-buffer=64KiB"
#define TALK                                                                                       \
    "{\"messages\":[{\"role\":\"user\",\"content\":\"Hello\"}],\"temperature\":0,"                 \
    "\"ignore_eos\":true,\"logprobs\":true,\"max_tokens\":"

static const char *const options[] = {"--http=0", NULL};

static struct engine *start(unsigned *port, const char *const opts[])
{
    struct engine *e = engine_new();
    engine_start(e, opts);
    *port = http_port(e);
    return e;
}

/* A request for greedy tokens as generate of the harness makes them. */
static char *body_of(const char *prompt, size_t tokens, const char *more)
{
    char *body;
    json_t *text = json_string(prompt);
    char *quoted = json_dumps(text, JSON_ENCODE_ANY);
    CHECK(asprintf(&body,
                   "{\"prompt\":%s,\"max_tokens\":%zu,\"temperature\":0,\"ignore_eos\":true%s%s}",
                   quoted, tokens, more[0] ? "," : "", more) > 0,
          "no memory");
    free(quoted);
    json_decref(text);
    return body;
}

static void completion(struct http *h, unsigned port, const char *prompt, size_t tokens,
                       const char *more, int status)
{
    char *body = body_of(prompt, tokens, more);
    http_call(h, port, "/v1/completions", NULL, body, status);
    free(body);
}

/* The text of a whole completion; the caller frees. */
static char *whole_text(unsigned port, const char *prompt, size_t tokens)
{
    struct http h;
    completion(&h, port, prompt, tokens, "", 200);
    json_t *doc = http_json(&h);
    const json_t *choice = json_array_get(json_object_get(doc, "choices"), 0);
    CHECK(strcmp(document_text(choice, "finish_reason"), "length") == 0, "%.300s", h.body);
    CHECK(document_u64(doc, "usage.completion_tokens") == tokens, "%.300s", h.body);
    char *text = strdup(document_text(choice, "text"));
    json_decref(doc);
    http_close(&h);
    return text;
}

static void begin_stream(struct http *h, unsigned port, const char *prompt, size_t tokens)
{
    char *body =
        body_of(prompt, tokens, "\"stream\":true,\"stream_options\":{\"include_usage\":true}");
    http_open(h, port, "/v1/completions", NULL, body);
    free(body);
}

static void check_stream(struct http *h, const char *expected, size_t tokens, const char *what)
{
    struct events got;
    http_finish(h, END_MS);
    http_events(h, &got);
    CHECK(h->status == 200 && got.done && strcmp(got.finish, "length") == 0,
          "%s: status %d, finish '%s', error '%s'", what, h->status, got.finish, got.error);
    CHECK(strcmp(got.text, expected) == 0, "%s: another text: %.120s", what, got.text);
    CHECK(got.completion_tokens == tokens && got.prompt_tokens > 0, "%s: usage", what);
    free(got.text);
    http_close(h);
}

static void same_text(void)
{
    unsigned port;
    struct http h;
    for (unsigned p = 0; p < TEST_PROMPTS; p++)
        baseline(p);
    struct engine *e = start(&port, options);
    for (unsigned p = 0; p < TEST_PROMPTS; p++) {
        char *text = whole_text(port, test_prompt(p), BASELINE_TOKENS);
        CHECK(strcmp(text, baseline(p)->text) == 0, "prompt %u: another text: %.120s", p, text);
        free(text);
        begin_stream(&h, port, test_prompt(p), BASELINE_TOKENS);
        check_stream(&h, baseline(p)->text, BASELINE_TOKENS, "streamed");
    }
    /* A conversation is the text its family writes it in; the demo model has none. */
    char *expected = whole_text(port, "User: Hello\nAssistant:", 12);
    http_call(&h, port, "/v1/chat/completions", NULL,
              "{\"messages\":[{\"role\":\"user\",\"content\":\"Hello\"}],\"max_tokens\":12,"
              "\"temperature\":0,\"ignore_eos\":true,\"logprobs\":true}",
              200);
    json_t *doc = http_json(&h);
    const json_t *choice = json_array_get(json_object_get(doc, "choices"), 0);
    CHECK(strcmp(document_text(choice, "message.content"), expected) == 0, "%.300s", h.body);
    CHECK(json_array_size(json_object_get(json_object_get(choice, "logprobs"), "content")) == 12,
          "%.300s", h.body);
    json_decref(doc);
    http_close(&h);
    free(expected);
    engine_stop(e);
}

/* Of an answer that a stop ended: what is counted and has a log-probability begins before it. */
static void stop_leaves_no_token(unsigned port, const char *quoted, size_t first)
{
    struct http h;
    char more[256];
    size_t bytes = 0;
    snprintf(more, sizeof more, "\"stop\":%s,\"logprobs\":0", quoted);
    completion(&h, port, test_prompt(0), LONG, more, 200);
    json_t *doc = http_json(&h);
    const json_t *choice = json_array_get(json_object_get(doc, "choices"), 0);
    const json_t *logprobs = json_object_get(choice, "logprobs");
    const json_t *tokens = json_object_get(logprobs, "tokens");
    const json_t *offsets = json_object_get(logprobs, "text_offset");
    size_t n = json_array_size(tokens);
    CHECK(n > 0 && json_array_size(offsets) == n &&
              json_array_size(json_object_get(logprobs, "token_logprobs")) == n &&
              document_u64(doc, "usage.completion_tokens") == n,
          "%zu tokens, offsets, or usage: %.300s", n, h.body);
    for (size_t i = 0; i < n; i++)
        bytes += json_string_length(json_array_get(tokens, i));
    CHECK(bytes >= first, "%zu bytes of tokens, %zu of text", bytes, first);
    CHECK((size_t)json_integer_value(json_array_get(offsets, n - 1)) < first,
          "a token behind the stop: %.300s", h.body);
    json_decref(doc);
    http_close(&h);
}

/* Two words of the middle of a text as a stop: whole and streamed, what comes before it is told. */
static void stops(void)
{
    unsigned port;
    struct http h;
    struct events got;
    struct engine *e = start(&port, options);
    char *text = whole_text(port, test_prompt(0), 64), more[256], stop[9] = "";
    size_t at = strlen(text) / 2;
    memcpy(stop, text + at, sizeof stop - 1);
    size_t first = (size_t)(strstr(text, stop) - text);
    json_t *list = json_pack("[s, s]", "never said", stop);
    char *quoted = json_dumps(list, 0);
    for (int streamed = 0; streamed < 2; streamed++) {
        snprintf(more, sizeof more, "\"stop\":%s,\"stream\":%s", quoted,
                 streamed ? "true" : "false");
        completion(&h, port, test_prompt(0), LONG, more, 200);
        char *said, finish[16];
        if (streamed) {
            http_events(&h, &got);
            said = got.text;
            memcpy(finish, got.finish, sizeof finish);
        } else {
            json_t *doc = http_json(&h);
            const json_t *choice = json_array_get(json_object_get(doc, "choices"), 0);
            said = strdup(document_text(choice, "text"));
            snprintf(finish, sizeof finish, "%s", document_text(choice, "finish_reason"));
            json_decref(doc);
        }
        CHECK(strcmp(finish, "stop") == 0, "finish '%s'", finish);
        CHECK(strlen(said) == first && memcmp(said, text, first) == 0,
              "%zu bytes instead of %zu: %.200s", strlen(said), first, said);
        free(said);
        http_close(&h);
    }
    stop_leaves_no_token(port, quoted, first);
    engine_wait_counter(e, "gateway", "streams_stopped", 3, END_MS);
    engine_wait_counter(e, "compute", "sequences_cancelled", 3, END_MS); /* nobody wants the rest */
    free(quoted);
    json_decref(list);
    free(text);
    engine_stop(e);
}

/* Clients that leave: while tokens come, while none is wanted yet, and while they wait in the
 * queue. Nothing is computed for them any more. */
static void disconnect_cancels(void)
{
    unsigned port;
    struct http streamed, whole, queued;
    struct engine *e = start(&port, (const char *const[]){"--http=0", "--experts=25", NULL});
    char *body = body_of(test_prompt(0), LONG, "");
    begin_stream(&streamed, port, test_prompt(0), LONG);
    CHECK(http_wait(&streamed, "data: ", END_MS), "no event");
    http_open(&whole, port, "/v1/completions", NULL, body);
    http_open(&queued, port, "/v1/completions", NULL, body);
    engine_wait_counter(e, "gateway", "streams_started", 3, END_MS);
    engine_wait_counter(e, "compute", "sequences_queued", 2, END_MS);
    http_close(&queued);
    http_close(&streamed);
    engine_wait_counter(e, "gateway", "streams_cancelled", 2, END_MS);
    engine_wait_counter(e, "compute", "sequences_cancelled", 2, END_MS);
    http_close(&whole);
    engine_wait_counter(e, "compute", "sequences_cancelled", 3, END_MS);
    uint64_t tokens = engine_counter(e, "compute", "tokens_decode");
    CHECK(tokens < LONG, "%" PRIu64 " tokens were made for nobody", tokens);
    CHECK(engine_counter(e, "compute", "sequences_done") == 0, "a sequence came to its end");
    CHECK(engine_counter(e, "gateway", "requests_malformed") == 0, "leaving is no bad request");
    free(body);
    engine_stop(e);
}

static void kill_compute(void)
{
    unsigned port;
    struct http h;
    baseline(0);
    struct engine *e = start(&port, (const char *const[]){"--http=0", "--experts=25", NULL});
    for (int round = 0; round < 3; round++) {
        pid_t pid = engine_pid(e, "compute", 0, 0);
        begin_stream(&h, port, test_prompt(0), BASELINE_TOKENS);
        CHECK(http_wait(&h, "data: ", END_MS), "no event");
        kill(pid, SIGKILL);
        check_stream(&h, baseline(0)->text, BASELINE_TOKENS, "compute killed");
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
        start(&port, (const char *const[]){"--http=0", "--experts=25", "--idle-cancel=1000", NULL});
    pid_t pid = engine_pid(e, "gateway", 0, 0);
    begin_stream(&h, port, test_prompt(0), LONG);
    CHECK(http_wait(&h, "data: ", END_MS), "no event");
    kill(pid, SIGKILL);
    http_finish(&h, END_MS);
    http_events(&h, &got);
    CHECK(!got.done, "the stream came to its end");
    free(got.text);
    http_close(&h);
    /* The socket is the supervisor's: who connects now is answered by the next one. */
    http_open(&h, port, "/health", NULL, NULL);
    http_finish(&h, END_MS);
    CHECK(h.status == 200 || h.status == 503, "status %d", h.status);
    http_close(&h);
    engine_pid(e, "gateway", 0, pid);
    engine_wait_counter(e, "compute", "sequences_cancelled", 1, END_MS);
    CHECK(http_port(e) == port, "another port");
    char *text = whole_text(port, test_prompt(0), BASELINE_TOKENS);
    CHECK(strcmp(text, baseline(0)->text) == 0, "another text: %.120s", text);
    free(text);
    json_decref(engine_control(e, "restart", json_pack("{s:s}", "process", "gateway")));
    CHECK(http_port(e) == port, "another port");
    engine_stop(e);
}

/* ---- crowds ---- */

/* A connection that goes no further: silent, half a head, half a body, or a stream nobody reads. */
static int stalled(unsigned port, unsigned kind)
{
    static const char *const begun[] = {
        "",
        "POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: ",
        HALF_A_BODY,
        "GET /stats HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    };
    const char *bytes = begun[kind % ARRAY_LEN(begun)];
    int fd = http_connect(port);
    http_write(fd, bytes, strlen(bytes));
    return fd;
}

static double health_ms(unsigned port)
{
    struct http h;
    uint64_t from = clock_now_ns();
    http_call(&h, port, "/health", NULL, NULL, 200);
    http_close(&h);
    return (double)(clock_now_ns() - from) / NS_PER_MS;
}

static void crowd_open(unsigned port, int fds[CROWD])
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < 2 * CROWD) {
        limit.rlim_cur = limit.rlim_max < 4096 ? limit.rlim_max : 4096;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
    for (unsigned i = 0; i < CROWD; i++)
        fds[i] = stalled(port, i);
}

static void crowd_close(const int fds[CROWD])
{
    for (unsigned i = 0; i < CROWD; i++)
        close(fds[i]);
}

static void stalled_clients(void)
{
    unsigned port;
    static int fds[CROWD];
    struct load load;
    double worst = 0;
    baseline(0);
    struct engine *e = start(&port, options);
    crowd_open(port, fds);
    engine_wait_counter(e, "gateway", "connections", CROWD, END_MS);
    load_start(&load, e);
    for (int i = 0; i < HEALTHS; i++) {
        double ms = health_ms(port);
        worst = ms > worst ? ms : worst;
    }
    test_note("%d stalled clients: /health within %.1f ms", CROWD, worst);
    load_judge(&load, e, worst <= HEALTH_MS, "/health under a crowd");
    char *text = whole_text(port, test_prompt(0), BASELINE_TOKENS);
    CHECK(strcmp(text, baseline(0)->text) == 0, "another text under a crowd");
    free(text);
    crowd_close(fds);
    CHECK(engine_restarts(e, "gateway", 0) == 0, "the gateway was restarted");
    engine_stop(e);
}

/* Connections beyond the bound wait; those that stall are cut off, and then it is their turn. */
static void connections_are_bounded(void)
{
    unsigned port;
    int fds[16];
    struct http h;
    struct engine *e = start(
        &port, (const char *const[]){"--http=0", "--http-connections=8", "--http-timeout=1", NULL});
    for (unsigned i = 0; i < ARRAY_LEN(fds); i++)
        fds[i] = stalled(port, i % 3);
    http_call(&h, port, "/health", NULL, NULL, 200);
    http_close(&h);
    for (unsigned i = 0; i < ARRAY_LEN(fds); i++)
        close(fds[i]);
    engine_stop(e);
}

/* A byte now and then is no pause, but no request either. */
static void slow_client_is_cut_off(void)
{
    unsigned port;
    struct engine *e = start(&port, (const char *const[]){"--http=0", "--http-timeout=1", NULL});
    int fd = http_connect(port);
    uint64_t deadline = deadline_in(END_MS);
    http_write(fd, "GET /health HTTP/1.1\r\nX-Slow: ", 31);
    while (send(fd, "x", 1, MSG_NOSIGNAL) == 1)
        CHECK(deadline_tick(deadline), "a slow client is served for ever");
    close(fd);
    engine_wait_counter(e, "gateway", "connections_cut", 1, END_MS);
    engine_stop(e);
}

/* Neither is one that takes its answer a few bytes at a time served for ever. */
static void slow_reader_is_cut_off(void)
{
    unsigned port;
    struct http h;
    char block[64], body[256];
    struct engine *e = start(&port, (const char *const[]){"--http=0", "--http-timeout=2", NULL});
    uint64_t deadline = deadline_in(END_MS);
    snprintf(body, sizeof body, TALK "%d}", MANY);
    http_ask(&h, http_connect_narrow(port), "/v1/chat/completions", NULL, body);
    engine_wait_counter(e, "gateway", "streams_finished", 1, END_MS);
    while (recv(h.fd, block, sizeof block, 0) > 0)
        CHECK(deadline_tick(deadline), "a slow reader is served for ever");
    http_close(&h);
    engine_wait_counter(e, "gateway", "connections_cut", 1, END_MS);
    engine_stop(e);
}

static void wait_nothing_held(struct engine *e)
{
    uint64_t deadline = deadline_in(END_MS);
    while (engine_counter(e, "gateway", "buffered_bytes") > 0)
        CHECK(deadline_tick(deadline), "something is counted for ever");
}

/* Uploads take no more than half of what is held, and nothing where no body is read. */
static void uploads_leave_room(void)
{
    unsigned port;
    struct http h, stream;
    char head[200];
    baseline(0);
    struct engine *e =
        start(&port, (const char *const[]){"--http=0", SMALL_BUFFER, "--http-body=64KiB",
                                           "--experts=25", NULL});
    char *large = malloc(100001);
    CHECK(large, "no memory");
    memset(large, 'x', 100000);
    large[100000] = 0;
    snprintf(head, sizeof head, "Content-Length: 100000\r\n");
    http_open(&h, port, "/health", head, NULL);
    http_write(h.fd, large, 100000);
    http_finish(&h, END_MS);
    CHECK(h.status == 200, "a body nobody reads: status %d: %.200s", h.status, h.body);
    http_close(&h);
    large[40000] = 0;
    completion(&h, port, large, 1, "", 413);
    CHECK(strstr(h.body, "half of --http-buffer"), "%.200s", h.body);
    http_close(&h);
    begin_stream(&stream, port, test_prompt(0), BASELINE_TOKENS);
    CHECK(http_wait(&stream, "data: ", END_MS), "no event");
    int fd = http_connect(port);
    int n = snprintf(head, sizeof head,
                     "POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\n"
                     "Content-Length: 30000\r\n\r\n");
    http_write(fd, head, (size_t)n);
    http_write(fd, large, 29000);
    engine_wait_counter(e, "gateway", "buffered_bytes", 32768, END_MS);
    large[2000] = 0;
    completion(&h, port, large, 1, "", 503);
    CHECK(strstr(h.raw, "Retry-After: 1") && strstr(h.body, "too much is held"), "%.300s", h.raw);
    http_close(&h);
    check_stream(&stream, baseline(0)->text, BASELINE_TOKENS, "beside uploads");
    close(fd);
    wait_nothing_held(e);
    free(large);
    engine_stop(e);
}

/* A prompt that compute has not taken yet is still held here, and still counted. */
static void prompts_stay_counted(void)
{
    unsigned port;
    struct http h;
    struct engine *e = start(&port, options);
    pid_t pid = engine_pid(e, "compute", 0, 0);
    char *large = malloc(30001);
    CHECK(large, "no memory");
    memset(large, 'x', 30000);
    large[30000] = 0;
    char *body = body_of(large, 1, "");
    kill(pid, SIGSTOP);
    http_open(&h, port, "/v1/completions", NULL, body);
    engine_wait_counter(e, "gateway", "streams_started", 1, END_MS);
    engine_wait_counter(e, "gateway", "buffered_bytes", 30000, END_MS);
    kill(pid, SIGCONT);
    http_finish(&h, END_MS);
    CHECK(h.status == 200 || h.status == 400, "status %d: %.200s", h.status, h.body);
    http_close(&h);
    wait_nothing_held(e);
    free(body);
    free(large);
    engine_stop(e);
}

/* What does not fit is an error that says so: whole, or as the last event of a stream, whose events
 * are whole all the same (http_events parses them). */
static void what_does_not_fit(void)
{
    unsigned port;
    struct http h;
    struct events got;
    char body[256];
    struct engine *e = start(&port, (const char *const[]){"--http=0", SMALL_BUFFER, NULL});
    snprintf(body, sizeof body, TALK "%d}", MANY);
    http_call(&h, port, "/v1/chat/completions", NULL, body, 503);
    CHECK(strstr(h.body, "too much is held"), "%.300s", h.body);
    http_close(&h);
    wait_nothing_held(e);
    /* It falls behind; what was made meanwhile comes as one event. */
    snprintf(body, sizeof body, TALK "%d,\"stream\":true}", MANY);
    uint64_t done = engine_counter(e, "compute", "sequences_done");
    http_ask(&h, http_connect_narrow(port), "/v1/chat/completions", NULL, body);
    engine_wait_counter(e, "compute", "sequences_done", done + 1, END_MS);
    http_finish(&h, END_MS);
    http_events(&h, &got);
    CHECK(h.status == 200 && got.count > 2 && strstr(got.error, "too much is held") &&
              !got.finish[0],
          "finish '%s', error '%s'", got.finish, got.error);
    free(got.text);
    http_close(&h);
    engine_wait_counter(e, "gateway", "streams_failed", 2, END_MS);
    wait_nothing_held(e);
    engine_stop(e);
}

static uint64_t floor_with_gateway(void)
{
    struct engine *e = engine_new();
    engine_start(e, (const char *const[]){"--http=0", "--cgroup=off", NULL});
    json_t *doc = engine_stats(e);
    uint64_t floor = document_u64(doc, "memory.floor_bytes");
    json_decref(doc);
    engine_stop(e);
    return floor;
}

static void budget_held(void)
{
    unsigned port;
    static int fds[CROWD];
    char option[48];
    struct http h[4];
    uint64_t samples, budget = align_up(floor_with_gateway() + 4 * MIB, PAGE_BYTES);
    struct engine *e = engine_new();
    baseline(0);
    cgroup_make(e->cgroup);
    engine_use_fresh_programs(e);
    struct sampler *s = sampler_start(e->cgroup);
    snprintf(option, sizeof option, "--budget=%" PRIu64, budget);
    engine_start(e, (const char *const[]){option, "--cgroup=off", "--http=0", NULL});
    port = http_port(e);
    crowd_open(port, fds);
    engine_wait_counter(e, "gateway", "connections", CROWD, END_MS);
    for (size_t i = 0; i < ARRAY_LEN(h); i++)
        begin_stream(&h[i], port, test_prompt(0), BASELINE_TOKENS);
    for (size_t i = 0; i < ARRAY_LEN(h); i++)
        check_stream(&h[i], baseline(0)->text, BASELINE_TOKENS, "within the budget");
    crowd_close(fds);
    uint64_t peak = sampler_peak(s, &samples);
    test_note("peak %.1f MiB of %.1f MiB (%" PRIu64 " samples)", (double)peak / MIB,
              (double)budget / MIB, samples);
    CHECK(peak <= budget, "%.1f MiB are beyond the budget of %.1f MiB", (double)peak / MIB,
          (double)budget / MIB);
    engine_stop(e);
    sampler_stop(s);
}

/* ---- strangers ---- */

/* What is no HTTP, or no request of ours: 4xx, or the connection ends. Nothing else. */
static void malformed(void)
{
    static const struct {
        const char *bytes;
        int status; /* 0: any 4xx, or the end of the connection */
    } cases[] = {
        {"\r\n\r\n", 0},
        {"GARBAGE\r\n\r\n", 0},
        {"GET\r\n\r\n", 0},
        {"GET / HTTP/9.9\r\n\r\n", 0},
        {"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 0},
        {"GET /health HTTP/1.1\r\n\r\n", 400}, /* no Host */
        {"GET /health HTTP/1.1\r\nHost: x\r\nbroken\r\n\r\n", 0},
        {"GET /health HTTP/1.1\r\nHost: evil.example\r\n\r\n", 403},
        {"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nOrigin: http://evil.example\r\n\r\n", 403},
        {"GET /../../etc/passwd HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", 404},
        {"DELETE /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", 405},
        {"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: x\r\n\r\n", 0},
        {"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: -1\r\n\r\n", 0},
        {"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 0\r\n\r\n", 400},
        {"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 2\r\n\r\n{}", 400},
        {"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 4\r\n\r\n\xff\xfe{}",
         400},
        {"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n"
         "zz\r\n",
         0},
        {"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n"
         "\r\n2\r\n{}\r\n0\r\n\r\n",
         400},
        {"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 5\r\n"
         "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
         400},
        {"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nExpect: 100-continue\r\n"
         "Content-Length: 2\r\n\r\n{}",
         400},
    };
    unsigned port;
    /* The end of a connection that comes with the bytes is seen when its time is over. */
    struct engine *e = start(&port, (const char *const[]){"--http=0", "--http-timeout=1", NULL});
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct http h = {.fd = http_connect(port)};
        http_write(h.fd, cases[i].bytes, strlen(cases[i].bytes));
        shutdown(h.fd, SHUT_WR);
        http_finish(&h, END_MS);
        /* An interim reply goes before the reply. */
        const char *last = h.raw ? strstr(h.raw, "HTTP/1.1 100") : NULL;
        if (last && (last = strstr(last, "\r\n\r\nHTTP/1.1 ")))
            h.status = (int)strtol(last + 13, NULL, 10);
        bool fine = cases[i].status ? h.status == cases[i].status
                                    : h.status == 0 || (h.status >= 400 && h.status <= 505);
        CHECK(fine, "case %zu: status %d instead of %d: %.200s", i, h.status, cases[i].status,
              h.raw ? h.raw : "");
        http_close(&h);
    }
    CHECK(engine_restarts(e, "gateway", 0) == 0, "the gateway was restarted");
    health_ms(port);
    engine_stop(e);
}

/* A body beyond the bound, and many bad requests: refused, and the log does not fill. */
static void bounds(void)
{
    unsigned port;
    struct http h;
    struct command lines;
    struct engine *e = start(
        &port, (const char *const[]){"--http=0", "--http-body=4KiB", "--http-prompt=100", NULL});
    /* What a client wrote comes into the log, but nothing in it that a terminal obeys. */
    completion(&h, port, "x", 1, "\"\\u009b2Jblank\":1", 400);
    http_close(&h);
    char *large = malloc(9001);
    memset(large, 'x', 9000);
    large[9000] = 0;
    completion(&h, port, large, 1, "", 413);
    http_close(&h);
    large[200] = 0;
    completion(&h, port, large, 1, "", 400);
    CHECK(strstr(h.body, "at most 100"), "%.200s", h.body);
    http_close(&h);
    free(large);
    for (int i = 0; i < 100; i++) {
        completion(&h, port, "x", 1, "\"moon\":1", 400);
        http_close(&h);
    }
    command_run(&lines, NULL, END_MS,
                (const char *const[]){"/bin/grep", "-c", "WARN gateway", e->log, NULL});
    CHECK(strtol(lines.out, NULL, 10) <= 5, "%s lines for 103 bad requests", lines.out);
    command_free(&lines);
    command_run(
        &lines, NULL, END_MS,
        (const char *const[]){"/bin/grep", "-c", "unknown field '  2Jblank'", e->log, NULL});
    CHECK(strtol(lines.out, NULL, 10) == 1, "the log has not the line, or the bytes");
    command_free(&lines);
    CHECK(engine_counter(e, "gateway", "requests_bad") >= 103, "they were not counted");
    engine_stop(e);
}

static void keys(void)
{
    unsigned port;
    struct http h;
    char path[PATH_MAX], option[PATH_MAX + 32];
    snprintf(path, sizeof path, "%s/key", test_dir());
    FILE *f = fopen(path, "we");
    fputs("open sesame\nsecond line\n", f);
    fclose(f);
    snprintf(option, sizeof option, "--http-key-file=%s", path);
    struct engine *e = start(&port, (const char *const[]){"--http=0", option, NULL});
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
    /* The key is the first word of the file; as a password, too. */
    http_call(&h, port, "/stats", "Authorization: Bearer open\r\n", NULL, 200);
    http_close(&h);
    http_call(&h, port, "/metrics", "Authorization: Basic dTpvcGVu\r\n", NULL, 200);
    CHECK(strstr(h.body, "sluice_memory_budget_bytes"), "%.200s", h.body);
    http_close(&h);
    engine_stop(e);
}

/* The documents: the page has its numbers without a script and nothing from outside; the map has a
 * sign for each expert; the metrics are what Prometheus takes. */
static void documents(void)
{
    unsigned port;
    struct http h;
    struct engine *e = start(&port, (const char *const[]){"--http=0", "--experts=50", NULL});
    free(whole_text(port, test_prompt(0), 16));
    http_call(&h, port, "/", NULL, NULL, 200);
    CHECK(strstr(h.body, "<td>compute</td><td>ready</td>") && strstr(h.body, "<th>new tokens</th>"),
          "no numbers in the page: %.400s", h.body);
    CHECK(!strstr(h.body, "//") && strstr(h.raw, "Content-Security-Policy: default-src 'none'"),
          "something from outside");
    http_close(&h);
    static const char *const assets[] = {"/dashboard.css", "/dashboard.js"};
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
        const char *held = document_text(json_array_get(rows, i), "held");
        const char *heat = document_text(json_array_get(rows, i), "heat");
        CHECK(strlen(held) == 32 && strlen(heat) == 32, "%.300s", h.body);
        for (size_t x = 0; x < 32; x++) {
            resident += held[x] == '0';
            hot += heat[x] != '0';
        }
    }
    CHECK(resident > 0 && resident <= 128 && hot > 0, "%zu resident, %zu used", resident, hot);
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
    http_close(&h);
    engine_stop(e);
}

/* What cannot be served is said before anything starts. */
static void refused_at_start(void)
{
    static const char *const bad[][2] = {{"--http=0.0.0.0:0", "--http-timeout=5"},
                                         {"--http=nowhere:80", "--http-timeout=5"},
                                         {"--http=70000", "--http-timeout=5"},
                                         {"--http=0", "--http-key-file=/nonexistent"}};
    struct command c;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        command_run(&c, NULL, END_MS,
                    (const char *const[]){"run", "-m", test_model(), "--run", "refused", bad[i][0],
                                          bad[i][1], NULL});
        CHECK(c.status == 2 && command_lines(c.err) == 1, "%s: status %d: %.300s", bad[i][0],
              c.status, c.err);
        command_free(&c);
    }
    char path[PATH_MAX], option[PATH_MAX + 32];
    snprintf(path, sizeof path, "%s/long_key", test_dir());
    snprintf(option, sizeof option, "--http-key-file=%s", path);
    FILE *f = fopen(path, "we");
    for (int i = 0; i < 512; i++)
        fputc('k', f);
    fclose(f);
    command_run(&c, NULL, END_MS,
                (const char *const[]){"run", "-m", test_model(), "--run", "refused", "--http=0",
                                      option, NULL});
    CHECK(c.status == 2 && strstr(c.err, "at most 511 bytes"), "status %d: %.300s", c.status,
          c.err);
    command_free(&c);
}

int main(int argc, char **argv)
{
#define ROW(name)                                                                                  \
    {                                                                                              \
#name, name                                                                                \
    }
    static const struct test_case cases[] = {
        ROW(same_text),
        ROW(stops),
        ROW(disconnect_cancels),
        ROW(kill_compute),
        ROW(kill_gateway),
        ROW(stalled_clients),
        ROW(connections_are_bounded),
        ROW(budget_held),
        ROW(malformed),
        ROW(bounds),
        ROW(keys),
        ROW(refused_at_start),
        ROW(documents),
        ROW(slow_client_is_cut_off),
        ROW(slow_reader_is_cut_off),
        ROW(uploads_leave_room),
        ROW(prompts_stay_counted),
        ROW(what_does_not_fit),
    };
    return test_main(argc, argv, cases, ARRAY_LEN(cases));
}
