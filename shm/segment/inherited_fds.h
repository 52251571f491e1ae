/* SPDX-License-Identifier: Apache-2.0 */
/* Inherited file descriptors of a child process, with fixed numbers. All others are close-on-exec.
 * The supervisor sets them up with posix_spawn file actions; a child uses them in
 * procs/engine/child/child.c. */
#ifndef SLUICE_SHM_SEGMENT_INHERITED_FDS_H
#define SLUICE_SHM_SEGMENT_INHERITED_FDS_H

#include <stdbool.h>

#include "config/services.h"
#include "shm/segment/segment.h"

enum inherited_fd {
    INHERITED_LIFELINE = 3, /* read end; EOF: the supervisor has exited */
    INHERITED_READY = 4,    /* write end; one byte when ready */
    INHERITED_RUN_LOCK = 5, /* the flock'ed lock file; locked until the last child exits */
    INHERITED_SEGMENTS = 6, /* 6 + enum segment_kind; read-only or read-write by the child's
                             * rights */
    INHERITED__END = INHERITED_SEGMENTS + 7,
    INHERITED_HTTP = INHERITED__END, /* gateway only: the listening socket */
    INHERITED_FILES,                 /* loaders only: the files that they read, in the order of
                                      * directory_head.files; those that are held */
    INHERITED_FILES__END = INHERITED_FILES + 8
};

/* True when a child inherits a segment. The gateway, which handles untrusted clients, only has the
 * process table: its own row and the parameters. */
static inline bool inherits_segment(enum service service, enum segment_kind kind)
{
    return service != SERVICE_GATEWAY || kind == SEGMENT_PROCS;
}

#endif
