/* SPDX-License-Identifier: Apache-2.0 */
/* The access log (--http-log): one line per request that was routed, at its end.
 *
 *   TIME CLIENT METHOD PATH STATUS BYTES SECONDS PROMPT-TOKENS TOKENS
 *
 * Lines are collected and written at every tick. A file that was renamed or removed is noticed
 * within a second, and the path is opened again, so that the file can be rotated without a signal.
 * What does not fit between two ticks, or cannot be written, is lost and counted. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "procs/engine/gateway/http/http.h"

#define CHECK_EVERY_NS NS_PER_S
#define LEFT           499 /* status of a request whose client left without a response: nginx's */

static void lose(struct http *h, uint64_t lines, const char *why)
{
    struct http_log *l = &h->log;
    counter_add(h->child->process, CTR_GATEWAY_access_lines_lost, lines);
    if (!l->failing)
        log_warn("%" PRIu64 " lines of --http-log %s are lost: %s", lines,
                 h->child->params->http_log, why);
    l->failing = true;
}

static int open_file(struct http_log *l, const char *path)
{
    struct stat about;
    int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0640);
    if (fd < 0)
        return -1;
    if (fstat(fd, &about) != 0) {
        close(fd);
        return -1;
    }
    l->fd = fd;
    l->device = about.st_dev;
    l->inode = about.st_ino;
    return 0;
}

int http_log_open(struct http *h, struct error *error)
{
    const char *path = h->child->params->http_log;
    h->log.fd = -1;
    if (*path && open_file(&h->log, path) != 0)
        return error_set_errno(error, ERR_BAD_INPUT, errno, "--http-log %.200s", path);
    return 0;
}

/* Removes bytes from the start, which end lines or are a part of the first one. */
static void drop(struct http_log *l, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        l->lines -= l->text[i] == '\n';
    l->bytes -= bytes;
    memmove(l->text, l->text + bytes, l->bytes);
}

/* What is written in part stays for the next tick. What cannot be written is lost, but for the
 * end of a line whose beginning is in the file: it waits, so that the next line does not follow
 * half a line. */
static void write_lines(struct http *h)
{
    struct http_log *l = &h->log;
    ssize_t n = l->fd >= 0 ? write(l->fd, l->text, l->bytes) : -1;
    int why = l->fd >= 0 ? errno : ENOENT;
    if (n > 0) {
        bool whole = l->text[n - 1] == '\n';
        drop(l, (size_t)n);
        const char *end = whole ? NULL : memchr(l->text, '\n', l->bytes);
        l->rest = end ? (size_t)(end - l->text) + 1 : 0;
        l->failing = l->failing && l->bytes > 0;
        return;
    }
    if (l->bytes > l->rest)
        lose(h, l->lines - (l->rest > 0), n < 0 ? strerror(why) : "no space");
    l->bytes = l->rest;
    l->lines = l->rest > 0;
}

/* Opens the path again if it is another file now. Without a new one, the old one is written as
 * long as it has a name; then lines are lost and counted. */
static void follow_path(struct http *h)
{
    struct http_log *l = &h->log;
    const char *path = h->child->params->http_log;
    struct stat about;
    int was = l->fd;
    if (was >= 0 && stat(path, &about) == 0 && about.st_dev == l->device &&
        about.st_ino == l->inode)
        return;
    bool opened = open_file(l, path) == 0;
    if (was < 0 || (!opened && fstat(was, &about) == 0 && about.st_nlink > 0))
        return;
    close(was);
    l->fd = opened ? l->fd : -1;
    if (l->rest > 0) {
        drop(l, l->rest);
        l->rest = 0;
        lose(h, 1, "the file was replaced after half of the line");
    }
}

void http_log_tick(struct http *h, uint64_t now_ns)
{
    struct http_log *l = &h->log;
    if (!h->child->params->http_log[0])
        return;
    if (now_ns >= l->check_due_ns) {
        l->check_due_ns = now_ns + CHECK_EVERY_NS;
        follow_path(h);
    }
    if (l->bytes > 0)
        write_lines(h);
}

/* Untrusted: without blanks, and nothing that a terminal interprets. */
static void put_word(char *out, size_t cap, const char *text)
{
    size_t n = 0;
    for (; text[n] && n < cap - 1; n++)
        out[n] = (unsigned char)text[n] <= ' ' || (unsigned char)text[n] >= 0x7f ? '?' : text[n];
    out[n] = 0;
}

void exchange_client(const struct exchange *x, char out[INET6_ADDRSTRLEN])
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(x->connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    const struct sockaddr *a = info ? info->client_addr : NULL;
    const void *bytes = NULL;
    if (a && a->sa_family == AF_INET)
        bytes = &((const struct sockaddr_in *)(const void *)a)->sin_addr;
    else if (a && a->sa_family == AF_INET6)
        bytes = &((const struct sockaddr_in6 *)(const void *)a)->sin6_addr;
    if (!bytes || !inet_ntop(a->sa_family, bytes, out, INET6_ADDRSTRLEN))
        strcpy(out, "-");
}

/* "2026-11-28T22:30:00.123Z" */
static void put_time(char out[32])
{
    struct timespec now;
    struct tm utc;
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &utc);
    size_t n = strftime(out, 32, "%Y-%m-%dT%H:%M:%S", &utc);
    snprintf(out + n, 32 - n, ".%03uZ", (unsigned)(now.tv_nsec / NS_PER_MS) % 1000);
}

void http_log_begin(struct exchange *x, const char *method, const char *path)
{
    if (!x->http->child->params->http_log[0])
        return;
    put_word(x->log_method, sizeof x->log_method, method);
    put_word(x->log_path, sizeof x->log_path, path);
    x->since_ns = clock_now_ns();
}

void http_log_end(struct exchange *x)
{
    struct http *h = x->http;
    struct http_log *l = &h->log;
    char when[32], client[INET6_ADDRSTRLEN], line[480];
    if (!h->child->params->http_log[0])
        return;
    put_time(when);
    exchange_client(x, client);
    uint64_t bytes = strcmp(x->log_method, "HEAD") == 0 ? 0 : x->sent_bytes; /* it has no body */
    double seconds = (double)(clock_now_ns() - x->since_ns) / NS_PER_S;
    int n =
        snprintf(line, sizeof line, "%s %s %s %s %u %" PRIu64 " %.3f %" PRIu64 " %" PRIu64 " %s\n",
                 when, client, x->log_method, x->log_path, x->status ? x->status : LEFT, bytes,
                 seconds, x->prompt_tokens, x->new_tokens, x->class ? x->class : "-");
    l->lines++;
    if (n <= 0 || (size_t)n >= sizeof line || l->bytes + (size_t)n > sizeof l->text) {
        l->lines--;
        lose(h, 1, "too many at once");
        return;
    }
    memcpy(l->text + l->bytes, line, (size_t)n);
    l->bytes += (size_t)n;
}
