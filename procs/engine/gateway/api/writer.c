/* SPDX-License-Identifier: Apache-2.0 */
/* Writes JSON values to a body that has a limit. */
#include "procs/engine/gateway/api/writer.h"

/* With flags of jansson. */
static void put(struct writer *w, const char *before, json_t *value, size_t flags)
{
    if (!w->failed && value) {
        fputs(before, w->out);
        int rc = json_dumpf(value, w->out, JSON_COMPACT | flags);
        long at = ftell(w->out);
        w->failed = rc != 0 || at < 0 || (size_t)at > w->limit;
    }
    w->failed |= !value;
    json_decref(value);
}

void writer_put(struct writer *w, const char *before, json_t *value)
{
    put(w, before, value, JSON_ENCODE_ANY);
}

void writer_members(struct writer *w, const char *before, json_t *object)
{
    put(w, before, object, JSON_EMBED);
}
