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
#include "lib/io/server/url.h"

#define HTTP_MAGIC      0x53485454u
#define CONNECTIONS_MAX 16
#define TRIES_MAX       3
#define ROUNDS_MAX      64 /* events handled before the loader has a turn */
#define QUIET_S         5L /* a transfer without a byte for so long is broken */
/* Bounds the kernel's memory of a connection, which doubles it; the ledger has it
 * (backends.tbl.h). */
#define RECEIVE_BYTES (256 * (int)KIB)

struct io {
    uint32_t magic;
    struct io_url url;
    struct remote remote;
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
    OBJ_CHECK(io, HTTP_MAGIC);
    if (what == CURL_POLL_REMOVE)
        (void)epoll_ctl(io->remote.epoll, EPOLL_CTL_DEL, fd, NULL);
    else if (epoll_ctl(io->remote.epoll, EPOLL_CTL_MOD, fd, &event) != 0 && errno == ENOENT)
        (void)epoll_ctl(io->remote.epoll, EPOLL_CTL_ADD, fd, &event);
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
        right = right && request_sign(io->transfer[i].easy, &io->url, c);
    return right;
}

/* What every request says from now on. Only without transfers. -1 with the reason in `why`. */
static int make_headers(struct io *io)
{
    struct credentials credentials = {.id = ""};
    struct error error;
    sl_assert(io->active == 0);
    request_forget(&io->headers);
    if (io->url.s3 &&
        credentials_take(io->url.credentials, io->url.profile, &credentials, &error) != 0) {
        remote_why(&io->remote, error.text);
        return -1;
    }
    bool right = add_conditions(io) && add_signature(io, &credentials);
    credentials_forget(&credentials);
    for (uint32_t i = 0; i < io->transfers; i++)
        curl_easy_setopt(io->transfer[i].easy, CURLOPT_HTTPHEADER, io->headers);
    if (!right)
        remote_why(&io->remote, "out of memory (http)");
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
    remote_drop(&io->remote, state, now_ns);
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
    struct remote *r = &io->remote;
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
    remote_connecting(&io->remote, now_ns);
    begin(io, &io->transfer[0], NULL);
}

/* ---- ends of requests ------------------------------------------------------------------------ */

/* The file on the server is the right one, as far as its size shows. */
static void connected(struct io *io, const struct transfer *t, uint64_t now_ns)
{
    if (io->remote.file_bytes == 0)
        io->remote.file_bytes = t->found.size;
    uint64_t right = io->remote.file_bytes;
    if (t->found.size == 0 || t->found.size != right) {
        char why[REMOTE_WHY_BYTES];
        snprintf(why, sizeof why, "it has %llu bytes instead of %llu",
                 (unsigned long long)t->found.size, (unsigned long long)right);
        remote_why(&io->remote, why);
        drop(io, REMOTE_WRONG, now_ns);
        return;
    }
    const struct identity *now = &t->found;
    if (!remote_identify(&io->remote, remote_hash(now->tag[0] ? now->tag : now->modified))) {
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
    remote_up(&io->remote);
}

static void broken(struct io *io, struct slot *slot, uint64_t now_ns)
{
    slot->state = SLOT_HELD;
    if (++slot->tries == TRIES_MAX)
        remote_end(&io->remote, slot, -EIO);
    else if (slot->tries > 1)
        slot->after_ns = now_ns + remote_jitter(&io->remote, REMOTE_PAUSE_FIRST_NS);
}

static void ended(struct io *io, struct transfer *t, CURLcode code, uint64_t now_ns)
{
    char why[REMOTE_WHY_BYTES];
    struct remote *r = &io->remote;
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
    int running, n = epoll_wait(io->remote.epoll, events, CONNECTIONS_MAX, 0);
    bool any = false;
    for (int i = 0; i < n; i++) {
        uint32_t is = events[i].events;
        if (events[i].data.fd == io->remote.timer)
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
    struct remote *r = &io->remote;
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
    const struct remote *r = &io->remote;
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
    if (transfer_create(t) != 0 || request_set(t->easy, &io->url, address, io->resolve) != 0)
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
    request_address(&io->url, "", address);
    uint32_t n = io->remote.depth < CONNECTIONS_MAX ? io->remote.depth : CONNECTIONS_MAX;
    io->transfer = calloc(n, sizeof *io->transfer);
    if (!io->transfer || request_resolve(&io->url, &io->resolve) != 0)
        return -1;
    while (io->transfers < n)
        if (make_transfer(io, &io->transfer[io->transfers++], address) != 0)
            return -1;
    return 0;
}

/* ---- the interface --------------------------------------------------------------------------- */

static void http_close(struct io *io)
{
    OBJ_CHECK(io, HTTP_MAGIC);
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
    remote_destroy(&io->remote);
    free(io->transfer);
    io->magic = 0;
    free(io);
}

static struct io *http_open(const struct io_source *source, int *fd, struct error *error)
{
    struct io *io = calloc(1, sizeof *io);
    if (!io) {
        error_set(error, ERR_NO_MEMORY, "out of memory (http)");
        return NULL;
    }
    io->magic = HTTP_MAGIC;
    int rc = remote_create(&io->remote, source, io, error);
    if (rc == 0)
        rc = io_url_parse(source->url, &io->url, error);
    if (rc == 0 && (make_library(io) != 0 || make_transfers(io) != 0))
        rc = error_set(error, ERR_FAILED, "%.200s: libcurl cannot be used", source->url);
    if (rc != 0) {
        http_close(io);
        return NULL;
    }
    drive(io, clock_now_ns());
    remote_arm(&io->remote, next_due(io));
    *fd = io->remote.epoll;
    return io;
}

static uint32_t http_submit(struct io *io, const struct io_read *reads, uint32_t count)
{
    OBJ_CHECK(io, HTTP_MAGIC);
    uint32_t taken = remote_take(&io->remote, reads, count);
    send_held(io, clock_now_ns());
    remote_arm(&io->remote, next_due(io));
    return taken;
}

static uint32_t http_poll(struct io *io, struct io_done *done, uint32_t max)
{
    OBJ_CHECK(io, HTTP_MAGIC);
    remote_disarm(&io->remote);
    drive(io, clock_now_ns());
    uint32_t n = remote_give(&io->remote, done, max);
    remote_arm(&io->remote, next_due(io));
    return n;
}

static void http_link(struct io *io, struct io_link *link)
{
    OBJ_CHECK(io, HTTP_MAGIC);
    remote_link(&io->remote, link);
}

static void http_abandon(struct io *io)
{
    OBJ_CHECK(io, HTTP_MAGIC);
    if (io->remote.state == REMOTE_UP) { /* nothing was sent before */
        remote_why(&io->remote, "it served no read for too long");
        drop(io, REMOTE_DOWN, clock_now_ns());
    }
    remote_take_back(&io->remote);
    remote_arm(&io->remote, next_due(io));
}

static const struct io_backend backend_http = {
    .id = IO_HTTP,
    .open = http_open,
    .submit = http_submit,
    .poll = http_poll,
    .close = http_close,
    .link = http_link,
    .abandon = http_abandon,
};

const struct io_backend *const io_servers[] = {&backend_http};
const uint32_t io_servers_count = ARRAY_LEN(io_servers);
