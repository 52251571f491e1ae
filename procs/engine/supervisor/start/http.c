/* SPDX-License-Identifier: Apache-2.0 */
/* The gateway's socket and its reservation in the ledger. The address is parsed and bound before
 * any process starts: an invalid one fails the start, and the port is the same for every
 * incarnation of the gateway, also when the kernel chose it (port 0). */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/model/chat/format.h"
#include "procs/engine/supervisor/start/start.h"
#include "procs/engine/supervisor/supervisor.h"

#define ADDRESS_DEFAULT "127.0.0.1"
#define BACKLOG         1024
/* Socket buffers of one connection. The kernel doubles them and charges queued bytes to us. They
 * are small because the maximum of all connections is reserved. The gateway peeks at the whole head
 * of a request (gateway/http/head.h), so it must fit. */
#define RECEIVE_BYTES 8192
#define SEND_BYTES    4096
#define SOCKET_QUEUES (2 * (RECEIVE_BYTES + SEND_BYTES))

/* A connection: the HTTP library's pool and structures, our state; the kernel's socket, file and
 * queued bytes. */
#define CONNECTION_BYTES        (10 * KIB)
#define CONNECTION_KERNEL_BYTES (4 * KIB + SOCKET_QUEUES)
/* A completion in progress, without its text. */
#define STREAM_BYTES (16 * KIB)
/* The process: tables of libraries, stacks of NNG's threads, a stats snapshot being written. */
#define PROCESS_BYTES (2 * MIB)
/* While a body is converted to a request, it exists as text, as a tree, as a copy of it in the form
 * that templates take, and as text again. With API_VALUES_MAX values the trees take up to 5.8 MiB.
 * Measured with tests/bench/gateway_memory.py PORT PID, all private memory of the process: 23.3 MiB
 * for 884 KiB of tools with a template that fills its heap of 16 MiB, the worst of these requests,
 * where 35.5 MiB are reserved with the default --http-*; 7.0 MiB for a whole answer of 1.5 MiB with
 * log-probabilities, 5.2 MiB for a tool of 2,000 arguments. One request is read, or one whole
 * answer written, at a time. */
#define BODY_COPIES 4

struct address {
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
    } of;
    socklen_t bytes;
    bool loopback;
};

static int bad(const char *text, struct error *error)
{
    return error_set(error, ERR_BAD_INPUT,
                     "--http: '%.80s' is not ADDRESS:PORT (127.0.0.1:8080, [::1]:8080) or a port",
                     text);
}

/* "PORT", "1.2.3.4:PORT", "[::1]:PORT", "localhost:PORT". */
static int parse(const char *text, struct address *a, struct error *error)
{
    char host[64] = ADDRESS_DEFAULT, *end;
    const char *colon = strrchr(text, ':'), *port = colon ? colon + 1 : text;
    size_t n = colon ? (size_t)(colon - text) : 0;
    if (n >= sizeof host)
        return bad(text, error);
    if (n > 0) {
        bool bracket = text[0] == '[' && text[n - 1] == ']';
        memcpy(host, text + bracket, n - 2 * bracket);
        host[n - 2 * bracket] = 0;
        if (!bracket && strchr(host, ':'))
            return bad(text, error);
    }
    if (strcmp(host, "localhost") == 0)
        strcpy(host, ADDRESS_DEFAULT);
    unsigned long number = strtoul(port, &end, 10);
    if (*port < '0' || *port > '9' || *end || number > 65535)
        return bad(text, error);
    memset(a, 0, sizeof *a);
    if (inet_pton(AF_INET, host, &a->of.v4.sin_addr) == 1) {
        a->of.v4.sin_family = AF_INET;
        a->of.v4.sin_port = htons((uint16_t)number);
        a->bytes = sizeof a->of.v4;
        a->loopback = ntohl(a->of.v4.sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
    } else if (inet_pton(AF_INET6, host, &a->of.v6.sin6_addr) == 1) {
        a->of.v6.sin6_family = AF_INET6;
        a->of.v6.sin6_port = htons((uint16_t)number);
        a->bytes = sizeof a->of.v6;
        a->loopback = IN6_IS_ADDR_LOOPBACK(&a->of.v6.sin6_addr);
    } else {
        return bad(text, error);
    }
    return 0;
}

/* The first line of the file, without blanks at its end, becomes the key of the whole run: a
 * gateway that is started again needs no file, which may be gone, or have another key by then. */
static int read_key(struct params *p, struct error *error)
{
    const char *path = p->http_key_file;
    char line[PARAM_TEXT_BYTES + 2] = "";
    FILE *f = fopen(path, "re");
    if (!f)
        return error_set_errno(error, ERR_BAD_INPUT, errno, "--http-key-file %.200s", path);
    bool read = fgets(line, sizeof line, f) != NULL;
    int saved = ferror(f) ? errno : 0;
    fclose(f);
    if (saved != 0)
        return error_set_errno(error, ERR_BAD_INPUT, saved, "--http-key-file %.200s", path);
    size_t n = read ? strcspn(line, "\r\n") : 0;
    while (n > 0 && (line[n - 1] == ' ' || line[n - 1] == '\t'))
        n--;
    line[n] = 0;
    if (n == 0)
        return error_set(error, ERR_BAD_INPUT, "--http-key-file %.200s: its first line is empty",
                         path);
    if (n > PARAM_TEXT_BYTES - 1)
        return error_set(error, ERR_BAD_INPUT, "--http-key-file %.200s: a key has at most %d bytes",
                         path, PARAM_TEXT_BYTES - 1);
    if (strpbrk(line, " \t"))
        return error_set(error, ERR_BAD_INPUT, "--http-key-file %.200s: a key contains no blanks",
                         path);
    memset(p->http_key, 0, sizeof p->http_key);
    memcpy(p->http_key, line, n);
    return 0;
}

static int take_key(struct params *p, bool loopback, struct error *error)
{
    if (p->http_key[0] && p->http_key_file[0])
        return error_set(error, ERR_BAD_INPUT, "give --http-key or --http-key-file, not both");
    if (p->http_key_file[0] && read_key(p, error) != 0)
        return -1;
    if (!loopback && !p->http_key[0])
        return error_set(error, ERR_BAD_INPUT,
                         "--http %.80s can be reached from other machines: that needs a key "
                         "(--http-key-file FILE)",
                         p->http);
    return 0;
}

/* The gateway opens it; checked here so that the start fails early. */
static int check_log(const char *path, struct error *error)
{
    struct stat about;
    int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0640);
    if (fd < 0 || fstat(fd, &about) != 0)
        return error_set_errno(error, ERR_BAD_INPUT, errno, "--http-log %.200s", path);
    close(fd);
    return S_ISREG(about.st_mode)
               ? 0
               : error_set(error, ERR_BAD_INPUT, "--http-log %.200s: not a regular file", path);
}

static int bind_to(const struct address *a)
{
    static const int one = 1, receive_bytes = RECEIVE_BYTES, send_bytes = SEND_BYTES;
    int fd = fd_high(
        socket(a->of.any.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_TCP));
    if (fd < 0)
        return -1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    /* accepted ones inherit them */
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &receive_bytes, sizeof receive_bytes);
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &send_bytes, sizeof send_bytes);
    if (bind(fd, &a->of.any, a->bytes) == 0 && listen(fd, BACKLOG) == 0)
        return fd;
    int saved = errno;
    close(fd);
    errno = saved;
    return -1;
}

/* With the port that the kernel chose for port 0. */
static void url_make(struct supervisor *s, const struct address *a)
{
    struct address bound = *a;
    char host[INET6_ADDRSTRLEN] = "";
    bool v6 = a->of.any.sa_family == AF_INET6;
    bound.bytes = sizeof bound.of;
    if (getsockname(s->http_fd, &bound.of.any, &bound.bytes) != 0)
        return; /* the engine serves without it */
    inet_ntop(a->of.any.sa_family,
              v6 ? (const void *)&bound.of.v6.sin6_addr : (const void *)&bound.of.v4.sin_addr, host,
              sizeof host);
    snprintf(s->http_url, sizeof s->http_url, "http://%s%s%s:%u", v6 ? "[" : "", host,
             v6 ? "]" : "", ntohs(v6 ? bound.of.v6.sin6_port : bound.of.v4.sin_port));
}

int http_listen(struct supervisor *s, struct error *error)
{
    struct address address;
    if (!s->params.http[0])
        return 0;
    if (parse(s->params.http, &address, error) != 0)
        return -1;
    if (s->options.print_memory) /* the engine that it is for may run, and have the port */
        return 0;
    if (take_key(&s->params, address.loopback, error) != 0 ||
        (s->params.http_log[0] && check_log(s->params.http_log, error) != 0))
        return -1;
    s->http_fd = bind_to(&address);
    if (s->http_fd < 0)
        return error_set_errno(error, ERR_FAILED, errno, "cannot listen on %.80s", s->params.http);
    url_make(s, &address);
    return 0;
}

/* The model's chat templates, one rendering (it ends before the next begins), and what is held back
 * of each answer. */
static uint64_t chat_bytes(const struct params *p, const struct model_index *m)
{
    return m->template_bytes == 0
               ? 0
               : chat_format_bytes(m->template_bytes) + chat_render_bytes(p->http_prompt) +
                     (m->tools_template_bytes > 0 ? chat_format_bytes(m->tools_template_bytes)
                                                  : 0) +
                     p->http_streams * ANSWER_BYTES_MAX;
}

/* Stored responses, and a conversation that a request continues: it is read like a body. */
static uint64_t stored_bytes(const struct params *p)
{
    uint64_t one = p->http_stored < p->http_body ? p->http_stored : p->http_body;
    return p->http_stored + BODY_COPIES * one;
}

uint64_t http_reservation_bytes(const struct params *p, const struct model_index *m)
{
    return PROCESS_BYTES + p->http_connections * CONNECTION_BYTES + p->http_streams * STREAM_BYTES +
           p->http_buffer + BODY_COPIES * p->http_body + stored_bytes(p) + chat_bytes(p, m);
}

/* Twice: malloc keeps free memory between used blocks. */
uint64_t http_growth(const struct params *p, const struct model_index *m)
{
    return 2 * http_reservation_bytes(p, m);
}

uint64_t http_kernel(const struct params *p)
{
    return p->http_connections * CONNECTION_KERNEL_BYTES;
}
