/* SPDX-License-Identifier: Apache-2.0 */
/* Misbehaving clients of the gateway: they disconnect, stall, do not read, open many connections
 * and send too much. They delay no other client, and the memory that the gateway uses for them is
 * bounded. */
#include <errno.h>
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
#include "tests/scenario/completions.h"

#define CROWD        640
#define CROWD_STAYS  (CROWD / 4 * 3) /* the others get their reply, which closes the connection */
#define HEALTH_MS    100
#define HEALTHS      20
#define BODIES_BYTES (CROWD / 4 * 512ull) /* partial bodies of the crowd, counted in blocks */
#define READERS      12   /* clients that do not read their stream, besides the crowd */
#define UNREAD       200  /* tokens of each; their events exceed the socket buffers */
#define UNREAD_BYTES 4096 /* of each, buffered by the gateway: minimum */
#define HALF_A_BODY                                                                                \
    "POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 90000\r\n\r\n"            \
    "{\"prompt\":\"It was"
#define PING         "B\r\n: waiting\n\n\r\n" /* a chunk, as libmicrohttpd writes it */
#define PINGS        6
#define SLOWLY_READ  300 /* tokens whose alternatives a narrow connection does not hold */
#define MANY         400 /* tokens whose alternatives exceed SMALL_BUFFER */
#define SMALL_BUFFER "--http-buffer=64KiB"
#define TALK_REST                                                                                  \
    "\"messages\":[{\"role\":\"user\",\"content\":\"Hello\"}],\"temperature\":0,"                  \
    "\"ignore_eos\":true,\"logprobs\":true,\"max_tokens\":"
#define TALK "{" TALK_REST
/* More bytes of each token. */
#define MUCH_TALK "{\"top_logprobs\":16," TALK_REST

static const char *const options[] = {"--http=0", NULL};

/* Clients that disconnect while a stream is sent, while waiting for a whole response, and while
 * queued. Nothing more is computed for them. */
static void disconnect_cancels(void)
{
    unsigned port;
    struct http streamed, whole, queued;
    struct engine *e = gateway_start(
        &port, (const char *const[]){"--http=0", "--resident-experts=25", "--parallel=1", NULL});
    char *body = completion_body(test_prompt(0), LONG, "");
    completion_start(&streamed, port, test_prompt(0), LONG);
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
    CHECK(tokens < LONG, "%" PRIu64 " tokens were computed after the disconnect", tokens);
    CHECK(engine_counter(e, "compute", "sequences_done") == 0, "a sequence was not cancelled");
    CHECK(engine_counter(e, "gateway", "requests_malformed") == 0,
          "a disconnect was counted as a malformed request");
    free(body);
    engine_stop(e);
}

/* A queued stream gets keep-alive comments while it waits. */
static void queued_streams_get_an_error(void)
{
    unsigned port;
    struct http first, queued;
    baseline(0);
    struct engine *e =
        gateway_start(&port, (const char *const[]){"--http=0", "--http-timeout=1",
                                                   "--resident-experts=25", "--parallel=1", NULL});
    completion_start(&first, port, test_prompt(0), LONG);
    CHECK(http_wait(&first, "data: ", END_MS), "no event");
    completion_start(&queued, port, test_prompt(0), baseline_tokens());
    engine_wait_counter(e, "compute", "sequences_queued", 1, END_MS);
    /* At the maximum interval of 5 s the running stream would end before this many comments. Those
     * that state the place in the queue are between them. */
    CHECK(http_wait_times(&queued, PING, PINGS, END_MS), "the stream ended: %.500s",
          strstr(queued.raw, "\r\n\r\n"));
    CHECK(!strstr(queued.raw, "data: "), "the stream was not queued: %.300s", queued.raw);
    http_close(&first);
    completion_check(&queued, baseline(0)->text, baseline_tokens(), "after another");
    engine_stop(e);
}

/* The client disconnects while compute is stopped: every token decoded after that, before the
 * sequence is cancelled, is wasted. */
static void leaves(struct engine *e, struct http *h, const char *who)
{
    pid_t pid = engine_pid(e, "compute", 0, 0);
    uint64_t left = engine_counter(e, "gateway", "streams_cancelled");
    uint64_t cancelled = engine_counter(e, "compute", "sequences_cancelled");
    CHECK(kill(pid, SIGSTOP) == 0, "no compute");
    process_wait_state(pid, 'T', END_MS);
    uint64_t before = engine_counter(e, "compute", "tokens_decode");
    http_close(h);
    engine_wait_counter(e, "gateway", "streams_cancelled", left + 1, END_MS);
    kill(pid, SIGCONT);
    engine_wait_counter(e, "compute", "sequences_cancelled", cancelled + 1, END_MS);
    uint64_t tokens = engine_counter(e, "compute", "tokens_decode") - before;
    test_note("%s: %" PRIu64 " tokens after the disconnect", who, tokens);
    CHECK(tokens <= 1, "%s: %" PRIu64 " tokens after the disconnect", who, tokens);
}

/* Waits until the running sequence decodes. */
static void wait_decoding(struct engine *e)
{
    uint64_t tokens = engine_counter(e, "compute", "tokens_decode");
    engine_wait_counter(e, "compute", "tokens_decode", tokens + 1, END_MS);
}

/* With slow tokens, the token in progress at the disconnect is the last one: for a stream that is
 * read, a response that is not streamed, and a stream that is not read. */
static void cancelled_within_a_token(void)
{
    unsigned port;
    struct http h;
    struct engine *e =
        gateway_start(&port, (const char *const[]){"--http=0", "--resident-experts=25",
                                                   "--throttle=16MiB", NULL});
    completion_start(&h, port, test_prompt(0), LONG);
    CHECK(http_wait(&h, "data: ", END_MS), "no event");
    leaves(e, &h, "streamed");
    char *body = completion_body(test_prompt(0), LONG, "");
    http_open(&h, port, "/v1/completions", NULL, body);
    wait_decoding(e);
    leaves(e, &h, "whole");
    free(body);
    body = completion_body(test_prompt(0), LONG, "\"stream\":true");
    http_send_request(&h, http_connect_narrow(port), "/v1/completions", NULL, body);
    wait_decoding(e);
    leaves(e, &h, "unread");
    free(body);
    CHECK(engine_counter(e, "compute", "sequences_done") == 0, "a sequence was not cancelled");
    CHECK(engine_counter(e, "gateway", "requests_malformed") == 0,
          "a disconnect was counted as a malformed request");
    engine_stop(e);
}

/* A connection that stalls: silent, after a partial header, after a partial body; or with a reply
 * that it does not read, which fits the socket buffers. */
static int stalled(unsigned port, unsigned kind)
{
    static const char *const partial_requests[] = {
        "",
        "POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: ",
        HALF_A_BODY,
        "GET /stats HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    };
    const char *bytes = partial_requests[kind % ARRAY_LEN(partial_requests)];
    int fd = http_connect(port);
    http_write(fd, bytes, strlen(bytes));
    return fd;
}

static void wait_nothing_buffered(struct engine *e)
{
    uint64_t deadline = deadline_in(END_MS);
    while (engine_counter(e, "gateway", "buffered_bytes") > 0)
        CHECK(deadline_tick(deadline), "buffered_bytes does not return to 0");
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

/* Opens streams and does not read them. */
static void readers_open(struct engine *e, unsigned port, struct http readers[READERS])
{
    char body[256];
    snprintf(body, sizeof body, TALK "%d,\"stream\":true}", UNREAD);
    for (size_t i = 0; i < READERS; i++)
        http_send_request(&readers[i], http_connect_narrow(port), "/v1/chat/completions", NULL,
                          body);
    engine_wait_counter(e, "gateway", "streams_started", READERS, END_MS);
}

static uint64_t reserved_of_gateway(struct engine *e)
{
    json_t *doc = engine_stats(e);
    uint64_t reserved = lookup_u64(lookup_process(doc, "gateway", 0), "reserved_bytes");
    json_decref(doc);
    return reserved;
}

static double worst_health_ms(unsigned port)
{
    double worst = 0;
    for (int i = 0; i < HEALTHS; i++) {
        double ms = health_ms(port);
        worst = ms > worst ? ms : worst;
    }
    return worst;
}

/* Clients that stall at every stage. Other clients are served as usual, and the gateway's memory
 * stays within its reservation, which does not change. */
static void stalled_clients(void)
{
    unsigned port;
    static int fds[CROWD];
    static struct http readers[READERS];
    struct load load;
    baseline(0);
    struct engine *e = gateway_start(&port, options);
    pid_t pid = engine_pid(e, "gateway", 0, 0);
    uint64_t reserved = reserved_of_gateway(e), alone = process_private_bytes(pid);
    crowd_open(port, fds);
    engine_wait_counter(e, "gateway", "buffered_bytes", BODIES_BYTES, END_MS);
    readers_open(e, port, readers);
    engine_wait_counter(e, "gateway", "connections", CROWD_STAYS + READERS, END_MS);
    load_start(&load, e);
    double worst = worst_health_ms(port);
    test_note("%d stalled clients: /health within %.1f ms", CROWD + READERS, worst);
    load_judge(&load, e, worst <= HEALTH_MS, "/health under a crowd");
    char *text =
        completion_text(port, test_prompt(0), baseline_tokens()); /* queued after all of them */
    CHECK(strcmp(text, baseline(0)->text) == 0, "the text differs with stalled clients");
    free(text);
    uint64_t buffered = engine_counter(e, "gateway", "buffered_bytes");
    uint64_t private = process_private_bytes(pid);
    test_note("private memory of the gateway: %.1f MiB, %.1f MiB with them, %.1f MiB reserved",
              (double)alone / MIB, (double)private / MIB, (double)reserved / MIB);
    CHECK(buffered >= BODIES_BYTES + READERS * UNREAD_BYTES, "only %" PRIu64 " bytes are buffered",
          buffered);
    CHECK(private > alone && private <= reserved && reserved == reserved_of_gateway(e),
          "%.1f MiB are in use, %.1f MiB reserved", (double)private / MIB, (double)reserved / MIB);
    crowd_close(fds);
    for (size_t i = 0; i < READERS; i++)
        http_close(&readers[i]);
    wait_nothing_buffered(e);
    CHECK(engine_restarts(e, "gateway", 0) == 0, "the gateway was restarted");
    CHECK(engine_counter(e, "gateway", "requests_malformed") == 0,
          "a disconnect was counted as a malformed request");
    engine_stop(e);
}

/* Connections beyond the limit wait until a stalled one is timed out. */
static void connections_are_bounded(void)
{
    unsigned port;
    int fds[16];
    struct http h;
    struct engine *e = gateway_start(
        &port, (const char *const[]){"--http=0", "--http-connections=8", "--http-timeout=1", NULL});
    for (unsigned i = 0; i < ARRAY_LEN(fds); i++)
        fds[i] = stalled(port, i % 3);
    http_call(&h, port, "/health", NULL, NULL, 200);
    http_close(&h);
    for (unsigned i = 0; i < ARRAY_LEN(fds); i++)
        close(fds[i]);
    engine_stop(e);
}

/* Sending a byte now and then does not extend the timeout of a request. */
static void slow_client_is_cut_off(void)
{
    unsigned port;
    struct engine *e =
        gateway_start(&port, (const char *const[]){"--http=0", "--http-timeout=1", NULL});
    int fd = http_connect(port);
    uint64_t deadline = deadline_in(END_MS);
    http_write(fd, "GET /health HTTP/1.1\r\nX-Slow: ", 30);
    while (send(fd, "x", 1, MSG_NOSIGNAL) == 1)
        CHECK(deadline_tick(deadline), "a slow client is not disconnected");
    close(fd);
    engine_wait_counter(e, "gateway", "connections_timed_out", 1, END_MS);
    engine_stop(e);
}

/* A client that reads its reply a few bytes at a time is timed out too. */
static void slow_reader_is_cut_off(void)
{
    unsigned port;
    struct http h;
    char block[64], body[256];
    struct engine *e =
        gateway_start(&port, (const char *const[]){"--http=0", "--http-timeout=2", NULL});
    uint64_t deadline = deadline_in(END_MS);
    snprintf(body, sizeof body, MUCH_TALK "%d}", SLOWLY_READ);
    http_send_request(&h, http_connect_narrow(port), "/v1/chat/completions", NULL, body);
    engine_wait_counter(e, "gateway", "streams_finished", 1, END_MS);
    while (recv(h.fd, block, sizeof block, 0) > 0) {
        CHECK(clock_now_ns() < deadline, "a slow reader is not disconnected");
        deadline_tick(deadline_in(1000)); /* of its own, so that the pauses do not grow */
    }
    http_close(&h);
    engine_wait_counter(e, "gateway", "connections_timed_out", 1, END_MS);
    engine_stop(e);
}

/* Uploads use at most half of the buffers; a body that the request ignores uses none. */
static void uploads_leave_space(void)
{
    unsigned port;
    struct http h, stream;
    char head[200];
    baseline(0);
    struct engine *e =
        gateway_start(&port, (const char *const[]){"--http=0", SMALL_BUFFER, "--http-body=64KiB",
                                                   "--resident-experts=25", NULL});
    char *large = malloc(100001);
    CHECK(large, "out of memory");
    memset(large, 'x', 100000);
    large[100000] = 0;
    snprintf(head, sizeof head, "Content-Length: 100000\r\n");
    http_open(&h, port, "/health", head, NULL);
    http_write(h.fd, large, 100000);
    http_finish(&h, END_MS);
    CHECK(h.status == 200, "an ignored body: status %d: %.200s", h.status, h.body);
    http_close(&h);
    large[40000] = 0;
    completion_call(&h, port, large, 1, "", 413);
    CHECK(strstr(h.body, "half of --http-buffer"), "%.200s", h.body);
    http_close(&h);
    completion_start(&stream, port, test_prompt(0), baseline_tokens());
    CHECK(http_wait(&stream, "data: ", END_MS), "no event");
    int fd = http_connect(port);
    int n = snprintf(head, sizeof head,
                     "POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\n"
                     "Content-Length: 30000\r\n\r\n");
    http_write(fd, head, (size_t)n);
    http_write(fd, large, 29000);
    engine_wait_counter(e, "gateway", "buffered_bytes", 32768, END_MS);
    large[2000] = 0;
    completion_call(&h, port, large, 1, "", 503);
    CHECK(strstr(h.raw, "Retry-After: 1") && strstr(h.body, "buffers are full"), "%.300s", h.raw);
    http_close(&h);
    completion_check(&stream, baseline(0)->text, baseline_tokens(), "during uploads");
    close(fd);
    wait_nothing_buffered(e);
    free(large);
    engine_stop(e);
}

/* A prompt that compute has not received yet stays buffered here and counted. */
static void prompts_stay_counted(void)
{
    unsigned port;
    struct http h;
    struct engine *e = gateway_start(&port, options);
    pid_t pid = engine_pid(e, "compute", 0, 0);
    char *large = malloc(30001);
    CHECK(large, "out of memory");
    memset(large, 'x', 30000);
    large[30000] = 0;
    char *body = completion_body(large, 1, "");
    kill(pid, SIGSTOP);
    http_open(&h, port, "/v1/completions", NULL, body);
    /* Read both after the upload: while the body arrives it is always counted. */
    engine_wait_counter(e, "gateway", "streams", 1, END_MS);
    uint64_t buffered = engine_counter(e, "gateway", "buffered_bytes");
    kill(pid, SIGCONT);
    CHECK(buffered >= 30000, "%" PRIu64 " bytes are counted", buffered);
    http_finish(&h, END_MS);
    CHECK(h.status == 200 || h.status == 400, "status %d: %.200s", h.status, h.body);
    http_close(&h);
    wait_nothing_buffered(e);
    free(body);
    free(large);
    engine_stop(e);
}

/* The first number that is no descriptor of a process. */
static rlim_t first_free(pid_t pid)
{
    char path[64], target[16];
    rlim_t n = 0;
    do
        snprintf(path, sizeof path, "/proc/%d/fd/%u", (int)pid, (unsigned)n++);
    while (readlink(path, target, sizeof target) > 0);
    return n - 1;
}

/* A gateway that can open no descriptor, although no connection is open, is replaced: waiting would
 * not help. With a limit below the number of those that it polls, poll would fail, too. */
static void without_descriptors(void)
{
    unsigned port;
    struct http h;
    struct engine *e = gateway_start(&port, (const char *const[]){"--http=0", NULL});
    pid_t pid = engine_pid(e, "gateway", 0, 0);
    const struct rlimit none = {.rlim_cur = first_free(pid), .rlim_max = first_free(pid)};
    CHECK(prlimit(pid, RLIMIT_NOFILE, &none, NULL) == 0, "prlimit: %s", strerror(errno));
    http_call(&h, port, "/health", NULL, NULL, 200); /* of the successor; it stayed in the queue */
    http_close(&h);
    CHECK(engine_restarts(e, "gateway", 0) == 1, "the gateway was not replaced");
    engine_stop(e);
}

static uint64_t sequences_ended(struct engine *e)
{
    return engine_counter(e, "compute", "sequences_done") +
           engine_counter(e, "compute", "sequences_cancelled");
}

static void wait_ended(struct engine *e, uint64_t count)
{
    uint64_t deadline = deadline_in(3 * END_MS);
    while (sequences_ended(e) < count)
        CHECK(deadline_tick(deadline), "%" PRIu64 " sequences ended, expected %" PRIu64,
              sequences_ended(e), count);
}

/* A response that exceeds the buffers fails with a named error; a stream ends with it, after
 * complete events (http_events parses them). On a busy machine the gateway may run so rarely that
 * the tokens generated between two of its turns are too many while the sequence still runs, which
 * is then cancelled; and all tokens may take longer than the default --http-timeout, after which
 * the gateway gives up a client that does not read. */
static void what_does_not_fit(void)
{
    unsigned port;
    struct http h;
    struct events got;
    char body[256];
    struct engine *e = gateway_start(
        &port, (const char *const[]){"--http=0", SMALL_BUFFER, "--http-timeout=600", NULL});
    snprintf(body, sizeof body, MUCH_TALK "%d}", MANY);
    http_call(&h, port, "/v1/chat/completions", NULL, body, 400);
    CHECK(strstr(h.body, "stream it"), "%.300s", h.body);
    http_close(&h);
    wait_nothing_buffered(e);
    wait_ended(e, 1);
    /* The reader falls behind; text generated meanwhile is sent as one event. */
    snprintf(body, sizeof body, MUCH_TALK "%d,\"stream\":true}", MANY);
    http_send_request(&h, http_connect_narrow(port), "/v1/chat/completions", NULL, body);
    wait_ended(e, 2);
    http_finish(&h, END_MS);
    http_events(&h, &got);
    CHECK(h.status == 200 && got.count > 2 && strstr(got.error, "buffers are full") &&
              !got.finish[0],
          "finish '%s', error '%s'", got.finish, got.error);
    free(got.text);
    http_close(&h);
    engine_wait_counter(e, "gateway", "streams_failed", 2, END_MS);
    wait_nothing_buffered(e);
    engine_stop(e);
}

static uint64_t min_budget_with_gateway(void)
{
    struct engine *e = engine_new();
    engine_start(e, (const char *const[]){"--http=0", "--cgroup=off", NULL});
    json_t *doc = engine_stats(e);
    uint64_t min_budget = lookup_u64(doc, "memory.min_budget_bytes");
    json_decref(doc);
    engine_stop(e);
    return min_budget;
}

static void stays_within_budget(void)
{
    unsigned port;
    static int fds[CROWD];
    char option[48];
    struct http h[4];
    uint64_t samples, budget = align_up(min_budget_with_gateway() + 4 * MIB, PAGE_BYTES);
    struct engine *e = engine_new();
    baseline(0);
    cgroup_make(e->cgroup);
    engine_use_fresh_programs(e);
    struct sampler *s = sampler_start(e->cgroup);
    snprintf(option, sizeof option, "--budget=%" PRIu64, budget);
    engine_start(e, (const char *const[]){option, "--cgroup=off", "--http=0", NULL});
    port = http_port(e);
    crowd_open(port, fds);
    engine_wait_counter(e, "gateway", "connections", CROWD_STAYS, END_MS);
    for (size_t i = 0; i < ARRAY_LEN(h); i++)
        completion_start(&h[i], port, test_prompt(0), baseline_tokens());
    for (size_t i = 0; i < ARRAY_LEN(h); i++)
        completion_check(&h[i], baseline(0)->text, baseline_tokens(), "within the budget");
    crowd_close(fds);
    uint64_t peak = sampler_peak(s, &samples);
    test_note("peak %.1f MiB of %.1f MiB (%" PRIu64 " samples)", (double)peak / MIB,
              (double)budget / MIB, samples);
    CHECK(peak <= budget, "%.1f MiB exceed the budget of %.1f MiB", (double)peak / MIB,
          (double)budget / MIB);
    engine_stop(e);
    sampler_stop(s);
}

int main(int argc, char **argv)
{
    static const struct test_case cases[] = {
        ROW(disconnect_cancels),       ROW(queued_streams_get_an_error),
        ROW(cancelled_within_a_token), ROW(stalled_clients),
        ROW(connections_are_bounded),  ROW(stays_within_budget),
        ROW(slow_client_is_cut_off),   ROW(slow_reader_is_cut_off),
        ROW(uploads_leave_space),      ROW(prompts_stay_counted),
        ROW(what_does_not_fit),        ROW(without_descriptors),
    };
    return test_main(argc, argv, cases, ARRAY_LEN(cases));
}
