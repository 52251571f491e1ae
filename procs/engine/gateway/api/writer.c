/* SPDX-License-Identifier: Apache-2.0 */
/* Writes JSON values to a body that has a limit. */
#include "procs/engine/gateway/api/writer.h"

void writer_put(struct writer *w, const char *before, json_t *value)
{
    long at = ftell(w->out);
    fputs(before, w->out);
    w->failed |= !value || at < 0 || (size_t)at > w->limit ||
                 json_dumpf(value, w->out, JSON_COMPACT | JSON_ENCODE_ANY) != 0;
    json_decref(value);
}
