/* SPDX-License-Identifier: Apache-2.0 */
/* When a request has waited too long (watch.h). */
#include "procs/tools/push/watch.h"

void watch_start(struct watch *w, bool reads, uint64_t now_ns)
{
    *w = (struct watch){.reads = reads, .sent = reads, .moved_ns = now_ns, .sent_ns = now_ns};
}

const char *watch_look(struct watch *w, uint64_t moved, bool sent, uint64_t now_ns)
{
    if (moved != w->moved) {
        w->moved = moved;
        w->moved_ns = now_ns;
    }
    if (sent && !w->sent) {
        w->sent = true;
        w->sent_ns = now_ns;
    }
    if ((!w->sent || w->reads) && now_ns - w->moved_ns > WATCH_QUIET_NS)
        return "no byte in 60 s";
    if (w->sent && now_ns - w->sent_ns > WATCH_ANSWER_NS)
        return "no whole answer in 15 minutes";
    return NULL;
}
