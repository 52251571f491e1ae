/* SPDX-License-Identifier: Apache-2.0 */
/* Stores responses within a bound. */
#include "procs/engine/gateway/api/stored.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool stored_open(struct stored *s, size_t count, size_t bytes)
{
    *s = (struct stored){.count = bytes > 0 ? count : 0, .bytes_max = bytes};
    s->all = s->count > 0 ? calloc(s->count, sizeof *s->all) : NULL;
    return s->all || s->count == 0;
}

static void drop(struct stored *s, struct stored_response *r)
{
    free(r->body);
    free(r->conversation);
    s->bytes -= r->bytes;
    *r = (struct stored_response){.body = NULL};
}

void stored_close(struct stored *s)
{
    for (size_t i = 0; i < s->count; i++)
        drop(s, &s->all[i]);
    free(s->all);
    *s = (struct stored){.all = NULL};
}

static struct stored_response *named(const struct stored *s, const char *id)
{
    for (size_t i = 0; i < s->count && id[0]; i++)
        if (strcmp(s->all[i].id, id) == 0)
            return &s->all[i];
    return NULL;
}

/* A free one; else the one that was not used for longest. */
static struct stored_response *oldest(const struct stored *s, bool used)
{
    struct stored_response *found = NULL;
    for (size_t i = 0; i < s->count; i++) {
        struct stored_response *r = &s->all[i];
        if (!r->id[0] && !used)
            return r;
        if (r->id[0] && (!found || r->used < found->used))
            found = r;
    }
    return found;
}

void stored_put(struct stored *s, const char *id, char *body, char *conversation)
{
    size_t bytes = body && conversation ? strlen(body) + strlen(conversation) + 2 : 0;
    if (s->count == 0 || bytes == 0 || bytes > s->bytes_max || strlen(id) >= STORED_ID_BYTES) {
        free(body);
        free(conversation);
        return;
    }
    struct stored_response *r = named(s, id);
    if (r)
        drop(s, r);
    while (bytes > s->bytes_max - s->bytes)
        drop(s, oldest(s, true));
    r = oldest(s, false);
    drop(s, r);
    *r = (struct stored_response){
        .body = body, .conversation = conversation, .bytes = bytes, .used = ++s->uses};
    snprintf(r->id, sizeof r->id, "%s", id);
    s->bytes += bytes;
}

const struct stored_response *stored_find(struct stored *s, const char *id)
{
    struct stored_response *r = named(s, id);
    if (r)
        r->used = ++s->uses;
    return r;
}

bool stored_delete(struct stored *s, const char *id)
{
    struct stored_response *r = named(s, id);
    if (r)
        drop(s, r);
    return r != NULL;
}
