/* SPDX-License-Identifier: Apache-2.0 */
/* A place in the text of a call, and steps from it. */
#ifndef SLUICE_MODEL_CHAT_CALLS_CURSOR_H
#define SLUICE_MODEL_CHAT_CALLS_CURSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

struct cursor {
    const char *at, *end;
};

static inline size_t cursor_left(const struct cursor *c)
{
    return (size_t)(c->end - c->at);
}

static inline void cursor_skip_blanks(struct cursor *c)
{
    while (c->at < c->end && *c->at && strchr(" \n\t\r", *c->at))
        c->at++;
}

/* Takes the mark if it stands here. */
static inline bool cursor_take(struct cursor *c, const char *mark)
{
    size_t n = strlen(mark);
    if (cursor_left(c) < n || memcmp(c->at, mark, n) != 0)
        return false;
    c->at += n;
    return true;
}

/* What is before the mark, which is taken, too. */
static inline bool cursor_take_until(struct cursor *c, const char *mark, struct cursor *text)
{
    const char *found = memmem(c->at, cursor_left(c), mark, strlen(mark));
    if (!found)
        return false;
    *text = (struct cursor){c->at, found};
    c->at = found + strlen(mark);
    return true;
}

#endif
