#include "procs/engine/gateway/http/buffer.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/assert.h"

#define BUFFER_LEAST 512

size_t quota_guests_max(const struct quota *q)
{
    return q->limit / 2;
}

bool quota_take(struct quota *q, size_t bytes, bool guest)
{
    if (bytes > q->limit - q->held)
        return false;
    if (guest && bytes > quota_guests_max(q) - q->guests)
        return false;
    q->held += bytes;
    q->guests += guest ? bytes : 0;
    return true;
}

void quota_give(struct quota *q, size_t bytes, bool guest)
{
    sl_assert(q->held >= bytes && (!guest || q->guests >= bytes));
    q->held -= bytes;
    q->guests -= guest ? bytes : 0;
}

bool buffer_reserve(struct quota *q, struct buffer *b, size_t bytes)
{
    if (bytes <= b->room - b->bytes)
        return true;
    if (bytes > q->limit)
        return false;
    size_t need = b->bytes + bytes, room = b->room ? b->room : BUFFER_LEAST;
    while (room < need)
        room *= 2;
    if (!quota_take(q, room - b->room, b->guest)) {
        room = need; /* what is left may be enough */
        if (!quota_take(q, room - b->room, b->guest))
            return false;
    }
    char *longer = realloc(b->data, room);
    if (!longer) {
        quota_give(q, room - b->room, b->guest);
        return false;
    }
    b->data = longer;
    b->room = room;
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

void buffer_tell(struct buffer *b, size_t n, size_t slack)
{
    sl_assert(n <= buffer_untold(b));
    b->told += n;
    if (b->told == b->bytes) {
        b->told = b->bytes = 0;
    } else if (b->told >= slack) {
        b->bytes -= b->told;
        memmove(b->data, b->data + b->told, b->bytes);
        b->told = 0;
    }
}

void buffer_drop_events(struct buffer *b)
{
    size_t left = buffer_untold(b);
    const char *end = left ? memmem(b->data + b->told, left, "\n\n", 2) : NULL;
    if (end) /* nobody knows whether its beginning was told: it is told to its end */
        b->bytes = (size_t)(end - b->data) + 2;
    if (b->told > 0) {
        b->bytes -= b->told;
        memmove(b->data, b->data + b->told, b->bytes);
        b->told = 0;
    }
}

size_t buffer_detach(struct buffer *b)
{
    size_t charge = b->room;
    free(b->data);
    b->data = NULL;
    b->bytes = b->room = b->told = 0;
    return charge;
}

void buffer_free(struct quota *q, struct buffer *b)
{
    bool guest = b->guest;
    quota_give(q, buffer_detach(b), guest);
}
