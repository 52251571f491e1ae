/* SPDX-License-Identifier: Apache-2.0 */
/* Backend http: reads of a file on a web server, or of an object of S3, through libcurl, straight
 * into the arena. Each read is a request of a range (transfer.h); up to CONNECTIONS_MAX of them
 * run, on connections that are kept.
 *
 * The link (remote.h) is up after one byte was read, which shows the size of the file, what it is
 * known by (ETag, Last-Modified), and that the server has ranges. A read that breaks is sent again
 * at once, then after a pause, and ends with -EIO after TRIES_MAX; one that finds no connection,
 * is refused, or is to wait, ends the link. Credentials are read at each attempt to connect, so
 * that those that have expired are replaced.
 *
 * HTTP/1.1 only: parallel requests on connections of their own need no second flow control and no
 * second copy. The library runs in the loader's thread; its sockets are in the epoll descriptor. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "lib/base/assert.h"
#include "lib/base/bytes.h"
#include "lib/io/server/http/credentials.h"
#include "lib/io/server/http/request.h"
#include "lib/io/server/http/transfer.h"
#include "lib/io/server/served.h"

#define CONNECTIONS_MAX 16
#define TRIES_MAX       3
#define ROUNDS_MAX      64 /* events handled before the loader has a turn */
#define QUIET_S         5L /* a transfer without a byte for so long is broken */
/* Bounds the kernel's memory of a connection, which doubles it; the ledger has it
 * (backends.tbl.h). */
#define RECEIVE_BYTES (256 * (int)KIB)

struct io {
    struct served served;
    CURLM *multi;
    struct curl_slist *resolve, *headers;
    struct transfer *transfer;
    uint32_t transfers, active;
    struct identity identity; /* of the file; size 0 before the first connection */
    bool global;              /* the library was initialised */
};

/* ---- callbacks of the library ---------------------------------------------------------------- */

static int on_socket(CURL *easy, curl_socket_t fd, int what, void *arg, void *unused)
{
    struct io *io = arg;
    struct epoll_event event = {.events = (what & CURL_POLL_IN ? EPOLLIN : 0) |
                                          (what & CURL_POLL_OUT ? EPOLLOUT : 0),
                                .data.fd = fd};
    (void)easy;
    (void)unused;
    OBJ_CHECK(&io->served, SERVED_MAGIC);
    if (what == CURL_POLL_REMOVE)
        (void)epoll_ctl(io->served.remote.epoll, EPOLL_CTL_DEL, fd, NULL);
    else if (epoll_ctl(io->served.remote.epoll, EPOLL_CTL_MOD, fd, &event) != 0 && errno == ENOENT)
        (void)epoll_ctl(io->served.remote.epoll, EPOLL_CTL_ADD, fd, &event);
    return 0;
}

static int on_new_socket(void *unused, curl_socket_t fd, curlsocktype purpose)
{
    int bytes = RECEIVE_BYTES;
    (void)unused;
    (void)purpose;
    (void)setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes);
    return CURL_SOCKOPT_OK;
}

/* ---- requests -------------------------------------------------------------------------------- */

/* A weak ETag cannot be a condition. */
static bool add_conditions(struct io *io)
{
    const struct identity *is = &io->identity;
    if (is->size > 0 && is->tag[0] == '"')
        return request_header(&io->headers, "If-Match", is->tag);
    return is->size == 0 || !is->modified[0] ||
           request_header(&io->headers, "If-Unmodified-Since", is->modified);
}

static bool add_signature(struct io *io, const struct credentials *c)
{
    bool right = request_sign_headers(&io->headers, c, REQUEST_EMPTY_HASH);
    for (uint32_t i = 0; i < io->transfers; i++)
        right = right && request_sign(io->transfer[i].easy, &io->served.url, c);
    return right;
}

/* What every request says from now on. Only without transfers. -1 with the reason in `why`. */
static int make_headers(struct io *io)
{
    struct credentials credentials = {.id = ""};
    struct error error;
    sl_assert(io->active == 0);
    request_forget(&io->headers);
    if (io->served.url.s3 && credentials_take(io->served.url.credentials, io->served.url.profile,
                                              &credentials, &error) != 0) {
        remote_why(&io->served.remote, error.text);
        return -1;
    }
    bool right = add_conditions(io) && add_signature(io, &credentials);
    credentials_forget(&credentials);
    for (uint32_t i = 0; i < io->transfers; i++)
        curl_easy_setopt(io->transfer[i].easy, CURLOPT_HTTPHEADER, io->headers);
    if (!right)
        remote_why(&io->served.remote, "out of memory (http)");
    return right ? 0 : -1;
}

static void begin(struct io *io, struct transfer *t, struct slot *slot)
{
    transfer_begin(t, slot, &io->identity);
    t->active = true;
    io->active++;
    CURLMcode rc = curl_multi_add_handle(io->multi, t->easy);
    sl_assert(rc == CURLM_OK);
}

static void release(struct io *io, struct transfer *t)
{
    (void)curl_multi_remove_handle(io->multi, t->easy);
    t->active = false;
    io->active--;
}

/* A transfer that is taken out of the library writes nothing any more. */
static void drop(struct io *io, enum remote_state state, uint64_t now_ns)
{
    for (uint32_t i = 0; i < io->transfers; i++)
        if (io->transfer[i].active)
            release(io, &io->transfer[i]);
    remote_drop(&io->served.remote, state, now_ns);
}

static struct transfer *idle_transfer(struct io *io)
{
    for (uint32_t i = 0; i < io->transfers; i++)
        if (!io->transfer[i].active)
            return &io->transfer[i];
    return NULL;
}

/* False: there is none, or nothing to send it with. */
static bool issue_held(struct io *io, uint64_t now_ns)
{
    struct remote *r = &io->served.remote;
    bool any = false;
    for (uint32_t i = 0; i < r->depth && r->state == REMOTE_UP; i++) {
        struct slot *slot = &r->slot[i];
        if (slot->state != SLOT_HELD || slot->after_ns > now_ns)
            continue;
        slot->bytes = (uint32_t)remote_bytes(slot, io->identity.size);
        if (slot->bytes == 0) {
            remote_end(r, slot, 0);
            continue;
        }
        struct transfer *t = idle_transfer(io);
        if (!t)
            break;
        slot->state = SLOT_ISSUED;
        begin(io, t, slot);
        any = true;
    }
    return any;
}

static void connect_again(struct io *io, uint64_t now_ns)
{
    if (make_headers(io) != 0) {
        drop(io, REMOTE_DOWN, now_ns);
        return;
    }
    remote_connecting(&io->served.remote, now_ns);
    begin(io, &io->transfer[0], NULL);
}

/* ---- ends of requests ------------------------------------------------------------------------ */

/* The file on the server is the right one, as far as its size shows. */
static void connected(struct io *io, const struct transfer *t, uint64_t now_ns)
{
    if (!remote_size(&io->served.remote, t->found.size, 1)) {
        drop(io, REMOTE_WRONG, now_ns);
        return;
    }
    const struct identity *now = &t->found;
    if (!remote_identify(&io->served.remote, remote_hash(now->tag[0] ? now->tag : now->modified))) {
        drop(io, REMOTE_WRONG, now_ns);
        return;
    }
    if (io->identity.size == 0) {
        io->identity = t->found;
        if (make_headers(io) != 0) {
            drop(io, REMOTE_DOWN, now_ns);
            return;
        }
    }
    remote_up(&io->served.remote);
}

static void broken(struct io *io, struct slot *slot, uint64_t now_ns)
{
    slot->state = SLOT_HELD;
    if (++slot->tries == TRIES_MAX)
        remote_end(&io->served.remote, slot, -EIO);
    else if (slot->tries > 1)
        slot->after_ns = now_ns + remote_jitter(&io->served.remote, REMOTE_PAUSE_FIRST_NS);
}

static void ended(struct io *io, struct transfer *t, CURLcode code, uint64_t now_ns)
{
    char why[REMOTE_WHY_BYTES];
    struct remote *r = &io->served.remote;
    struct slot *slot = t->slot;
    enum transfer_end end = transfer_judge(t, code, why);
    release(io, t);
    if (end == TRANSFER_RIGHT && slot) {
        remote_end(r, slot, slot->bytes);
        remote_served(r);
        return;
    }
    if (end == TRANSFER_RIGHT) {
        connected(io, t, now_ns);
        return;
    }
    remote_why(r, why);
    if (end == TRANSFER_BROKEN && slot) {
        broken(io, slot, now_ns);
        return;
    }
    drop(io, end == TRANSFER_CHANGED ? REMOTE_WRONG : REMOTE_DOWN, now_ns);
    uint64_t asked = now_ns + t->wait_s * NS_PER_S;
    if (end == TRANSFER_BUSY && r->due_ns < asked)
        r->due_ns = asked;
}

static void collect(struct io *io, uint64_t now_ns)
{
    CURLMsg *message;
    int left;
    while ((message = curl_multi_info_read(io->multi, &left)) != NULL) {
        struct transfer *t = NULL;
        CURLcode code = message->data.result;
        if (message->msg != CURLMSG_DONE ||
            curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, (char **)&t) != CURLE_OK)
            continue;
        if (t->active) /* else it was dropped */
            ended(io, t, code, now_ns);
    }
}

/* ---- progress -------------------------------------------------------------------------------- */

/* The library is asked for its next time limit whenever that matters: its callback for timers is
 * not called again for a limit that it has told once, although that was rounded down. */
static long timer_ms(const struct io *io)
{
    long ms = -1;
    (void)curl_multi_timeout(io->multi, &ms);
    return ms;
}

static void run_timer(struct io *io)
{
    int running;
    if (timer_ms(io) == 0)
        (void)curl_multi_socket_action(io->multi, CURL_SOCKET_TIMEOUT, 0, &running);
}

/* False: no socket has anything. */
static bool run_sockets(struct io *io)
{
    struct epoll_event events[CONNECTIONS_MAX];
    int running, n = epoll_wait(io->served.remote.epoll, events, CONNECTIONS_MAX, 0);
    bool any = false;
    for (int i = 0; i < n; i++) {
        uint32_t is = events[i].events;
        if (events[i].data.fd == io->served.remote.timer)
            continue;
        int mask = (is & EPOLLIN ? CURL_CSELECT_IN : 0) | (is & EPOLLOUT ? CURL_CSELECT_OUT : 0) |
                   (is & (EPOLLERR | EPOLLHUP) ? CURL_CSELECT_ERR : 0);
        (void)curl_multi_socket_action(io->multi, events[i].data.fd, mask, &running);
        any = true;
    }
    return any;
}

/* A near server answers so fast that the library ends a read at once, and has no event for it. */
static void send_held(struct io *io, uint64_t now_ns)
{
    for (int i = 0; i < ROUNDS_MAX && issue_held(io, now_ns); i++) {
        run_timer(io);
        collect(io, now_ns);
    }
}

static void drive(struct io *io, uint64_t now_ns)
{
    struct remote *r = &io->served.remote;
    uint32_t enough = (r->depth + 3) / 4; /* more reads can be sent before the server is idle */
    if (r->state == REMOTE_DOWN && now_ns >= r->due_ns)
        connect_again(io, now_ns);
    bool late = r->state == REMOTE_CONNECTING && now_ns >= r->due_ns;
    bool more = true;
    for (int i = 0; i < ROUNDS_MAX && more && r->done < enough; i++) {
        run_timer(io);
        more = run_sockets(io);
        collect(io, now_ns);
    }
    if (late && r->state == REMOTE_CONNECTING) {
        remote_why(r, "it does not answer");
        drop(io, REMOTE_DOWN, now_ns);
    }
    send_held(io, now_ns);
}

/* The next moment at which there is something to do without an event; 0: none. */
static uint64_t next_due(const struct io *io)
{
    const struct remote *r = &io->served.remote;
    long ms = timer_ms(io);
    uint64_t due = ms < 0 ? 0 : clock_now_ns() + (uint64_t)ms * NS_PER_MS;
    for (uint32_t i = 0; i < r->depth && r->state == REMOTE_UP; i++) {
        uint64_t after = r->slot[i].after_ns;
        if (r->slot[i].state == SLOT_HELD && after > 0 && (due == 0 || after < due))
            due = after;
    }
    return due;
}

/* ---- the start ------------------------------------------------------------------------------- */

static int make_transfer(struct io *io, struct transfer *t, const char *address)
{
    if (transfer_create(t) != 0 || request_set(t->easy, &io->served.url, address, io->resolve) != 0)
        return -1;
    curl_easy_setopt(t->easy, CURLOPT_BUFFERSIZE, (long)TRANSFER_BUFFER_BYTES);
    curl_easy_setopt(t->easy, CURLOPT_LOW_SPEED_TIME, QUIET_S);
    curl_easy_setopt(t->easy, CURLOPT_SOCKOPTFUNCTION, on_new_socket);
    return 0;
}

static int make_library(struct io *io)
{
    io->global = curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK;
    io->multi = io->global ? curl_multi_init() : NULL;
    if (!io->multi)
        return -1;
    curl_multi_setopt(io->multi, CURLMOPT_SOCKETFUNCTION, on_socket);
    curl_multi_setopt(io->multi, CURLMOPT_SOCKETDATA, io);
    curl_multi_setopt(io->multi, CURLMOPT_MAX_TOTAL_CONNECTIONS, (long)CONNECTIONS_MAX);
    curl_multi_setopt(io->multi, CURLMOPT_MAXCONNECTS, (long)CONNECTIONS_MAX);
    curl_multi_setopt(io->multi, CURLMOPT_PIPELINING, (long)CURLPIPE_NOTHING);
    return 0;
}

static int make_transfers(struct io *io)
{
    char address[REQUEST_ADDRESS_BYTES];
    request_address(&io->served.url, "", address);
    uint32_t n =
        io->served.remote.depth < CONNECTIONS_MAX ? io->served.remote.depth : CONNECTIONS_MAX;
    io->transfer = calloc(n, sizeof *io->transfer);
    if (!io->transfer || request_resolve(&io->served.url, &io->resolve) != 0)
        return -1;
    while (io->transfers < n)
        if (make_transfer(io, &io->transfer[io->transfers++], address) != 0)
            return -1;
    return 0;
}

/* ---- the interface --------------------------------------------------------------------------- */

static void release_all(struct io *io)
{
    for (uint32_t i = 0; i < io->transfers; i++) {
        if (io->transfer[i].active)
            release(io, &io->transfer[i]);
        transfer_destroy(&io->transfer[i]);
    }
    if (io->multi)
        (void)curl_multi_cleanup(io->multi);
    request_forget(&io->headers);
    curl_slist_free_all(io->resolve);
    if (io->global)
        curl_global_cleanup();
    free(io->transfer);
}

static int prepare(struct io *io, struct error *error)
{
    return make_library(io) == 0 && make_transfers(io) == 0
               ? 0
               : error_set(error, ERR_FAILED, "%.200s: libcurl cannot be used",
                           io->served.url.host);
}

static void wait_for(struct io *io)
{
    remote_arm(&io->served.remote, next_due(io));
}

static const struct served_calls calls = {
    .bytes = sizeof(struct io),
    .prepare = prepare,
    .release = release_all,
    .send = send_held,
    .drive = drive,
    .drop = drop,
    .wait = wait_for,
};

SERVED_BACKEND(HTTP, calls);
