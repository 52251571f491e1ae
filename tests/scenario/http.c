/* SPDX-License-Identifier: Apache-2.0 */
/* Sends requests on plain sockets and reads replies and events. */
#include "tests/scenario/http.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define CALL_MS      60000
#define START_MS     20000
#define NARROW_BYTES 4096

unsigned http_port(struct engine *e)
{
    struct http h;
    uint64_t deadline = deadline_in(START_MS);
    engine_wait_counter(e, "gateway", "port", 1, START_MS);
    unsigned port = (unsigned)engine_counter(e, "gateway", "port");
    for (;;) {
        http_open(&h, port, "/health", NULL, NULL);
        http_finish(&h, CALL_MS);
        int status = h.status;
        http_close(&h);
        if (status == 200)
            return port;
        CHECK(deadline_tick(deadline), "the status of /health is still %d", status);
    }
}

static int connect_to(unsigned port, int receive_bytes)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(fd >= 0, "socket: %s", strerror(errno));
    if (receive_bytes > 0)
        setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &receive_bytes, sizeof receive_bytes);
    CHECK(connect(fd, (struct sockaddr *)&address, sizeof address) == 0, "connect to port %u: %s",
          port, strerror(errno));
    return fd;
}

int http_connect(unsigned port)
{
    return connect_to(port, 0);
}

int http_connect_narrow(unsigned port)
{
    return connect_to(port, NARROW_BYTES);
}

void http_write(int fd, const char *bytes, size_t n)
{
    while (n > 0) {
        ssize_t sent = send(fd, bytes, n, MSG_NOSIGNAL);
        if (sent <= 0)
            return; /* rejected: see the response */
        bytes += sent;
        n -= (size_t)sent;
    }
}

void http_open(struct http *h, unsigned port, const char *path, const char *headers,
               const char *body)
{
    http_send_request(h, http_connect(port), path, headers, body);
}

void http_send_request(struct http *h, int fd, const char *path, const char *headers,
                       const char *body)
{
    char head[1024];
    *h = (struct http){.fd = fd};
    bool host = headers && strncmp(headers, "Host:", 5) == 0;
    int n = snprintf(head, sizeof head, "%s %s HTTP/1.1\r\n%sConnection: close\r\n%s",
                     body ? "POST" : "GET", path, host ? "" : "Host: 127.0.0.1\r\n",
                     headers ? headers : "");
    if (body)
        n += snprintf(head + n, sizeof head - (size_t)n,
                      "Content-Type: application/json\r\nContent-Length: %zu\r\n", strlen(body));
    n += snprintf(head + n, sizeof head - (size_t)n, "\r\n");
    http_write(h->fd, head, (size_t)n);
    if (body)
        http_write(h->fd, body, strlen(body));
}

/* Reads available bytes; waits up to 20 ms for them. */
static void receive(struct http *h, uint64_t deadline)
{
    char block[16384];
    struct pollfd wait = {.fd = h->fd, .events = POLLIN};
    if (poll(&wait, 1, 20) <= 0) {
        CHECK(deadline_tick(deadline), "no reply before the deadline; received so far: %.300s",
              h->raw ? h->raw : "");
        return;
    }
    ssize_t n = recv(h->fd, block, sizeof block, 0);
    if (n <= 0) {
        h->ended = true;
        return;
    }
    h->raw = realloc(h->raw, h->bytes + (size_t)n + 1);
    CHECK(h->raw, "out of memory");
    memcpy(h->raw + h->bytes, block, (size_t)n);
    h->bytes += (size_t)n;
    h->raw[h->bytes] = 0;
}

static size_t count_of(const char *all, const char *text)
{
    size_t count = 0;
    for (const char *at = all; at && (at = strstr(at, text)); at += strlen(text))
        count++;
    return count;
}

bool http_wait_times(struct http *h, const char *text, size_t times, unsigned ms)
{
    uint64_t deadline = deadline_in(ms);
    while (count_of(h->raw, text) < times) {
        if (h->ended)
            return false;
        receive(h, deadline);
    }
    return true;
}

bool http_wait(struct http *h, const char *text, unsigned ms)
{
    return http_wait_times(h, text, 1, ms);
}

static void dechunk(struct http *h, const char *at)
{
    h->body = malloc(h->bytes + 1);
    CHECK(h->body, "out of memory");
    for (;;) {
        char *line;
        unsigned long n = strtoul(at, &line, 16);
        if (line == at || n == 0 || line + 2 + n > h->raw + h->bytes)
            break;
        memcpy(h->body + h->body_bytes, line + 2, n);
        h->body_bytes += n;
        at = line + 2 + n + 2;
    }
    h->body[h->body_bytes] = 0;
}

void http_finish(struct http *h, unsigned ms)
{
    uint64_t deadline = deadline_in(ms);
    while (!h->ended)
        receive(h, deadline);
    const char *end = h->raw ? strstr(h->raw, "\r\n\r\n") : NULL;
    if (!end || sscanf(h->raw, "HTTP/1.%*d %d", &h->status) != 1)
        return;
    const char *chunked = strcasestr(h->raw, "transfer-encoding: chunked");
    if (chunked && chunked < end) {
        dechunk(h, end + 4);
        return;
    }
    h->body_bytes = h->bytes - (size_t)(end + 4 - h->raw);
    h->body = strndup(end + 4, h->body_bytes);
}

void http_close(struct http *h)
{
    if (h->fd >= 0)
        close(h->fd);
    free(h->raw);
    free(h->body);
    *h = (struct http){.fd = -1};
}

void http_call(struct http *h, unsigned port, const char *path, const char *headers,
               const char *body, int status)
{
    http_open(h, port, path, headers, body);
    http_finish(h, CALL_MS);
    CHECK(h->status == status, "%s: status %d instead of %d: %.300s", path, h->status, status,
          h->body ? h->body : "");
}

json_t *http_json(const struct http *h)
{
    json_error_t why;
    json_t *doc =
        json_loads(h->body ? h->body : "", JSON_ALLOW_NUL, &why); /* rejects invalid UTF-8 */
    CHECK(doc, "%s: %.300s", why.text, h->body ? h->body : "");
    return doc;
}

static void take_event(const char *line, size_t bytes, struct events *out)
{
    out->count++;
    if (bytes == 6 && memcmp(line, "[DONE]", 6) == 0) {
        out->done = true;
        return;
    }
    json_t *doc = json_loadb(line, bytes, 0, NULL);
    CHECK(doc, "an event is not JSON: %.*s", (int)bytes, line);
    const json_t *choice = json_array_get(json_object_get(doc, "choices"), 0);
    const char *text = json_string_value(json_object_get(choice, "text"));
    if (!text)
        text = json_string_value(json_object_get(json_object_get(choice, "delta"), "content"));
    const char *finish = json_string_value(json_object_get(choice, "finish_reason"));
    if (text) {
        out->text = realloc(out->text, strlen(out->text) + strlen(text) + 1);
        CHECK(out->text, "out of memory");
        strcpy(out->text + strlen(out->text), text);
    }
    if (finish)
        snprintf(out->finish, sizeof out->finish, "%s", finish);
    snprintf(out->error, sizeof out->error, "%s", lookup_text(doc, "error.message"));
    if (json_object_get(doc, "usage")) {
        out->prompt_tokens = lookup_u64(doc, "usage.prompt_tokens");
        out->completion_tokens = lookup_u64(doc, "usage.completion_tokens");
    }
    json_decref(doc);
}

void http_events(const struct http *h, struct events *out)
{
    *out = (struct events){.text = calloc(1, 1)};
    CHECK(out->text && h->body, "no events");
    for (const char *at = h->body; *at;) {
        size_t n = strcspn(at, "\n");
        if (strncmp(at, "data: ", 6) == 0)
            take_event(at + 6, n - 6, out);
        else
            CHECK(n == 0 || at[0] == ':', "not an event: %.*s", (int)n, at);
        at += n + (at[n] == '\n');
    }
}
