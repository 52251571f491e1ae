/* SPDX-License-Identifier: Apache-2.0 */
/* A web server of one file that fails on request. */
#include "tests/harness/web.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define HEAD_BYTES 8192
#define BODY_BYTES (1u << 20)

struct request {
    uint64_t first, last; /* of the range */
    bool ranged;
    char condition[64]; /* If-Match */
};

struct answer {
    int status;
    uint64_t first, last, size;
    const char *more; /* lines of the head */
    const char *tag;
};

static void send_all(int fd, const void *from, size_t bytes)
{
    for (const char *at = from; bytes > 0;) {
        ssize_t n = send(fd, at, bytes, MSG_NOSIGNAL);
        if (n <= 0)
            _exit(0);
        at += n;
        bytes -= (size_t)n;
    }
}

/* Until the empty line. False: the client has gone. */
static bool read_head(int fd, char head[HEAD_BYTES])
{
    size_t n = 0;
    for (;;) {
        ssize_t got = recv(fd, head + n, HEAD_BYTES - 1 - n, 0);
        if (got <= 0)
            return false;
        n += (size_t)got;
        head[n] = 0;
        if (n > 4 && strcmp(head + n - 4, "\r\n\r\n") == 0)
            return true;
    }
}

static struct request parse(const char *head)
{
    struct request r = {.first = 0};
    const char *range = strstr(head, "\r\nRange: bytes="), *match = strstr(head, "\r\nIf-Match: ");
    unsigned long long first, last;
    if (range && sscanf(range + 15, "%llu-%llu", &first, &last) == 2)
        r = (struct request){.first = first, .last = last, .ranged = true};
    if (match)
        (void)sscanf(match + 12, "%60s", r.condition);
    return r;
}

static void send_head(int fd, const struct answer *a, uint64_t bytes, bool chunked)
{
    char head[1024], length[64], range[128] = "";
    snprintf(length, sizeof length, "Content-Length: %llu\r\n", (unsigned long long)bytes);
    if (a->status == 206)
        snprintf(range, sizeof range, "Content-Range: bytes %llu-%llu/%llu\r\n",
                 (unsigned long long)a->first, (unsigned long long)a->last,
                 (unsigned long long)a->size);
    int n = snprintf(head, sizeof head, "HTTP/1.1 %d x\r\nETag: %s\r\n%s%s%s\r\n", a->status,
                     a->tag, a->more, range, chunked ? "Transfer-Encoding: chunked\r\n" : length);
    send_all(fd, head, (size_t)n);
}

static void send_error(int fd, int status, const char *more, const char *text)
{
    const struct answer a = {.status = status, .more = more, .tag = "\"none\""};
    send_head(fd, &a, strlen(text), false);
    send_all(fd, text, strlen(text));
}

static const char expired[] = "<Error><Code>ExpiredToken</Code></Error>";

/* Until the client ends the connection. */
static void send_endless(int fd)
{
    static char blanks[BODY_BYTES];
    const struct answer a = {.status = 403, .more = "", .tag = "\"none\""};
    memset(blanks, ' ', sizeof blanks);
    send_head(fd, &a, UINT64_MAX / 4, false);
    send_all(fd, expired, strlen(expired));
    for (;;)
        send_all(fd, blanks, sizeof blanks);
}

static void send_slowly(int fd, const char *from, uint64_t bytes)
{
    for (uint64_t at = 0; at < bytes; at += 4096) {
        send_all(fd, from + at, bytes - at < 4096 ? bytes - at : 4096);
        (void)poll(NULL, 0, 50);
    }
}

static char *body_of(int file, const struct answer *a, enum web_fault fault)
{
    static char body[BODY_BYTES];
    uint64_t n = a->last - a->first + 1;
    if (n > BODY_BYTES - 16 || pread(file, body, n, (off_t)a->first) != (ssize_t)n)
        _exit(1);
    for (uint64_t i = 0; fault == WEB_WRONG_BYTES && i < n; i++)
        body[i] = (char)~body[i];
    return body;
}

static void send_body(int fd, int file, struct answer *a, enum web_fault fault,
                      struct web_control *c)
{
    uint64_t n = a->last - a->first + 1;
    const char *body = body_of(file, a, fault);
    if (fault == WEB_LONG) {
        char size[32];
        send_head(fd, a, n, true);
        int digits = snprintf(size, sizeof size, "%llx\r\n", (unsigned long long)n + 8);
        send_all(fd, size, (size_t)digits);
        send_all(fd, body, n);
        send_all(fd, "and more\r\n0\r\n\r\n", 15);
        return;
    }
    send_head(fd, a, n, false);
    if (fault == WEB_TRICKLE)
        send_slowly(fd, body, n);
    else
        send_all(fd, body, fault == WEB_CUT ? n / 2 : n);
    atomic_fetch_add(&c->bytes, n);
    if (fault == WEB_CUT)
        _exit(0);
}

/* Answers without the file. False: there is none of this fault. */
static bool fail(int fd, enum web_fault fault, const struct request *r)
{
    switch (fault) {
    case WEB_SILENT: _exit(0);
    case WEB_STALL: (void)poll(NULL, 0, -1); return true;
    case WEB_BUSY: send_error(fd, 503, "Retry-After: 1\r\n", "busy"); return true;
    case WEB_ERROR: send_error(fd, 500, "", "error"); return true;
    case WEB_REDIRECT: send_error(fd, 302, "Location: http://other.lan/x\r\n", ""); return true;
    case WEB_DENIED: send_error(fd, 403, "", expired); return true;
    case WEB_MOVED:
        send_error(fd, 301, "", "<Error><Code>PermanentRedirect</Code></Error>");
        return true;
    case WEB_ENDLESS: send_endless(fd); return true;
    case WEB_REPLACED:
        if (r->condition[0] && strcmp(r->condition, "\"two\"") != 0) {
            send_error(fd, 412, "", "");
            return true;
        }
        return false;
    default: return false;
    }
}

static enum web_fault next_fault(struct web_control *c)
{
    enum web_fault fault = (enum web_fault)atomic_load(&c->fault);
    unsigned times = atomic_load(&c->times);
    atomic_fetch_add(&c->requests, 1);
    if (fault == WEB_RIGHT || times == 0) {
        atomic_fetch_add(&c->failed, fault != WEB_RIGHT);
        return fault;
    }
    return atomic_fetch_add(&c->failed, 1) < times ? fault : WEB_RIGHT;
}

static void answer(int fd, int file, const struct request *r, struct web_control *c)
{
    struct stat st;
    enum web_fault fault = next_fault(c);
    if (fstat(file, &st) != 0 || fail(fd, fault, r))
        return;
    uint64_t size = (uint64_t)st.st_size;
    bool whole = fault == WEB_WHOLE || !r->ranged;
    struct answer a = {.status = whole ? 200 : 206,
                       .first = whole ? 0 : r->first,
                       .last = whole ? (size < 4096 ? size : 4096) - 1 : r->last,
                       .size = size,
                       .more = "",
                       .tag = "\"one\""};
    if (a.first >= size || a.last >= size) {
        send_error(fd, 416, "", "");
        return;
    }
    if (fault == WEB_SLOW)
        (void)poll(NULL, 0, 3);
    if (fault == WEB_REPLACED || fault == WEB_IGNORANT)
        a.tag = "\"two\"";
    if (fault == WEB_WEAK)
        a.tag = "W/\"one\"";
    if (fault == WEB_ENCODED)
        a.more = "Content-Encoding: gzip\r\n";
    if (fault == WEB_SHORT)
        a.last = a.first + (a.last - a.first) / 2;
    if (fault == WEB_OTHER_RANGE && a.first >= 4096) {
        a.first -= 4096;
        a.last -= 4096;
    }
    send_body(fd, file, &a, fault, c);
}

static void serve(int fd, const char *path, struct web_control *c)
{
    static char head[HEAD_BYTES];
    int file = open(path, O_RDONLY | O_CLOEXEC);
    atomic_fetch_add(&c->connections, 1);
    while (file >= 0 && read_head(fd, head)) {
        struct request r = parse(head);
        answer(fd, file, &r, c);
    }
    _exit(0);
}

static void accept_all(int listener, const char *path, struct web_control *c)
{
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    signal(SIGCHLD, SIG_IGN);
    for (;;) {
        int fd = accept(listener, NULL, NULL);
        if (fd < 0)
            continue;
        int on = 1; /* else the kernel keeps a body until the head is confirmed: 40 ms */
        (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        if (fork() == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            close(listener);
            serve(fd, path, c);
        }
        close(fd);
    }
}

static int listen_on(struct web *w)
{
    struct sockaddr_in own = {.sin_family = AF_INET,
                              .sin_port = htons(w->port),
                              .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof own;
    int on = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (fd < 0 || bind(fd, (struct sockaddr *)&own, bytes) != 0 || listen(fd, 64) != 0 ||
        getsockname(fd, (struct sockaddr *)&own, &bytes) != 0)
        return -1;
    w->port = ntohs(own.sin_port);
    return fd;
}

bool web_start(struct web *w, const char *file)
{
    if (!w->control) {
        void *shared = mmap(NULL, sizeof *w->control, PROT_READ | PROT_WRITE,
                            MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        if (shared == MAP_FAILED)
            return false;
        w->control = shared;
    }
    int listener = listen_on(w);
    if (listener < 0)
        return false;
    w->pid = fork();
    if (w->pid == 0)
        accept_all(listener, file, w->control);
    close(listener);
    if (w->pid > 0)
        setpgid(w->pid, w->pid);
    return w->pid > 0;
}

void web_kill(struct web *w)
{
    if (w->pid <= 0)
        return;
    kill(-w->pid, SIGKILL);
    waitpid(w->pid, NULL, 0);
    w->pid = 0;
}

void web_fault(struct web *w, enum web_fault fault, unsigned times)
{
    atomic_store(&w->control->times, times);
    atomic_store(&w->control->failed, 0);
    atomic_store(&w->control->fault, (unsigned)fault);
}
