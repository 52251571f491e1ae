/* SPDX-License-Identifier: Apache-2.0 */
/* Holds what the backends of servers share: reads that wait for a server or were sent to it, the
 * link with its pauses between attempts, and the descriptor that the loader waits for.
 *
 *   DOWN --(due_ns: the backend begins)--> CONNECTING --(remote_up)--> UP
 *   CONNECTING, UP --(remote_drop)--> DOWN                  any --(remote_drop)--> WRONG
 *
 *   FREE --(remote_take)--> HELD --(the backend sends it)--> ISSUED --(remote_end)--> DONE
 *   ISSUED --(remote_drop, the backend)--> HELD       HELD --(remote_take_back)--> DONE
 *   DONE --(remote_give)--> FREE
 *
 * A read that was accepted waits while there is no connection, and is sent again after one broke.
 * No function calls the backend; one thread. */
#ifndef SLUICE_IO_SERVER_REMOTE_H
#define SLUICE_IO_SERVER_REMOTE_H

#include "lib/base/clock.h"
#include "lib/base/random.h"
#include "lib/io/io.h"

#define REMOTE_WHY_BYTES      256
#define REMOTE_ATTEMPT_NS     (3 * NS_PER_S) /* to connect and to see what the server has */
#define REMOTE_PAUSE_FIRST_NS (50 * NS_PER_MS)
#define REMOTE_PAUSE_LAST_NS  (2 * NS_PER_S)

enum remote_state { REMOTE_DOWN, REMOTE_CONNECTING, REMOTE_UP, REMOTE_WRONG };

enum slot_state { SLOT_FREE, SLOT_HELD, SLOT_ISSUED, SLOT_DONE };

struct slot {
    void *owner; /* the backend's */
    enum slot_state state;
    struct io_read read;
    uint32_t bytes;    /* requested of the server; the backend's */
    uint32_t tries;    /* that failed; the backend's, 0 at first */
    uint64_t after_ns; /* not sent again before; the backend's, 0 at first */
    int64_t result;
};

struct remote {
    uint32_t depth;
    struct slot *slot; /* depth of them */
    uint32_t done;     /* slots */
    uint64_t file_bytes, identity;
    int epoll, timer;
    uint64_t armed_ns; /* the timer; 0: not armed */
    enum remote_state state;
    bool dropped;              /* once or more: `why` is a reason */
    uint64_t since_ns, due_ns; /* down since; next attempt, or end of this one */
    uint64_t pause_ns;
    struct random random;
    char why[REMOTE_WHY_BYTES];
};

/* owner: of every slot. -1 with ERR_NO_MEMORY or ERR_FAILED; remote_destroy is right then, too. */
int remote_create(struct remote *r, const struct io_source *source, void *owner,
                  struct error *error);
void remote_destroy(struct remote *r);

/* Reads for free slots; the number taken. */
uint32_t remote_take(struct remote *r, const struct io_read *reads, uint32_t count);
/* Completions of ended slots; the number given. */
uint32_t remote_give(struct remote *r, struct io_done *done, uint32_t max);
void remote_end(struct remote *r, struct slot *slot, int64_t result);
/* Bytes of the slot's read before the end of `size` bytes. */
uint64_t remote_bytes(const struct slot *slot, uint64_t size);

/* Every read that waits ends with -ENOTCONN. */
void remote_take_back(struct remote *r);

/* Whether the file has the right size, which is that of the first connection if none was known; it
 * may have fewer than `padding` bytes more. Else `why` has both sizes. */
bool remote_size(struct remote *r, uint64_t bytes, uint64_t padding);

/* What the file is known by now; 0: nothing. False: it is another one than at the first connection,
 * of this process or of one before it, and `why` says so. */
bool remote_identify(struct remote *r, uint64_t identity);
/* A hash of a text for that (FNV-1a); 0: it is empty. */
uint64_t remote_hash(const char *text);

/* An attempt has begun; it has succeeded; a read was served, so that the next pause is short. */
void remote_connecting(struct remote *r, uint64_t now_ns);
void remote_up(struct remote *r);
void remote_served(struct remote *r);

/* Why the link is or will be down: the first line. NULL: the connection broke. */
void remote_why(struct remote *r, const char *why);

/* No link any more: state is DOWN, with a pause that doubles, or WRONG. What was sent waits to be
 * sent again; the backend has closed its connections. */
void remote_drop(struct remote *r, enum remote_state state, uint64_t now_ns);
/* A pause of about pause_ns, between a half of it and all of it: what failed at once for many is
 * not tried again at once by all. */
uint64_t remote_jitter(struct remote *r, uint64_t pause_ns);

void remote_link(const struct remote *r, struct io_link *link);

/* The epoll descriptor becomes readable when an attempt is due, at also_ns (0: never), or at once
 * if a completion waits. The clock is CLOCK_MONOTONIC. */
void remote_arm(struct remote *r, uint64_t also_ns);
/* After the descriptor was readable. */
void remote_disarm(struct remote *r);

#endif
