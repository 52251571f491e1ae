/* SPDX-License-Identifier: Apache-2.0 */
/* Backend nbd: reads of a network block device through libnbd, straight into the arena.
 *
 * The library runs in the loader's thread and never blocks; its socket is in the epoll descriptor
 * of the reads (remote.h). A closed connection writes nothing more, so that the buffers of
 * abandoned reads are free at once. Only an error that the server reports ends a read, or
 * `abandon`. */
#include <errno.h>
#include <libnbd.h>
#include <poll.h>
#include <stdio.h>
#include <sys/epoll.h>

#include "lib/base/assert.h"
#include "lib/base/bytes.h"
#include "lib/io/server/served.h"

#define ROUNDS_MAX     64          /* events handled before the loader has a turn */
#define PADDING_BYTES  (64 * KIB)  /* of a device that has whole blocks only */
#define READ_MAX_BYTES (32u * MIB) /* that every server must serve */

struct io {
    struct served served;
    int watched; /* the library's socket in epoll; -1: none */
    uint32_t events;
    struct nbd_handle *nbd; /* NULL: DOWN or WRONG */
    uint64_t size, read_max;
    bool leave; /* the server is shutting down */
};

/* ---- the socket ------------------------------------------------------------------------------ */

static void watch(struct io *io)
{
    if (!io->nbd)
        return;
    int fd = nbd_aio_get_fd(io->nbd);
    unsigned direction = nbd_aio_get_direction(io->nbd);
    struct epoll_event event = {.events = (direction & LIBNBD_AIO_DIRECTION_READ ? EPOLLIN : 0) |
                                          (direction & LIBNBD_AIO_DIRECTION_WRITE ? EPOLLOUT : 0)};
    if (fd < 0 || (fd == io->watched && event.events == io->events))
        return;
    if (epoll_ctl(io->served.remote.epoll, EPOLL_CTL_MOD, fd, &event) != 0 && errno == ENOENT)
        (void)epoll_ctl(io->served.remote.epoll, EPOLL_CTL_ADD, fd, &event);
    io->watched = fd;
    io->events = event.events;
}

/* ---- reads ----------------------------------------------------------------------------------- */

/* Called by the library; it must not be called back. */
static int completed(void *arg, int *error)
{
    struct slot *slot = arg;
    struct io *io = slot->owner;
    OBJ_CHECK(&io->served, SERVED_MAGIC);
    if (slot->state != SLOT_ISSUED)
        return 1;
    if (*error == ENOTCONN || *error == ESHUTDOWN) {
        slot->state = SLOT_HELD;
        io->leave = true;
        return 1;
    }
    /* EIO: the server's lack of memory, or whatever else it reports, is not ours. */
    remote_end(&io->served.remote, slot, *error ? -EIO : (int64_t)slot->bytes);
    remote_served(&io->served.remote);
    return 1;
}

static void issue(struct io *io, struct slot *slot)
{
    const struct io_read *r = &slot->read;
    uint64_t bytes = remote_bytes(slot, io->size);
    slot->bytes = (uint32_t)(bytes < io->read_max ? bytes : io->read_max);
    if (slot->bytes == 0) {
        remote_end(&io->served.remote, slot, 0);
        return;
    }
    slot->state = SLOT_ISSUED;
    nbd_completion_callback callback = {.callback = completed, .user_data = slot};
    if (nbd_aio_pread(io->nbd, r->buffer, slot->bytes, r->file_offset, callback, 0) >= 0)
        return;
    int why = nbd_get_errno();
    if (slot->state != SLOT_ISSUED)
        return;
    slot->state = SLOT_HELD;
    if (nbd_aio_is_dead(io->nbd) <= 0 && nbd_aio_is_closed(io->nbd) <= 0)
        remote_end(&io->served.remote, slot, why > 0 ? -why : -EIO);
}

static void issue_held(struct io *io)
{
    struct remote *r = &io->served.remote;
    for (uint32_t i = 0; i < r->depth && r->state == REMOTE_UP && !io->leave; i++)
        if (r->slot[i].state == SLOT_HELD)
            issue(io, &r->slot[i]);
}

/* ---- the connection -------------------------------------------------------------------------- */

/* What was sent is sent again later. */
static void drop(struct io *io, enum remote_state state, uint64_t now_ns)
{
    if (io->nbd)
        nbd_close(io->nbd);
    io->nbd = NULL;
    io->watched = -1;
    io->leave = false;
    remote_drop(&io->served.remote, state, now_ns);
}

static int set_tls(struct io *io)
{
    const struct io_url *u = &io->served.url;
    if (!u->tls)
        return 0;
    if (nbd_set_tls(io->nbd, LIBNBD_TLS_REQUIRE) != 0 ||
        nbd_set_tls_verify_peer(io->nbd, true) != 0 ||
        (u->user[0] && nbd_set_tls_username(io->nbd, u->user) != 0))
        return -1;
    return u->psk_file[0] ? nbd_set_tls_psk_file(io->nbd, u->psk_file)
                          : nbd_set_tls_certificates(io->nbd, u->certificates);
}

/* The library would clear a buffer before it reads, which is an additional pass over memory. */
static int start(struct io *io)
{
    char port[8];
    snprintf(port, sizeof port, "%u", (unsigned)io->served.url.port);
    if (nbd_set_pread_initialize(io->nbd, false) != 0 ||
        nbd_set_export_name(io->nbd, io->served.url.name) != 0 || set_tls(io) != 0)
        return -1;
    return io->served.url.tcp ? nbd_aio_connect_tcp(io->nbd, io->served.url.host, port)
                              : nbd_aio_connect_unix(io->nbd, io->served.url.socket);
}

static void connect_again(struct io *io, uint64_t now_ns)
{
    io->nbd = nbd_create();
    if (!io->nbd || start(io) != 0) {
        remote_why(&io->served.remote, nbd_get_error());
        drop(io, REMOTE_DOWN, now_ns);
        return;
    }
    remote_connecting(&io->served.remote, now_ns);
}

static void negotiated(struct io *io, uint64_t now_ns)
{
    int64_t size = nbd_get_size(io->nbd);
    int64_t max = nbd_get_block_size(io->nbd, LIBNBD_SIZE_MAXIMUM);
    if (!remote_size(&io->served.remote, size > 0 ? (uint64_t)size : 0, PADDING_BYTES)) {
        drop(io, REMOTE_WRONG, now_ns);
        return;
    }
    io->size = (uint64_t)size;
    io->read_max = max >= (int64_t)PAGE_BYTES && max < (int64_t)READ_MAX_BYTES
                       ? align_down((uint64_t)max, PAGE_BYTES)
                       : READ_MAX_BYTES;
    remote_up(&io->served.remote);
    issue_held(io);
}

/* One event of the socket. False: there is none. */
static bool step(struct io *io)
{
    unsigned direction = nbd_aio_get_direction(io->nbd);
    bool in = direction & LIBNBD_AIO_DIRECTION_READ, out = direction & LIBNBD_AIO_DIRECTION_WRITE;
    struct pollfd fd = {.fd = nbd_aio_get_fd(io->nbd),
                        .events = (short)((in ? POLLIN : 0) | (out ? POLLOUT : 0))};
    if (fd.fd < 0 || poll(&fd, 1, 0) <= 0)
        return false;
    int rc = 0;
    if (in && (fd.revents & (POLLIN | POLLHUP | POLLERR)))
        rc = nbd_aio_notify_read(io->nbd);
    else if (out && (fd.revents & (POLLOUT | POLLHUP | POLLERR)))
        rc = nbd_aio_notify_write(io->nbd);
    else
        return false;
    if (rc != 0)
        remote_why(&io->served.remote, nbd_get_error());
    return true;
}

/* Whether the connection is over. */
static bool broken(const struct io *io)
{
    return io->nbd && (io->leave || nbd_aio_is_dead(io->nbd) > 0 || nbd_aio_is_closed(io->nbd) > 0);
}

static void drive(struct io *io, uint64_t now_ns)
{
    struct remote *r = &io->served.remote;
    if (r->state == REMOTE_DOWN && now_ns >= r->due_ns)
        connect_again(io, now_ns);
    bool late = r->state == REMOTE_CONNECTING && now_ns >= r->due_ns;
    uint32_t enough = (r->depth + 3) / 4; /* more reads can be sent before the server is idle */
    for (int i = 0; io->nbd && i < ROUNDS_MAX && r->done < enough && step(io); i++)
        ;
    if (!io->nbd)
        return;
    if (broken(io)) {
        drop(io, REMOTE_DOWN, now_ns);
    } else if (r->state == REMOTE_CONNECTING && nbd_aio_is_ready(io->nbd) > 0) {
        negotiated(io, now_ns);
    } else if (late) {
        remote_why(r, "it does not answer");
        drop(io, REMOTE_DOWN, now_ns);
    }
}

/* ---- the interface --------------------------------------------------------------------------- */

/* What the descriptor of the backend waits for. */
static void wait_for(struct io *io)
{
    watch(io);
    remote_arm(&io->served.remote, 0);
}

static int prepare(struct io *io, struct error *error)
{
    (void)error;
    io->watched = -1;
    return 0;
}

static void release(struct io *io)
{
    if (io->nbd)
        nbd_close(io->nbd);
}

static void send_held(struct io *io, uint64_t now_ns)
{
    issue_held(io);
    if (broken(io))
        drop(io, REMOTE_DOWN, now_ns);
}

static const struct served_calls calls = {
    .bytes = sizeof(struct io),
    .prepare = prepare,
    .release = release,
    .send = send_held,
    .drive = drive,
    .drop = drop,
    .wait = wait_for,
};

SERVED_BACKEND(NBD, calls);
