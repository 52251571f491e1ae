/* SPDX-License-Identifier: Apache-2.0 */
/* Hostile clients: every endpoint gets dropped connections, random bytes, impossible lengths and
 * many clients at once. No process exits, and the engine continues to serve requests. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "lib/base/bytes.h"
#include "tests/scenario/baseline.h"

#define SOCKETS_MAX 32
#define REPLY_MS    100
#define CROWD       200
#define HELLO_BYTES 8
#define FRAME_BYTES 9 /* type and length before each message */

struct sockets {
    char path[SOCKETS_MAX][ENDPOINT_BYTES];
    size_t count;
};

static void find_sockets(const struct engine *e, struct sockets *s)
{
    DIR *dir = opendir(e->dir);
    CHECK(dir, "cannot list %s", e->dir);
    s->count = 0;
    for (struct dirent *entry; (entry = readdir(dir)) && s->count < SOCKETS_MAX;)
        if (strstr(entry->d_name, ".sock"))
            snprintf(s->path[s->count++], ENDPOINT_BYTES, "%.60s/%.40s", e->dir, entry->d_name);
    closedir(dir);
    CHECK(s->count >= 5, "only %zu endpoints in %s", s->count, e->dir);
}

/* A connection, or -1 if the listener's queue is full. Endpoints for clients are stream sockets,
 * channels are packet sockets. */
static int connect_to(const char *path)
{
    static const int types[] = {SOCK_STREAM, SOCK_SEQPACKET};
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    for (size_t i = 0; i < ARRAY_LEN(types); i++) {
        int fd = socket(AF_UNIX, types[i] | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        CHECK(fd >= 0, "socket: %s", strerror(errno));
        if (connect(fd, (struct sockaddr *)&address, sizeof address) == 0)
            return fd;
        bool other = errno == EPROTOTYPE;
        close(fd);
        if (!other)
            break;
    }
    return -1;
}

/* The engine is unharmed: the same processes, and the correct text. */
static void unharmed(struct engine *e, const char *what)
{
    baseline_compare(e, 0, what);
    json_t *doc = engine_stats(e);
    uint64_t restarts = lookup_restarts(doc);
    json_decref(doc);
    CHECK(restarts == 0, "%s: %llu restarts", what, (unsigned long long)restarts);
}

static void connect_and_close(void)
{
    const unsigned count = test_amount(AMOUNT_hostile_connections);
    struct engine *e = engine_new();
    struct sockets s;
    baseline(0);
    engine_start(e, (const char *const[]){"--resident-experts=25", NULL});
    find_sockets(e, &s);
    for (size_t i = 0; i < s.count; i++) {
        uint64_t deadline = deadline_in(60000);
        for (unsigned made = 0; made < count;) {
            int fd = connect_to(s.path[i]);
            if (fd >= 0) {
                close(fd);
                made++;
            } else {
                CHECK(deadline_tick(deadline), "%s: only %u connections in a minute", s.path[i],
                      made);
            }
        }
    }
    unharmed(e, "connections on each endpoint");
    engine_stop(e);
}

/* Sends a handshake with a protocol number, then bytes; waits briefly for a reaction. */
static void send_raw(const char *path, unsigned protocol, const void *bytes, size_t count)
{
    unsigned char hello[HELLO_BYTES] = {
        0, 'S', 'P', 0, (unsigned char)(protocol >> 8), (unsigned char)protocol, 0, 0};
    char reply[512];
    int fd = connect_to(path);
    if (fd < 0)
        return;
    struct pollfd wait = {.fd = fd, .events = POLLIN};
    if (send(fd, hello, sizeof hello, MSG_NOSIGNAL) == HELLO_BYTES &&
        poll(&wait, 1, REPLY_MS) > 0 && recv(fd, reply, sizeof reply, 0) > 0) {
        ssize_t sent = send(fd, bytes, count, MSG_NOSIGNAL);
        if (sent > 0 && poll(&wait, 1, REPLY_MS) > 0)
            sent = recv(fd, reply, sizeof reply, 0);
    }
    close(fd);
}

static size_t frame(unsigned char *out, uint64_t claimed, const void *body, size_t count)
{
    out[0] = 1;
    for (int i = 0; i < 8; i++)
        out[1 + i] = (unsigned char)(claimed >> (56 - 8 * i));
    memcpy(out + FRAME_BYTES, body, count);
    return FRAME_BYTES + count;
}

static void malformed(void)
{
    static const unsigned protocols[] = {0x10, 0x30, 0x31, 0x0, 0xffff};
    static const uint64_t lengths[] = {
        UINT64_MAX, UINT64_MAX - 31, 1ull << 63, 1ull << 40, 2 << 20, 100, 4, 0};
    static const char *const bodies[] = {
        "\x80\0\0\1{", "\x80\0\0\1{\"v\":1}", "\x80\0\0\1[[[[[[[[[[",
        "\x80\0\0\1{\"v\":1,\"id\":\"0\",\"op\":\"submit\",\"op\":\"stop\"}"};
    unsigned char message[256], noise[240];
    struct engine *e = engine_new();
    struct sockets s;
    baseline(0);
    engine_start(e, (const char *const[]){"--resident-experts=25", NULL});
    find_sockets(e, &s);
    srand(11);
    for (size_t i = 0; i < s.count; i++)
        for (size_t p = 0; p < ARRAY_LEN(protocols); p++) {
            for (size_t l = 0; l < ARRAY_LEN(lengths); l++)
                send_raw(s.path[i], protocols[p], message,
                         frame(message, lengths[l], "0123456789", 10));
            for (size_t b = 0; b < ARRAY_LEN(bodies); b++) {
                size_t n = 4 + strlen(bodies[b] + 4);
                send_raw(s.path[i], protocols[p], message, frame(message, n, bodies[b], n));
            }
            for (size_t k = 0; k < sizeof noise; k++)
                noise[k] = (unsigned char)rand();
            send_raw(s.path[i], protocols[p], message, frame(message, sizeof noise, noise, 200));
            send_raw(s.path[i], protocols[p], noise, sizeof noise);
        }
    unharmed(e, "malformed messages");
    engine_stop(e);
}

/* Invalid requests in valid JSON: each gets its named error. */
static void wrong_requests(void)
{
    static const struct {
        bool engine;
        const char *op, *fields;
    } calls[] = {
        {true, "submit", "{}"},
        {true, "submit", "{\"prompt\":5,\"request_key\":\"k\"}"},
        {true, "submit", "{\"ids\":[-1],\"request_key\":\"k\"}"},
        {true, "submit", "{\"ids\":[99999999],\"request_key\":\"k1\"}"},
        {true, "submit", "{\"prompt\":\"x\",\"request_key\":\"k2\",\"max_tokens\":-5}"},
        {true, "submit", "{\"prompt\":\"x\",\"request_key\":\"k3\",\"max_tokens\":99000000}"},
        {true, "submit", "{\"prompt\":\"x\",\"request_key\":\"k4\",\"unknown\":1}"},
        {true, "next", "{\"sequence\":123456789,\"from\":0,\"wait_ms\":0}"},
        {true, "next", "{\"sequence\":\"a\"}"},
        {true, "cancel", "{\"sequence\":987654321}"},
        {true, "dance", "{}"},
        {false, "dance", "{}"},
        {false, "budget", "{}"},
        {false, "budget", "{\"bytes\":-1}"},
        {false, "throttle", "{\"loader\":99,\"bytes_per_second\":1}"},
        {false, "restart", "{\"process\":\"moon\"}"},
        {false, "replace", "{\"loader\":0,\"backend\":\"tape\"}"},
        {false, "inject", "{\"point\":\"NOWHERE\"}"},
    };
    struct engine *e = engine_new();
    baseline(0);
    engine_start(e, NULL);
    struct error error;
    struct rpc_client *engine = engine_client_open(e->run, &error);
    CHECK(engine, "%s", error.text);
    for (size_t i = 0; i < ARRAY_LEN(calls); i++) {
        json_t *reply = NULL;
        json_t *fields = json_loads(calls[i].fields, JSON_ALLOW_NUL, NULL);
        int status = rpc_call(calls[i].engine ? engine : e->control, calls[i].op, fields, 10000,
                              &reply, &error);
        CHECK(status != 0, "%s %s was accepted", calls[i].op, calls[i].fields);
        CHECK(error.code == ERR_BAD_INPUT || error.code == ERR_NOT_FOUND, "%s %s: %s (%s)",
              calls[i].op, calls[i].fields, error.text, error_name(error.code));
    }
    rpc_client_close(engine);
    unharmed(e, "wrong requests");
    engine_stop(e);
}

/* ---- many clients ---- */

struct crowd_client {
    const char *run;
    pthread_t thread;
    char problem[200];
    bool busy;
};

static void *visit(void *arg)
{
    struct crowd_client *v = arg;
    struct error error;
    json_t *reply = NULL;
    uint64_t id;
    struct rpc_client *control = control_client_open(v->run, &error);
    if (!control || rpc_call(control, "status", NULL, 60000, &reply, &error) != 0)
        snprintf(v->problem, sizeof v->problem, "status: %.150s", error.text);
    json_decref(reply);
    rpc_client_close(control);
    struct rpc_client *engine = engine_client_open(v->run, &error);
    struct engine_submit submit;
    engine_submit_defaults(&submit);
    submit.prompt = "Once upon a time";
    submit.prompt_bytes = strlen(submit.prompt);
    submit.max_tokens = 4;
    submit.ignore_eos = true;
    bool done = false;
    if (!engine || engine_submit(engine, &submit, &id, &error) != 0) {
        v->busy = engine && error.code == ERR_BUSY;
        if (!v->busy)
            snprintf(v->problem, sizeof v->problem, "submit: %.150s", error.text);
        done = true;
    }
    for (uint64_t from = 0, deadline = deadline_in(60000); !done;) {
        struct engine_next next;
        if (engine_next(engine, id, from, 1000, &next, &error) != 0) {
            snprintf(v->problem, sizeof v->problem, "next: %.150s", error.text);
            break;
        }
        from = next.next;
        done = next.done;
        engine_next_free(&next);
        if (!done && !deadline_tick(deadline)) {
            snprintf(v->problem, sizeof v->problem, "no end after a minute");
            break;
        }
    }
    rpc_client_close(engine);
    return NULL;
}

static void clients_200(void)
{
    static struct crowd_client clients[CROWD];
    struct engine *e = engine_new();
    baseline(0);
    engine_start(e, NULL);
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 256 * 1024);
    for (size_t i = 0; i < CROWD; i++) {
        clients[i].run = e->run;
        CHECK(pthread_create(&clients[i].thread, &small, visit, &clients[i]) == 0,
              "cannot start thread %zu", i);
    }
    unsigned busy = 0, problems = 0;
    for (size_t i = 0; i < CROWD; i++) {
        pthread_join(clients[i].thread, NULL);
        busy += clients[i].busy;
        if (clients[i].problem[0] && problems++ < 5)
            test_note("client %zu: %s", i, clients[i].problem);
    }
    test_note("%d clients at once: %u served, %u rejected because the queue is full", CROWD,
              CROWD - busy - problems, busy);
    CHECK(problems == 0, "%u of %d clients had problems", problems, CROWD);
    CHECK(busy < CROWD, "no client was served");
    unharmed(e, "after the crowd");
    engine_stop(e);
}

int main(int argc, char **argv)
{
    static const struct test_case cases[] = {
        ROW(connect_and_close),
        ROW(malformed),
        ROW(wrong_requests),
        ROW(clients_200),
    };
    return test_main(argc, argv, cases, ARRAY_LEN(cases));
}
