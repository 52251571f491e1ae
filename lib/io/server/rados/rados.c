/* SPDX-License-Identifier: Apache-2.0 */
/* Backend rados: reads of a file in a Ceph cluster through librados (layout.h), into the arena.
 *
 * The library has threads of its own, which receive what was read, copy it to its place, and call
 * `completed`: that marks a part as ended and wakes the loader's thread, which does all else. A
 * thread of the backend connects and looks at the file, because the library blocks there.
 *
 * The library sends again without end what a cluster does not answer, and tells nobody. So reads
 * that get no answer for QUIET_NS end the link: they are cancelled, and wait for the object that
 * did not answer (cluster.h). A cancelled operation writes nothing after its end. The client
 * remains.
 *
 * Bytes that were received are on the heap until they are copied. IN_FLIGHT_BYTES bound that, and
 * so what the kernel holds; the ledger has both (backends.tbl.h). */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "lib/base/assert.h"
#include "lib/base/bytes.h"
#include "lib/io/server/rados/cluster.h"
#include "lib/io/server/served.h"

#define IN_FLIGHT_BYTES (16 * MIB)
#define PARTS_MAX       4                 /* objects that one read is of; a longer one is short */
#define QUIET_NS        (3 * NS_PER_S)    /* without any answer */
#define LATE_NS         (10 * NS_PER_S)   /* of one read, while others are answered */
#define WATCH_NS        (500 * NS_PER_MS) /* between looks at both */
#define ATTEMPT_END_NS  (3600 * NS_PER_S) /* never: an attempt ends by itself */

_Static_assert((PARTS_MAX - 1) * LAYOUT_RUN_BYTES_MIN >= PAGE_BYTES, "a read may have no page");

/* A read of one object. */
struct part {
    struct io *io;
    rados_completion_t done; /* NULL: none */
    _Atomic bool ended;      /* set by the library's thread; everything else is the loader's */
    uint64_t object;
    uint32_t bytes;
};

struct io {
    struct served served;
    struct cluster cluster;
    struct part *part;   /* PARTS_MAX for each slot */
    uint64_t *issued_ns; /* of each slot */
    uint64_t in_flight;  /* bytes */
    uint64_t answered_ns;
    uint64_t suspect; /* an object that gave no answer */
    int event;        /* readable: parts or the attempt ended */
    pthread_t thread;
    bool attempting;            /* the thread has `cluster` and `result` */
    _Atomic bool attempt_ended; /* but not any more */
    int result;
    char why[REMOTE_WHY_BYTES];
};

static void wake(struct io *io)
{
    uint64_t one = 1;
    ssize_t n = write(io->event, &one, sizeof one);
    (void)n; /* full: it is readable */
}

/* ---- parts ----------------------------------------------------------------------------------- */

static struct part *parts_of(struct io *io, const struct slot *slot)
{
    return &io->part[(size_t)(slot - io->served.remote.slot) * PARTS_MAX];
}

/* In a thread of the library, after the bytes are in their place. */
static void completed(rados_completion_t done, void *arg)
{
    struct part *part = arg;
    (void)done;
    struct io *io = part->io; /* the part may be used again after the store */
    atomic_store_explicit(&part->ended, true, memory_order_release);
    wake(io);
}

static bool ended(struct part *part)
{
    return !part->done || atomic_load_explicit(&part->ended, memory_order_acquire);
}

/* Bytes, or -errno; the part is free then. */
static int release(struct io *io, struct part *part)
{
    int rc = rados_aio_get_return_value(part->done);
    rados_aio_release(part->done);
    part->done = NULL;
    io->in_flight -= part->bytes;
    return rc;
}

static int start(struct io *io, struct part *part, const struct extent *extent, char *buffer)
{
    char name[LAYOUT_NAME_BYTES];
    layout_object(&io->cluster.layout, io->served.url.name, extent->object, name);
    *part = (struct part){.io = io, .object = extent->object, .bytes = (uint32_t)extent->bytes};
    if (rados_aio_create_completion2(part, completed, &part->done) < 0) {
        part->done = NULL;
        return -ENOMEM;
    }
    int rc =
        rados_aio_read(io->cluster.pool, name, part->done, buffer, extent->bytes, extent->offset);
    if (rc < 0) {
        rados_aio_release(part->done);
        part->done = NULL;
        return rc;
    }
    io->in_flight += part->bytes;
    return 0;
}

/* ---- slots ----------------------------------------------------------------------------------- */

static uint32_t split(const struct io *io, const struct slot *slot, struct extent extent[PARTS_MAX])
{
    uint64_t at = slot->read.file_offset, left = remote_bytes(slot, io->cluster.layout.size);
    uint32_t n = 0;
    for (; n < PARTS_MAX && left > 0; n++) {
        extent[n] = layout_extent(&io->cluster.layout, at, left);
        at += extent[n].bytes;
        left -= extent[n].bytes;
    }
    return n;
}

/* False: too much is in flight. */
static bool issue(struct io *io, struct slot *slot, uint64_t now_ns)
{
    struct extent extent[PARTS_MAX];
    struct part *part = parts_of(io, slot);
    uint32_t n = split(io, slot, extent);
    slot->bytes = slot->tries = 0;
    for (uint32_t i = 0; i < n; i++)
        slot->bytes += (uint32_t)extent[i].bytes;
    if (io->in_flight > 0 && io->in_flight + slot->bytes > IN_FLIGHT_BYTES)
        return false;
    if (n == 0) {
        remote_end(&io->served.remote, slot, 0);
        return true;
    }
    if (io->in_flight == 0)
        io->answered_ns = now_ns;
    slot->state = SLOT_ISSUED;
    io->issued_ns[slot - io->served.remote.slot] = now_ns;
    char *buffer = slot->read.buffer;
    for (uint32_t i = 0; i < n; i++) {
        if (start(io, &part[i], &extent[i], buffer) != 0)
            slot->tries = 1; /* it fails when what was started has ended */
        buffer += extent[i].bytes;
    }
    return true;
}

static void issue_held(struct io *io, uint64_t now_ns)
{
    struct remote *r = &io->served.remote;
    for (uint32_t i = 0; i < r->depth && r->state == REMOTE_UP; i++)
        if (r->slot[i].state == SLOT_HELD && !issue(io, &r->slot[i], now_ns))
            return;
}

/* An object that is missing, too short or forbidden is an error that the cluster reports. */
static void collect_slot(struct io *io, struct slot *slot)
{
    struct part *part = parts_of(io, slot);
    bool wrong = slot->tries > 0;
    for (uint32_t i = 0; i < PARTS_MAX; i++)
        if (!ended(&part[i]))
            return;
    for (uint32_t i = 0; i < PARTS_MAX; i++) {
        if (!part[i].done)
            continue;
        uint32_t bytes = part[i].bytes;
        int rc = release(io, &part[i]);
        wrong |= rc < 0 || (uint32_t)rc != bytes;
    }
    remote_end(&io->served.remote, slot, wrong ? -EIO : (int64_t)slot->bytes);
    remote_served(&io->served.remote);
}

static void collect(struct io *io, uint64_t now_ns)
{
    struct remote *r = &io->served.remote;
    uint32_t before = r->done;
    for (uint32_t i = 0; i < r->depth; i++)
        if (r->slot[i].state == SLOT_ISSUED)
            collect_slot(io, &r->slot[i]);
    if (r->done > before)
        io->answered_ns = now_ns;
}

/* ---- the link -------------------------------------------------------------------------------- */

/* Cancels everything first: the ends are then waited for together. They need no answer of the
 * cluster. */
static void drop(struct io *io, enum remote_state state, uint64_t now_ns)
{
    uint32_t n = io->served.remote.depth * PARTS_MAX;
    for (uint32_t i = 0; i < n; i++)
        if (!ended(&io->part[i]))
            (void)rados_aio_cancel(io->cluster.pool, io->part[i].done);
    for (uint32_t i = 0; i < n; i++) {
        if (!io->part[i].done)
            continue;
        (void)rados_aio_wait_for_complete_and_cb(io->part[i].done);
        (void)release(io, &io->part[i]);
    }
    sl_assert(io->in_flight == 0);
    remote_drop(&io->served.remote, state, now_ns);
}

static void *attempt(void *arg)
{
    struct io *io = arg;
    OBJ_CHECK(&io->served, SERVED_MAGIC);
    io->result = cluster_attempt(&io->cluster, &io->served.url, io->suspect, io->why);
    atomic_store_explicit(&io->attempt_ended, true, memory_order_release);
    wake(io);
    return NULL;
}

static void connect_again(struct io *io, uint64_t now_ns)
{
    atomic_store_explicit(&io->attempt_ended, false, memory_order_relaxed);
    io->attempting = pthread_create(&io->thread, NULL, attempt, io) == 0;
    if (!io->attempting) {
        remote_why(&io->served.remote, "no thread for the connection");
        drop(io, REMOTE_DOWN, now_ns);
        return;
    }
    remote_connecting(&io->served.remote, now_ns);
    io->served.remote.due_ns = now_ns + ATTEMPT_END_NS;
}

static bool is_right(struct io *io)
{
    return remote_size(&io->served.remote, io->cluster.layout.size, 1) &&
           remote_identify(&io->served.remote, io->cluster.identity);
}

static void attempted(struct io *io, uint64_t now_ns)
{
    pthread_join(io->thread, NULL);
    io->attempting = false;
    if (io->result != 0) {
        remote_why(&io->served.remote, io->why);
        drop(io, REMOTE_DOWN, now_ns);
        return;
    }
    if (!is_right(io)) {
        drop(io, REMOTE_WRONG, now_ns);
        return;
    }
    io->suspect = 0;
    remote_up(&io->served.remote);
}

/* The slot with the oldest read; NULL: none is in flight. */
static struct slot *oldest(struct io *io)
{
    struct remote *r = &io->served.remote;
    struct slot *found = NULL;
    for (uint32_t i = 0; i < r->depth; i++)
        if (r->slot[i].state == SLOT_ISSUED &&
            (!found || io->issued_ns[i] < io->issued_ns[found - r->slot]))
            found = &r->slot[i];
    return found;
}

static void watch(struct io *io, uint64_t now_ns)
{
    struct slot *slot = io->served.remote.state == REMOTE_UP ? oldest(io) : NULL;
    char why[REMOTE_WHY_BYTES], name[LAYOUT_NAME_BYTES];
    if (!slot || (now_ns < io->answered_ns + QUIET_NS &&
                  now_ns < io->issued_ns[slot - io->served.remote.slot] + LATE_NS))
        return;
    struct part *part = parts_of(io, slot);
    while (ended(part) && part < parts_of(io, slot) + PARTS_MAX - 1)
        part++;
    io->suspect = part->object;
    layout_object(&io->cluster.layout, io->served.url.name, part->object, name);
    snprintf(why, sizeof why, "no answer to a read of the object %.160s", name);
    remote_why(&io->served.remote, why);
    drop(io, REMOTE_DOWN, now_ns);
}

static void drive(struct io *io, uint64_t now_ns)
{
    struct remote *r = &io->served.remote;
    uint64_t events;
    ssize_t n = read(io->event, &events, sizeof events);
    (void)n; /* nothing: the timer expired */
    if (io->attempting && atomic_load_explicit(&io->attempt_ended, memory_order_acquire))
        attempted(io, now_ns);
    else if (r->state == REMOTE_DOWN && now_ns >= r->due_ns)
        connect_again(io, now_ns);
    collect(io, now_ns);
    watch(io, now_ns);
    issue_held(io, now_ns);
}

/* ---- the interface --------------------------------------------------------------------------- */

/* The timer is set anew twice a second, not for each answer. */
static void wait_for(struct io *io)
{
    uint64_t look = (clock_now_ns() / WATCH_NS + 2) * WATCH_NS;
    remote_arm(&io->served.remote, io->in_flight > 0 ? look : 0);
}

static void release_all(struct io *io)
{
    if (io->attempting)
        pthread_join(io->thread, NULL);
    cluster_close(&io->cluster);
    if (io->event >= 0)
        close(io->event);
    free(io->part);
    free(io->issued_ns);
}

static int prepare(struct io *io, struct error *error)
{
    struct epoll_event event = {.events = EPOLLIN};
    uint32_t depth = io->served.remote.depth;
    io->event = event.data.fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    io->part = calloc((size_t)depth * PARTS_MAX, sizeof *io->part);
    io->issued_ns = calloc(depth, sizeof *io->issued_ns);
    if (!io->part || !io->issued_ns)
        return error_set(error, ERR_NO_MEMORY, "out of memory (rados)");
    if (io->event < 0 || epoll_ctl(io->served.remote.epoll, EPOLL_CTL_ADD, io->event, &event) != 0)
        return error_set_errno(error, ERR_FAILED, errno, "cannot make descriptors for a server");
    return 0;
}

static const struct served_calls calls = {
    .bytes = sizeof(struct io),
    .prepare = prepare,
    .release = release_all,
    .send = issue_held,
    .drive = drive,
    .drop = drop,
    .wait = wait_for,
};

SERVED_BACKEND(RADOS, calls);
