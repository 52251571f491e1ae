/* SPDX-License-Identifier: Apache-2.0 */
/* Reads a file of a server through the back end of its loader. */
#include "procs/engine/fetch/server.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "lib/base/clock.h"
#include "lib/io/server/url.h"

/* Only a whole piece counts as an answer, so a server with SERVER_DEPTH of them in PATIENCE_NS is
 * fast enough: small ones keep slow links. */
#define PIECE_BYTES (128 * KIB)
#define PATIENCE_NS (10 * NS_PER_S) /* without a connection, or without an answer */
#define POLL_MS     100
#define TRIES_MAX   4

struct piece {
    uint64_t at, bytes, got;
    unsigned tries;
    bool busy;
    char *buffer;
};

struct transfer {
    struct server *server;
    struct piece piece[SERVER_DEPTH];
    uint64_t next, to;
    unsigned busy;
    uint64_t answered_ns;
    server_sink *sink;
    void *arg;
};

static void link_of(const struct server *s, struct io_link *link)
{
    s->reader->backend->link(s->reader->io, link);
}

static void wait_for(const struct server *s)
{
    struct pollfd fd = {.fd = s->reader->fd, .events = POLLIN};
    (void)poll(&fd, 1, POLL_MS);
}

int server_open(struct server *s, const char *url, struct error *error)
{
    struct io_url parsed;
    if (io_url_parse(url, &parsed, error) != 0)
        return -1;
    const struct io_source source = {.url = url, .backend = parsed.backend, .depth = SERVER_DEPTH};
    struct io_link link = {.up = false};
    struct io_done none[1];
    *s = (struct server){.url = url};
    s->buffer = malloc(SERVER_DEPTH * PIECE_BYTES);
    if (!s->buffer)
        return error_set(error, ERR_NO_MEMORY, "out of memory (fetch)");
    s->reader = readers_open_server(&s->readers, &source, error);
    if (!s->reader)
        return -1;
    for (uint64_t end = clock_now_ns() + PATIENCE_NS; !link.up && clock_now_ns() < end;) {
        (void)s->reader->backend->poll(s->reader->io, none, 1);
        link_of(s, &link);
        if (!link.up)
            wait_for(s);
    }
    s->bytes = link.bytes;
    if (link.up && s->bytes > 0)
        return 0;
    return error_set(error, ERR_BAD_INPUT, "%.250s: %.150s", url,
                     link.up ? "it has no bytes" : link.why);
}

void server_close(struct server *s)
{
    readers_close(&s->readers);
    free(s->buffer);
    *s = (struct server){.url = NULL};
}

static int submit(struct transfer *t, struct piece *p, struct error *error)
{
    struct reader *r = t->server->reader;
    const struct io_read read = {.bytes = (uint32_t)(p->bytes - p->got),
                                 .file_offset = p->at + p->got,
                                 .buffer = p->buffer + p->got,
                                 .tag = p};
    return r->backend->submit(r->io, &read, 1) == 1
               ? 0
               : error_set(error, ERR_IO, "%.250s: a read was not accepted", t->server->url);
}

static int start_pieces(struct transfer *t, struct error *error)
{
    for (unsigned i = 0; i < SERVER_DEPTH && t->next < t->to; i++) {
        struct piece *p = &t->piece[i];
        if (p->busy)
            continue;
        uint64_t left = t->to - t->next, bytes = left < PIECE_BYTES ? left : PIECE_BYTES;
        *p = (struct piece){.at = t->next,
                            .bytes = bytes,
                            .busy = true,
                            .buffer = t->server->buffer + i * PIECE_BYTES};
        t->next += bytes;
        t->busy++;
        if (submit(t, p, error) != 0)
            return -1;
    }
    return 0;
}

static int ended(struct transfer *t, const struct io_done *done, struct error *error)
{
    struct piece *p = done->tag;
    t->answered_ns = clock_now_ns();
    if (done->result <= 0 && ++p->tries >= TRIES_MAX)
        return error_set_errno(error, ERR_IO, done->result < 0 ? (int)-done->result : ENODATA,
                               "%.250s: byte %llu cannot be read", t->server->url,
                               (unsigned long long)(p->at + p->got));
    p->got += done->result > 0 ? (uint64_t)done->result : 0;
    if (p->got < p->bytes)
        return submit(t, p, error);
    p->busy = false;
    t->busy--;
    return t->sink(t->arg, p->buffer, p->bytes, p->at, error);
}

/* Pieces of which the buffers belong to the back end are taken back. */
static void give_up(struct transfer *t)
{
    struct reader *r = t->server->reader;
    struct io_done done[SERVER_DEPTH];
    if (t->busy == 0)
        return;
    r->backend->abandon(r->io);
    (void)r->backend->poll(r->io, done, SERVER_DEPTH);
}

static int step(struct transfer *t, struct error *error)
{
    struct reader *r = t->server->reader;
    struct io_done done[SERVER_DEPTH];
    struct io_link link;
    if (start_pieces(t, error) != 0)
        return -1;
    uint32_t n = r->backend->poll(r->io, done, SERVER_DEPTH);
    for (uint32_t i = 0; i < n; i++)
        if (ended(t, &done[i], error) != 0)
            return -1;
    link_of(t->server, &link);
    if (link.wrong || clock_now_ns() - t->answered_ns > PATIENCE_NS)
        return error_set(error, ERR_IO, "%.250s: %.150s", t->server->url,
                         link.up ? "it does not answer" : link.why);
    if (n == 0 && t->busy > 0)
        wait_for(t->server);
    return 0;
}

int server_transfer(struct server *s, uint64_t from, uint64_t to, server_sink *sink, void *arg,
                    struct error *error)
{
    struct transfer t = {.server = s,
                         .next = from,
                         .to = to,
                         .answered_ns = clock_now_ns(),
                         .sink = sink,
                         .arg = arg};
    while (t.next < t.to || t.busy > 0)
        if (step(&t, error) != 0) {
            give_up(&t);
            return -1;
        }
    return 0;
}

struct target {
    char *buffer;
    uint64_t from;
};

static int into_buffer(void *arg, const void *bytes, uint64_t count, uint64_t at,
                       struct error *error)
{
    const struct target *t = arg;
    (void)error;
    memcpy(t->buffer + (at - t->from), bytes, count);
    return 0;
}

int server_read(struct server *s, uint64_t from, uint64_t to, void *buffer, struct error *error)
{
    struct target target = {buffer, from};
    return server_transfer(s, from, to, into_buffer, &target, error);
}
