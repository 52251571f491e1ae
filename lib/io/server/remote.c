/* SPDX-License-Identifier: Apache-2.0 */
/* Reads that wait for a server, and the link to it. */
#include "lib/io/server/remote.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "lib/base/assert.h"

static int open_fds(struct remote *r)
{
    struct epoll_event event = {.events = EPOLLIN, .data.fd = -1};
    r->epoll = epoll_create1(EPOLL_CLOEXEC);
    r->timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    if (r->epoll < 0 || r->timer < 0)
        return -1;
    event.data.fd = r->timer;
    return epoll_ctl(r->epoll, EPOLL_CTL_ADD, r->timer, &event);
}

int remote_create(struct remote *r, const struct io_source *source, void *owner,
                  struct error *error)
{
    uint64_t now = clock_now_ns();
    *r = (struct remote){.depth = source->depth,
                         .slot = calloc(source->depth, sizeof *r->slot),
                         .file_bytes = source->bytes,
                         .identity = source->identity,
                         .epoll = -1,
                         .timer = -1,
                         .since_ns = now,
                         .pause_ns = REMOTE_PAUSE_FIRST_NS};
    random_seed(&r->random, now, (uint64_t)getpid());
    if (!r->slot)
        return error_set(error, ERR_NO_MEMORY, "out of memory (reads of a server)");
    for (uint32_t i = 0; i < r->depth; i++)
        r->slot[i].owner = owner;
    remote_why(r, "it is being connected");
    if (open_fds(r) != 0)
        return error_set_errno(error, ERR_FAILED, errno, "cannot make descriptors for a server");
    return 0;
}

void remote_destroy(struct remote *r)
{
    if (r->epoll >= 0)
        close(r->epoll);
    if (r->timer >= 0)
        close(r->timer);
    free(r->slot);
    r->slot = NULL;
    r->epoll = r->timer = -1;
}

/* ---- reads ----------------------------------------------------------------------------------- */

uint32_t remote_take(struct remote *r, const struct io_read *reads, uint32_t count)
{
    uint32_t taken = 0;
    for (uint32_t i = 0; i < r->depth && taken < count; i++) {
        struct slot *slot = &r->slot[i];
        if (slot->state != SLOT_FREE)
            continue;
        *slot = (struct slot){.owner = slot->owner, .state = SLOT_HELD, .read = reads[taken++]};
    }
    return taken;
}

uint32_t remote_give(struct remote *r, struct io_done *done, uint32_t max)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < r->depth && n < max && r->done > 0; i++) {
        struct slot *slot = &r->slot[i];
        if (slot->state != SLOT_DONE)
            continue;
        done[n++] = (struct io_done){slot->read.tag, slot->result};
        slot->state = SLOT_FREE;
        r->done--;
    }
    return n;
}

void remote_end(struct remote *r, struct slot *slot, int64_t result)
{
    sl_assert(slot->state == SLOT_HELD || slot->state == SLOT_ISSUED);
    slot->state = SLOT_DONE;
    slot->result = result;
    r->done++;
}

uint64_t remote_bytes(const struct slot *slot, uint64_t size)
{
    const struct io_read *read = &slot->read;
    uint64_t left = read->file_offset < size ? size - read->file_offset : 0;
    return read->bytes < left ? read->bytes : left;
}

void remote_take_back(struct remote *r)
{
    for (uint32_t i = 0; i < r->depth; i++)
        if (r->slot[i].state == SLOT_HELD)
            remote_end(r, &r->slot[i], -ENOTCONN);
}

/* ---- the link -------------------------------------------------------------------------------- */

bool remote_size(struct remote *r, uint64_t bytes, uint64_t padding)
{
    if (r->file_bytes == 0)
        r->file_bytes = bytes;
    if (bytes > 0 && bytes >= r->file_bytes && bytes - r->file_bytes < padding)
        return true;
    snprintf(r->why, sizeof r->why, "it has %llu bytes instead of %llu", (unsigned long long)bytes,
             (unsigned long long)r->file_bytes);
    return false;
}

bool remote_identify(struct remote *r, uint64_t identity)
{
    if (r->identity == 0)
        r->identity = identity;
    if (r->identity == identity)
        return true;
    remote_why(r, "the file was replaced on the server");
    return false;
}

uint64_t remote_hash(const char *text)
{
    uint64_t hash = 0xcbf29ce484222325u;
    if (!*text)
        return 0;
    for (; *text; text++)
        hash = (hash ^ (unsigned char)*text) * 0x100000001b3u;
    return hash ? hash : 1;
}

void remote_connecting(struct remote *r, uint64_t now_ns)
{
    r->state = REMOTE_CONNECTING;
    r->due_ns = now_ns + REMOTE_ATTEMPT_NS;
}

void remote_up(struct remote *r)
{
    r->state = REMOTE_UP;
    r->since_ns = 0;
}

void remote_served(struct remote *r)
{
    r->pause_ns = REMOTE_PAUSE_FIRST_NS;
}

void remote_why(struct remote *r, const char *why)
{
    snprintf(r->why, sizeof r->why, "%s", why ? why : "the connection broke");
    r->why[strcspn(r->why, "\r\n")] = 0;
}

uint64_t remote_jitter(struct remote *r, uint64_t pause_ns)
{
    return pause_ns / 2 + (uint64_t)((double)(pause_ns / 2) * random_unit(&r->random));
}

void remote_drop(struct remote *r, enum remote_state state, uint64_t now_ns)
{
    uint64_t next = 2 * r->pause_ns;
    r->state = state;
    r->dropped = true;
    if (r->since_ns == 0)
        r->since_ns = now_ns;
    r->due_ns = now_ns + remote_jitter(r, r->pause_ns);
    r->pause_ns = next < REMOTE_PAUSE_LAST_NS ? next : REMOTE_PAUSE_LAST_NS;
    for (uint32_t i = 0; i < r->depth; i++)
        if (r->slot[i].state == SLOT_ISSUED)
            r->slot[i].state = SLOT_HELD;
}

void remote_link(const struct remote *r, struct io_link *link)
{
    *link = (struct io_link){.up = r->state == REMOTE_UP,
                             .wrong = r->state == REMOTE_WRONG,
                             .bytes = r->file_bytes,
                             .identity = r->identity,
                             .since_ns = r->since_ns,
                             .why = r->why,
                             .known = r->dropped};
}

/* ---- the timer ------------------------------------------------------------------------------- */

void remote_arm(struct remote *r, uint64_t also_ns)
{
    bool waits = r->state == REMOTE_DOWN || r->state == REMOTE_CONNECTING;
    uint64_t at = waits && (also_ns == 0 || r->due_ns < also_ns) ? r->due_ns : also_ns;
    if (r->done > 0)
        at = 1;
    struct itimerspec when = {
        .it_value = {.tv_sec = (time_t)(at / NS_PER_S), .tv_nsec = (long)(at % NS_PER_S)}};
    if (at == r->armed_ns)
        return;
    (void)timerfd_settime(r->timer, TFD_TIMER_ABSTIME, &when, NULL);
    r->armed_ns = at;
}

void remote_disarm(struct remote *r)
{
    uint64_t expirations;
    if (read(r->timer, &expirations, sizeof expirations) > 0)
        r->armed_ns = 0;
}
