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
#include <stdlib.h>
#include <sys/epoll.h>

#include "lib/base/assert.h"
#include "lib/base/bytes.h"
#include "lib/io/server/remote.h"
#include "lib/io/server/url.h"

#define NBD_MAGIC      0x5344424eu
#define ROUNDS_MAX     64          /* events handled before the loader has a turn */
#define PADDING_BYTES  (64 * KIB)  /* of a device that has whole blocks only */
#define READ_MAX_BYTES (32u * MIB) /* that every server must serve */

struct io {
    uint32_t magic;
    struct io_url url;
    struct remote remote;
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
    if (epoll_ctl(io->remote.epoll, EPOLL_CTL_MOD, fd, &event) != 0 && errno == ENOENT)
        (void)epoll_ctl(io->remote.epoll, EPOLL_CTL_ADD, fd, &event);
    io->watched = fd;
    io->events = event.events;
}

/* ---- reads ----------------------------------------------------------------------------------- */

/* Called by the library; it must not be called back. */
static int completed(void *arg, int *error)
{
    struct slot *slot = arg;
    struct io *io = slot->owner;
    OBJ_CHECK(io, NBD_MAGIC);
    if (slot->state != SLOT_ISSUED)
        return 1;
    if (*error == ENOTCONN || *error == ESHUTDOWN) {
        slot->state = SLOT_HELD;
        io->leave = true;
        return 1;
    }
    /* EIO: the server's lack of memory, or whatever else it reports, is not ours. */
    remote_end(&io->remote, slot, *error ? -EIO : (int64_t)slot->bytes);
    remote_served(&io->remote);
    return 1;
}

static void issue(struct io *io, struct slot *slot)
{
    const struct io_read *r = &slot->read;
    uint64_t bytes = remote_bytes(slot, io->size);
    slot->bytes = (uint32_t)(bytes < io->read_max ? bytes : io->read_max);
    if (slot->bytes == 0) {
        remote_end(&io->remote, slot, 0);
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
        remote_end(&io->remote, slot, why > 0 ? -why : -EIO);
}

static void issue_held(struct io *io)
{
    struct remote *r = &io->remote;
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
    remote_drop(&io->remote, state, now_ns);
}

static int set_tls(struct io *io)
{
    const struct io_url *u = &io->url;
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
    snprintf(port, sizeof port, "%u", (unsigned)io->url.port);
    if (nbd_set_pread_initialize(io->nbd, false) != 0 ||
        nbd_set_export_name(io->nbd, io->url.name) != 0 || set_tls(io) != 0)
        return -1;
    return io->url.tcp ? nbd_aio_connect_tcp(io->nbd, io->url.host, port)
                       : nbd_aio_connect_unix(io->nbd, io->url.socket);
}

static void connect_again(struct io *io, uint64_t now_ns)
{
    io->nbd = nbd_create();
    if (!io->nbd || start(io) != 0) {
        remote_why(&io->remote, nbd_get_error());
        drop(io, REMOTE_DOWN, now_ns);
        return;
    }
    remote_connecting(&io->remote, now_ns);
}

static void negotiated(struct io *io, uint64_t now_ns)
{
    int64_t size = nbd_get_size(io->nbd);
    int64_t max = nbd_get_block_size(io->nbd, LIBNBD_SIZE_MAXIMUM);
    if (io->remote.file_bytes == 0 && size > 0)
        io->remote.file_bytes = (uint64_t)size;
    uint64_t right = io->remote.file_bytes;
    if (size <= 0 || (uint64_t)size < right || (uint64_t)size - right >= PADDING_BYTES) {
        char why[REMOTE_WHY_BYTES];
        snprintf(why, sizeof why, "it has %lld bytes instead of %llu", (long long)size,
                 (unsigned long long)right);
        remote_why(&io->remote, why);
        drop(io, REMOTE_WRONG, now_ns);
        return;
    }
    io->size = (uint64_t)size;
    io->read_max = max >= (int64_t)PAGE_BYTES && max < (int64_t)READ_MAX_BYTES
                       ? align_down((uint64_t)max, PAGE_BYTES)
                       : READ_MAX_BYTES;
    remote_up(&io->remote);
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
        remote_why(&io->remote, nbd_get_error());
    return true;
}

/* Whether the connection is over. */
static bool broken(const struct io *io)
{
    return io->nbd && (io->leave || nbd_aio_is_dead(io->nbd) > 0 || nbd_aio_is_closed(io->nbd) > 0);
}

static void drive(struct io *io, uint64_t now_ns)
{
    struct remote *r = &io->remote;
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
    remote_arm(&io->remote, 0);
}

static void nbd_backend_close(struct io *io)
{
    OBJ_CHECK(io, NBD_MAGIC);
    if (io->nbd)
        nbd_close(io->nbd);
    remote_destroy(&io->remote);
    io->magic = 0;
    free(io);
}

static struct io *nbd_backend_open(const struct io_source *source, int *fd, struct error *error)
{
    struct io *io = calloc(1, sizeof *io);
    if (!io) {
        error_set(error, ERR_NO_MEMORY, "out of memory (nbd)");
        return NULL;
    }
    io->magic = NBD_MAGIC;
    io->watched = -1;
    if (remote_create(&io->remote, source, io, error) != 0 ||
        io_url_parse(source->url, &io->url, error) != 0) {
        nbd_backend_close(io);
        return NULL;
    }
    drive(io, clock_now_ns());
    wait_for(io);
    *fd = io->remote.epoll;
    return io;
}

static uint32_t nbd_backend_submit(struct io *io, const struct io_read *reads, uint32_t count)
{
    OBJ_CHECK(io, NBD_MAGIC);
    uint32_t taken = remote_take(&io->remote, reads, count);
    issue_held(io);
    if (broken(io))
        drop(io, REMOTE_DOWN, clock_now_ns());
    wait_for(io);
    return taken;
}

static uint32_t nbd_backend_poll(struct io *io, struct io_done *done, uint32_t max)
{
    OBJ_CHECK(io, NBD_MAGIC);
    remote_disarm(&io->remote);
    drive(io, clock_now_ns());
    uint32_t n = remote_give(&io->remote, done, max);
    wait_for(io);
    return n;
}

static void nbd_backend_link(struct io *io, struct io_link *link)
{
    OBJ_CHECK(io, NBD_MAGIC);
    remote_link(&io->remote, link);
}

static void nbd_backend_abandon(struct io *io)
{
    OBJ_CHECK(io, NBD_MAGIC);
    if (io->remote.state == REMOTE_UP) { /* nothing was sent before */
        remote_why(&io->remote, "it served no read for too long");
        drop(io, REMOTE_DOWN, clock_now_ns());
    }
    remote_take_back(&io->remote);
    remote_arm(&io->remote, 0);
}

static const struct io_backend backend_nbd = {
    .id = IO_NBD,
    .open = nbd_backend_open,
    .submit = nbd_backend_submit,
    .poll = nbd_backend_poll,
    .close = nbd_backend_close,
    .link = nbd_backend_link,
    .abandon = nbd_backend_abandon,
};

const struct io_backend *const io_servers[] = {&backend_nbd};
const uint32_t io_servers_count = ARRAY_LEN(io_servers);
