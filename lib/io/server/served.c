/* SPDX-License-Identifier: Apache-2.0 */
/* Does what is the same in all back ends of servers. */
#include "lib/io/server/served.h"

#include <stdlib.h>

#include "lib/base/assert.h"

/* A pointer to a struct is one to its first member. */
static struct served *of(struct io *io)
{
    struct served *s = (struct served *)(void *)io;
    OBJ_CHECK(s, SERVED_MAGIC);
    return s;
}

static void end(struct served *s)
{
    remote_destroy(&s->remote);
    s->magic = 0;
    free(s);
}

struct io *served_open(const struct served_calls *calls, const struct io_source *source, int *fd,
                       struct error *error)
{
    struct served *s = calloc(1, calls->bytes);
    struct io *io = (struct io *)(void *)s;
    if (!s) {
        error_set(error, ERR_NO_MEMORY, "out of memory (reads of a server)");
        return NULL;
    }
    s->magic = SERVED_MAGIC;
    s->calls = calls;
    if (remote_create(&s->remote, source, io, error) != 0 ||
        io_url_parse(source->url, &s->url, error) != 0) {
        end(s);
        return NULL;
    }
    if (calls->prepare(io, error) != 0) {
        served_close(io);
        return NULL;
    }
    calls->drive(io, clock_now_ns());
    calls->wait(io);
    *fd = s->remote.epoll;
    return io;
}

uint32_t served_submit(struct io *io, const struct io_read *reads, uint32_t count)
{
    struct served *s = of(io);
    uint32_t taken = remote_take(&s->remote, reads, count);
    s->calls->send(io, clock_now_ns());
    s->calls->wait(io);
    return taken;
}

uint32_t served_poll(struct io *io, struct io_done *done, uint32_t max)
{
    struct served *s = of(io);
    remote_disarm(&s->remote);
    s->calls->drive(io, clock_now_ns());
    uint32_t n = remote_give(&s->remote, done, max);
    s->calls->wait(io);
    return n;
}

void served_close(struct io *io)
{
    struct served *s = of(io);
    s->calls->release(io);
    end(s);
}

void served_link(struct io *io, struct io_link *link)
{
    remote_link(&of(io)->remote, link);
}

void served_abandon(struct io *io)
{
    struct served *s = of(io);
    if (s->remote.state == REMOTE_UP) { /* nothing was sent before */
        remote_why(&s->remote, "it served no read for too long");
        s->calls->drop(io, REMOTE_DOWN, clock_now_ns());
    }
    remote_take_back(&s->remote);
    s->calls->wait(io);
}
