/* What a child inherits: descriptors with fixed numbers. Everything else is close-on-exec.
 * The supervisor arranges them with posix_spawn file actions; a child takes them in procs/engine/child/child.c. */
#ifndef SLUICE_SHM_SEGMENT_INHERITED_FDS_H
#define SLUICE_SHM_SEGMENT_INHERITED_FDS_H

#include <stdbool.h>

#include "config/services.h"
#include "shm/segment/segment.h"

enum inherited_fd {
    INHERITED_LIFELINE = 3, /* read end; EOF = the supervisor is gone */
    INHERITED_READY = 4,    /* write end; one byte when ready */
    INHERITED_RUN_LOCK = 5, /* the flock'ed lock file; held until the last child ends */
    INHERITED_SEGMENTS = 6, /* 6 + enum segment_kind; read-only or read-write as the child may */
    INHERITED__END = INHERITED_SEGMENTS + 7,
    INHERITED_HTTP = INHERITED__END /* gateway only: the listening socket */
};

/* Whether a child is given a segment at all. The gateway, which strangers talk to, has the process
 * table alone: its own row, and the parameters. */
static inline bool inherits_segment(enum service service, enum segment_kind kind)
{
    return service != SERVICE_GATEWAY || kind == SEGMENT_PROCS;
}

#endif
