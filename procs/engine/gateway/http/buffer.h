/* Bytes held for clients, counted against one bound (--http-buffer). What strangers can make us
 * hold before a request is known to be one - bodies, and documents nobody takes - has a sum of its
 * own, at most half of the bound: it never takes the room that running answers need. Pure. */
#ifndef SLUICE_ENGINE_GATEWAY_HTTP_BUFFER_H
#define SLUICE_ENGINE_GATEWAY_HTTP_BUFFER_H

#include <stdbool.h>
#include <stddef.h>

struct quota {
    size_t limit;
    size_t held;   /* all of it */
    size_t guests; /* of it: bodies and documents */
};

/* True when that many bytes more fit; then they are counted. */
bool quota_take(struct quota *q, size_t bytes, bool guest);
void quota_give(struct quota *q, size_t bytes, bool guest);
/* What guests may hold at once. */
size_t quota_guests_max(const struct quota *q);

/* Bytes that grow, and leave at the front. All zeros: empty. */
struct buffer {
    char *data;
    size_t bytes, room;
    size_t told; /* from the front: they need not be kept */
    bool guest;
};

/* Room for that many bytes more; false without memory or quota, and then nothing has changed. */
bool buffer_reserve(struct quota *q, struct buffer *b, size_t bytes);
/* All of it or nothing. */
bool buffer_add(struct quota *q, struct buffer *b, const void *data, size_t bytes);
static inline size_t buffer_untold(const struct buffer *b)
{
    return b->bytes - b->told;
}
/* n more bytes were told. What was told gives its place back once it is `slack` bytes. */
void buffer_tell(struct buffer *b, size_t n, size_t slack);
/* Of a buffer of events: drops those nobody has seen anything of. One more may stay. */
void buffer_drop_events(struct buffer *b);
/* Frees the bytes; their charge stays with the caller, who gives it back. Returns it. */
size_t buffer_detach(struct buffer *b);
void buffer_free(struct quota *q, struct buffer *b);

#endif
