/* SPDX-License-Identifier: Apache-2.0 */
/* Counts buffered bytes against the limit, and grows and shrinks buffers within it. */
#include "procs/engine/gateway/http/buffer.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/assert.h"

#define BUFFER_MIN 512

size_t quota_guests_max(const struct quota *q)
{
    return q->limit / 2;
}

bool quota_take(struct quota *q, size_t bytes, bool unvalidated)
{
    if (bytes > q->limit - q->buffered)
        return false;
    if (unvalidated && bytes > quota_guests_max(q) - q->unvalidated)
        return false;
    q->buffered += bytes;
    q->unvalidated += unvalidated ? bytes : 0;
    return true;
}

void quota_give(struct quota *q, size_t bytes, bool unvalidated)
{
    sl_assert(q->buffered >= bytes && (!unvalidated || q->unvalidated >= bytes));
    q->buffered -= bytes;
    q->unvalidated -= unvalidated ? bytes : 0;
}

bool buffer_reserve(struct quota *q, struct buffer *b, size_t bytes)
{
    if (bytes <= b->capacity - b->bytes)
        return true;
    if (bytes > q->limit)
        return false;
    size_t need = b->bytes + bytes, capacity = b->capacity ? b->capacity : BUFFER_MIN;
    while (capacity < need)
        capacity *= 2;
    if (!quota_take(q, capacity - b->capacity, b->unvalidated)) {
        capacity = need; /* the exact size may still fit */
        if (!quota_take(q, capacity - b->capacity, b->unvalidated))
            return false;
    }
    char *longer = realloc(b->data, capacity);
    if (!longer) {
        quota_give(q, capacity - b->capacity, b->unvalidated);
        return false;
    }
    b->data = longer;
    b->capacity = capacity;
    return true;
}

bool buffer_add(struct quota *q, struct buffer *b, const void *data, size_t bytes)
{
    if (!buffer_reserve(q, b, bytes))
        return false;
    if (bytes > 0)
        memcpy(b->data + b->bytes, data, bytes);
    b->bytes += bytes;
    return true;
}

void buffer_mark_sent(struct buffer *b, size_t n, size_t slack)
{
    sl_assert(n <= buffer_unsent(b));
    b->sent += n;
    if (b->sent == b->bytes) {
        b->sent = b->bytes = 0;
    } else if (b->sent >= slack) {
        b->bytes -= b->sent;
        memmove(b->data, b->data + b->sent, b->bytes);
        b->sent = 0;
    }
}

void buffer_drop_events(struct buffer *b, const char *after)
{
    size_t left = buffer_unsent(b);
    const char *end = left ? memmem(b->data + b->sent, left, after, strlen(after)) : NULL;
    if (end) /* part of this event may have been sent: keep the rest of it */
        b->bytes = (size_t)(end - b->data) + strlen(after);
    if (b->sent > 0) {
        b->bytes -= b->sent;
        memmove(b->data, b->data + b->sent, b->bytes);
        b->sent = 0;
    }
}

size_t buffer_detach(struct buffer *b)
{
    size_t charge = b->capacity;
    free(b->data);
    b->data = NULL;
    b->bytes = b->capacity = b->sent = 0;
    return charge;
}

void buffer_free(struct quota *q, struct buffer *b)
{
    bool unvalidated = b->unvalidated;
    quota_give(q, buffer_detach(b), unvalidated);
}
