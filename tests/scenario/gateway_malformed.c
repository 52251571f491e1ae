/* SPDX-License-Identifier: Apache-2.0 */
/* Untrusted bytes at the gateway: not HTTP, unsupported requests, too many bytes. Each gets an
 * error response and a log line, and affects no other client. */
#include <glob.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "lib/base/bytes.h"
#include "tests/scenario/completions.h"

#define HALF_OF_THE_LINES 10 /* of the log limit: 20 rejections per ten seconds */
#define BLOCK_BYTES       (64 << 10)
#define SENT_MAX          (64ull << 20) /* more than the socket buffers of both ends hold */

static const char *const options[] = {"--http=0", NULL};

static long lines_with(const struct engine *e, const char *text)
{
    struct command c;
    command_run(&c, NULL, END_MS, (const char *const[]){"/bin/grep", "-c", text, e->log, NULL});
    long lines = strtol(c.out, NULL, 10);
    command_free(&c);
    return lines;
}

/* The gateway's log is written by a thread of its own. */
static void wait_lines(const struct engine *e, long wanted)
{
    uint64_t deadline = deadline_in(END_MS);
    while (lines_with(e, "WARN gateway") < wanted)
        CHECK(deadline_tick(deadline), "the log has fewer than %ld lines", wanted);
}

static bool is_4xx(const struct http *h)
{
    return h->status >= 400 && h->status < 500;
}

/* The reply to these bytes when the client sends no more. */
static void reply_to(struct http *h, unsigned port, const char *bytes, size_t n)
{
    *h = (struct http){.fd = http_connect(port)};
    http_write(h->fd, bytes, n);
    shutdown(h->fd, SHUT_WR);
    http_finish(h, END_MS);
    /* An interim reply may precede the final one. */
    const char *last = h->raw ? strstr(h->raw, "HTTP/1.1 100") : NULL;
    if (last && (last = strstr(last, "\r\n\r\nHTTP/1.1 ")))
        h->status = (int)strtol(last + 13, NULL, 10);
}

static uint64_t rejected_count(struct engine *e)
{
    return engine_counter(e, "gateway", "requests_malformed") +
           engine_counter(e, "gateway", "requests_bad");
}

/* Other clients are unaffected. */
static void end_unharmed(struct engine *e, unsigned port)
{
    struct http health;
    if (!e)
        return;
    CHECK(engine_restarts(e, "gateway", 0) == 0, "the gateway was restarted");
    CHECK(engine_counter(e, "gateway", "requests_malformed") > 0,
          "no malformed request was counted");
    http_call(&health, port, "/health", NULL, NULL, 200);
    http_close(&health);
    engine_stop(e);
}

/* Not HTTP, or an unsupported request: an error response and a log line; the log is limited to 20
 * of these lines per ten seconds. */
static void malformed(void)
{
    static const struct {
        const char *bytes;
        int status; /* 0: any 4xx */
    } cases[] = {
        {"\r\n\r\n", 400},
        {"GARBAGE\r\n\r\n", 400},
        {"GET\r\n\r\n", 400},
        {"GET / HTTP/9.9\r\n\r\n", 400},
        {"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400},
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
    unsigned port = 0;
    struct engine *e = NULL;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct http h;
        /* The gateway may notice a shutdown sent with the bytes only after --http-timeout: 1 s. */
        if (i % HALF_OF_THE_LINES == 0) {
            end_unharmed(e, port);
            e = gateway_start(&port, (const char *const[]){"--http=0", "--http-timeout=1", NULL});
        }
        long before = lines_with(e, "WARN gateway");
        reply_to(&h, port, cases[i].bytes, strlen(cases[i].bytes));
        CHECK(cases[i].status ? h.status == cases[i].status : is_4xx(&h),
              "case %zu: status %d instead of %d: %.200s", i, h.status, cases[i].status,
              h.raw ? h.raw : "");
        http_close(&h);
        wait_lines(e, before + 1);
        CHECK(lines_with(e, "WARN gateway") == before + 1, "case %zu has several log lines", i);
    }
    end_unharmed(e, port);
}

/* Several in one round of the gateway's loop: each is logged and counted. */
static void malformed_together(void)
{
    enum { MANY = 4 };
    static const char bad[] = "GET /health HTTP/1.1\r\nHost: x\r\nbroken\r\n\r\n";
    static const char no_host[] = "GET /health HTTP/1.1\r\n\r\n";
    unsigned port;
    struct http h[MANY];
    struct engine *e = gateway_start(&port, options);
    pid_t pid = engine_pid(e, "gateway", 0, 0);
    CHECK(kill(pid, SIGSTOP) == 0, "no gateway");
    process_wait_state(pid, 'T', END_MS);
    for (size_t i = 0; i < MANY; i++) {
        const char *bytes = i % 2 ? no_host : bad;
        h[i] = (struct http){.fd = http_connect(port)};
        http_write(h[i].fd, bytes, strlen(bytes));
    }
    kill(pid, SIGCONT);
    for (size_t i = 0; i < MANY; i++) {
        http_finish(&h[i], END_MS);
        CHECK(is_4xx(&h[i]), "status %d: %.200s", h[i].status, h[i].raw ? h[i].raw : "");
        http_close(&h[i]);
    }
    CHECK(rejected_count(e) == MANY, "%d rejections were counted", (int)rejected_count(e));
    wait_lines(e, MANY);
    CHECK(lines_with(e, "WARN gateway") == MANY, "more log lines than requests");
    end_unharmed(e, port);
}

/* ---- the fuzzing corpora ---- */

#define CORPUS SLUICE_SOURCE_DIR "/tests/fuzz/corpus"

/* Each corpus file named bad_*: rejected with 4xx and counted once. */
static void all_bad(struct engine *e, unsigned port, const char *dir,
                    void (*send_request)(struct http *h, unsigned port, const char *bytes,
                                         size_t n))
{
    char pattern[PATH_MAX];
    glob_t files;
    snprintf(pattern, sizeof pattern, "%s/bad_*", dir);
    CHECK(glob(pattern, 0, NULL, &files) == 0, "nothing in %s", pattern);
    for (size_t i = 0; i < files.gl_pathc; i++) {
        struct http h;
        static char bytes[1 << 16];
        FILE *f = fopen(files.gl_pathv[i], "re");
        size_t n = f ? fread(bytes, 1, sizeof bytes, f) : 0;
        CHECK(n > 0 && n < sizeof bytes, "%s cannot be read", files.gl_pathv[i]);
        fclose(f);
        uint64_t before = rejected_count(e);
        send_request(&h, port, bytes, n);
        CHECK(is_4xx(&h), "%s: status %d: %.200s", files.gl_pathv[i], h.status, h.raw ? h.raw : "");
        CHECK(rejected_count(e) == before + 1, "%s is counted %d times", files.gl_pathv[i],
              (int)(rejected_count(e) - before));
        http_close(&h);
    }
    globfree(&files);
}

/* As tests/fuzz/req_fuzz.c reads it: the first byte chooses the path. */
static void ask_body(struct http *h, unsigned port, const char *bytes, size_t n)
{
    char head[256];
    *h = (struct http){.fd = http_connect(port)};
    int head_bytes = snprintf(head, sizeof head,
                              "POST /v1/%s HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n"
                              "Content-Length: %zu\r\n\r\n",
                              bytes[0] & 1 ? "chat/completions" : "completions", n - 1);
    http_write(h->fd, head, (size_t)head_bytes);
    http_write(h->fd, bytes + 1, n - 1);
    http_finish(h, END_MS);
}

static void corpora(void)
{
    unsigned port;
    struct engine *e = gateway_start(&port, options);
    all_bad(e, port, CORPUS "/head", reply_to);
    all_bad(e, port, CORPUS "/req", ask_body);
    engine_stop(e);
}

/* ---- one request per connection ---- */

static size_t responses(const struct http *h)
{
    size_t n = 0;
    for (const char *at = h->raw; at && (at = strstr(at, "HTTP/1.1 ")); at++)
        n++;
    return n;
}

/* The reply to these bytes, up to the end of the connection, which the gateway closes. */
static void reply_until_closed(struct http *h, unsigned port, const char *bytes)
{
    *h = (struct http){.fd = http_connect(port)};
    http_write(h->fd, bytes, strlen(bytes));
    http_finish(h, END_MS);
}

/* Bytes after a request, which a proxy may count to its body, are no second request: each
 * connection ends after one response. */
static void one_request_per_connection(void)
{
#define GET_HEALTH "GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: keep-alive\r\n\r\n"
#define POST_CHUNKS                                                                                \
    "POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n"
    static const struct {
        const char *bytes;
        int status;
    } cases[] = {
        {GET_HEALTH GET_HEALTH, 200},
        {GET_HEALTH "GARBAGE\r\n\r\n", 200},
        {"GET /health HTTP/1.0\r\nConnection: keep-alive\r\n\r\n" GET_HEALTH, 200},
        {"GET /nothing HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" GET_HEALTH, 404},
        {"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 2\r\n\r\n"
         "{}" GET_HEALTH,
         400},
        {POST_CHUNKS "2\r\n{}\r\n0\r\n\r\n" GET_HEALTH, 400},
        /* sizes of chunks */
        {POST_CHUNKS "0x2\r\n{}\r\n0\r\n\r\n" GET_HEALTH, 400},
        {POST_CHUNKS "+2\r\n{}\r\n0\r\n\r\n" GET_HEALTH, 400},
        {POST_CHUNKS "-2\r\n{}\r\n0\r\n\r\n" GET_HEALTH, 400},
        {POST_CHUNKS " 2\r\n{}\r\n0\r\n\r\n" GET_HEALTH, 400},
        {POST_CHUNKS "2 \r\n{}\r\n0\r\n\r\n" GET_HEALTH, 400},
        {POST_CHUNKS "\r\n{}\r\n0\r\n\r\n" GET_HEALTH, 400},
        {POST_CHUNKS "2\r\n{}!\r\n0\r\n\r\n" GET_HEALTH, 400},
        {POST_CHUNKS "10000000000000002\r\n{}\r\n0\r\n\r\n" GET_HEALTH, 413},
    };
    unsigned port;
    struct engine *e = gateway_start(&port, options);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct http h;
        reply_until_closed(&h, port, cases[i].bytes);
        CHECK(h.status == cases[i].status, "case %zu: status %d: %.200s", i, h.status,
              h.raw ? h.raw : "");
        CHECK(responses(&h) == 1, "case %zu: %zu responses: %s", i, responses(&h), h.raw);
        CHECK(strcasestr(h.raw, "\r\nConnection: close\r\n"), "case %zu: %s", i, h.raw);
        http_close(&h);
    }
    engine_stop(e);
}

/* ---- slow heads ---- */

/* A head sent byte by byte, up to the longest one. */
static void dripping_head(void)
{
    unsigned port;
    static const size_t queries[] = {1, 700, 3000, 7000};
    static const int on = 1;
    struct engine *e = gateway_start(&port, options);
    for (size_t i = 0; i < ARRAY_LEN(queries); i++) {
        struct http h = {.fd = http_connect(port)};
        setsockopt(h.fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        http_write(h.fd, "\r\nGET /health?", 14);
        for (size_t k = 0; k < queries[i]; k++)
            http_write(h.fd, "x", 1);
        static const char rest[] = " HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n";
        for (size_t k = 0; k < sizeof rest - 1; k++)
            http_write(h.fd, rest + k, 1);
        http_finish(&h, END_MS);
        CHECK(h.status == 200, "%zu bytes: status %d: %.200s", queries[i], h.status,
              h.raw ? h.raw : "");
        http_close(&h);
    }
    CHECK(rejected_count(e) == 0, "a request was rejected");
    engine_stop(e);
}

static void wait_connections(struct engine *e, uint64_t wanted)
{
    uint64_t deadline = deadline_in(END_MS);
    while (engine_counter(e, "gateway", "connections") != wanted)
        CHECK(deadline_tick(deadline), "a connection is not closed");
}

/* Clients that stay connected after the error receive it and are then disconnected: one sends
 * without end, one is idle. */
static void garbage_without_end(void)
{
    unsigned port;
    static const char line[] = "GARBAGE AND MORE\r\n";
    static char block[BLOCK_BYTES];
    struct engine *e =
        gateway_start(&port, (const char *const[]){"--http=0", "--http-timeout=3600", NULL});
    struct http fast = {.fd = http_connect(port)}, idle = {.fd = http_connect(port)};
    uint64_t sent_bytes = 0;
    http_write(fast.fd, line, sizeof line - 1);
    http_write(idle.fd, line, sizeof line - 1);
    CHECK(http_wait(&fast, "METHOD PATH HTTP/1.1", END_MS), "no reply: %.200s", fast.raw);
    CHECK(http_wait(&idle, "METHOD PATH HTTP/1.1", END_MS), "no reply: %.200s", idle.raw);
    for (ssize_t n; (n = send(fast.fd, block, sizeof block, MSG_NOSIGNAL)) > 0;)
        sent_bytes += (uint64_t)n;
    CHECK(sent_bytes < SENT_MAX, "the gateway accepted %" PRIu64 " bytes", sent_bytes);
    wait_connections(e, 0);
    http_close(&fast);
    http_close(&idle);
    CHECK(rejected_count(e) == 2, "counted %d times", (int)rejected_count(e));
    engine_stop(e);
}

/* A disconnect before the end of the head is not logged. */
static void half_a_head(void)
{
    unsigned port;
    char byte;
    struct engine *e = gateway_start(&port, options);
    int fd = http_connect(port);
    http_write(fd, "GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n", 39);
    shutdown(fd, SHUT_WR);
    CHECK(recv(fd, &byte, 1, 0) == 0, "the connection was not closed without a reply");
    close(fd);
    CHECK(rejected_count(e) == 0, "a disconnected client was counted as rejected");
    CHECK(lines_with(e, "WARN gateway") == 0, "the disconnect was logged");
    engine_stop(e);
}

/* ---- limits ---- */

/* Too large bodies and many bad requests are rejected; logging of them is limited. */
static void bounds(void)
{
    unsigned port;
    struct http h;
    struct engine *e = gateway_start(
        &port, (const char *const[]){"--http=0", "--http-body=4KiB", "--http-prompt=100", NULL});
    /* Client text in the log has no control characters. */
    completion_call(&h, port, "x", 1, "\"\\u009b2Jblank\":1", 200);
    http_close(&h);
    char *large = malloc(9001);
    memset(large, 'x', 9000);
    large[9000] = 0;
    completion_call(&h, port, large, 1, "", 413);
    http_close(&h);
    large[200] = 0;
    completion_call(&h, port, large, 1, "", 400);
    CHECK(strstr(h.body, "the maximum is 100"), "%.200s", h.body);
    http_close(&h);
    free(large);
    for (int i = 0; i < 100; i++) {
        completion_call(&h, port, "x", 1, "\"top_p\":2", 400);
        http_close(&h);
    }
    long lines = lines_with(e, "WARN gateway");
    CHECK(lines <= 60, "%ld lines for 102 bad requests", lines);
    CHECK(lines_with(e, "requests have the field '??2Jblank', which is ignored") == 1,
          "the log lacks the line, or has control characters");
    CHECK(engine_counter(e, "gateway", "requests_bad") >= 102, "bad requests were not counted");
    engine_stop(e);
}

int main(int argc, char **argv)
{
    static const struct test_case cases[] = {
        ROW(malformed),     ROW(malformed_together),
        ROW(corpora),       ROW(one_request_per_connection),
        ROW(dripping_head), ROW(garbage_without_end),
        ROW(half_a_head),   ROW(bounds),
    };
    return test_main(argc, argv, cases, ARRAY_LEN(cases));
}
