/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes buffered for clients, counted against one limit (--http-buffer). Bodies and snapshots,
 * which clients can cause before a request is valid, have a separate sum of at most half the limit,
 * so that running responses always have space. Pure. */
#ifndef SLUICE_ENGINE_GATEWAY_HTTP_BUFFER_H
#define SLUICE_ENGINE_GATEWAY_HTTP_BUFFER_H

#include <stdbool.h>
#include <stddef.h>

struct quota {
    size_t limit;
    size_t buffered;    /* all of it */
    size_t unvalidated; /* of it: bodies and snapshots */
};

/* True when that many bytes more fit; then they are counted. */
bool quota_take(struct quota *q, size_t bytes, bool unvalidated);
void quota_give(struct quota *q, size_t bytes, bool unvalidated);
/* Maximum bytes of bodies and snapshots. */
size_t quota_guests_max(const struct quota *q);

/* A growing buffer, consumed at the front. All zeros: empty. */
struct buffer {
    char *data;
    size_t bytes, capacity;
    size_t sent; /* from the front: they need not be kept */
    bool unvalidated;
};

/* Makes space for that many more bytes; false without memory or quota, and then nothing has
 * changed. */
bool buffer_reserve(struct quota *q, struct buffer *b, size_t bytes);
/* All of it or nothing. */
bool buffer_add(struct quota *q, struct buffer *b, const void *data, size_t bytes);
static inline size_t buffer_unsent(const struct buffer *b)
{
    return b->bytes - b->sent;
}
/* n more bytes were sent. Sent bytes are released once they are `slack` bytes. */
void buffer_mark_sent(struct buffer *b, size_t n, size_t slack);
/* Drops events of which no byte was sent. The first one stays, because part of it may have been
 * sent. after: what ends an event. */
void buffer_drop_events(struct buffer *b, const char *after);
/* Frees the bytes and returns their charge, which the caller releases. */
size_t buffer_detach(struct buffer *b);
void buffer_free(struct quota *q, struct buffer *b);

#endif
