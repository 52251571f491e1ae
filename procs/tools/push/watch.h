/* SPDX-License-Identifier: Apache-2.0 */
/* When a request has waited too long. The caller has the clock. */
#ifndef SLUICE_TOOLS_PUSH_WATCH_H
#define SLUICE_TOOLS_PUSH_WATCH_H

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/clock.h"

#define WATCH_QUIET_NS  (60 * NS_PER_S) /* without a byte in either direction */
#define WATCH_ANSWER_NS (900 * NS_PER_S)

/* A body that is being sent must move, and may take any time. Behind it, a server may be silent: it
 * copies a file from one place to another, or puts the parts of an object together. But what it
 * answers must end, even if bytes trickle. */
struct watch {
    bool reads;     /* HEAD, GET: there is no body, and nothing is copied */
    bool sent;      /* the whole body */
    uint64_t moved; /* bytes so far */
    uint64_t moved_ns, sent_ns;
};

void watch_start(struct watch *w, bool reads, uint64_t now_ns);
/* `moved`: bytes in both directions so far; `sent`: the whole body is. NULL; or why the request
 * must end, as static text. */
const char *watch_look(struct watch *w, uint64_t moved, bool sent, uint64_t now_ns);

#endif
