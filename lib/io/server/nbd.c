/* SPDX-License-Identifier: Apache-2.0 */
/* Backend nbd: reads of a network block device through libnbd, straight into the arena.
 *
 *   DOWN --(retry time)--> CONNECTING --(negotiated, right size)--> UP
 *   CONNECTING --(error, time limit)--> DOWN                    CONNECTING --(wrong size)--> WRONG
 *   UP --(error, abandon)--> DOWN
 *
 * A read that was accepted waits while there is no connection, and is sent again after one broke:
 * only an error that the server reports ends it, or `abandon`. The library runs in the loader's
 * thread and never blocks; its socket and a timer are in an epoll descriptor, which is the one that
 * the loader waits for. A closed connection writes nothing more, so that the buffers of abandoned
 * reads are free at once. */
#include <errno.h>
#include <libnbd.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "lib/base/assert.h"
#include "lib/base/bytes.h"
#include "lib/base/clock.h"
#include "lib/io/io.h"
#include "lib/io/server/url.h"

#define NBD_MAGIC      0x5344424eu
#define ATTEMPT_NS     (3 * NS_PER_S) /* to connect and to negotiate */
#define PAUSE_FIRST_NS (50 * NS_PER_MS)
#define PAUSE_LAST_NS  (2 * NS_PER_S)
#define ROUNDS_MAX     64          /* events handled before the loader has a turn */
#define PADDING_BYTES  (64 * KIB)  /* of a device that has whole blocks only */
#define READ_MAX_BYTES (32u * MIB) /* that every server must serve */
#define WHY_BYTES      256

enum slot_state { SLOT_FREE, SLOT_HELD, SLOT_ISSUED, SLOT_DONE };

struct slot {
    struct io *io;
    enum slot_state state;
    struct io_read read;
    uint32_t bytes; /* requested of the server */
    int64_t result;
};

enum link_state { LINK_DOWN, LINK_CONNECTING, LINK_UP, LINK_WRONG };

struct io {
    uint32_t magic, depth;
    struct io_url url;
    uint64_t file_bytes;
    struct slot *slot;
    uint32_t done; /* slots */
    int epoll, timer;
    int watched; /* the library's socket in epoll; -1: none */
    uint32_t events;
    enum link_state state;
    struct nbd_handle *nbd; /* NULL: DOWN or WRONG */
    uint64_t size, read_max;
    uint64_t since_ns, due_ns; /* down since; next attempt, or end of this one */
    uint64_t armed_ns;         /* the timer; 0: not armed */
    uint64_t pause_ns;
    bool leave; /* the server is shutting down */
    char why[WHY_BYTES];
};

/* ---- the timer and the socket ---------------------------------------------------------------- */

/* The descriptor becomes readable at due_ns, or at once if a completion waits. */
static void arm(struct io *io)
{
    bool waits = io->state == LINK_DOWN || io->state == LINK_CONNECTING;
    uint64_t at = io->done > 0 ? 1 : waits ? io->due_ns : 0; /* 0: never */
    struct itimerspec when = {
        .it_value = {.tv_sec = (time_t)(at / NS_PER_S), .tv_nsec = (long)(at % NS_PER_S)}};
    if (at == io->armed_ns)
        return;
    (void)timerfd_settime(io->timer, TFD_TIMER_ABSTIME, &when, NULL);
    io->armed_ns = at;
}

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
    if (epoll_ctl(io->epoll, EPOLL_CTL_MOD, fd, &event) != 0 && errno == ENOENT)
        (void)epoll_ctl(io->epoll, EPOLL_CTL_ADD, fd, &event);
    io->watched = fd;
    io->events = event.events;
}

/* ---- reads ----------------------------------------------------------------------------------- */

static void end(struct slot *slot, int64_t result)
{
    slot->state = SLOT_DONE;
    slot->result = result;
    slot->io->done++;
}

/* Called by the library; it must not be called back. */
static int completed(void *arg, int *error)
{
    struct slot *slot = arg;
    struct io *io = slot->io;
    OBJ_CHECK(io, NBD_MAGIC);
    if (slot->state != SLOT_ISSUED)
        return 1;
    if (*error == ENOTCONN || *error == ESHUTDOWN) {
        slot->state = SLOT_HELD;
        io->leave = true;
        return 1;
    }
    /* EIO: the server's lack of memory, or whatever else it reports, is not ours. */
    end(slot, *error ? -EIO : (int64_t)slot->bytes);
    io->pause_ns = PAUSE_FIRST_NS; /* it serves */
    return 1;
}

static void issue(struct io *io, struct slot *slot)
{
    const struct io_read *r = &slot->read;
    uint64_t left = r->file_offset < io->size ? io->size - r->file_offset : 0;
    uint64_t bytes = r->bytes < left ? r->bytes : left;
    slot->bytes = (uint32_t)(bytes < io->read_max ? bytes : io->read_max);
    if (slot->bytes == 0) {
        end(slot, 0);
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
        end(slot, why > 0 ? -why : -EIO);
}

static void issue_held(struct io *io)
{
    for (uint32_t i = 0; i < io->depth && io->state == LINK_UP && !io->leave; i++)
        if (io->slot[i].state == SLOT_HELD)
            issue(io, &io->slot[i]);
}

/* ---- the connection -------------------------------------------------------------------------- */

static void keep_why(struct io *io, const char *why)
{
    snprintf(io->why, sizeof io->why, "%s", why ? why : "the connection broke");
    io->why[strcspn(io->why, "\n")] = 0;
}

/* What was sent is sent again later. */
static void drop(struct io *io, enum link_state state, uint64_t now_ns)
{
    if (io->nbd)
        nbd_close(io->nbd);
    io->nbd = NULL;
    io->watched = -1;
    io->leave = false;
    io->state = state;
    if (io->since_ns == 0)
        io->since_ns = now_ns;
    io->due_ns = now_ns + io->pause_ns;
    io->pause_ns = 2 * io->pause_ns < PAUSE_LAST_NS ? 2 * io->pause_ns : PAUSE_LAST_NS;
    for (uint32_t i = 0; i < io->depth; i++)
        if (io->slot[i].state == SLOT_ISSUED)
            io->slot[i].state = SLOT_HELD;
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
        keep_why(io, nbd_get_error());
        drop(io, LINK_DOWN, now_ns);
        return;
    }
    io->state = LINK_CONNECTING;
    io->due_ns = now_ns + ATTEMPT_NS;
}

static void negotiated(struct io *io, uint64_t now_ns)
{
    int64_t size = nbd_get_size(io->nbd);
    int64_t max = nbd_get_block_size(io->nbd, LIBNBD_SIZE_MAXIMUM);
    if (io->file_bytes == 0 && size > 0)
        io->file_bytes = (uint64_t)size;
    if (size <= 0 || (uint64_t)size < io->file_bytes ||
        (uint64_t)size - io->file_bytes >= PADDING_BYTES) {
        snprintf(io->why, sizeof io->why, "it has %lld bytes instead of %llu", (long long)size,
                 (unsigned long long)io->file_bytes);
        drop(io, LINK_WRONG, now_ns);
        return;
    }
    io->size = (uint64_t)size;
    io->read_max = max >= (int64_t)PAGE_BYTES && max < (int64_t)READ_MAX_BYTES
                       ? align_down((uint64_t)max, PAGE_BYTES)
                       : READ_MAX_BYTES;
    io->state = LINK_UP;
    io->since_ns = 0;
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
        keep_why(io, nbd_get_error());
    return true;
}

/* Whether the connection is over. */
static bool broken(const struct io *io)
{
    return io->nbd && (io->leave || nbd_aio_is_dead(io->nbd) > 0 || nbd_aio_is_closed(io->nbd) > 0);
}

static void drive(struct io *io, uint64_t now_ns)
{
    if (io->state == LINK_DOWN && now_ns >= io->due_ns)
        connect_again(io, now_ns);
    bool late = io->state == LINK_CONNECTING && now_ns >= io->due_ns;
    uint32_t enough = (io->depth + 3) / 4; /* more reads can be sent before the server is idle */
    for (int i = 0; io->nbd && i < ROUNDS_MAX && io->done < enough && step(io); i++)
        ;
    if (!io->nbd)
        return;
    if (broken(io)) {
        drop(io, LINK_DOWN, now_ns);
    } else if (io->state == LINK_CONNECTING && nbd_aio_is_ready(io->nbd) > 0) {
        negotiated(io, now_ns);
    } else if (late) {
        keep_why(io, "it does not answer");
        drop(io, LINK_DOWN, now_ns);
    }
}

/* ---- the interface --------------------------------------------------------------------------- */

static void nbd_backend_close(struct io *io)
{
    OBJ_CHECK(io, NBD_MAGIC);
    if (io->nbd)
        nbd_close(io->nbd);
    if (io->epoll >= 0)
        close(io->epoll);
    if (io->timer >= 0)
        close(io->timer);
    free(io->slot);
    io->magic = 0;
    free(io);
}

static int open_fds(struct io *io)
{
    struct epoll_event event = {.events = EPOLLIN};
    io->epoll = epoll_create1(EPOLL_CLOEXEC);
    io->timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    return io->epoll < 0 || io->timer < 0 ||
                   epoll_ctl(io->epoll, EPOLL_CTL_ADD, io->timer, &event) != 0
               ? -1
               : 0;
}

static struct io *nbd_backend_open(const struct io_source *source, int *fd, struct error *error)
{
    struct io *io = calloc(1, sizeof *io);
    struct slot *slots = calloc(source->depth, sizeof *slots);
    if (!io || !slots) {
        free(io);
        free(slots);
        error_set(error, ERR_NO_MEMORY, "out of memory (nbd)");
        return NULL;
    }
    *io = (struct io){.magic = NBD_MAGIC,
                      .depth = source->depth,
                      .file_bytes = source->bytes,
                      .slot = slots,
                      .epoll = -1,
                      .timer = -1,
                      .watched = -1,
                      .pause_ns = PAUSE_FIRST_NS,
                      .since_ns = clock_now_ns()};
    for (uint32_t i = 0; i < io->depth; i++)
        slots[i].io = io;
    int rc = io_url_parse(source->url, &io->url, error);
    if (rc == 0 && open_fds(io) != 0)
        rc = error_set_errno(error, ERR_FAILED, errno, "cannot make descriptors (nbd)");
    if (rc != 0) {
        nbd_backend_close(io);
        return NULL;
    }
    keep_why(io, "it is being connected");
    drive(io, clock_now_ns());
    watch(io);
    arm(io);
    *fd = io->epoll;
    return io;
}

static uint32_t nbd_backend_submit(struct io *io, const struct io_read *reads, uint32_t count)
{
    OBJ_CHECK(io, NBD_MAGIC);
    uint32_t taken = 0;
    for (uint32_t i = 0; i < io->depth && taken < count; i++) {
        if (io->slot[i].state != SLOT_FREE)
            continue;
        io->slot[i].state = SLOT_HELD;
        io->slot[i].read = reads[taken++];
    }
    issue_held(io);
    if (broken(io))
        drop(io, LINK_DOWN, clock_now_ns());
    watch(io);
    arm(io);
    return taken;
}

static uint32_t nbd_backend_poll(struct io *io, struct io_done *done, uint32_t max)
{
    OBJ_CHECK(io, NBD_MAGIC);
    uint64_t expirations;
    if (read(io->timer, &expirations, sizeof expirations) > 0)
        io->armed_ns = 0;
    drive(io, clock_now_ns());
    uint32_t n = 0;
    for (uint32_t i = 0; i < io->depth && n < max && io->done > 0; i++) {
        struct slot *slot = &io->slot[i];
        if (slot->state != SLOT_DONE)
            continue;
        done[n++] = (struct io_done){slot->read.tag, slot->result};
        slot->state = SLOT_FREE;
        io->done--;
    }
    watch(io);
    arm(io);
    return n;
}

static void nbd_backend_link(struct io *io, struct io_link *link)
{
    OBJ_CHECK(io, NBD_MAGIC);
    *link = (struct io_link){.up = io->state == LINK_UP,
                             .wrong = io->state == LINK_WRONG,
                             .bytes = io->file_bytes,
                             .since_ns = io->since_ns,
                             .why = io->why};
}

static void nbd_backend_abandon(struct io *io)
{
    OBJ_CHECK(io, NBD_MAGIC);
    if (io->state == LINK_UP) { /* nothing was sent before */
        keep_why(io, "it served no read for too long");
        drop(io, LINK_DOWN, clock_now_ns());
    }
    for (uint32_t i = 0; i < io->depth; i++)
        if (io->slot[i].state == SLOT_HELD)
            end(&io->slot[i], -ENOTCONN);
    arm(io);
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
